// SPDX-License-Identifier: Apache-2.0
//
// Heads of the YOLO family, whose boxes are decoded outside of the model, as Frigate decodes them
// (frigate/util/model.py and its detectors). A row has a box and a score for each class:
//
//   generic  [1,4+c,n] or [1,n,4+c]: centre, size; n boxes (YOLOv8, v9, v11 and their like)
//   YOLOX    [1,n,5+c]: centre from its cell, logarithm of the size, in strides; whether there is
//            something, which the scores are multiplied with. n cells: those of strides 8, 16, 32
//   YOLO-NAS two outputs, [1,n,4] corners and [1,n,c] scores; or one, [n,7]: number of the picture,
//            corners, score, class, where the model has chosen already
//
// Centres, sizes and corners are in pixels of the input, or fractions of it, as exporters to
// TensorFlow Lite have them: fractions if none of a picture's is above 2. Of boxes that overlap by
// more than 0.4 of their union, whatever their classes, the best one stays.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "atoll/runtime.h"
#include "atoll/status.h"
#include "atoll/vision/readers.h"

namespace atollrt {

enum class YoloHead {
  kByShape,  // YOLO-NAS and YOLOX where the outputs have their shapes, else generic
  kGeneric,
  kYolox,
  kNas,
};
// What Frigate's model_type stands for: "yologeneric", "yolox", "yolonas"; kByShape for any other.
YoloHead YoloHeadOf(std::string_view model_type);

// As the readers of atoll/vision/readers.h: made once for an interpreter, which outlives it.
class YoloReader {
 public:
  // For an input of this size. kUnsupported, with the outputs, for a model without such a head.
  static Result<YoloReader> Create(AtollInterpreter* interpreter, int width, int height);

  YoloHead by_shape() const { return by_shape_; }

  // The detections with a score of at least `threshold`, best first, kMost at most. Rows with
  // numbers that are none are left out. kUnsupported if the outputs are not of that head.
  Status Read(YoloHead head, float threshold, std::vector<Detection>* detections);

  static constexpr size_t kMost = 100;

 private:
  // A matrix in an output: `rows` of `columns` numbers.
  struct Matrix {
    const AtollTensor* tensor = nullptr;
    size_t rows = 0, columns = 0;
    size_t row_step = 0, column_step = 0;  // elements
  };
  struct Candidate {
    Detection detection;
    size_t row = 0;
  };
  YoloReader() = default;
  bool HasCells() const;
  void FindBest(const Matrix& scores, size_t first_column);
  void Choose(std::vector<Detection>* detections);

  int width_ = 0, height_ = 0;
  YoloHead by_shape_ = YoloHead::kGeneric;
  Matrix first_, second_;  // of two outputs: boxes and scores
  // Memory that is used again.
  std::vector<float> values_, others_, best_;
  std::vector<int> classes_;
  std::vector<Candidate> candidates_;
};

}  // namespace atollrt
