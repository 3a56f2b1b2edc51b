// SPDX-License-Identifier: Apache-2.0
#include "atoll/camera/pipeline.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <thread>

#include "atoll/picture/overlay.h"
#include "atoll/picture/resize.h"
#include "examples/camera/frame_queue.h"
#include "examples/camera/latency_recorder.h"
#include "examples/picture/file_io.h"

namespace atollrt {

int64_t SteadyClock::NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void SteadyClock::SleepUntilNs(int64_t deadline_ns) {
  std::this_thread::sleep_until(
      std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline_ns)));
}

namespace {

// A label is legible in a picture of this size.
constexpr int kDrawnWidth = 320;
constexpr int kDrawnHeight = 240;

// The rate of a sequence of capture times.
class RateMeter {
 public:
  void Add(int64_t time_ns) {
    if (count_++ == 0) first_ns_ = time_ns;
    last_ns_ = time_ns;
  }
  double fps() const {
    if (count_ < 2 || last_ns_ <= first_ns_) return 0;
    return static_cast<double>(count_ - 1) * 1e9 / static_cast<double>(last_ns_ - first_ns_);
  }
  uint64_t count() const { return count_; }

 private:
  uint64_t count_ = 0;
  int64_t first_ns_ = 0;
  int64_t last_ns_ = 0;
};

// When the frames of a source that is not live are due.
class Pacer {
 public:
  Pacer(double fps, int64_t start_ns) : period_ns_(1e9 / fps), start_ns_(start_ns) {}

  // The deadline of the next frame, which is ready at `now_ns`. A frame late by up to a period
  // keeps its deadline, so that jitter does not accumulate; later than that, the rhythm goes on
  // with the next one: a camera does not deliver the past.
  int64_t NextDeadlineNs(int64_t now_ns) {
    if (static_cast<double>(now_ns - DeadlineNs()) > period_ns_) {
      index_ =
          static_cast<int64_t>(std::ceil(static_cast<double>(now_ns - start_ns_) / period_ns_));
    }
    const int64_t deadline_ns = DeadlineNs();
    ++index_;
    return deadline_ns;
  }

 private:
  int64_t DeadlineNs() const {
    return start_ns_ + std::llround(static_cast<double>(index_) * period_ns_);
  }

  const double period_ns_;
  const int64_t start_ns_;
  int64_t index_ = 0;
};

// The capture thread's half. Read its results after joining.
struct Capture {
  FrameSource* source;
  const PipelineOptions& options;
  Clock* clock;
  FrameQueue* queue;
  const std::atomic<bool>* aborted;  // set by the other half

  RateMeter rate;
  uint64_t dropped = 0;
  Status end;

  bool Stopping() const {
    return aborted->load() || (options.stop != nullptr && options.stop->load());
  }

  void Run() {
    Frame frame;
    std::optional<Pacer> pacer;
    while (!Stopping() && (options.max_frames == 0 || rate.count() < options.max_frames)) {
      const Result<bool> got = source->Next(&frame);
      if (!got.ok()) end = got.status();
      if (!got.ok() || !*got) break;
      // The first frame, which may take long to prepare, sets the rhythm.
      const bool paced = !source->live() && options.fps > 0;
      if (paced && !pacer) pacer.emplace(options.fps, clock->NowNs());
      if (paced && !WaitUntil(pacer->NextDeadlineNs(clock->NowNs()))) break;
      if (!source->live()) frame.capture_time_ns = clock->NowNs();
      rate.Add(frame.capture_time_ns);
      dropped += static_cast<uint64_t>(queue->Push(&frame));
    }
    queue->Close();
  }

  // In slices, so that a stop is noticed. False when it was.
  bool WaitUntil(int64_t deadline_ns) {
    constexpr int64_t kSliceNs = 50'000'000;
    for (int64_t now_ns = clock->NowNs(); now_ns < deadline_ns; now_ns = clock->NowNs()) {
      clock->SleepUntilNs(std::min(deadline_ns, now_ns + kSliceNs));
      if (Stopping()) return false;
    }
    return true;
  }
};

// `rect` of a picture of from_width x from_height, in a picture of `to`'s size.
Rect ScaleRect(const Rect& rect, int from_width, int from_height, const Image& to) {
  const auto scale = [](int value, int from, int to_size) {
    return static_cast<int>((int64_t{value} * to_size + from / 2) / from);
  };
  const int left = scale(rect.x, from_width, to.width);
  const int top = scale(rect.y, from_height, to.height);
  return {left, top, scale(rect.x + rect.width, from_width, to.width) - left,
          scale(rect.y + rect.height, from_height, to.height) - top};
}

// The calling thread's half: everything that happens to one frame after its capture.
class Processor {
 public:
  Processor(const PipelineOptions& options, const PipelineCallbacks& callbacks, Clock* clock)
      : options_(options),
        callbacks_(callbacks),
        clock_(clock),
        drawing_(options.draw || !options.annotated_dir.empty()) {}

