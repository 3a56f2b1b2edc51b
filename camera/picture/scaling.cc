// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "atoll/picture/image.h"
#include "atoll/picture/input_scaler.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace atollrt {
namespace {

bool IsSide(int size) { return size >= 1 && size <= 65535; }

// The weights of the samples that a pixel in their midst is made of, where sample j is centred at
// j + 0.5: a triangle around `center`. They add up to `total`; returns the first one, of the
// samples from `lowest` to `highest`.
int WeighSamples(double center, double half_width, int lowest, int highest,
                 std::vector<double>* weights, double* total) {
  const auto weight_of = [&](int j) {
    return std::max(0.0, 1.0 - std::abs(j + 0.5 - center) / half_width);
  };
  int first = std::clamp(static_cast<int>(std::floor(center - half_width + 0.5)), lowest, highest);
  int last = std::clamp(static_cast<int>(std::floor(center + half_width - 0.5)), lowest, highest);
  while (first < last && weight_of(first) <= 0) ++first;
  while (first < last && weight_of(last) <= 0) --last;
  weights->clear();
  *total = 0;
  for (int j = first; j <= last; ++j) *total += weights->emplace_back(weight_of(j));
  if (*total <= 0) (*weights)[0] = *total = 1;  // a part narrower than a sample, beside its middle
  return first;
}

// --- Planes into a model's input -----------------------------------------------------------------

constexpr int kWeightBits = 14;
constexpr int kRowBits = 7;  // of a sum of columns, behind the point: 255 * 2^7 fits in 16 bits
constexpr int kColumnShift = kWeightBits - kRowBits;
constexpr int kRowShift = kWeightBits + kRowBits;

// Weights of a row's taps are padded with zeros to multiples of this, so that their sum is made of
// whole vectors; as many numbers may be read behind a row.
constexpr int kTapMultiple = 8;

// The sum of `count` columns of samples times their weights, in multiples of 2^-kRowBits.
void SumColumns(const uint8_t* samples, size_t stride, const int16_t* weights, int count, int width,
                int32_t* sums, int16_t* out) {
  int x = 0;
#if defined(__SSE2__)
  // Two rows at a time: their samples side by side, times their weights side by side.
  const __m128i zero = _mm_setzero_si128();
  const __m128i half = _mm_set1_epi32(1 << (kColumnShift - 1));
  for (; x + 16 <= width; x += 16) {
    __m128i sum[4] = {half, half, half, half};
    const uint8_t* row = samples + x;
    for (int t = 0; t < count; t += 2) {
      const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row));
      const bool has_second = t + 1 < count;
      const __m128i b =
          has_second ? _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + stride)) : zero;
      row += 2 * stride;
      const int second = has_second ? weights[t + 1] : 0;
      const __m128i weight = _mm_set1_epi32((second << 16) | static_cast<uint16_t>(weights[t]));
      const __m128i low = _mm_unpacklo_epi8(a, b);
      const __m128i high = _mm_unpackhi_epi8(a, b);
      const __m128i pairs[4] = {_mm_unpacklo_epi8(low, zero), _mm_unpackhi_epi8(low, zero),
                                _mm_unpacklo_epi8(high, zero), _mm_unpackhi_epi8(high, zero)};
      for (int k = 0; k < 4; ++k) {
        sum[k] = _mm_add_epi32(sum[k], _mm_madd_epi16(pairs[k], weight));
      }
    }
    for (int k = 0; k < 2; ++k) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + x + 8 * k),
                       _mm_packs_epi32(_mm_srai_epi32(sum[2 * k], kColumnShift),
                                       _mm_srai_epi32(sum[2 * k + 1], kColumnShift)));
    }
  }
#endif
  std::fill(sums + x, sums + width, 1 << (kColumnShift - 1));
  for (int t = 0; t < count; ++t) {
    const uint8_t* row = samples + stride * static_cast<size_t>(t);
    const int16_t weight = weights[t];
    for (int i = x; i < width; ++i) sums[i] += static_cast<int16_t>(row[i]) * weight;
  }
  for (int i = x; i < width; ++i) out[i] = static_cast<int16_t>(sums[i] >> kColumnShift);
}

// The sum of `count` (a multiple of kTapMultiple) numbers times weights.
int32_t SumTaps(const int16_t* numbers, const int16_t* weights, int count) {
#if defined(__SSE2__)
  __m128i sum = _mm_setzero_si128();
  for (int t = 0; t < count; t += kTapMultiple) {
    sum = _mm_add_epi32(
        sum, _mm_madd_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(numbers + t)),
                            _mm_loadu_si128(reinterpret_cast<const __m128i*>(weights + t))));
  }
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
  return _mm_cvtsi128_si32(sum);
#else
  int32_t sum = 0;
  for (int t = 0; t < count; ++t) sum += numbers[t] * weights[t];
  return sum;
#endif
}

}  // namespace

// Output pixel i of `to` is centred at begin + (i + 0.5) * (end - begin) / to, sample j of `from`
// at j + 0.5; those outside of begin .. end take no part.
void InputScaler::MakeAxis(double begin, double end, int from, int to, int multiple, Axis* axis) {
  if (axis->begin == begin && axis->end == end && axis->from == from && axis->to == to &&
      axis->multiple == multiple) {
    return;
  }
  *axis = {begin, end, from, to, multiple, std::move(axis->taps), std::move(axis->weights), 0, 0};
  axis->taps.clear();
  axis->weights.clear();
  const double ratio = (end - begin) / to;
  const double half_width = std::max(ratio, 1.0);
  const int lowest = std::max(0, static_cast<int>(std::floor(begin)));
  const int highest = std::min(from, static_cast<int>(std::ceil(end))) - 1;
  for (int i = 0; i < to; ++i) {
    const double center = begin + (i + 0.5) * ratio;
    double total = 0;
    const int first = WeighSamples(center, half_width, lowest, highest, &exact_, &total);
    axis->taps.push_back(
        {first, static_cast<int>(exact_.size()), static_cast<int>(axis->weights.size())});
    double sum = 0;
    int before = 0;
    for (const double weight : exact_) {
      sum += weight;
      const int rounded = static_cast<int>(std::lround(sum / total * (1 << kWeightBits)));
      axis->weights.push_back(static_cast<int16_t>(rounded - before));
      before = rounded;
    }
    while (axis->weights.size() % static_cast<size_t>(multiple) != 0) axis->weights.push_back(0);
  }
  axis->first = axis->taps.front().first;
  axis->last = axis->taps.back().first + axis->taps.back().count - 1;
}

