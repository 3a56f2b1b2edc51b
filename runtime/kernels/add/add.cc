// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/add/add.h"

namespace atollrt {

void ReferenceAdd(const AddParams& p, const uint8_t* a, const uint8_t* b, uint8_t* output,
                  int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const int32_t x = (ByteValue(a[i], p.type) - p.input1_zero_point) * (1 << p.left_shift);
    const int32_t y = (ByteValue(b[i], p.type) - p.input2_zero_point) * (1 << p.left_shift);
    const int32_t scaled_x = MultiplyByQuantizedMultiplier(x, p.input1);
    const int32_t scaled_y = MultiplyByQuantizedMultiplier(y, p.input2);
    const int32_t sum =
        p.kind == AddKind::kSubtract ? scaled_x - scaled_y : scaled_x + scaled_y;
    output[i] = static_cast<uint8_t>(
        Clamp(MultiplyByQuantizedMultiplier(sum, p.output) + p.output_zero_point, p.clamp.min,
              p.clamp.max));
  }
}

AddFn ChooseAdd(CpuFeatures) { return ReferenceAdd; }

}  // namespace atollrt
