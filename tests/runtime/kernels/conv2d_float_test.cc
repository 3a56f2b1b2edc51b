// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>

#include "runtime/kernels/conv2d_wide.h"
#include "tests/runtime/kernels/filter_sums.h"
#include "tests/runtime/kernels/random_conv.h"

namespace atollrt {
namespace {

TEST(Conv2DFloat, FollowsItsFormula) {
  Rng rng(TestSeed(1));
  ThreadPool pool(2);
  for (int i = 0; i < 300; ++i) {
    Conv2DFloatParams p;
    // A dense layer of few rows takes tiles of its own.
    if (!rng.OneIn(4)) p.shape = RandomGeometry(&rng, 7);
    p.shape.batch = rng.Int32(1, 3);
    ConvShape& s = p.shape;
    p.kind = rng.OneIn(2) ? FilterKind::kConv : FilterKind::kDepthwise;
    const bool is_conv = p.kind == FilterKind::kConv;
    s.groups = is_conv ? rng.Pick<int32_t>({1, 1, 2}) : 1;
    s.input_c = s.groups * rng.Int32(1, 9);
    s.output_c = is_conv ? s.groups * rng.Int32(1, 70) : s.input_c * rng.Int32(1, 3);
    const int64_t depth = int64_t{s.kernel_h} * s.kernel_w * (is_conv ? s.input_c / s.groups : 1);
    const std::vector<float> input = RandomFloats(&rng, s.InputBytes());
    const std::vector<float> weights = RandomFloats(&rng, depth * s.output_c);
    const std::vector<float> bias = RandomFloats(&rng, s.output_c);
    p.weights = BytesOf(weights);
    p.bias = rng.OneIn(3) ? nullptr : BytesOf(bias);
    if (rng.OneIn(3)) p.clamp = {0, 6};
    const std::vector<double> sums = FilterSums<double>(s, p.kind, input, weights);
    const Result<Conv2DFloat> conv = Conv2DFloat::Prepare(p, kBaseline);
    ASSERT_TRUE(conv.ok());
    std::vector<float> output(sums.size());
    std::vector<uint64_t> scratch(conv->ScratchBytes(2) / 8 + 1);
    conv->Run(BytesOf(input), BytesOf(output), BytesOf(scratch), &pool);
    for (size_t j = 0; j < sums.size(); ++j) {
      const double b = p.bias == nullptr ? 0 : static_cast<double>(bias[j % s.output_c]);
      const float expected = p.clamp(static_cast<float>(sums[j] + b));
      ASSERT_NEAR(output[j], expected, 1e-6 * static_cast<double>(depth + 1)) << "case " << i;
    }
  }
}

TEST(Conv2DFloat, HasFiniteResultsWithoutAnActivationToo) {
  Conv2DFloatParams p;
  const float large = std::numeric_limits<float>::max();
  p.weights = reinterpret_cast<const uint8_t*>(&large);
  const auto conv = Conv2DFloat::Prepare(p, kBaseline);
  ASSERT_TRUE(conv.ok());
  std::vector<uint64_t> scratch(conv->ScratchBytes(1) / 8 + 1);
  for (const float x : {-2.0f, 2.0f}) {
    float y = 0;
    conv->Run(reinterpret_cast<const uint8_t*>(&x), reinterpret_cast<uint8_t*>(&y),
              reinterpret_cast<uint8_t*>(scratch.data()), nullptr);
    EXPECT_EQ(y, x < 0 ? -large : large) << "as TensorFlow Lite clamps";
  }
}

}  // namespace
}  // namespace atollrt
