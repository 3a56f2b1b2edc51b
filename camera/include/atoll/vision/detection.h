// SPDX-License-Identifier: Apache-2.0
//
// Detectors that end in the custom operator TFLite_Detection_PostProcess, as TensorFlow's object
// detection models do. Its outputs are float32: boxes [1,n,4] (top, left, bottom, right), classes
// [1,n], scores [1,n] and [1], how many of the n entries are detections. They are found by their
// position in the operator, whatever the order of the model's outputs; entries from that number on
// are never read.
#pragma once

#include <vector>

#include "atoll/runtime.h"
#include "atoll/status.h"

namespace atollrt {

struct Detection {
  // Fractions of the model's input, within 0 to 1; left <= right, top <= bottom.
  float left = 0;
  float top = 0;
  float right = 0;
  float bottom = 0;
  int class_index = 0;  // the operator does not count the background: 0 is the first real class
  float score = 0;
};

class DetectionReader {
 public:
  // kUnsupported, with a sentence that names the outputs, for a model without this operator or one
  // whose outputs are not all four outputs of the operator.
  static Result<DetectionReader> Create(AtollInterpreter* interpreter);

  // How many scores the operator gets for each box: the number of classes, or one more if the first
  // one is that of the background.
  int score_count() const { return score_count_; }

  // The detections with a score of at least `threshold`, best first, equal scores in the operator's
  // order. Entries that hold something other than finite numbers or no class are left out.
  void Read(float threshold, std::vector<Detection>* detections) const;

 private:
  DetectionReader() = default;
  const float* boxes_ = nullptr;
  const float* classes_ = nullptr;
  const float* scores_ = nullptr;
  const float* count_ = nullptr;
  int entries_ = 0;
  int score_count_ = 0;
};

}  // namespace atollrt
