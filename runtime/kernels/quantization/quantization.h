// SPDX-License-Identifier: Apache-2.0
//
// The integer arithmetic that every quantized kernel shares: multipliers as (value, exponent)
// pairs, the two rounding primitives, and the order in which they are applied ("double
// rounding"). docs/quantization.md derives each formula; this is their only definition in the
// runtime. (The emulator's stepped face has its own, on purpose.) Pure functions, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "runtime/kernels/quantization/float_stage.h"

namespace atollrt {

// How the byte of an activation or weight is read.
enum class ByteType : uint8_t { kInt8 = 0, kUInt8 = 1 };

constexpr int32_t ByteMin(ByteType type) { return type == ByteType::kInt8 ? -128 : 0; }
constexpr int32_t ByteMax(ByteType type) { return type == ByteType::kInt8 ? 127 : 255; }

// The value of `byte` read as `type`.
constexpr int32_t ByteValue(uint8_t byte, ByteType type) {
  return type == ByteType::kInt8 ? static_cast<int8_t>(byte) : byte;
}

// A positive real number as value * 2^(exponent - 31), value in [2^30, 2^31); {0, 0} is zero.
struct Multiplier {
  int32_t value = 0;
  int32_t exponent = 0;
  bool operator==(const Multiplier&) const = default;
};

// Of the pairs that QuantizeMultiplier gives: what a device has room for.
inline constexpr int32_t kMaxMultiplierExponent = 127;

// The pair nearest to `real` (docs/quantization.md §2), its exponent above 127 lowered by multiples
// of 32, which MultiplyByQuantizedMultiplier does not notice. Tiny numbers (below 2^-32) become {0,
// 0}; infinities and NaN become {0, 0} too: the loader refuses the scales that could lead there.
Multiplier QuantizeMultiplier(double real);

// Whether a scale is a power of two within TensorFlow Lite's tolerance of its logarithm, 0.001; its
// exponent, rounded, in any case. 0 < scale < infinity.
bool IsPowerOfTwo(float scale, int32_t* exponent);

// (a * b + 2^30) >> 31 in 64 bits, saturated for a = b = -2^31.
inline int32_t SaturatingRoundingDoublingHighMul(int32_t a, int32_t b) {
  if (a == INT32_MIN && b == INT32_MIN) return INT32_MAX;
  return static_cast<int32_t>((static_cast<int64_t>(a) * b + (int64_t{1} << 30)) >> 31);
}

// x / 2^exponent to the nearest, halves away from zero. 0 <= exponent <= 31.
inline int32_t RoundingDivideByPowerOfTwo(int32_t x, int32_t exponent) {
  const int32_t mask = static_cast<int32_t>((int64_t{1} << exponent) - 1);
  const int32_t remainder = x & mask;
  const int32_t threshold = (mask >> 1) + (x < 0 ? 1 : 0);
  return (x >> exponent) + (remainder > threshold ? 1 : 0);
}

// x * multiplier with TensorFlow Lite's double rounding. A left shift happens first, in 32 bits,
// wrapping; exponents above 31 are taken modulo 32 as x86-64 and AArch64 shifts do (published
// models contain them, see docs/quantization.md §2).
inline int32_t MultiplyByQuantizedMultiplier(int32_t x, Multiplier m) {
  const int32_t left = m.exponent > 0 ? (m.exponent & 31) : 0;
  const int32_t right = m.exponent > 0 ? 0 : -m.exponent;
  const int32_t shifted = static_cast<int32_t>(static_cast<uint32_t>(x) << left);
  return RoundingDivideByPowerOfTwo(SaturatingRoundingDoublingHighMul(shifted, m.value), right);
}

// x * multiplier for 64-bit accumulators (int16 activations): the multiplier is cut to 16 bits and
// there is one rounding, halves up. multiplier.exponent < 15; |x| >= 2^48 wraps.
inline int32_t MultiplyByQuantizedMultiplier64(int64_t x, Multiplier m) {
  const int32_t reduced = m.value < 0x7fff0000 ? (m.value + (1 << 15)) >> 16 : 0x7fff;
  const int32_t shift = 15 - m.exponent;
  const uint64_t product = static_cast<uint64_t>(x) * static_cast<uint64_t>(reduced);
  return static_cast<int32_t>(static_cast<int64_t>(product + (uint64_t{1} << (shift - 1))) >>
                              shift);
}

inline int32_t Clamp(int32_t x, int32_t lo, int32_t hi) { return x < lo ? lo : (x > hi ? hi : x); }

// The range of values that an output may take after a fused activation.
struct ClampRange {
  int32_t min = 0;
  int32_t max = 0;
};

// The same for values that are not quantized. Without an activation TensorFlow Lite still clamps to
// the finite range of the type, so infinities become its limits.
template <typename T>
struct ValueClamp {
  T min = std::numeric_limits<T>::lowest();
  T max = std::numeric_limits<T>::max();
  // Not-a-number stays what it is.
  T operator()(T x) const {
    const T bounded = x < min ? min : x;
    return max < bounded ? max : bounded;
  }
};

// How an int32 accumulator becomes an output byte.
enum class RequantizeMode : uint8_t {
  kFixedPoint = 0,  // clamp(MultiplyByQuantizedMultiplier(acc + bias, multiplier) + zero_point)
  kDouble = 1,      // clamp(round_half_away(double(acc + bias) * scale) + zero_point)
};

// Bias and real multiplier of one output channel. Only the field of the mode in use is read.
struct OutputChannel {
  int32_t bias = 0;
  Multiplier multiplier;  // kFixedPoint
  double scale = 0;       // kDouble
};

// One requantized value; the scalar truth for both modes. The sum with the bias wraps.
int32_t Requantize(int32_t accumulator, RequantizeMode mode, const OutputChannel& channel,
                   int32_t zero_point, ClampRange clamp);

// ---- The output stage of convolutions -----------------------------------------------------------
//
// As vector code wants it: one array per field, padded to whole vectors. A column is an output
// channel. Every kernel computes int32 accumulators that already contain the column's bias and
// hands them to its ISA's requantize_*.h, which equals Requantize for every input.
//
// The arrays live in memory that the owner of the convolution provides, so copies of OutputColumns
// are cheap. Immutable once written; thread-safe.

// Over the weights of an output channel, less their zero point.
struct WeightSums {
  int64_t sum = 0;
  int64_t absolute = 0;  // of absolute values
};

// The column that an output channel is, in kFixedPoint, of activations of `type`.
FixedPointColumn ColumnOf(const OutputChannel& channel, const WeightSums& sums, ByteType type,
                          int32_t input_zero_point, int32_t zero_point, ClampRange clamp);

struct OutputColumns {
  // Arrays are padded to a multiple of this with columns that yield anything, and aligned to 64
  // bytes, so kernels may load whole vectors at the end.
  static constexpr int32_t kPadding = 32;
  // `vectorizable` has one entry per this many columns.
  static constexpr int32_t kBlock = 16;
  // `forms` has one entry per this many.
  static constexpr int32_t kFloatBlock = 8;

