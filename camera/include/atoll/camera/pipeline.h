// SPDX-License-Identifier: Apache-2.0
//
// From a source of frames to what models see in them: several models on every frame, the age of
// every result known and every frame accounted for.
//
//   capture thread    decode thread   infer thread          calling thread
//   source, pace ---> decode -------> resize, submit and -> draw, encode, on_frame
//                 |                   collect, per model
//                 newest: drops the oldest; every: waits for room
//
// Frames circulate through a fixed number of slots, whose buffers stop being allocated once they
// have grown to size. While the device runs one model, the next one's input is made.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "atoll/camera/frame_model.h"
#include "atoll/camera/frame_source.h"
#include "atoll/camera/status.h"
#include "atoll/picture/image.h"
#include "atoll/status.h"

namespace atollrt {

// The pipeline's time. Tests bring their own; called from all threads.
class PipelineClock {
 public:
  virtual ~PipelineClock() = default;
  virtual int64_t NowNs() = 0;
  // Returns at or after the deadline; at once if that has passed.
  virtual void SleepUntilNs(int64_t deadline_ns) = 0;
};

// std::chrono::steady_clock.
class SteadyPipelineClock : public PipelineClock {
 public:
  int64_t NowNs() override;
  void SleepUntilNs(int64_t deadline_ns) override;
};

enum class QueuePolicy {
  kNewest,  // a frame that nobody has taken yet gives way to a newer one: least delay
  kEvery,   // capturing waits: no frame is lost here
};
const char* QueuePolicyName(QueuePolicy policy);  // "newest"

// One of the models that a pipeline runs on every frame.
struct PipelineModel {
  FrameModel* model = nullptr;  // must outlive the pipeline
  // Those of a higher priority are submitted first. (Whose requests a device that several programs
  // share runs first is the interpreter's priority.)
  int priority = 0;
  // Not below 0: looks not at the frame but into the best `max_crops` detections of the model of
  // this index, which is a detector and comes before it; enlarged by `margin` of their size on
  // each side.
  int inside = -1;
  int max_crops = 4;
  double margin = 0.1;
};

// One moment at which something was done; from any thread of the pipeline.
struct StageSpan {
  Stage stage = Stage::kTotal;
  int model = -1;  // index; -1: of the whole frame
  uint64_t sequence = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

using FrameTimes = std::array<double, kStageCount>;  // milliseconds, by Stage

// A frame and what was seen in it. Valid during the on_frame call.
struct ProcessedFrame {
  const Frame& frame;
  const PlanarImage& picture;     // decoded; annotated when drawing
  std::span<const uint8_t> jpeg;  // of the picture; empty unless encoding
  const FrameTimes& times;

  // By the order of the pipeline's models. A model inside of another's boxes has one result for
  // each box, in their order; others have one.
  std::span<const std::span<const ModelResult>> results;
};

struct PipelineOptions {
  // The rate at which a source that is not live delivers, by deadlines at multiples of 1 / fps
  // after the first frame; deadlines missed by more than a period are skipped, not caught up. 0
  // means as fast as the source can.
  double fps = 30;
  QueuePolicy policy = QueuePolicy::kNewest;
  int queue_size = 1;       // captured frames that may wait: 1 to 16
  int max_in_flight = 3;    // frames between the first queue and on_frame: 1 to 16
  uint64_t max_frames = 0;  // stop after capturing so many; 0 means no limit
  // Models that take turns and do not all stay on the device run in alternating order, so that the
  // last one of a frame is the first of the next and need not be sent again.
  bool alternate_order = false;

  // Asked once per frame before it is decoded: whether somebody will look at it. Null: nobody.
  std::function<bool()> wants_picture;  // drawn into, of full size
  std::function<bool()> wants_jpeg;     // the same, and encoded
  bool draw = true;                     // results into such pictures
  int jpeg_quality = 80;                // 1 to 100

  // Called on the thread of Run for each processed frame, in the order of capture; an error fails
  // the frame. Must not throw. May be null.
  std::function<Status(const ProcessedFrame&)> on_frame;
  // Called for each span, from several threads at once; may be null.
  std::function<void(const StageSpan&)> on_span;
  // Fills the status of the device; may be null. utilization fields are the pipeline's.
  std::function<void(DeviceStatus*)> describe_device;

  // Polled at least every 50 ms while pacing; true ends the run after the frames in flight. May be
  // set by a signal handler.
  const std::atomic<bool>* stop = nullptr;
  PipelineClock* clock = nullptr;  // null: a SteadyPipelineClock
};

struct PipelineReport {
  // captured == processed + dropped + failed, however the run ended. Percentiles are over the
  // latest 16384 frames, rates over the whole run: (n - 1) / (capture time of the last - of the
  // first), of the n frames of that kind; 0 for n < 2.
  PipelineStatus status;
  Status first_failure;  // of a frame, with its sequence number and name; ok when none failed
  // Why the run ended: ok at the end of the source, at max_frames and on stop; else the error of
  // the source, or kDeviceLost from a model.
  Status end;
};

class Pipeline {
 public:
  // kInvalidArgument for options out of range and models that are not there. Source and models must
  // outlive it.
  static Result<std::unique_ptr<Pipeline>> Create(FrameSource* source,
                                                  std::vector<PipelineModel> models,
                                                  PipelineOptions options);
  virtual ~Pipeline() = default;

  // Runs until the source ends or a reason in PipelineReport::end; blocks. Once.
  virtual PipelineReport Run() = 0;

  // What it does now, percentiles over the latest 1024 frames. From any thread, also before and
  // after Run.
  virtual PipelineStatus status() const = 0;
};

}  // namespace atollrt
