// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/depthwise/depthwise_conv2d.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "tests/runtime/kernels/random_conv.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

std::string Describe(const DepthwiseConv2DParams& p) {
  const ConvShape& s = p.shape;
  return Format(
      "input %dx%dx%dx%d output %dx%dx%d kernel %dx%d stride %dx%d dilation %dx%d pad %d,%d groups "
      "%d types %d,%d zero points %d,%d mode %d clamp %d..%d output zero point %d",
      s.batch, s.input_h, s.input_w, s.input_c, s.output_h, s.output_w, s.output_c, s.kernel_h,
      s.kernel_w, s.stride_h, s.stride_w, s.dilation_h, s.dilation_w, s.pad_top, s.pad_left,
      s.groups, int(p.input_type), int(p.weight_type), p.input_zero_point, p.weight_zero_point,
      int(p.output.mode), p.output.clamp.min, p.output.clamp.max, p.output.zero_point);
}

DepthwiseConv2DParams RandomParams(Rng* rng, ConvShape (*geometry)(Rng* rng) = SmallGeometry) {
  DepthwiseConv2DParams p;
  p.shape = geometry(rng);
  ConvShape& s = p.shape;
  s.input_c = rng->Pick<int32_t>({1, 3, 8, 16, 32, 48, rng->Int32(1, 70)});
  s.output_c = s.input_c * rng->Pick<int32_t>({1, 1, 1, 1, 2, 3, 8});
  p.input_type = RandomType(rng);
  p.weight_type = RandomType(rng);
  p.input_zero_point = RandomZeroPoint(rng, p.input_type);
  p.weight_zero_point = RandomZeroPoint(rng, p.weight_type);
  const double depth = s.kernel_h * s.kernel_w;
  p.output = RandomOutputStage(rng, s.output_c, depth * 128 * 64);
  return p;
}

int64_t WeightBytes(const ConvShape& s) { return int64_t{s.kernel_h} * s.kernel_w * s.output_c; }

// Runs `p` with operands hard against unmapped pages and compares with the reference.
void ExpectEqualsReference(Rng* rng, DepthwiseConv2DParams p, CpuFeatures features,
                           ThreadPool* pool) {
  const auto side = [&] { return rng->Pick({GuardedBuffer::kEnd, GuardedBuffer::kStart}); };
  const auto gap = [&] { return static_cast<size_t>(rng->Int(0, 63)); };
  GuardedBuffer weights(static_cast<size_t>(WeightBytes(p.shape)), side());
  GuardedBuffer input(static_cast<size_t>(p.shape.InputBytes()), side());
  GuardedBuffer output(static_cast<size_t>(p.shape.OutputBytes()), side(), gap());
  RandomBytes(rng, weights.bytes());
  RandomBytes(rng, input.bytes());
  p.weights = weights.data();

  std::vector<uint8_t> expected(output.size());
  ReferenceDepthwiseConv2D(p, input.data(), expected.data());

  // Weights are packed by Prepare, or were before and are used where they lie.
  const bool is_packed = rng->OneIn(2);
  const PackedFile packed(is_packed ? DepthwiseConv2D::PackWeights(p, features)
                                    : std::vector<uint8_t>());
  p.packed_weights = packed.bytes();
  Result<DepthwiseConv2D> prepared = DepthwiseConv2D::Prepare(p, features);
  ASSERT_TRUE(prepared.ok()) << prepared.status().message();
  const DepthwiseConv2D conv = *std::move(prepared);
  EXPECT_EQ(conv.uses_packed_weights(), is_packed) << Describe(p);
  std::memset(weights.data(), 0x55, weights.size());  // not needed any more
  GuardedBuffer scratch(conv.ScratchBytes(pool == nullptr ? 1 : pool->threads()), side(), gap());
  conv.Run(input.data(), output.data(), scratch.data(), pool);

  const std::vector<uint8_t> actual(output.data(), output.data() + output.size());
  EXPECT_EQ(actual, expected) << conv.kernel_name() << ": " << Describe(p);
  EXPECT_TRUE(output.Intact()) << conv.kernel_name() << ": " << Describe(p);
  EXPECT_TRUE(scratch.Intact()) << conv.kernel_name() << ": " << Describe(p);
}

TEST(DepthwiseConv2D, EqualsTheReferenceForRandomLayersOnEveryCpuLevel) {
  Rng rng(TestSeed(1));
  ThreadPool two(2), three(3);
  for (int i = 0; i < 600 && !testing::Test::HasFailure(); ++i) {
    const DepthwiseConv2DParams params = RandomParams(&rng);
    for (const CpuFeatures features : AvailableCpuLevels()) {
      ThreadPool* pool = rng.Pick<ThreadPool*>({nullptr, nullptr, &two, &three});
      ExpectEqualsReference(&rng, params, features, pool);
    }
  }
}

