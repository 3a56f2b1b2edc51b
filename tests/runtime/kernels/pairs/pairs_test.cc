// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/pairs/pairs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "runtime/base/thread_pool.h"
#include "runtime/kernels/broadcast.h"
#include "runtime/kernels/cpu_features.h"
#include "tests/runtime/kernels/random_pairs.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr PairOp kAllOps[] = {PairOp::kAdd,      PairOp::kSubtract, PairOp::kSquaredDifference,
                              PairOp::kMultiply, PairOp::kPrelu,    PairOp::kMaximum,
                              PairOp::kMinimum};

void ExpectEqualsReference(Rng* rng, const PairParams& params, PairFn combine, const char* name) {
  const auto side = [&] { return rng->Pick({GuardedBuffer::kEnd, GuardedBuffer::kStart}); };
  const auto gap = [&] { return static_cast<size_t>(rng->Int(0, 63)); };
  const size_t count = static_cast<size_t>(rng->Int(0, 300));
  GuardedBuffer x1(count, side()), x2(count, side()), y(count, side(), gap());
  RandomBytes(rng, x1.bytes());
  RandomBytes(rng, x2.bytes());
  Bytes expected(count);
  CombinePairsReference(params, x1.data(), x2.data(), expected.data(), static_cast<int64_t>(count));

  combine(params, x1.data(), x2.data(), y.data(), static_cast<int64_t>(count));
  const int op = static_cast<int>(params.op);
  EXPECT_EQ(Bytes(y.data(), y.data() + count), expected) << name << " of operator " << op;
  EXPECT_TRUE(y.Intact()) << name;

  // In place.
  GuardedBuffer& target = rng->OneIn(2) ? x1 : x2;
  combine(params, x1.data(), x2.data(), target.data(), static_cast<int64_t>(count));
  EXPECT_EQ(Bytes(target.data(), target.data() + count), expected) << name << " in place, " << op;
}

