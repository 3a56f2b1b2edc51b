// SPDX-License-Identifier: Apache-2.0
//
// Quantized ADD and SUB of tensors of equal shapes (docs/quantization.md §7.1):
//
//   a = Multiply((x1 - input1_zero_point) << left_shift, input1),  b likewise with input2
//   y = clamp(Multiply(a +- b, output) + output_zero_point)
//
// with Multiply = MultiplyByQuantizedMultiplier; sums and shifts wrap in 32 bits. Every kernel
// equals ReferenceAdd for all parameters. All functions are thread-safe. ISA files include this
// header, hence no inline functions here.
#pragma once

#include <cstdint>

#include "runtime/kernels/quantization.h"

namespace atollrt {

enum class AddKind : uint8_t { kAdd = 0, kSubtract = 1 };

struct AddParams {
  AddKind kind = AddKind::kAdd;
  ByteType type = ByteType::kInt8;  // of both inputs and the output
  int32_t input1_zero_point = 0;    // all within the type's range
  int32_t input2_zero_point = 0;
  int32_t output_zero_point = 0;
  Multiplier input1, input2, output;
  int32_t left_shift = 20;
  ClampRange clamp;
};

// y[i] from x1[i] and x2[i] for i < count. `y` may be x1 or x2, but not overlap them otherwise.
// Reads and writes exactly `count` bytes of each.
using AddFn = void (*)(const AddParams& params, const uint8_t* x1, const uint8_t* x2, uint8_t* y,
                       int64_t count);

#define ATOLL_ADD_KERNEL(name, features)                                               \
  void name(const AddParams& params, const uint8_t* x1, const uint8_t* x2, uint8_t* y, \
            int64_t count);
#include "runtime/kernels/add/kernels.inc"
#undef ATOLL_ADD_KERNEL

// The fastest kernel for a CPU with `features` (a CpuFeatures); choose once, when preparing.
AddFn ChooseAdd(uint32_t features);

// The kernels' own: whether the arithmetic of requantize_avx2.h holds for these parameters. The
// ones that TensorFlow Lite computes always do.
bool IsVectorizable(const AddParams& params);

// Whether Multiply(x << left_shift, multiplier) is just x << (left_shift - 1): true of the input
// with the larger scale.
bool IsHalf(Multiplier multiplier);

}  // namespace atollrt
