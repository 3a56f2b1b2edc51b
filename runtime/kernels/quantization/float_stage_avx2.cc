// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "runtime/kernels/quantization/float_stage.h"
#include "runtime/kernels/quantization/nearest_rounding.h"

namespace atollrt {
namespace {

constexpr int kMaxSteps = 255;
// Of f, and where steps are looked for: numbers of 64 bits hold them, and beyond it only the one to
// 1 may lie below 2^24.
constexpr int kMaxRight = 31, kMaxStepsRight = 23;
constexpr int kLanes = 8;
constexpr float kInfinity = __builtin_inff();

struct Function {
  int64_t multiplier;
  int left, right;  // shifts

  // Of x with |x| << left below 2^31.
  int64_t operator()(int64_t x) const {
    const int64_t t = ((x << left) * multiplier + (int64_t{1} << 30)) >> 31;
    const int64_t mask = (int64_t{1} << right) - 1;
    return (t >> right) + ((t & mask) > (mask >> 1) + (t < 0 ? 1 : 0) ? 1 : 0);
  }
};

int32_t Bounded(int64_t x, const FixedPointColumn& column) {
  return x < column.low ? column.low : (x > column.high ? column.high : static_cast<int32_t>(x));
}

// Steps of f on one side of 0: T(j) is a number that is linear in j, divided by the multiplier and
// rounded up. So eight of them follow from the eight before by additions of integers, if what
// rounding added is kept.
struct Steps {
  bool is_right = false;
  int32_t first = 0, end = 0;
  __m256i at, rest;    // T(j) of the first eight; what rounding added, times the multiplier
  __m256i more, less;  // what the next eight have more of the one and, modulo it, less of the other
  __m256i multiplier;

  // The steps to `from` ... `last` and, to fill a vector, up to seven more of the same line,
  // towards 0 or beyond it, where they bind c least. False if a |T(j)| may not be below 2^24.
  bool Find(const Function& f, int32_t from, int32_t last) {
    if (from > last) return true;
    const int32_t count = (last - from + kLanes) & -kLanes;
    is_right = last > 0;
    first = is_right ? last + 1 - count : from;
    end = first + count;
    const int64_t divisor = f.multiplier;
    const int64_t slope = int64_t{1} << (31 + f.right - f.left);
    int64_t offset = -slope / 2;
    if (f.right > 0) offset += is_right ? -(int64_t{1} << 30) : int64_t{1} << 30;
    if ((is_right ? last : -from) * slope >= ((divisor - 1) << 24) - slope) return false;
    const int64_t exact = first * slope + offset;
    int64_t quotient = exact / divisor;
    int64_t remainder = quotient * divisor - exact;
    const int64_t step = slope / divisor, step_rest = slope % divisor;
    alignas(32) int32_t ats[kLanes], rests[kLanes];
    for (int i = 0;; ++i) {
      // Without a branch, which nothing could predict.
      const int64_t below = remainder >> 63;
      remainder += divisor & below;
      quotient -= below;
      if (i == kLanes) break;
      ats[i] = static_cast<int32_t>(quotient);
      rests[i] = static_cast<int32_t>(remainder);
      quotient += step;
      remainder -= step_rest;
    }
    const int64_t wraps = remainder > rests[0] ? 1 : 0;
    at = _mm256_load_si256(reinterpret_cast<const __m256i*>(ats));
    rest = _mm256_load_si256(reinterpret_cast<const __m256i*>(rests));
    more = _mm256_set1_epi32(static_cast<int32_t>(quotient - ats[0] - wraps));
    less =
        _mm256_set1_epi32(static_cast<int32_t>(rests[0] - remainder + (wraps != 0 ? divisor : 0)));
    multiplier = _mm256_set1_epi32(static_cast<int32_t>(divisor));
    return true;
  }

  // function(T(j), j - 1/2) for eight steps at a time.
  template <typename Eight>
  void ForEach(const Eight& function) const {
    __m256i x = at, r = rest;
    __m256 border = _mm256_add_ps(_mm256_set1_ps(static_cast<float>(first) - 0.5f),
                                  _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7));
    for (int32_t i = first; i < end; i += kLanes) {
      function(_mm256_cvtepi32_ps(x), border);
      border = _mm256_add_ps(border, _mm256_set1_ps(kLanes));
      r = _mm256_sub_epi32(r, less);
      const __m256i below = _mm256_srai_epi32(r, 31);
      r = _mm256_add_epi32(r, _mm256_and_si256(below, multiplier));
      x = _mm256_sub_epi32(_mm256_add_epi32(x, more), below);
    }
  }

