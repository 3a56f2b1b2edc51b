// SPDX-License-Identifier: Apache-2.0
//
// The output stage of a column as one multiply-add in single precision, for x86: a third of the
// instructions of the fixed-point one, and proven to give the same bytes before it is used.
//
// With f the fixed-point function (MultiplyByQuantizedMultiplier), m > 0 and |c| < 1/2,
//   kPositive   g(x) = round(fma(float(x), m, c))
//   kAny        g(x) = round(fma(float(x), m, x < 0 ? -c : c)) + (x == exception ? 1 : 0)
// where round is to the nearest, halves to even. Within the clamp f takes at most 255 steps, the
// one to j at T(j), the least x with f(x) >= j. Converting to float, the multiply-add and rounding
// are monotone, so g is so on either side of 0; hence it equals f there, for all x that the column
// can have and up to what the clamp hides, if for each step g(T(j)) >= j and g(T(j) - 1) < j. That
// is what FitFloatColumn evaluates, with the multiply-add that the kernel uses; nothing is
// concluded from bounds on rounding errors. |T(j)| < 2^24, so that float(T(j)) is exact. At 0 the
// sides meet: g(0) = round(c) = 0 = f(0). The exception may be the one T(j) where g would be too
// small.
//
// kPositive serves clamps at or above the zero point, where all x <= 0 give the clamp's minimum;
// its columns may be computed as kAny, too. A column whose values are all the same has m = 0 and
// that value, with the sign of x, as c.
//
// (TensorFlow Lite's two roundings are one with an offset, floor(x M + 1/2 +- 2^-(n+1)), plus for
// x >= 0; so c is close to 2^-(n+1).)
#pragma once

#include <cstdint>

namespace atollrt {

enum class FloatForm : uint8_t { kPositive = 0, kAny = 1, kNone = 2 };

struct FloatColumn {
  float scale = 0;        // m
  float offset = 0;       // c
  int32_t exception = 0;  // INT32_MIN, which is no accumulator, if there is none
  FloatForm form = FloatForm::kNone;
  bool all_steps = false;  // it holds for all steps that the clamp leaves
};

// What is to be computed.
struct FixedPointColumn {
  int32_t multiplier = 0;  // as in Multiplier
  int32_t exponent = 0;
  // The range of the accumulators, bias included.
  int64_t least = 0;
  int64_t largest = 0;
  // The clamp, less the zero point.
  int32_t low = 0;
  int32_t high = 0;
};

// A column with what was found for it; at first none.
struct FittedColumn {
  FixedPointColumn column;
  FloatColumn fit;
};

// kNone if no (m, c) is found, or accumulators may reach 2^30. That of `before` is tried first: the
// channels of a layer often have one multiplier. Pure, thread-safe.
using FitFloatColumn = FloatColumn (*)(const FixedPointColumn& column, const FittedColumn& before);

// For CPUs with AVX2 and FMA.
FloatColumn FitFloatColumnAvx2(const FixedPointColumn& column, const FittedColumn& before);

}  // namespace atollrt
