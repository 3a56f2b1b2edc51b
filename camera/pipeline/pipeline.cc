// SPDX-License-Identifier: Apache-2.0
#include "atoll/camera/pipeline.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <numeric>
#include <optional>
#include <semaphore>
#include <thread>
#include <utility>

#include "atoll/picture/overlay.h"
#include "camera/pipeline/pipeline_statistics.h"
#include "runtime/base/monotonic.h"

namespace atollrt {

int64_t SteadyPipelineClock::NowNs() { return MonotonicNs(); }

void SteadyPipelineClock::SleepUntilNs(int64_t deadline_ns) {
  std::this_thread::sleep_until(
      std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline_ns)));
}

const char* QueuePolicyName(QueuePolicy policy) {
  return policy == QueuePolicy::kEvery ? "every" : "newest";
}

namespace {

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

// `rect` of a picture of from_width x from_height, in a picture of `to`'s size.
Rect ScaleRect(const Rect& rect, int from_width, int from_height, const PlanarImage& to) {
  const auto scale = [](int value, int from, int to_size) {
    return static_cast<int>((int64_t{value} * to_size + from / 2) / from);
  };
  const int left = scale(rect.x, from_width, to.width);
  const int top = scale(rect.y, from_height, to.height);
  return {left, top, scale(rect.x + rect.width, from_width, to.width) - left,
          scale(rect.y + rect.height, from_height, to.height) - top};
}

double Milliseconds(int64_t ns) { return static_cast<double>(ns) * 1e-6; }

// The detection's box in the picture that was seen, with a margin of its size, inside of what was
// seen; empty when nothing is left.
Rect CropOf(const Detection& detection, const Rect& seen, double margin) {
  const double width = detection.right - detection.left;
  const double height = detection.bottom - detection.top;
  const auto place = [](double fraction, int size) {
    // Whatever a model gives, NaN too, is a place.
    return static_cast<int>(std::lround((fraction > 0 ? std::min(fraction, 1.0) : 0.0) * size));
  };
  const int left = place(detection.left - margin * width, seen.width);
  const int top = place(detection.top - margin * height, seen.height);
  const int right = place(detection.right + margin * width, seen.width);
  const int bottom = place(detection.bottom + margin * height, seen.height);
  return {seen.x + left, seen.y + top, right - left, bottom - top};
}

// One frame on its way, with the memory of everything that becomes of it.
struct Slot {
  Frame frame;
  bool wants_picture = false;
  bool wants_jpeg = false;
  PlanarImage picture;
  Rect seen;  // the part of the picture that models look at
  // By model; more entries than count stay allocated.
  std::vector<std::vector<ModelResult>> results;
  std::vector<size_t> result_counts;
  std::vector<uint8_t> jpeg;
  FrameTimes times = {};
  int64_t waiting_since_ns = 0;
  Status status;  // why the frame failed
};

// Slots on their way from one thread to another.
class SlotQueue {
 public:
  explicit SlotQueue(int capacity) : capacity_(static_cast<size_t>(capacity)) {}

  // When there is no room: waits for it or, unless it is to wait, returns the oldest slot instead.
  Slot* Push(Slot* slot, bool waits = true) {
    std::unique_lock lock(mutex_);
    if (waits) has_room_.wait(lock, [&] { return slots_.size() < capacity_; });
    Slot* const oldest = slots_.size() < capacity_ ? nullptr : slots_.front();
    if (oldest != nullptr) slots_.pop_front();
    slots_.push_back(slot);
    has_slot_.notify_one();
    return oldest;
  }

  // Takes the oldest slot, waiting for one; null when the queue is closed and empty.
  Slot* Pop() {
    std::unique_lock lock(mutex_);
    has_slot_.wait(lock, [&] { return !slots_.empty() || closed_; });
    if (slots_.empty()) return nullptr;
    Slot* const slot = slots_.front();
    slots_.pop_front();
    has_room_.notify_one();
    return slot;
  }

  // No Push follows.
  void Close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    has_slot_.notify_all();
  }

