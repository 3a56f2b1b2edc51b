// SPDX-License-Identifier: Apache-2.0
//
// The range that a fused activation leaves of a float32 output.
#pragma once

#include <limits>

namespace atollrt {

struct FloatRange {
  float min = -std::numeric_limits<float>::infinity();
  float max = std::numeric_limits<float>::infinity();
};

// Not-a-number stays.
inline float ClampFloat(float x, FloatRange range) {
  return x < range.min ? range.min : (x > range.max ? range.max : x);
}

}  // namespace atollrt
