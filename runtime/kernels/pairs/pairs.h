// SPDX-License-Identifier: Apache-2.0
//
// Operators of two byte tensors, element by element (docs/quantization.md §4, §8). With
// a = x1 - input1_zero_point, b = x2 - input2_zero_point and Multiply =
// MultiplyByQuantizedMultiplier:
//
//   kAdd, kSubtract     y = clamp( Multiply(a' +- b', output) + z )
//   kSquaredDifference  y = clamp( Multiply((a' - b')^2, output) + z )
//                       a' = Multiply(a << left_shift, input1),  b' likewise with input2
//   kMultiply           y = clamp( Multiply(a * b, output) + z )
//   kPrelu              y = clamp( (a >= 0 ? Multiply(a, input1) : Multiply(a * b, output)) + z )
//   kMaximum, kMinimum  of x1 and x2 as they are; nothing but `type` is read
//
// Sums, shifts and squares wrap in 32 bits. A kernel takes operands of equal sizes and equals
// CombinePairsReference for all parameters; CombineBroadcast brings other operands to that form.
// All functions are thread-safe and allocate nothing. ISA files include this header, hence no
// inline functions here.
#pragma once

#include <cstdint>

#include "runtime/kernels/quantization.h"

namespace atollrt {

struct Broadcast;
class ThreadPool;

enum class PairOp : uint8_t {
  kAdd,
  kSubtract,
  kSquaredDifference,
  kMultiply,
  kPrelu,
  kMaximum,
  kMinimum
};

// Zero points are within the type's range, multipliers not negative with exponents of -31 to 127.
struct PairParams {
  PairOp op = PairOp::kAdd;
  ByteType type = ByteType::kInt8;  // of both inputs and the output
  int32_t input1_zero_point = 0;
  int32_t input2_zero_point = 0;
  int32_t output_zero_point = 0;
  Multiplier input1, input2, output;
  int32_t left_shift = 0;  // 0 to 31
  ClampRange clamp;
};

// y[i] from x1[i] and x2[i] for i < count. `y` may be x1 or x2, but not overlap them otherwise.
// Reads and writes exactly `count` bytes of each.
using PairFn = void (*)(const PairParams& params, const uint8_t* x1, const uint8_t* x2, uint8_t* y,
                        int64_t count);

#define ATOLL_PAIR_KERNEL(name, features)                                               \
  void name(const PairParams& params, const uint8_t* x1, const uint8_t* x2, uint8_t* y, \
            int64_t count);
#include "runtime/kernels/pairs/kernels.inc"
#undef ATOLL_PAIR_KERNEL

// The fastest kernel for a CPU with `features` (a CpuFeatures); choose once, when preparing.
PairFn ChoosePairs(uint32_t features);

// The same for operands that repeat: y has broadcast.count elements. Operands of long runs go to
// the kernel run by run; short runs are gathered until it is worth a call. `y` may be an operand
// of its own size. Strides of the inner loop are 0 or 1, also both 0. `pool` may be nullptr.
void CombineBroadcast(PairFn combine, const PairParams& params, const Broadcast& broadcast,
                      const uint8_t* x1, const uint8_t* x2, uint8_t* y, ThreadPool* pool);

// The kernels' own: whether the arithmetic of requantize_avx2.h holds for these parameters. The
// ones that TensorFlow Lite computes do.
bool IsVectorizable(const PairParams& params);

// Whether Multiply(x << left_shift, multiplier) is just x << (left_shift - 1): true of the input
// with the larger scale.
bool IsHalf(Multiplier multiplier);

}  // namespace atollrt
