// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/load_run.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tools/atoll/exit_code.h"

namespace atollcmd {
namespace {

// What the streams of a target were asked for, in one list.
struct Diary {
  std::mutex mutex;
  std::vector<int> samples;  // the first byte of the inputs of each Run
  std::atomic<int> under_way = 0, most_under_way = 0;
  // Whether the n-th Run succeeds.
  std::function<bool(size_t)> succeeds = [](size_t) { return true; };
};

class DiaryStream : public Stream {
 public:
  explicit DiaryStream(Diary* diary) : diary_(diary) {}
  void SetInputs(const Inputs& inputs) override { sample_ = inputs.at(0).at(0); }
  bool Run() override {
    const int now = ++diary_->under_way;
    int most = diary_->most_under_way;
    while (most < now && !diary_->most_under_way.compare_exchange_weak(most, now)) {
    }
    size_t number = 0;
    {
      const std::lock_guard lock(diary_->mutex);
      number = diary_->samples.size();
      diary_->samples.push_back(sample_);
    }
    --diary_->under_way;
    return diary_->succeeds(number);
  }
  std::string failure() const override { return "it said no"; }
  OutputBytes output() const override { return {}; }

 private:
  Diary* const diary_;
  int sample_ = -1;
};

class DiaryTarget : public Target {
 public:
  DiaryTarget(Diary* diary, size_t streams) {
    for (size_t i = 0; i < streams; ++i) streams_.push_back(std::make_unique<DiaryStream>(diary));
  }
  std::string name() const override { return "diary"; }
  std::string model() const override { return "model"; }
  size_t stream_count() const override { return streams_.size(); }
  Stream& stream(size_t index) override { return *streams_[index]; }
  Inputs MakeInputs(const std::vector<std::string>&) override { return {}; }
  void CheckInputs(const Inputs&) const override {}
  Json Describe() const override { return {}; }
  Session* session() override { return nullptr; }