 private:
  const size_t capacity_;
  std::mutex mutex_;
  std::condition_variable has_slot_;
  std::condition_variable has_room_;
  std::deque<Slot*> slots_;
  bool closed_ = false;
};

Status CheckOptions(const PipelineOptions& options, const std::vector<PipelineModel>& models) {
  if (options.fps != 0 && !(options.fps >= 0.001 && options.fps <= 1e6)) {
    return InvalidArgument("camera: %g frames per second", options.fps);
  }
  if (options.queue_size < 1 || options.queue_size > 16) {
    return InvalidArgument("camera: queue of %d frames; it may have 1 to 16", options.queue_size);
  }
  if (options.max_in_flight < 1 || options.max_in_flight > 16) {
    return InvalidArgument("camera: %d frames in flight; there may be 1 to 16",
                           options.max_in_flight);
  }
  if (options.jpeg_quality < 1 || options.jpeg_quality > 100) {
    return InvalidArgument("camera: JPEG quality %d of 1..100", options.jpeg_quality);
  }
  if (models.empty()) return InvalidArgument("camera: no model");
  for (size_t i = 0; i < models.size(); ++i) {
    const PipelineModel& model = models[i];
    if (model.model == nullptr) return InvalidArgument("camera: model %zu is not there", i);
    const FrameModel::InputSize size = model.model->input_size();
    if (size.width < 1 || size.width > 65535 || size.height < 1 || size.height > 65535 ||
        (size.channels != 1 && size.channels != 3)) {
      return InvalidArgument("camera: cannot make a model input of %d x %d x %d", size.width,
                             size.height, size.channels);
    }
    if (model.inside >= static_cast<int>(i)) {
      return InvalidArgument(
          "camera: model %zu is inside of model %d, which does not come before it", i,
          model.inside);
    }
    if (model.inside >= 0 && models[static_cast<size_t>(model.inside)].inside >= 0) {
      return InvalidArgument("camera: model %zu is inside of model %d, which is inside of another",
                             i, model.inside);
    }
    if (model.inside >= 0 && (model.max_crops < 1 || !(model.margin >= 0 && model.margin <= 10))) {
      return InvalidArgument("camera: model %zu looks into %d boxes with a margin of %g", i,
                             model.max_crops, model.margin);
    }
  }
  return Status();
}

class FramePipeline : public Pipeline {
 public:
  FramePipeline(FrameSource* source, std::vector<PipelineModel> models, PipelineOptions options)
      : source_(source),
        models_(std::move(models)),
        options_(std::move(options)),
        clock_(options_.clock != nullptr ? options_.clock : &steady_clock_),
        statistics_(models_.size()),
        // One is being captured into.
        slots_(static_cast<size_t>(1 + options_.queue_size + options_.max_in_flight)),
        free_(static_cast<int>(slots_.size())),
        captured_(options_.queue_size),
        decoded_(options_.max_in_flight),
        inferred_(options_.max_in_flight),
        room_in_flight_(options_.max_in_flight) {
    for (Slot& slot : slots_) {
      slot.results.resize(models_.size());
      slot.result_counts.resize(models_.size());
      free_.Push(&slot);
    }
    for (size_t i = 0; i < models_.size(); ++i) {
      const FrameModel::InputSize size = models_[i].model->input_size();
      needs_color_ = needs_color_ || size.channels == 3;
      if (models_[i].inside < 0) frame_order_.push_back(i);
      ModelStatus& described = described_.emplace_back();
      models_[i].model->Describe(&described);
      described.priority = models_[i].priority;
      if (models_[i].inside >= 0) {
        described.runs_on = described_[static_cast<size_t>(models_[i].inside)].name;
      }
    }
    seen_results_.resize(models_.size());
    SortByPriority();
  }