  // -1 where j is odd, of each eight.
  __m256i Odd() const {
    const __m256i j =
        _mm256_add_epi32(_mm256_set1_epi32(first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    return _mm256_srai_epi32(_mm256_slli_epi32(j, 31), 31);
  }
};

// At how many T(j) g is too small, with `offset` as c is on that side of 0; many if it is too large
// at a T(j) - 1. Evaluated with the multiply-add of the kernels (requantize_*.h, Rescale): g is
// j or more where that is j - 1/2 or more, or the next float or more if j is odd.
int CountLow(const Steps& steps, float scale, float offset) {
  constexpr int kMany = 1 << 20;
  const __m256 m = _mm256_set1_ps(scale);
  const __m256 c = _mm256_set1_ps(offset);
  const __m256i ulp = steps.is_right ? _mm256_abs_epi32(steps.Odd()) : steps.Odd();
  __m256i low = _mm256_setzero_si256();
  __m256 well = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
  steps.ForEach([&](__m256 x, __m256 border) {
    border = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(border), ulp));
    const __m256 y = _mm256_fmadd_ps(x, m, c);
    const __m256 before = _mm256_fmadd_ps(_mm256_sub_ps(x, _mm256_set1_ps(1)), m, c);
    low = _mm256_sub_epi32(low, _mm256_castps_si256(_mm256_cmp_ps(y, border, _CMP_LT_OQ)));
    well = _mm256_and_ps(well, _mm256_cmp_ps(before, border, _CMP_LT_OQ));
  });
  if (_mm256_movemask_ps(well) != 255) return kMany;
  __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1)));
}

// g at x.
int32_t Evaluate(const FloatColumn& fit, int32_t x) {
  const float y =
      __builtin_fmaf(static_cast<float>(x), fit.scale, x < 0 ? -fit.offset : fit.offset);
  return _mm_cvtss_si32(_mm_set_ss(y)) + (x == fit.exception ? 1 : 0);
}

// What c, or -c left of 0, must be for `steps`: at least `most`, and less than `least` + m. That
// the multiply-add is rounded is part of it, as half of the last place of j - 1/2; where j is even
// it helps.
struct Bounds {
  float most, most_but_one, least;
  int32_t at_most;  // T(j)
};

Bounds BoundsOf(const Steps& steps, float scale) {
  const __m256 m = _mm256_set1_ps(scale);
  const __m256 signs = _mm256_castsi256_ps(_mm256_slli_epi32(steps.Odd(), 31));
  const __m256 half_ulp = _mm256_xor_ps(_mm256_set1_ps(-1.0f / (1 << 24)), signs);
  const __m256 power = _mm256_castsi256_ps(_mm256_set1_epi32(0x7f800000));
  __m256 most = _mm256_set1_ps(-kInfinity), second = most, least = _mm256_set1_ps(kInfinity);
  __m256 at = most;
  steps.ForEach([&](__m256 x, __m256 border) {
    const __m256 v =
        _mm256_fmadd_ps(_mm256_and_ps(border, power), half_ulp, _mm256_fnmadd_ps(x, m, border));
    at = _mm256_blendv_ps(at, x, _mm256_cmp_ps(v, most, _CMP_GT_OQ));
    second = _mm256_max_ps(second, _mm256_min_ps(most, v));
    most = _mm256_max_ps(most, v);
    least = _mm256_min_ps(least, v);
  });
  alignas(32) float mosts[kLanes], seconds[kLanes], leasts[kLanes], ats[kLanes];
  _mm256_store_ps(mosts, most);
  _mm256_store_ps(seconds, second);
  _mm256_store_ps(leasts, least);
  _mm256_store_ps(ats, at);
  Bounds b = {.most = -kInfinity, .most_but_one = -kInfinity, .least = kInfinity, .at_most = 0};
  for (int i = 0; i < kLanes; ++i) {
    if (leasts[i] < b.least) b.least = leasts[i];
    if (seconds[i] > b.most_but_one) b.most_but_one = seconds[i];
    if (mosts[i] > b.most) {
      if (b.most > b.most_but_one) b.most_but_one = b.most;
      b.most = mosts[i];
      b.at_most = static_cast<int32_t>(ats[i]);
    } else if (mosts[i] > b.most_but_one) {
      b.most_but_one = mosts[i];
    }
  }
  return b;
}

float Moved(float x, int ulps) {
  int32_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  bits += ulps;
  __builtin_memcpy(&x, &bits, sizeof(bits));
  return x;
}

// The middle; 0 where there is no bound.
float Middle(float low, float high) {
  if (low == -kInfinity) return high > 0 ? 0 : 2 * high;
  if (high == kInfinity) return low < 0 ? 0 : 2 * low;
  return (low + high) / 2;
}

// Scales within so many steps of a float's last place from the multiplier are tried.
constexpr int kMaxUlps = 8;

// What the steps on both sides of 0 ask of c, with this m.
struct Scale {
  float scale;
  Bounds left, right;
  float low() const { return Greater(right.most, -(left.least + scale)); }
  float high() const { return -Greater(left.most, -(right.least + scale)); }
  static float Greater(float a, float b) { return a > b ? a : b; }
};

struct Search {
  int32_t first, last;  // f goes from one to the other
  Steps left, right;
  FloatColumn* fit;

  // Whether *fit has all steps but for so many that are exceptions.
  bool Fits(int exceptions) const {
    if (fit->offset <= -0.5f || fit->offset >= 0.5f) return false;
    const int on_the_right = CountLow(right, fit->scale, fit->offset);
    return on_the_right <= exceptions &&
           on_the_right + CountLow(left, fit->scale, -fit->offset) == exceptions;
  }

