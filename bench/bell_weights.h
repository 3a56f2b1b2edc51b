// SPDX-License-Identifier: Apache-2.0
//
// Weights for benchmarks, distributed like those of real models.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/kernels/quantization/quantization.h"

namespace atollrt {

inline constexpr int32_t kUInt8WeightZeroPoint = 121;

// Bell-shaped around the zero point, with the one outlier that determines the range of uint8.
inline void FillBellWeights(ByteType type, std::vector<uint8_t>* weights) {
  uint32_t random = 1;
  for (uint8_t& weight : *weights) {
    int32_t sum = 0;
    for (int i = 0; i < 8; ++i) {
      random = random * 1664525 + 1013904223;
      sum += static_cast<int32_t>(random >> 27);  // below 32
    }
    const int32_t zero_point = type == ByteType::kUInt8 ? kUInt8WeightZeroPoint : 0;
    weight = static_cast<uint8_t>(sum - 124 + zero_point);
  }
  if (type == ByteType::kUInt8) weights->front() = 255;
}

}  // namespace atollrt
