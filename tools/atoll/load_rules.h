// SPDX-License-Identifier: Apache-2.0
//
// The rules of a load test: what arrives when, and what makes its result one that counts. They are
// those of MLPerf's LoadGen (docs/benchmarking.md says what is taken from it, and what differs).
// Pure functions; no clock, no thread, no target.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace atollcmd {

enum class Scenario {
  kSingleStream,  // one query of one sample after the other
  kMultiStream,   // one query of N samples after the other
  kServer,        // queries of one sample that arrive by a Poisson process
  kOffline,       // one query with all samples
};

// "single-stream"; nullopt if there is none of that name.
std::optional<Scenario> ParseScenario(std::string_view name);
const char* ScenarioName(Scenario scenario);

struct LoadSettings {
  Scenario scenario = Scenario::kSingleStream;
  double duration_s = 600;    // at least
  int64_t min_queries = 100;  // at least; of kOffline: samples
  double percentile = 90;     // of latencies, that the result is judged by
  // kServer: arrivals in a second, on average. kOffline: samples in a second that are expected.
  double qps = 0;
  double latency_bound_ms = 0;  // kServer
  int samples_per_query = 8;    // kMultiStream
  uint64_t seed = 1;            // of arrivals and of the order of samples
};

// What a scenario starts from where nothing else is said: its percentile (90, 99, 99, 90), its
// smallest number of queries (100, 662, 100, 24,576) and the 600 seconds of all of them.
LoadSettings DefaultsOf(Scenario scenario);

// When the queries of a server are due, in seconds from the start, ascending: gaps are distributed
// exponentially, with a mean of 1 / qps. As many as `min_queries`, and until one is due at
// `duration_s` or later.
std::vector<double> PoissonArrivals(const LoadSettings& settings);

// ---- Early stopping -----------------------------------------------------------------------------
//
// A percentile of few queries is an accident. LoadGen believes that at least `percent` % of all
// queries stay within a bound if so few of those seen exceed it that, were the share exactly
// `percent` %, it would have been seen with less than 1 % probability: of n queries t exceed it,
// and P(X <= t) < 0.01 for X binomial with n and 1 - percent / 100.

// Whether t of n may exceed the bound.
bool MayExceed(int64_t t, int64_t n, double percent);
// The largest t that may; -1: not even 0.
int64_t MostThatMayExceed(int64_t n, double percent);
// The smallest n of which t may exceed it.
int64_t QueriesFor(int64_t t, double percent);
// An estimate of the percentile that is too small with less than 1 % probability: the t-th largest
// sample, for the largest t that may exceed it. nullopt: there are fewer than QueriesFor(1).
// `sorted` is ascending.
std::optional<double> EarlyStoppingEstimate(const std::vector<double>& sorted, double percent);

// The percentile as LoadGen takes it: the sample with the index n * percent / 100, rounded down.
// `sorted` is ascending and not empty.
double LoadPercentile(const std::vector<double>& sorted, double percent);

// ---- Verdicts -----------------------------------------------------------------------------------

struct LoadSeen {
  // Of those that were answered, in no order. kServer: from when a query was due. kMultiStream: of
  // the last sample of a query.
  std::vector<double> latencies_ms;
  int64_t failed = 0;        // queries without an answer
  int64_t samples = 0;       // answered
  double last_issued_s = 0;  // from the start; kServer: due
  double seconds = 0;        // until the last answer
  bool interrupted = false;
  bool fell_behind = false;  // kServer: so far that the run was given up
};

struct LoadRule {
  std::string name;
  bool kept = false;
  std::string what;  // "12.0 s, at least 10.0 s"
};

struct LoadVerdict {
  bool valid = false;
  std::vector<LoadRule> rules;
  std::string metric;            // "p90 latency of a query"
  std::string unit;              // "ms"
  std::optional<double> result;  // nothing was measured: none
  std::optional<double> percentile_ms;
  std::optional<double> early_stopping_ms;  // kSingleStream and kMultiStream
  // How the settings differ from those of MLPerf's own benchmarks; empty: in nothing.
  std::vector<std::string> departures;
};

LoadVerdict Judge(const LoadSettings& settings, const LoadSeen& seen);

}  // namespace atollcmd
