// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/transpose_conv.h"

#include <gtest/gtest.h>

#include "runtime/kernels/conv2d_wide.h"
#include "runtime/kernels/float_conv.h"
#include "tests/runtime/kernels/filter_sums.h"
#include "tests/runtime/kernels/float_levels.h"
#include "tests/runtime/kernels/random_conv.h"

namespace atollrt {
namespace {

// Strides above the filter, outputs that the input does not reach, any pad.
ConvShape RandomTransposedShape(Rng* rng) {
  ConvShape s;
  s.batch = rng->Int32(1, 2);
  s.input_h = rng->Int32(1, 5);
  s.input_w = rng->Int32(1, 5);
  s.input_c = rng->Int32(1, 6);
  s.output_h = rng->Int32(1, 20);
  s.output_w = rng->Int32(1, 20);
  s.output_c = rng->Int32(1, 6);
  s.kernel_h = rng->Int32(1, 7);
  s.kernel_w = rng->Int32(1, 7);
  s.stride_h = rng->Int32(1, 9);
  s.stride_w = rng->Int32(1, 9);
  s.pad_top = rng->Int32(0, s.kernel_h + 2);
  s.pad_left = rng->Int32(0, s.kernel_w + 2);
  return s;
}

int64_t WeightCount(const ConvShape& s) {
  return int64_t{s.output_c} * s.kernel_h * s.kernel_w * s.input_c;
}

template <typename Kernel, typename T>
std::vector<T> RunKernel(const Kernel& kernel, const ConvShape& s, const std::vector<T>& input) {
  ThreadPool pool(2);
  std::vector<T> output(static_cast<size_t>(s.OutputBytes()), T{77});
  const Result<Buffer> scratch = Buffer::Allocate(kernel.ScratchBytes(2));
  kernel.Run(BytesOf(input), BytesOf(output), const_cast<uint8_t*>(scratch->data()), &pool);
  return output;
}

TEST(TransposeConv, ScattersBytesAsTheReferenceDoes) {
  Rng rng(TestSeed(3));
  for (int i = 0; i < 300; ++i) {
    Conv2DParams p;
    p.shape = RandomTransposedShape(&rng);
    const ConvShape& s = p.shape;
    p.input_type = RandomType(&rng);
    p.weight_type = RandomType(&rng);
    p.input_zero_point = RandomZeroPoint(&rng, p.input_type);
    p.weight_zero_point = RandomZeroPoint(&rng, p.weight_type);
    const int32_t depth = s.kernel_h * s.kernel_w * s.input_c;
    p.output = RandomOutputStage(&rng, s.output_c, 0.1 * depth * 128 * 128);
    std::vector<uint8_t> input(static_cast<size_t>(s.InputBytes()));
    std::vector<uint8_t> weights(static_cast<size_t>(WeightCount(s)));
    RandomBytes(&rng, input);
    RandomBytes(&rng, weights);
    p.weights = weights.data();
    std::vector<uint8_t> expected(static_cast<size_t>(s.OutputBytes()));
    ReferenceTransposeConv(p, input.data(), expected.data());
    const uint8_t zero = static_cast<uint8_t>(p.weight_zero_point);
    for (const CpuFeatures level : AvailableCpuLevels()) {
      const auto kernel = TransposeConv<Conv2D, Conv2DParams>::Prepare(p, {1, 1, zero}, level);
      ASSERT_TRUE(kernel.ok());
      ASSERT_EQ(RunKernel(*kernel, s, input), expected) << "case " << i;
    }
  }
}

// Sums by scattering, where the reference gathers.
TEST(TransposeConv, ReferenceGathersWhatTheFormulaScatters) {
  Rng rng(TestSeed(4));
  for (int i = 0; i < 300; ++i) {
    Conv2DParams p;
    p.shape = RandomTransposedShape(&rng);
    p.input_type = ByteType::kInt8;
    p.weight_type = ByteType::kInt8;
    const std::vector<int8_t> input = RandomInt8(&rng, p.shape.InputBytes());
    const std::vector<int8_t> weights = RandomInt8(&rng, WeightCount(p.shape));
    p.weights = BytesOf(weights);
    p.output.mode = RequantizeMode::kDouble;
    for (int32_t c = 0; c < p.shape.output_c; ++c) {
      const int32_t bias = rng.Int32(-9999, 9999);
      p.output.channels.push_back({.bias = bias, .multiplier = {}, .scale = rng.Real() * 0.01});
    }
    std::vector<int8_t> expected;
    for (const int64_t sum : TransposeConvSums<int64_t>(p.shape, input, weights)) {
      const OutputChannel& channel = p.output.channels[expected.size() % p.shape.output_c];
      const double value = std::round(static_cast<double>(sum + channel.bias) * channel.scale);
      expected.push_back(static_cast<int8_t>(std::clamp(value, -128.0, 127.0)));
    }
    std::vector<int8_t> output(expected.size());
    ReferenceTransposeConv(p, BytesOf(input), BytesOf(output));
    ASSERT_EQ(output, expected) << "case " << i;
  }
}

TEST(TransposeConv, ScattersInt16) {
  Rng rng(TestSeed(1));
  for (int i = 0; i < 300; ++i) {
    Conv2DInt16Params p;
    p.shape = RandomTransposedShape(&rng);
    const ConvShape& s = p.shape;
    const std::vector<int16_t> input = RandomInt16(&rng, s.InputBytes());
    const std::vector<int8_t> weights = RandomInt8(&rng, WeightCount(s));
    p.weights = BytesOf(weights);
    for (int32_t c = 0; c < s.output_c; ++c) {
      const Multiplier multiplier = QuantizeMultiplier(rng.Real() * 0.01);
      p.channels.push_back({.bias = rng.Int(-9999, 9999), .multiplier = multiplier});
    }
    std::vector<int16_t> expected;
    for (const int64_t sum : TransposeConvSums<int64_t>(s, input, weights)) {
      const Output16Channel& channel = p.channels[expected.size() % s.output_c];
      const int32_t value = MultiplyByQuantizedMultiplier64(sum + channel.bias, channel.multiplier);
      expected.push_back(static_cast<int16_t>(Clamp(value, INT16_MIN, INT16_MAX)));
    }
    const auto kernel =
        TransposeConv<Conv2DInt16, Conv2DInt16Params>::Prepare(p, {2, 1, 0}, kBaseline);
    ASSERT_TRUE(kernel.ok());
    ASSERT_EQ(RunKernel(*kernel, s, input), expected) << "case " << i;
  }
}

TEST(TransposeConv, ScattersFloat) {
  Rng rng(TestSeed(2));
  for (int i = 0; i < 100; ++i) {
    Conv2DFloatParams p;
    p.shape = RandomTransposedShape(&rng);
    const std::vector<float> input = RandomFloats(&rng, p.shape.InputBytes());
    const std::vector<float> weights = RandomFloats(&rng, WeightCount(p.shape));
    p.weights = BytesOf(weights);
    const std::vector<double> sums = TransposeConvSums<double>(p.shape, input, weights);
    const auto check = [&](const auto& kernel) {
      ASSERT_TRUE(kernel.ok());
      const std::vector<float> output = RunKernel(*kernel, p.shape, input);
      for (size_t j = 0; j < sums.size(); ++j) ASSERT_NEAR(output[j], sums[j], 1e-4);
    };
    SCOPED_TRACE(i);
    ASSERT_NO_FATAL_FAILURE(
        check(TransposeConv<Conv2DFloat, Conv2DFloatParams>::Prepare(p, {4, 4, 0}, kBaseline)));
    for (const CpuFeatures level : FloatProductLevels()) {
      ASSERT_NO_FATAL_FAILURE(
          check(TransposeConv<FloatConv, Conv2DFloatParams>::Prepare(p, {4, 4, 0}, level)));
    }
  }
}

TEST(TransposeConv, RefusesMorePhasesThanItsLimit) {
  Conv2DFloatParams p;
  p.shape.output_h = p.shape.output_w = 33;
  p.shape.stride_h = p.shape.stride_w = 33;
  const float weight = 1;
  p.weights = reinterpret_cast<const uint8_t*>(&weight);
  const auto kernel =
      TransposeConv<Conv2DFloat, Conv2DFloatParams>::Prepare(p, {4, 4, 0}, kBaseline);
  EXPECT_EQ(kernel.status().code(), StatusCode::kUnsupported);
}

}  // namespace
}  // namespace atollrt