  PipelineReport Run() override {
    running_ = true;
    std::thread capture([this] { Capture(); });
    std::thread decode([this] { DecodeAll(); });
    std::thread infer([this] { InferAll(); });
    while (Slot* slot = inferred_.Pop()) {
      Finish(slot);
      free_.Push(slot);
      room_in_flight_.release();
    }
    infer.join();
    decode.join();
    capture.join();
    running_ = false;
    PipelineReport report;
    report.status = status();
    statistics_.Conclude(&report);
    report.end = device_lost_.ok() ? capture_end_ : device_lost_;
    ATOLL_CHECK(report.status.captured ==
                report.status.processed + report.status.dropped + report.status.failed);
    return report;
  }

  PipelineStatus status() const override {
    PipelineStatus status;
    status.source = source_->description();
    status.policy = QueuePolicyName(options_.policy);
    status.queue_size = options_.queue_size;
    status.models = described_;
    status.running = running_;
    if (options_.describe_device) options_.describe_device(&status.device);
    statistics_.Describe(clock_->NowNs(), &status);
    return status;
  }

 private:
  void SortByPriority() {
    std::stable_sort(frame_order_.begin(), frame_order_.end(),
                     [&](size_t a, size_t b) { return models_[a].priority > models_[b].priority; });
  }

  bool Stopping() const {
    return aborted_.load() || (options_.stop != nullptr && options_.stop->load());
  }

  // Adds what has passed since *begin_ns to the frame's stage, and begins anew.
  void Lap(Stage stage, int model, int64_t* begin_ns, Slot* slot) {
    const int64_t now_ns = clock_->NowNs();
    slot->times[static_cast<size_t>(stage)] += Milliseconds(now_ns - *begin_ns);
    Trace({stage, model, slot->frame.sequence, *begin_ns, now_ns});
    *begin_ns = now_ns;
  }
  void Trace(const StageSpan& span) const {
    if (options_.on_span) options_.on_span(span);
  }

  // ---- Capture thread ----

  void Capture() {
    std::optional<Pacer> pacer;
    uint64_t count = 0;
    while (!Stopping() && (options_.max_frames == 0 || count < options_.max_frames)) {
      Slot* slot = free_.Pop();
      if (!CaptureInto(slot, &pacer)) {
        free_.Push(slot);
        break;
      }
      ++count;
      if (Slot* dropped = captured_.Push(slot, options_.policy == QueuePolicy::kEvery)) {
        statistics_.Drop();
        free_.Push(dropped);
      }
    }
    captured_.Close();
  }

  // False at the end of the source, for whatever reason.
  bool CaptureInto(Slot* slot, std::optional<Pacer>* pacer) {
    Frame& frame = slot->frame;
    slot->times = {};
    slot->status = Status();
    const int64_t begin_ns = clock_->NowNs();
    const Result<bool> got = source_->Next(&frame);
    if (!got.ok()) capture_end_ = got.status();
    if (!got.ok() || !*got) return false;
    int64_t now_ns = clock_->NowNs();
    const bool live = source_->live();
    const int64_t read_from_ns = live ? std::min(frame.capture_time_ns, now_ns) : begin_ns;
    slot->times[static_cast<size_t>(Stage::kCapture)] = Milliseconds(now_ns - read_from_ns);
    Trace({Stage::kCapture, -1, frame.sequence, read_from_ns, now_ns});
    if (!live) {
      frame.capture_time_ns = now_ns;
      // The first frame, which may take long to prepare, sets the rhythm.
      if (options_.fps > 0) {
        if (!*pacer) pacer->emplace(options_.fps, now_ns);
        frame.capture_time_ns = (*pacer)->NextDeadlineNs(now_ns);
        if (!WaitUntil(frame.capture_time_ns)) return false;
        now_ns = clock_->NowNs();
      }
    }
    slot->waiting_since_ns = now_ns;
    statistics_.Capture(frame, now_ns);
    return true;
  }

  // In slices, so that a stop is noticed. False when it was.
  bool WaitUntil(int64_t deadline_ns) const {
    constexpr int64_t kSliceNs = 50'000'000;
    for (int64_t now_ns = clock_->NowNs(); now_ns < deadline_ns; now_ns = clock_->NowNs()) {
      clock_->SleepUntilNs(std::min(deadline_ns, now_ns + kSliceNs));
      if (Stopping()) return false;
    }
    return true;
  }