Status InputScaler::SetOutput(int width, int height, int channels) {
  if (!IsSide(width) || !IsSide(height) || (channels != 1 && channels != 3)) {
    return InvalidArgument("cannot scale to %d x %d x %d; sides are 1..65535 and channels 1 or 3",
                           width, height, channels);
  }
  width_ = width;
  height_ = height;
  channels_ = channels;
  for (std::vector<uint8_t>& row : row_) row.resize(static_cast<size_t>(width));
  return Status();
}

void InputScaler::Prepare(const PlanarImage& picture, const Rect& part) {
  const auto make = [&](const Plane& plane, int shift_x, int shift_y, PlaneAxes* axes) {
    const double scale_x = 1.0 / (1 << shift_x);
    const double scale_y = 1.0 / (1 << shift_y);
    MakeAxis(part.x * scale_x, (part.x + part.width) * scale_x, plane.width, width_, kTapMultiple,
             &axes->columns);
    MakeAxis(part.y * scale_y, (part.y + part.height) * scale_y, plane.height, height_, 1,
             &axes->rows);
    const size_t width = static_cast<size_t>(plane.width) + kTapMultiple;
    if (sums_.size() < width) sums_.resize(width);
    if (reduced_.size() < width) reduced_.resize(width);
  };
  make(picture.y, 0, 0, &luma_);
  if (channels_ == 3 && picture.has_color) {
    make(picture.cb, picture.shift_x, picture.shift_y, &color_);
  }
}

void InputScaler::ScaleRow(const Plane& plane, const PlaneAxes& axes, int row, uint8_t* out) {
  const Taps& rows = axes.rows.taps[static_cast<size_t>(row)];
  const int first = axes.columns.first;
  SumColumns(plane.row(rows.first) + first, plane.stride, axes.rows.weights.data() + rows.offset,
             rows.count, axes.columns.last - first + 1, sums_.data(), reduced_.data() + first);
  constexpr int32_t kHalf = 1 << (kRowShift - 1);
  for (const Taps& taps : axes.columns.taps) {
    const int padded = (taps.count + kTapMultiple - 1) / kTapMultiple * kTapMultiple;
    const int32_t sum =
        SumTaps(reduced_.data() + taps.first, axes.columns.weights.data() + taps.offset, padded);
    *out++ = static_cast<uint8_t>((sum + kHalf) >> kRowShift);
  }
}

template <typename T>
Status InputScaler::Run(const PlanarImage& picture, const Rect& part,
                        const std::array<T, 256>& stored, T* out) {
  const Rect whole = {0, 0, picture.width, picture.height};
  const Rect& seen = part == Rect{} ? whole : part;
  if (width_ == 0) return InvalidArgument("SetOutput comes before Run");
  if (!IsSide(picture.width) || !IsSide(picture.height) || seen.x < 0 || seen.y < 0 ||
      seen.width < 1 || seen.height < 1 || seen.width > picture.width - seen.x ||
      seen.height > picture.height - seen.y) {
    return InvalidArgument("the part of %d x %d at (%d, %d) is not inside of a picture of %d x %d",
                           seen.width, seen.height, seen.x, seen.y, picture.width, picture.height);
  }
  Prepare(picture, seen);
  const size_t width = static_cast<size_t>(width_);
  for (int y = 0; y < height_; ++y) {
    ScaleRow(picture.y, luma_, y, row_[0].data());
    if (channels_ == 1) {
      for (size_t x = 0; x < width; ++x) *out++ = stored[row_[0][x]];
    } else if (!picture.has_color) {
      for (size_t x = 0; x < width; ++x, out += 3) out[0] = out[1] = out[2] = stored[row_[0][x]];
    } else {
      ScaleRow(picture.cb, color_, y, row_[1].data());
      ScaleRow(picture.cr, color_, y, row_[2].data());
      for (size_t x = 0; x < width; ++x, out += 3) {
        const Color color = ToColor({row_[0][x], row_[1][x], row_[2][x]});
        out[0] = stored[color.r];
        out[1] = stored[color.g];
        out[2] = stored[color.b];
      }
    }
  }
  return Status();
}

template Status InputScaler::Run(const PlanarImage&, const Rect&, const StoredBytes&, uint8_t*);
template Status InputScaler::Run(const PlanarImage&, const Rect&, const StoredFloats&, float*);

// --- Pixels --------------------------------------------------------------------------------------

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
    double total = 0;
    const int first = WeighSamples(center, half_width, 0, src_size - 1, &exact, &total);
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

}  // namespace

Result<Image> Resize(const Image& src, int dst_width, int dst_height, const Rect& part) {
  for (const auto& [what, size] : {std::pair{"source width", src.width},
                                   {"source height", src.height},
                                   {"destination width", dst_width},
                                   {"destination height", dst_height}}) {
    if (!IsSide(size)) return InvalidArgument("resize: %s is %d, not in 1..65535", what, size);
  }
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
