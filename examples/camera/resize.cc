// SPDX-License-Identifier: Apache-2.0
#include "atoll/camera/resize.h"

#include <algorithm>
#include <cmath>

namespace atollrt {
namespace {

// 255 * 2^22 plus the rounding term stays below 2^31.
constexpr int kWeightBits = 22;
constexpr int32_t kHalf = 1 << (kWeightBits - 1);

// Appends `weights` scaled to sum to 2^22 and rounded. Rounding moves the sum by a unit or two of
// 2^22, which times 255 is far below kHalf: a constant image still comes out unchanged.
void AppendFixedPoint(const std::vector<double>& weights, std::vector<int32_t>* out) {
  double total = 0;
  for (const double weight : weights) total += weight;
  for (const double weight : weights) {
    out->push_back(static_cast<int32_t>(std::lround(weight / total * (1 << kWeightBits))));
  }
}

Status CheckSide(const char* name, int size) {
  if (size >= 1 && size <= 65535) return Status();
  return InvalidArgument("resize: %s is %d, not in 1..65535", name, size);
}

}  // namespace

Resizer::Axis Resizer::MakeAxis(int src_size, int dst_size) {
  Axis axis;
  const double ratio = static_cast<double>(src_size) / dst_size;
  const double half_width = std::max(ratio, 1.0);
  std::vector<double> weights;
  for (int i = 0; i < dst_size; ++i) {
    const double center = (i + 0.5) * ratio;
    // Pixel j takes part when its centre j + 0.5 is nearer than half_width.
    const int first = std::max(0, static_cast<int>(std::floor(center - half_width + 0.5)));
    const int last =
        std::min(src_size - 1, static_cast<int>(std::floor(center + half_width - 0.5)));
    Taps taps = {first, 0, static_cast<int>(axis.weights.size())};
    weights.clear();
    for (int j = first; j <= last; ++j) {
      const double weight = 1.0 - std::abs(j + 0.5 - center) / half_width;
      if (weight <= 0 && weights.empty()) {
        ++taps.first;
      } else {
        weights.push_back(std::max(weight, 0.0));
      }
    }
    while (weights.back() <= 0) weights.pop_back();  // the middle one is positive
    taps.count = static_cast<int>(weights.size());
    AppendFixedPoint(weights, &axis.weights);
    axis.taps.push_back(taps);
  }
  return axis;
}

Result<Resizer> Resizer::Create(const ResizeGeometry& geometry) {
  ATOLL_RETURN_IF_ERROR(CheckSide("source width", geometry.src_width));
  ATOLL_RETURN_IF_ERROR(CheckSide("source height", geometry.src_height));
  ATOLL_RETURN_IF_ERROR(CheckSide("destination width", geometry.dst_width));
  ATOLL_RETURN_IF_ERROR(CheckSide("destination height", geometry.dst_height));
  if (geometry.channels != 1 && geometry.channels != 3) {
    return InvalidArgument("resize: %d channels, not 1 or 3", geometry.channels);
  }
  Resizer resizer;
  resizer.geometry_ = geometry;
  Rect& crop = resizer.geometry_.crop;
  if (crop == Rect{}) crop = {0, 0, geometry.src_width, geometry.src_height};
  if (crop.x < 0 || crop.y < 0 || crop.width < 1 || crop.height < 1 ||
      crop.width > geometry.src_width - crop.x || crop.height > geometry.src_height - crop.y) {
    return InvalidArgument("resize: crop of %d x %d at (%d, %d) is not inside of %d x %d",
                           crop.width, crop.height, crop.x, crop.y, geometry.src_width,
                           geometry.src_height);
  }
  resizer.horizontal_ = MakeAxis(crop.width, geometry.dst_width);
  resizer.vertical_ = MakeAxis(crop.height, geometry.dst_height);
  const size_t row = static_cast<size_t>(geometry.dst_width * geometry.channels);
  resizer.rows_.resize(row * static_cast<size_t>(crop.height));
  resizer.sums_.resize(row);
  return resizer;
}

template <int kChannels>
void Resizer::RunHorizontal(const uint8_t* src_row, uint8_t* dst_row) const {
  for (const Taps& taps : horizontal_.taps) {
    const int32_t* weights = horizontal_.weights.data() + taps.offset;
    const uint8_t* src = src_row + static_cast<ptrdiff_t>(taps.first) * kChannels;
    int32_t sums[kChannels];
    for (int c = 0; c < kChannels; ++c) sums[c] = kHalf;
    for (int t = 0; t < taps.count; ++t, src += kChannels) {
      for (int c = 0; c < kChannels; ++c) sums[c] += weights[t] * src[c];
    }
    for (int c = 0; c < kChannels; ++c) *dst_row++ = static_cast<uint8_t>(sums[c] >> kWeightBits);
  }
}

void Resizer::RunVertical(const Taps& taps, uint8_t* dst_row) {
  const size_t n = sums_.size();
  int32_t* sums = sums_.data();
  std::fill_n(sums, n, kHalf);
  const uint8_t* row = rows_.data() + static_cast<size_t>(taps.first) * n;
  for (int t = 0; t < taps.count; ++t, row += n) {
    const int32_t weight = vertical_.weights[static_cast<size_t>(taps.offset + t)];
    for (size_t i = 0; i < n; ++i) sums[i] += weight * row[i];
  }
  for (size_t i = 0; i < n; ++i) dst_row[i] = static_cast<uint8_t>(sums[i] >> kWeightBits);
}

void Resizer::Run(const uint8_t* src, size_t src_row_bytes, uint8_t* dst) {
  const Rect& crop = geometry_.crop;
  const size_t row = sums_.size();
  src += static_cast<size_t>(crop.y) * src_row_bytes +
         static_cast<size_t>(crop.x) * static_cast<size_t>(geometry_.channels);
  uint8_t* reduced = rows_.data();
  for (int y = 0; y < crop.height; ++y, src += src_row_bytes, reduced += row) {
    if (geometry_.channels == 3) {
      RunHorizontal<3>(src, reduced);
    } else {
      RunHorizontal<1>(src, reduced);
    }
  }
  for (const Taps& taps : vertical_.taps) {
    RunVertical(taps, dst);
    dst += row;
  }
}

Status Resizer::Run(const Image& src, Image* dst) {
  if (src.width != geometry_.src_width || src.height != geometry_.src_height ||
      src.channels != geometry_.channels || src.pixels.size() != src.size_bytes()) {
    return InvalidArgument("resize: prepared for %d x %d x %d, but the image is %d x %d x %d",
                           geometry_.src_width, geometry_.src_height, geometry_.channels, src.width,
                           src.height, src.channels);
  }
  dst->Reshape(geometry_.dst_width, geometry_.dst_height, geometry_.channels);
  Run(src.pixels.data(), src.row_bytes(), dst->pixels.data());
  return Status();
}

Result<Image> Resize(const Image& src, int dst_width, int dst_height, const Rect& crop) {
  ATOLL_ASSIGN_OR_RETURN(Resizer resizer, Resizer::Create({.src_width = src.width,
                                                           .src_height = src.height,
                                                           .dst_width = dst_width,
                                                           .dst_height = dst_height,
                                                           .channels = src.channels,
                                                           .crop = crop}));
  Image dst;
  ATOLL_RETURN_IF_ERROR(resizer.Run(src, &dst));
  return dst;
}

}  // namespace atollrt