  // ---- Decode thread ----

  void DecodeAll() {
    while (true) {
      room_in_flight_.acquire();  // first, so that the frame is the newest there is
      Slot* slot = captured_.Pop();
      if (slot == nullptr) break;
      if (Stopping()) {
        DropInFlight(slot);
        continue;
      }
      Lap(Stage::kQueue, -1, &slot->waiting_since_ns, slot);
      slot->status = Decode(slot);
      decoded_.Push(slot);
    }
    decoded_.Close();
  }

  void DropInFlight(Slot* slot) {
    statistics_.Drop();
    free_.Push(slot);
    room_in_flight_.release();
  }

  Status Decode(Slot* slot) {
    slot->wants_jpeg = options_.wants_jpeg && options_.wants_jpeg();
    slot->wants_picture = slot->wants_jpeg || (options_.wants_picture && options_.wants_picture());
    Frame& frame = slot->frame;
    const Status status = DecodeFrame(frame, ChooseDecoding(*slot), &slot->picture);
    Lap(Stage::kDecode, -1, &slot->waiting_since_ns, slot);
    ATOLL_RETURN_IF_ERROR(status);
    const PlanarImage& picture = slot->picture;
    if (frame.width < 1 || frame.height < 1) {  // nobody knew, and then nothing is shrunk
      frame.width = picture.width;
      frame.height = picture.height;
      statistics_.Resize(frame.width, frame.height);
    }
    slot->seen = {0, 0, picture.width, picture.height};
    if (frame.crop != Rect{}) {
      slot->seen = ScaleRect(frame.crop, frame.width, frame.height, picture);
    }
    return Status();
  }

  // As small as every model's input allows.
  DecodeOptions ChooseDecoding(const Slot& slot) const {
    DecodeOptions decoding = {.channels = needs_color_ || slot.wants_picture ? 3 : 1};
    if (slot.wants_picture) return decoding;
    const Frame& frame = slot.frame;
    // The part that is looked at has to keep at least the size of the input.
    const auto needed = [](int input, int frame_size, int part_size) {
      const int64_t size =
          part_size > 0 ? (int64_t{input} * frame_size + part_size - 1) / part_size : input;
      return static_cast<int>(std::min<int64_t>(size, INT32_MAX));
    };
    for (const PipelineModel& model : models_) {
      // Of what boxes show nobody knows the size beforehand.
      if (model.inside >= 0) return {.channels = decoding.channels};
      const FrameModel::InputSize size = model.model->input_size();
      decoding.min_width =
          std::max(decoding.min_width, needed(size.width, frame.width, frame.crop.width));
      decoding.min_height =
          std::max(decoding.min_height, needed(size.height, frame.height, frame.crop.height));
    }
    return decoding;
  }

  // ---- Inference thread ----

  void InferAll() {
    while (Slot* slot = decoded_.Pop()) {
      if (aborted_.load()) {
        DropInFlight(slot);
        continue;
      }
      Lap(Stage::kQueue, -1, &slot->waiting_since_ns, slot);
      if (slot->status.ok()) {
        slot->status = Infer(slot);
        if (slot->status.code() == StatusCode::kDeviceLost) {
          device_lost_ = slot->status;
          aborted_.store(true);
        }
      }
      slot->waiting_since_ns = clock_->NowNs();
      inferred_.Push(slot);
    }
    inferred_.Close();
  }

  Status Infer(Slot* slot) {
    std::fill(slot->result_counts.begin(), slot->result_counts.end(), 0u);
    int64_t begin_ns = clock_->NowNs();
    infer_from_ns_ = infer_until_ns_ = 0;
    // All that was submitted must be waited for, whatever fails.
    Status status;
    submitted_.clear();
    for (const size_t i : frame_order_) {
      status = Submit(i, slot->seen, &begin_ns, slot);
      if (!status.ok()) break;
      submitted_.push_back(i);
    }
    for (const size_t i : submitted_) {
      const Status collected = Collect(i, slot->seen, &begin_ns, slot);
      if (status.ok()) status = collected;
    }
    for (size_t i = 0; status.ok() && i < models_.size(); ++i) {
      if (models_[i].inside >= 0) status = InferInside(i, &begin_ns, slot);
    }
    slot->times[static_cast<size_t>(Stage::kInfer)] =
        Milliseconds(infer_until_ns_ - infer_from_ns_);
    Trace({Stage::kInfer, -1, slot->frame.sequence, infer_from_ns_, infer_until_ns_});
    if (options_.alternate_order) {
      std::reverse(frame_order_.begin(), frame_order_.end());
      SortByPriority();
    }
    return status;
  }