  // Counts the frame as processed or failed.
  void Process(const Frame& frame) {
    FrameTimes times;
    if (Status status = RunStages(frame, &times); !status.ok()) {
      ++failed_;
      if (first_failure_.ok()) {
        first_failure_ = std::move(status).WithContext(
            Format("frame %llu (%s)", static_cast<unsigned long long>(frame.sequence),
                   frame.name.c_str()));
      }
      return;
    }
    rate_.Add(frame.capture_time_ns);
    decode_.Add(times.decode);
    resize_.Add(times.resize);
    infer_.Add(times.infer);
    if (drawing_) draw_.Add(times.draw);
    total_.Add(times.total);
    if (callbacks_.on_result) callbacks_.on_result({frame, picture_, result_, times});
  }

  // The error of an inference that lost its device; ok as long as none did.
  const Status& device_lost() const { return device_lost_; }

  void Report(PipelineReport* report) const {
    report->processed = rate_.count();
    report->failed = failed_;
    report->first_failure = first_failure_;
    report->processed_fps = rate_.fps();
    report->decode = decode_.Summarize();
    report->resize = resize_.Summarize();
    report->infer = infer_.Summarize();
    report->draw = draw_.Summarize();
    report->total = total_.Summarize();
  }

 private:
  Status RunStages(const Frame& frame, FrameTimes* times) {
    int64_t begin_ns = clock_->NowNs();
    const auto lap_ms = [&] {
      const int64_t now_ns = clock_->NowNs();
      const double ms = static_cast<double>(now_ns - begin_ns) * 1e-6;
      begin_ns = now_ns;
      return ms;
    };
    ATOLL_RETURN_IF_ERROR(DecodeFrame(frame, ChooseDecoding(frame), &picture_));
    times->decode = lap_ms();

    Rect crop = {0, 0, picture_.width, picture_.height};
    if (frame.crop != Rect{}) crop = ScaleRect(frame.crop, frame.width, frame.height, picture_);
    ATOLL_RETURN_IF_ERROR(PrepareResizer(crop));
    ATOLL_RETURN_IF_ERROR(resizer_->Run(picture_, &input_));
    times->resize = lap_ms();

    result_.label.clear();
    result_.class_index = -1;
    Status inferred = callbacks_.infer(input_, &result_);
    if (inferred.code() == StatusCode::kDeviceLost) device_lost_ = inferred;
    ATOLL_RETURN_IF_ERROR(std::move(inferred));
    times->infer = lap_ms();

    if (drawing_) {
      Draw(crop);
      ATOLL_RETURN_IF_ERROR(WriteAnnotated(frame));
      times->draw = lap_ms();
    }
    times->total = static_cast<double>(clock_->NowNs() - frame.capture_time_ns) * 1e-6;
    return Status();
  }

  void Draw(const Rect& crop) {
    if (callbacks_.draw) callbacks_.draw(result_, crop, &picture_);
    if (result_.label.empty()) return;
    const int scale = LegibleScale(picture_);
    DrawLabel(result_.label, {2 * scale, 2 * scale}, scale, {0, 0, 0}, &picture_);
  }

  DecodeOptions ChooseDecoding(const Frame& frame) const {
    DecodeOptions decoding = {.channels = options_.input_channels};
    if (!options_.shrink_while_decoding) return decoding;
    // The crop has to keep at least the size of the model's input.
    const auto needed = [](int input, int frame_size, int crop_size) {
      const int64_t size =
          crop_size > 0 ? (int64_t{input} * frame_size + crop_size - 1) / crop_size : input;
      return static_cast<int>(std::min<int64_t>(size, INT32_MAX));
    };
    decoding.min_width = needed(options_.input_width, frame.width, frame.crop.width);
    decoding.min_height = needed(options_.input_height, frame.height, frame.crop.height);
    if (drawing_) {
      decoding.min_width = std::max(decoding.min_width, kDrawnWidth);
      decoding.min_height = std::max(decoding.min_height, kDrawnHeight);
    }
    return decoding;
  }

