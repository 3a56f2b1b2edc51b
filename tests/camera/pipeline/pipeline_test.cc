// SPDX-License-Identifier: Apache-2.0
#include "atoll/camera/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <latch>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "atoll/picture/input_scaler.h"
#include "atoll/picture/overlay.h"
#include "camera/pipeline/pipeline_statistics.h"

namespace atollrt {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kMs = 1'000'000;

// Time passes only by sleeping and by Advance.
class FakeClock : public PipelineClock {
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
    frame->format = FrameFormat::kEncoded;
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

// A model that does what a test says. `log` gets "write NAME", "submit NAME" and so on.
class FakeModel : public FrameModel {
 public:
  explicit FakeModel(std::string name = "fake", InputSize size = {8, 8, 3})
      : name_(std::move(name)), size_(size) {
    EXPECT_TRUE(scaler_.SetOutput(size.width, size.height, size.channels).ok());
    for (size_t i = 0; i < 256; ++i) identity_[i] = static_cast<uint8_t>(i);
  }

  InputSize input_size() const override { return size_; }
  Status Write(const PlanarImage& picture, const Rect& part) override {
    Log("write");
    parts.push_back(part);
    input.resize(static_cast<size_t>(size_.width * size_.height * size_.channels));
    return scaler_.Run(picture, part, identity_, input.data());
  }
  Status Submit() override {
    Log("submit");
    EXPECT_FALSE(running_);
    running_ = true;
    return submit ? submit() : Status();
  }
  Status Wait(InferenceTimes* measured) override {
    Log("wait");
    EXPECT_TRUE(running_);
    running_ = false;
    *measured = times;
    return infer ? infer() : Status();
  }
  Status Read(ModelResult* result) override {
    Log("read");
    result->captions.assign(1, name_);
    result->detections = detections;
    result->map = map;
    return Status();
  }
  void Draw(const ModelResult& result, const Canvas& canvas, LabelPlace* labels) const override {
    Log("draw");
    FillRectangle(result.seen, {255, 0, 0}, canvas);
    labels->at.y += 10;
  }
  void Describe(ModelStatus* status) const override { status->name = name_; }

  std::function<Status()> submit;
  std::function<Status()> infer;
  InferenceTimes times;
  std::vector<Detection> detections;
  Image map;
  std::vector<uint8_t> input;  // of the latest Write
  std::vector<Rect> parts;     // of all
  std::vector<std::string>* log = nullptr;

 private:
  void Log(const char* what) const {
    if (log != nullptr) log->push_back(std::string(what) + " " + name_);
  }

  const std::string name_;
  const InputSize size_;
  InputScaler scaler_;
  StoredBytes identity_;
  bool running_ = false;
};

const LatencySummary& At(const PipelineReport& report, Stage stage) {
  return report.status.stages[static_cast<size_t>(stage)].ms;
}

class PipelineTest : public testing::Test {
 protected:
  PipelineTest() {
    models_.push_back({.model = &model_});
    options_.clock = &clock_;
    options_.policy = QueuePolicy::kEvery;
    options_.on_frame = [this](const ProcessedFrame& processed) {
      results_.push_back(processed.frame.sequence);
      return Status();
    };
  }

  PipelineReport Run(FakeSource* source) {
    auto pipeline = Pipeline::Create(source, models_, options_);
    EXPECT_TRUE(pipeline.ok()) << pipeline.status().message();
    PipelineReport report = (*pipeline)->Run();
    const PipelineStatus& status = report.status;
    EXPECT_EQ(status.captured, status.processed + status.dropped + status.failed);
    EXPECT_EQ(status.in_flight, 0u);
    EXPECT_EQ(status.processed, results_.size());
    EXPECT_EQ(At(report, Stage::kTotal).count, status.processed);
    return report;
  }

