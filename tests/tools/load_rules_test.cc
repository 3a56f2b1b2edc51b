// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/load_rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace atollcmd {
namespace {

std::vector<double> OneTo(int n) {
  std::vector<double> values;
  for (int i = 1; i <= n; ++i) values.push_back(i);
  return values;
}

// The rule of a name; a test fails where there is none.
const LoadRule& RuleOf(const LoadVerdict& verdict, const std::string& name) {
  static const LoadRule kNone;
  for (const LoadRule& rule : verdict.rules) {
    if (rule.name == name) return rule;
  }
  ADD_FAILURE() << "there is no rule '" << name << "'";
  return kNone;
}

// P(X <= t) by its definition, in plain numbers, for n that are small enough.
double BinomialCdf(int t, int n, double p) {
  double sum = 0;
  for (int x = 0; x <= t; ++x) {
    double ways = 1;
    for (int i = 0; i < x; ++i) ways = ways * (n - i) / (i + 1);
    sum += ways * std::pow(1 - p, x) * std::pow(p, n - x);
  }
  return sum;
}

TEST(LoadRules, NamesOfScenarios) {
  for (const char* name : {"single-stream", "multi-stream", "server", "offline"}) {
    const auto scenario = ParseScenario(name);
    ASSERT_TRUE(scenario.has_value()) << name;
    EXPECT_STREQ(ScenarioName(*scenario), name);
  }
  EXPECT_FALSE(ParseScenario(""));
  EXPECT_FALSE(ParseScenario("Server"));
}

// The tables of LoadGen's own settings (mlperf.conf, results.cc): 64 queries for a 90th percentile,
// 662 for a 99th, 459 for a server of which none is late.
TEST(LoadRules, SmallestNumbersAreThoseOfLoadGen) {
  EXPECT_EQ(QueriesFor(1, 90), 64);
  EXPECT_EQ(QueriesFor(1, 99), 662);
  EXPECT_EQ(QueriesFor(0, 99), 459);
  EXPECT_EQ(QueriesFor(0, 97), 152);
  EXPECT_EQ(DefaultsOf(Scenario::kMultiStream).min_queries, 662);
  EXPECT_EQ(DefaultsOf(Scenario::kOffline).min_queries, 24'576);
  EXPECT_EQ(DefaultsOf(Scenario::kServer).percentile, 99);
  EXPECT_EQ(DefaultsOf(Scenario::kSingleStream).percentile, 90);
  EXPECT_EQ(DefaultsOf(Scenario::kSingleStream).duration_s, 600);
}

TEST(LoadRules, EarlyStoppingIsTheBinomialDistribution) {
  for (const double percent : {90.0, 97.0, 99.0}) {
    for (const int n : {1, 63, 64, 152, 300, 459, 700}) {
      for (int t = 0; t <= std::min(n, 12); ++t) {
        const double cdf = BinomialCdf(t, n, percent / 100);
        if (std::abs(cdf - 0.01) < 1e-9) continue;
        EXPECT_EQ(MayExceed(t, n, percent), cdf < 0.01)
            << t << " of " << n << " at p" << percent << ": " << cdf;
      }
    }
  }
}

TEST(LoadRules, MostAndFewestAgree) {
  for (const double percent : {50.0, 90.0, 99.0, 99.9}) {
    for (const int64_t t : {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{100}}) {
      const int64_t n = QueriesFor(t, percent);
      EXPECT_EQ(MostThatMayExceed(n, percent), t) << percent;
      EXPECT_EQ(MostThatMayExceed(n - 1, percent), t - 1) << percent;
    }
  }
  EXPECT_EQ(MostThatMayExceed(0, 99), -1);
  // Millions underflow every double but for their logarithms.
  const int64_t most = MostThatMayExceed(10'000'000, 99);
  EXPECT_GT(most, 98'000);
  EXPECT_LT(most, 100'000);
}

TEST(LoadRules, PercentileIsLoadGens) {
  EXPECT_EQ(LoadPercentile(OneTo(100), 90), 91);  // the sample with index 90
  EXPECT_EQ(LoadPercentile(OneTo(10), 99), 10);
  EXPECT_EQ(LoadPercentile(OneTo(1), 90), 1);
  EXPECT_EQ(LoadPercentile(OneTo(1000), 99.9), 1000);
}

TEST(LoadRules, EarlyStoppingEstimates) {
  EXPECT_FALSE(EarlyStoppingEstimate(OneTo(63), 90));
  EXPECT_EQ(EarlyStoppingEstimate(OneTo(64), 90), 64);  // the largest: one may exceed it
  const auto estimate = EarlyStoppingEstimate(OneTo(10'000), 90);
  ASSERT_TRUE(estimate);
  EXPECT_GT(*estimate, 9001);  // careful: above the percentile itself
  EXPECT_LT(*estimate, 9100);
}

TEST(LoadRules, ArrivalsArePoissons) {
  LoadSettings settings = DefaultsOf(Scenario::kServer);
  settings.qps = 200;
  settings.duration_s = 100;
  const std::vector<double> arrivals = PoissonArrivals(settings);
  EXPECT_TRUE(std::is_sorted(arrivals.begin(), arrivals.end()));
  EXPECT_GT(arrivals.front(), 0);
  EXPECT_GE(arrivals.back(), 100);
  EXPECT_LT(arrivals[arrivals.size() - 2], 100);
  // 20,000 on average, 141 of standard deviation.
  EXPECT_NEAR(static_cast<double>(arrivals.size()), 20'000, 600);
  // In intervals of 10 ms there are 2 on average; their numbers have the distribution of Poisson.
  std::map<int, int> counts;
  size_t next = 0;
  for (int i = 0; i < 10'000; ++i) {
    int count = 0;
    while (next < arrivals.size() && arrivals[next] < (i + 1) * 0.01) ++next, ++count;
    ++counts[count];
  }
  double probability = std::exp(-2.0);
  for (int k = 0; k < 6; ++k) {
    EXPECT_NEAR(counts[k], 10'000 * probability, 200) << k;
    probability *= 2.0 / (k + 1);
  }
}

TEST(LoadRules, ArrivalsFollowFromTheSeed) {
  LoadSettings settings = DefaultsOf(Scenario::kServer);
  settings.qps = 50;
  settings.duration_s = 2;
  const std::vector<double> first = PoissonArrivals(settings);
  EXPECT_EQ(PoissonArrivals(settings), first);
  settings.seed = 2;
  EXPECT_NE(PoissonArrivals(settings), first);
  // Another rate stretches the same arrivals.
  settings.seed = 1;
  settings.qps = 100;
  EXPECT_DOUBLE_EQ(PoissonArrivals(settings)[7] * 2, first[7]);
}

TEST(LoadRules, ArrivalsAreAsManyAsWanted) {
  LoadSettings settings = DefaultsOf(Scenario::kServer);
  settings.qps = 10;
  settings.duration_s = 0.001;
  settings.min_queries = 500;
  EXPECT_EQ(PoissonArrivals(settings).size(), 500u);
}

LoadSeen GoodServer() {
  LoadSeen seen;
  seen.latencies_ms.assign(1000, 5.0);
  seen.samples = 1000;
  seen.last_issued_s = 601;
  seen.seconds = 601.5;
  return seen;
}

LoadSettings ServerSettings() {
  LoadSettings settings = DefaultsOf(Scenario::kServer);
  settings.qps = 1.6;
  settings.latency_bound_ms = 10;
  return settings;
}

TEST(LoadRules, AServerThatIsInTime) {
  const LoadVerdict verdict = Judge(ServerSettings(), GoodServer());
  EXPECT_TRUE(verdict.valid);
  EXPECT_EQ(verdict.departures.size(), 0u);
  EXPECT_DOUBLE_EQ(*verdict.result, 999 / 601.5);
  EXPECT_EQ(verdict.percentile_ms, 5);
  EXPECT_FALSE(verdict.early_stopping_ms);
}

TEST(LoadRules, AServerThatIsLate) {
  LoadSeen seen = GoodServer();
  // Three of a thousand may be late, as P(X <= 3) is 1.0 % for 1,004 of them but more for fewer.
  const auto most = static_cast<size_t>(MostThatMayExceed(1000, 99));
  for (size_t i = 0; i < most; ++i) seen.latencies_ms[i] = 11;
  EXPECT_TRUE(Judge(ServerSettings(), seen).valid) << most;
  // One more, and the percentile itself is still within the bound.
  seen.latencies_ms[most] = 11;
  LoadVerdict verdict = Judge(ServerSettings(), seen);
  EXPECT_FALSE(verdict.valid);
  EXPECT_TRUE(RuleOf(verdict, "latency").kept);
  EXPECT_FALSE(RuleOf(verdict, "early stopping").kept);
  // Exactly at the bound is in time.
  std::fill(seen.latencies_ms.begin(), seen.latencies_ms.end(), 10.0);
  EXPECT_TRUE(Judge(ServerSettings(), seen).valid);
  std::fill(seen.latencies_ms.begin(), seen.latencies_ms.end(), 10.001);
  verdict = Judge(ServerSettings(), seen);
  EXPECT_FALSE(RuleOf(verdict, "latency").kept);
}

TEST(LoadRules, AnotherPercentile) {
  LoadSettings settings = ServerSettings();
  settings.percentile = 97;
  LoadSeen seen = GoodServer();
  for (size_t i = 0; i < 12; ++i) seen.latencies_ms[i] = 11;
  EXPECT_FALSE(Judge(ServerSettings(), seen).valid);
  const LoadVerdict verdict = Judge(settings, seen);
  EXPECT_TRUE(verdict.valid);
  EXPECT_EQ(verdict.departures.size(), 1u);
}

TEST(LoadRules, WhatIsNotAnsweredIsLate) {
  LoadSeen seen = GoodServer();
  seen.failed = 20;
  const LoadVerdict verdict = Judge(ServerSettings(), seen);
  EXPECT_FALSE(verdict.valid);
  EXPECT_FALSE(RuleOf(verdict, "answers").kept);
  EXPECT_FALSE(RuleOf(verdict, "latency").kept);  // 20 of 1,020 are more than one of a hundred
  EXPECT_FALSE(verdict.percentile_ms);
}

TEST(LoadRules, DurationIsThatOfTheLastQuery) {
  LoadSeen seen = GoodServer();
  seen.last_issued_s = 599.9;
  const LoadVerdict verdict = Judge(ServerSettings(), seen);
  EXPECT_FALSE(verdict.valid);
  EXPECT_FALSE(RuleOf(verdict, "duration").kept);
}

TEST(LoadRules, GivenUpAndInterrupted) {
  LoadSeen seen = GoodServer();
  seen.fell_behind = true;
  EXPECT_FALSE(RuleOf(Judge(ServerSettings(), seen), "pace").kept);
  seen.fell_behind = false;
  seen.interrupted = true;
  EXPECT_FALSE(RuleOf(Judge(ServerSettings(), seen), "end").kept);
}

TEST(LoadRules, SingleStream) {
  LoadSettings settings = DefaultsOf(Scenario::kSingleStream);
  LoadSeen seen;
  seen.latencies_ms = OneTo(200);
  std::reverse(seen.latencies_ms.begin(), seen.latencies_ms.end());
  seen.samples = 200;
  seen.last_issued_s = 600;
  seen.seconds = 601;
  LoadVerdict verdict = Judge(settings, seen);
  EXPECT_TRUE(verdict.valid);
  EXPECT_EQ(verdict.result, 181);
  EXPECT_EQ(verdict.unit, "ms");
  EXPECT_GT(*verdict.early_stopping_ms, 181);
  settings.min_queries = 201;
  EXPECT_FALSE(RuleOf(Judge(settings, seen), "queries").kept);
  settings = DefaultsOf(Scenario::kSingleStream);
  settings.min_queries = 10;
  seen.latencies_ms.resize(63);
  verdict = Judge(settings, seen);
  EXPECT_FALSE(RuleOf(verdict, "early stopping").kept);
  EXPECT_FALSE(verdict.early_stopping_ms);
}

TEST(LoadRules, OfflineCountsSamples) {
  LoadSettings settings = DefaultsOf(Scenario::kOffline);
  LoadSeen seen;
  seen.latencies_ms.assign(24'576, 1.0);
  seen.samples = 24'576;
  seen.seconds = 614.4;
  LoadVerdict verdict = Judge(settings, seen);
  EXPECT_TRUE(verdict.valid);
  EXPECT_DOUBLE_EQ(*verdict.result, 40);
  seen.samples -= 1;
  EXPECT_FALSE(RuleOf(Judge(settings, seen), "samples").kept);
  seen.samples += 1;
  seen.seconds = 599;
  EXPECT_FALSE(RuleOf(Judge(settings, seen), "duration").kept);
}

TEST(LoadRules, NothingWasMeasured) {
  for (const auto scenario :
       {Scenario::kSingleStream, Scenario::kMultiStream, Scenario::kServer, Scenario::kOffline}) {
    const LoadVerdict verdict = Judge(DefaultsOf(scenario), {});
    EXPECT_FALSE(verdict.valid);
    EXPECT_FALSE(verdict.result);
    EXPECT_FALSE(verdict.percentile_ms);
  }
}

TEST(LoadRules, DeparturesAreNamed) {
  LoadSettings settings = DefaultsOf(Scenario::kMultiStream);
  settings.duration_s = 10;
  settings.min_queries = 100;
  settings.percentile = 90;
  settings.samples_per_query = 4;
  EXPECT_EQ(Judge(settings, {}).departures.size(), 4u);
}

}  // namespace
}  // namespace atollcmd
