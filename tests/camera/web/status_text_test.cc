// SPDX-License-Identifier: Apache-2.0
#include "camera/web/status_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

namespace atollrt {
namespace {

using nlohmann::json;
using testing::HasSubstr;

PipelineStatus SomeStatus() {
  PipelineStatus status;
  status.source = "synthetic";
  status.policy = "newest";
  status.width = 640;
  status.height = 480;
  status.seconds = 12.5;
  status.running = true;
  status.captured = 100;
  status.processed = 90;
  status.dropped = 7;
  status.failed = 1;
  status.in_flight = 2;
  status.captured_fps = 30;
  status.processed_fps = 27.25;
  status.last_failure = "frame 3: bad JPEG";
  for (int i = 0; i < kStageCount; ++i) {
    status.stages.push_back({static_cast<Stage>(i), {}});
  }
  status.stages[1].ms = {.count = 90, .p50 = 3, .p90 = 4.5, .p99 = 6, .max = 9};
  ModelStatus model;
  model.name = "net";
  model.task = "detect";
  model.partition = "1 partition";
  model.inferences = 90;
  model.infer_ms = {.count = 90, .p50 = 5, .p90 = 6, .p99 = 7, .max = 8};
  model.modelled_device_ms = 2.5;
  model.reasons = {"why"};
  model.results = {"cat 0.93", "dog 0.71"};
  status.models = {model, model};
  status.models[1].runs_on = "net";
  status.models[1].priority = 3;
  status.models[1].modelled_device_ms = 0;
  status.device.name = "emu";
  status.device.description = "an emulated device";
  status.device.emulated = true;
  status.device.utilization = 0.5;
  status.device.modelled_utilization = 0.25;
  status.device.failures = 4;
  status.device.fallbacks = 2;
  return status;
}

constexpr ViewerCounts kViewers = {.watching = 2,
                                   .limit = 16,
                                   .served = 5,
                                   .refused = 3,
                                   .dropped = 1,
                                   .frames_sent = 1000,
                                   .frames_skipped = 12,
                                   .bytes_sent = 123456789012};

TEST(StatusJson, IsTheDocumentedObject) {
  const std::string text = StatusJson(SomeStatus(), kViewers, true);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_TRUE(text.starts_with("{\"version\":1,")) << text;
  const json expected = json::parse(R"({
    "version": 1, "source": "synthetic", "policy": "newest", "width": 640, "height": 480,
    "seconds": 12.5, "running": true,
    "frames": {"captured": 100, "processed": 90, "dropped": 7, "failed": 1, "in_flight": 2,
               "captured_fps": 30.0, "processed_fps": 27.25, "last_failure": "frame 3: bad JPEG"},
    "models": [
      {"name": "net", "task": "detect", "partition": "1 partition", "runs_on": null, "priority": 0,
       "inferences": 90, "infer_ms": {"count": 90, "p50": 5.0, "p90": 6.0, "p99": 7.0, "max": 8.0},
       "modelled_device_ms": 2.5, "reasons": ["why"], "results": ["cat 0.93", "dog 0.71"]},
      {"name": "net", "task": "detect", "partition": "1 partition", "runs_on": "net", "priority": 3,
       "inferences": 90, "infer_ms": {"count": 90, "p50": 5.0, "p90": 6.0, "p99": 7.0, "max": 8.0},
       "modelled_device_ms": null, "reasons": ["why"], "results": ["cat 0.93", "dog 0.71"]}],
    "device": {"name": "emu", "description": "an emulated device", "emulated": true,
               "utilization": 0.5, "modelled_utilization": 0.25, "failures": 4, "resets": 0,
               "reopenings": 0, "losses": 0, "replays": 0, "fallbacks": 2},
    "viewers": {"watching": 2, "limit": 16, "served": 5, "refused": 3, "dropped": 1,
                "frames_sent": 1000, "frames_skipped": 12, "bytes_sent": 123456789012,
                "you_watch": true}
  })");
  json got = json::parse(text);
  const json stages = got["stages_ms"];
  got.erase("stages_ms");
  EXPECT_EQ(got, expected) << json::diff(expected, got);
  ASSERT_EQ(stages.size(), static_cast<size_t>(kStageCount));
  EXPECT_EQ(stages[0]["stage"], "capture");
  EXPECT_EQ(stages[1], json::parse(R"({"stage": "decode", "count": 90, "p50": 3.0, "p90": 4.5,
                                       "p99": 6.0, "max": 9.0})"));
  EXPECT_EQ(stages[11]["stage"], "total");
}

TEST(StatusJson, SaysWhenNobodyAsked) {
  const json got = json::parse(StatusJson(PipelineStatus(), kViewers, std::nullopt));
  EXPECT_TRUE(got["viewers"]["you_watch"].is_null());
  EXPECT_TRUE(got["device"]["modelled_utilization"].is_null());
  EXPECT_EQ(got["models"], json::array());
  EXPECT_EQ(got["stages_ms"], json::array());
}

TEST(StatusJson, IsValidWhateverTheStringsAndNumbersAre) {
  PipelineStatus status = SomeStatus();
  status.source = std::string("\xff\xfe\0\x01\"\\</script>\n", 16);
  status.models[0].results = {"\xc3", "\xed\xa0\x80"};
  status.captured_fps = std::numeric_limits<double>::quiet_NaN();
  const json got = json::parse(StatusJson(status, kViewers, false));
  EXPECT_EQ(got["source"].get<std::string>(),
            std::string("\xef\xbf\xbd\xef\xbf\xbd\0\x01\"\\</script>\n", 20));
  EXPECT_TRUE(got["frames"]["captured_fps"].is_null());
}

// What a scraper reads, from the left; fails the test where something else is there.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}
  bool Skip(std::string_view expected) {
    if (!rest_.starts_with(expected)) return false;
    rest_.remove_prefix(expected.size());
    return true;
  }
  void Expect(std::string_view expected) { EXPECT_TRUE(Skip(expected)) << "at: " << rest_; }
  // Small letters and "_".
  std::string Name() {
    const std::string name(rest_.substr(0, rest_.find_first_not_of("abcdefghijklmnopqrstuvwxyz_")));
    EXPECT_NE(name, "") << "at: " << rest_;
    Skip(name);
    return name;
  }
  // {name="value",...} as it is, or nothing.
  std::string Labels() {
    const std::string_view start = rest_;
    if (!Skip("{")) return "";
    do {
      Name();
      Expect("=\"");
      while (!Skip("\"")) {
        if (Skip("\\\\") || Skip("\\\"") || Skip("\\n")) continue;
        if (rest_.empty() || rest_[0] == '\\') {
          ADD_FAILURE() << "a value that does not end, or an unknown escape: " << start;
          return "";
        }
        rest_.remove_prefix(1);
      }
    } while (Skip(","));
    Expect("}");
    return std::string(start.substr(0, start.size() - rest_.size()));
  }
  std::string Rest() const { return std::string(rest_); }

