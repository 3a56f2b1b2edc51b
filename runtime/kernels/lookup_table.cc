// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/lookup_table.h"

#include <algorithm>
#include <cmath>

#include "runtime/kernels/quantization/fixed_point.h"

namespace atollrt {
namespace {

template <typename Function>
LookupTable MakeFloatTable(const ByteFormat& input, const ByteFormat& output, Function function) {
  LookupTable table;
  const float inverse_scale = 1.0f / output.scale;
  for (int byte = 0; byte < 256; ++byte) {
    const int32_t value = ByteValue(static_cast<uint8_t>(byte), input.type);
    const float x = input.scale * static_cast<float>(value - input.zero_point);
    const float y = std::round(function(x) * inverse_scale) + static_cast<float>(output.zero_point);
    // Clamped as floats: y may be far outside int32, and for a denormal scale no number at all.
    const float lo = static_cast<float>(ByteMin(output.type));
    const float hi = static_cast<float>(ByteMax(output.type));
    table[byte] = static_cast<uint8_t>(static_cast<int32_t>(y > lo ? (y < hi ? y : hi) : lo));
  }
  return table;
}

// clamp( function(x - input zero point) + output zero point ), the sum wrapping
template <typename Function>
LookupTable MakeIntegerTable(const ByteFormat& input, const ByteFormat& output, ClampRange clamp,
                             Function function) {
  LookupTable table;
  for (int byte = 0; byte < 256; ++byte) {
    const int32_t value = ByteValue(static_cast<uint8_t>(byte), input.type);
    const uint32_t scaled = static_cast<uint32_t>(function(value - input.zero_point));
    const int32_t y = static_cast<int32_t>(scaled + static_cast<uint32_t>(output.zero_point));
    table[byte] = static_cast<uint8_t>(Clamp(y, clamp.min, clamp.max));
  }
  return table;
}

ClampRange RangeOf(ByteType type) { return {ByteMin(type), ByteMax(type)}; }

// ---- HARD_SWISH: 16-bit arithmetic --------------------------------------------------------------

struct Multiplier16 {
  int32_t value = 0;  // in [2^14, 2^15), or 0
  int32_t exponent = 0;
};

Multiplier16 QuantizeMultiplier16(float real) {
  const Multiplier wide = QuantizeMultiplier(static_cast<double>(real));
  const int64_t rounded = (static_cast<int64_t>(wide.value) + (1 << 15)) >> 16;
  return {static_cast<int32_t>(std::min<int64_t>(rounded, INT16_MAX)), wide.exponent};
}

int32_t Saturate16(int64_t x) {
  return static_cast<int32_t>(std::clamp<int64_t>(x, INT16_MIN, INT16_MAX));
}

// The 16-bit form of SaturatingRoundingDoublingHighMul. b >= 0, so nothing saturates.
int32_t HighMul16(int32_t a, int32_t b) { return (a * b + (1 << 14)) >> 15; }

// min(max(x / 3 + 1, 0), 2) / 2 as a 15-bit fraction, of x with scale * 128 `real` relative to
// 3/2^15.
int32_t HardSwishGate(int32_t x7, Multiplier16 relu) {
  int32_t x = x7;
  if (relu.exponent > 0) x = Saturate16(int64_t{x} << std::min(relu.exponent - 1, 31));
  x = HighMul16(x, relu.value);
  if (relu.exponent > 0) x = Saturate16(int64_t{x} * 2);
  if (relu.exponent < 0) x = RoundingDivideByPowerOfTwo(x, -relu.exponent);
  return (x + (1 << 15)) >> 1;
}

}  // namespace

LookupTable MakeRequantizeTable(const ByteFormat& input, const ByteFormat& output,
                                Multiplier multiplier, ClampRange clamp) {
  return MakeIntegerTable(input, output, clamp,
                          [&](int32_t x) { return MultiplyByQuantizedMultiplier(x, multiplier); });
}

LookupTable MakeLeakyReluTable(const ByteFormat& input, const ByteFormat& output,
                               const LeakyReluMultipliers& multipliers) {
  return MakeIntegerTable(input, output, RangeOf(output.type), [&](int32_t x) {
    if (x >= 0) return MultiplyByQuantizedMultiplier(x, multipliers.positive);
    const int32_t scaled = MultiplyByQuantizedMultiplier(x, multipliers.negative);
    return static_cast<int32_t>(static_cast<uint32_t>(multipliers.sign) *
                                static_cast<uint32_t>(scaled));
  });
}

LookupTable MakeHardSwishTable(const ByteFormat& input, const ByteFormat& output) {
  const float fine_scale = (1.0f / 128.0f) * input.scale;  // of x shifted left by 7
  const Multiplier16 to_output = QuantizeMultiplier16(fine_scale / output.scale);
  const Multiplier16 to_gate = QuantizeMultiplier16(fine_scale / (3.0f / 32768.0f));
  return MakeIntegerTable(input, output, RangeOf(output.type), [&](int32_t x) {
    const int32_t x7 = x * 128;
    const int32_t product = HardSwishGate(x7, to_gate) * HighMul16(x7, to_output.value);
    return RoundingDivideByPowerOfTwo(product / (1 << 15), -to_output.exponent);
  });
}

LookupTable MakeRsqrtTable(const ByteFormat& input, const ByteFormat& output) {
  constexpr int kFractionBits = 20;
  const float product = std::sqrt(input.scale) * output.scale;
  Multiplier multiplier = QuantizeMultiplier(1.0 / static_cast<double>(product));
  multiplier.exponent -= kFractionBits;
  if (multiplier.exponent < -31) multiplier = {};
  const ClampRange range = RangeOf(output.type);
  return MakeIntegerTable(input, output, range, [&](int32_t x) {
    if (x <= 0) return range.max - output.zero_point;
    Multiplier root = InverseSquareRoot(x);
    root.exponent += kFractionBits;
    return MultiplyByQuantizedMultiplier(MultiplyByQuantizedMultiplier(1, root), multiplier);
  });
}

LookupTable MakeLogisticTable(const ByteFormat& input, const ByteFormat& output) {
  return MakeFloatTable(input, output, [](float x) { return 1.0f / (1.0f + std::exp(-x)); });
}

LookupTable MakeTanhTable(const ByteFormat& input, const ByteFormat& output) {
  return MakeFloatTable(input, output, [](float x) { return std::tanh(x); });
}

LookupTable MakeExpTable(const ByteFormat& input, const ByteFormat& output) {
  return MakeFloatTable(input, output, [](float x) { return std::exp(x); });
}

void ApplyTable(const LookupTable& table, const uint8_t* input, uint8_t* output, int64_t count) {
  for (int64_t i = 0; i < count; ++i) output[i] = table[input[i]];
}

}  // namespace atollrt
