// SPDX-License-Identifier: Apache-2.0
//
// Pictures as cameras and JPEG have them: one plane of brightness and two of colour, which are
// often smaller. Decoding into planes, drawing into them and encoding them again converts nothing,
// and half of an RGB picture's bytes need not be touched. All functions are thread-safe as long as
// no two threads share a picture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "atoll/picture/image.h"
#include "atoll/status.h"

namespace atollrt {

// `height` rows of `width` samples, `stride` bytes apart. The memory behind a row and below the
// last one, up to multiples of 64 samples and 32 rows, belongs to codecs.
struct Plane {
  int width = 0;
  int height = 0;
  size_t stride = 0;
  std::vector<uint8_t> samples;

  uint8_t* row(int y) { return samples.data() + stride * static_cast<size_t>(y); }
  const uint8_t* row(int y) const { return samples.data() + stride * static_cast<size_t>(y); }
  // Reuses the memory; the contents are unspecified.
  void Reshape(int new_width, int new_height);
};

// Full range, as in JFIF: Y 0 is black, 255 white; Cb and Cr are ITU-R BT.601's, 128 is gray. A
// sample of colour stands for 2^shift_x x 2^shift_y pixels and lies in their middle; at the right
// and bottom edge it may stand for fewer.
struct PlanarImage {
  int width = 0;
  int height = 0;
  bool has_color = false;  // false: y alone
  int shift_x = 0;         // 0 or 1
  int shift_y = 0;         // 0 or 1
  Plane y, cb, cr;

  // Sets the shape; memory is reused, the contents are unspecified.
  void ReshapeColor(int new_width, int new_height, int new_shift_x, int new_shift_y);
  void ReshapeGray(int new_width, int new_height);
};

struct YCbCr {
  uint8_t y = 0;
  uint8_t cb = 0;
  uint8_t cr = 0;
  bool operator==(const YCbCr&) const = default;
};

// The formulas of JFIF in 16-bit fixed point, rounded; ToYCbCr(color).y == Luma(color).
YCbCr ToYCbCr(Color color);
inline Color ToColor(YCbCr sample) {
  const int cb = sample.cb - 128;
  const int cr = sample.cr - 128;
  const auto clamp = [](int value) {
    return static_cast<uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
  };
  return {clamp(sample.y + ((91881 * cr + 32768) >> 16)),
          clamp(sample.y + ((-22554 * cb - 46802 * cr + 32768) >> 16)),
          clamp(sample.y + ((116130 * cb + 32768) >> 16))};
}

// An RGB picture (with full colour planes) or gray one in planes, and back. A sample of colour is
// repeated for all its pixels.
void ToPlanes(const Image& image, PlanarImage* planes);
void ToImage(const PlanarImage& planes, Image* image);

// Any picture that DecodeImage takes. Of a JPEG these are its own planes, as they are stored or
// shrunk by 2, 4 or 8 (options.min_width, min_height), except for unusual kinds of subsampling.
// options.channels 1: brightness only. Errors as DecodeImage.
Status DecodePlanes(std::span<const uint8_t> bytes, const DecodeOptions& options,
                    PlanarImage* planes);

// As baseline JPEG with the subsampling that the planes have; quality is 1..100. Writes into the
// memory beside the planes' samples, and reuses that of `jpeg`.
Status EncodePlanesAsJpeg(PlanarImage* planes, int quality, std::vector<uint8_t>* jpeg);

}  // namespace atollrt