 private:
  std::string_view rest_;
};

// The value of every sample, by its name and labels.
std::map<std::string, double> Scrape(const std::string& text) {
  std::map<std::string, double> samples;
  std::set<std::string> families;
  std::string family, type;
  EXPECT_TRUE(text.ends_with('\n'));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    SCOPED_TRACE(line);
    Scanner scanner(line);
    if (scanner.Skip("# HELP ")) {
      family = scanner.Name();
      EXPECT_TRUE(families.insert(family).second) << "twice";
      EXPECT_TRUE(scanner.Rest().ends_with('.'));
      EXPECT_TRUE(std::getline(lines, line));
      Scanner next(line);
      next.Expect("# TYPE " + family + " ");
      type = next.Name();
      EXPECT_THAT(type, testing::AnyOf("counter", "gauge", "summary"));
      EXPECT_EQ(type == "counter", family.ends_with("_total"));
      continue;
    }
    const std::string name = scanner.Name(), labels = scanner.Labels();
    EXPECT_EQ(name, type == "summary" && name.ends_with("_count") ? family + "_count" : family);
    scanner.Expect(" ");
    char* end = nullptr;
    const std::string number = scanner.Rest();
    EXPECT_TRUE(samples.emplace(name + labels, std::strtod(number.c_str(), &end)).second)
        << "twice";
    EXPECT_EQ(*end, '\0') << number;
  }
  return samples;
}

