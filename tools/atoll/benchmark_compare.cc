// SPDX-License-Identifier: Apache-2.0
//
// `atoll benchmark compare`, which takes two reports of `atoll benchmark`: for every model, device,
// number of threads and of streams, and scenario that both have, how much longer the second took,
// and whether that is more than noise.
//
// Samples that follow each other are alike (the same neighbours on the machine, the same clock
// rate), so what is resampled are blocks of samples: 2,000 times both medians are taken of
// blocks drawn with replacement, which gives the interval that holds 95 % of the ratios. An entry
// is better or worse if the whole interval lies more than 1 % from 1. The same files give the same
// answer.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/atoll/benchmark.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/files.h"
#include "tools/atoll/load_run.h"
#include "tools/atoll/report.h"
#include "tools/atoll/subcommand.h"

namespace atollcmd {
namespace {

struct TimeRatio {
  double ratio = 1;  // of the medians, second to first
  double low = 1, high = 1;
  std::vector<double> resampled;  // not sorted
};

constexpr int kResamples = 2000;
constexpr size_t kMaxEntries = 1000;  // each is looked for among all others
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
  // What is not within the process has no device and no threads.
  const Json& device = stored.at("device");
  entry.name = fmt::format("{}, {}", model,
                           device.is_null() ? stored.at("target").get<std::string>()
                                            : device.at("name").get<std::string>());
  if (const Json& stated = stored.at("threads"); !stated.is_null()) {
    const int threads = stated.get<int>();
    entry.name += threads == 0   ? ", default threads"
                  : threads == 1 ? ", 1 thread"
                                 : fmt::format(", {} threads", threads);
  }
  if (const int64_t streams = stored.value("streams", int64_t{1}); streams != 1) {
    entry.name += fmt::format(", {} streams", streams);
  }
  if (const auto scenario = stored.find("scenario");
      scenario != stored.end() && !scenario->is_null()) {
    entry.name += ", " + scenario->at("name").get<std::string>();
  }
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
    const Json& all = report.at("entries");
    if (all.size() > kMaxEntries) {
      Fail(ExitCode::kFailure, "it has {} entries, at most {} are compared", all.size(),
           kMaxEntries);
    }
    for (const Json& stored : all) entries.push_back(ReadEntry(stored));
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

// The names of those of `entries` that `others` lack.
std::vector<std::string> OnlyIn(const std::vector<ReportEntry>& entries,
                                const std::vector<ReportEntry>& others) {
  std::vector<std::string> names;
  for (const ReportEntry& entry : entries) {
    if (std::none_of(others.begin(), others.end(),
                     [&](const ReportEntry& other) { return other.name == entry.name; })) {
      names.push_back(entry.name);
    }
  }
  return names;
}

// "2%" or "2" as 0.02; nullopt: neither.
std::optional<double> ParsePercent(std::string_view text) {
  if (text.ends_with('%')) text.remove_suffix(1);
  const std::optional<double> percent = ParseNumber<double>(text);
  if (!percent || !(*percent >= 0 && *percent <= 1000)) return std::nullopt;
  return *percent / 100;
}

CLI::Validator PercentText() {
  return {[](std::string& text) {
            return ParsePercent(text) ? std::string()
                                      : "'" + text + "' is not a percentage from 0 to 1000, as 2%";
          },
          "PERCENT"};
}

struct CompareOptions {
  std::string first, second;
  std::string fail_if_worse;  // as ParsePercent takes it; empty: never
  bool json = false;
};

void RunCompare(const CompareOptions& options) {
  const std::vector<ReportEntry> first = ReadReport(options.first);
  const std::vector<ReportEntry> second = ReadReport(options.second);
  const std::vector<Comparison> comparisons = Compare(first, second);
  if (comparisons.empty()) {
    Fail(ExitCode::kFailure,
         "'{}' and '{}' have no model, device, number of threads and of streams, and scenario in "
         "common; measure the same twice",
         options.first, options.second);
  }
  const TimeRatio mean = MeanOf(comparisons);
  const std::optional<double> limit = ParsePercent(options.fail_if_worse);
  const Comparison* worst = nullptr;  // of those that are surely beyond the limit
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
    if (limit && comparison.time.low > 1 + *limit &&
        (worst == nullptr || comparison.time.low > worst->time.low)) {
      worst = &comparison;
    }
  }
  report["geometric_mean"] = RatioJson(mean);
  text += fmt::format("{:>29.3f} {:>7.3f} .. {:>5.3f}  {:<6}  geometric mean of {}\n", mean.ratio,
                      mean.low, mean.high, Verdict(mean), comparisons.size());
  const std::pair<const char*, std::vector<std::string>> lonely[] = {
      {"first", OnlyIn(first, second)}, {"second", OnlyIn(second, first)}};
  for (const auto& [where, names] : lonely) {
    report[fmt::format("only_in_{}", where)] = names;
    for (const std::string& name : names) {
      text += fmt::format("only in the {}: {}\n", where, Printable(name));
    }
  }
  report["fail_if_worse"] = limit ? Json(*limit) : Json();
  report["failed"] = worst != nullptr;
  Print(
      options.json, [&] { return report; }, [&] { return text; });
  if (worst != nullptr) {
    Fail(ExitCode::kWorse,
         "{} takes {:.1f} % longer, at least {:.1f} % with 95 % confidence, where {:g} % are "
         "allowed; find out what changed, or measure again",
         worst->name, (worst->time.ratio - 1) * 100, (worst->time.low - 1) * 100, *limit * 100);
  }
}

}  // namespace

void AddCompareCommand(CLI::App* benchmark) {
  Subcommand<CompareOptions> command(benchmark, "benchmark compare", RunCompare);
  command.Add("FIRST", command->first)->required();
  command.Add("SECOND", command->second)->required();
  command.Add("--fail-if-worse", command->fail_if_worse)->check(PercentText());
  command.Flag("--json", command->json);
}

}  // namespace atollcmd
