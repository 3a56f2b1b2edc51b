// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/pairs/pairs.h"

#include <algorithm>
#include <bit>

#include "runtime/kernels/broadcast.h"
#include "runtime/kernels/cpu_features.h"
#include "runtime/kernels/quantization/fixed_point.h"

namespace atollrt {
namespace {

// ---- The reference ------------------------------------------------------------------------------

// y = function(a, b) for values of both operands, as uint32 so that everything wraps.
template <typename Function>
void ForEachPair(const PairParams& p, const uint8_t* x1, const uint8_t* x2, uint8_t* y,
                 int64_t count, Function function) {
  for (int64_t i = 0; i < count; ++i) {
    y[i] = static_cast<uint8_t>(function(ByteValue(x1[i], p.type), ByteValue(x2[i], p.type)));
  }
}

int32_t WrappingShift(int32_t x, int32_t bits) {
  return static_cast<int32_t>(static_cast<uint32_t>(x) << bits);
}

int32_t Finish(const PairParams& p, int32_t scaled) {
  const uint32_t sum = static_cast<uint32_t>(scaled) + static_cast<uint32_t>(p.output_zero_point);
  return Clamp(static_cast<int32_t>(sum), p.clamp.min, p.clamp.max);
}

// kAdd, kSubtract and kSquaredDifference.
int32_t CombineTerms(const PairParams& p, int32_t x1, int32_t x2) {
  const auto term = [&](int32_t x, int32_t zero_point, Multiplier multiplier) {
    return static_cast<uint32_t>(
        MultiplyByQuantizedMultiplier(WrappingShift(x - zero_point, p.left_shift), multiplier));
  };
  const uint32_t a = term(x1, p.input1_zero_point, p.input1);
  const uint32_t b = term(x2, p.input2_zero_point, p.input2);
  uint32_t sum = p.op == PairOp::kAdd ? a + b : a - b;
  if (p.op == PairOp::kSquaredDifference) sum *= sum;
  return Finish(p, MultiplyByQuantizedMultiplier(static_cast<int32_t>(sum), p.output));
}

// ---- What vector arithmetic can do --------------------------------------------------------------

bool IsBelowHalf(Multiplier m) { return m.value >= 0 && m.exponent <= -1 && m.exponent >= -31; }

// Products of two differences of bytes have 16 bits and a sign; shifted, they stay below 2^30.
bool FitsProducts(Multiplier m) { return m.value >= 0 && m.exponent >= -31 && m.exponent <= 14; }

}  // namespace

PairFn ChoosePairs(uint32_t features) {
#define ATOLL_PAIR_KERNEL(name, needed) \
  if (Supports(features, needed)) return name;
#include "runtime/kernels/pairs/kernels.inc"
#undef ATOLL_PAIR_KERNEL
  return CombinePairsReference;
}

bool IsHalf(Multiplier multiplier) { return multiplier == Multiplier{1 << 30, 0}; }

bool IsVectorizable(const PairParams& p) {
  const auto terms_fit = [&](int32_t largest_shift) {
    return p.left_shift >= 1 && p.left_shift <= largest_shift &&
           (IsHalf(p.input1) || IsBelowHalf(p.input1)) &&
           (IsHalf(p.input2) || IsBelowHalf(p.input2)) && IsBelowHalf(p.output);
  };
  switch (p.op) {
    case PairOp::kAdd:
    case PairOp::kSubtract:
      // Inputs of 8 bits and a sign, shifted by 20 and at most halved: a' +- b' stays below 2^29.
      return terms_fit(20);
    case PairOp::kSquaredDifference:
      return terms_fit(7);  // |a' - b'| <= 255 * 2^7, whose square is below 2^30
    case PairOp::kMultiply:
      return FitsProducts(p.output);
    case PairOp::kPrelu:
      return FitsProducts(p.input1) && FitsProducts(p.output);
    case PairOp::kMaximum:
    case PairOp::kMinimum:
      return true;
  }
  return false;
}

void CombinePairsReference(const PairParams& p, const uint8_t* x1, const uint8_t* x2, uint8_t* y,
                           int64_t count) {
  switch (p.op) {
    case PairOp::kAdd:
    case PairOp::kSubtract:
    case PairOp::kSquaredDifference:
      return ForEachPair(p, x1, x2, y, count,
                         [&](int32_t a, int32_t b) { return CombineTerms(p, a, b); });
    case PairOp::kMultiply:
      return ForEachPair(p, x1, x2, y, count, [&](int32_t a, int32_t b) {
        const int32_t product = (a - p.input1_zero_point) * (b - p.input2_zero_point);
        return Finish(p, MultiplyByQuantizedMultiplier(product, p.output));
      });
    case PairOp::kPrelu:
      return ForEachPair(p, x1, x2, y, count, [&](int32_t x, int32_t slope) {
        const int32_t a = x - p.input1_zero_point;
        const int32_t b = slope - p.input2_zero_point;
        return Finish(p, a >= 0 ? MultiplyByQuantizedMultiplier(a, p.input1)
                                : MultiplyByQuantizedMultiplier(a * b, p.output));
      });
    case PairOp::kMaximum:
      return ForEachPair(p, x1, x2, y, count, [](int32_t a, int32_t b) { return std::max(a, b); });
    case PairOp::kMinimum:
      return ForEachPair(p, x1, x2, y, count, [](int32_t a, int32_t b) { return std::min(a, b); });
  }
}

void CombineBroadcast(PairFn combine, const PairParams& params, const Broadcast& broadcast,
                      const uint8_t* x1, const uint8_t* x2, uint8_t* y, ThreadPool* pool) {
  ForEachBlock(broadcast, 1, x1, x2, pool, kParallelGrain,
               [&](const uint8_t* a, const uint8_t* b, int64_t offset, int64_t count) {
                 combine(params, a, b, y + offset, count);
               });
}

// ---- Operators that only the CPU runs -----------------------------------------------------------

namespace {

// ForEachPair of operands that repeat.
template <typename Function>
void CombineBytes(const PairParams& params, const Broadcast& broadcast, const uint8_t* x1,
                  const uint8_t* x2, uint8_t* y, ThreadPool* pool, const Function& function) {
  constexpr int64_t kGrain = 1 << 13;  // a few nanoseconds each
  ForEachBlock(broadcast, 1, x1, x2, pool, kGrain,
               [&](const uint8_t* a, const uint8_t* b, int64_t offset, int64_t count) {
                 ForEachPair(params, a, b, y + offset, count, function);
               });
}

// numerator / denominator * multiplier, the denominator positive.
int32_t Quotient(int32_t numerator, int32_t denominator, Multiplier multiplier) {
  const Reciprocal inverse = FixedPointReciprocal(denominator, 31);
  const uint32_t magnitude =
      static_cast<uint32_t>(numerator >= 0 ? numerator : ~numerator);  // without the sign bits
  const int32_t headroom = std::countl_zero(magnitude) - 1;
  const int32_t quotient =
      SaturatingRoundingDoublingHighMul(WrappingShift(numerator, headroom), inverse.value);
  const int32_t scaled = SaturatingRoundingDoublingHighMul(quotient, multiplier.value);
  const int32_t shift = inverse.bits + headroom - multiplier.exponent;
  if (shift > 31) return 0;
  // TensorFlow Lite leaves the rest undefined: a quotient of 2^31 and more.
  if (shift < 0) return scaled == 0 ? 0 : (scaled > 0 ? INT32_MAX / 2 : INT32_MIN / 2);
  return RoundingDivideByPowerOfTwo(scaled, shift);
}

}  // namespace

void Divide(const PairParams& params, const Broadcast& broadcast, const uint8_t* x1,
            const uint8_t* x2, uint8_t* y, ThreadPool* pool) {
  CombineBytes(params, broadcast, x1, x2, y, pool, [&](int32_t value1, int32_t value2) {
    const int32_t a = value1 - params.input1_zero_point;
    const int32_t b = value2 - params.input2_zero_point;
    return Finish(params, b < 0 ? Quotient(-a, -b, params.output) : Quotient(a, b, params.output));
  });
}

void Compare(Comparison comparison, const PairParams& params, const Broadcast& broadcast,
             const uint8_t* x1, const uint8_t* x2, uint8_t* y, ThreadPool* pool) {
  constexpr int32_t kLeftShift = 8;
  // For each Comparison, whether it holds: bit 0 of the lesser, 1 of equals, 2 of the greater.
  constexpr uint8_t kHolds[] = {0b010, 0b101, 0b001, 0b011, 0b100, 0b110};
  const int32_t holds = kHolds[static_cast<size_t>(comparison)];
  CombineBytes(params, broadcast, x1, x2, y, pool, [&](int32_t value1, int32_t value2) {
    const int32_t a = MultiplyByQuantizedMultiplier(
        WrappingShift(value1 - params.input1_zero_point, kLeftShift), params.input1);
    const int32_t b = MultiplyByQuantizedMultiplier(
        WrappingShift(value2 - params.input2_zero_point, kLeftShift), params.input2);
    return holds >> ((a >= b ? 1 : 0) + (a > b ? 1 : 0)) & 1;
  });
}

void Add16(const Add16Params& params, const Broadcast& broadcast, const uint8_t* x1,
           const uint8_t* x2, uint8_t* y, ThreadPool* pool) {
  constexpr int32_t kLeftShift = 15;
  const auto general = [&](int16_t x1_value, int16_t x2_value) {
    const int32_t a =
        MultiplyByQuantizedMultiplier(WrappingShift(x1_value, kLeftShift), params.input1);
    const int32_t b =
        MultiplyByQuantizedMultiplier(WrappingShift(x2_value, kLeftShift), params.input2);
    // Multipliers of at most 1/2 keep both below 2^29.
    return MultiplyByQuantizedMultiplier(a + params.sign * b, params.output);
  };
  const auto shifted = [&](int16_t x1_value, int16_t x2_value) {
    return RoundingDivideByPowerOfTwo(x1_value, params.shift1) +
           params.sign * RoundingDivideByPowerOfTwo(x2_value, params.shift2);
  };
  const auto combine = [&](auto sum) {
    CombineElements<int16_t, int16_t>(broadcast, x1, x2, y, pool, [&](int16_t a, int16_t b) {
      return static_cast<int16_t>(Clamp(sum(a, b), params.clamp.min, params.clamp.max));
    });
  };
  if (params.form == Add16Form::kPowersOfTwo) {
    combine(shifted);
  } else {
    combine(general);
  }
}

}  // namespace atollrt