TEST(StatusMetrics, HasTheDocumentedMetrics) {
  const auto samples = Scrape(StatusMetrics(SomeStatus(), kViewers));
  const std::map<std::string, double> expected = {
      {"atoll_pipeline_running", 1},
      {"atoll_frames_captured_total", 100},
      {"atoll_frames_processed_total", 90},
      {"atoll_frames_dropped_total", 7},
      {"atoll_frames_failed_total", 1},
      {"atoll_frames_in_flight", 2},
      {"atoll_captured_fps", 30},
      {"atoll_processed_fps", 27.25},
      {R"(atoll_stage_latency_seconds{stage="decode",quantile="0.5"})", 0.003},
      {R"(atoll_stage_latency_seconds{stage="decode",quantile="0.9"})", 0.0045},
      {R"(atoll_stage_latency_seconds{stage="decode",quantile="0.99"})", 0.006},
      {R"(atoll_stage_latency_seconds_count{stage="decode"})", 90},
      {R"(atoll_model_inferences_total{index="0",model="net"})", 90},
      {R"(atoll_model_inferences_total{index="1",model="net"})", 90},
      {R"(atoll_model_latency_seconds{index="1",model="net",quantile="0.99"})", 0.007},
      {R"(atoll_model_modelled_device_seconds{index="0",model="net"})", 0.0025},
      {R"(atoll_device_utilization{device="emu"})", 0.5},
      {R"(atoll_device_modelled_utilization{device="emu"})", 0.25},
      {R"(atoll_device_failures_total{device="emu"})", 4},
      {R"(atoll_device_fallbacks_total{device="emu"})", 2},
      {"atoll_viewers", 2},
      {"atoll_viewers_limit", 16},
      {"atoll_viewers_served_total", 5},
      {"atoll_viewers_refused_total", 3},
      {"atoll_viewers_dropped_total", 1},
      {"atoll_stream_frames_sent_total", 1000},
      {"atoll_stream_frames_skipped_total", 12},
      {"atoll_stream_bytes_sent_total", 123456789012},
  };
  for (const auto& [name, value] : expected) {
    ASSERT_TRUE(samples.contains(name)) << name;
    EXPECT_EQ(samples.at(name), value) << name;
  }
  EXPECT_FALSE(samples.contains(R"(atoll_stage_latency_seconds_count{stage="capture"})"))
      << "a stage that does not happen";
}

TEST(StatusMetrics, EscapesLabels) {
  PipelineStatus status = SomeStatus();
  status.models[0].name = "a\"b\\c\nd\te\xff}";
  const std::string text = StatusMetrics(status, kViewers);
  Scrape(text);
  EXPECT_THAT(text, HasSubstr("model=\"a\\\"b\\\\c\\nd\te\xef\xbf\xbd}\""));
}

TEST(StatusMetrics, NamesEveryMetricOfThePage) {
  // Every family has its line in docs/web.md.
  std::ifstream file(std::string(ATOLL_SOURCE_DIR) + "/docs/web.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  std::istringstream lines(StatusMetrics(SomeStatus(), kViewers));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("# TYPE ")) continue;
    const std::string name = line.substr(7, line.find(' ', 7) - 7);
    EXPECT_THAT(page, HasSubstr("`" + name)) << "docs/web.md";
  }
}

}  // namespace
}  // namespace atollrt
