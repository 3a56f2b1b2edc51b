// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/kernels/conv2d_wide.h"
#include "tests/runtime/kernels/filter_sums.h"
#include "tests/runtime/kernels/random_conv.h"

namespace atollrt {
namespace {

int16_t Expected(const Conv2DInt16Params& p, int64_t sum, int32_t channel) {
  const Output16Channel& c = p.channels[channel];
  sum += c.bias;
  if (p.mode == Requantize16Mode::kDouble) {
    const double value = std::round(static_cast<double>(sum) * c.scale);
    return static_cast<int16_t>(
        std::min<double>(std::max<double>(value, p.clamp.min), p.clamp.max));
  }
  const int32_t value =
      p.mode == Requantize16Mode::kWide
          ? MultiplyByQuantizedMultiplier64(sum, c.multiplier)
          : MultiplyByQuantizedMultiplier(static_cast<int32_t>(sum), c.multiplier);
  return static_cast<int16_t>(Clamp(value, p.clamp.min, p.clamp.max));
}

TEST(Conv2DInt16, FollowsItsFormula) {
  Rng rng(TestSeed(1));
  ThreadPool pool(2);
  for (int i = 0; i < 300; ++i) {
    Conv2DInt16Params p;
    p.shape = RandomGeometry(&rng, 7);
    ConvShape& s = p.shape;
    p.kind = rng.OneIn(2) ? FilterKind::kConv : FilterKind::kDepthwise;
    const bool is_conv = p.kind == FilterKind::kConv;
    const int32_t groups = is_conv ? rng.Pick<int32_t>({1, 1, 2}) : 1;
    s.groups = groups;
    s.input_c = groups * rng.Pick<int32_t>({1, 3, 8, 70});
    s.output_c = is_conv ? groups * rng.Int32(1, 5) : s.input_c * rng.Int32(1, 3);
    const int64_t depth = int64_t{s.kernel_h} * s.kernel_w * (is_conv ? s.input_c / groups : 1);
    const std::vector<int16_t> input = RandomInt16(&rng, s.InputBytes());
    const std::vector<int8_t> weights = RandomInt8(&rng, depth * s.output_c);
    p.weights = BytesOf(weights);
    p.mode = rng.Pick<Requantize16Mode>(
        {Requantize16Mode::kWide, Requantize16Mode::kFixedPoint, Requantize16Mode::kDouble});
    if (rng.OneIn(3)) p.clamp = {0, rng.Int32(1, INT16_MAX)};
    for (int32_t c = 0; c < s.output_c; ++c) {
      const double real = (rng.Real() + 0.01) * 0.02 / std::sqrt(static_cast<double>(depth));
      const int64_t bias = rng.Int(-100000, 100000);
      p.channels.push_back({.bias = bias, .multiplier = QuantizeMultiplier(real), .scale = real});
    }
    std::vector<int16_t> expected;
    for (const int64_t sum : FilterSums<int64_t>(s, p.kind, input, weights)) {
      const int32_t channel = static_cast<int32_t>(expected.size() % s.output_c);
      expected.push_back(Expected(p, sum, channel));
    }
    const Result<Conv2DInt16> conv = Conv2DInt16::Prepare(p, kBaseline);
    ASSERT_TRUE(conv.ok());
    std::vector<int16_t> output(expected.size());
    std::vector<uint64_t> scratch(conv->ScratchBytes(2) / 8 + 1);
    conv->Run(BytesOf(input), BytesOf(output), BytesOf(scratch), &pool);
    ASSERT_EQ(output, expected) << "case " << i;
  }
}

}  // namespace
}  // namespace atollrt
