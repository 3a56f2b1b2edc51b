// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/depthwise/depthwise_conv2d.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/runtime/kernels/filter_of_bytes.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

DepthwiseConv2DParams RandomDepthwise(Rng* rng, ConvShape (*geometry)(Rng* rng) = SmallGeometry) {
  DepthwiseConv2DParams p;
  p.shape = geometry(rng);
  ConvShape& s = p.shape;
  s.input_c = rng->Pick<int32_t>({1, 3, 8, 16, 32, 48, rng->Int32(1, 70)});
  s.output_c = s.input_c * rng->Pick<int32_t>({1, 1, 1, 1, 2, 3, 8});
  ChooseNumbers(rng, s.kernel_h * s.kernel_w, &p);
  return p;
}

int64_t DepthwiseWeightBytes(const ConvShape& s) {
  return int64_t{s.kernel_h} * s.kernel_w * s.output_c;
}

void ExpectDepthwiseEqualsReference(Rng* rng, const DepthwiseConv2DParams& p, CpuFeatures features,
                                    ThreadPool* pool) {
  ExpectEqualsReference<DepthwiseConv2D>(rng, p, DepthwiseWeightBytes(p.shape),
                                         ReferenceDepthwiseConv2D, features, pool,
                                         [](const auto&) {});
}

TEST(DepthwiseConv2D, EqualsTheReferenceForRandomLayersOnEveryCpuLevel) {
  Rng rng(TestSeed(1));
  ThreadPool two(2), three(3);
  for (int i = 0; i < 600 && !testing::Test::HasFailure(); ++i) {
    const DepthwiseConv2DParams params = RandomDepthwise(&rng);
    for (const CpuFeatures features : AvailableCpuLevels()) {
      ThreadPool* pool = rng.Pick<ThreadPool*>({nullptr, nullptr, &two, &three});
      ExpectDepthwiseEqualsReference(&rng, params, features, pool);
    }
  }
}

// Wide rows: more columns and channels than one unit of work holds.
TEST(DepthwiseConv2D, EqualsTheReferenceForWideImages) {
  Rng rng(TestSeed(2));
  ThreadPool three(3);
  for (int i = 0; i < 6 && !testing::Test::HasFailure(); ++i) {
    DepthwiseConv2DParams p = RandomDepthwise(&rng);
    p.shape = {.input_h = 3, .input_w = rng.Int32(100, 200), .input_c = rng.Int32(60, 100)};
    p.shape.kernel_h = p.shape.kernel_w = 3;
    p.shape.pad_top = p.shape.pad_left = 1;
    p.shape.output_h = p.shape.input_h;
    p.shape.output_w = p.shape.input_w;
    p.shape.output_c = p.shape.input_c * rng.Int32(1, 2);
    p.output = RandomOutputStage(&rng, p.shape.output_c, 9 * 128.0 * 64);
    for (const CpuFeatures features : AvailableCpuLevels())
      ExpectDepthwiseEqualsReference(&rng, p, features, &three);
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
      ExpectDepthwiseEqualsReference(&rng, p, features, &one);
    }
  }
  DepthwiseConv2DParams huge = make(INT32_MAX, 1 << 16, 1);
  const std::vector<uint8_t> weights(static_cast<size_t>(DepthwiseWeightBytes(huge.shape)), 1);
  huge.weights = weights.data();
  for (const CpuFeatures features : AvailableCpuLevels()) {
    const auto conv = DepthwiseConv2D::Prepare(huge, features);
    EXPECT_TRUE(conv.ok()) << conv.status().message();
  }
}

TEST(DepthwiseConv2D, IsExactForWeightsAndActivationsAtTheBounds) {
  Rng rng(TestSeed(9));
  for (const int32_t kernel : {1, 3, 5}) {
    DepthwiseConv2DParams p;
    ConvShape& s = p.shape;
    s = {.input_h = 6, .input_w = 7, .input_c = rng.Int32(2, 40), .output_h = 6, .output_w = 7};
    s.output_c = s.input_c;
    s.kernel_h = s.kernel_w = kernel;
    s.pad_top = s.pad_left = kernel / 2;
    p.output = RandomOutputStage(&rng, s.output_c, kernel * kernel * 128.0 * 128);
    ExpectExactAtTheBounds<DepthwiseConv2D>(p, DepthwiseWeightBytes(s), ReferenceDepthwiseConv2D);
  }
}

// What is over padding in every output takes neither time nor memory.
TEST(DepthwiseConv2D, LeavesOutTapsFarFromTheImage) {
  Rng rng(TestSeed(8));
  ThreadPool two(2);
  for (int i = 0; i < 200 && !testing::Test::HasFailure(); ++i) {
    const DepthwiseConv2DParams params = RandomDepthwise(&rng, FarGeometry);
    for (const CpuFeatures features : AvailableCpuLevels()) {
      ExpectDepthwiseEqualsReference(&rng, params, features,
                                     rng.Pick<ThreadPool*>({nullptr, &two}));
      ExpectLittleScratch<DepthwiseConv2D>(params, DepthwiseWeightBytes(params.shape), features);
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
