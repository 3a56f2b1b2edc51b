// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/mean.h"

#include <algorithm>

namespace atollrt {
namespace {

// Channels are taken in blocks whose sums stay in the first-level cache.
constexpr int32_t kBlock = 256;

template <typename Byte>
void MeanOfBlock(const MeanParams& p, const Byte* input, int32_t count, uint8_t* output) {
  uint32_t sums[kBlock] = {};
  for (int32_t i = 0; i < p.positions; ++i, input += p.channels) {
    for (int32_t c = 0; c < count; ++c) sums[c] += static_cast<uint32_t>(input[c]);
  }
  const uint32_t zeros =
      static_cast<uint32_t>(p.input_zero_point) * static_cast<uint32_t>(p.positions);
  for (int32_t c = 0; c < count; ++c) {
    const int32_t scaled =
        MultiplyByQuantizedMultiplier(static_cast<int32_t>(sums[c] - zeros), p.multiplier);
    const uint32_t value =
        static_cast<uint32_t>(scaled) + static_cast<uint32_t>(p.output_zero_point);
    output[c] = static_cast<uint8_t>(Clamp(static_cast<int32_t>(value), p.clamp.min, p.clamp.max));
  }
}

template <typename Byte>
void MeanOfImages(const MeanParams& p, const Byte* input, uint8_t* output) {
  for (int32_t n = 0; n < p.batch; ++n) {
    for (int32_t c = 0; c < p.channels; c += kBlock) {
      MeanOfBlock(p, input + c, std::min(kBlock, p.channels - c), output + c);
    }
    input += int64_t{p.positions} * p.channels;
    output += p.channels;
  }
}

}  // namespace

void Mean(const MeanParams& params, const uint8_t* input, uint8_t* output) {
  if (params.type == ByteType::kUInt8) {
    MeanOfImages<uint8_t>(params, input, output);
  } else {
    MeanOfImages<int8_t>(params, reinterpret_cast<const int8_t*>(input), output);
  }
}

}  // namespace atollrt