// Wide rows: more columns and channels than one unit of work holds.
TEST(DepthwiseConv2D, EqualsTheReferenceForWideImages) {
  Rng rng(TestSeed(2));
  ThreadPool three(3);
  for (int i = 0; i < 6 && !testing::Test::HasFailure(); ++i) {
    DepthwiseConv2DParams p = RandomParams(&rng);
    p.shape = {.input_h = 3, .input_w = rng.Int32(100, 200), .input_c = rng.Int32(60, 100)};
    p.shape.kernel_h = p.shape.kernel_w = 3;
    p.shape.pad_top = p.shape.pad_left = 1;
    p.shape.output_h = p.shape.input_h;
    p.shape.output_w = p.shape.input_w;
    p.shape.output_c = p.shape.input_c * rng.Int32(1, 2);
    p.output = RandomOutputStage(&rng, p.shape.output_c, 9 * 128.0 * 64);
    for (const CpuFeatures features : AvailableCpuLevels())
      ExpectEqualsReference(&rng, p, features, &three);
  }
}

// Of an image that goes on far to the right of all windows, nothing there is read, or has memory
// in the kernels' own.
TEST(DepthwiseConv2D, LeavesOutWhatNoWindowReaches) {
  Rng rng(TestSeed(6));
  ThreadPool one(1);
  const auto make = [&](int32_t input_w, int32_t channels, int32_t output_w) {
    DepthwiseConv2DParams p;
    p.shape = {.input_h = 3, .input_w = input_w, .input_c = channels};
    p.shape.output_h = 2;
    p.shape.output_w = output_w;
    p.shape.output_c = channels;
    p.shape.kernel_h = p.shape.kernel_w = 3;
    p.shape.pad_top = p.shape.pad_left = 1;
    p.output = RandomOutputStage(&rng, channels, 9 * 128.0 * 64);
    return p;
  };
  for (int round = 0; round < 20; ++round) {
    const DepthwiseConv2DParams p = make(rng.Int32(60, 300), rng.Int32(1, 40), rng.Int32(1, 30));
    for (const CpuFeatures features : AvailableCpuLevels()) {
      ExpectEqualsReference(&rng, p, features, &one);
    }
  }
  DepthwiseConv2DParams huge = make(INT32_MAX, 1 << 16, 1);
  const std::vector<uint8_t> weights(static_cast<size_t>(WeightBytes(huge.shape)), 1);
  huge.weights = weights.data();
  for (const CpuFeatures features : AvailableCpuLevels()) {
    const auto conv = DepthwiseConv2D::Prepare(huge, features);
    EXPECT_TRUE(conv.ok()) << conv.status().message();
  }
}

// What is over padding in every output takes neither time nor memory.
TEST(DepthwiseConv2D, LeavesOutTapsFarFromTheImage) {
  Rng rng(TestSeed(8));
  ThreadPool two(2);
  for (int i = 0; i < 200 && !testing::Test::HasFailure(); ++i) {
    const DepthwiseConv2DParams params = RandomParams(&rng, FarGeometry);
    for (const CpuFeatures features : AvailableCpuLevels()) {
      ExpectEqualsReference(&rng, params, features, rng.Pick<ThreadPool*>({nullptr, &two}));
      const std::vector<uint8_t> weights(static_cast<size_t>(WeightBytes(params.shape)), 3);
      DepthwiseConv2DParams p = params;
      p.weights = weights.data();
      const auto conv = DepthwiseConv2D::Prepare(p, features);
      ASSERT_TRUE(conv.ok());
      EXPECT_LE(conv->ScratchBytes(1), 2u << 20) << Describe(p);
    }
  }
}

TEST(DepthwiseConv2D, UsesTheKernelOfTheGivenFeatures) {
  DepthwiseConv2DParams p;
  const uint8_t weight = 1;
  p.weights = &weight;
  p.output.channels.resize(1);
  std::set<std::string> used;  // a level without a kernel of its own has that of another
  for (const CpuFeatures features : AvailableCpuLevels()) {
    Result<DepthwiseConv2D> conv = DepthwiseConv2D::Prepare(p, features);
    ASSERT_TRUE(conv.ok());
    used.insert(conv->kernel_name());
  }
  std::vector<std::string> listed;
  const Result<CpuFeatures> available = DetectCpuFeatures();
  ASSERT_TRUE(available.ok());
#define ATOLL_DEPTHWISE_KERNEL(name, features) \
  if (Supports(*available, features)) listed.push_back(#name);
#include "runtime/kernels/depthwise/kernels.inc"
#undef ATOLL_DEPTHWISE_KERNEL
  EXPECT_THAT(used, testing::UnorderedElementsAreArray(listed));
}

}  // namespace
}  // namespace atollrt
