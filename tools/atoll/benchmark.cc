// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "tools/atoll/benchmark_compare.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/machine.h"
#include "tools/atoll/model_inputs.h"
#include "tools/atoll/percentile.h"
#include "tools/atoll/progress.h"
#include "tools/atoll/report.h"
#include "tools/atoll/session.h"
#include "tools/atoll/stop_on_signal.h"
#include "tools/atoll/stopwatch.h"
#include "tools/atoll/subcommands.h"

namespace atollcmd {
namespace {

// Samples in a report; of more, every second, third ... is stored.
constexpr size_t kMaxStoredSamples = 2000;

struct BenchmarkOptions {
  std::vector<std::string> models;
  std::vector<std::string> devices = {"auto"};
  std::vector<int> threads = {0};
  std::vector<std::string> input_shapes;
  int runs = 50;
  int warmup = 3;
  bool copy = false;
  bool json = false;
};

// One model on one device with one number of threads.
struct Entry {
  explicit Entry(const SessionOptions& options) : session(options) {}

  Session session;
  double first_ms = 0;
  std::vector<double> samples_ms;  // in the order in which they were taken
  std::vector<double> sorted_ms;
  double mean_ms = 0;
};
using Entries = std::vector<std::unique_ptr<Entry>>;

Entries PrepareEntries(const BenchmarkOptions& options) {
  Entries entries;
  for (const std::string& model : options.models) {
    for (const std::string& device : options.devices) {
      for (const int threads : options.threads) {
        entries.push_back(
            std::make_unique<Entry>(SessionOptions{.model = model,
                                                   .device = device,
                                                   .threads = threads,
                                                   .input_shapes = options.input_shapes,
                                                   .copy = options.copy}));
        FillInputs(entries.back()->session, 1, {});
        entries.back()->session.Lint({});
      }
    }
  }
  return entries;
}

// In turns, so that what happens on the machine meanwhile happens to all of them. Ends early when
// `stop` is set.
void TakeSamples(const Entries& entries, const BenchmarkOptions& options,
                 const std::atomic<bool>& stop) {
  Stopwatch stopwatch;
  Progress progress("measuring",
                    static_cast<int64_t>(entries.size()) * (1 + options.warmup + options.runs),
                    "inferences");
  for (const auto& entry : entries) {
    if (stop) return;
    stopwatch.LapMs();
    entry->session.Invoke();
    entry->first_ms = stopwatch.LapMs();
    progress.Step();
    for (int i = 0; i < options.warmup && !stop; ++i) {
      entry->session.Invoke();
      progress.Step();
    }
    entry->samples_ms.reserve(static_cast<size_t>(options.runs));
  }
  for (int done = 0; done < options.runs; done += kSamplesPerTurn) {
    const int count = std::min(kSamplesPerTurn, options.runs - done);
    for (const auto& entry : entries) {
      // Brings its data back into the caches.
      if (entries.size() > 1) entry->session.Invoke();
      for (int i = 0; i < count; ++i) {
        if (stop) return;
        stopwatch.LapMs();
        entry->session.Invoke();
        entry->samples_ms.push_back(stopwatch.LapMs());
        progress.Step();
      }
    }
  }
}

// Those of which there is at least one sample: all, unless `stop` is set.
Entries Measure(Entries entries, const BenchmarkOptions& options, const std::atomic<bool>& stop) {
  TakeSamples(entries, options, stop);
  std::erase_if(entries, [](const auto& entry) { return entry->samples_ms.empty(); });
  for (const auto& entry : entries) {
    entry->sorted_ms = entry->samples_ms;
    std::sort(entry->sorted_ms.begin(), entry->sorted_ms.end());
    entry->mean_ms = std::accumulate(entry->sorted_ms.begin(), entry->sorted_ms.end(), 0.0) /
                     static_cast<double>(entry->sorted_ms.size());
  }
  return entries;
}

int64_t PeakRssBytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

double LoadMs(const Session& session) {
  const Session::LoadTimes& load = session.load_times();
  return load.model_ms + load.device_ms + load.prepare_ms;
}

Json StoredSamples(const std::vector<double>& samples) {
  const size_t step = (samples.size() + kMaxStoredSamples - 1) / kMaxStoredSamples;
  Json stored = Json::array();
  for (size_t i = 0; i < samples.size(); i += step) stored.push_back(RoundedMs(samples[i]));
  return stored;
}

// What is measured of one entry, added to what a report says of its session.
void AddMeasured(const Entry& entry, const BenchmarkOptions& options, Json* report) {
  const Session& session = entry.session;
  const Session::LoadTimes& load = session.load_times();
  (*report)["threads"] = session.options().threads;
  (*report)["load_ms"] = {{"total", RoundedMs(LoadMs(session))},
                          {"model", RoundedMs(load.model_ms)},
                          {"open_device", RoundedMs(load.device_ms)},
                          {"prepare", RoundedMs(load.prepare_ms)}};
  (*report)["first_inference_ms"] = RoundedMs(entry.first_ms);
  (*report)["warmup"] = options.warmup;
  (*report)["runs"] = entry.samples_ms.size();
  (*report)["latency_ms"] = {{"min", RoundedMs(entry.sorted_ms.front())},
                             {"median", RoundedMs(Percentile(entry.sorted_ms, 50))},
                             {"mean", RoundedMs(entry.mean_ms)},
                             {"p90", RoundedMs(Percentile(entry.sorted_ms, 90))},
                             {"p99", RoundedMs(Percentile(entry.sorted_ms, 99))}};
  const AtollMemoryInfo memory = session.memory_info();
  (*report)["arena_bytes"] = memory.arena_bytes;
  (*report)["arena_lower_bound_bytes"] = memory.arena_lower_bound_bytes;
  const AtollInvokeInfo device = session.invoke_info();
  (*report)["modelled_device"] = {{"ms", RoundedMs(device.device_seconds * 1e3)},
                                  {"cycles", device.device_cycles},
                                  {"bytes_to_device", device.bytes_to_device},
                                  {"bytes_from_device", device.bytes_from_device}};
  (*report)["samples_ms"] = StoredSamples(entry.samples_ms);
}

Json ReportJson(const Entries& entries, const BenchmarkOptions& options, bool is_table) {
  if (!is_table) {
    Json report = NewReport("benchmark", entries[0]->session);
    AddMeasured(*entries[0], options, &report);
    report["peak_rss_bytes"] = PeakRssBytes();
    report["machine"] = MachineJson();
    return report;
  }
  Json report = NewReport("benchmark");
  report["peak_rss_bytes"] = PeakRssBytes();
  report["machine"] = MachineJson();
  report["entries"] = Json::array();
  for (const auto& entry : entries) {
    Json one = NewReport("benchmark", entry->session);
    for (const char* key : {"schema", "command", "atoll"}) one.erase(key);
    AddMeasured(*entry, options, &one);
    report["entries"].push_back(std::move(one));
  }
  return report;
}

std::string ReportText(const Entry& entry) {
  const Session& session = entry.session;
  const Session::LoadTimes& load = session.load_times();
  const AtollMemoryInfo memory = session.memory_info();
  std::string text = fmt::format(
      "model    {}\n"
      "device   {}: {}\n"
      "plan     {}\n"
      "load     {:.3f} ms: model {:.3f}, open device {:.3f}, prepare {:.3f}\n"
      "first    {:.3f} ms\n"
      "invoke   min {:.3f}  median {:.3f}  mean {:.3f}  p90 {:.3f}  p99 {:.3f} ms, measured on the "
      "host, {} runs\n"
      "memory   {} peak resident set, {} of intermediate tensors (at least {})\n",
      session.options().model, session.device_name(), session.device_description(),
      session.PartitionSummary(), LoadMs(session), load.model_ms, load.device_ms, load.prepare_ms,
      entry.first_ms, entry.sorted_ms.front(), Percentile(entry.sorted_ms, 50), entry.mean_ms,
      Percentile(entry.sorted_ms, 90), Percentile(entry.sorted_ms, 99), entry.samples_ms.size(),
      ByteSizeText(PeakRssBytes()), ByteSizeText(memory.arena_bytes),
      ByteSizeText(memory.arena_lower_bound_bytes));
  if (session.on_device()) {
    const AtollInvokeInfo device = session.invoke_info();
    if (session.on_coral()) {  // of which there is no timing model
      text +=
          fmt::format("link     {} to the device, {} from it per inference\n",
                      ByteSizeText(device.bytes_to_device), ByteSizeText(device.bytes_from_device));
      return text;
    }
    text += fmt::format(
        "modelled {:.3f} ms of device time per inference: {} cycles, {} to the device, {} from "
        "it\n",
        device.device_seconds * 1e3, Thousands(device.device_cycles),
        ByteSizeText(device.bytes_to_device), ByteSizeText(device.bytes_from_device));
  }
  return text;
}

std::string TableText(const Entries& entries) {
  std::string text = fmt::format(
      "ms per inference, measured on the host, {} runs each, in turns\n"
      "{:>9} {:>9} {:>9} {:>9} {:>9}  {:<7} {:<12} model\n",
      entries.back()->samples_ms.size(), "load", "min", "median", "p90", "p99", "threads",
      "device");
  for (const auto& entry : entries) {
    const SessionOptions& session = entry->session.options();
    text += fmt::format("{:>9.3f} {:>9.4f} {:>9.4f} {:>9.4f} {:>9.4f}  {:<7} {:<12} {}\n",
                        LoadMs(entry->session), entry->sorted_ms.front(),
                        Percentile(entry->sorted_ms, 50), Percentile(entry->sorted_ms, 90),
                        Percentile(entry->sorted_ms, 99),
                        session.threads == 0 ? "default" : fmt::format("{}", session.threads),
                        entry->session.device_name(), Printable(session.model));
  }
  return text;
}

void RunBenchmark(const BenchmarkOptions& options) {
  if (options.models.empty()) {
    throw CommandError(ExitCode::kUsage, "MODEL is required; see 'atoll benchmark --help'");
  }
  Entries prepared = PrepareEntries(options);
  const size_t count = prepared.size();
  for (const auto& entry : prepared) entry->session.Announce();
  const std::atomic<bool>& stop = StopOnSignals();
  const Entries entries = Measure(std::move(prepared), options, stop);
  for (const auto& entry : entries) entry->session.AnnounceHealth();
  const bool is_table = count > 1;
  if (entries.empty()) {
    throw CommandError(ExitCode::kInterrupted, "interrupted before anything was measured");
  }
  if (options.json) {
    PrintReport(ReportJson(entries, options, is_table));
  } else {
    PrintText(is_table ? TableText(entries) : ReportText(*entries[0]));
  }
  const size_t runs = entries.back()->samples_ms.size();
  if (entries.size() < count || runs < static_cast<size_t>(options.runs)) {
    throw CommandError(
        ExitCode::kInterrupted,
        fmt::format("interrupted after {} of {} runs; this is what they took", runs, options.runs));
  }
}

}  // namespace

void AddBenchmarkCommand(CLI::App* app) {
  auto options = std::make_shared<BenchmarkOptions>();
  CLI::App* command = app->add_subcommand(
      "benchmark", "Time to load models and to run them, measured on this host.");
  command->add_option("MODEL", options->models, "one .tflite file or more");
  command
      ->add_option("--device", options->devices,
                   "auto | cpu | emu | emu:PROFILE | usb | usb:N | pci:N, as for 'atoll run'; "
                   "repeatable")
      ->allow_extra_args(false)
      ->capture_default_str();
  command
      ->add_option("--threads", options->threads,
                   "host threads for operators on the CPU and for the emulator; 0: as the machine "
                   "suggests; several with commas or repeated")
      ->allow_extra_args(false)
      ->delimiter(',')
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  AddInputShapeOption(command, &options->input_shapes);
  command->add_flag("--copy", options->copy,
                    "read model files into memory instead of mapping them");
  command->add_option("--runs", options->runs, "measured inferences")
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str();
  command->add_option("--warmup", options->warmup, "inferences between the first and the measured")
      ->check(CLI::Range(0, 10'000'000))
      ->capture_default_str();
  command->add_flag("--json", options->json, "one line of JSON on stdout");
  command->footer(
      "All times are measured on the host, inputs filled from seed 1, apart from the line (in\n"
      "JSON: the object modelled_device) called 'modelled': what the device's timing model says\n"
      "that the device itself would take. With the emulator the two have nothing in common.\n"
      "Percentiles are nearest-rank. In JSON, latency_ms.median is the time of one inference.\n"
      "\n"
      "Every model is measured on every device with every number of threads, in turns of ten\n"
      "inferences, and reported as a table, in JSON as a list of entries. 'atoll benchmark\n"
      "compare' says which of them differ between two reports. A model of that name is\n"
      "./compare. Ctrl-C ends with what was measured until then, and with exit code 130.\n"
      "\n"
      "Examples:\n"
      "  atoll benchmark model.tflite\n"
      "  atoll benchmark model.tflite --device cpu --threads 1 --runs 200\n"
      "  atoll benchmark model.tflite --device emu --json\n"
      "  atoll benchmark *.tflite --device cpu --threads 1,2 --runs 200 --json > after.json\n"
      "  atoll benchmark compare before.json after.json");
  AddBenchmarkCompareCommand(command);
  command->callback([command, options] {
    if (command->get_subcommands().empty()) RunBenchmark(*options);
  });
}

}  // namespace atollcmd
