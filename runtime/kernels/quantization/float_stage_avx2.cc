// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "runtime/kernels/quantization/float_stage.h"
#include "runtime/kernels/quantization/nearest_rounding.h"

namespace atollrt {
namespace {

constexpr int kMaxSteps = 255;
constexpr int kMaxRight = 31;
// Padding of the arrays below: whole vectors are loaded.
constexpr int kLanes = 8;
constexpr double kInfinity = __builtin_inf();

// Steps of f: to value[i] at[i].
struct Steps {
  int count = 0;  // a multiple of kLanes: the last one is repeated
  alignas(32) int32_t at[kMaxSteps + 1 + kLanes];
  alignas(32) int32_t value[kMaxSteps + 1 + kLanes];
};

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

int64_t Bounded(int64_t x, const FixedPointColumn& column) {
  return x < column.low ? column.low : (x > column.high ? column.high : x);
}

// The least x with f(x) >= j, by integers.
int64_t StepAt(const Function& f, int64_t j) {
  const __int128 tau2 = f.right == 0
                            ? 2 * static_cast<__int128>(j)
                            : (static_cast<__int128>(2 * j - 1) << f.right) + (j <= 0 ? 2 : 0);
  const __int128 numerator = (tau2 - 1) << 30;
  const __int128 divisor = static_cast<__int128>(f.multiplier) << f.left;
  const __int128 quotient = numerator / divisor;
  return static_cast<int64_t>(quotient + (quotient * divisor < numerator ? 1 : 0));
}

// The steps to first ... last, by doubles; by integers where they lie too close to one. False if
// one is not below 2^24.
bool FindSteps(const Function& f, int32_t first, int32_t last, Steps* steps) {
  constexpr double kUnsure = 1.0 / (1 << 24);
  const double unit =
      static_cast<double>(int64_t{1} << 30) /
      (static_cast<double>(f.multiplier) * static_cast<double>(int64_t{1} << f.left));
  const double power = static_cast<double>(int64_t{1} << f.right);
  // (2 tau - 1) unit, with 2 tau = (2 j - 1) 2^right + 2 [j <= 0], or 2 j without a right shift.
  const __m256d slope = _mm256_set1_pd(2 * power * unit);
  const __m256d above = _mm256_set1_pd(f.right == 0 ? -unit : (-power - 1) * unit);
  const __m256d below = _mm256_set1_pd(f.right == 0 ? -unit : (-power + 1) * unit);
  // Steps rise, so the first and the last are the largest.
  const double limit = (1 << 24) - 1 - unit;
  if ((2 * first - 1) * power * unit < -limit || (2 * last - 1) * power * unit > limit) {
    return false;
  }
  __m256d least_rest = _mm256_set1_pd(1);
  __m256d most_rest = _mm256_setzero_pd();
  const __m128i offsets = _mm_setr_epi32(0, 1, 2, 3);
  const __m128i end = _mm_set1_epi32(last);
  const int count = (last - first + kLanes) / kLanes * kLanes;
  for (int i = 0; i < count; i += 4) {
    const __m128i j = _mm_min_epi32(_mm_add_epi32(_mm_set1_epi32(first + i), offsets), end);
    const __m256d jd = _mm256_cvtepi32_pd(j);
    const __m256d is_above = _mm256_cmp_pd(jd, _mm256_setzero_pd(), _CMP_GT_OQ);
    const __m256d exact = _mm256_fmadd_pd(jd, slope, _mm256_blendv_pd(below, above, is_above));
    const __m256d at = _mm256_ceil_pd(exact);
    const __m256d rest = _mm256_sub_pd(at, exact);
    least_rest = _mm256_min_pd(least_rest, rest);
    most_rest = _mm256_max_pd(most_rest, rest);
    _mm_store_si128(reinterpret_cast<__m128i*>(steps->at + i), _mm256_cvttpd_epi32(at));
    _mm_store_si128(reinterpret_cast<__m128i*>(steps->value + i), j);
  }
  const int32_t unsure = _mm256_movemask_pd(
      _mm256_or_pd(_mm256_cmp_pd(least_rest, _mm256_set1_pd(kUnsure), _CMP_LT_OQ),
                   _mm256_cmp_pd(most_rest, _mm256_set1_pd(1 - kUnsure), _CMP_GT_OQ)));
  if (unsure != 0) {
    for (int i = 0; i < count; ++i) {
      const int64_t at = StepAt(f, steps->value[i]);
      if (at <= -(1 << 24) || at >= 1 << 24) return false;
      steps->at[i] = static_cast<int32_t>(at);
    }
  }
  steps->count = count;
  return true;
}

// As the kernels do (requantize_avx2.h, Rescale).
__m256i Evaluate(__m256i x, __m256 scale, __m256 offset, __m256i exception) {
  const __m256 sign = _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32(INT32_MIN)));
  const __m256i y = _mm256_cvtps_epi32(
      _mm256_fmadd_ps(_mm256_cvtepi32_ps(x), scale, _mm256_xor_ps(offset, sign)));
  return _mm256_sub_epi32(y, _mm256_cmpeq_epi32(x, exception));
}

