// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/conv2d.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tests/runtime/kernels/filter_of_bytes.h"
#include "tests/runtime/kernels/random_pairs.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

Conv2DParams RandomParams(Rng* rng, ConvShape (*geometry)(Rng* rng) = SmallGeometry) {
  Conv2DParams p;
  p.shape = geometry(rng);
  ConvShape& s = p.shape;
  s.groups = rng->Pick<int32_t>({1, 1, 1, 1, 1, 2, 3});
  s.input_c = s.groups * rng->Pick<int32_t>({1, 3, 4, 8, 16, 32, 64, rng->Int32(1, 70)});
  s.output_c = s.groups * rng->Pick<int32_t>({1, 8, 16, 17, 24, 32, 33, rng->Int32(1, 70)});
  ChooseNumbers(rng, s.kernel_h * s.kernel_w * (s.input_c / s.groups), &p);
  return p;
}

int64_t WeightBytes(const ConvShape& s) {
  return int64_t{s.output_c} * s.kernel_h * s.kernel_w * (s.input_c / s.groups);
}

void ExpectEqualsReference(Rng* rng, const Conv2DParams& p, CpuFeatures features,
                           ThreadPool* pool) {
  // Once more with a tail, whose result lies on the output, on the other operand or elsewhere.
  const auto with_tail = [&](const FilterRun<Conv2D>& run) {
    const auto side = [&] { return rng->Pick({GuardedBuffer::kEnd, GuardedBuffer::kStart}); };
    const PairTail tail = RandomPairTail(rng);
    GuardedBuffer other(run.expected.size(), side()), elsewhere(run.expected.size(), side());
    RandomBytes(rng, other.bytes());
    const std::vector<uint8_t> combined = ReferenceTail(tail, run.expected, other.data());
    GuardedBuffer* const y = rng->Pick({&run.output, &other, &elsewhere});
    run.conv.Run(run.input.data(), run.output.data(), run.scratch.data(), pool,
                 {.tail = &tail, .other = other.data(), .y = y->data()});
    const auto check = [&](const std::vector<uint8_t>& wanted, GuardedBuffer& found) {
      EXPECT_EQ(std::vector<uint8_t>(found.data(), found.data() + found.size()), wanted)
          << run.conv.kernel_name() << ": " << DescribeFilter(p);
      EXPECT_TRUE(found.Intact() && run.output.Intact() && run.scratch.Intact())
          << run.conv.kernel_name() << ": " << DescribeFilter(p);
    };
    check(combined, *y);
    if (y != &run.output) check(run.expected, run.output);
  };
  ExpectEqualsReference<Conv2D>(rng, p, WeightBytes(p.shape), ReferenceConv2D, features, pool,
                                with_tail);
}

TEST(Conv2D, EqualsTheReferenceForRandomLayersOnEveryCpuLevel) {
  Rng rng(TestSeed(1));
  ThreadPool two(2), three(3);
  for (int i = 0; i < 600 && !testing::Test::HasFailure(); ++i) {
    const Conv2DParams params = RandomParams(&rng);
    for (const CpuFeatures features : AvailableCpuLevels()) {
      ThreadPool* pool = rng.Pick<ThreadPool*>({nullptr, nullptr, &two, &three});
      ExpectEqualsReference(&rng, params, features, pool);
    }
  }
}

// Fully connected layers: one pixel, few or many columns, any depth.
TEST(Conv2D, EqualsTheReferenceForFewPixels) {
  Rng rng(TestSeed(2));
  ThreadPool two(2), three(3);
  for (int i = 0; i < 200 && !testing::Test::HasFailure(); ++i) {
    Conv2DParams p = RandomParams(&rng);
    p.shape = {};
    p.shape.batch = rng.Int32(1, 30);
    p.shape.input_c = rng.Int32(1, 600);
    p.shape.output_c = rng.Int32(1, 200);
    p.output = RandomOutputStage(&rng, p.shape.output_c, p.shape.input_c * 128.0 * 64);
    for (const CpuFeatures features : AvailableCpuLevels()) {
      ThreadPool* pool = rng.Pick<ThreadPool*>({nullptr, &two, &three});
      ExpectEqualsReference(&rng, p, features, pool);
    }
  }
}

