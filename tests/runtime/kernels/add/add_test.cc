// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/add/add.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "runtime/kernels/cpu_features.h"
#include "tests/runtime/kernels/random_conv.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

// As TensorFlow Lite computes them, or now and then anything.
AddParams RandomParams(Rng* rng) {
  AddParams p;
  p.kind = rng->OneIn(2) ? AddKind::kAdd : AddKind::kSubtract;
  p.type = RandomType(rng);
  p.input1_zero_point = RandomZeroPoint(rng, p.type);
  p.input2_zero_point = RandomZeroPoint(rng, p.type);
  p.output_zero_point = RandomZeroPoint(rng, p.type);
  p.clamp = {ByteMin(p.type), ByteMax(p.type)};
  if (rng->OneIn(3)) p.clamp.min = rng->Int32(p.clamp.min, p.clamp.max);
  const double scale1 = 0.01 + rng->Real();
  const double scale2 = rng->OneIn(4) ? scale1 : 0.01 + rng->Real();
  const double twice = 2 * std::max(scale1, scale2);
  p.input1 = QuantizeMultiplier(scale1 / twice);
  p.input2 = QuantizeMultiplier(scale2 / twice);
  p.output = QuantizeMultiplier(twice / (std::ldexp(1, 20) * (0.01 + 2 * rng->Real())));
  if (rng->OneIn(4)) {
    for (Multiplier* m : {&p.input1, &p.input2, &p.output}) {
      *m = rng->Pick<Multiplier>({*m,
                                  {INT32_MAX, rng->Int32(-31, 3)},
                                  {1 << 30, rng->Int32(-31, 3)},
                                  {1 << 30, -31},
                                  {0, 0}});
    }
    p.left_shift = rng->Pick<int32_t>({20, 20, 0, 1, 15, 24});
  }
  return p;
}

void ExpectEqualsReference(Rng* rng, const AddParams& params, AddFn add, const char* name) {
  const auto side = [&] { return rng->Pick({GuardedBuffer::kEnd, GuardedBuffer::kStart}); };
  const auto gap = [&] { return static_cast<size_t>(rng->Int(0, 63)); };
  const size_t count = static_cast<size_t>(rng->Int(0, 300));
  GuardedBuffer x1(count, side()), x2(count, side()), y(count, side(), gap());
  RandomBytes(rng, x1.bytes());
  RandomBytes(rng, x2.bytes());
  std::vector<uint8_t> expected(count);
  ReferenceAdd(params, x1.data(), x2.data(), expected.data(), static_cast<int64_t>(count));

  add(params, x1.data(), x2.data(), y.data(), static_cast<int64_t>(count));
  EXPECT_EQ(std::vector<uint8_t>(y.data(), y.data() + count), expected) << name;
  EXPECT_TRUE(y.Intact()) << name;

  // In place.
  GuardedBuffer& target = rng->OneIn(2) ? x1 : x2;
  add(params, x1.data(), x2.data(), target.data(), static_cast<int64_t>(count));
  EXPECT_EQ(std::vector<uint8_t>(target.data(), target.data() + count), expected) << name;
}

TEST(Add, EqualsTheReferenceOnEveryCpuLevel) {
  Rng rng(TestSeed(1));
  const Result<CpuFeatures> available = DetectCpuFeatures();
  ASSERT_TRUE(available.ok());
  for (int i = 0; i < 2000 && !testing::Test::HasFailure(); ++i) {
    const AddParams params = RandomParams(&rng);
#define ATOLL_ADD_KERNEL(name, features) \
  if (Supports(*available, features)) ExpectEqualsReference(&rng, params, name, #name);
#include "runtime/kernels/add/kernels.inc"
#undef ATOLL_ADD_KERNEL
  }
}

TEST(Add, TakesTheVectorPathForWhatTensorFlowLiteComputes) {
  AddParams p;
  p.input1 = QuantizeMultiplier(0.5);
  p.input2 = QuantizeMultiplier(0.31);
  p.output = QuantizeMultiplier(std::ldexp(0.7, -19));
  EXPECT_TRUE(IsVectorizable(p));
}

TEST(ReferenceAdd, AddsRealValues) {
  // 0.5 * (10 - 2) + 0.25 * (20 - 4) = 8, in steps of 0.125 from zero point 1: 65.
  AddParams p;
  p.input1_zero_point = 2;
  p.input2_zero_point = 4;
  p.output_zero_point = 1;
  p.input1 = QuantizeMultiplier(0.5);
  p.input2 = QuantizeMultiplier(0.25);
  p.output = QuantizeMultiplier(std::ldexp(1.0 / 0.125, -20));
  p.clamp = {-128, 127};
  const uint8_t x1 = 10, x2 = 20;
  uint8_t y = 0;
  ReferenceAdd(p, &x1, &x2, &y, 1);
  EXPECT_EQ(y, 65);
  p.kind = AddKind::kSubtract;
  ReferenceAdd(p, &x1, &x2, &y, 1);
  EXPECT_EQ(y, 1);
}

}  // namespace
}  // namespace atollrt
