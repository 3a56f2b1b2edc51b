// SPDX-License-Identifier: Apache-2.0
//
// JPEG alone, behind DecodeImage, DecodePlanes and their like, whose comments describe options and
// errors.
#pragma once

#include <cstdint>
#include <span>

#include "atoll/picture/image.h"
#include "atoll/picture/planar_image.h"
#include "atoll/status.h"

namespace atollrt {

// Whether the bytes begin like a JPEG.
bool LooksLikeJpeg(std::span<const uint8_t> bytes);

Status DecodeJpeg(std::span<const uint8_t> bytes, const DecodeOptions& options, Image* image);
Status DecodeJpegPlanes(std::span<const uint8_t> bytes, const DecodeOptions& options,
                        PlanarImage* planes);

}  // namespace atollrt