  FakeClock clock_;
  FakeModel model_;
  std::vector<PipelineModel> models_;
  PipelineOptions options_;
  std::vector<uint64_t> results_;
};

TEST_F(PipelineTest, ProcessesEveryFrameInOrder) {
  for (const int queue_size : {1, 2, 16}) {
    for (const int in_flight : {1, 2, 3, 16}) {
      options_.queue_size = queue_size;
      options_.max_in_flight = in_flight;
      results_.clear();
      FakeSource source(50);
      const PipelineReport report = Run(&source);
      EXPECT_EQ(report.status.processed, 50u);
      EXPECT_EQ(report.status.dropped, 0u);
      EXPECT_EQ(report.status.models[0].inferences, 50u);
      EXPECT_TRUE(report.end.ok());
      for (uint64_t i = 0; i < 50; ++i) EXPECT_EQ(results_[i], i);
    }
  }
}

TEST_F(PipelineTest, NewestFrameWinsWhenTheConsumerIsLate) {
  options_.policy = QueuePolicy::kNewest;
  options_.max_in_flight = 1;
  for (const int queue_size : {1, 2}) {
    options_.queue_size = queue_size;
    results_.clear();
    FakeSource source(20);
    std::latch first_taken(1);
    source.before_next = [&](uint64_t i) {
      if (i == 1) first_taken.wait();
    };
    bool first = true;
    model_.infer = [&] {
      if (std::exchange(first, false)) first_taken.count_down();
      source.WaitUntilExhausted();  // a very slow first inference
      return Status();
    };
    const PipelineReport report = Run(&source);
    EXPECT_EQ(report.status.captured, 20u);
    if (queue_size == 1) {
      EXPECT_THAT(results_, ElementsAre(0, 19));
    } else {
      EXPECT_THAT(results_, ElementsAre(0, 18, 19));
    }
    EXPECT_EQ(report.status.dropped, 20u - results_.size());
  }
}

TEST_F(PipelineTest, NoMoreFramesAreInFlightThanAllowed) {
  options_.policy = QueuePolicy::kNewest;
  options_.max_in_flight = 2;
  FakeSource source(30);
  options_.on_frame = [&](const ProcessedFrame& processed) {
    // While the first one is shown, one more may be decoded and inferred, and one waits.
    if (results_.empty()) source.WaitUntilExhausted();
    results_.push_back(processed.frame.sequence);
    return Status();
  };
  const PipelineReport report = Run(&source);
  EXPECT_LE(results_.size(), 3u);
  EXPECT_EQ(results_.back(), 29u);
  EXPECT_EQ(report.status.dropped, 30u - results_.size());
}

TEST_F(PipelineTest, CountsDamagedFramesAsFailedAndGoesOn) {
  FakeSource source(500);
  source.bad = [](uint64_t i) { return i % 50 == 1; };
  const PipelineReport report = Run(&source);
  EXPECT_EQ(report.status.failed, 10u);
  EXPECT_EQ(report.status.processed, 490u);
  EXPECT_THAT(results_,
              Each(testing::ResultOf([](uint64_t i) { return i % 50; }, testing::Ne(1u))));
  EXPECT_THAT(report.first_failure.message(),
              AllOf(HasSubstr("frame 1 (fake): JPEG: "), HasSubstr("Premature end")));
  EXPECT_THAT(report.status.last_failure, HasSubstr("frame 451 (fake): JPEG: "));
  EXPECT_TRUE(report.end.ok());
}

TEST_F(PipelineTest, CountsFailedInferencesAndKeepsTheFirstReason) {
  FakeSource source(6);
  int calls = 0;
  model_.infer = [&] { return ++calls % 2 == 0 ? InternalError("call %d", calls) : Status(); };
  const PipelineReport report = Run(&source);
  EXPECT_EQ(report.status.processed, 3u);
  EXPECT_EQ(report.status.failed, 3u);
  EXPECT_EQ(report.first_failure.message(), "frame 1 (fake): call 2");
  EXPECT_EQ(report.first_failure.code(), StatusCode::kInternal);
}

TEST_F(PipelineTest, FramesThatCannotBeDeliveredFail) {
  FakeSource source(3);
  options_.on_frame = [&](const ProcessedFrame& processed) {
    if (processed.frame.sequence == 1) return ResourceExhausted("the disk is full");
    results_.push_back(processed.frame.sequence);
    return Status();
  };
  const PipelineReport report = Run(&source);
  EXPECT_THAT(results_, ElementsAre(0, 2));
  EXPECT_EQ(report.first_failure.message(), "frame 1 (fake): the disk is full");
}

TEST_F(PipelineTest, EndsWhenTheDeviceIsLost) {
  for (const QueuePolicy policy : {QueuePolicy::kEvery, QueuePolicy::kNewest}) {
    options_.policy = policy;
    results_.clear();
    FakeSource source(UINT64_MAX);
    int calls = 0;
    model_.infer = [&] { return ++calls == 3 ? DeviceLost("unplugged") : Status(); };
    const PipelineReport report = Run(&source);
    EXPECT_EQ(report.end.code(), StatusCode::kDeviceLost);
    EXPECT_EQ(report.end.message(), "unplugged");
    EXPECT_EQ(report.status.processed, 2u);
    EXPECT_EQ(report.status.failed, 1u);
  }
}

TEST_F(PipelineTest, ReportsTheErrorOfTheSourceAfterFinishingItsFrames) {
  FakeSource source(5);
  source.end = Timeout("/dev/video0: no frame for 2000 ms");
  const PipelineReport report = Run(&source);
  EXPECT_EQ(report.end.code(), StatusCode::kTimeout);
  EXPECT_EQ(report.status.processed, 5u);
  EXPECT_TRUE(report.first_failure.ok());
}

TEST_F(PipelineTest, StopsAfterMaxFrames) {
  options_.max_frames = 7;
  FakeSource source(UINT64_MAX);
  EXPECT_EQ(Run(&source).status.processed, 7u);
}

TEST_F(PipelineTest, StopsWhenAsked) {
  for (const QueuePolicy policy : {QueuePolicy::kEvery, QueuePolicy::kNewest}) {
    std::atomic<bool> stop = false;
    options_.policy = policy;
    options_.stop = &stop;
    results_.clear();
    FakeSource source(UINT64_MAX);
    int calls = 0;
    model_.infer = [&] {
      if (++calls == 5) stop = true;
      return Status();
    };
    const PipelineReport report = Run(&source);
    // What was in flight is finished, what was not is dropped.
    EXPECT_GE(report.status.processed, 5u);
    EXPECT_LE(report.status.processed, 5u + static_cast<uint64_t>(options_.max_in_flight));
    EXPECT_EQ(report.status.failed, 0u);
    EXPECT_TRUE(report.end.ok());
  }
}

TEST_F(PipelineTest, StopsBeforeTheFirstFrameAndDuringASlowPace) {
  std::atomic<bool> stop = true;
  options_.stop = &stop;
  FakeSource source(UINT64_MAX);
  EXPECT_EQ(Run(&source).status.captured, 0u);

  stop = false;
  options_.fps = 0.001;
  source.before_next = [&](uint64_t i) { stop = i == 3; };  // then comes a wait of 1000 s
  EXPECT_LE(Run(&source).status.captured, 3u);
}

TEST_F(PipelineTest, PacesByAbsoluteDeadlines) {
  options_.fps = 30;
  std::vector<int64_t> times;
  options_.on_frame = [&](const ProcessedFrame& processed) {
    results_.push_back(processed.frame.sequence);
    times.push_back(processed.frame.capture_time_ns);
    return Status();
  };
  FakeSource source(301);
  source.before_next = [&](uint64_t) { clock_.Advance(7 * kMs); };  // costs no rate
  const PipelineReport report = Run(&source);
  ASSERT_EQ(times.size(), 301u);
  EXPECT_NEAR(report.status.captured_fps, 30, 0.03);
  EXPECT_NEAR(report.status.processed_fps, 30, 0.03);
  for (size_t i = 1; i < times.size(); ++i) {
    const double due_ms = 1007.0 + static_cast<double>(i) * 1000.0 / 30;
    EXPECT_NEAR(static_cast<double>(times[i]) / kMs, due_ms, 0.001) << i;
  }
}

TEST_F(PipelineTest, SkipsDeadlinesThatWereMissed) {
  options_.fps = 10;
  std::vector<int64_t> times_ms;
  options_.on_frame = [&](const ProcessedFrame& processed) {
    results_.push_back(processed.frame.sequence);
    times_ms.push_back(processed.frame.capture_time_ns / kMs - 1000);
    return Status();
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
  FakeSource source(11);
  source.is_live = true;
  source.live_time_ns = [](uint64_t i) { return 500 * kMs + static_cast<int64_t>(i) * 50 * kMs; };
  const PipelineReport report = Run(&source);
  EXPECT_DOUBLE_EQ(report.status.captured_fps, 20);
  // The clock stands at 1000, the first was taken at 500.
  EXPECT_DOUBLE_EQ(At(report, Stage::kTotal).max, 500);
  EXPECT_DOUBLE_EQ(At(report, Stage::kCapture).max, 500);
}

TEST_F(PipelineTest, MeasuresEachStage) {
  options_.fps = 0;
  options_.max_in_flight = 1;  // one after the other, so that the clock belongs to one frame
  FakeSource source(10);
  int calls = 0;
  model_.infer = [&] {
    clock_.Advance(++calls * kMs);
    model_.times = {};
    return Status();
  };
  model_.times = {.total_ns = 5 * kMs,
                  .link_out_ns = 1 * kMs,
                  .compute_ns = 2 * kMs,
                  .link_in_ns = 1 * kMs,
                  .modelled_seconds = 0.003};
  std::vector<StageSpan> spans;
  std::mutex mutex;
  options_.on_span = [&](const StageSpan& span) {
    const std::lock_guard lock(mutex);
    spans.push_back(span);
  };
  const PipelineReport report = Run(&source);
  // The first inference's times are those above; Wait copies them before they are cleared.
  EXPECT_EQ(At(report, Stage::kLinkOut).count, 1u);
  EXPECT_DOUBLE_EQ(At(report, Stage::kLinkOut).max, 1);
  EXPECT_DOUBLE_EQ(At(report, Stage::kCompute).max, 2);
  EXPECT_EQ(report.status.models[0].infer_ms.count, 10u);
  EXPECT_DOUBLE_EQ(report.status.models[0].infer_ms.max, 5);
  EXPECT_EQ(At(report, Stage::kDecode).count, 10u);
  EXPECT_EQ(At(report, Stage::kDecode).max, 0);
  EXPECT_EQ(At(report, Stage::kDraw).count, 0u);
  EXPECT_EQ(At(report, Stage::kEncode).count, 0u);
  EXPECT_GE(At(report, Stage::kTotal).max, 10);
  const auto count = [&](Stage stage) {
    return std::count_if(spans.begin(), spans.end(),
                         [&](const StageSpan& span) { return span.stage == stage; });
  };
  EXPECT_EQ(count(Stage::kTotal), 10);
  EXPECT_EQ(count(Stage::kDecode), 10);
  EXPECT_EQ(count(Stage::kLinkIn), 1);
  for (const StageSpan& span : spans) EXPECT_LE(span.start_ns, span.end_ns);
}

TEST_F(PipelineTest, CropsAsTheSourceSuggests) {
  options_.wants_picture = [] { return true; };  // at full size
  options_.draw = false;
  FakeSource source(1);
  source.crop = {8, 4, 16, 16};
  Run(&source);
  EXPECT_THAT(model_.parts, ElementsAre(source.crop));
  PlanarImage picture;
  ASSERT_TRUE(DecodePlanes(MakeJpeg(32, 24), {}, &picture).ok());
  FakeModel expected;
  ASSERT_TRUE(expected.Write(picture, source.crop).ok());
  EXPECT_EQ(model_.input, expected.input);
}

TEST_F(PipelineTest, ShrinksWhileDecodingAsFarAsAllModelsAllow) {
  int width = 0;
  options_.on_frame = [&](const ProcessedFrame& processed) {
    results_.push_back(processed.frame.sequence);
    width = processed.picture.width;
    return Status();
  };
  const auto width_of = [&](const Rect& crop) {
    results_.clear();
    FakeSource source(1);
    source.crop = crop;
    Run(&source);
    return width;
  };
  EXPECT_EQ(width_of({}), 16);  // 16 x 12 is at least 8 x 8; 8 x 6 is not
  EXPECT_EQ(width_of({8, 4, 15, 15}), 32);
  FakeModel larger("larger", {17, 4, 1});
  models_.push_back({.model = &larger});
  EXPECT_EQ(width_of({}), 32);
  models_.pop_back();
  options_.wants_picture = [] { return true; };
  EXPECT_EQ(width_of({}), 32);
}

TEST_F(PipelineTest, DecodesBrightnessAloneForGrayModels) {
  FakeModel gray("gray", {8, 8, 1});
  models_ = {{.model = &gray}};
  bool has_color = true;
  options_.on_frame = [&](const ProcessedFrame& processed) {
    results_.push_back(processed.frame.sequence);
    has_color = processed.picture.has_color;
    return Status();
  };
  FakeSource source(2);
  EXPECT_EQ(Run(&source).status.processed, 2u);
  EXPECT_FALSE(has_color);
}

TEST_F(PipelineTest, DrawsAndEncodesForThoseWhoWantToSee) {
  for (const bool draw : {true, false}) {
    results_.clear();
    options_.draw = draw;
    int asked = 0;
    options_.wants_jpeg = [&] { return ++asked != 2; };
    FakeSource source(3);
    source.crop = {4, 12, 16, 8};
    options_.on_frame = [&](const ProcessedFrame& processed) {
      results_.push_back(processed.frame.sequence);
      EXPECT_EQ(processed.jpeg.empty(), processed.frame.sequence == 1);
      if (processed.jpeg.empty()) return Status();
      const Result<Image> seen = DecodeImage(processed.jpeg);
      EXPECT_TRUE(seen.ok());
      if (!seen.ok()) return Status();
      EXPECT_EQ(seen->width, 32);
      const uint8_t* drawn = seen->pixels.data() + 16 * seen->row_bytes() + 12 * 3;
      EXPECT_EQ(drawn[0] > 200 && drawn[1] < 60, draw);
      return Status();
    };
    const PipelineReport report = Run(&source);
    EXPECT_EQ(At(report, Stage::kDraw).count, draw ? 2u : 0u);
    EXPECT_EQ(At(report, Stage::kEncode).count, 2u);
  }
}

TEST_F(PipelineTest, DrawsMapsBelowEverythingElse) {
  std::vector<std::string> log;
  FakeModel map("map");
  FakeModel other("other");
  map.map.Reshape(2, 2, 1);
  models_.push_back({.model = &map});
  models_.push_back({.model = &other});
  for (FakeModel* model : {&model_, &map, &other}) model->log = &log;
  options_.wants_picture = [] { return true; };
  FakeSource source(1);
  Run(&source);
  std::erase_if(log, [](const std::string& line) { return !line.starts_with("draw"); });
  EXPECT_THAT(log, ElementsAre("draw map", "draw fake", "draw other"));
}

TEST_F(PipelineTest, SubmitsAllModelsBeforeItWaits) {
  std::vector<std::string> log;
  FakeModel second("second");
  FakeModel urgent("urgent");
  for (FakeModel* model : {&model_, &second, &urgent}) model->log = &log;
  models_.push_back({.model = &second});
  models_.push_back({.model = &urgent, .priority = 1});
  FakeSource source(1);
  Run(&source);
  EXPECT_THAT(log, ElementsAre("write urgent", "submit urgent", "write fake", "submit fake",
                               "write second", "submit second", "wait urgent", "read urgent",
                               "wait fake", "read fake", "wait second", "read second"));

  // In alternating order what ran last runs first, but for priorities.
  log.clear();
  results_.clear();
  options_.alternate_order = true;
  FakeSource two(2);
  Run(&two);
  std::erase_if(log, [](const std::string& line) { return !line.starts_with("submit"); });
  EXPECT_THAT(log, ElementsAre("submit urgent", "submit fake", "submit second", "submit urgent",
                               "submit second", "submit fake"));
}

TEST_F(PipelineTest, WaitsForWhatWasSubmittedWhateverFails) {
  FakeModel second("second");
  FakeModel third("third");
  models_.push_back({.model = &second});
  models_.push_back({.model = &third});
  model_.infer = [] { return InternalError("first"); };
  int calls = 0;
  third.submit = [&] { return ++calls == 2 ? InternalError("third") : Status(); };
  third.infer = [&] { return Status(); };
  FakeSource source(2);
  const PipelineReport report = Run(&source);
  EXPECT_EQ(report.status.failed, 2u);
  EXPECT_EQ(report.first_failure.message(), "frame 0 (fake): first");
  EXPECT_EQ(report.status.last_failure, "frame 1 (fake): third");
  EXPECT_EQ(report.status.models[1].inferences, 2u);
}

TEST_F(PipelineTest, LooksIntoBoxes) {
  model_.detections = {{0, 0, 0.5f, 0.5f, 1, 0.9f},
                       {0.5f, 0.25f, 1, 1, 2, 0.8f},
                       {0.25f, 0.25f, 0.25f, 0.25f, 3, 0.7f},
                       {0, 0, 1, 1, 4, 0.6f}};
  FakeModel inner("inner");
  models_.push_back({.model = &inner, .inside = 0, .max_crops = 3, .margin = 0.5});
  std::vector<Rect> seen;
  options_.on_frame = [&](const ProcessedFrame& processed) {
    results_.push_back(processed.frame.sequence);
    EXPECT_EQ(processed.results[0].size(), 1u);
    EXPECT_EQ(processed.picture.width, 32);  // not shrunk
    seen.clear();
    for (const ModelResult& result : processed.results[1]) seen.push_back(result.seen);
    model_.detections.pop_back();
    return Status();
  };
  options_.max_in_flight = 1;
  FakeSource source(1);
  const PipelineReport report = Run(&source);
  // 32 x 24 pixels; boxes grow by half of their size on each side, but not out of the picture.
  EXPECT_THAT(seen, ElementsAre(Rect{0, 0, 24, 18}, Rect{8, 0, 24, 24}, Rect{8, 6, 1, 1}));
  EXPECT_EQ(report.status.models[1].inferences, 3u);
  EXPECT_EQ(report.status.models[1].runs_on, "fake");
  EXPECT_THAT(report.status.models[1].results, ElementsAre("inner", "inner", "inner"));

  // Fewer boxes leave no results of earlier frames behind.
  results_.clear();
  FakeSource three(3);
  Run(&three);
  EXPECT_EQ(seen.size(), 1u);
}

TEST_F(PipelineTest, TellsItsStatusFromAnyThread) {
  options_.fps = 0;
  options_.describe_device = [](DeviceStatus* device) { device->name = "pretended"; };
  FakeSource source(2000);
  source.bad = [](uint64_t i) { return i % 7 == 3; };
  auto pipeline = Pipeline::Create(&source, models_, options_);
  ASSERT_TRUE(pipeline.ok());
  EXPECT_EQ((*pipeline)->status().captured, 0u);
  std::atomic<bool> done = false;
  std::thread watcher([&] {
    uint64_t last = 0;
    while (!done) {
      const PipelineStatus status = (*pipeline)->status();
      EXPECT_EQ(status.captured,
                status.processed + status.dropped + status.failed + status.in_flight);
      EXPECT_LE(status.in_flight, 1u + 3u + 1u);
      EXPECT_GE(status.captured, last);
      EXPECT_EQ(status.device.name, "pretended");
      EXPECT_EQ(status.stages.size(), static_cast<size_t>(kStageCount));
      last = status.captured;
    }
  });
  const PipelineReport report = (*pipeline)->Run();
  done = true;
  watcher.join();
  EXPECT_EQ(report.status.failed, 286u);
  EXPECT_FALSE(report.status.running);
}

TEST_F(PipelineTest, RefusesBadOptions) {
  FakeSource source(1);
  const auto error = [&](const std::function<void(PipelineOptions*)>& change) {
    PipelineOptions options = options_;
    change(&options);
    return Pipeline::Create(&source, models_, options).status().message();
  };
  EXPECT_THAT(error([](auto* o) { o->fps = -1; }), HasSubstr("-1 frames per second"));
  EXPECT_THAT(error([](auto* o) { o->queue_size = 17; }), HasSubstr("queue of 17"));
  EXPECT_THAT(error([](auto* o) { o->max_in_flight = 0; }), HasSubstr("0 frames in flight"));
  EXPECT_THAT(error([](auto* o) { o->jpeg_quality = 0; }), HasSubstr("quality 0"));
  const auto refused = [&](const std::vector<PipelineModel>& models) {
    return Pipeline::Create(&source, models, options_).status().message();
  };
  EXPECT_THAT(refused({}), HasSubstr("no model"));
  EXPECT_THAT(refused({{.model = nullptr}}), HasSubstr("model 0 is not there"));
  EXPECT_THAT(refused({{.model = &model_, .inside = 0}}), HasSubstr("does not come before it"));
  EXPECT_THAT(
      refused(
          {{.model = &model_}, {.model = &model_, .inside = 0}, {.model = &model_, .inside = 1}}),
      HasSubstr("inside of another"));
}

TEST(LatencyRecorder, KeepsTheLatestValuesAndTheLargestOfAll) {
  LatencyRecorder recorder;
  EXPECT_EQ(recorder.Summarize().count, 0u);
  recorder.Add(1000);
  for (size_t i = 0; i < LatencyRecorder::kCapacity; ++i) recorder.Add(2);
  LatencySummary summary = recorder.Summarize();
  EXPECT_EQ(summary.count, LatencyRecorder::kCapacity + 1);
  EXPECT_EQ(summary.p99, 2);
  EXPECT_EQ(summary.max, 1000);
  for (int i = 1; i <= 10; ++i) recorder.Add(i);
  summary = recorder.Take(10).Summarize();
  EXPECT_EQ(summary.p50, 5);
  EXPECT_EQ(summary.p90, 9);
  EXPECT_EQ(summary.p99, 10);
}

TEST(SlidingRate, IsThatOfTheLastWholeSecond) {
  SlidingRate rate;
  EXPECT_EQ(rate.PerSecond(0), 0);
  for (int i = 0; i < 90; ++i) rate.Add(i * 1000 * kMs / 30, 1);
  EXPECT_NEAR(rate.PerSecond(3000 * kMs), 30, 1);
  EXPECT_NEAR(rate.PerSecond(3500 * kMs), 15, 1);
  EXPECT_EQ(rate.PerSecond(9000 * kMs), 0);
}

TEST(SteadyPipelineClock, ReturnsAtOnceFromPastDeadlines) {
  SteadyPipelineClock clock;
  const int64_t before = clock.NowNs();
  clock.SleepUntilNs(before - kMs);
  clock.SleepUntilNs(before + 1);
  EXPECT_GT(clock.NowNs(), before);
}

}  // namespace
}  // namespace atollrt