  RequantizeMode mode = RequantizeMode::kFixedPoint;
  int32_t zero_point = 0;
  ClampRange clamp;
  int32_t count = 0;

  // The start value of each accumulator: the bias with all that depends only on the weights.
  int32_t* bias = nullptr;
  // kFixedPoint: y = x * multiplier * 2^-(31 + shift). Never {0, 0}: zero is {0, shift 1}.
  int32_t* multiplier = nullptr;
  int32_t* shift = nullptr;
  double* scale = nullptr;  // kDouble
  // 1 where all columns of the block satisfy, in kFixedPoint,
  //   0 <= multiplier, 1 <= shift <= 22, |accumulator| < 2^30 for every possible input,
  // which the vector code relies on (requantize_avx2.h has the derivation); in kDouble always 1.
  uint8_t* vectorizable = nullptr;
  // All that multipliers of real layers have; those of nearly dead channels lie outside.
  static constexpr bool IsVectorShift(int32_t shift) { return shift >= 1 && shift <= 22; }

  // 1 where all columns of the block satisfy, in kFixedPoint, 0 <= multiplier, whatever shifts and
  // accumulators are; in kDouble always 1. Channels that are nearly dead have multipliers above
  // one, dead ones tiny multipliers and huge biases: vector code that does step by step what
  // quantization.h says serves them all.
  uint8_t* wide_vectorizable = nullptr;

  // Of kernels that ask for it, in kFixedPoint: what float_stage.h says, and the greatest form of
  // the columns of each kFloatBlock.
  FitFloatColumn fit = nullptr;
  FittedColumn fitted;  // the last one that was set
  // What packed weights have kept of this (kept_fits.h), for each column; nullptr: nothing.
  const uint8_t* kept_fits = nullptr;
  bool finds_fits = true;  // those that are not kept
  float* float_scale = nullptr;
  float* float_offset = nullptr;
  int32_t* exception = nullptr;
  FloatForm* forms = nullptr;

  // Bytes of memory for `count` columns, aligned to 64; `fit` as below.
  static size_t Bytes(int32_t count, FitFloatColumn fit);

  // Lays the arrays of `count` columns out in `memory` (64-byte aligned, Bytes(count, fit) long,
  // zeroed). The columns themselves are then given by Set, each once. `fit` may be nullptr.
  static OutputColumns In(uint8_t* memory, int32_t count, RequantizeMode mode, int32_t zero_point,
                          ClampRange clamp, FitFloatColumn fit);

  // Columns of blocks that are computed by float forms, of `count`.
  int32_t CountFloat() const;

  // With all folded into the bias that weights alone determine (gemm.h), for activations of `type`
  // to which the kernel adds `offset`.
  void Set(int32_t column, const OutputChannel& channel, const WeightSums& sums, ByteType type,
           int32_t input_zero_point, int32_t offset);
};

// How vector code (requantize.h) goes from accumulators to bytes.
enum class Epilogue {
  kFloatPositive,  // FloatForm::kPositive; x86 only, as the next
  kFloat,          // FloatForm::kAny
  kFixedPoint,     // where columns are vectorizable
  kWide,           // wide_vectorizable: step by step as quantization.h does
  kDouble,
};

// The plain form of the last step, and what vector kernels fall back to where a block is not
// vectorizable: out[r][c] = Requantize(accumulators[r][c]) for `rows` rows and the columns
// [first, first + count). Strides in elements. Writes exactly rows * count bytes.
struct RequantizeArgs {
  const int32_t* accumulators = nullptr;  // bias included
  int64_t accumulator_stride = 0;
  int32_t rows = 0;
  int32_t first = 0;
  int32_t count = 0;
  uint8_t* output = nullptr;  // row 0, column `first`
  int64_t output_stride = 0;
};
void RequantizePlain(const OutputColumns& columns, const RequantizeArgs& args);

}  // namespace atollrt
