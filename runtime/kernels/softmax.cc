// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/softmax.h"

#include <algorithm>
#include <cmath>

#include "runtime/kernels/fixed_point.h"

namespace atollrt {
namespace {

constexpr int kScaledDifferenceBits = 5;  // differences are F5
constexpr int kSumBits = 12;              // sums of exponentials are F12

template <typename Out>
void SoftmaxRows(const SoftmaxParams& params, const uint8_t* input, Out* output, ClampRange range) {
  constexpr int kOutputBits = 8 * sizeof(Out);  // of the scale, 1/256 or 1/65536
  // Differences of bytes are in [-255, 0], so each exponential is computed at most once per call.
  int32_t exponential[256];
  bool known[256] = {};
  const auto exp_of = [&](int32_t difference) {
    const int slot = -difference;
    if (!known[slot]) {
      exponential[slot] =
          FixedPointExp(MultiplyByQuantizedMultiplier(difference, params.multiplier));
      known[slot] = true;
    }
    return exponential[slot];
  };
  for (int64_t row = 0; row < params.rows; ++row) {
    int32_t max = ByteMin(params.type);
    for (int32_t i = 0; i < params.depth; ++i) {
      max = std::max(max, ByteValue(input[i], params.type));
    }
    uint32_t sum = 0;
    for (int32_t i = 0; i < params.depth; ++i) {
      const int32_t difference = ByteValue(input[i], params.type) - max;
      if (difference < params.min_difference) continue;
      sum += static_cast<uint32_t>(RoundingDivideByPowerOfTwo(exp_of(difference), kSumBits));
    }
    const Reciprocal scale = FixedPointReciprocal(static_cast<int32_t>(sum), kSumBits);
    // Above 31, which takes a sum of 512 and more, nothing is left of a product of 31 bits. Below
    // 0, for a sum that wrapped to 0 and 16 bits, the product is negative and the result the least.
    const int32_t shift = scale.bits + 31 - kOutputBits;
    for (int32_t i = 0; i < params.depth; ++i) {
      const int32_t difference = ByteValue(input[i], params.type) - max;
      int32_t value = range.min;
      if (difference >= params.min_difference) {
        const int32_t product = SaturatingRoundingDoublingHighMul(exp_of(difference), scale.value);
        const int32_t steps =
            shift > 31 ? 0 : RoundingDivideByPowerOfTwo(product, std::max(shift, 0));
        value = Clamp(steps + range.min, range.min, range.max);
      }
      output[i] = static_cast<Out>(value);
    }
    input += params.depth;
    output += params.depth;
  }
}

}  // namespace

SoftmaxParams MakeSoftmaxParams(int64_t rows, int32_t depth, ByteType type, float beta,
                                float input_scale) {
  SoftmaxParams params;
  params.rows = rows;
  params.depth = depth;
  params.type = type;
  const double real = std::min(static_cast<double>(beta) * static_cast<double>(input_scale) *
                                   (1 << (31 - kScaledDifferenceBits)),
                               2147483647.0);
  params.multiplier = QuantizeMultiplier(real);
  const double reach =
      std::ldexp(31.0 * (1 << (31 - kScaledDifferenceBits)), -params.multiplier.exponent);
  params.min_difference = -static_cast<int32_t>(std::floor(std::min(reach, 1e9)));
  return params;
}

void Softmax(const SoftmaxParams& params, const uint8_t* input, uint8_t* output) {
  SoftmaxRows(params, input, output, {ByteMin(params.type), ByteMax(params.type)});
}

void SoftmaxToInt16(const SoftmaxParams& params, const uint8_t* input, int16_t* output) {
  SoftmaxRows(params, input, output, {-32768, 32767});
}

}  // namespace atollrt
