// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/benchmark_compare.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <random>

#include "tools/atoll/exit_code.h"
#include "tools/atoll/read_file.h"

namespace atollcmd {
namespace {

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
  std::string verdict;
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
    throw CommandError(ExitCode::kFailure,
                       fmt::format("'{}' has samples that are no times", entry.name));
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
    throw CommandError(ExitCode::kFailure, fmt::format("report '{}': {}", path, error.what()));
  } catch (const std::exception&) {
    throw CommandError(
        ExitCode::kFailure,
        fmt::format("'{}' is no report of 'atoll benchmark --json' with samples; make it anew",
                    path));
  }
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
    comparison.verdict = Verdict(comparison.time);
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
  return {{"ratio", rounded(time.ratio)}, {"low", rounded(time.low)}, {"high", rounded(time.high)}};
}

struct CompareOptions {
  std::string first, second;
  bool json = false;
};

void RunCompare(const CompareOptions& options) {
  const std::vector<ReportEntry> first = ReadReport(options.first);
  const std::vector<Comparison> comparisons = Compare(first, ReadReport(options.second));
  if (comparisons.empty()) {
    throw CommandError(
        ExitCode::kFailure,
        fmt::format("'{}' and '{}' have no model, device and number of threads in common",
                    options.first, options.second));
  }
  const TimeRatio mean = MeanOf(comparisons);
  if (options.json) {
    Json report = NewReport("benchmark compare");
    report["first"] = options.first;
    report["second"] = options.second;
    report["entries"] = Json::array();
    for (const Comparison& comparison : comparisons) {
      Json entry = {{"name", comparison.name},
                    {"first_ms", RoundedMs(comparison.first_ms)},
                    {"second_ms", RoundedMs(comparison.second_ms)}};
      entry.update(RatioJson(comparison.time));
      entry["verdict"] = comparison.verdict;
      report["entries"].push_back(std::move(entry));
    }
    report["geometric_mean"] = RatioJson(mean);
    report["geometric_mean"]["verdict"] = Verdict(mean);
    PrintReport(report);
    return;
  }
  std::string text = fmt::format("{:>10} {:>10} {:>7} {:>16}\n", "first ms", "second ms", "ratio",
                                 "95 % interval");
  for (const Comparison& comparison : comparisons) {
    text += fmt::format("{:>10.3f} {:>10.3f} {:>7.3f} {:>7.3f} .. {:>5.3f}  {:<6}  {}\n",
                        comparison.first_ms, comparison.second_ms, comparison.time.ratio,
                        comparison.time.low, comparison.time.high, comparison.verdict,
                        Printable(comparison.name));
  }
  text += fmt::format("{:>29.3f} {:>7.3f} .. {:>5.3f}  {:<6}  geometric mean of {}\n", mean.ratio,
                      mean.low, mean.high, Verdict(mean), comparisons.size());
  PrintText(text);
}

}  // namespace

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

void AddBenchmarkCompareCommand(CLI::App* benchmark) {
  auto options = std::make_shared<CompareOptions>();
  CLI::App* command = benchmark->add_subcommand(
      "compare", "Two reports of 'atoll benchmark --json': better, worse or noise?");
  command->add_option("FIRST", options->first, "a report")->required();
  command->add_option("SECOND", options->second, "another one")->required();
  command->add_flag("--json", options->json, "one line of JSON on stdout");
  command->footer(
      "Ratios are second to first, of the medians: below 1, the second is faster. The interval\n"
      "holds 95 % of the ratios of 2,000 resamplings (blocks of 10 consecutive samples, drawn\n"
      "with replacement). 'better' or 'worse': all of it lies more than 1 % from 1. The exit code\n"
      "is 0 whatever the verdicts are.\n"
      "\n"
      "Example:\n"
      "  atoll benchmark compare before.json after.json");
  command->callback([options] { RunCompare(*options); });
}

}  // namespace atollcmd
