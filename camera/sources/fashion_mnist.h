// SPDX-License-Identifier: Apache-2.0
//
// The test set of Fashion-MNIST, from the two IDX files that it is distributed as.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "atoll/status.h"

namespace atollrt {

inline constexpr int kFashionMnistSide = 28;  // of a picture, in pixels
inline constexpr size_t kFashionMnistPixels = size_t{kFashionMnistSide} * kFashionMnistSide;

struct FashionMnist {
  std::vector<uint8_t> pixels;  // kFashionMnistPixels gray levels per picture, clothes on black
  std::vector<uint8_t> labels;  // one per picture, at least one

  size_t count() const { return labels.size(); }
  const uint8_t* picture(size_t index) const { return pixels.data() + index * kFashionMnistPixels; }
};

// Reads t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, or either with .gz, in `directory`.
// Errors name the file: it cannot be opened or read, is no IDX file of these dimensions, is cut
// off, or there is not exactly one label per picture.
Result<FashionMnist> ReadFashionMnistTestSet(const std::string& directory);

}  // namespace atollrt
