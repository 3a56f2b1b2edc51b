// SPDX-License-Identifier: Apache-2.0
//
// Filters that are dilated far beyond their image. Most of their taps read padding in every output,
// and contribute nothing; kernels that lay a line of activations out with its padding would have
// millions of cells for an image of one.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/kernels/conv_shape.h"

namespace atollrt {

struct NearFilter {
  ConvShape shape;
  std::vector<uint8_t> weights;  // laid out as those of the whole filter
};

// The filter of bytes without such taps, which computes the same, or nullopt for one that ends near
// its image, as those of real models do. The `weights` of a convolution are
// [output_c, kernel_h, kernel_w, input_c / groups], of a depthwise one [kernel_h, kernel_w,
// output_c]. Lines of what is left, padding included, are at most a few times as long as those of
// input and output.
std::optional<NearFilter> WithoutFarTaps(const ConvShape& shape, FilterKind kind,
                                         const uint8_t* weights, int32_t weight_zero_point);

}  // namespace atollrt