  // With what lies in the middle of the bounds on c.
  bool Try(const Scale& s, int exceptions) const {
    const float low = s.low(), high = s.high();
    if (low >= high) return false;
    fit->scale = s.scale;
    fit->offset = Middle(low, high);
    return Fits(exceptions);
  }

  // Whether x, the exception, is a T(j) that is looked at, and g is right there.
  bool IsStep(const Function& f, int32_t x) const {
    const int64_t j = f(x);
    return j > first && j <= last && f(x - 1) < j && Evaluate(*fit, x) == j;
  }

  // Without an exception, if that can be.
  bool Find(const Function& f, float scale) const {
    // What the two roundings have, for an exact m; mostly that serves.
    fit->scale = scale;
    fit->offset = f.right == 0 ? 0.0f : 0.5f / static_cast<float>(int64_t{1} << f.right);
    if (Fits(0)) return true;
    // The room between the bounds is concave in m: uphill from the multiplier.
    Scale scales[kMaxUlps + 2];
    int count = 0;
    float most_room = -kInfinity;
    for (int ulps = 0, step = 1; ulps <= kMaxUlps && ulps >= -kMaxUlps; ulps += step) {
      Scale& s = scales[count++];
      s.scale = Moved(scale, ulps);
      s.left = BoundsOf(left, s.scale);
      s.right = BoundsOf(right, s.scale);
      if (Try(s, 0)) return true;
      const float room = s.high() - s.low();
      if (room > most_room) {
        most_room = room;
      } else if (count == 2) {  // the other way
        ulps = 0;
        step = -1;
      } else {
        break;
      }
    }
    // T(j) that binds c most is left to be the exception.
    for (int i = 2 * count - 1; i >= 0; --i) {
      Scale s = scales[i / 2];
      Bounds* const bounds = i % 2 != 0 ? &s.right : &s.left;
      bounds->most = bounds->most_but_one;
      fit->exception = bounds->at_most;
      if (Try(s, 1) && IsStep(f, fit->exception)) return true;
    }
    return false;
  }
};

// g at the ends of the accumulators' range, where no step may be near.
bool EndsAreRight(const FixedPointColumn& column, const FloatColumn& fit, int64_t at_least,
                  int64_t at_largest) {
  const auto is_right = [&](int64_t end, int64_t expected) {
    return Bounded(Evaluate(fit, static_cast<int32_t>(end)), column) == expected;
  };
  return is_right(column.least, at_least) && is_right(column.largest, at_largest);
}

}  // namespace

FloatColumn FitFloatColumnAvx2(const FixedPointColumn& column, const FittedColumn& before) {
  const NearestRounding nearest;
  FloatColumn fit;
  Function f = {.multiplier = column.multiplier, .left = 0, .right = 0};
  if (column.exponent > 0) {
    f.left = column.exponent & 31;
  } else {
    f.right = -column.exponent;
  }
  const auto lie_below = [&](int64_t bound) {
    return column.least > -(bound >> f.left) && column.largest < bound >> f.left;
  };
  // Of wider ranges f may wrap.
  if (f.multiplier < 0 || f.right > kMaxRight || column.least > column.largest ||
      !lie_below(int64_t{1} << 31)) {
    return fit;
  }
  const int32_t first = Bounded(f(column.least), column);
  const int32_t last = Bounded(f(column.largest), column);
  fit.form = column.low >= 0 ? FloatForm::kPositive : FloatForm::kAny;
  fit.exception = INT32_MIN;
  if (first == last) {  // a dead column
    fit.offset = first == Bounded(0, column) ? 0.0f : static_cast<float>(first);
    if (column.least < 0) fit.offset = -fit.offset;
    return fit;
  }
  // With accumulators below 2^30 all products are int32.
  if (last - first > kMaxSteps || f.right > kMaxStepsRight || !lie_below(int64_t{1} << 30)) {
    return {};
  }
  // Columns that have the multiplier and the clamp of their neighbour, and all steps, have its fit.
  const bool all_steps = first == column.low && last == column.high;
  if (all_steps && before.column.multiplier == column.multiplier &&
      before.column.exponent == column.exponent && before.column.low == column.low &&
      before.column.high == column.high && before.fit.all_steps &&
      (before.fit.form == FloatForm::kNone || EndsAreRight(column, before.fit, first, last))) {
    return before.fit;
  }
  fit.all_steps = all_steps;
  Search search;
  search.first = first;
  search.last = last;
  search.fit = &fit;
  const float scale =
      static_cast<float>(static_cast<double>(f.multiplier) * static_cast<double>(1 << f.left) /
                         static_cast<double>(int64_t{1} << (31 + f.right)));
  if (!search.left.Find(f, first + 1, last < 0 ? last : 0) ||
      !search.right.Find(f, first < 0 ? 1 : first + 1, last) || !search.Find(f, scale) ||
      !EndsAreRight(column, fit, first, last)) {
    fit.form = FloatForm::kNone;
    return fit;
  }
  if (fit.exception != INT32_MIN) fit.form = FloatForm::kAny;
  return fit;
}

}  // namespace atollrt
