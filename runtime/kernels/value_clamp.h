// SPDX-License-Identifier: Apache-2.0
//
// What a fused activation leaves of values that are not quantized.
#pragma once

#include <limits>

namespace atollrt {

// Without an activation TensorFlow Lite still clamps to the finite range of the type, so infinities
// become its limits.
template <typename T>
struct ValueClamp {
  T min = std::numeric_limits<T>::lowest();
  T max = std::numeric_limits<T>::max();
  // Not-a-number stays what it is.
  T operator()(T x) const {
    const T bounded = x < min ? min : x;
    return max < bounded ? max : bounded;
  }
};

}  // namespace atollrt
