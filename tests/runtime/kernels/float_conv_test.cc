// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/float_conv.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <tuple>
#include <vector>

#include "tests/runtime/kernels/filter_sums.h"
#include "tests/runtime/kernels/float_levels.h"
#include "tests/runtime/kernels/random_conv.h"

namespace atollrt {
namespace {

struct Case {
  Conv2DFloatParams params;
  std::vector<float> input, weights, bias;
};

std::vector<float> RunOn(const FloatConv& conv, const ConvShape& s, const uint8_t* input,
                         ThreadPool* pool) {
  std::vector<float> output(static_cast<size_t>(s.OutputBytes()));
  const auto threads = static_cast<size_t>(pool == nullptr ? 1 : pool->threads());
  Result<Buffer> scratch = Buffer::Allocate(conv.ScratchBytes(static_cast<int>(threads)));
  EXPECT_TRUE(scratch.ok());
  conv.Run(input, reinterpret_cast<uint8_t*>(output.data()), scratch->data(), pool);
  return output;
}

// Against sums in double precision, at every level; the same bytes for every number of threads and
// for an input at any address.
void Check(const Case& test) {
  const ConvShape& s = test.params.shape;
  const int64_t depth = int64_t{s.kernel_h} * s.kernel_w * (s.input_c / s.groups);
  const std::vector<double> sums =
      FilterSums<double>(s, FilterKind::kConv, test.input, test.weights);
  ThreadPool two(2);
  ThreadPool three(3);
  std::vector<uint8_t> moved(test.input.size() * 4 + 1);
  std::memcpy(moved.data() + 1, test.input.data(), test.input.size() * 4);
  for (const CpuFeatures level : FloatProductLevels()) {
    const Result<FloatConv> conv = FloatConv::Prepare(test.params, level);
    ASSERT_TRUE(conv.ok());
    const std::vector<float> output = RunOn(*conv, s, BytesOf(test.input), nullptr);
    for (size_t j = 0; j < sums.size(); ++j) {
      const double bias = test.params.bias == nullptr
                              ? 0
                              : static_cast<double>(test.bias[j % static_cast<size_t>(s.output_c)]);
      const float expected = test.params.clamp(static_cast<float>(sums[j] + bias));
      ASSERT_NEAR(output[j], expected, 1e-6 * static_cast<double>(depth + 1)) << j;
    }
    EXPECT_EQ(RunOn(*conv, s, BytesOf(test.input), &two), output);
    EXPECT_EQ(RunOn(*conv, s, BytesOf(test.input), &three), output);
    EXPECT_EQ(RunOn(*conv, s, moved.data() + 1, &two), output);
  }
}

Case RandomCase(Rng* rng, const ConvShape& shape) {
  Case test;
  test.params.shape = shape;
  const int64_t depth = int64_t{shape.kernel_h} * shape.kernel_w * (shape.input_c / shape.groups);
  test.input = RandomFloats(rng, shape.InputBytes());
  test.weights = RandomFloats(rng, depth * shape.output_c);
  test.bias = RandomFloats(rng, shape.output_c);
  test.params.weights = BytesOf(test.weights);
  test.params.bias = rng->OneIn(3) ? nullptr : BytesOf(test.bias);
  if (rng->OneIn(3)) test.params.clamp = {0, 6};
  return test;
}

TEST(FloatConv, FollowsItsFormula) {
  Rng rng(TestSeed(1));
  for (int i = 0; i < 200; ++i) {
    SCOPED_TRACE(i);
    ConvShape shape;
    if (!rng.OneIn(4)) shape = RandomGeometry(&rng, 7);
    shape.batch = rng.Int32(1, 3);
    shape.groups = rng.Pick<int32_t>({1, 1, 2});
    shape.input_c = shape.groups * rng.Int32(1, 9);
    shape.output_c = shape.groups * rng.Int32(1, 70);
    Check(RandomCase(&rng, shape));
    if (HasFatalFailure()) return;
  }
}

// More than one block of channels, of the depth, and of pixels; with what is left over.
TEST(FloatConv, TakesLargeLayersInBlocks) {
  Rng rng(TestSeed(2));
  for (const auto& [pixels, channels, depth] :
       {std::tuple(1, 401, 700), std::tuple(50, 193, 257), std::tuple(500, 17, 513),
        std::tuple(3, 1000, 256)}) {
    ConvShape shape;
    shape.input_w = shape.output_w = pixels;
    shape.input_c = depth;
    shape.output_c = channels;
    Check(RandomCase(&rng, shape));
  }
}

}  // namespace
}  // namespace atollrt