// 2^17 products of -255 * -255 exceed 2^32: sums must wrap, and the output stage must not assume
// small accumulators.
TEST(Conv2D, WrapsSumsBeyond32Bits) {
  for (const ByteType type : {ByteType::kInt8, ByteType::kUInt8}) {
    for (const int32_t depth : {1 << 14, 1 << 15, (1 << 17) + 3}) {
      Rng rng(7);
      Conv2DParams p;
      p.shape.input_c = depth;
      p.shape.output_c = 20;
      p.input_type = p.weight_type = type;
      p.input_zero_point = p.weight_zero_point = ByteMax(type);
      p.output = RandomOutputStage(&rng, p.shape.output_c, 1e9);
      const uint8_t least = static_cast<uint8_t>(ByteMin(type));
      std::vector<uint8_t> weights(static_cast<size_t>(WeightBytes(p.shape)), least);
      std::vector<uint8_t> input(static_cast<size_t>(p.shape.InputBytes()), least);
      std::vector<uint8_t> expected(20), actual(20);
      p.weights = weights.data();
      ReferenceConv2D(p, input.data(), expected.data());
      for (const CpuFeatures features : AvailableCpuLevels()) {
        Result<Conv2D> conv = Conv2D::Prepare(p, features);
        ASSERT_TRUE(conv.ok());
        std::vector<uint8_t> scratch(conv->ScratchBytes(1));
        conv->Run(input.data(), actual.data(), scratch.data(), nullptr);
        EXPECT_EQ(actual, expected) << conv->kernel_name() << " depth " << depth;
      }
    }
  }
}

TEST(Conv2D, IsExactForWeightsAndActivationsAtTheBounds) {
  Rng rng(TestSeed(9));
  const auto check = [&](const ConvShape& shape, int32_t depth) {
    Conv2DParams p;
    p.shape = shape;
    p.output = RandomOutputStage(&rng, shape.output_c, depth * 128.0 * 128);
    ExpectExactAtTheBounds<Conv2D>(p, WeightBytes(shape), ReferenceConv2D);
  };
  // Fully connected layers, and filters of rows that kernels multiply one after the other.
  for (const int32_t depth : {7, 8, 16, 24, 40, 129}) {
    check({.batch = 5, .input_c = depth, .output_c = rng.Int32(1, 40)}, depth);
  }
  for (const int32_t channels : {3, 8}) {
    ConvShape s = {.input_h = 5, .input_w = 6, .input_c = channels, .output_h = 5, .output_w = 6};
    s.output_c = rng.Int32(1, 40);
    s.kernel_h = s.kernel_w = 3;
    s.pad_top = s.pad_left = 1;
    check(s, 9 * channels);
  }
}

