// SPDX-License-Identifier: Apache-2.0
//
// Quantized ADD and SUB of two byte tensors of equal shape with different scales
// (docs/quantization.md §4).
#pragma once

#include <cstdint>

#include "runtime/kernels/cpu_features.h"
#include "runtime/kernels/quantization.h"

namespace atollrt {

enum class AddKind : uint8_t { kAdd, kSubtract };

struct AddParams {
  ByteType type = ByteType::kInt8;
  AddKind kind = AddKind::kAdd;
  int32_t left_shift = 20;
  int32_t input1_zero_point = 0;
  int32_t input2_zero_point = 0;
  int32_t output_zero_point = 0;
  Multiplier input1;
  Multiplier input2;
  Multiplier output;
  ClampRange clamp{-128, 127};
};

// output[i] = clamp(scaled a[i] +- scaled b[i]); the output may be one of the inputs.
using AddFn = void (*)(const AddParams& params, const uint8_t* a, const uint8_t* b,
                       uint8_t* output, int64_t count);

void ReferenceAdd(const AddParams& params, const uint8_t* a, const uint8_t* b, uint8_t* output,
                  int64_t count);
AddFn ChooseAdd(CpuFeatures features);

}  // namespace atollrt
