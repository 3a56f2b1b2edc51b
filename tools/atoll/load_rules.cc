// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/load_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "tools/atoll/split_mix.h"

namespace atollcmd {
namespace {

constexpr double kConfidence = 0.99;
constexpr double kMlperfSeconds = 600;

struct NamedScenario {
  Scenario scenario;
  const char* name;
  double percentile;
  int64_t min_queries;
};
constexpr NamedScenario kScenarios[] = {
    {Scenario::kSingleStream, "single-stream", 90, 100},
    {Scenario::kMultiStream, "multi-stream", 99, 662},
    {Scenario::kServer, "server", 99, 100},
    {Scenario::kOffline, "offline", 90, 24'576},
};

const NamedScenario& Named(Scenario scenario) { return kScenarios[static_cast<size_t>(scenario)]; }

// The sum over x = 0, 1, ... of C(n, x) q^x p^(n-x), the probability that at most x of n exceed a
// bound, goes on while it stays below 1 - confidence; returns the last x, or -1. Logarithms: the
// terms begin as small as p^n.
int64_t LastBelow(int64_t n, double percent, int64_t most) {
  const double p = percent / 100;
  const double step = std::log1p(-p) - std::log(p);
  double log_term = static_cast<double>(n) * std::log(p);
  double sum = 0;
  for (int64_t x = 0; x <= most; ++x) {
    sum += std::exp(log_term);
    if (sum >= 1 - kConfidence) return x - 1;
    log_term += std::log(static_cast<double>(n - x) / static_cast<double>(x + 1)) + step;
  }
  return most;
}

LoadRule DurationRule(const LoadSettings& settings, const LoadSeen& seen) {
  const double seconds =
      settings.scenario == Scenario::kOffline ? seen.seconds : seen.last_issued_s;
  const bool kept = seconds >= settings.duration_s;
  std::string what = fmt::format("{:.3f} s, at least {:.3f} s", seconds, settings.duration_s);
  if (!kept && settings.scenario == Scenario::kOffline) {
    what += "; a larger --qps makes the query larger";
  }
  return {"duration", kept, std::move(what)};
}

LoadRule QueriesRule(const LoadSettings& settings, const LoadSeen& seen) {
  const bool is_offline = settings.scenario == Scenario::kOffline;
  const int64_t count =
      is_offline ? seen.samples : static_cast<int64_t>(seen.latencies_ms.size()) + seen.failed;
  return {is_offline ? "samples" : "queries", count >= settings.min_queries,
          fmt::format("{}, at least {}", count, settings.min_queries)};
}

LoadRule EarlyStoppingRule(const LoadSettings& settings, const LoadSeen& seen) {
  const auto n = static_cast<int64_t>(seen.latencies_ms.size()) + seen.failed;
  if (settings.scenario != Scenario::kServer) {
    const int64_t needed = QueriesFor(1, settings.percentile);
    return {"early stopping", n >= needed,
            fmt::format("{} queries, {} tell something of p{:g}", n, needed, settings.percentile)};
  }
  const int64_t late =
      seen.failed + std::count_if(seen.latencies_ms.begin(), seen.latencies_ms.end(),
                                  [&](double ms) { return ms > settings.latency_bound_ms; });
  if (MayExceed(late, n, settings.percentile)) {
    return {"early stopping", true, fmt::format("{} of {} queries were late", late, n)};
  }
  return {"early stopping", false,
          fmt::format("{} of {} queries were late; {} more in time would be needed", late, n,
                      QueriesFor(late, settings.percentile) - n)};
}

void AddDepartures(const LoadSettings& settings, LoadVerdict* verdict) {
  const NamedScenario& usual = Named(settings.scenario);
  if (settings.duration_s < kMlperfSeconds) {
    verdict->departures.push_back(
        fmt::format("{:g} s instead of {:g} s", settings.duration_s, kMlperfSeconds));
  }
  if (settings.min_queries < usual.min_queries) {
    verdict->departures.push_back(fmt::format(
        "{} {} instead of {}", settings.min_queries,
        settings.scenario == Scenario::kOffline ? "samples" : "queries", usual.min_queries));
  }
  if (settings.percentile < usual.percentile) {
    verdict->departures.push_back(
        fmt::format("p{:g} instead of p{:g}", settings.percentile, usual.percentile));
  }
  if (settings.scenario == Scenario::kMultiStream && settings.samples_per_query != 8) {
    verdict->departures.push_back(
        fmt::format("{} samples in a query instead of 8", settings.samples_per_query));
  }
}

}  // namespace

std::optional<Scenario> ParseScenario(std::string_view name) {
  for (const NamedScenario& known : kScenarios) {
    if (name == known.name) return known.scenario;
  }
  return std::nullopt;
}

const char* ScenarioName(Scenario scenario) { return Named(scenario).name; }

LoadSettings DefaultsOf(Scenario scenario) {
  LoadSettings settings;
  settings.scenario = scenario;
  settings.duration_s = kMlperfSeconds;
  settings.min_queries = Named(scenario).min_queries;
  settings.percentile = Named(scenario).percentile;
  return settings;
}

std::vector<double> PoissonArrivals(const LoadSettings& settings) {
  SplitMix64 random(settings.seed);
  std::vector<double> arrivals;
  double due = 0;
  do {
    // Unit() is below 1, so the logarithm is finite.
    due += -std::log1p(-random.Unit()) / settings.qps;
    arrivals.push_back(due);
  } while (due < settings.duration_s ||
           static_cast<int64_t>(arrivals.size()) < settings.min_queries);
  return arrivals;
}

bool MayExceed(int64_t t, int64_t n, double percent) {
  return t <= n && LastBelow(n, percent, t) == t;
}

int64_t MostThatMayExceed(int64_t n, double percent) { return LastBelow(n, percent, n); }

int64_t QueriesFor(int64_t t, double percent) {
  int64_t low = t;  // too few
  int64_t high = t + 1;
  while (!MayExceed(t, high, percent)) {
    low = high;
    high *= 2;
  }
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (MayExceed(t, middle, percent) ? high : low) = middle;
  }
  return high;
}

std::optional<double> EarlyStoppingEstimate(const std::vector<double>& sorted, double percent) {
  const auto n = static_cast<int64_t>(sorted.size());
  const int64_t t = MostThatMayExceed(n, percent);
  if (t < 1) return std::nullopt;
  return sorted[static_cast<size_t>(n - t)];
}

double LoadPercentile(const std::vector<double>& sorted, double percent) {
  const auto index = static_cast<size_t>(static_cast<double>(sorted.size()) * percent / 100);
  return sorted[std::min(index, sorted.size() - 1)];
}

LoadVerdict Judge(const LoadSettings& settings, const LoadSeen& seen) {
  LoadVerdict verdict;
  std::vector<double> sorted = seen.latencies_ms;
  // What was never answered takes for ever.
  sorted.insert(sorted.end(), static_cast<size_t>(seen.failed),
                std::numeric_limits<double>::infinity());
  std::sort(sorted.begin(), sorted.end());
  if (!sorted.empty() && settings.scenario != Scenario::kOffline) {
    const double ms = LoadPercentile(sorted, settings.percentile);
    if (std::isfinite(ms)) verdict.percentile_ms = ms;
  }

  verdict.rules.push_back(DurationRule(settings, seen));
  verdict.rules.push_back(QueriesRule(settings, seen));
  switch (settings.scenario) {
    case Scenario::kSingleStream:
    case Scenario::kMultiStream:
      verdict.metric = fmt::format("p{:g} latency of a query", settings.percentile);
      verdict.unit = "ms";
      verdict.result = verdict.percentile_ms;
      if (const auto ms = EarlyStoppingEstimate(sorted, settings.percentile);
          ms && std::isfinite(*ms)) {
        verdict.early_stopping_ms = ms;
      }
      verdict.rules.push_back(EarlyStoppingRule(settings, seen));
      break;
    case Scenario::kServer: {
      verdict.metric = "queries answered";
      verdict.unit = "per second";
      // The last one ends the time and is not within it; of a single query there is no rate.
      const auto n = static_cast<double>(seen.latencies_ms.size());
      if (n > 1 && seen.seconds > 0) verdict.result = (n - 1) / seen.seconds;
      const bool in_time =
          verdict.percentile_ms.has_value() && *verdict.percentile_ms <= settings.latency_bound_ms;
      verdict.rules.push_back(
          {"latency", in_time,
           fmt::format("p{:g} {}, at most {:g} ms{}", settings.percentile,
                       verdict.percentile_ms ? fmt::format("{:.3f} ms", *verdict.percentile_ms)
                                             : "without an answer",
                       settings.latency_bound_ms, in_time ? "" : "; a smaller --qps helps")});
      verdict.rules.push_back(EarlyStoppingRule(settings, seen));
      break;
    }
    case Scenario::kOffline:
      verdict.metric = "samples answered";
      verdict.unit = "per second";
      if (seen.samples > 0 && seen.seconds > 0) {
        verdict.result = static_cast<double>(seen.samples) / seen.seconds;
      }
      break;
  }
  if (seen.failed > 0) {
    verdict.rules.push_back(
        {"answers", false, fmt::format("{} queries were not answered", seen.failed)});
  }
  if (seen.fell_behind) {
    verdict.rules.push_back({"pace", false,
                             "given up, as queries were answered later than the whole test takes; "
                             "a smaller --qps or more --streams help"});
  }
  if (seen.interrupted) verdict.rules.push_back({"end", false, "interrupted"});
  verdict.valid = std::all_of(verdict.rules.begin(), verdict.rules.end(),
                              [](const LoadRule& rule) { return rule.kept; });
  AddDepartures(settings, &verdict);
  return verdict;
}

}  // namespace atollcmd
