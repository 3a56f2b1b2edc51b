// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/elementwise.h"

#include <bit>

#include "runtime/kernels/fixed_point.h"

namespace atollrt {
namespace {

int32_t WrappingAdd(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}

int32_t WrappingShift(int32_t x, int32_t bits) {
  return static_cast<int32_t>(static_cast<uint32_t>(x) << bits);
}

// CombineElements of bytes; function(int32, int32) sees them without their zero points.
template <typename Function>
void CombineBytes(const PairParams& params, const Broadcast& broadcast, const uint8_t* x1,
                  const uint8_t* x2, uint8_t* y, ThreadPool* pool, Function function) {
  const auto combine = [&](auto type) {
    using T = decltype(type);
    CombineElements<T, uint8_t>(broadcast, x1, x2, y, pool, [&](T a, T b) {
      return static_cast<uint8_t>(
          function(a - params.input1_zero_point, b - params.input2_zero_point));
    });
  };
  if (params.type == ByteType::kUInt8) {
    combine(uint8_t{});
  } else {
    combine(int8_t{});
  }
}

int32_t Finish(const PairParams& params, int32_t scaled) {
  return Clamp(WrappingAdd(scaled, params.output_zero_point), params.clamp.min, params.clamp.max);
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
  CombineBytes(params, broadcast, x1, x2, y, pool, [&](int32_t a, int32_t b) {
    return Finish(params, b < 0 ? Quotient(-a, -b, params.output) : Quotient(a, b, params.output));
  });
}

void Compare(Comparison comparison, const PairParams& params, const Broadcast& broadcast,
             const uint8_t* x1, const uint8_t* x2, uint8_t* y, ThreadPool* pool) {
  constexpr int32_t kLeftShift = 8;
  const auto compare = [&](auto holds) {
    CombineBytes(params, broadcast, x1, x2, y, pool, [&](int32_t a, int32_t b) {
      return holds(MultiplyByQuantizedMultiplier(WrappingShift(a, kLeftShift), params.input1),
                   MultiplyByQuantizedMultiplier(WrappingShift(b, kLeftShift), params.input2));
    });
  };
  WithComparison(comparison, compare);
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
