// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/quantization/quantization.h"

#include <cmath>

namespace atollrt {

Multiplier QuantizeMultiplier(double real) {
  if (real == 0 || !std::isfinite(real)) return {};
  int exponent = 0;
  const double fraction = std::frexp(real, &exponent);
  int64_t value = std::llround(fraction * 2147483648.0);
  if (value == int64_t{1} << 31) {
    value /= 2;
    ++exponent;
  }
  if (exponent < -31) return {};
  // A left shift is taken modulo 32, so this changes no product.
  while (exponent > kMaxMultiplierExponent) exponent -= 32;
  return {static_cast<int32_t>(value), exponent};
}

int32_t Requantize(int32_t accumulator, RequantizeMode mode, const OutputChannel& channel,
                   int32_t zero_point, ClampRange clamp) {
  const int32_t sum = static_cast<int32_t>(static_cast<uint32_t>(accumulator) +
                                           static_cast<uint32_t>(channel.bias));
  if (mode == RequantizeMode::kFixedPoint) {
    const uint32_t scaled =
        static_cast<uint32_t>(MultiplyByQuantizedMultiplier(sum, channel.multiplier));
    return Clamp(static_cast<int32_t>(scaled + static_cast<uint32_t>(zero_point)), clamp.min,
                 clamp.max);
  }
  // In double throughout, so that products beyond int32 saturate at the clamp.
  const double value = std::round(static_cast<double>(sum) * channel.scale) + zero_point;
  if (value <= clamp.min) return clamp.min;
  if (value >= clamp.max) return clamp.max;
  return static_cast<int32_t>(value);
}

}  // namespace atollrt
