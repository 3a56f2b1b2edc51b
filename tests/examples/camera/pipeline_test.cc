// SPDX-License-Identifier: Apache-2.0
#include "atoll/camera/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdio>
#include <functional>
#include <latch>
#include <mutex>
#include <string>
#include <vector>

#include "atoll/picture/overlay.h"
#include "atoll/picture/resize.h"
#include "examples/camera/latency_recorder.h"

namespace atollrt {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kMs = 1'000'000;

// Time passes only by sleeping and by Advance.
class FakeClock : public Clock {
 public:
  int64_t NowNs() override { return now_ns_.load(); }
  void SleepUntilNs(int64_t deadline_ns) override {
    int64_t now = now_ns_.load();
    while (now < deadline_ns && !now_ns_.compare_exchange_weak(now, deadline_ns)) {
    }
  }
  void Advance(int64_t ns) { now_ns_.fetch_add(ns); }

 private:
  std::atomic<int64_t> now_ns_ = 1000 * kMs;
};

std::vector<uint8_t> MakeJpeg(int width, int height) {
  Image image;
  image.Reshape(width, height, 3);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>(i / 3);
  return *EncodeJpeg(image, 90);
}

// `count` equal frames. WaitUntilExhausted returns when the pipeline has asked for one more, so all
// frames have been pushed by then.
class FakeSource : public FrameSource {
 public:
  explicit FakeSource(uint64_t count, int width = 32, int height = 24)
      : count_(count), width_(width), height_(height), jpeg_(MakeJpeg(width, height)) {}

  Result<bool> Next(Frame* frame) override {
    if (before_next) before_next(next_);
    const std::lock_guard lock(mutex_);
    if (next_ == count_) {
      exhausted_ = true;
      changed_.notify_all();
      if (!end.ok()) return end;
      return false;
    }
    frame->format = FrameFormat::kJpeg;
    frame->width = width_;
    frame->height = height_;
    frame->bytes = jpeg_;
    if (bad(next_)) frame->bytes.resize(frame->bytes.size() / 2);
    frame->capture_time_ns = is_live ? live_time_ns(next_) : 0;
    frame->name = "fake";
    frame->label = static_cast<int>(next_);
    frame->crop = crop;
    frame->sequence = next_++;
    return true;
  }
  bool live() const override { return is_live; }
  std::string description() const override { return "fake"; }

  void WaitUntilExhausted() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return exhausted_; });
  }

  std::function<void(uint64_t)> before_next;
  std::function<bool(uint64_t)> bad = [](uint64_t) { return false; };
  std::function<int64_t(uint64_t)> live_time_ns;
  bool is_live = false;
  Rect crop;
  Status end;

 private:
  const uint64_t count_;
  const int width_;
  const int height_;
  const std::vector<uint8_t> jpeg_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t next_ = 0;
  bool exhausted_ = false;
};

class PipelineTest : public testing::Test {
 protected:
  PipelineTest() {
    options_.input_width = 8;
    options_.input_height = 8;
    options_.clock = &clock_;
    callbacks_.infer = [this](const Image& input, FrameResult*) {
      EXPECT_EQ(input.pixels.size(), 8u * 8u * static_cast<size_t>(options_.input_channels));
      return Status();
    };
    callbacks_.on_result = [this](const ProcessedFrame& processed) {
      results_.push_back(processed.frame.sequence);
    };
  }

  PipelineReport Run(FakeSource* source) {
    Result<PipelineReport> report = RunPipeline(source, options_, callbacks_);
    EXPECT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(report->captured, report->processed + report->dropped + report->failed);
    EXPECT_EQ(report->processed, results_.size());
    EXPECT_EQ(report->total.count, report->processed);
    return *std::move(report);
  }

  FakeClock clock_;
  PipelineOptions options_;
  PipelineCallbacks callbacks_;
  std::vector<uint64_t> results_;
};

TEST_F(PipelineTest, ProcessesEveryFrameInOrder) {
  options_.policy = QueuePolicy::kEvery;
  for (const int queue_size : {1, 2}) {
    options_.queue_size = queue_size;
    results_.clear();
    FakeSource source(50);
    const PipelineReport report = Run(&source);
    EXPECT_EQ(report.processed, 50u);
    EXPECT_EQ(report.dropped, 0u);
    EXPECT_TRUE(report.end.ok());
    for (uint64_t i = 0; i < 50; ++i) EXPECT_EQ(results_[i], i);
  }
}

