// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/add/add.h"

#include "runtime/kernels/cpu_features.h"

namespace atollrt {
namespace {

bool IsBelowHalf(Multiplier m) { return m.value >= 0 && m.exponent <= -1 && m.exponent >= -31; }

}  // namespace

AddFn ChooseAdd(uint32_t features) {
#define ATOLL_ADD_KERNEL(name, needed) \
  if (Supports(features, needed)) return name;
#include "runtime/kernels/add/kernels.inc"
#undef ATOLL_ADD_KERNEL
  return ReferenceAdd;
}

bool IsHalf(Multiplier multiplier) { return multiplier == Multiplier{1 << 30, 0}; }

bool IsVectorizable(const AddParams& p) {
  // Inputs of 8 bits and a sign, shifted by 20 and at most halved: a +- b stays below 2^29.
  return p.left_shift >= 1 && p.left_shift <= 20 && (IsHalf(p.input1) || IsBelowHalf(p.input1)) &&
         (IsHalf(p.input2) || IsBelowHalf(p.input2)) && IsBelowHalf(p.output);
}

void ReferenceAdd(const AddParams& params, const uint8_t* x1, const uint8_t* x2, uint8_t* y,
                  int64_t count) {
  const auto rescale = [&](uint8_t byte, int32_t zero_point, Multiplier multiplier) {
    const uint32_t value = static_cast<uint32_t>(ByteValue(byte, params.type) - zero_point);
    return static_cast<uint32_t>(MultiplyByQuantizedMultiplier(
        static_cast<int32_t>(value << params.left_shift), multiplier));
  };
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t a = rescale(x1[i], params.input1_zero_point, params.input1);
    const uint32_t b = rescale(x2[i], params.input2_zero_point, params.input2);
    const uint32_t sum = params.kind == AddKind::kAdd ? a + b : a - b;
    const uint32_t scaled = static_cast<uint32_t>(
        MultiplyByQuantizedMultiplier(static_cast<int32_t>(sum), params.output));
    const int32_t result =
        static_cast<int32_t>(scaled + static_cast<uint32_t>(params.output_zero_point));
    y[i] = static_cast<uint8_t>(Clamp(result, params.clamp.min, params.clamp.max));
  }
}

}  // namespace atollrt
