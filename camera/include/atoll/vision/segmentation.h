// SPDX-License-Identifier: Apache-2.0
//
// Segmentation: one output that gives each pixel a class, either as its number, [1,h,w] or
// [1,h,w,1] of int32, int64 or unquantized uint8, or as scores of all classes, [1,h,w,n] of
// float32, uint8 or int8, n >= 2. h and w, at least 2 each, need not be those of the input.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "atoll/picture/image.h"
#include "atoll/runtime.h"
#include "atoll/status.h"

namespace atollrt {

class SegmentationReader {
 public:
  static constexpr int kMaxClasses = 256;

  // kUnsupported, with a sentence that names the outputs, for any other model and for one of more
  // than 256 classes.
  static Result<SegmentationReader> Create(AtollInterpreter* interpreter);

  int width() const { return width_; }
  int height() const { return height_; }
  // 0 if the model gives class numbers and does not say how many there are.
  int class_count() const { return class_count_; }

  // The class of each pixel as a gray image of width() x height(). Of scores it is the class of the
  // highest one, the first of equals; a score that is not a number is less than any. kUnsupported
  // if the model gives a class number outside of 0 to 255, with its place.
  Status Read(Image* classes) const;

 private:
  SegmentationReader() = default;
  const AtollTensor* output_ = nullptr;
  int width_ = 0;
  int height_ = 0;
  int class_count_ = 0;
  bool has_scores_ = false;
};

// How many pixels of a gray image have each value.
std::array<int64_t, 256> CountPixels(const Image& classes);

}  // namespace atollrt
