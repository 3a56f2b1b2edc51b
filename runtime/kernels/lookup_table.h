// SPDX-License-Identifier: Apache-2.0
//
// Functions of one byte as 256-entry tables: requantization, activations, exp, 1/sqrt. The CPU and
// the device's table instruction use the same tables. Index: the raw input byte. Pure functions.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/kernels/quantization/quantization.h"

namespace atollrt {

using LookupTable = std::array<uint8_t, 256>;

// A byte tensor's type and quantization.
struct ByteFormat {
  ByteType type = ByteType::kInt8;
  float scale = 1.0f;
  int32_t zero_point = 0;
};

// MultiplyByQuantizedMultiplier(x - input zero point, multiplier) + output zero point, clamped:
// QUANTIZE between byte types and the ReLU family.
LookupTable MakeRequantizeTable(const ByteFormat& input, const ByteFormat& output,
                                Multiplier multiplier, ClampRange clamp);

// round(f(scale * (x - zero point)) / output scale) + output zero point in float32
// (docs/quantization.md §6).
LookupTable MakeLogisticTable(const ByteFormat& input, const ByteFormat& output);
LookupTable MakeTanhTable(const ByteFormat& input, const ByteFormat& output);
LookupTable MakeExpTable(const ByteFormat& input, const ByteFormat& output);

// Requantization by `positive` from the zero point on, by sign * `negative` below it
// (docs/quantization.md §6).
struct LeakyReluMultipliers {
  Multiplier positive;
  Multiplier negative;
  int32_t sign = 1;  // -1: the slope is below 0
};
LookupTable MakeLeakyReluTable(const ByteFormat& input, const ByteFormat& output,
                               const LeakyReluMultipliers& multipliers);

// x * min(max(x + 3, 0), 6) / 6 in 16-bit arithmetic. output.scale must be at least
// input.scale / 128.
LookupTable MakeHardSwishTable(const ByteFormat& input, const ByteFormat& output);

// 1 / sqrt(x). Entries below the input's zero point, whose roots do not exist, are the type's
// maximum, like that of the zero point itself.
LookupTable MakeRsqrtTable(const ByteFormat& input, const ByteFormat& output);

// output[i] = table[input[i]]; input and output may be the same.
void ApplyTable(const LookupTable& table, const uint8_t* input, uint8_t* output, int64_t count);

}  // namespace atollrt