// Eight neighbouring weights meet in two sums of 16 bits, where kernels have such sums.
TEST(Conv2D, IsExactForSmallWeightsAtTheirBounds) {
  Rng rng(TestSeed(10));
  constexpr int8_t kPatterns[][8] = {
      {127, 1, 0, 0, 0, 0, 64, 64},       {32, 32, 32, 32, 32, 32, 32, 32},
      {0, 0, -128, 0, -64, -64, 0, 0},    {-128, 127, 1, 0, 0, 0, 0, 0},
      {-32, -96, 64, 64, 0, 0, 0, 0},     {1, 2, -3, 100, 27, 0, -100, -25},
      {-127, 127, 127, -127, 0, 1, 0, 0}, {126, 0, 0, 126, 1, 0, 0, 1}};
  std::set<std::string> kernels;
  for (const ByteType type : {ByteType::kInt8, ByteType::kUInt8}) {
    for (const int32_t depth : {4, 7, 8, 12, 16, 24, 37}) {
      Conv2DParams p;
      p.shape = {.batch = 5, .input_c = depth, .output_c = 24};
      p.input_type = p.weight_type = type;
      p.weight_zero_point = ByteMin(type) + 128;
      p.output = RandomOutputStage(&rng, p.shape.output_c, depth * 32.0 * 255);
      for (const auto& pattern : kPatterns) {
        std::vector<uint8_t> weights(static_cast<size_t>(WeightBytes(p.shape)));
        for (size_t i = 0; i < weights.size(); ++i) {
          const size_t k = i % static_cast<size_t>(depth);
          // Now and then one more than fits.
          const int32_t weight = pattern[k % 8] + (rng.OneIn(100) ? 1 : 0);
          weights[i] = static_cast<uint8_t>(std::min(weight, 127) + p.weight_zero_point);
        }
        p.weights = weights.data();
        for (const int32_t value : {ByteMin(type), ByteMax(type)}) {
          p.input_zero_point = rng.Int32(ByteMin(type), ByteMax(type));
          const std::vector<uint8_t> input(static_cast<size_t>(p.shape.InputBytes()),
                                           static_cast<uint8_t>(value));
          std::vector<uint8_t> expected(static_cast<size_t>(p.shape.OutputBytes()));
          std::vector<uint8_t> actual(expected.size());
          ReferenceConv2D(p, input.data(), expected.data());
          for (const CpuFeatures features : AvailableCpuLevels()) {
            const Result<Conv2D> conv = Conv2D::Prepare(p, features);
            ASSERT_TRUE(conv.ok());
            kernels.insert(conv->kernel_name());
            std::vector<uint8_t> scratch(conv->ScratchBytes(1));
            conv->Run(input.data(), actual.data(), scratch.data(), nullptr);
            EXPECT_EQ(actual, expected) << conv->kernel_name() << " depth " << depth;
          }
        }
      }
    }
  }
  // Both kernels of a level that has two have been tried.
  for (const CpuFeatures features : AvailableCpuLevels()) {
    const GemmKernel& kernel = ChooseGemm(features);
    EXPECT_TRUE(kernels.contains(kernel.name)) << kernel.name;
    if (kernel.for_small_weights == nullptr) continue;
    EXPECT_TRUE(kernels.contains(kernel.for_small_weights->name));
  }
}

// What is over padding in every output takes neither time nor memory.
TEST(Conv2D, LeavesOutTapsFarFromTheImage) {
  Rng rng(TestSeed(8));
  ThreadPool two(2);
  for (int i = 0; i < 200 && !testing::Test::HasFailure(); ++i) {
    const Conv2DParams params = RandomParams(&rng, FarGeometry);
    for (const CpuFeatures features : AvailableCpuLevels()) {
      ExpectEqualsReference(&rng, params, features, rng.Pick<ThreadPool*>({nullptr, &two}));
      ExpectLittleScratch<Conv2D>(params, WeightBytes(params.shape), features);
    }
  }
}

TEST(Conv2D, UsesTheKernelOfTheGivenFeatures) {
  Conv2DParams p;
  const uint8_t weights[] = {127, 127};  // not small
  p.weights = weights;
  p.shape.input_c = 2;
  p.output.channels.resize(1);
  std::vector<std::string> used;
  for (const CpuFeatures features : AvailableCpuLevels()) {
    Result<Conv2D> conv = Conv2D::Prepare(p, features);
    ASSERT_TRUE(conv.ok());
    used.push_back(conv->kernel_name());
  }
  std::vector<std::string> listed;
  const Result<CpuFeatures> available = DetectCpuFeatures();
  ASSERT_TRUE(available.ok());
#define ATOLL_GEMM_KERNEL(name, features) \
  if (Supports(*available, features)) listed.push_back(#name);
#include "runtime/kernels/gemm/kernels.inc"
#undef ATOLL_GEMM_KERNEL
  EXPECT_THAT(used, testing::UnorderedElementsAreArray(listed));
}

}  // namespace
}  // namespace atollrt
