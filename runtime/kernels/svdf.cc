// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/svdf.h"

#include <cstring>

#include "runtime/base/bytes.h"
#include "runtime/kernels/fixed_point16.h"

namespace atollrt {
namespace {

// Sums are taken modulo 2^32.

void Remember(const SvdfParams& p, int32_t filter, const int8_t* x, int16_t* state) {
  std::memmove(state, state + 1, static_cast<size_t>(p.memory - 1) * sizeof(int16_t));
  const int8_t* features = p.features + int64_t{filter} * p.inputs;
  uint32_t sum = 0;
  for (int32_t i = 0; i < p.inputs; ++i) {
    sum += static_cast<uint32_t>(features[i] * (x[i] - p.input_zero_point));
  }
  state[p.memory - 1] = static_cast<int16_t>(SaturateToInt16(
      MultiplyByQuantizedMultiplier(static_cast<int32_t>(sum), p.feature_multiplier)));
}

uint32_t WeightedByTime(const SvdfParams& p, int32_t filter, const int16_t* state) {
  const uint8_t* time = p.time + int64_t{filter} * p.memory * 2;
  uint32_t sum = 0;
  for (int32_t i = 0; i < p.memory; ++i) {
    sum += static_cast<uint32_t>(state[i] * LoadLittleEndian<int16_t>(time + 2 * int64_t{i}));
  }
  return sum;
}

}  // namespace

void Svdf(const SvdfParams& p, const int8_t* x, int16_t* state, int8_t* y) {
  for (int32_t b = 0; b < p.batch; ++b) {
    for (int32_t u = 0; u < p.units; ++u) {
      uint32_t sum =
          p.bias == nullptr
              ? 0
              : static_cast<uint32_t>(LoadLittleEndian<int32_t>(p.bias + 4 * int64_t{u}));
      for (int32_t r = 0; r < p.rank; ++r) {
        Remember(p, u * p.rank + r, x, state);
        sum += WeightedByTime(p, u * p.rank + r, state);
        state += p.memory;
      }
      const int64_t scaled =
          int64_t{MultiplyByQuantizedMultiplier(static_cast<int32_t>(sum), p.output_multiplier)} +
          p.output_zero_point;
      *y++ = static_cast<int8_t>(scaled < INT8_MIN ? INT8_MIN
                                                   : (scaled > INT8_MAX ? INT8_MAX : scaled));
    }
    x += p.inputs;
  }
}

}  // namespace atollrt