  Status InferInside(size_t i, int64_t* begin_ns, Slot* slot) {
    const PipelineModel& model = models_[i];
    const size_t outer = static_cast<size_t>(model.inside);
    const ModelResult& boxes = slot->results[outer][0];
    const size_t count = std::min(boxes.detections.size(), static_cast<size_t>(model.max_crops));
    for (size_t k = 0; k < count; ++k) {
      Rect crop = CropOf(boxes.detections[k], boxes.seen, model.margin);
      // A box without extent has nothing to show; one pixel keeps the results in the boxes' order.
      crop.width = std::max(crop.width, 1);
      crop.height = std::max(crop.height, 1);
      crop.x = std::min(crop.x, slot->picture.width - crop.width);
      crop.y = std::min(crop.y, slot->picture.height - crop.height);
      ATOLL_RETURN_IF_ERROR(Submit(i, crop, begin_ns, slot));
      ATOLL_RETURN_IF_ERROR(Collect(i, crop, begin_ns, slot));
    }
    return Status();
  }

  Status Submit(size_t i, const Rect& part, int64_t* begin_ns, Slot* slot) {
    FrameModel* const model = models_[i].model;
    const Status status = model->Write(slot->picture, part);
    Lap(Stage::kResize, static_cast<int>(i), begin_ns, slot);
    ATOLL_RETURN_IF_ERROR(status);
    if (infer_from_ns_ == 0) infer_from_ns_ = infer_until_ns_ = *begin_ns;
    return model->Submit();
  }

  Status Collect(size_t i, const Rect& part, int64_t* begin_ns, Slot* slot) {
    FrameModel* const model = models_[i].model;
    InferenceTimes times;
    ATOLL_RETURN_IF_ERROR(model->Wait(&times));
    const int64_t waited_ns = clock_->NowNs();
    infer_until_ns_ = waited_ns;
    AddInference(i, times, waited_ns, slot);
    *begin_ns = waited_ns;

    std::vector<ModelResult>& results = slot->results[i];
    const size_t index = slot->result_counts[i]++;
    if (index == results.size()) results.emplace_back();
    results[index].seen = part;
    Status status = model->Read(&results[index]);
    Lap(Stage::kPost, static_cast<int>(i), begin_ns, slot);
    return status;
  }

  // The device's part, which lies at the end of the inference but for what the host does after it.
  void AddInference(size_t i, const InferenceTimes& times, int64_t end_ns, Slot* slot) {
    const int64_t device_ns = times.link_out_ns + times.compute_ns + times.link_in_ns;
    const int64_t compute_ns = device_ns == 0 ? times.total_ns : times.compute_ns;
    int64_t from_ns = end_ns - times.link_out_ns - compute_ns - times.link_in_ns;
    for (const auto& [stage, ns] : {std::pair{Stage::kLinkOut, times.link_out_ns},
                                    {Stage::kCompute, compute_ns},
                                    {Stage::kLinkIn, times.link_in_ns}}) {
      slot->times[static_cast<size_t>(stage)] += Milliseconds(ns);
      if (ns > 0) {
        Trace({stage, static_cast<int>(i), slot->frame.sequence, from_ns, from_ns + ns});
      }
      from_ns += ns;
    }
    statistics_.Infer(i, times, end_ns);
  }

  // ---- The calling thread ----

