// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "tools/atoll/benchmark.h"
#include "tools/atoll/benchmark_page_template.h"
#include "tools/atoll/scores.h"

namespace atollcmd {
namespace {

// Samples in a report; of more, every second, third ... is stored.
constexpr size_t kMaxStoredSamples = 2000;
// Points of the timeline of a page, each the slowest of its neighbours.
constexpr size_t kMaxPoints = 2000;
constexpr size_t kBins = 80;

Json OrNull(const std::optional<double>& value) { return value ? Json(RoundedMs(*value)) : Json(); }

// ---- JSON ---------------------------------------------------------------------------------------

Json LatenciesJson(const std::vector<double>& sorted) {
  if (sorted.empty()) return nullptr;
  return {{"min", RoundedMs(sorted.front())},         {"median", RoundedMs(Percentile(sorted, 50))},
          {"mean", RoundedMs(MeanMs(sorted))},        {"p90", RoundedMs(Percentile(sorted, 90))},
          {"p99", RoundedMs(Percentile(sorted, 99))}, {"max", RoundedMs(sorted.back())}};
}

Json ScenarioJson(const Entry& entry) {
  if (!entry.settings) return nullptr;
  const LoadSettings& settings = *entry.settings;
  const LoadVerdict& verdict = *entry.verdict;
  const bool is_server = settings.scenario == Scenario::kServer;
  const bool is_multi = settings.scenario == Scenario::kMultiStream;
  const bool is_offline = settings.scenario == Scenario::kOffline;
  Json rules = Json::array();
  for (const LoadRule& rule : verdict.rules) {
    rules.push_back({{"name", rule.name}, {"kept", rule.kept}, {"what", rule.what}});
  }
  return {{"name", ScenarioName(settings.scenario)},
          {"duration_s", settings.duration_s},
          {"min_queries", settings.min_queries},
          {"percentile", is_offline ? Json() : Json(settings.percentile)},
          {"qps", is_server || is_offline ? Json(settings.qps) : Json()},
          {"latency_bound_ms", is_server ? Json(settings.latency_bound_ms) : Json()},
          {"samples_per_query", is_multi ? Json(settings.samples_per_query) : Json()},
          {"seed", settings.seed},
          {"valid", verdict.valid},
          {"rules", std::move(rules)},
          {"metric", verdict.metric},
          {"unit", verdict.unit},
          {"result", OrNull(verdict.result)},
          {"percentile_ms", OrNull(verdict.percentile_ms)},
          {"early_stopping_ms", OrNull(verdict.early_stopping_ms)},
          {"departures", verdict.departures}};
}

Json IntervalJson(const Interval& interval) {
  return {{"value", interval.value}, {"low", interval.low}, {"high", interval.high}};
}

Json AccuracyJson(const Entry& entry) {
  if (!entry.accuracy) return nullptr;
  const Accuracy& accuracy = *entry.accuracy;
  return {{"pictures", accuracy.pictures},
          {"top1", IntervalJson(Share(accuracy.top1, accuracy.pictures))},
          {"top5", IntervalJson(Share(accuracy.top5, accuracy.pictures))}};
}

Json OperatorsJson(const EntryReport& report) {
  if (!report.profile) return nullptr;
  Json operators = Json::array();
  for (const OperatorTimes& times : SumOperators(*report.profile)) {
    const bool on_cpu = times.on_device < times.count;
    operators.push_back(
        {{"op", times.op},
         {"count", times.count},
         {"on_device", times.on_device},
         {"macs", times.macs},
         {"measured_cpu_ms", on_cpu ? Json(RoundedMs(times.cpu_ms)) : Json()},
         {"modelled_ms", times.on_device > 0 ? Json(RoundedMs(times.modelled_ms)) : Json()}});
  }
  return operators;
}

Json EntryJson(const EntryReport& report, const std::vector<double>& percentiles) {
  const Entry& entry = *report.entry;
  const std::vector<double> sorted = SortedTimes(entry);
  Json json = report.description;
  json["target"] = entry.target->name();
  json["streams"] = entry.target->stream_count();
  json["samples"] = entry.samples.size();
  json["first_inference_ms"] = RoundedMs(entry.first_ms);
  json["warmup"] = entry.warmup;
  json["runs"] = sorted.size();
  json["inferences"] = entry.inferences;
  json["failed"] = entry.failed;
  json["first_failure"] = entry.failed > 0 ? Json(entry.failure) : Json();
  json["seconds"] = RoundedMs(entry.seconds);
  json["inferences_per_second"] = OrNull(RateOf(entry));
  json["latency_ms"] = LatenciesJson(sorted);
  json["percentiles_ms"] = Json::object();
  for (const double percent : percentiles) {
    json["percentiles_ms"][PercentName(percent)] =
        sorted.empty() ? Json() : Json(RoundedMs(Percentile(sorted, percent)));
  }
  json["scenario"] = ScenarioJson(entry);
  json["accuracy"] = AccuracyJson(entry);
  json["operators"] = OperatorsJson(report);
  json["machine_state"] = {{"before", ToJson(entry.before)}, {"after", ToJson(entry.after)}};
  const size_t step = (sorted.size() + kMaxStoredSamples - 1) / kMaxStoredSamples;
  Json stored = Json::array();
  for (size_t i = 0; i < entry.times.size(); i += step) {
    stored.push_back(RoundedMs(entry.times[i].ms));
  }
  json["samples_ms"] = std::move(stored);
  return json;
}

// ---- The page -----------------------------------------------------------------------------------

Json TimelineJson(const Entry& entry) {
  const size_t step = std::max<size_t>((entry.times.size() + kMaxPoints - 1) / kMaxPoints, 1);
  Json points = Json::array();
  for (size_t i = 0; i < entry.times.size(); i += step) {
    const size_t end = std::min(i + step, entry.times.size());
    const auto slowest =
        std::max_element(entry.times.begin() + static_cast<std::ptrdiff_t>(i),
                         entry.times.begin() + static_cast<std::ptrdiff_t>(end),
                         [](const Timed& a, const Timed& b) { return a.ms < b.ms; });
    points.push_back({RoundedMs(slowest->start_s), RoundedMs(slowest->ms)});
  }
  return points;
}

// Bins of equal width up to the 99.5th percentile, and how many lie above: one sample that took a
// hundred times as long would leave all others in one bin.
Json HistogramJson(const std::vector<double>& sorted) {
  if (sorted.empty()) return nullptr;
  const double low = sorted.front();
  const double high = Percentile(sorted, 99.5);
  const double width = (high - low) / static_cast<double>(kBins);
  std::vector<int64_t> counts(width > 0 ? kBins : 1);
  int64_t above = 0;
  for (const double ms : sorted) {
    if (ms > high) {
      ++above;
      continue;
    }
    const auto bin = width > 0 ? static_cast<size_t>((ms - low) / width) : 0;
    ++counts[std::min(bin, counts.size() - 1)];
  }
  return {{"low", low}, {"high", high}, {"counts", counts}, {"above", above}};
}

Json PageLayersJson(const Profile& profile) {
  const double clock = std::max(static_cast<double>(profile.device_info.clock_hz), 1.0);
  Json layers = Json::array();
  for (size_t i = 0; i < profile.layers.size(); ++i) {
    const LayerProfile& layer = profile.layers[i];
    const bool on_device = layer.partition >= 0;
    layers.push_back(
        {{"node", i},
         {"op", layer.op},
         {"output", layer.output},
         {"shape", layer.shape},
         {"macs", layer.macs},
         {"cpu_ms", on_device ? Json() : Json(RoundedMs(layer.host_ms))},
         {"modelled_ms",
          on_device ? Json(RoundedMs(static_cast<double>(layer.added_cycles) / clock * 1e3))
                    : Json()}});
  }
  return layers;
}

// ---- CSV ----------------------------------------------------------------------------------------

std::string CsvField(const Json& value) {
  if (value.is_null()) return "";
  std::string text = value.is_string() ? value.get<std::string>() : JsonText(value);
  if (text.find_first_of(",\"\r\n") == text.npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

}  // namespace

int64_t PeakRssBytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

std::vector<double> SortedTimes(const Entry& entry) {
  std::vector<double> sorted;
  sorted.reserve(entry.times.size());
  for (const Timed& timed : entry.times) sorted.push_back(timed.ms);
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

double MeanMs(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::optional<double> RateOf(const Entry& entry) {
  // Of --accuracy the time is that of reading pictures, too.
  if (entry.inferences == 0 || entry.seconds <= 0 || entry.accuracy) return std::nullopt;
  return static_cast<double>(entry.inferences) / entry.seconds;
}

std::string PercentName(double percent) { return fmt::format("{:g}", percent); }

std::vector<OperatorTimes> SumOperators(const Profile& profile) {
  const double clock = std::max(static_cast<double>(profile.device_info.clock_hz), 1.0);
  std::map<std::string, OperatorTimes> by_op;
  for (const LayerProfile& layer : profile.layers) {
    OperatorTimes& times = by_op[layer.op];
    times.op = layer.op;
    times.count += 1;
    times.on_device += layer.partition >= 0 ? 1 : 0;
    times.macs += layer.macs;
    times.cpu_ms += layer.host_ms;
    times.modelled_ms += static_cast<double>(layer.added_cycles) / clock * 1e3;
  }
  std::vector<OperatorTimes> all;
  for (auto& [op, times] : by_op) all.push_back(std::move(times));
  std::stable_sort(all.begin(), all.end(), [](const OperatorTimes& a, const OperatorTimes& b) {
    return std::pair(a.cpu_ms, a.modelled_ms) > std::pair(b.cpu_ms, b.modelled_ms);
  });
  return all;
}

Json BenchmarkJson(const std::vector<EntryReport>& entries, const std::vector<double>& percentiles,
                   bool is_table) {
  Json report = NewReport("benchmark");
  if (!is_table) report.update(EntryJson(entries.front(), percentiles));
  report["peak_rss_bytes"] = PeakRssBytes();
  report["machine"] = MachineJson();
  if (!is_table) return report;
  report["entries"] = Json::array();
  for (const EntryReport& entry : entries) {
    report["entries"].push_back(EntryJson(entry, percentiles));
  }
  return report;
}

std::string BenchmarkCsv(const std::vector<EntryReport>& entries,
                         const std::vector<double>& percentiles) {
  std::string text =
      "model,target,threads,streams,scenario,valid,metric,unit,result,runs,failed,seconds,"
      "inferences_per_second,min_ms,mean_ms,max_ms";
  for (const double percent : percentiles) text += fmt::format(",p{}_ms", PercentName(percent));
  text += ",first_inference_ms,load_ms,top1,top5,temperature_c,clock_mhz\r\n";
  for (const EntryReport& report : entries) {
    const Json json = EntryJson(report, percentiles);
    const auto field = [](const Json& object, const char* key) {
      return object.is_null() ? Json() : object.at(key);
    };
    const Json& scenario = json.at("scenario");
    const Json& latency = json.at("latency_ms");
    const Json& accuracy = json.at("accuracy");
    std::vector<Json> fields = {json.at("model"),
                                json.at("target"),
                                json.at("threads"),
                                json.at("streams"),
                                field(scenario, "name"),
                                field(scenario, "valid"),
                                field(scenario, "metric"),
                                field(scenario, "unit"),
                                field(scenario, "result"),
                                json.at("runs"),
                                json.at("failed"),
                                json.at("seconds"),
                                json.at("inferences_per_second"),
                                field(latency, "min"),
                                field(latency, "mean"),
                                field(latency, "max")};
    for (const Json& percentile : json.at("percentiles_ms")) fields.push_back(percentile);
    fields.push_back(json.at("first_inference_ms"));
    fields.push_back(field(json.at("load_ms"), "total"));
    fields.push_back(field(field(accuracy, "top1"), "value"));
    fields.push_back(field(field(accuracy, "top5"), "value"));
    fields.push_back(json.at("machine_state").at("after").at("temperature_c"));
    fields.push_back(json.at("machine_state").at("after").at("clock_mhz"));
    for (size_t i = 0; i < fields.size(); ++i) {
      text += (i == 0 ? "" : ",") + CsvField(fields[i]);
    }
    text += "\r\n";
  }
  return text;
}

std::string BenchmarkPage(const std::vector<EntryReport>& entries,
                          const std::vector<double>& percentiles, bool is_table) {
  Json data = {{"report", BenchmarkJson(entries, percentiles, is_table)}};
  data["more"] = Json::array();
  for (const EntryReport& report : entries) {
    data["more"].push_back({{"timeline", TimelineJson(*report.entry)},
                            {"histogram", HistogramJson(SortedTimes(*report.entry))},
                            {"layers", report.profile ? PageLayersJson(*report.profile) : Json()}});
  }
  return FillPage(kBenchmarkPageTemplate, data);
}

}  // namespace atollcmd
