// SPDX-License-Identifier: Apache-2.0
#include "atoll/picture/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

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

#if defined(__SSE2__)
// The weighted sum of 2 * `pairs` RGB pixels, as three 32-bit lanes and one of rubbish; reads two
// bytes past the last pixel. The instruction at hand multiplies 16-bit numbers and adds neighbours,
// so a weight comes in two parts, high * 2^kLowBits + low, and an entry of `weights` is the two
// high parts of a pair of pixels and their two low parts.
constexpr int kLowBits = kWeightBits / 2;

__m128i SumRgbPairs(const uint8_t* src, const int16_t* weights, int pairs) {
  __m128i high = _mm_setzero_si128();
  __m128i low = _mm_setzero_si128();
  for (int i = 0; i < pairs; ++i, src += 6, weights += 4) {
    const __m128i pixels = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(src));
    // R R' G G' B B' and rubbish, as 16-bit numbers.
    const __m128i both = _mm_unpacklo_epi8(_mm_unpacklo_epi8(pixels, _mm_srli_epi64(pixels, 24)),
                                           _mm_setzero_si128());
    const __m128i weight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(weights));
    high = _mm_add_epi32(high, _mm_madd_epi16(both, _mm_shuffle_epi32(weight, 0x00)));
    low = _mm_add_epi32(low, _mm_madd_epi16(both, _mm_shuffle_epi32(weight, 0x55)));
  }
  return _mm_add_epi32(_mm_slli_epi32(high, kLowBits), low);
}

// Rounds the lanes to bytes and writes four: the rubbish is for the next pixel to overwrite.
void StoreRgb(__m128i sums, uint8_t* dst) {
  sums = _mm_srai_epi32(_mm_add_epi32(sums, _mm_set1_epi32(kHalf)), kWeightBits);
  sums = _mm_packs_epi32(sums, sums);
  const int32_t bytes = _mm_cvtsi128_si32(_mm_packus_epi16(sums, sums));
  std::memcpy(dst, &bytes, sizeof(bytes));
}
#endif

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
  resizer.MakePairs();
  const size_t row = static_cast<size_t>(geometry.dst_width * geometry.channels);
  resizer.rows_.resize(row * static_cast<size_t>(crop.height));
  resizer.sums_.resize(row);
  return resizer;
}

// Regroups the weights for SumRgbPairs, for all output pixels up to the first whose sum would read
// beyond the row. The last one does, so StoreRgb's fourth byte always has a successor.
void Resizer::MakePairs() {
#if defined(__SSE2__)
  if (geometry_.channels != 3) return;
  for (const Taps& taps : horizontal_.taps) {
    const int pairs = (taps.count + 1) / 2;
    if (taps.first + 2 * pairs >= geometry_.crop.width) break;
    pair_taps_.push_back({taps.first, pairs, static_cast<int>(pair_weights_.size())});
    for (int i = 0; i < pairs; ++i) {
      const int32_t* weights = &horizontal_.weights[static_cast<size_t>(taps.offset + 2 * i)];
      const int32_t first = weights[0];
      const int32_t second = 2 * i + 1 < taps.count ? weights[1] : 0;
      for (const int32_t part : {first >> kLowBits, second >> kLowBits,
                                 first & ((1 << kLowBits) - 1), second & ((1 << kLowBits) - 1)}) {
        pair_weights_.push_back(static_cast<int16_t>(part));
      }
    }
  }
#endif
}

template <int kChannels>
void Resizer::RunHorizontal(const uint8_t* src_row, uint8_t* dst_row) const {
#if defined(__SSE2__)
  for (const Taps& taps : pair_taps_) {
    StoreRgb(SumRgbPairs(src_row + static_cast<ptrdiff_t>(taps.first) * 3,
                         pair_weights_.data() + taps.offset, taps.count),
             dst_row);
    dst_row += 3;
  }
#endif
  for (size_t i = pair_taps_.size(); i < horizontal_.taps.size(); ++i) {
    const Taps& taps = horizontal_.taps[i];
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