  void Finish(Slot* slot) {
    if (slot->status.ok()) slot->status = Show(slot);
    int64_t begin_ns = slot->frame.capture_time_ns;
    Lap(Stage::kTotal, -1, &begin_ns, slot);
    for (size_t i = 0; i < models_.size(); ++i) {
      seen_results_[i] = std::span(slot->results[i]).first(slot->result_counts[i]);
    }
    std::span<const uint8_t> jpeg;
    if (slot->wants_jpeg) jpeg = slot->jpeg;
    const ProcessedFrame processed = {slot->frame, slot->picture, jpeg, slot->times, seen_results_};
    if (slot->status.ok() && options_.on_frame) slot->status = options_.on_frame(processed);
    if (slot->status.ok()) {
      statistics_.Process(processed, slot->wants_picture && options_.draw);
      return;
    }
    const auto sequence = static_cast<unsigned long long>(slot->frame.sequence);
    statistics_.Fail(
        std::move(slot->status)
            .WithContext(Format("frame %llu (%s)", sequence, slot->frame.name.c_str())));
  }

  Status Show(Slot* slot) {
    int64_t begin_ns = slot->waiting_since_ns;
    Lap(Stage::kQueue, -1, &begin_ns, slot);
    if (!slot->wants_picture) return Status();
    if (options_.draw) DrawResults(slot);
    Lap(Stage::kDraw, -1, &begin_ns, slot);
    if (!slot->wants_jpeg) return Status();
    Status status = EncodePlanesAsJpeg(&slot->picture, options_.jpeg_quality, &slot->jpeg);
    Lap(Stage::kEncode, -1, &begin_ns, slot);
    return status;
  }

  // Maps first, as they cover what is below them. Labels of models that look at frames go below
  // each other at the left edge, those of others to the bottom of their boxes.
  void DrawResults(Slot* slot) const {
    const Canvas canvas(&slot->picture);
    const int scale = LegibleScale(canvas);
    LabelPlace corner = {{2 * scale, 2 * scale}, scale};
    for (const bool maps : {true, false}) {
      for (size_t i = 0; i < models_.size(); ++i) {
        for (size_t k = 0; k < slot->result_counts[i]; ++k) {
          const ModelResult& result = slot->results[i][k];
          if (result.map.pixels.empty() == maps) continue;
          const int small = scale / 2 + 1;
          const int bottom = result.seen.y + result.seen.height - 10 * small;
          LabelPlace in_box = {{result.seen.x, bottom}, small};
          models_[i].model->Draw(result, canvas, models_[i].inside < 0 ? &corner : &in_box);
        }
      }
    }
  }

  FrameSource* const source_;
  const std::vector<PipelineModel> models_;
  const PipelineOptions options_;
  SteadyPipelineClock steady_clock_;
  PipelineClock* const clock_;
  bool needs_color_ = false;
  std::vector<size_t> frame_order_;  // of the models that look at frames
  // Scratch of Infer.
  std::vector<size_t> submitted_;
  int64_t infer_from_ns_ = 0;
  int64_t infer_until_ns_ = 0;
  std::vector<std::span<const ModelResult>> seen_results_;  // scratch of Finish
  std::vector<ModelStatus> described_;

  PipelineStatistics statistics_;

  std::vector<Slot> slots_;
  SlotQueue free_;
  SlotQueue captured_;
  SlotQueue decoded_;
  SlotQueue inferred_;
  std::counting_semaphore<> room_in_flight_;

  std::atomic<bool> running_ = false;
  std::atomic<bool> aborted_ = false;
  // Of the capture and the inference thread; read after joining them.
  Status capture_end_;
  Status device_lost_;
};

}  // namespace

Result<std::unique_ptr<Pipeline>> Pipeline::Create(FrameSource* source,
                                                   std::vector<PipelineModel> models,
                                                   PipelineOptions options) {
  if (source == nullptr) return InvalidArgument("camera: no source");
  ATOLL_RETURN_IF_ERROR(CheckOptions(options, models));
  return std::unique_ptr<Pipeline>(
      new FramePipeline(source, std::move(models), std::move(options)));
}

}  // namespace atollrt
