// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/softmax.h"

#include <algorithm>
#include <cmath>

#include "runtime/kernels/fixed_point.h"

namespace atollrt {
namespace {

constexpr int kScaledDifferenceBits = 5;  // differences are F5
constexpr int kSumBits = 12;              // sums of exponentials are F12

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

namespace {

// `bits` of the output's scale 2^-bits; its values are from `lo` to `lo` + 2^bits - 1.
template <typename Output>
void SoftmaxRows(const SoftmaxParams& params, int32_t bits, int32_t lo, const uint8_t* input,
                 Output* output) {
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
  const int32_t hi = lo + (1 << bits) - 1;
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
    const int32_t shift = std::clamp(scale.bits + 31 - bits, 0, 31);
    for (int32_t i = 0; i < params.depth; ++i) {
      const int32_t difference = ByteValue(input[i], params.type) - max;
      int32_t value = lo;
      if (difference >= params.min_difference) {
        value =
            Clamp(RoundingDivideByPowerOfTwo(
                      SaturatingRoundingDoublingHighMul(exp_of(difference), scale.value), shift) +
                      lo,
                  lo, hi);
      }
      output[i] = static_cast<Output>(value);
    }
    input += params.depth;
    output += params.depth;
  }
}

}  // namespace

void Softmax(const SoftmaxParams& params, const uint8_t* input, uint8_t* output) {
  if (params.output == SoftmaxOutput::kInt16) {
    SoftmaxRows(params, 16, INT16_MIN, input, reinterpret_cast<int16_t*>(output));
  } else {
    SoftmaxRows(params, 8, ByteMin(params.type), input, output);
  }
}

}  // namespace atollrt
