// SPDX-License-Identifier: Apache-2.0
//
// Quantized operators of two operands with broadcasting that only the CPU runs
// (docs/quantization.md §8): the plain, exact loops. x1, x2 and the output are tensors of `type`;
// multipliers are applied with MultiplyByQuantizedMultiplier ("Multiply"), sums and shifts wrap in
// 32 bits. Those that the device runs, too, have faster kernels (pairs/pairs.h).
//
// All functions write broadcast.count elements and read no other elements of the operands than
// the broadcast names, on `pool` unless that is nullptr. Thread-safe.
#pragma once

#include <cstdint>

#include "runtime/kernels/broadcast.h"
#include "runtime/kernels/pairs/pairs.h"
#include "runtime/kernels/quantization.h"

namespace atollrt {

// (x1 - z1) / (x2 - z2) through a fixed-point reciprocal, times `output`. No element of x2 may be
// its zero point. Quotients beyond 32 bits saturate at the clamp. Reads neither `op` nor the
// inputs' multipliers.
void Divide(const PairParams& params, const Broadcast& broadcast, const uint8_t* x1,
            const uint8_t* x2, uint8_t* y, ThreadPool* pool);

enum class Comparison : uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual };

// function(predicate of two values): one instantiation per comparison.
template <typename Function>
void WithComparison(Comparison comparison, Function function) {
  switch (comparison) {
    case Comparison::kEqual:
      return function([](auto a, auto b) { return a == b; });
    case Comparison::kNotEqual:
      return function([](auto a, auto b) { return a != b; });
    case Comparison::kLess:
      return function([](auto a, auto b) { return a < b; });
    case Comparison::kLessEqual:
      return function([](auto a, auto b) { return a <= b; });
    case Comparison::kGreater:
      return function([](auto a, auto b) { return a > b; });
    case Comparison::kGreaterEqual:
      return function([](auto a, auto b) { return a >= b; });
  }
}

// The integers Multiply((x1 - z1) << 8, input1) and Multiply((x2 - z2) << 8, input2) compared;
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
