// SPDX-License-Identifier: Apache-2.0
//
// Models that find objects, for programs that send pictures and want boxes. A detector is loaded
// once from a file and then used by many at a time: it has a number of places, an interpreter each,
// which share the model, its compilation and its residence on the device. Whoever comes while all
// are taken waits, no longer than until a deadline.
//
// What ends in TFLite_Detection_PostProcess is read (atoll/vision/readers.h), and so are heads of
// YOLO (yolo_reader.h). Others are refused with a sentence.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "atoll/atoll.hpp"
#include "atoll/picture/image.h"
#include "atoll/status.h"
#include "atoll/vision/picture_input.h"
#include "atoll/vision/readers.h"
#include "serve/frigate/yolo_reader.h"

namespace atollrt {

// What Frigate takes from a detector: rows of class, score, top, left, bottom, right, the last four
// as fractions of the input, best first; rows that are not needed are zeros.
inline constexpr int kDetectionRows = 20;
inline constexpr int kNumbersPerRow = 6;
using DetectionRows = std::array<float, kDetectionRows * kNumbersPerRow>;

// Of detections that are sorted, best first, as DetectionReader leaves them: the first 20.
DetectionRows RowsOf(std::span<const Detection> detections);

// All member functions are thread-safe.
class ObjectDetector {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  // Detections of any score that is more than none.
  static constexpr float kAnyScore = 1e-6f;

  // `places`, 1 to 64, at a time. Errors of the model's file; kUnsupported for one that takes no
  // picture or makes no boxes, with what it makes instead.
  static Result<std::shared_ptr<ObjectDetector>> Load(const std::string& path,
                                                      const atollpp::Delegate& device, int places);

  int width() const { return width_; }
  int height() const { return height_; }
  int channels() const { return channels_; }

  // What is in a picture, best first, from `threshold` upwards. kInvalidArgument unless it has the
  // size and the channels of the input; kTimeout when no place was free until the deadline; errors
  // of the device. `head` is what the client says of a YOLO; kUnsupported if it is another one.
  Result<std::vector<Detection>> Detect(const Image& image, float threshold, Deadline deadline,
                                        YoloHead head = YoloHead::kByShape);

 private:
  struct Place {
    atollpp::Interpreter interpreter;
    PictureInput input;
    std::variant<DetectionReader, YoloReader> reader;
  };
  ObjectDetector() = default;

  int width_ = 0;
  int height_ = 0;
  int channels_ = 0;
  std::mutex mutex_;  // for what follows
  std::condition_variable freed_;
  std::vector<std::unique_ptr<Place>> free_;
};

}  // namespace atollrt