// What is wrong of g.
struct Wrong {
  bool high = false;  // somewhere g is too large
  // The first and last T(j) where it is too small; INT32_MAX and INT32_MIN if there is none.
  int32_t first_low = INT32_MAX;
  int32_t last_low = INT32_MIN;
  bool any() const { return high || first_low <= last_low; }
};

int32_t LeastLane(__m256i v) {
  __m128i x = _mm_min_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  x = _mm_min_epi32(x, _mm_shuffle_epi32(x, 0x4e));
  return _mm_cvtsi128_si32(_mm_min_epi32(x, _mm_shuffle_epi32(x, 0xb1)));
}

Wrong Check(const Steps& steps, float scale, float offset, int32_t exception) {
  const __m256 m = _mm256_set1_ps(scale);
  const __m256 c = _mm256_set1_ps(offset);
  const __m256i e = _mm256_set1_epi32(exception);
  const __m256i all = _mm256_set1_epi32(-1);
  __m256i high = all;  // -1 where all is well
  __m256i first = _mm256_set1_epi32(INT32_MAX);
  __m256i last = _mm256_set1_epi32(INT32_MIN);
  for (int i = 0; i < steps.count; i += kLanes) {
    const __m256i x = _mm256_load_si256(reinterpret_cast<const __m256i*>(steps.at + i));
    const __m256i j = _mm256_load_si256(reinterpret_cast<const __m256i*>(steps.value + i));
    const __m256i low = _mm256_cmpgt_epi32(j, Evaluate(x, m, c, e));
    first = _mm256_min_epi32(first, _mm256_blendv_epi8(first, x, low));
    last = _mm256_max_epi32(last, _mm256_blendv_epi8(last, x, low));
    high =
        _mm256_and_si256(high, _mm256_cmpgt_epi32(j, Evaluate(_mm256_add_epi32(x, all), m, c, e)));
  }
  return {.high = _mm256_movemask_epi8(high) != -1,
          .first_low = LeastLane(first),
          .last_low = ~LeastLane(_mm256_xor_si256(last, all))};
}

// What c must lie between, in real numbers, for all steps, and for all but the T(j) that binds
// most.
struct Bounds {
  double low = -kInfinity, low_but_one = -kInfinity;
  double high = kInfinity, high_but_one = kInfinity;
};

double GreatestLane(__m256d v) {
  __m128d x = _mm_max_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
  return _mm_cvtsd_f64(_mm_max_pd(x, _mm_unpackhi_pd(x, x)));
}

// The greatest of what was added, and the second greatest if kNext.
template <bool kNext>
struct Greatest {
  __m256d first = _mm256_set1_pd(-kInfinity);
  __m256d second = _mm256_set1_pd(-kInfinity);
  void Add(__m256d v) {
    if constexpr (kNext) second = _mm256_max_pd(second, _mm256_min_pd(first, v));
    first = _mm256_max_pd(first, v);
  }
  double one() const { return GreatestLane(first); }
  // Without that one.
  double next() const {
    const __m256d top = _mm256_set1_pd(one());
    const __m256d rest = _mm256_blendv_pd(first, second, _mm256_cmp_pd(first, top, _CMP_EQ_OQ));
    return GreatestLane(rest);
  }
};