TEST_F(PipelineTest, NewestFrameWinsWhenTheConsumerIsLate) {
  for (const int queue_size : {1, 2}) {
    options_.queue_size = queue_size;
    results_.clear();
    FakeSource source(20);
    std::latch first_taken(1);
    source.before_next = [&](uint64_t i) {
      if (i == 1) first_taken.wait();
    };
    callbacks_.infer = [&](const Image&, FrameResult*) {
      if (results_.empty()) first_taken.count_down();
      source.WaitUntilExhausted();  // a very slow first inference
      return Status();
    };
    const PipelineReport report = Run(&source);
    EXPECT_EQ(report.captured, 20u);
    if (queue_size == 1) {
      EXPECT_THAT(results_, ElementsAre(0, 19));
    } else {
      EXPECT_THAT(results_, ElementsAre(0, 18, 19));
    }
    EXPECT_EQ(report.dropped, 20u - results_.size());
  }
}

TEST_F(PipelineTest, CountsDamagedFramesAsFailedAndGoesOn) {
  options_.policy = QueuePolicy::kEvery;
  FakeSource source(9);
  source.bad = [](uint64_t i) { return i % 3 == 1; };
  const PipelineReport report = Run(&source);
  EXPECT_EQ(report.failed, 3u);
  EXPECT_THAT(results_, ElementsAre(0, 2, 3, 5, 6, 8));
  EXPECT_THAT(report.first_failure.message(),
              AllOf(HasSubstr("frame 1 (fake): JPEG: "), HasSubstr("Premature end")));
  EXPECT_TRUE(report.end.ok());
}

TEST_F(PipelineTest, CountsFailedInferencesAndKeepsTheFirstReason) {
  options_.policy = QueuePolicy::kEvery;
  FakeSource source(6);
  int calls = 0;
  callbacks_.infer = [&](const Image&, FrameResult*) {
    return ++calls % 2 == 0 ? InternalError("call %d", calls) : Status();
  };
  const PipelineReport report = Run(&source);
  EXPECT_EQ(report.processed, 3u);
  EXPECT_EQ(report.failed, 3u);
  EXPECT_EQ(report.first_failure.message(), "frame 1 (fake): call 2");
  EXPECT_EQ(report.first_failure.code(), StatusCode::kInternal);
}

TEST_F(PipelineTest, EndsWhenTheDeviceIsLost) {
  for (const QueuePolicy policy : {QueuePolicy::kEvery, QueuePolicy::kNewest}) {
    options_.policy = policy;
    results_.clear();
    FakeSource source(UINT64_MAX);
    int calls = 0;
    callbacks_.infer = [&](const Image&, FrameResult*) {
      return ++calls == 3 ? DeviceLost("unplugged") : Status();
    };
    const PipelineReport report = Run(&source);
    EXPECT_EQ(report.end.code(), StatusCode::kDeviceLost);
    EXPECT_EQ(report.end.message(), "unplugged");
    EXPECT_EQ(report.processed, 2u);
    EXPECT_EQ(report.failed, 1u);
  }
}

TEST_F(PipelineTest, ReportsTheErrorOfTheSourceAfterFinishingItsFrames) {
  options_.policy = QueuePolicy::kEvery;
  FakeSource source(5);
  source.end = Timeout("/dev/video0: no frame for 2000 ms");
  const PipelineReport report = Run(&source);
  EXPECT_EQ(report.end.code(), StatusCode::kTimeout);
  EXPECT_EQ(report.processed, 5u);
  EXPECT_TRUE(report.first_failure.ok());
}

TEST_F(PipelineTest, StopsAfterMaxFrames) {
  options_.policy = QueuePolicy::kEvery;
  options_.max_frames = 7;
  FakeSource source(UINT64_MAX);
  EXPECT_EQ(Run(&source).processed, 7u);
}

TEST_F(PipelineTest, StopsWhenAsked) {
  for (const QueuePolicy policy : {QueuePolicy::kEvery, QueuePolicy::kNewest}) {
    std::atomic<bool> stop = false;
    options_.policy = policy;
    options_.stop = &stop;
    results_.clear();
    FakeSource source(UINT64_MAX);
    callbacks_.infer = [&](const Image&, FrameResult*) {
      if (results_.size() == 4) stop = true;
      return Status();
    };
    const PipelineReport report = Run(&source);
    EXPECT_EQ(report.processed, 5u);
    EXPECT_EQ(report.failed, 0u);
    EXPECT_TRUE(report.end.ok());
  }
}

TEST_F(PipelineTest, StopsBeforeTheFirstFrameAndDuringASlowPace) {
  std::atomic<bool> stop = true;
  options_.stop = &stop;
  FakeSource source(UINT64_MAX);
  EXPECT_EQ(Run(&source).captured, 0u);

  stop = false;
  options_.fps = 0.001;
  source.before_next = [&](uint64_t i) { stop = i == 3; };  // then comes a wait of 1000 s
  EXPECT_LE(Run(&source).captured, 3u);
}

