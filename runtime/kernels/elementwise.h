// SPDX-License-Identifier: Apache-2.0
//
// Quantized operators of two operands, with broadcasting (docs/quantization.md §8): the plain,
// exact loops. x1, x2 and the output are tensors of `type`; multipliers are applied with
// MultiplyByQuantizedMultiplier ("Multiply"), sums and shifts wrap in 32 bits. ADD and SUB of
// bytes have kernels of their own (add/add.h).
//
// All functions write broadcast.count elements and read no other elements of the operands than
// the broadcast names. Thread-safe.
#pragma once

#include <cstdint>

#include "runtime/kernels/broadcast.h"
#include "runtime/kernels/quantization.h"

namespace atollrt {

// Zero points are within the type's range. Which multipliers an operator reads is said below.
struct PairParams {
  ByteType type = ByteType::kInt8;
  int32_t input1_zero_point = 0;
  int32_t input2_zero_point = 0;
  int32_t output_zero_point = 0;
  Multiplier input1, input2, output;
  ClampRange clamp;
};

using PairKernel = void (*)(const PairParams& params, const Broadcast& broadcast, const uint8_t* x1,
                            const uint8_t* x2, uint8_t* y);

// clamp( Multiply((x1 - z1) * (x2 - z2), output) + z )
void Multiply(const PairParams& params, const Broadcast& broadcast, const uint8_t* x1,
              const uint8_t* x2, uint8_t* y);

// (x1 - z1) / (x2 - z2) through a fixed-point reciprocal, times `output`. No element of x2 may be
// its zero point. Quotients beyond 32 bits saturate at the clamp.
void Divide(const PairParams& params, const Broadcast& broadcast, const uint8_t* x1,
            const uint8_t* x2, uint8_t* y);

// clamp( Multiply((a - b)^2, output) + z ) with a = Multiply((x1 - z1) << 7, input1), b likewise
void SquaredDifference(const PairParams& params, const Broadcast& broadcast, const uint8_t* x1,
                       const uint8_t* x2, uint8_t* y);

// x1 >= z1: clamp( Multiply(x1 - z1, input1) + z )
// else:     clamp( Multiply((x1 - z1) * (x2 - z2), output) + z ), x2 being the slopes
void Prelu(const PairParams& params, const Broadcast& broadcast, const uint8_t* x1,
           const uint8_t* x2, uint8_t* y);

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
// the results are bytes of 0 and 1.
void Compare(Comparison comparison, const PairParams& params, const Broadcast& broadcast,
             const uint8_t* x1, const uint8_t* x2, uint8_t* y);

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
           const uint8_t* x2, uint8_t* y);

}  // namespace atollrt
