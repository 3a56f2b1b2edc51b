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

#include "atoll/picture/image.h"
#include "atoll/status.h"

namespace atollrt {

// The image, or `crop` of it (empty means all; what lies outside has no influence), resized.
// kInvalidArgument when a size is not in 1..65535, channels are neither 1 nor 3, pixels are missing
// or the crop reaches outside of the image. Thread-safe.
Result<Image> Resize(const Image& src, int dst_width, int dst_height, const Rect& crop = {});

}  // namespace atollrt
