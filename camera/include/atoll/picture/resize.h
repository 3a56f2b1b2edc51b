// SPDX-License-Identifier: Apache-2.0
//
// Bilinear resizing of 8-bit images, antialiased when shrinking.
//
// Output pixel i of an axis of n pixels, made from m source pixels, is centred at
// (i + 0.5) * m / n in source coordinates, where source pixel j is centred at j + 0.5. It is the
// mean of the source pixels weighted by a triangle of half-width max(m / n, 1) around that centre,
// cut off at the border. So enlarging interpolates between the two nearest pixels, shrinking
// averages all that are covered, and equal sizes copy. The horizontal pass comes first; weights are
// rounded to multiples of 2^-22, and each pass rounds to 8 bits. PIL's Image.resize(size, BILINEAR)
// computes the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "atoll/picture/image.h"
#include "atoll/status.h"

namespace atollrt {

struct ResizeGeometry {
  int src_width = 0;
  int src_height = 0;
  int dst_width = 0;
  int dst_height = 0;
  int channels = 3;  // 1 or 3
  // The part of the source to resize; what lies outside has no influence. Empty means all of it.
  Rect crop = {};
  bool operator==(const ResizeGeometry&) const = default;
};

// A resizer for one geometry: weights and scratch memory are made once, Run only computes.
// Not thread-safe (the scratch memory is its own); different objects are independent.
class Resizer {
 public:
  // kInvalidArgument when a size is not in 1..65535, channels is neither 1 nor 3, or the crop
  // reaches outside of the source.
  static Result<Resizer> Create(const ResizeGeometry& geometry);

  const ResizeGeometry& geometry() const { return geometry_; }

  // `src` holds src_height rows, `src_row_bytes` apart; `dst` receives dst_height rows without
  // padding and must not overlap it. Both interleaved as in Image.
  void Run(const uint8_t* src, size_t src_row_bytes, uint8_t* dst);

  // Reshapes `dst`; kInvalidArgument when `src` has not the size and channels of the geometry.
  Status Run(const Image& src, Image* dst);

 private:
  // The source pixels that one output pixel is made of, along one axis.
  struct Taps {
    int first;   // index of the first source pixel, within the crop
    int count;   // at least 1
    int offset;  // of its first weight in Axis::weights
  };
  struct Axis {
    std::vector<Taps> taps;  // one per output pixel
    std::vector<int32_t> weights;
  };
  Resizer() = default;
  static Axis MakeAxis(int src_size, int dst_size);
  void MakePairs();
  template <int kChannels>
  void RunHorizontal(const uint8_t* src_row, uint8_t* dst_row) const;
  void RunVertical(const Taps& taps, uint8_t* dst_row);

  ResizeGeometry geometry_;
  Axis horizontal_;
  Axis vertical_;
  // The leading output pixels of horizontal_, with taps two by two, where SSE2 can do them so:
  // `count` is of pairs, `offset` into pair_weights_. Empty elsewhere.
  std::vector<Taps> pair_taps_;
  std::vector<int16_t> pair_weights_;
  std::vector<uint8_t> rows_;  // the crop after the horizontal pass
  std::vector<int32_t> sums_;  // one output row
};

// One-off convenience: the whole image, or `crop` of it, resized.
Result<Image> Resize(const Image& src, int dst_width, int dst_height, const Rect& crop = {});

}  // namespace atollrt
