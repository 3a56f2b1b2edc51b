// SPDX-License-Identifier: Apache-2.0
//
// The decoders behind DecodeImage and DecodePlanes, whose comments describe options and errors.
// Those of uncompressed formats decode to the file's own number of channels (gray files to 1,
// colour to 3) and check every size against the bytes present before allocating.
#pragma once

#include <cstdint>
#include <span>

#include "atoll/picture/image.h"
#include "atoll/status.h"

namespace atollrt {

// `width` x `height` within `max_pixels`, both at least 1.
Status CheckImageSize(const char* format, int64_t width, int64_t height, int64_t max_pixels);

// Whether the bytes begin like a JPEG.
bool LooksLikeJpeg(std::span<const uint8_t> bytes);
Status DecodeJpeg(std::span<const uint8_t> bytes, const DecodeOptions& options, Image* image);
Status DecodeJpegPlanes(std::span<const uint8_t> bytes, const DecodeOptions& options,
                        PlanarImage* planes);

// Windows BMP: 8-bit with palette, 24-bit, and 32-bit as B, G, R, unused; uncompressed, either row
// order. The 12-byte OS/2 header is not read.
Status DecodeBmp(std::span<const uint8_t> bytes, int64_t max_pixels, Image* image);

// Binary PGM (P5) and PPM (P6) of one picture, any maxval; comments anywhere in the header.
Status DecodePnm(std::span<const uint8_t> bytes, int64_t max_pixels, Image* image);

// What the headers say; {0, 0} if they do not.
ImageSize ReadBmpSize(std::span<const uint8_t> bytes);
ImageSize ReadPnmSize(std::span<const uint8_t> bytes);

}  // namespace atollrt
