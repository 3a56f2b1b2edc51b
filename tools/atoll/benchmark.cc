// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <numeric>

#include "tools/atoll/model_inputs.h"
#include "tools/atoll/percentile.h"
#include "tools/atoll/report.h"
#include "tools/atoll/session.h"
#include "tools/atoll/stopwatch.h"
#include "tools/atoll/subcommands.h"

namespace atollcmd {
namespace {

struct BenchmarkOptions {
  SessionOptions session;
  int runs = 50;
  int warmup = 3;
  bool json = false;
};

struct Measurement {
  double first_ms = 0;
  std::vector<double> invoke_ms;  // ascending
  double mean_ms = 0;
  int64_t peak_rss_bytes = 0;
};

Measurement Measure(Session* session, const BenchmarkOptions& options) {
  Measurement measured;
  Stopwatch stopwatch;
  session->Invoke();
  measured.first_ms = stopwatch.LapMs();
  for (int i = 0; i < options.warmup; ++i) session->Invoke();
  measured.invoke_ms.reserve(options.runs);
  for (int i = 0; i < options.runs; ++i) {
    stopwatch.LapMs();
    session->Invoke();
    measured.invoke_ms.push_back(stopwatch.LapMs());
  }
  std::sort(measured.invoke_ms.begin(), measured.invoke_ms.end());
  measured.mean_ms = std::accumulate(measured.invoke_ms.begin(), measured.invoke_ms.end(), 0.0) /
                     static_cast<double>(options.runs);
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  measured.peak_rss_bytes = int64_t{usage.ru_maxrss} * 1024;
  return measured;
}

Json ReportJson(const Session& session, const BenchmarkOptions& options,
                const Measurement& measured) {
  Json report = NewReport("benchmark", session);
  const Session::LoadTimes& load = session.load_times();
  report["threads"] = options.session.threads;
  report["load_ms"] = {{"total", RoundedMs(load.model_ms + load.device_ms + load.prepare_ms)},
                       {"model", RoundedMs(load.model_ms)},
                       {"open_device", RoundedMs(load.device_ms)},
                       {"prepare", RoundedMs(load.prepare_ms)}};
  report["first_inference_ms"] = RoundedMs(measured.first_ms);
  report["warmup"] = options.warmup;
  report["runs"] = options.runs;
  report["latency_ms"] = {{"min", RoundedMs(measured.invoke_ms.front())},
                          {"median", RoundedMs(Percentile(measured.invoke_ms, 50))},
                          {"mean", RoundedMs(measured.mean_ms)},
                          {"p90", RoundedMs(Percentile(measured.invoke_ms, 90))},
                          {"p99", RoundedMs(Percentile(measured.invoke_ms, 99))}};
  report["peak_rss_bytes"] = measured.peak_rss_bytes;
  const AtollMemoryInfo memory = session.memory_info();
  report["arena_bytes"] = memory.arena_bytes;
  report["arena_lower_bound_bytes"] = memory.arena_lower_bound_bytes;
  const AtollInvokeInfo device = session.invoke_info();
  report["modelled_device"] = {{"ms", RoundedMs(device.device_seconds * 1e3)},
                               {"cycles", device.device_cycles},
                               {"bytes_to_device", device.bytes_to_device},
                               {"bytes_from_device", device.bytes_from_device}};
  return report;
}

std::string ReportText(const Session& session, const BenchmarkOptions& options,
                       const Measurement& measured) {
  const Session::LoadTimes& load = session.load_times();
  std::string text = fmt::format(
      "model    {}\n"
      "device   {}: {}\n"
      "plan     {}\n"
      "load     {:.3f} ms: model {:.3f}, open device {:.3f}, prepare {:.3f}\n"
      "first    {:.3f} ms\n"
      "invoke   min {:.3f}  median {:.3f}  mean {:.3f}  p90 {:.3f}  p99 {:.3f} ms, measured on the "
      "host, {} runs\n"
      "memory   {} peak resident set\n",
      session.options().model, session.device_name(), session.device_description(),
      session.PartitionSummary(), load.model_ms + load.device_ms + load.prepare_ms, load.model_ms,
      load.device_ms, load.prepare_ms, measured.first_ms, measured.invoke_ms.front(),
      Percentile(measured.invoke_ms, 50), measured.mean_ms, Percentile(measured.invoke_ms, 90),
      Percentile(measured.invoke_ms, 99), options.runs, ByteSizeText(measured.peak_rss_bytes));
  if (session.on_device()) {
    const AtollInvokeInfo device = session.invoke_info();
    text += fmt::format(
        "modelled {:.3f} ms of device time per inference: {} cycles, {} to the device, {} from "
        "it\n",
        device.device_seconds * 1e3, Thousands(device.device_cycles),
        ByteSizeText(device.bytes_to_device), ByteSizeText(device.bytes_from_device));
  }
  return text;
}

void RunBenchmark(const BenchmarkOptions& options) {
  Session session(options.session);
  FillInputs(session, 1, {});
  session.Lint({});
  session.Announce();
  const Measurement measured = Measure(&session, options);
  if (options.json) {
    PrintReport(ReportJson(session, options, measured));
  } else {
    PrintText(ReportText(session, options, measured));
  }
}

}  // namespace

void AddBenchmarkCommand(CLI::App* app) {
  auto options = std::make_shared<BenchmarkOptions>();
  CLI::App* command = app->add_subcommand(
      "benchmark", "Time to load a model and to run it, measured on this host.");
  AddSessionOptions(command, &options->session);
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
      "Examples:\n"
      "  atoll benchmark model.tflite\n"
      "  atoll benchmark model.tflite --device cpu --threads 1 --runs 200\n"
      "  atoll benchmark model.tflite --device emu --json");
  command->callback([options] { RunBenchmark(*options); });
}

}  // namespace atollcmd
