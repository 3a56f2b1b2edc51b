// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/normalization.h"

#include <algorithm>
#include <cmath>

#include "runtime/kernels/fixed_point.h"

namespace atollrt {
namespace {

constexpr int kScaledDifferenceBits = 5;  // differences are F5
constexpr int kSumBits = 12;              // sums of exponentials are F12

}  // namespace

LogSoftmaxParams MakeLogSoftmaxParams(int64_t rows, int32_t depth, ByteType type,
                                      float input_scale) {
  constexpr double kOne = 1 << (31 - kScaledDifferenceBits);
  LogSoftmaxParams params;
  params.rows = rows;
  params.depth = depth;
  params.type = type;
  params.multiplier =
      QuantizeMultiplier(std::min(static_cast<double>(input_scale) * kOne, 2147483647.0));
  const Multiplier& m = params.multiplier;
  params.inverse_multiplier =
      QuantizeMultiplier(std::ldexp(1.0, 31 - m.exponent) / static_cast<double>(m.value));
  const double reach = std::floor(std::ldexp(31.0 * kOne, -m.exponent));
  params.min_difference = -static_cast<int32_t>(std::min(reach, 1e9));
  return params;
}

void LogSoftmax(const LogSoftmaxParams& params, const uint8_t* input, uint8_t* output) {
  const int32_t lo = ByteMin(params.type);
  const int32_t hi = ByteMax(params.type);
  const auto value = [&](int32_t i) { return ByteValue(input[i], params.type); };
  for (int64_t row = 0; row < params.rows; ++row) {
    int32_t max = lo;
    for (int32_t i = 0; i < params.depth; ++i) max = std::max(max, value(i));
    uint32_t sum = 0;
    for (int32_t i = 0; i < params.depth; ++i) {
      const int32_t difference = value(i) - max;
      if (difference < params.min_difference) continue;
      const int32_t exponential =
          FixedPointExp(MultiplyByQuantizedMultiplier(difference, params.multiplier));
      sum += static_cast<uint32_t>(RoundingDivideByPowerOfTwo(exponential, kSumBits));
    }
    // F5. Only rows of 4096 elements and more can exceed F12, and wrap.
    const int32_t log_sum = FixedPointLog(static_cast<int32_t>(sum));
    // Below this the result is the type's minimum.
    const int32_t wrapped = static_cast<int32_t>(static_cast<uint32_t>(log_sum) + (1u << 31));
    const int32_t limit =
        std::max(params.min_difference - 1,
                 MultiplyByQuantizedMultiplier(wrapped, params.inverse_multiplier));
    for (int32_t i = 0; i < params.depth; ++i) {
      const int32_t difference = value(i) - max;
      int32_t result = lo;
      if (difference > limit) {
        constexpr int kOutputBits = 4;  // of the scale 1/16
        const int32_t scaled = MultiplyByQuantizedMultiplier(difference, params.multiplier);
        const int32_t log =
            static_cast<int32_t>(static_cast<uint32_t>(scaled) - static_cast<uint32_t>(log_sum));
        result = Clamp(
            RoundingDivideByPowerOfTwo(log, 31 - kScaledDifferenceBits - kOutputBits) + hi, lo, hi);
      }
      output[i] = static_cast<uint8_t>(result);
    }
    input += params.depth;
    output += params.depth;
  }
}

void L2Normalization(const L2NormalizationParams& params, const uint8_t* input, uint8_t* output) {
  constexpr int kOutputBits = 7;  // of the scale 1/128
  const auto value = [&](int32_t i) {
    return ByteValue(input[i], params.type) - params.input_zero_point;
  };
  for (int64_t row = 0; row < params.rows; ++row) {
    uint32_t sum = 0;
    for (int32_t i = 0; i < params.depth; ++i) sum += static_cast<uint32_t>(value(i) * value(i));
    const Multiplier scale = InverseSquareRoot(static_cast<int32_t>(sum));
    for (int32_t i = 0; i < params.depth; ++i) {
      int32_t result = 0;
      if (params.type == ByteType::kUInt8) {
        const int32_t product =
            SaturatingRoundingDoublingHighMul(value(i) << kOutputBits, scale.value);
        result = Clamp(128 + RoundingDivideByPowerOfTwo(product, -scale.exponent), 0, 255);
      } else {
        result = Clamp(
            MultiplyByQuantizedMultiplier(value(i), {scale.value, scale.exponent + kOutputBits}),
            -128, 127);
      }
      output[i] = static_cast<uint8_t>(result);
    }
    input += params.depth;
    output += params.depth;
  }
}

}  // namespace atollrt
