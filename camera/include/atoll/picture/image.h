// SPDX-License-Identifier: Apache-2.0
//
// Pictures in memory, as pixels or as planes of brightness and colour, and how they get in and out
// of files: JPEG, PNG, BMP and PPM/PGM are read, JPEG and, for maps of classes, PNG and PGM are
// written. Input bytes are hostile: whatever they are, the answer is a picture or a Status that
// says what is wrong. All functions are thread-safe as long as no two threads share a picture.
#pragma once

#include <cstddef>
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

// ---- Planes -------------------------------------------------------------------------------------
//
// Pictures as cameras and JPEG have them: one plane of brightness and two of colour, which are
// often smaller. Decoding into planes, drawing into them and encoding them again converts nothing,
// and half of an RGB picture's bytes need not be touched.

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

// ---- Files --------------------------------------------------------------------------------------

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
// Colour becomes gray as its Luma; of a colour JPEG it is the Y component, the same thing before
// rounding. Gray becomes RGB by repetition. Alpha is dropped, not composited. 16-bit samples are
// scaled to 8 bits with rounding. Colour profiles, gamma and the EXIF orientation are ignored.
Result<Image> DecodeImage(std::span<const uint8_t> bytes, const DecodeOptions& options = {});

// The same into `image`, reusing its memory; after an error its contents are unspecified.
Status DecodeImageInto(std::span<const uint8_t> bytes, const DecodeOptions& options, Image* image);

// Any picture that DecodeImage takes. Of a JPEG these are its own planes, as they are stored or
// shrunk by 2, 4 or 8 (options.min_width, min_height), except for unusual kinds of subsampling.
// options.channels 1: brightness only. Errors as DecodeImage.
Status DecodePlanes(std::span<const uint8_t> bytes, const DecodeOptions& options,
                    PlanarImage* planes);

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

// As baseline JPEG with the subsampling that the planes have; quality is 1..100. Writes into the
// memory beside the planes' samples, and reuses that of `jpeg`.
Status EncodePlanesAsJpeg(PlanarImage* planes, int quality, std::vector<uint8_t>* jpeg);

// Encodes an image of one channel as a PNG whose pixels are these bytes and stand for the colours
// of `palette`: readers of palettes get the bytes back, viewers show the colours. kInvalidArgument
// for other images, for a palette of more than 256 colours and for a pixel that it does not have.
Result<std::vector<uint8_t>> EncodeIndexedPng(const Image& indices, std::span<const Color> palette);

// Encodes an image of one channel as binary PGM.
Result<std::vector<uint8_t>> EncodePgm(const Image& gray);

// ---- Resizing -----------------------------------------------------------------------------------

// The image, or `crop` of it (empty means all; what lies outside has no influence), resized
// bilinearly, antialiased when shrinking. kInvalidArgument when a size is not in 1..65535, channels
// are neither 1 nor 3, pixels are missing or the crop reaches outside of the image.
//
// Output pixel i of an axis of n pixels, made from m source pixels, is centred at
// (i + 0.5) * m / n in source coordinates, where source pixel j is centred at j + 0.5. It is the
// mean of the source pixels weighted by a triangle of half-width max(m / n, 1) around that centre,
// cut off at the border. So enlarging interpolates between the two nearest pixels, shrinking
// averages all that are covered, and equal sizes copy. The horizontal pass comes first; weights are
// rounded to multiples of 2^-22, and each pass rounds to 8 bits. PIL's Image.resize(size, BILINEAR)
// computes the same bytes.
Result<Image> Resize(const Image& src, int dst_width, int dst_height, const Rect& crop = {});

}  // namespace atollrt