 private:
  std::vector<std::unique_ptr<DiaryStream>> streams_;
};

std::unique_ptr<Entry> EntryOf(Diary* diary, size_t streams, uint8_t samples = 1) {
  auto entry = std::make_unique<Entry>();
  entry->target = std::make_unique<DiaryTarget>(diary, streams);
  entry->team = std::make_unique<Team>(streams);
  for (uint8_t i = 0; i < samples; ++i) entry->samples.push_back({{i}});
  return entry;
}

// Short enough for a test, whatever the machine.
LoadSettings Short(Scenario scenario) {
  LoadSettings settings = DefaultsOf(scenario);
  settings.duration_s = 1e-6;
  settings.qps = 1e5;
  settings.latency_bound_ms = 1e6;
  return settings;
}

class LoadRun : public testing::Test {
 protected:
  Diary diary_;
  std::atomic<bool> stop_ = false;
  Progress progress_{"measuring"};
};

TEST(TeamTest, AllDoItOnce) {
  Team team(4);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::atomic<int>> done(4);
    team.Run([&](size_t i) { ++done[i]; });
    for (const auto& count : done) EXPECT_EQ(count, 1);
  }
}

TEST(TeamTest, AFailureReachesTheCallerWhenAllAreDone) {
  Team team(3);
  std::atomic<int> done = 0;
  for (const size_t bad : {0u, 2u}) {
    EXPECT_THROW(team.Run([&](size_t i) {
      if (i == bad) throw CommandError(ExitCode::kFailure, "no");
      while (!team.failed()) std::this_thread::yield();
      ++done;
    }),
                 CommandError);
  }
  EXPECT_EQ(done, 4);
  team.Run([&](size_t) { ++done; });
  EXPECT_EQ(done, 7);
  EXPECT_FALSE(team.failed());
}

TEST_F(LoadRun, SingleStreamHasOneQueryUnderWay) {
  auto entry = EntryOf(&diary_, 1);
  LoadSettings settings = Short(Scenario::kSingleStream);
  settings.min_queries = 321;
  RunScenario(settings, stop_, &progress_, entry.get());
  EXPECT_EQ(entry->times.size(), 321u);
  EXPECT_EQ(entry->inferences, 321);
  EXPECT_EQ(diary_.most_under_way, 1);
  EXPECT_TRUE(entry->verdict->valid);
}

TEST_F(LoadRun, MultiStreamQueriesHaveSamplesThatFollowOneAnother) {
  auto entry = EntryOf(&diary_, 1, 100);
  LoadSettings settings = Short(Scenario::kMultiStream);
  settings.min_queries = 700;
  settings.samples_per_query = 5;
  RunScenario(settings, stop_, &progress_, entry.get());
  EXPECT_EQ(entry->times.size(), 700u);
  EXPECT_EQ(entry->inferences, 3500);
  ASSERT_EQ(diary_.samples.size(), 3500u);
  std::set<int> firsts;
  for (size_t i = 0; i < diary_.samples.size(); i += 5) {
    firsts.insert(diary_.samples[i]);
    for (int k = 1; k < 5; ++k) EXPECT_EQ(diary_.samples[i + k], (diary_.samples[i] + k) % 100);
  }
  EXPECT_GT(firsts.size(), 90u);  // 100 of 700 draws, but for very few
}

TEST_F(LoadRun, MultiStreamOnSeveralStreams) {
  auto entry = EntryOf(&diary_, 3, 4);
  LoadSettings settings = Short(Scenario::kMultiStream);
  settings.min_queries = 50;
  RunScenario(settings, stop_, &progress_, entry.get());
  EXPECT_EQ(entry->times.size(), 50u);
  EXPECT_EQ(entry->inferences, 400);
}

TEST_F(LoadRun, ServerHasTheQueriesOfItsArrivals) {
  auto entry = EntryOf(&diary_, 3);
  LoadSettings settings = Short(Scenario::kServer);
  settings.duration_s = 0.05;
  settings.qps = 20'000;
  const size_t expected = PoissonArrivals(settings).size();
  RunScenario(settings, stop_, &progress_, entry.get());
  EXPECT_EQ(entry->times.size(), expected);
  EXPECT_EQ(diary_.samples.size(), expected);
  for (size_t i = 1; i < entry->times.size(); ++i) {
    EXPECT_LE(entry->times[i - 1].start_s, entry->times[i].start_s);
  }
  // Nobody is asked before he is due.
  for (const Timed& timed : entry->times) EXPECT_GE(timed.ms, 0);
}

TEST_F(LoadRun, TheSeedDecidesTheOrderOfSamples) {
  const auto order = [&](uint64_t seed) {
    Diary diary;
    auto entry = EntryOf(&diary, 1, 50);
    LoadSettings settings = Short(Scenario::kServer);
    settings.min_queries = 200;
    settings.seed = seed;
    RunScenario(settings, stop_, &progress_, entry.get());
    return diary.samples;
  };
  const std::vector<int> first = order(1);
  EXPECT_EQ(first.size(), 200u);
  EXPECT_EQ(order(1), first);
  EXPECT_NE(order(2), first);
}

TEST_F(LoadRun, OfflineTakesEachSampleAsOften) {
  auto entry = EntryOf(&diary_, 2, 8);
  LoadSettings settings = Short(Scenario::kOffline);
  settings.qps = 1;
  settings.min_queries = 800;
  RunScenario(settings, stop_, &progress_, entry.get());
  EXPECT_EQ(entry->inferences, 800);
  std::vector<int> counts(8);
  for (const int sample : diary_.samples) ++counts[static_cast<size_t>(sample)];
  for (const int count : counts) EXPECT_EQ(count, 100);
  EXPECT_TRUE(entry->verdict->valid);
}

TEST_F(LoadRun, OfflineIsAsLargeAsTheRateSays) {
  auto entry = EntryOf(&diary_, 1);
  LoadSettings settings = Short(Scenario::kOffline);
  settings.qps = 1000;
  settings.duration_s = 2;
  settings.min_queries = 1;
  RunScenario(settings, stop_, &progress_, entry.get());
  EXPECT_EQ(entry->inferences, 2200);
}

TEST_F(LoadRun, FailuresAreCountedAndMakeItInvalid) {
  diary_.succeeds = [](size_t number) { return number % 4 != 0; };
  for (const auto scenario : {Scenario::kSingleStream, Scenario::kServer, Scenario::kOffline}) {
    auto entry = EntryOf(&diary_, 1);
    LoadSettings settings = Short(scenario);
    settings.min_queries = 400;
    diary_.samples.clear();
    RunScenario(settings, stop_, &progress_, entry.get());
    EXPECT_EQ(entry->failed, 100) << ScenarioName(scenario);
    EXPECT_EQ(entry->times.size(), 300u);
    EXPECT_EQ(entry->failure, "it said no");
    EXPECT_FALSE(entry->verdict->valid);
  }
}

TEST_F(LoadRun, AQueryOfWhichOneSampleFailsIsNotAnswered) {
  diary_.succeeds = [](size_t number) { return number % 8 != 3; };
  auto entry = EntryOf(&diary_, 1);
  LoadSettings settings = Short(Scenario::kMultiStream);
  settings.min_queries = 20;
  RunScenario(settings, stop_, &progress_, entry.get());
  EXPECT_EQ(entry->failed, 20);
  EXPECT_EQ(entry->inferences, 140);
  EXPECT_TRUE(entry->times.empty());
}

TEST_F(LoadRun, ATargetThatIsGoneEndsTheRun) {
  diary_.succeeds = [](size_t number) { return number < 50; };
  for (const auto scenario : {Scenario::kSingleStream, Scenario::kServer, Scenario::kOffline}) {
    auto entry = EntryOf(&diary_, scenario == Scenario::kSingleStream ? 1 : 2);
    LoadSettings settings = Short(scenario);
    settings.min_queries = 1'000'000;
    diary_.samples.clear();
    try {
      RunScenario(settings, stop_, &progress_, entry.get());
      ADD_FAILURE() << ScenarioName(scenario);
    } catch (const CommandError& error) {
      EXPECT_EQ(error.code(), ExitCode::kDeviceLost);
      EXPECT_NE(std::string(error.what()).find("it said no"), std::string::npos);
    }
    EXPECT_LT(diary_.samples.size(), 1000u);
  }
}

TEST_F(LoadRun, StopEndsEverythingWithWhatThereIs) {
  for (const auto scenario :
       {Scenario::kSingleStream, Scenario::kMultiStream, Scenario::kServer, Scenario::kOffline}) {
    stop_ = false;
    diary_.samples.clear();
    diary_.succeeds = [&](size_t number) {
      if (number == 30) stop_ = true;
      return true;
    };
    auto entry = EntryOf(&diary_, 1);
    LoadSettings settings = Short(scenario);
    settings.duration_s = 3600;
    settings.qps = 1000;
    RunScenario(settings, stop_, &progress_, entry.get());
    EXPECT_GE(entry->inferences, 30) << ScenarioName(scenario);
    EXPECT_LT(entry->inferences, 50) << ScenarioName(scenario);
    EXPECT_FALSE(entry->verdict->valid);
  }
}

TEST_F(LoadRun, PlainRunsAreThoseOfEachStream) {
  Entries entries;
  entries.push_back(EntryOf(&diary_, 3));
  MeasureInTurns({.runs = 25}, stop_, &progress_, entries);
  EXPECT_EQ(entries[0]->times.size(), 75u);
  EXPECT_EQ(entries[0]->inferences, 75);
}

TEST_F(LoadRun, SeveralEntriesTakeTurns) {
  Diary other;
  Entries entries;
  entries.push_back(EntryOf(&diary_, 1));
  entries.push_back(EntryOf(&other, 2));
  MeasureInTurns({.runs = 25}, stop_, &progress_, entries);
  EXPECT_EQ(entries[0]->times.size(), 25u);
  EXPECT_EQ(entries[1]->times.size(), 50u);
  // One that is not measured at the begin of each of three turns.
  EXPECT_EQ(diary_.samples.size(), 28u);
  EXPECT_EQ(other.samples.size(), 56u);
}

TEST_F(LoadRun, SamplesComeInTurn) {
  Entries entries;
  entries.push_back(EntryOf(&diary_, 1, 3));
  MeasureInTurns({.runs = 7}, stop_, &progress_, entries);
  EXPECT_EQ(diary_.samples, (std::vector<int>{0, 1, 2, 0, 1, 2, 0}));
}

TEST_F(LoadRun, WarmUpCountsAndIsNotMeasured) {
  auto entry = EntryOf(&diary_, 2);
  WarmUpEntry({.inferences = 5}, stop_, &progress_, entry.get());
  EXPECT_EQ(entry->warmup, 10);
  EXPECT_EQ(diary_.samples.size(), 11u);
  EXPECT_TRUE(entry->times.empty());
  EXPECT_EQ(entry->inferences, 0);
}

TEST_F(LoadRun, WarmUpFailsAtOnce) {
  diary_.succeeds = [](size_t) { return false; };
  auto entry = EntryOf(&diary_, 1);
  EXPECT_THROW(WarmUpEntry({}, stop_, &progress_, entry.get()), CommandError);
  EXPECT_EQ(diary_.samples.size(), 1u);
}

}  // namespace
}  // namespace atollcmd
