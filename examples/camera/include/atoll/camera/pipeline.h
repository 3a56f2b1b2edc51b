// SPDX-License-Identifier: Apache-2.0
//
// From a frame source to results, with the age of every result known and every frame accounted for.
//
//   capture thread                      calling thread
//   source -> pace ->  [ queue of 1-2 ] -> decode -> resize -> infer -> draw -> on_result
//                 newest: drops the oldest
//                 every:  waits for room
//
// One frame is captured while another is processed. Frames circulate between the two threads by
// swapping, so their buffers are not allocated again once they have grown to size.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "atoll/camera/frame_source.h"
#include "atoll/picture/image.h"
#include "runtime/base/status.h"

namespace atollrt {

// The pipeline's time. Tests bring their own; called from both threads.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t NowNs() = 0;
  // Returns at or after the deadline; at once if that has passed.
  virtual void SleepUntilNs(int64_t deadline_ns) = 0;
};

// std::chrono::steady_clock.
class SteadyClock : public Clock {
 public:
  int64_t NowNs() override;
  void SleepUntilNs(int64_t deadline_ns) override;
};

enum class QueuePolicy {
  kNewest,  // a frame that nobody has taken yet gives way to a newer one: least delay
  kEvery,   // capturing waits: no frame is lost here
};

struct PipelineOptions {
  // The model's input. 1 or 3 channels.
  int input_width = 0;
  int input_height = 0;
  int input_channels = 3;

  // The rate at which a source that is not live delivers, by deadlines at multiples of 1 / fps
  // after the first frame; deadlines missed by more than a period are skipped, not caught up. 0
  // means as fast as the source can.
  double fps = 30;
  QueuePolicy policy = QueuePolicy::kNewest;
  int queue_size = 1;       // 1 or 2
  uint64_t max_frames = 0;  // stop after capturing so many; 0 means no limit

  // Lets the JPEG decoder shrink as long as no enlarging follows. Faster, but the model's input
  // differs slightly from that of the full picture. Pictures that are drawn into keep at least
  // 320 x 240 pixels, if they have them, so that labels stay readable.
  bool shrink_while_decoding = false;

  bool draw = false;          // results into the picture that on_result gets
  std::string annotated_dir;  // not empty: draws, and writes frame-NNNNNN.jpg there
  int annotated_quality = 85;

  // Polled at least every 50 ms while pacing; true ends the run after the frame in work. May be set
  // by a signal handler.
  const std::atomic<bool>* stop = nullptr;
  Clock* clock = nullptr;  // null: a SteadyClock
};

// What the model says about one frame, in short.
struct FrameResult {
  std::string label;     // "sneaker 97 %"; drawn in the corner
  int class_index = -1;  // for the caller's use
};

struct FrameTimes {  // in milliseconds
  double decode = 0;
  double resize = 0;
  double infer = 0;
  double draw = 0;
  double total = 0;  // from capture until the result was ready (and drawn)
};

// Valid during the on_result call.
struct ProcessedFrame {
  const Frame& frame;
  const Image& picture;  // decoded; annotated when drawing
  const FrameResult& result;
  const FrameTimes& times;
};

// All are called on the thread of RunPipeline.
struct PipelineCallbacks {
  // Runs the model on its input pixels (input_height x input_width x input_channels, 0..255) and
  // fills the result, which is empty before. An error fails the frame, and kDeviceLost also ends
  // the run: bringing a device back is this callback's business.
  std::function<Status(const Image& input, FrameResult* result)> infer;
  // Optional: draws what `infer` has just found into the frame, below the label. `seen` is the part
  // of the picture that became the model's input.
  std::function<void(const FrameResult& result, const Rect& seen, Image* picture)> draw;
  // Optional.
  std::function<void(const ProcessedFrame&)> on_result;
};

// Nearest-rank percentiles in milliseconds, over the latest 65536 values; max and count over all.
struct LatencySummary {
  uint64_t count = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;
};

struct PipelineReport {
  // captured == processed + dropped + failed, however the run ended.
  uint64_t captured = 0;
  uint64_t processed = 0;  // reached on_result
  uint64_t dropped = 0;    // by kNewest, or still queued when the run was stopped
  uint64_t failed = 0;     // could not be decoded, resized, inferred or drawn

  Status first_failure;  // of a frame, with its sequence number and name; ok when none failed
  // Why the run ended: ok at the end of the source, at max_frames and on stop; else the error of
  // the source, or kDeviceLost from infer.
  Status end;

  // (n - 1) / (capture time of the last - of the first), of the n frames of that kind; 0 for n < 2.
  double captured_fps = 0;
  double processed_fps = 0;

  // Of processed frames. draw has count 0 when nothing is drawn.
  LatencySummary decode;
  LatencySummary resize;
  LatencySummary infer;
  LatencySummary draw;
  LatencySummary total;
};

// Runs until the source ends or a reason in PipelineReport::end; blocks. kInvalidArgument, before
// anything is captured, for options out of range.
Result<PipelineReport> RunPipeline(FrameSource* source, const PipelineOptions& options,
                                   const PipelineCallbacks& callbacks);

}  // namespace atollrt
