// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/lookup_table.h"

#include <cmath>

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
    // Clamped as floats: y may be far outside int32.
    const float lo = static_cast<float>(ByteMin(output.type));
    const float hi = static_cast<float>(ByteMax(output.type));
    table[byte] = static_cast<uint8_t>(static_cast<int32_t>(y < lo ? lo : (y > hi ? hi : y)));
  }
  return table;
}

}  // namespace

LookupTable MakeRequantizeTable(const ByteFormat& input, const ByteFormat& output,
                                Multiplier multiplier, ClampRange clamp) {
  LookupTable table;
  for (int byte = 0; byte < 256; ++byte) {
    const int32_t value = ByteValue(static_cast<uint8_t>(byte), input.type);
    const uint32_t scaled =
        static_cast<uint32_t>(MultiplyByQuantizedMultiplier(value - input.zero_point, multiplier));
    const int32_t y = static_cast<int32_t>(scaled + static_cast<uint32_t>(output.zero_point));
    table[byte] = static_cast<uint8_t>(Clamp(y, clamp.min, clamp.max));
  }
  return table;
}

LookupTable MakeLogisticTable(const ByteFormat& input, const ByteFormat& output) {
  return MakeFloatTable(input, output, [](float x) { return 1.0f / (1.0f + std::exp(-x)); });
}

LookupTable MakeTanhTable(const ByteFormat& input, const ByteFormat& output) {
  return MakeFloatTable(input, output, [](float x) { return std::tanh(x); });
}

void ApplyTable(const LookupTable& table, const uint8_t* input, uint8_t* output, int64_t count) {
  for (int64_t i = 0; i < count; ++i) output[i] = table[input[i]];
}

}  // namespace atollrt
