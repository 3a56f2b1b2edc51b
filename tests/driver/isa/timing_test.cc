// SPDX-License-Identifier: Apache-2.0
#include "driver/isa/timing.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "runtime/base/bytes.h"
#include "tests/support/assembled.h"
#include "tests/support/scale_sim.h"

namespace atollrt {
namespace {

constexpr ArraySize k64{64, 64};
constexpr ArraySize k32{32, 32};
constexpr ArraySize k128x16{128, 16};

// 3x3, 16 -> 100 channels, 10x12 outputs.
Conv2DInstruction Conv() {
  return Assembled<Conv2DInstruction>(
      "batch=1, input_h=10, input_w=12, input_c=16, output_h=10, output_w=12, output_c=100, "
      "kernel_h=3, kernel_w=3, groups=1");
}

// MobileNet v1 on a 64x64 weight-stationary array as SCALE-Sim v3 reports it: the sum, and single
// layers. Its topology file knows no padding, counts a depthwise layer as a convolution to one
// channel and has a stride of 2 in the last one.
TEST(Timing, CountsAsScaleSimDoes) {
  struct Layer {
    uint64_t input, kernel, channels, filters, stride;
    uint64_t cycles() const {
      const uint64_t output = (input - kernel + stride + stride - 1) / stride;
      return ScaleSimCycles(output * output, kernel * kernel * channels, filters, k64);
    }
  };
  std::vector<Layer> layers = {{224, 3, 3, 32, 2}};
  const auto block = [&](uint64_t input, uint64_t channels, uint64_t filters, uint64_t stride) {
    layers.push_back({input, 3, channels, 1, stride});
    layers.push_back({(input + stride - 1) / stride, 1, channels, filters, 1});
  };
  block(112, 32, 64, 1);
  block(112, 64, 128, 2);
  block(56, 128, 128, 1);
  block(56, 128, 256, 2);
  block(28, 256, 256, 1);
  block(28, 256, 512, 2);
  for (int i = 0; i < 5; ++i) block(14, 512, 512, 1);
  block(14, 512, 1024, 2);
  layers.push_back({7, 3, 1024, 1, 2});
  layers.push_back({7, 1, 1024, 1024, 1});
  uint64_t total = 0;
  for (const Layer& layer : layers) total += layer.cycles();
  EXPECT_EQ(total, 672'421u);
  EXPECT_EQ(layers[0].cycles(), 12'733u);
  EXPECT_EQ(layers[1].cycles(), 61'449u);
  EXPECT_EQ(layers[14].cycles(), 24'703u);
  EXPECT_EQ(layers[24].cycles(), 30'591u);
}

TEST(Timing, OfConv2DIsTilesTimesRowsPlusSkew) {
  // K = 144: 3 tiles high, N = 100: 2 wide, M = 120.
  EXPECT_EQ(ExecutionCycles(Conv(), k64), 6u * 120 + 64 + 64 - 2);
  EXPECT_EQ(ExecutionCycles(Conv(), k32), 5u * 4 * 120 + 62);
  EXPECT_EQ(ExecutionCycles(Conv(), k128x16), 2u * 7 * 128 + 142);  // loading hides no longer
}

TEST(Timing, SurvivesOperandsThatFault) {
  Conv2DInstruction no_groups = Conv();
  no_groups.groups = 0;
  EXPECT_EQ(ExecutionCycles(no_groups, k64), 0u);
  for (const InstructionInfo& info : InstructionTable()) {
    for (const uint32_t word : {0u, 1u, 0x7FFFFFFFu, 0xFFFFFFFFu}) {
      EncodedInstruction bytes{};
      StoreLittleEndian(bytes.data(), info.opcode);
      for (size_t i = 1; i <= info.operands.size(); ++i) StoreLittleEndian(&bytes[4 * i], word);
      (void)ExecutionCycles(*Decode(bytes), k64);
    }
  }
}

TEST(Timing, OfFullyConnectedIsTheLoadingOfTiles) {
  const Conv2DInstruction dense = Assembled<Conv2DInstruction>(
      "batch=1, input_h=1, input_w=1, input_c=1024, output_h=1, output_w=1, output_c=1001, "
      "kernel_h=1, kernel_w=1, groups=1");
  EXPECT_EQ(ExecutionCycles(dense, k64), 16u * 16 * 64 + 126);
}

TEST(Timing, OfGroupsIsThatOfEachInTurn) {
  Conv2DInstruction grouped = Conv();
  grouped.groups = 4;  // K = 36, N = 25
  EXPECT_EQ(ExecutionCycles(grouped, k64), 4u * 120 + 126);
}

TEST(Timing, OfTransposeConv2DIsATileForEachTapAndADrain) {
  // M = 30, 60 outputs, one tile of input channels, two of output channels.
  const TransposeConv2DInstruction transposed = Assembled<TransposeConv2DInstruction>(
      "batch=1, input_h=5, input_w=6, input_c=16, output_h=10, output_w=6, output_c=100, "
      "kernel_h=3, kernel_w=2");
  EXPECT_EQ(ExecutionCycles(transposed, k64), 2u * 6 * 64 + 2 * 60 + 126);
  EXPECT_EQ(ExecutionCycles(transposed, {8, 128}), 6u * 2 * 30 + 60 + 134);
}

TEST(Timing, OfLstmIsTwoProductsAndTheNewStateInEachStep) {
  // 80 gates: two tiles wide; 28 inputs and 20 units: one tile high each.
  const LstmInstruction lstm{.batch = 1, .steps = 28, .inputs = 28, .units = 20};
  EXPECT_EQ(ExecutionCycles(lstm, k64), 28u * (2 * 2 * 64 + 126 + 8 + 36));
  const LstmInstruction large{.batch = 40, .steps = 3, .inputs = 100, .units = 70};
  EXPECT_EQ(ExecutionCycles(large, k32), 3u * ((4 + 3) * 9 * 40 + 62 + 8 * 40 * 3 + 36));
}

TEST(Timing, OfTheVectorUnitIsLanesAndTaps) {
  EXPECT_EQ(
      ExecutionCycles(Assembled<DepthwiseConv2DInstruction>(
                          "batch=2, output_h=5, output_w=7, output_c=65, kernel_h=3, kernel_w=3"),
                      k64),
      70u * 2 * 9);
  EXPECT_EQ(
      ExecutionCycles(Assembled<Pool2DInstruction>(
                          "batch=1, channels=64, output_h=4, output_w=4, kernel_h=2, kernel_w=2"),
                      k64),
      16u * 4);
  EXPECT_EQ(ExecutionCycles(TableInstruction{.count = 128}, k64), 2u);
}

// A mean of 2 images over 49 positions, and over the 100 channels of 98 positions.
TEST(Timing, OfReductionsIsRowsInLanes) {
  const auto cycles = [](auto i) {
    i.kept0 = 2;
    i.reduced0 = i.kept1 = 1;
    i.reduced1 = 49;
    i.kept2 = 100;
    i.reduced2 = 1;
    const uint64_t of_positions = ExecutionCycles(i, k64);
    i.reduced1 = 1;
    i.kept2 = 49;
    i.reduced2 = 100;
    return std::pair(of_positions, ExecutionCycles(i, k64));
  };
  const std::pair<uint64_t, uint64_t> expected(2 * 49 * 2, 98 * 2 + 98 * 6);
  EXPECT_EQ(cycles(ReduceSumInstruction()), expected);
  EXPECT_EQ(cycles(ReduceMaxInstruction()), expected);
  EXPECT_EQ(cycles(ReduceMinInstruction()), expected);
  // Fewer lanes than there are hold the 5 elements of an output.
  const ReduceMaxInstruction narrow = Assembled<ReduceMaxInstruction>(
      "kept0=1, reduced0=1, kept1=1, reduced1=1, kept2=7, reduced2=5");
  EXPECT_EQ(ExecutionCycles(narrow, k64), 7u * (1 + 3));
}

TEST(Timing, OfNormalisedRowsIsPassesAndTheirFolding) {
  EXPECT_EQ(ExecutionCycles(SoftmaxInstruction{.rows = 3, .depth = 100}, k64),
            13u * 4 + 3 * (3 * 2 + 2 * 6 + 8));
  EXPECT_EQ(ExecutionCycles(L2NormalizationInstruction{.rows = 3, .depth = 100}, k32),
            3u * (2 * 4 + 5 + 22));
}

// The size of the whole images does not matter.
TEST(Timing, OfResizingIsThatOfTheRowsComputed) {
  const auto cycles = [](auto i) {
    i.batch = 2;
    i.input_h = i.output_h = 1000;
    i.output_rows = 5;
    i.output_w = 7;
    i.channels = 65;
    return ExecutionCycles(i, k64);
  };
  EXPECT_EQ(cycles(ResizeBilinearInstruction()), 4u * 2 * 5 * 7 * 2);
  EXPECT_EQ(cycles(ResizeNearestNeighborInstruction()), 2u * 5 * 7 * 2);
}

template <typename T>
uint64_t PairCycles() {
  return ExecutionCycles(T{.count0 = 2, .count1 = 3, .count2 = 5, .count3 = 65}, k64);
}

TEST(Timing, OfTwoTensorsIsTwoReadsPerRun) {
  EXPECT_EQ(PairCycles<AddInstruction>(), 30u * 2 * 2);
  EXPECT_EQ(PairCycles<MultiplyInstruction>(), 120u);
  EXPECT_EQ(PairCycles<MaximumInstruction>(), 120u);
  EXPECT_EQ(PairCycles<MinimumInstruction>(), 120u);
  EXPECT_EQ(PairCycles<PreluInstruction>(), 120u);
}

TEST(Timing, OfTransfersIs64BytesACycle) {
  EXPECT_EQ(ExecutionCycles(InputInstruction{.bytes = 1}, k64), 1u);
  EXPECT_EQ(ExecutionCycles(OutputInstruction{.bytes = 64}, k64), 1u);
  EXPECT_EQ(ExecutionCycles(ParametersInstruction{.bytes = 65}, k64), 2u);
  EXPECT_EQ(ExecutionCycles(FillInstruction{.bytes = 129}, k32), 3u);
  const CopyInstruction copy =
      Assembled<CopyInstruction>("bytes=65, count0=2, count1=3, count2=5, count3=7, count4=11");
  EXPECT_EQ(ExecutionCycles(copy, k64), 2310u * 2);
  EXPECT_EQ(ExecutionCycles(EndInstruction{}, k64), 0u);
}

TEST(Timing, MultiplyAccumulatesAreThoseOfFilters) {
  EXPECT_EQ(MultiplyAccumulates(Conv()), 120u * 100 * 144);
  Conv2DInstruction grouped = Conv();
  grouped.groups = 4;
  EXPECT_EQ(MultiplyAccumulates(grouped), 120u * 100 * 36);
  grouped.groups = 0;
  EXPECT_EQ(MultiplyAccumulates(grouped), 0u) << "refused by the device, but counted before";
  EXPECT_EQ(MultiplyAccumulates(Assembled<DepthwiseConv2DInstruction>(
                "batch=2, output_h=5, output_w=7, output_c=65, kernel_h=3, kernel_w=3")),
            70u * 65 * 9);
  EXPECT_EQ(MultiplyAccumulates(Assembled<TransposeConv2DInstruction>(
                "batch=2, input_h=3, input_w=4, input_c=5, output_h=9, output_w=9, output_c=6, "
                "kernel_h=3, kernel_w=2")),
            24u * 5 * 6 * 6);
  EXPECT_EQ(MultiplyAccumulates(LstmInstruction{.batch = 2, .steps = 7, .inputs = 5, .units = 3}),
            14u * 12 * 8);
  EXPECT_EQ(MultiplyAccumulates(TableInstruction{.count = 65}), 0u);
}

}  // namespace
}  // namespace atollrt
