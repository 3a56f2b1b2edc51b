// SPDX-License-Identifier: Apache-2.0
//
// `atoll benchmark`, and `atoll benchmark compare`, which takes two of its reports: for every
// model, device and number of threads that both have, how much longer the second took, and whether
// that is more than noise.
//
// Samples that follow each other are alike (the same neighbours on the machine, the same clock
// rate), so what is resampled are blocks of samples: 2,000 times both medians are taken of
// blocks drawn with replacement, which gives the interval that holds 95 % of the ratios. An entry
// is better or worse if the whole interval lies more than 1 % from 1. The same files give the same
// answer.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tools/atoll/exit_code.h"
#include "tools/atoll/files.h"
#include "tools/atoll/measure.h"
#include "tools/atoll/report.h"
#include "tools/atoll/session.h"
#include "tools/atoll/subcommand.h"

namespace atollcmd {
namespace {

// How many samples `atoll benchmark` takes of an entry before it turns to the next one.
constexpr int kSamplesPerTurn = 10;

struct TimeRatio {
  double ratio = 1;  // of the medians, second to first
  double low = 1, high = 1;
  std::vector<double> resampled;  // not sorted
};

constexpr int kResamples = 2000;
constexpr double kConfidence = 0.95;
constexpr double kSmallest = 0.01;  // differences up to this one are of no interest

struct ReportEntry {
  std::string name;  // "mobilenet.tflite, cpu, 2 threads"
  std::vector<double> samples_ms;
};

struct Comparison {
  std::string name;
  double first_ms = 0, second_ms = 0;  // medians
  TimeRatio time;
};

double Median(std::vector<double>* samples) {
  const auto middle = samples->begin() + static_cast<std::ptrdiff_t>(samples->size() / 2);
  std::nth_element(samples->begin(), middle, samples->end());
  return *middle;
}

double MedianOf(std::vector<double> samples) { return Median(&samples); }

// The median of as many blocks as there are, drawn with replacement.
double ResampledMedian(const std::vector<double>& samples, std::mt19937_64* random,
                       std::vector<double>* scratch) {
  constexpr size_t kBlock = kSamplesPerTurn;
  const size_t blocks = (samples.size() + kBlock - 1) / kBlock;
  scratch->clear();
  for (size_t i = 0; i < blocks; ++i) {
    const size_t begin = (*random)() % blocks * kBlock;
    const size_t end = std::min(begin + kBlock, samples.size());
    scratch->insert(scratch->end(), samples.begin() + static_cast<std::ptrdiff_t>(begin),
                    samples.begin() + static_cast<std::ptrdiff_t>(end));
  }
  return Median(scratch);
}

// Sets low and high by the ratios that have been resampled.
void FindInterval(TimeRatio* time) {
  std::vector<double> sorted = time->resampled;
  std::sort(sorted.begin(), sorted.end());
  const double outside = (1 - kConfidence) / 2 * static_cast<double>(sorted.size());
  time->low = sorted[static_cast<size_t>(outside)];
  time->high = sorted[sorted.size() - 1 - static_cast<size_t>(outside)];
}

std::string Verdict(const TimeRatio& time) {
  if (time.high < 1 - kSmallest) return "better";
  if (time.low > 1 + kSmallest) return "worse";
  return "noise";
}

ReportEntry ReadEntry(const Json& stored) {
  ReportEntry entry;
  const std::string model =
      std::filesystem::path(stored.at("model").get<std::string>()).filename().string();
  const int threads = stored.at("threads").get<int>();
  entry.name = fmt::format("{}, {}, {}", model, stored.at("device").at("name").get<std::string>(),
                           threads == 0   ? "default threads"
                           : threads == 1 ? "1 thread"
                                          : fmt::format("{} threads", threads));
  entry.samples_ms = stored.at("samples_ms").get<std::vector<double>>();
  const bool all_positive = std::all_of(entry.samples_ms.begin(), entry.samples_ms.end(),
                                        [](double ms) { return std::isfinite(ms) && ms > 0; });
  if (entry.samples_ms.empty() || !all_positive) {
    Fail(ExitCode::kFailure, "'{}' has samples that are no times", entry.name);
  }
  return entry;
}

// The entries of a report, which is one itself if it is of a single model.
std::vector<ReportEntry> ReadReport(const std::string& path) {
  const std::string text = ReadFile(path);
  try {
    const Json report = Json::parse(text);
    if (report.at("command") != "benchmark") throw std::runtime_error("of another command");
    std::vector<ReportEntry> entries;
    if (!report.contains("entries")) return {ReadEntry(report)};
    for (const Json& stored : report.at("entries")) entries.push_back(ReadEntry(stored));
    return entries;
  } catch (const CommandError& error) {
    Fail(ExitCode::kFailure, "report '{}': {}", path, error.what());
  } catch (const std::exception&) {
    Fail(ExitCode::kFailure,
         "'{}' is no report of 'atoll benchmark --json' with samples; make it anew", path);
  }
}

// Of samples in the order in which they were taken; neither is empty.
TimeRatio CompareTimes(const std::vector<double>& first, const std::vector<double>& second) {
  TimeRatio time;
  time.ratio = MedianOf(second) / MedianOf(first);
  std::mt19937_64 random(1);
  std::vector<double> scratch;
  for (int i = 0; i < kResamples; ++i) {
    const double first_median = ResampledMedian(first, &random, &scratch);
    time.resampled.push_back(ResampledMedian(second, &random, &scratch) / first_median);
  }
  FindInterval(&time);
  return time;
}

std::vector<Comparison> Compare(const std::vector<ReportEntry>& first,
                                const std::vector<ReportEntry>& second) {
  std::vector<Comparison> comparisons;
  for (const ReportEntry& a : first) {
    const auto b = std::find_if(second.begin(), second.end(),
                                [&](const ReportEntry& other) { return other.name == a.name; });
    if (b == second.end()) continue;
    Comparison& comparison = comparisons.emplace_back();
    comparison.name = a.name;
    comparison.first_ms = MedianOf(a.samples_ms);
    comparison.second_ms = MedianOf(b->samples_ms);
    comparison.time = CompareTimes(a.samples_ms, b->samples_ms);
  }
  return comparisons;
}

// The geometric mean of the ratios, resampled with them.
TimeRatio MeanOf(const std::vector<Comparison>& comparisons) {
  TimeRatio mean;
  const double count = static_cast<double>(comparisons.size());
  double sum = 0;
  std::vector<double> sums(kResamples);
  for (const Comparison& comparison : comparisons) {
    sum += std::log(comparison.time.ratio);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += std::log(comparison.time.resampled[i]);
  }
  mean.ratio = std::exp(sum / count);
  for (const double resampled : sums) mean.resampled.push_back(std::exp(resampled / count));
  FindInterval(&mean);
  return mean;
}

Json RatioJson(const TimeRatio& time) {
  const auto rounded = [](double x) { return std::round(x * 1e4) / 1e4; };
  return {{"ratio", rounded(time.ratio)},
          {"low", rounded(time.low)},
          {"high", rounded(time.high)},
          {"verdict", Verdict(time)}};
}

struct CompareOptions {
  std::string first, second;
  bool json = false;
};

void RunCompare(const CompareOptions& options) {
  const std::vector<ReportEntry> first = ReadReport(options.first);
  const std::vector<Comparison> comparisons = Compare(first, ReadReport(options.second));
  if (comparisons.empty()) {
    Fail(ExitCode::kFailure, "'{}' and '{}' have no model, device and number of threads in common",
         options.first, options.second);
  }
  const TimeRatio mean = MeanOf(comparisons);
  Json report = NewReport("benchmark compare");
  report["first"] = options.first;
  report["second"] = options.second;
  report["entries"] = Json::array();
  std::string text = fmt::format("{:>10} {:>10} {:>7} {:>16}\n", "first ms", "second ms", "ratio",
                                 "95 % interval");
  for (const Comparison& comparison : comparisons) {
    Json& entry =
        report["entries"].emplace_back(Json{{"name", comparison.name},
                                            {"first_ms", RoundedMs(comparison.first_ms)},
                                            {"second_ms", RoundedMs(comparison.second_ms)}});
    entry.update(RatioJson(comparison.time));
    text += fmt::format("{:>10.3f} {:>10.3f} {:>7.3f} {:>7.3f} .. {:>5.3f}  {:<6}  {}\n",
                        comparison.first_ms, comparison.second_ms, comparison.time.ratio,
                        comparison.time.low, comparison.time.high, Verdict(comparison.time),
                        Printable(comparison.name));
  }
  report["geometric_mean"] = RatioJson(mean);
  text += fmt::format("{:>29.3f} {:>7.3f} .. {:>5.3f}  {:<6}  geometric mean of {}\n", mean.ratio,
                      mean.low, mean.high, Verdict(mean), comparisons.size());
  Print(
      options.json, [&] { return report; }, [&] { return text; });
}

// Samples in a report; of more, every second, third ... is stored.
constexpr size_t kMaxStoredSamples = 2000;

struct BenchmarkOptions {
  std::vector<std::string> models;
  std::vector<std::string> devices = {"auto"};
  std::vector<int> threads = {0};
  std::vector<std::string> input_shapes;
  std::vector<std::string> fallback_models;
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
  SessionOptions all;
  all.input_shapes = options.input_shapes;
  all.fallback_models = options.fallback_models;
  all.copy = options.copy;
  for (size_t model = 0; model < options.models.size(); ++model) {
    for (const std::string& device : options.devices) {
      for (const int threads : options.threads) {
        SessionOptions one = OptionsFor(all, options.models, model);
        one.device = device;
        one.threads = threads;
        entries.push_back(std::make_unique<Entry>(one));
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
    Fail(ExitCode::kUsage, "MODEL is required; see 'atoll benchmark --help'");
  }
  Entries prepared = PrepareEntries(options);
  const size_t count = prepared.size();
  for (const auto& entry : prepared) entry->session.Announce();
  const std::atomic<bool>& stop = StopOnSignals();
  const Entries entries = Measure(std::move(prepared), options, stop);
  for (const auto& entry : entries) entry->session.AnnounceHealth();
  const bool is_table = count > 1;
  if (entries.empty()) {
    Fail(ExitCode::kInterrupted, "interrupted before anything was measured");
  }
  Print(
      options.json, [&] { return ReportJson(entries, options, is_table); },
      [&] { return is_table ? TableText(entries) : ReportText(*entries[0]); });
  const size_t runs = entries.back()->samples_ms.size();
  if (entries.size() < count || runs < static_cast<size_t>(options.runs)) {
    Fail(ExitCode::kInterrupted, "interrupted after {} of {} runs; this is what they took", runs,
         options.runs);
  }
}

void AddCompareCommand(CLI::App* benchmark) {
  Subcommand<CompareOptions> command(benchmark, "benchmark compare", RunCompare);
  command.Add("FIRST", command->first)->required();
  command.Add("SECOND", command->second)->required();
  command.Flag("--json", command->json);
}

}  // namespace

void AddBenchmarkCommand(CLI::App* app) {
  Subcommand<BenchmarkOptions> command(app, "benchmark", RunBenchmark);
  command.Add("MODEL", command->models);
  command.AddRepeatable("--device", command->devices);
  command.AddRepeatable("--threads", command->threads)->delimiter(',')->check(CLI::Range(0, 256));
  AddInputShapeOption(&command, &command->input_shapes);
  AddFallbackOption(&command, &command->fallback_models);
  command.Flag("--copy", command->copy);
  command.Add("--runs", command->runs)->check(CLI::Range(1, 10'000'000));
  command.Add("--warmup", command->warmup)->check(CLI::Range(0, 10'000'000));
  command.Flag("--json", command->json);
  AddCompareCommand(command.app());
}

}  // namespace atollcmd
