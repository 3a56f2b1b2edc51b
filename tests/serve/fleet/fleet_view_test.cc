// SPDX-License-Identifier: Apache-2.0
#include "serve/fleet/fleet_view.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "serve/fleet/latency_window.h"
#include "serve/inference/json_text.h"

namespace atollserve {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(LatencyWindow, HasPercentilesOfTheLastTenSeconds) {
  const LatencyWindow::Time start(seconds(1000));
  LatencyWindow window;
  EXPECT_EQ(window.At(start).count, 0);
  for (int i = 1; i <= 100; ++i) window.Add(start + milliseconds(i), i * 10);
  Latencies latencies = window.At(start + seconds(1));
  EXPECT_EQ(latencies.count, 100);
  EXPECT_EQ(latencies.p50_us, 500);
  EXPECT_EQ(latencies.p99_us, 990);
  // The first fifty are older now.
  latencies = window.At(start + seconds(10) + milliseconds(51));
  EXPECT_EQ(latencies.count, 50);
  EXPECT_EQ(latencies.p50_us, 750);
  EXPECT_EQ(latencies.p99_us, 1000);
  latencies = window.At(start + seconds(20));
  EXPECT_EQ(latencies.count, 0);
  EXPECT_EQ(latencies.p99_us, 0);
}

TEST(LatencyWindow, HasTheLastThousand) {
  const LatencyWindow::Time start(seconds(1000));
  LatencyWindow window;
  for (int i = 0; i < 2500; ++i) window.Add(start, i);
  const Latencies latencies = window.At(start);
  EXPECT_EQ(latencies.count, 1000);
  EXPECT_EQ(latencies.p50_us, 1999);
  EXPECT_EQ(latencies.p99_us, 2489);
}

WorkerRecord RecordOf(const std::string& name, int64_t up_ms, int64_t answered, int64_t done) {
  WorkerRecord record;
  record.worker = name;
  record.device = "emu";
  record.pid = 7;
  record.up_ms = up_ms;
  record.places = 4;
  record.free = 3;
  record.frames.answered = answered;
  record.jobs.done = done;
  return record;
}

TEST(FleetView, CountsBecomeRatesByTheWorkersClock) {
  FleetView view;
  view.Look({RecordOf("a", 1000, 10, 0)}, {});
  EXPECT_EQ(view.RatesOf("a"), nullptr);
  WorkerRecord later = RecordOf("a", 3000, 50, 6);
  later.frames.failed = 2;
  later.jobs.failed = 1;
  later.frames.busy = 4;
  later.frames.late = 8;
  view.Look({later, RecordOf("b", 10, 0, 0)}, {});
  ASSERT_NE(view.RatesOf("a"), nullptr);
  EXPECT_EQ(view.RatesOf("a")->answered, 20);
  EXPECT_EQ(view.RatesOf("a")->jobs, 3);
  EXPECT_EQ(view.RatesOf("a")->failed, 1.5);
  EXPECT_EQ(view.RatesOf("a")->busy, 2);
  EXPECT_EQ(view.RatesOf("a")->late, 4);
  EXPECT_EQ(view.RatesOf("b"), nullptr);
  // It has said nothing since.
  view.Look({later}, {});
  ASSERT_NE(view.RatesOf("a"), nullptr);
  EXPECT_EQ(view.RatesOf("a")->answered, 20);
  view.Look({}, {});
  EXPECT_EQ(view.RatesOf("a"), nullptr);
}

TEST(FleetView, AnotherProcessOfTheSameNameHasNoRates) {
  for (const bool is_younger : {true, false}) {
    FleetView view;
    view.Look({RecordOf("a", 5000, 100, 0)}, {});
    WorkerRecord other = RecordOf("a", is_younger ? 100 : 9000, 5, 0);
    if (!is_younger) other.pid = 8;
    view.Look({other}, {});
    EXPECT_EQ(view.RatesOf("a"), nullptr);
  }
  // Counts that shrink are no rates, whoever says them.
  FleetView view;
  view.Look({RecordOf("a", 5000, 100, 0)}, {});
  view.Look({RecordOf("a", 6000, 99, 0)}, {});
  EXPECT_EQ(view.RatesOf("a"), nullptr);
}

TEST(FleetView, TablesTakeWhateverWorkersSay) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  WorkerRecord record = RecordOf("liar", kMost, kMost, kMost);
  record.frames = {.answered = kMost, .busy = kMost, .late = kMost, .failed = kMost};
  record.jobs = {.done = kMost, .repeated = kMost, .failed = kMost, .returned = kMost};
  record.latencies = {.count = kMost, .p50_us = kMost, .p99_us = kMost};
  record.places = record.free = std::numeric_limits<int32_t>::max();
  record.device = std::string(1000, 'x') + "\x1b[2J";
  record.problems = {"one\ntwo\x1b[H"};
  record.models.resize(1);
  record.models[0].name = "a\x1b" + std::string(5000, 'y');
  FleetView view;
  view.Look({RecordOf("liar", 0, 0, 0)}, {});
  view.Look({record}, {{"m\r", kMost}});
  for (const std::string& text : {StatusTable(view.workers(), view.waiting()), TopTable(view)}) {
    for (const char c : text) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= ' ');
    EXPECT_NE(text.find("liar"), std::string::npos);
    EXPECT_NE(text.find("one?two?[H\n"), std::string::npos);
    EXPECT_NE(text.find("jobs of model 'm?' wait\n"), std::string::npos);
  }
  const auto json = ParseJson(TopJson(view));
  ASSERT_TRUE(json.ok()) << json.status().message();
  EXPECT_EQ((*json)["waiting"]["m\r"], kMost);
}

TEST(FleetView, TheReportHasNothingThatIsNotKnown) {
  FleetView view;
  view.Look({RecordOf("a", 1000, 0, 0)}, {});
  auto json = ParseJson(TopJson(view));
  ASSERT_TRUE(json.ok());
  EXPECT_TRUE((*json)["workers"][0]["per_second"].is_null());
  EXPECT_TRUE((*json)["workers"][0]["latency_p50_us"].is_null());
  WorkerRecord later = RecordOf("a", 2000, 30, 0);
  later.latencies = {.count = 30, .p50_us = 400, .p99_us = 900};
  view.Look({later}, {{"fashion", 5}});
  json = ParseJson(TopJson(view));
  ASSERT_TRUE(json.ok());
  EXPECT_EQ((*json)["workers"][0]["per_second"]["answered"], 30);
  EXPECT_EQ((*json)["workers"][0]["latency_p99_us"], 900);
  EXPECT_EQ((*json)["waiting"]["fashion"], 5);
  const std::string table = TopTable(view);
  EXPECT_NE(table.find("1 workers, 3 of 4 places free, 30.0 frames/s, 0.0 jobs/s\n"),
            std::string::npos)
      << table;
}

}  // namespace
}  // namespace atollserve
