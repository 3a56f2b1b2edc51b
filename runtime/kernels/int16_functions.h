// SPDX-License-Identifier: Apache-2.0
//
// Functions of int16 with int16 results, as TensorFlow Lite's reference kernels compute them
// (docs/quantization.md, "Functions of int16"): by tables, and straight lines between their
// entries. Zero points are 0, results are in units of 2^-15. Thread-safe.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/kernels/quantization/quantization.h"

namespace atollrt {

// Brings an input of LOGISTIC or TANH to units of 1/12288: x * multiplier / 2^shift, halves up.
// 0 <= multiplier < 2^15, 0 <= shift <= 31.
struct SigmoidScale {
  int32_t multiplier = 0;
  int32_t shift = 0;
};
// The largest scale of an input for which that is defined.
inline constexpr float kMaxSigmoidScale = 32767.0f / 12288;
// 0 < scale <= kMaxSigmoidScale.
SigmoidScale MakeSigmoidScale(float scale);

// y[i] = 1 / (1 + exp(-x[i])). `count` numbers, little-endian; y may be x.
void Logistic16(SigmoidScale scale, const uint8_t* x, uint8_t* y, int64_t count);
void Tanh16(SigmoidScale scale, const uint8_t* x, uint8_t* y, int64_t count);

class Softmax16 {
 public:
  static constexpr int32_t kMaxDepth = 1 << 16;  // more could exceed a sum of 32 bits
  // The largest product of the input's scale and beta: of any more the difference of two inputs
  // would not fit 32 bits.
  static constexpr float kMaxScale = 4.0f;

  // `scale` is the input's times beta, 0 < scale <= kMaxScale.
  explicit Softmax16(float scale);

  // Rows of 0 < depth <= kMaxDepth numbers each, little-endian; y may be x.
  void Run(const uint8_t* x, uint8_t* y, int64_t rows, int32_t depth) const;

 private:
  // Of a function's values at 513 places, the first for INT16_MIN, the last for 2^15.
  using Table = std::array<int16_t, 513>;

  template <typename Function>
  static Table MakeTable(double first, double last, const Function& function);
  static int32_t LookUp(const Table& table, int32_t x);

  Multiplier multiplier_;  // to units of 10 / 65535
  Table exponential_;      // from -10 to 0
  Table reciprocal_;       // of 1 + x, from 0 to 1
};

}  // namespace atollrt
