// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/softmax_float.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/bytes.h"

namespace atollrt {

void SoftmaxFloat(int64_t rows, int32_t depth, float beta, const uint8_t* input, uint8_t* output) {
  float* out = reinterpret_cast<float*>(output);
  for (int64_t row = 0; row < rows; ++row, out += depth, input += int64_t{4} * depth) {
    const auto x = [&](int64_t i) { return LoadLittleEndian<float>(input + 4 * i); };
    float max = x(0);
    for (int32_t i = 1; i < depth; ++i) max = std::max(max, x(i));
    float sum = 0;
    for (int32_t i = 0; i < depth; ++i) {
      out[i] = std::exp((x(i) - max) * beta);
      sum += out[i];
    }
    for (int32_t i = 0; i < depth; ++i) out[i] /= sum;
  }
}

}  // namespace atollrt