  // Keeps the resizer while the frames keep their size.
  Status PrepareResizer(const Rect& crop) {
    const ResizeGeometry geometry = {.src_width = picture_.width,
                                     .src_height = picture_.height,
                                     .dst_width = options_.input_width,
                                     .dst_height = options_.input_height,
                                     .channels = picture_.channels,
                                     .crop = crop};
    if (resizer_ && resizer_->geometry() == geometry) return Status();
    ATOLL_ASSIGN_OR_RETURN(resizer_, Resizer::Create(geometry));
    return Status();
  }

  Status WriteAnnotated(const Frame& frame) {
    if (options_.annotated_dir.empty()) return Status();
    ATOLL_RETURN_IF_ERROR(EncodeJpegInto(picture_, options_.annotated_quality, &jpeg_));
    return WriteFile(Format("%s/frame-%06llu.jpg", options_.annotated_dir.c_str(),
                            static_cast<unsigned long long>(frame.sequence)),
                     jpeg_);
  }

  const PipelineOptions& options_;
  const PipelineCallbacks& callbacks_;
  Clock* const clock_;
  const bool drawing_;

  // Reused from frame to frame.
  Image picture_;
  Image input_;
  FrameResult result_;
  std::vector<uint8_t> jpeg_;
  std::optional<Resizer> resizer_;

  RateMeter rate_;
  uint64_t failed_ = 0;
  Status first_failure_;
  Status device_lost_;
  LatencyRecorder decode_;
  LatencyRecorder resize_;
  LatencyRecorder infer_;
  LatencyRecorder draw_;
  LatencyRecorder total_;
};

Status CheckOptions(const PipelineOptions& options, const PipelineCallbacks& callbacks) {
  if (options.input_width < 1 || options.input_width > 65535 || options.input_height < 1 ||
      options.input_height > 65535 ||
      (options.input_channels != 1 && options.input_channels != 3)) {
    return InvalidArgument("camera: cannot make a model input of %d x %d x %d", options.input_width,
                           options.input_height, options.input_channels);
  }
  if (options.fps != 0 && !(options.fps >= 0.001 && options.fps <= 1e6)) {
    return InvalidArgument("camera: %g frames per second", options.fps);
  }
  if (options.queue_size < 1 || options.queue_size > 2) {
    return InvalidArgument("camera: queue of %d frames; it may have 1 or 2", options.queue_size);
  }
  if (options.annotated_quality < 1 || options.annotated_quality > 100) {
    return InvalidArgument("camera: JPEG quality %d of 1..100", options.annotated_quality);
  }
  if (!callbacks.infer) return InvalidArgument("camera: no infer callback");
  return Status();
}

}  // namespace

Result<PipelineReport> RunPipeline(FrameSource* source, const PipelineOptions& options,
                                   const PipelineCallbacks& callbacks) {
  ATOLL_RETURN_IF_ERROR(CheckOptions(options, callbacks));
  SteadyClock steady_clock;
  Clock* const clock = options.clock != nullptr ? options.clock : &steady_clock;
  FrameQueue queue(options.queue_size, options.policy);
  std::atomic<bool> aborted = false;
  Capture capture = {source, options, clock, &queue, &aborted, {}, 0, {}};
  Processor processor(options, callbacks, clock);
  PipelineReport report;

  std::thread capture_thread([&] { capture.Run(); });
  Frame frame;
  // Until the capture thread closes the queue, it must be emptied: it may be waiting for room.
  while (queue.Pop(&frame)) {
    if (capture.Stopping()) {
      ++report.dropped;
      continue;
    }
    processor.Process(frame);
    if (!processor.device_lost().ok()) aborted.store(true);
  }
  capture_thread.join();

  processor.Report(&report);
  report.captured = capture.rate.count();
  report.captured_fps = capture.rate.fps();
  report.dropped += capture.dropped;
  report.end = processor.device_lost().ok() ? capture.end : processor.device_lost();
  ATOLL_CHECK(report.captured == report.processed + report.dropped + report.failed);
  return report;
}

}  // namespace atollrt