// Those for all but one only if kNext.
template <bool kNext>
Bounds BoundsOf(const Steps& steps, double scale) {
  const __m256d m = _mm256_set1_pd(scale);
  const __m256d half = _mm256_set1_pd(0.5);
  const __m256d none = _mm256_set1_pd(-kInfinity);
  const __m256d minus = _mm256_set1_pd(-0.0);
  // Where x >= 0, c >= v at T(j) and c < v + m at T(j) - 1, with v = j - 1/2 - T(j) m; below, -c.
  Greatest<kNext> at_right, at_left;                // v at T(j) on either side of 0
  __m256d before_right = none, before_left = none;  // the greatest -(v + m) at T(j) - 1
  for (int i = 0; i < steps.count; i += 4) {
    const __m256d x =
        _mm256_cvtepi32_pd(_mm_load_si128(reinterpret_cast<const __m128i*>(steps.at + i)));
    const __m256d j =
        _mm256_cvtepi32_pd(_mm_load_si128(reinterpret_cast<const __m128i*>(steps.value + i)));
    const __m256d v = _mm256_fnmadd_pd(x, m, _mm256_sub_pd(j, half));
    const __m256d before = _mm256_xor_pd(_mm256_add_pd(v, m), minus);
    if (steps.value[i] > 0) {
      at_right.Add(v);
      before_right = _mm256_max_pd(before_right, before);
      continue;
    }
    const __m256d is_left = _mm256_cmp_pd(x, _mm256_setzero_pd(), _CMP_LE_OQ);
    at_right.Add(_mm256_blendv_pd(v, none, is_left));
    at_left.Add(_mm256_blendv_pd(none, v, is_left));
    before_right = _mm256_max_pd(before_right, _mm256_blendv_pd(before, none, is_left));
    before_left = _mm256_max_pd(before_left, _mm256_blendv_pd(none, before, is_left));
  }
  const auto greater = [](double a, double b) { return a > b ? a : b; };
  const double low_before = GreatestLane(before_left), high_before = GreatestLane(before_right);
  Bounds b;
  b.low = greater(at_right.one(), low_before);
  b.low_but_one = greater(at_right.next(), low_before);
  b.high = -greater(at_left.one(), high_before);
  b.high_but_one = -greater(at_left.next(), high_before);
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
float Middle(double low, double high) {
  if (low == -kInfinity && high == kInfinity) return 0;
  if (low == -kInfinity) return static_cast<float>(high > 0 ? 0 : 2 * high);
  if (high == kInfinity) return static_cast<float>(low < 0 ? 0 : 2 * low);
  return static_cast<float>((low + high) / 2);
}

bool Fits(float offset) { return offset > -0.5f && offset < 0.5f; }

// g at the ends of the accumulators' range, where no step may be near.
bool EndsAreRight(const FixedPointColumn& column, const FloatColumn& fit, int64_t at_least,
                  int64_t at_largest) {
  const __m256i y = Evaluate(
      _mm256_setr_epi32(static_cast<int32_t>(column.least), static_cast<int32_t>(column.largest), 0,
                        0, 0, 0, 0, 0),
      _mm256_set1_ps(fit.scale), _mm256_set1_ps(fit.offset), _mm256_set1_epi32(fit.exception));
  return Bounded(_mm256_extract_epi32(y, 0), column) == at_least &&
         Bounded(_mm256_extract_epi32(y, 1), column) == at_largest;
}

// Scales within so many steps of a float's last place from the multiplier are tried.
constexpr int kMaxUlps = 8;

// Whether what lies in the middle of the bounds on c serves, with no exception or, if `with_one`,
// with one, which is found.
bool Try(const Steps& steps, double low, double high, bool with_one, FloatColumn* fit) {
  if (low > high) return false;
  fit->exception = INT32_MIN;
  fit->offset = Middle(low, high);
  if (!Fits(fit->offset)) return false;
  const Wrong wrong = Check(steps, fit->scale, fit->offset, INT32_MIN);
  if (!wrong.any()) return true;
  if (!with_one || wrong.high || wrong.first_low != wrong.last_low) return false;
  fit->exception = wrong.first_low;
  return !Check(steps, fit->scale, fit->offset, fit->exception).any();
}

// Without an exception, if that can be.
bool Search(const Steps& steps, const Function& f, float scale, FloatColumn* fit) {
  fit->exception = INT32_MIN;
  // What the two roundings have, for an exact m; mostly that serves.
  fit->scale = scale;
  fit->offset = f.right == 0 ? 0.0f : 0.5f / static_cast<float>(int64_t{1} << f.right);
  if (!Check(steps, fit->scale, fit->offset, INT32_MIN).any()) return true;
  // The room between the bounds is concave in m: uphill from the multiplier.
  constexpr int kTried = kMaxUlps + 2;
  Bounds bounds[kTried];
  float scales[kTried];
  int count = 0;
  const auto room_at = [&](int ulps) {
    scales[count] = Moved(scale, ulps);
    bounds[count] = BoundsOf<false>(steps, scales[count]);
    ++count;
    return bounds[count - 1].high - bounds[count - 1].low;
  };
  double room = room_at(0);
  fit->scale = scale;
  if (Try(steps, bounds[0].low, bounds[0].high, false, fit)) return true;
  double next = room_at(1);
  int step = 1;
  if (next < room) {
    next = room_at(-1);
    step = -1;
  }
  for (int ulps = step; next > room && ulps != step * kMaxUlps; room = next) {
    ulps += step;
    next = room_at(ulps);
  }
  // The last ones have the most room.
  for (int i = count - 1; i > 0; --i) {
    fit->scale = scales[i];
    if (Try(steps, bounds[i].low, bounds[i].high, false, fit)) return true;
  }
  for (int i = count - 1; i >= 0; --i) {
    fit->scale = scales[i];
    const Bounds b = BoundsOf<true>(steps, scales[i]);
    if (Try(steps, b.low_but_one, b.high, true, fit)) return true;
    if (Try(steps, b.low, b.high_but_one, true, fit)) return true;
  }
  return false;
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
  const int64_t first = Bounded(f(column.least), column);
  const int64_t last = Bounded(f(column.largest), column);
  fit.form = column.low >= 0 ? FloatForm::kPositive : FloatForm::kAny;
  fit.exception = INT32_MIN;
  if (first == last) {  // a dead column
    fit.offset = first == Bounded(0, column) ? 0.0f : static_cast<float>(first);
    if (column.least < 0) fit.offset = -fit.offset;
    return fit;
  }
  // With accumulators below 2^30 all products are int32.
  if (last - first > kMaxSteps || !lie_below(int64_t{1} << 30)) return {};
  // Columns that have the multiplier and the clamp of their neighbour, and all steps, have its fit.
  const bool all_steps = first == column.low && last == column.high;
  if (all_steps && before.column.multiplier == column.multiplier &&
      before.column.exponent == column.exponent && before.column.low == column.low &&
      before.column.high == column.high && before.fit.all_steps &&
      (before.fit.form == FloatForm::kNone || EndsAreRight(column, before.fit, first, last))) {
    return before.fit;
  }
  fit.all_steps = all_steps;
  Steps steps;
  const float scale =
      static_cast<float>(static_cast<double>(f.multiplier) * static_cast<double>(1 << f.left) /
                         static_cast<double>(int64_t{1} << (31 + f.right)));
  if (!FindSteps(f, static_cast<int32_t>(first + 1), static_cast<int32_t>(last), &steps) ||
      !Search(steps, f, scale, &fit) || !EndsAreRight(column, fit, first, last)) {
    fit.form = FloatForm::kNone;
    return fit;
  }
  if (fit.exception != INT32_MIN) fit.form = FloatForm::kAny;
  return fit;
}

}  // namespace atollrt
