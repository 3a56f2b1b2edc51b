// SPDX-License-Identifier: Apache-2.0
#include "atoll/picture/resize.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace atollrt {
namespace {

// 255 * 2^22 plus the rounding term stays below 2^31.
constexpr int kFractionBits = 22;
constexpr int32_t kRounding = 1 << (kFractionBits - 1);

// The source pixels that one output pixel is made of, along one axis.
struct Taps {
  int first;                     // index of the first source pixel, within the crop
  std::vector<int32_t> weights;  // at least 1
};

// One for each output pixel. Rounding moves the sum of weights by a unit or two of 2^22, which
// times 255 is far below kRounding: a constant image still comes out unchanged.
std::vector<Taps> MakeAxis(int src_size, int dst_size) {
  std::vector<Taps> axis;
  const double ratio = static_cast<double>(src_size) / dst_size;
  const double half_width = std::max(ratio, 1.0);
  std::vector<double> exact;
  for (int i = 0; i < dst_size; ++i) {
    const double center = (i + 0.5) * ratio;
    const auto weight_of = [&](int j) { return 1.0 - std::abs(j + 0.5 - center) / half_width; };
    // Pixel j takes part when its centre j + 0.5 is nearer than half_width; the middle one does.
    int first = std::max(0, static_cast<int>(std::floor(center - half_width + 0.5)));
    int last = std::min(src_size - 1, static_cast<int>(std::floor(center + half_width - 0.5)));
    while (weight_of(first) <= 0) ++first;
    while (weight_of(last) <= 0) --last;
    double total = 0;
    exact.clear();
    for (int j = first; j <= last; ++j) total += exact.emplace_back(weight_of(j));
    Taps& taps = axis.emplace_back(Taps{first, {}});
    for (const double weight : exact) {
      taps.weights.push_back(
          static_cast<int32_t>(std::lround(weight / total * (1 << kFractionBits))));
    }
  }
  return axis;
}

template <int kChannels>
void ResizeRow(const std::vector<Taps>& axis, const uint8_t* src, uint8_t* dst) {
  for (const Taps& taps : axis) {
    const uint8_t* pixel = src + static_cast<ptrdiff_t>(taps.first) * kChannels;
    int32_t sums[kChannels];
    std::fill_n(sums, kChannels, kRounding);
    for (const int32_t weight : taps.weights) {
      for (int c = 0; c < kChannels; ++c) sums[c] += weight * *pixel++;
    }
    for (const int32_t sum : sums) *dst++ = static_cast<uint8_t>(sum >> kFractionBits);
  }
}

// Errors say "`what` is `size`".
Status CheckSide(const char* what, int size) {
  if (size >= 1 && size <= 65535) return Status();
  return InvalidArgument("resize: %s is %d, not in 1..65535", what, size);
}

}  // namespace

Result<Image> Resize(const Image& src, int dst_width, int dst_height, const Rect& part) {
  ATOLL_RETURN_IF_ERROR(CheckSide("source width", src.width));
  ATOLL_RETURN_IF_ERROR(CheckSide("source height", src.height));
  ATOLL_RETURN_IF_ERROR(CheckSide("destination width", dst_width));
  ATOLL_RETURN_IF_ERROR(CheckSide("destination height", dst_height));
  if (src.channels != 1 && src.channels != 3) {
    return InvalidArgument("resize: %d channels, not 1 or 3", src.channels);
  }
  if (src.pixels.size() != src.size_bytes()) {
    return InvalidArgument("resize: %d x %d x %d with %zu bytes", src.width, src.height,
                           src.channels, src.pixels.size());
  }
  const Rect crop = part == Rect{} ? Rect{0, 0, src.width, src.height} : part;
  if (crop.x < 0 || crop.y < 0 || crop.width < 1 || crop.height < 1 ||
      crop.width > src.width - crop.x || crop.height > src.height - crop.y) {
    return InvalidArgument("resize: crop of %d x %d at (%d, %d) is not inside of %d x %d",
                           crop.width, crop.height, crop.x, crop.y, src.width, src.height);
  }
  const std::vector<Taps> columns = MakeAxis(crop.width, dst_width);
  Image wide;  // after the horizontal pass
  wide.Reshape(dst_width, crop.height, src.channels);
  const size_t row_bytes = wide.row_bytes();
  for (int y = 0; y < crop.height; ++y) {
    const uint8_t* from = src.pixels.data() + static_cast<size_t>(crop.y + y) * src.row_bytes() +
                          static_cast<ptrdiff_t>(crop.x) * src.channels;
    uint8_t* to = wide.pixels.data() + static_cast<size_t>(y) * row_bytes;
    src.channels == 3 ? ResizeRow<3>(columns, from, to) : ResizeRow<1>(columns, from, to);
  }
  Image dst;
  dst.Reshape(dst_width, dst_height, src.channels);
  uint8_t* to = dst.pixels.data();
  std::vector<int32_t> sums(row_bytes);
  for (const Taps& taps : MakeAxis(crop.height, dst_height)) {
    std::fill(sums.begin(), sums.end(), kRounding);
    const uint8_t* row = wide.pixels.data() + static_cast<size_t>(taps.first) * row_bytes;
    for (const int32_t weight : taps.weights) {
      for (size_t i = 0; i < row_bytes; ++i) sums[i] += weight * row[i];
      row += row_bytes;
    }
    for (const int32_t sum : sums) *to++ = static_cast<uint8_t>(sum >> kFractionBits);
  }
  return dst;
}

}  // namespace atollrt