TEST_F(PipelineTest, PacesByAbsoluteDeadlines) {
  options_.policy = QueuePolicy::kEvery;
  options_.fps = 30;
  std::vector<int64_t> times;
  callbacks_.on_result = [&](const ProcessedFrame& processed) {
    results_.push_back(processed.frame.sequence);
    times.push_back(processed.frame.capture_time_ns);
  };
  FakeSource source(301);
  source.before_next = [&](uint64_t) { clock_.Advance(7 * kMs); };  // costs no rate
  const PipelineReport report = Run(&source);
  ASSERT_EQ(times.size(), 301u);
  EXPECT_NEAR(report.captured_fps, 30, 0.03);
  EXPECT_NEAR(report.processed_fps, 30, 0.03);
  for (size_t i = 1; i < times.size(); ++i) {
    const double due_ms = 1007.0 + static_cast<double>(i) * 1000.0 / 30;
    EXPECT_NEAR(static_cast<double>(times[i]) / kMs, due_ms, 0.001) << i;
  }
}

TEST_F(PipelineTest, SkipsDeadlinesThatWereMissed) {
  options_.policy = QueuePolicy::kEvery;
  options_.fps = 10;
  std::vector<int64_t> times_ms;
  callbacks_.on_result = [&](const ProcessedFrame& processed) {
    results_.push_back(processed.frame.sequence);
    times_ms.push_back(processed.frame.capture_time_ns / kMs - 1000);
  };
  FakeSource source(6);
  source.before_next = [&](uint64_t i) {
    if (i == 2) clock_.Advance(450 * kMs);  // the source stalls
  };
  Run(&source);
  // Frame 2, due at 200, is ready at 550: more than a period late.
  EXPECT_THAT(times_ms, ElementsAre(0, 100, 600, 700, 800, 900));
}

TEST_F(PipelineTest, KeepsTheTimesOfALiveSource) {
  options_.policy = QueuePolicy::kEvery;
  FakeSource source(11);
  source.is_live = true;
  source.live_time_ns = [](uint64_t i) { return 500 * kMs + static_cast<int64_t>(i) * 50 * kMs; };
  const PipelineReport report = Run(&source);
  EXPECT_DOUBLE_EQ(report.captured_fps, 20);
  EXPECT_DOUBLE_EQ(report.total.max, 500);  // the clock stands at 1000, the first was taken at 500
}

TEST_F(PipelineTest, MeasuresEachStage) {
  options_.policy = QueuePolicy::kEvery;
  options_.fps = 0;
  FakeSource source(10);
  callbacks_.infer = [&](const Image&, FrameResult*) {
    clock_.Advance(static_cast<int64_t>(results_.size() + 1) * kMs);
    return Status();
  };
  const PipelineReport report = Run(&source);
  EXPECT_EQ(report.infer.count, 10u);
  EXPECT_FLOAT_EQ(static_cast<float>(report.infer.p50), 5);
  EXPECT_FLOAT_EQ(static_cast<float>(report.infer.p90), 9);
  EXPECT_FLOAT_EQ(static_cast<float>(report.infer.p99), 10);
  EXPECT_DOUBLE_EQ(report.infer.max, 10);
  EXPECT_EQ(report.decode.count, 10u);
  EXPECT_EQ(report.decode.max, 0);
  EXPECT_EQ(report.draw.count, 0u);
  EXPECT_GE(report.total.max, 10);
}

TEST_F(PipelineTest, CropsAsTheSourceSuggests) {
  options_.policy = QueuePolicy::kEvery;
  FakeSource source(1);
  source.crop = {8, 4, 16, 16};
  Image input;
  callbacks_.infer = [&](const Image& pixels, FrameResult*) {
    input = pixels;
    return Status();
  };
  callbacks_.on_result = [&](const ProcessedFrame& processed) {
    results_.push_back(processed.frame.sequence);
    EXPECT_EQ(processed.picture.width, 32);
  };
  Run(&source);
  const Result<Image> picture = DecodeImage(MakeJpeg(32, 24));
  EXPECT_EQ(input.pixels, Resize(*picture, 8, 8, source.crop)->pixels);
}

TEST_F(PipelineTest, ShrinksWhileDecodingAsFarAsTheCropAllows) {
  options_.policy = QueuePolicy::kEvery;
  options_.shrink_while_decoding = true;
  int width = 0;
  callbacks_.on_result = [&](const ProcessedFrame& processed) {
    results_.push_back(processed.frame.sequence);
    width = processed.picture.width;
  };
  FakeSource whole(1);
  Run(&whole);
  EXPECT_EQ(width, 16);  // 16 x 12 is at least 8 x 8; 8 x 6 is not
  results_.clear();
  FakeSource cropped(1);
  cropped.crop = {8, 4, 15, 15};
  Run(&cropped);
  EXPECT_EQ(width, 32);
}

