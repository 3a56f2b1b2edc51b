// SPDX-License-Identifier: Apache-2.0
//
// Loops over float32 that are written as vectors: exponential functions, and sums of products along
// rows. Their one source (float_loops.inc) is compiled once per instruction set, and a FloatLoops
// holds what came out. Part of libatoll, not of libatoll-core (ops/apart_ops.h).
//
// Functions of one number are within 4 units in the last place of the exact value and give the same
// bytes at every level. Sums of products are fused and ordered as the vectors of a level are, so
// that levels differ in the last places; they never depend on how many threads share the work.
//
// No loop keeps state or allocates. Operands may be unaligned and counts 0. ISA files include this
// header, hence no inline functions here.
#pragma once

#include <cstdint>

namespace atollrt {

// What is written NaN comes out as NaN.
enum class FloatMap : uint8_t {
  kExp,
  kLogistic,  // 1 / (1 + exp(-x))
  kTanh,
  kElu,  // x > 0 ? x : exp(x) - 1
  kAbs,
  kNegate,
  kSquare,
};
// y may be x, but not overlap it otherwise.
using FloatMapFn = void (*)(const uint8_t* x, uint8_t* y, int64_t count);

struct FloatLoops {
  FloatMapFn (*map)(FloatMap map);

  // y[r] += sum over i of weights[r, i] * x[i], for `rows` rows of `depth`.
  void (*add_products)(const uint8_t* weights, const uint8_t* x, int64_t rows, int64_t depth,
                       float* y);
};

#define ATOLL_FLOAT_LOOPS(name, features) extern const FloatLoops name;
#include "runtime/kernels/float_loops/kernels.inc"
#undef ATOLL_FLOAT_LOOPS

// The fastest for a CPU with `features` (a CpuFeatures); choose once, when preparing.
const FloatLoops& ChooseFloatLoops(uint32_t features);

}  // namespace atollrt
