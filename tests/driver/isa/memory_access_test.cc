// SPDX-License-Identifier: Apache-2.0
#include "driver/isa/memory_access.h"

#include <gtest/gtest.h>

#include "tests/support/assembled.h"

namespace atollrt {
namespace {

TEST(Segments, ResolveByBit31WithoutWrapping) {
  const Segments segments{.parameter_base = 0xFFFFFFFF, .activation_base = 0x1000};
  EXPECT_EQ(segments.Resolve(5), 0x1005u);
  EXPECT_EQ(segments.Resolve(kParameterSegment | 5), 0x100000004u);
  EXPECT_EQ(segments.Resolve(0xFFFFFFFF), 0x17FFFFFFEu);
}

TEST(AreApart, MeansNoByteInCommon) {
  const MemoryAccess a{.address = 100, .bytes = 10};
  const auto apart = [&](uint32_t address, uint64_t bytes, const Segments& segments) {
    const MemoryAccess b{.address = address, .bytes = bytes};
    EXPECT_EQ(AreApart(a, b, segments), AreApart(b, a, segments));
    return AreApart(a, b, segments);
  };
  EXPECT_TRUE(apart(110, 5, {}));
  EXPECT_TRUE(apart(90, 10, {}));
  EXPECT_FALSE(apart(109, 1, {}));
  EXPECT_FALSE(apart(90, 11, {}));
  EXPECT_FALSE(apart(0, UINT64_MAX, {}));
  EXPECT_FALSE(apart(kParameterSegment | 50, 1, {.parameter_base = 50}));
  EXPECT_TRUE(apart(kParameterSegment | 50, 1, {.parameter_base = 60}));
  EXPECT_TRUE(apart(kParameterSegment | 100, 10, kSegmentsApart));
}

// Memory in hundreds: input, weights, records, output of the convolution (40 bytes), the other
// operand, the sum.
Conv2DInstruction PointwiseConv() {
  return Assembled<Conv2DInstruction>(
      "weight_address=act+100, channel_address=act+200, output_address=act+300, batch=1, "
      "input_h=5, input_w=4, input_c=3, output_h=5, output_w=4, output_c=2, kernel_h=1, "
      "kernel_w=1, stride_h=1, stride_w=1, dilation_h=1, dilation_w=1, groups=1");
}
AddInstruction Add(uint32_t input1, uint32_t input2, uint32_t output) {
  return {.input1_address = input1,
          .input2_address = input2,
          .output_address = output,
          .count0 = 1,
          .count1 = 1,
          .count2 = 1,
          .count3 = 40,
          .input1_stride3 = 1,
          .input2_stride3 = 1};
}

TEST(MayChain, TakesTheOutputAsEitherInput) {
  EXPECT_TRUE(MayChain(PointwiseConv(), Add(300, 400, 500), {}));
  EXPECT_TRUE(MayChain(PointwiseConv(), Add(400, 300, 500), {}));
  EXPECT_FALSE(MayChain(PointwiseConv(), Add(400, 600, 500), {}));
  EXPECT_FALSE(MayChain(PointwiseConv(), Add(301, 400, 500), {}));
}

TEST(MayChain, LetsTheSumLieOnAnOperand) {
  EXPECT_TRUE(MayChain(PointwiseConv(), Add(300, 400, 300), {}));
  EXPECT_TRUE(MayChain(PointwiseConv(), Add(300, 400, 400), {}));
}

TEST(MayChain, FollowsAConvolutionOnly) {
  const AddInstruction add = Add(300, 400, 500);
  EXPECT_FALSE(MayChain(EndInstruction{}, add, {}));
  EXPECT_FALSE(MayChain(Add(600, 700, 300), add, {}));
  EXPECT_FALSE(MayChain(CopyInstruction{.output_address = 300, .bytes = 40}, add, {}));
  EXPECT_FALSE(MayChain(
      TransposeConv2DInstruction{
          .output_address = 300, .batch = 1, .output_h = 5, .output_w = 4, .output_c = 2},
      add, {}));
  Conv2DInstruction no_groups = PointwiseConv();
  no_groups.groups = 0;
  EXPECT_FALSE(MayChain(no_groups, add, {}));
}

TEST(MayChain, TakesAllBytesInTheirOrder) {
  const auto with = [](auto change) {
    AddInstruction add = Add(300, 400, 500);
    change(add);
    return MayChain(PointwiseConv(), add, {});
  };
  EXPECT_FALSE(with([](AddInstruction& i) { i.count3 = 39; }));
  EXPECT_FALSE(with([](AddInstruction& i) { i.count3 = 41; }));
  EXPECT_FALSE(with([](AddInstruction& i) { i.count3 = 0; }));
  EXPECT_FALSE(with([](AddInstruction& i) { i.input1_stride3 = 0; })) << "repeats a byte";
  EXPECT_FALSE(with([](AddInstruction& i) { i.input2_stride3 = 0; }));
  // More loops are as good if there are no gaps between their runs.
  const auto rows = [](AddInstruction& i) {
    i.count2 = 5;
    i.count3 = 8;
    i.input1_stride2 = i.input2_stride2 = 8;
  };
  EXPECT_TRUE(with(rows));
  for (uint32_t AddInstruction::*stride :
       {&AddInstruction::input1_stride2, &AddInstruction::input2_stride2}) {
    for (const uint32_t other : {0u, 9u}) {
      EXPECT_FALSE(with([&](AddInstruction& i) {
        rows(i);
        i.*stride = other;
      }));
    }
  }
}

TEST(MayChain, KeepsWhatIsStillToBeRead) {
  // The convolution must not write onto the other operand...
  EXPECT_FALSE(MayChain(PointwiseConv(), Add(300, 300, 500), {}));
  EXPECT_FALSE(MayChain(PointwiseConv(), Add(300, 339, 500), {}));
  EXPECT_FALSE(MayChain(PointwiseConv(), Add(261, 300, 500), {}));
  EXPECT_TRUE(MayChain(PointwiseConv(), Add(300, 340, 500), {}));
  // ... nor the sum onto what the convolution reads: input of 60, weights of 6, records of 32
  // bytes.
  for (const uint32_t sum : {0u, 59u, 61u, 105u, 161u, 231u}) {
    EXPECT_FALSE(MayChain(PointwiseConv(), Add(300, 400, sum), {})) << sum;
  }
  for (const uint32_t sum : {60u, 106u, 160u, 232u}) {
    EXPECT_TRUE(MayChain(PointwiseConv(), Add(300, 400, sum), {})) << sum;
  }
}

TEST(MayChain, LooksAtMemoryNotAtSegments) {
  const AddInstruction add = Add(kParameterSegment | 300, 400, 500);
  EXPECT_TRUE(MayChain(PointwiseConv(), add, {.parameter_base = 7, .activation_base = 7}));
  EXPECT_FALSE(MayChain(PointwiseConv(), add, {.parameter_base = 7, .activation_base = 8}));
  const AddInstruction other = Add(300, kParameterSegment | 300, 500);
  EXPECT_FALSE(MayChain(PointwiseConv(), other, {.parameter_base = 39}));
  EXPECT_TRUE(MayChain(PointwiseConv(), other, {.parameter_base = 40}));
  EXPECT_TRUE(MayChain(PointwiseConv(), other, kSegmentsApart));
}

}  // namespace
}  // namespace atollrt