TEST_F(PipelineTest, KeepsPicturesLegibleWhenItDrawsIntoThem) {
  options_.policy = QueuePolicy::kEvery;
  options_.shrink_while_decoding = true;
  options_.draw = true;
  int width = 0;
  callbacks_.on_result = [&](const ProcessedFrame& processed) {
    results_.push_back(processed.frame.sequence);
    width = processed.picture.width;
  };
  FakeSource source(1, 1280, 960);
  Run(&source);
  EXPECT_EQ(width, 320);
}

TEST_F(PipelineTest, FeedsGrayModels) {
  options_.policy = QueuePolicy::kEvery;
  options_.input_channels = 1;
  FakeSource source(2);
  EXPECT_EQ(Run(&source).processed, 2u);
}

TEST_F(PipelineTest, DrawsAndWritesAnnotatedPictures) {
  options_.policy = QueuePolicy::kEvery;
  options_.annotated_dir = testing::TempDir();
  callbacks_.infer = [](const Image&, FrameResult* result) {
    EXPECT_TRUE(result->label.empty());
    result->label = "boot 97 %";
    return Status();
  };
  callbacks_.draw = [](const FrameResult& result, const Rect& seen, Image* picture) {
    EXPECT_EQ(result.label, "boot 97 %");
    EXPECT_EQ(seen, (Rect{4, 12, 16, 8}));
    FillRectangle(seen, {255, 0, 0}, picture);
  };
  FakeSource source(2);
  source.crop = {4, 12, 16, 8};
  const PipelineReport report = Run(&source);
  EXPECT_EQ(report.draw.count, 2u);
  const Result<Image> plain = DecodeImage(MakeJpeg(32, 24));
  for (const char* name : {"frame-000000.jpg", "frame-000001.jpg"}) {
    const std::string path = testing::TempDir() + "/" + name;
    const Result<Image> annotated = ReadImageFile(path);
    ASSERT_TRUE(annotated.ok()) << annotated.status().message();
    EXPECT_EQ(annotated->width, 32);
    EXPECT_NE(annotated->pixels, plain->pixels);
    const uint8_t* drawn = annotated->pixels.data() + 16 * annotated->row_bytes() + 12 * 3;
    EXPECT_GT(drawn[0], 200);
    EXPECT_LT(drawn[1], 50);
    std::remove(path.c_str());
  }
}

TEST_F(PipelineTest, FailsFramesThatCannotBeWritten) {
  options_.policy = QueuePolicy::kEvery;
  options_.annotated_dir = "/nonexistent";
  FakeSource source(2);
  const PipelineReport report = Run(&source);
  EXPECT_EQ(report.failed, 2u);
  EXPECT_THAT(report.first_failure.message(), HasSubstr("/nonexistent/frame-000000.jpg"));
}

TEST_F(PipelineTest, RefusesBadOptions) {
  FakeSource source(1);
  const auto error = [&](const std::function<void(PipelineOptions*)>& change) {
    PipelineOptions options = options_;
    change(&options);
    return RunPipeline(&source, options, callbacks_).status().message();
  };
  EXPECT_THAT(error([](auto* o) { o->input_width = 0; }), HasSubstr("0 x 8 x 3"));
  EXPECT_THAT(error([](auto* o) { o->input_channels = 2; }), HasSubstr("8 x 8 x 2"));
  EXPECT_THAT(error([](auto* o) { o->fps = -1; }), HasSubstr("-1 frames per second"));
  EXPECT_THAT(error([](auto* o) { o->queue_size = 3; }), HasSubstr("queue of 3"));
  EXPECT_THAT(error([](auto* o) { o->annotated_quality = 0; }), HasSubstr("quality 0"));
  callbacks_.infer = nullptr;
  EXPECT_THAT(error([](auto*) {}), HasSubstr("no infer callback"));
}

TEST(LatencyRecorder, KeepsTheLatestValuesAndTheLargestOfAll) {
  LatencyRecorder recorder;
  EXPECT_EQ(recorder.Summarize().count, 0u);
  recorder.Add(1000);
  for (size_t i = 0; i < LatencyRecorder::kCapacity; ++i) recorder.Add(2);
  const LatencySummary summary = recorder.Summarize();
  EXPECT_EQ(summary.count, LatencyRecorder::kCapacity + 1);
  EXPECT_EQ(summary.p99, 2);
  EXPECT_EQ(summary.max, 1000);
}

TEST(SteadyClock, ReturnsAtOnceFromPastDeadlines) {
  SteadyClock clock;
  const int64_t before = clock.NowNs();
  clock.SleepUntilNs(before - kMs);
  clock.SleepUntilNs(before + 1);
  EXPECT_GT(clock.NowNs(), before);
}

}  // namespace
}  // namespace atollrt
