// SPDX-License-Identifier: Apache-2.0
//
// Pictures in memory and how they get in and out of files: JPEG, PNG, BMP and PPM/PGM are read,
// JPEG and, for maps of classes, PNG and PGM are written. Input bytes are hostile: whatever they
// are, the answer is a picture or a Status that says what is wrong. All functions are thread-safe
// as long as no two threads share an Image.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "atoll/status.h"

namespace atollrt {

// `pixels` holds height * width * channels bytes: rows from the top, pixels from the left, channels
// interleaved (R, G, B for 3; gray for 1), no padding. Full range: 0 is black, 255 white.
struct Image {
  int width = 0;
  int height = 0;
  int channels = 0;  // 1 or 3
  std::vector<uint8_t> pixels;

  size_t row_bytes() const { return static_cast<size_t>(width) * static_cast<size_t>(channels); }
  size_t size_bytes() const { return row_bytes() * static_cast<size_t>(height); }
  // Sets the shape and the size of `pixels`, whose memory is reused; the contents are unspecified.
  void Reshape(int new_width, int new_height, int new_channels);
};

struct Color {
  uint8_t r = 0;
  uint8_t g = 0;
  uint8_t b = 0;
  bool operator==(const Color&) const = default;
};

// Its gray value, ITU-R BT.601 luma.
inline uint8_t Luma(Color color) {
  return static_cast<uint8_t>((19595 * color.r + 38470 * color.g + 7471 * color.b + 32768) >> 16);
}

// A rectangle of pixels; x and y are its top left corner.
struct Rect {
  int x = 0;
  int y = 0;
  int width = 0;
  int height = 0;
  bool operator==(const Rect&) const = default;
};

struct DecodeOptions {
  int channels = 3;  // 1 (gray) or 3 (RGB), whatever the file has
  // JPEG only: lets the decoder shrink by 2, 4 or 8 while decoding, which is faster, as long as the
  // picture stays at least this large. 0 puts no bound on that side; both 0 decode at full size.
  int min_width = 0;
  int min_height = 0;
  // A picture of more pixels than this, before shrinking, is refused with kResourceExhausted,
  // before there is memory for it. Within it, decoding takes at most 16 bytes a pixel beyond
  // `bytes`.
  int64_t max_pixels = int64_t{1} << 26;
};

// Decodes a whole file in memory. Errors: kInvalidArgument for bytes that are none of the formats,
// are corrupt or end too early; kUnsupported for valid files of a kind not read here (CMYK JPEG,
// compressed BMP, ...); kResourceExhausted above max_pixels.
//
// Colour becomes gray as its Luma; of a colour
// JPEG it is the Y component, the same thing before rounding. Gray becomes RGB by repetition. Alpha
// is dropped, not composited. 16-bit samples are scaled to 8 bits with rounding. Colour profiles,
// gamma and the EXIF orientation are ignored.
Result<Image> DecodeImage(std::span<const uint8_t> bytes, const DecodeOptions& options = {});

// The same into `image`, reusing its memory; after an error its contents are unspecified.
Status DecodeImageInto(std::span<const uint8_t> bytes, const DecodeOptions& options, Image* image);

// The size, in pixels, that the header of a PNG, BMP or PPM/PGM announces; {0, 0} if `bytes` begins
// with no such header. (A JPEG has its own anywhere.)
struct ImageSize {
  int width = 0;
  int height = 0;
  bool operator==(const ImageSize&) const = default;
};
ImageSize ReadBitmapSize(std::span<const uint8_t> bytes);

// Reads and decodes the file; errors begin with its path. Also kNotFound and kPermissionDenied.
Result<Image> ReadImageFile(const std::string& path, const DecodeOptions& options = {});

// Encodes a gray or RGB image as baseline JPEG, colour as 4:2:0; quality is 1..100.
Result<std::vector<uint8_t>> EncodeJpeg(const Image& image, int quality);

// The same into `jpeg`, reusing its memory.
Status EncodeJpegInto(const Image& image, int quality, std::vector<uint8_t>* jpeg);

// Encodes an image of one channel as a PNG whose pixels are these bytes and stand for the colours
// of `palette`: readers of palettes get the bytes back, viewers show the colours. kInvalidArgument
// for other images, for a palette of more than 256 colours and for a pixel that it does not have.
Result<std::vector<uint8_t>> EncodeIndexedPng(const Image& indices, std::span<const Color> palette);

// Encodes an image of one channel as binary PGM.
Result<std::vector<uint8_t>> EncodePgm(const Image& gray);

}  // namespace atollrt