TEST(CombinePairs, EqualsTheReferenceOnEveryCpuLevel) {
  Rng rng(TestSeed(1));
  const Result<CpuFeatures> available = DetectCpuFeatures();
  ASSERT_TRUE(available.ok());
  for (int i = 0; i < 1500 && !testing::Test::HasFailure(); ++i) {
    for (const PairOp op : kAllOps) {
      const PairParams params = RandomPairParams(&rng, op);
#define ATOLL_PAIR_KERNEL(name, features) \
  if (Supports(*available, features)) ExpectEqualsReference(&rng, params, name, #name);
#include "runtime/kernels/pairs/kernels.inc"
#undef ATOLL_PAIR_KERNEL
    }
  }
}

// All pairs of values, at the multipliers between which the arithmetic changes.
TEST(CombinePairs, EqualsTheReferenceOnAllPairsOfBytes) {
  Bytes x1(65536), x2(65536);
  for (size_t i = 0; i < x1.size(); ++i) {
    x1[i] = static_cast<uint8_t>(i >> 8);
    x2[i] = static_cast<uint8_t>(i);
  }
  const Result<CpuFeatures> available = DetectCpuFeatures();
  ASSERT_TRUE(available.ok());
  for (const PairOp op : {PairOp::kSquaredDifference, PairOp::kMultiply, PairOp::kPrelu}) {
    for (const ByteType type : {ByteType::kInt8, ByteType::kUInt8}) {
      for (const int32_t zero_point : {ByteMin(type), ByteMax(type)}) {
        for (const int32_t exponent : {-31, -8, -1, 0, 1, 14, 15}) {
          PairParams p;
          p.op = op;
          p.type = type;
          p.left_shift = 7;
          p.input1_zero_point = zero_point;
          p.input2_zero_point = ByteMin(type) + 128;
          p.input1 =
              op == PairOp::kPrelu ? Multiplier{INT32_MAX, exponent} : Multiplier{1 << 30, 0};
          p.input2 = {INT32_MAX, -1};
          p.output = {1500000000, exponent};
          p.clamp = {ByteMin(type), ByteMax(type)};
          Bytes expected(x1.size()), got(x1.size());
          CombinePairsReference(p, x1.data(), x2.data(), expected.data(), 65536);
          ChoosePairs (*available)(p, x1.data(), x2.data(), got.data(), 65536);
          ASSERT_EQ(got, expected) << "operator " << static_cast<int>(op) << " exponent "
                                   << exponent << " zero point " << zero_point;
        }
      }
    }
  }
}

TEST(CombinePairs, TakesTheVectorPathForWhatTensorFlowLiteComputes) {
  PairParams p;
  p.left_shift = 20;
  p.input1 = QuantizeMultiplier(0.5);
  p.input2 = QuantizeMultiplier(0.31);
  p.output = QuantizeMultiplier(std::ldexp(0.7, -19));
  EXPECT_TRUE(IsVectorizable(p));
  p.op = PairOp::kSquaredDifference;
  EXPECT_FALSE(IsVectorizable(p));
  p.left_shift = 7;
  EXPECT_TRUE(IsVectorizable(p));
  p.op = PairOp::kPrelu;
  p.input1 = QuantizeMultiplier(1.0);
  EXPECT_TRUE(IsVectorizable(p));
  p.op = PairOp::kMultiply;
  EXPECT_TRUE(IsVectorizable(p));
  p.output = {1 << 30, 15};
  EXPECT_FALSE(IsVectorizable(p));
}

uint8_t ReferenceOf(const PairParams& params, uint8_t x1, uint8_t x2) {
  uint8_t y = 0;
  CombinePairsReference(params, &x1, &x2, &y, 1);
  return y;
}

TEST(CombinePairsReference, AddsRealValues) {
  // 0.5 * (10 - 2) + 0.25 * (20 - 4) = 8, in steps of 0.125 from zero point 1: 65.
  PairParams p;
  p.left_shift = 20;
  p.input1_zero_point = 2;
  p.input2_zero_point = 4;
  p.output_zero_point = 1;
  p.input1 = QuantizeMultiplier(0.5);
  p.input2 = QuantizeMultiplier(0.25);
  p.output = QuantizeMultiplier(std::ldexp(1.0 / 0.125, -20));
  p.clamp = {-128, 127};
  EXPECT_EQ(ReferenceOf(p, 10, 20), 65);
  p.op = PairOp::kSubtract;
  EXPECT_EQ(ReferenceOf(p, 10, 20), 1);
}

TEST(CombinePairsReference, SquaresTheDifference) {
  // (0.5 * (10 - 2) - 0.25 * (20 - 8))^2 = 1, in steps of 0.125 from zero point 1: 9.
  PairParams p;
  p.op = PairOp::kSquaredDifference;
  p.left_shift = 7;
  p.input1_zero_point = 2;
  p.input2_zero_point = 8;
  p.output_zero_point = 1;
  p.input1 = QuantizeMultiplier(0.5);
  p.input2 = QuantizeMultiplier(0.25);
  p.output = QuantizeMultiplier(std::ldexp(1.0 / 0.125, -14));
  p.clamp = {-128, 127};
  EXPECT_EQ(ReferenceOf(p, 10, 20), 9);
  EXPECT_EQ(ReferenceOf(p, 6, 20), 9);  // (2 - 3)^2
}

TEST(CombinePairsReference, MultipliesByTheSlopeBelowZeroOnly) {
  PairParams p;
  p.op = PairOp::kPrelu;
  p.input1_zero_point = 10;
  p.input2_zero_point = 4;
  p.output_zero_point = -3;
  p.input1 = QuantizeMultiplier(2.0);
  p.output = QuantizeMultiplier(0.25);
  p.clamp = {-128, 127};
  EXPECT_EQ(ReferenceOf(p, 15, 100), 7);  // 2 * 5 - 3
  EXPECT_EQ(ReferenceOf(p, 10, 100), 0xFD);
  EXPECT_EQ(ReferenceOf(p, 2, 8), 0xF5);  // 0.25 * -8 * 4 - 3
  p.op = PairOp::kMultiply;
  EXPECT_EQ(ReferenceOf(p, 15, 8), 2);  // 0.25 * 5 * 4 - 3
  p.op = PairOp::kMaximum;
  EXPECT_EQ(ReferenceOf(p, 0x80, 3), 3);
  p.op = PairOp::kMinimum;
  EXPECT_EQ(ReferenceOf(p, 0x80, 3), 0x80);
  p.type = ByteType::kUInt8;
  EXPECT_EQ(ReferenceOf(p, 0x80, 3), 3);
}

// ---- Broadcasts ---------------------------------------------------------------------------------

// Sizes around those at which runs are gathered, repeated and cut into blocks.
Broadcast RandomBroadcast(Rng* rng) {
  Broadcast broadcast;
  broadcast.inner = {rng->Pick<int64_t>({1, 2, 3, 5, 31, 64, 200, 511, 512, 513, 4095, 4097, 9000}),
                     rng->Int(0, 1), rng->Int(0, 1)};
  broadcast.count = broadcast.inner.count;
  const auto stride = [&] {
    return rng->Pick<int64_t>({0, broadcast.inner.count, rng->Int(0, 40)});
  };
  for (int64_t i = rng->Int(0, 3); i > 0; --i) {
    const int64_t count = broadcast.count < 70 ? rng->Int(2, 300) : rng->Int(2, 5);
    broadcast.outer.push_back({count, stride(), stride()});
    broadcast.count *= count;
  }
  return broadcast;
}

// Where the operands of output `index` are.
BroadcastLoop OffsetsOf(const Broadcast& broadcast, int64_t index) {
  BroadcastLoop offsets;
  const auto step = [&](const BroadcastLoop& loop) {
    offsets.stride1 += index % loop.count * loop.stride1;
    offsets.stride2 += index % loop.count * loop.stride2;
    index /= loop.count;
  };
  step(broadcast.inner);
  for (size_t i = broadcast.outer.size(); i-- > 0;) step(broadcast.outer[i]);
  return offsets;
}

TEST(CombineBroadcast, EqualsTheKernelOnOperandsWrittenOut) {
  Rng rng(TestSeed(2));
  ThreadPool pool(3);
  const PairFn combine = ChoosePairs(*DetectCpuFeatures());
  for (int round = 0; round < TestCount(1000); ++round) {
    const PairParams params = RandomPairParams(&rng, kAllOps[rng.Int(0, 6)]);
    const Broadcast broadcast = RandomBroadcast(&rng);
    // How far each operand reaches.
    int64_t reach1 = broadcast.inner.stride1 * (broadcast.inner.count - 1) + 1;
    int64_t reach2 = broadcast.inner.stride2 * (broadcast.inner.count - 1) + 1;
    for (const BroadcastLoop& loop : broadcast.outer) {
      reach1 += loop.stride1 * (loop.count - 1);
      reach2 += loop.stride2 * (loop.count - 1);
    }
    GuardedBuffer x1(static_cast<size_t>(reach1), GuardedBuffer::kEnd);
    GuardedBuffer x2(static_cast<size_t>(reach2), GuardedBuffer::kEnd);
    RandomBytes(&rng, x1.bytes());
    RandomBytes(&rng, x2.bytes());
    Bytes all1, all2;
    for (int64_t i = 0; i < broadcast.count; ++i) {
      const BroadcastLoop offsets = OffsetsOf(broadcast, i);
      all1.push_back(x1.data()[offsets.stride1]);
      all2.push_back(x2.data()[offsets.stride2]);
    }
    Bytes expected(all1.size());
    combine(params, all1.data(), all2.data(), expected.data(), broadcast.count);
    GuardedBuffer y(expected.size(), GuardedBuffer::kEnd);
    CombineBroadcast(combine, params, broadcast, x1.data(), x2.data(), y.data(),
                     rng.OneIn(2) ? &pool : nullptr);
    ASSERT_EQ(Bytes(y.data(), y.data() + expected.size()), expected) << "round " << round;
    ASSERT_TRUE(y.Intact());
  }
}

TEST(CombineBroadcast, WritesOntoAnOperandOfTheOutputsSize) {
  Rng rng(TestSeed(3));
  const PairFn combine = ChoosePairs(*DetectCpuFeatures());
  for (const std::vector<int32_t>& small :
       {std::vector<int32_t>{3}, {70, 1}, {90, 70, 1}, {70, 3}, {}}) {
    const std::vector<int32_t> large = {90, 70, 3};
    const PairParams params = RandomPairParams(&rng, PairOp::kMultiply);
    Bytes x1(90 * 70 * 3), x2(x1.size());
    RandomBytes(&rng, x1);
    RandomBytes(&rng, x2);
    Bytes expected(x1.size());
    const Broadcast broadcast = MakeBroadcast(large, small);
    CombineBroadcast(combine, params, broadcast, x1.data(), x2.data(), expected.data(), nullptr);
    CombineBroadcast(combine, params, broadcast, x1.data(), x2.data(), x1.data(), nullptr);
    EXPECT_EQ(x1, expected);
  }
}

TEST(CombineBroadcast, DoesNothingForEmptyTensors) {
  const int32_t empty[] = {2, 0, 3};
  CombineBroadcast(CombinePairsReference, {}, MakeBroadcast(empty, empty), nullptr, nullptr,
                   nullptr, nullptr);
}

}  // namespace
}  // namespace atollrt
