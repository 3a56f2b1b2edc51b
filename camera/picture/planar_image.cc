// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "atoll/picture/image.h"
#include "camera/picture/formats.h"

namespace atollrt {
namespace {

// Of the memory that codecs may write to: whole MCUs of any size.
constexpr size_t kColumnMultiple = 64;
constexpr size_t kRowMultiple = 32;

size_t RoundUp(int value, size_t multiple) {
  return (static_cast<size_t>(value) + multiple - 1) / multiple * multiple;
}

}  // namespace

void Plane::Reshape(int new_width, int new_height) {
  width = new_width;
  height = new_height;
  stride = RoundUp(new_width, kColumnMultiple);
  samples.resize(stride * RoundUp(new_height, kRowMultiple));
}

void PlanarImage::ReshapeGray(int new_width, int new_height) {
  width = new_width;
  height = new_height;
  has_color = false;
  shift_x = shift_y = 0;
  y.Reshape(width, height);
}

void PlanarImage::ReshapeColor(int new_width, int new_height, int new_shift_x, int new_shift_y) {
  ReshapeGray(new_width, new_height);
  has_color = true;
  shift_x = new_shift_x;
  shift_y = new_shift_y;
  for (Plane* plane : {&cb, &cr}) {
    plane->Reshape((width + shift_x) >> shift_x, (height + shift_y) >> shift_y);
  }
}

YCbCr ToYCbCr(Color color) {
  // 65536 times the coefficients; those of a row add up to 0. The half of rounding is a little less
  // for colours, so that 255.5 does not become 256.
  constexpr int kCenter = (128 << 16) + 32767;
  const int r = color.r;
  const int g = color.g;
  const int b = color.b;
  return {Luma(color), static_cast<uint8_t>((-11059 * r - 21709 * g + 32768 * b + kCenter) >> 16),
          static_cast<uint8_t>((32768 * r - 27439 * g - 5329 * b + kCenter) >> 16)};
}

void ToPlanes(const Image& image, PlanarImage* planes) {
  if (image.channels == 1) {
    planes->ReshapeGray(image.width, image.height);
    for (int y = 0; y < image.height; ++y) {
      std::copy_n(image.pixels.data() + image.row_bytes() * static_cast<size_t>(y), image.width,
                  planes->y.row(y));
    }
    return;
  }
  planes->ReshapeColor(image.width, image.height, 0, 0);
  for (int y = 0; y < image.height; ++y) {
    const uint8_t* rgb = image.pixels.data() + image.row_bytes() * static_cast<size_t>(y);
    uint8_t* luma = planes->y.row(y);
    uint8_t* cb = planes->cb.row(y);
    uint8_t* cr = planes->cr.row(y);
    for (int x = 0; x < image.width; ++x, rgb += 3) {
      const YCbCr sample = ToYCbCr({rgb[0], rgb[1], rgb[2]});
      luma[x] = sample.y;
      cb[x] = sample.cb;
      cr[x] = sample.cr;
    }
  }
}

void ToImage(const PlanarImage& planes, Image* image) {
  image->Reshape(planes.width, planes.height, planes.has_color ? 3 : 1);
  for (int y = 0; y < planes.height; ++y) {
    uint8_t* out = image->pixels.data() + image->row_bytes() * static_cast<size_t>(y);
    const uint8_t* luma = planes.y.row(y);
    if (!planes.has_color) {
      std::copy_n(luma, planes.width, out);
      continue;
    }
    const uint8_t* cb = planes.cb.row(y >> planes.shift_y);
    const uint8_t* cr = planes.cr.row(y >> planes.shift_y);
    for (int x = 0; x < planes.width; ++x, out += 3) {
      const Color color = ToColor({luma[x], cb[x >> planes.shift_x], cr[x >> planes.shift_x]});
      out[0] = color.r;
      out[1] = color.g;
      out[2] = color.b;
    }
  }
}

Status DecodePlanes(std::span<const uint8_t> bytes, const DecodeOptions& options,
                    PlanarImage* planes) {
  if (options.channels != 1 && options.channels != 3) {
    return InvalidArgument("cannot decode to %d channels, only to 1 or 3", options.channels);
  }
  if (LooksLikeJpeg(bytes)) return DecodeJpegPlanes(bytes, options, planes);
  Image image;
  ATOLL_RETURN_IF_ERROR(DecodeImageInto(bytes, options, &image));
  ToPlanes(image, planes);
  return Status();
}

}  // namespace atollrt
