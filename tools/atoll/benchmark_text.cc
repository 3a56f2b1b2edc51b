// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <optional>
#include <utility>

#include "tools/atoll/benchmark.h"
#include "tools/atoll/scores.h"

namespace atollcmd {
namespace {

std::string PercentilesText(const std::vector<double>& sorted,
                            const std::vector<double>& percentiles) {
  std::string text = fmt::format("min {:.3f}", sorted.front());
  bool has_mean = false;
  for (const double percent : percentiles) {
    if (percent > 50 && !std::exchange(has_mean, true)) {
      text += fmt::format("  mean {:.3f}", MeanMs(sorted));
    }
    const std::string name = percent == 50 ? "median" : "p" + PercentName(percent);
    text += fmt::format("  {} {:.3f}", name, Percentile(sorted, percent));
  }
  if (!has_mean) text += fmt::format("  mean {:.3f}", MeanMs(sorted));
  return text;
}

std::string StateText(const Entry& entry) {
  std::string text;
  if (entry.before.temperature_c && entry.after.temperature_c) {
    text += fmt::format("  {:.0f} to {:.0f} °C", *entry.before.temperature_c,
                        *entry.after.temperature_c);
  }
  if (entry.before.clock_mhz && entry.after.clock_mhz) {
    text += fmt::format("  {:.0f} to {:.0f} MHz", *entry.before.clock_mhz, *entry.after.clock_mhz);
  }
  return text.empty() ? "" : fmt::format("machine {}\n", text);
}

std::string ScenarioText(const Entry& entry) {
  const LoadSettings& settings = *entry.settings;
  const LoadVerdict& verdict = *entry.verdict;
  std::string what = ScenarioName(settings.scenario);
  if (settings.scenario == Scenario::kServer) {
    what +=
        fmt::format(", {:g} queries in a second (Poisson, seed {}), p{:g} within {:g} ms",
                    settings.qps, settings.seed, settings.percentile, settings.latency_bound_ms);
  } else if (settings.scenario == Scenario::kMultiStream) {
    what += fmt::format(", {} samples in a query", settings.samples_per_query);
  }
  std::string text = fmt::format(
      "scenario {}\nresult   {}: {} {}\n", what, verdict.valid ? "VALID" : "INVALID",
      verdict.metric,
      verdict.result ? fmt::format("{:.3f} {}", *verdict.result, verdict.unit) : "not measured");
  if (verdict.early_stopping_ms) {
    text += fmt::format("         p{:g} is at most {:.3f} ms with 99 % confidence\n",
                        settings.percentile, *verdict.early_stopping_ms);
  }
  for (const LoadRule& rule : verdict.rules) {
    text += fmt::format("  {:<4} {}: {}\n", rule.kept ? "ok" : "NO", rule.name, rule.what);
  }
  for (const std::string& departure : verdict.departures) {
    text += fmt::format("  note MLPerf has other settings: {}\n", departure);
  }
  return text;
}

std::string AccuracyText(const Accuracy& accuracy) {
  const auto line = [&](const char* name, int64_t hits) {
    const Interval share = Share(hits, accuracy.pictures);
    return fmt::format("{:<8} {:.2f} % [{:.2f}, {:.2f}] of {} pictures\n", name, 100 * share.value,
                       100 * share.low, 100 * share.high, accuracy.pictures);
  };
  return line("top-1", accuracy.top1) + line("top-5", accuracy.top5);
}

std::string OperatorsText(const Profile& profile) {
  std::string text = fmt::format("\n{:<28} {:>6} {:>10} {:>16} {:>14}\n", "operators", "count",
                                 "on device", "measured CPU ms", "modelled ms");
  for (const OperatorTimes& times : SumOperators(profile)) {
    text += fmt::format("{:<28} {:>6} {:>10} {:>16} {:>14}\n", Printable(times.op), times.count,
                        times.on_device,
                        times.on_device < times.count ? fmt::format("{:.4f}", times.cpu_ms) : "",
                        times.on_device > 0 ? fmt::format("{:.4f}", times.modelled_ms) : "");
  }
  return text;
}

std::string TargetText(const EntryReport& report) {
  const Entry& entry = *report.entry;
  const Session* const session = entry.target->session();
  if (session == nullptr) {
    return fmt::format("model    {}\nserver   {}\nfirst    {:.3f} ms\n",
                       Printable(entry.target->model()), Printable(entry.target->name()),
                       entry.first_ms);
  }
  const Session::LoadTimes& load = session->load_times();
  return fmt::format(
      "model    {}\n"
      "device   {}: {}\n"
      "plan     {}\n"
      "load     {:.3f} ms: model {:.3f}, open device {:.3f}, prepare {:.3f}\n"
      "first    {:.3f} ms\n",
      Printable(session->options().model), session->device_name(), session->device_description(),
      session->PartitionSummary(), load.model_ms + load.device_ms + load.prepare_ms, load.model_ms,
      load.device_ms, load.prepare_ms, entry.first_ms);
}

// What only a session knows.
std::string MemoryText(const Session& session) {
  const AtollMemoryInfo memory = session.memory_info();
  std::string text =
      fmt::format("memory   {} peak resident set, {} of intermediate tensors (at least {})\n",
                  ByteSizeText(PeakRssBytes()), ByteSizeText(memory.arena_bytes),
                  ByteSizeText(memory.arena_lower_bound_bytes));
  if (!session.on_device()) return text;
  const AtollInvokeInfo device = session.invoke_info();
  if (session.on_coral()) {  // of which there is no timing model
    return text + fmt::format("link     {} to the device, {} from it per inference\n",
                              ByteSizeText(device.bytes_to_device),
                              ByteSizeText(device.bytes_from_device));
  }
  if (session.partitions().empty())
    return text + "modelled nothing, as nothing runs on the device\n";
  return text +
         fmt::format(
             "modelled {:.3f} ms of device time per inference: {} cycles, {} to the device, {} "
             "from it\n",
             device.device_seconds * 1e3, Thousands(device.device_cycles),
             ByteSizeText(device.bytes_to_device), ByteSizeText(device.bytes_from_device));
}

std::string EntryText(const EntryReport& report, const std::vector<double>& percentiles) {
  const Entry& entry = *report.entry;
  const std::vector<double> sorted = SortedTimes(entry);
  std::string text = TargetText(report);
  if (entry.settings) text += ScenarioText(entry);
  if (entry.accuracy) text += AccuracyText(*entry.accuracy);
  if (!sorted.empty()) {
    const bool is_query = entry.settings && entry.settings->scenario != Scenario::kOffline;
    text += fmt::format("{:<8} {} ms, measured on the host, {} {}\n", is_query ? "query" : "invoke",
                        PercentilesText(sorted, percentiles), sorted.size(),
                        is_query ? "queries" : "runs");
  }
  if (const auto rate = RateOf(entry)) {
    const size_t streams = entry.target->stream_count();
    text += fmt::format("rate     {:.1f} inferences in a second, {} stream{}\n", *rate, streams,
                        streams == 1 ? "" : "s");
  }
  if (entry.failed > 0) {
    text +=
        fmt::format("failed   {}, the first with: {}\n", entry.failed, Printable(entry.failure));
  }
  text += StateText(entry);
  if (entry.target->session() != nullptr) text += MemoryText(*entry.target->session());
  if (report.profile) text += OperatorsText(*report.profile);
  return text;
}

std::string TableText(const std::vector<EntryReport>& entries,
                      const std::vector<double>& percentiles) {
  const bool has_turns = !entries.front().entry->settings && !entries.front().entry->accuracy;
  std::string text = fmt::format("ms per inference or query, measured on the host, {}\n",
                                 has_turns ? "in turns" : "one after the other");
  text += fmt::format("{:>9} {:>9}", "load", "min");
  for (const double percent : percentiles) {
    text += fmt::format(" {:>9}", percent == 50 ? "median" : "p" + PercentName(percent));
  }
  text += fmt::format(" {:>9} {:>8}  {:<7} {:<12} model\n", "per s", "runs", "threads", "device");
  for (const EntryReport& report : entries) {
    const Entry& entry = *report.entry;
    const std::vector<double> sorted = SortedTimes(entry);
    const Json& load = report.description.at("load_ms");
    const Json& threads = report.description.at("threads");
    text += load.is_null() ? fmt::format("{:>9}", "")
                           : fmt::format("{:>9.3f}", load.at("total").get<double>());
    text += sorted.empty() ? fmt::format(" {:>9}", "") : fmt::format(" {:>9.4f}", sorted.front());
    for (const double percent : percentiles) {
      text += sorted.empty() ? fmt::format(" {:>9}", "")
                             : fmt::format(" {:>9.4f}", Percentile(sorted, percent));
    }
    const auto rate = RateOf(entry);
    text += fmt::format(" {:>9} {:>8}  {:<7} {:<12} {}", rate ? fmt::format("{:.1f}", *rate) : "",
                        sorted.size(),
                        threads.is_null() ? ""
                        : threads == 0    ? "default"
                                          : fmt::format("{}", threads.get<int>()),
                        Printable(entry.target->name()), Printable(entry.target->model()));
    if (entry.verdict) text += entry.verdict->valid ? "  VALID" : "  INVALID";
    if (entry.accuracy) {
      text += fmt::format("  top-1 {:.2f} %",
                          100 * Share(entry.accuracy->top1, entry.accuracy->pictures).value);
    }
    text += "\n";
  }
  return text;
}

}  // namespace

std::string BenchmarkText(const std::vector<EntryReport>& entries,
                          const std::vector<double>& percentiles, bool is_table) {
  if (!is_table) return EntryText(entries.front(), percentiles);
  std::string text = TableText(entries, percentiles);
  for (const EntryReport& report : entries) {
    const Entry& entry = *report.entry;
    if (!report.profile && !entry.verdict && entry.failed == 0) continue;
    text += fmt::format("\n{} on {}\n", Printable(entry.target->model()),
                        Printable(entry.target->name()));
    if (entry.verdict) text += ScenarioText(entry);
    if (entry.failed > 0) {
      text +=
          fmt::format("failed   {}, the first with: {}\n", entry.failed, Printable(entry.failure));
    }
    if (report.profile) text += OperatorsText(*report.profile);
  }
  return text;
}

}  // namespace atollcmd
