// SPDX-License-Identifier: Apache-2.0
//
// From a picture in planes to a model's input in one pass: the wanted part is resized, converted to
// the input's channels and translated to the numbers that the model stores, row by row, with
// nothing in between but one row of each plane.
//
// Sampling: as Resize's, with a triangle of half-width max(m / n, 1) around the middle of each
// output pixel, for m source samples that become n; brightness and colour each from their own
// plane, in which the part to resize may begin and end between two samples. Weights are multiples
// of 2^-14 that add up to 1: in the order of the samples, each is the rounded sum of the exact ones
// up to it less that of those before it. Columns come first, their sums rounded to multiples of
// 2^-7; then rows, rounded to whole numbers. So equal sizes copy, and a flat picture stays flat.
// Colours become RGB only then, by ToColor; a gray input takes the brightness alone, and a gray
// picture has R = G = B. What is outside of the part has no influence, but for colour at its edges
// when the part begins or ends within a sample.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "atoll/picture/image.h"
#include "atoll/status.h"

namespace atollrt {

// What each of 256 levels of a channel is stored as.
using StoredBytes = std::array<uint8_t, 256>;
using StoredFloats = std::array<float, 256>;

// Not thread-safe (it keeps weights and one row); different objects are independent.
class InputScaler {
 public:
  // `channels` 1 or 3; sizes 1..65535.
  Status SetOutput(int width, int height, int channels);

  // Resizes `part` of the picture, all of it if that is empty, into height x width x channels
  // values at `out`. kInvalidArgument when the part reaches outside. Weights are kept while sizes
  // and part stay the same; then nothing is allocated. T is uint8_t or float.
  template <typename T>
  Status Run(const PlanarImage& picture, const Rect& part, const std::array<T, 256>& stored,
             T* out);

 private:
  // The source samples that one output pixel is made of, along one axis.
  struct Taps {
    int first;   // within the plane
    int count;   // at least 1
    int offset;  // of its first weight
  };
  struct Axis {
    // What it was made for.
    double begin = 0;
    double end = 0;
    int from = 0;
    int to = 0;
    int multiple = 0;

    std::vector<Taps> taps;  // one per output pixel
    std::vector<int16_t> weights;
    int first = 0;  // the samples that take part
    int last = 0;
  };
  struct PlaneAxes {
    Axis columns;
    Axis rows;
  };

  void MakeAxis(double begin, double end, int from, int to, int multiple, Axis* axis);
  void Prepare(const PlanarImage& picture, const Rect& part);
  void ScaleRow(const Plane& plane, const PlaneAxes& axes, int row, uint8_t* out);

  int width_ = 0;
  int height_ = 0;
  int channels_ = 0;
  PlaneAxes luma_;
  PlaneAxes color_;
  std::vector<double> exact_;     // scratch of MakeAxis
  std::vector<int32_t> sums_;     // of columns
  std::vector<int16_t> reduced_;  // one row of a plane, of the output's height
  std::vector<uint8_t> row_[3];   // one output row of each plane
};

}  // namespace atollrt
