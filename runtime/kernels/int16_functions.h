// SPDX-License-Identifier: Apache-2.0
//
// Functions of int16 with int16 results, as TensorFlow Lite's reference kernels compute them
// (docs/quantization.md, "Functions of int16"): by tables, and straight lines between their
// entries. Zero points are 0, results are in units of 2^-15. Thread-safe.
#pragma once

#include <cstdint>

#include "runtime/kernels/quantization/quantization.h"

namespace atollrt {

// Brings an input of LOGISTIC or TANH to units of 1/12288: x * multiplier / 2^shift, halves up.
// 0 <= multiplier < 2^16, 0 <= shift <= 31.
struct SigmoidScale {
  int32_t multiplier = 0;
  int32_t shift = 0;
};
// The largest scale of an input whose products fit 32 bits.
inline constexpr float kMaxSigmoidScale = 65535.0f / 12288;
// Of an input with 0 < scale <= kMaxSigmoidScale. A scale that is nearly 1/4096, and for TANH
// 1/2048, counts as that.
SigmoidScale MakeLogisticScale(float scale);
SigmoidScale MakeTanhScale(float scale);

// y[i] = 1 / (1 + exp(-x[i])) and tanh(x[i]). `count` numbers, little-endian; y may be x.
void Logistic16(SigmoidScale scale, const uint8_t* x, uint8_t* y, int64_t count);
void Tanh16(SigmoidScale scale, const uint8_t* x, uint8_t* y, int64_t count);

// y = exp(beta * x) / (the sum of these along the row).
class Softmax16 {
 public:
  static constexpr int32_t kMaxDepth = 1 << 16;  // more could exceed a sum of 32 bits
  // The largest product of the input's scale and beta, for which the difference of two inputs fits
  // 32 bits. (It does so up to 32768 * 10 / 65535.)
  static constexpr float kMaxScale = 5.0f;

  // `scale` is the input's times beta, 0 < scale <= kMaxScale.
  explicit Softmax16(float scale)
      : multiplier_(QuantizeMultiplier(static_cast<double>(scale) / (10.0 / 65535.0))) {}

  // Rows of 0 < depth <= kMaxDepth numbers each, little-endian; y may be x.
  void Run(const uint8_t* x, uint8_t* y, int64_t rows, int32_t depth) const;

 private:
  Multiplier multiplier_;  // to units of 10 / 65535
};

}  // namespace atollrt
