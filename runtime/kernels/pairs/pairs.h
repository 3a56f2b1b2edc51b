// SPDX-License-Identifier: Apache-2.0
//
// Operators of two quantized tensors, element by element (docs/quantization.md §4, §8). With
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
// All functions are thread-safe and allocate nothing. ISA files include this header: see gemm.h.
#pragma once

#include <cstdint>

#include "runtime/kernels/quantization/quantization.h"

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

// ---- Tails --------------------------------------------------------------------------------------
//
// A pair operator that is one with the kernel of one of its operands: as soon as that kernel has
// made a few bytes, while they are in the level 1 cache, they are combined with those of the other
// operand, a tensor of the same size that is there. The bytes are those of the two operators one
// after the other.

struct PairTail {
  PairFn combine = nullptr;
  PairParams params;
  bool is_second = false;  // what the kernel makes is x2

  // `x` of the kernel; y may be x or `other`, but not overlap them otherwise.
  void Run(const uint8_t* x, const uint8_t* other, uint8_t* y, int64_t count) const {
    combine(params, is_second ? other : x, is_second ? x : other, y, count);
  }
};

// Where the tail of a whole tensor finds its operand and puts its result: both have the size of
// what the kernel makes. y may be that tensor or `other`.
struct PairTailOperands {
  const PairTail* tail = nullptr;  // nullptr: none
  const uint8_t* other = nullptr;
  uint8_t* y = nullptr;
};

// ---- Operators that only the CPU runs -----------------------------------------------------------
//
// The plain, exact loops. They read no elements of the operands but those that the broadcast names;
// `pool` may be nullptr.

// y = clamp( a / b through a fixed-point reciprocal, times `output`, + z ). No element of x2 may be
// its zero point. Quotients beyond 32 bits saturate at the clamp. Reads neither `op` nor the
// inputs' multipliers.
void Divide(const PairParams& params, const Broadcast& broadcast, const uint8_t* x1,
            const uint8_t* x2, uint8_t* y, ThreadPool* pool);

enum class Comparison : uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual };

// The integers Multiply(a << 8, input1) and Multiply(b << 8, input2) compared;
// the results are bytes of 0 and 1. Reads no other multiplier, no clamp and no `op`.
void Compare(Comparison comparison, const PairParams& params, const Broadcast& broadcast,
             const uint8_t* x1, const uint8_t* x2, uint8_t* y, ThreadPool* pool);

// ADD and SUB of int16 tensors, whose zero points are 0.
enum class Add16Form : uint8_t {
  kGeneral,      // clamp( Multiply(a +- b, output) ), a = Multiply(x1 << 15, input1), b likewise
  kPowersOfTwo,  // clamp( sat16(RDPOT(x1, shift1) +- RDPOT(x2, shift2)) )
};
struct Add16Params {
  Add16Form form = Add16Form::kGeneral;
  int32_t sign = 1;                   // of the second operand: 1 or -1
  Multiplier input1, input2, output;  // kGeneral
  int32_t shift1 = 0, shift2 = 0;     // kPowersOfTwo; 0 to 31
  ClampRange clamp;                   // within int16
};
void Add16(const Add16Params& params, const Broadcast& broadcast, const uint8_t* x1,
           const uint8_t* x2, uint8_t* y, ThreadPool* pool);

}  // namespace atollrt
