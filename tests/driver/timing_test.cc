// SPDX-License-Identifier: Apache-2.0
#include "driver/timing.h"

#include <gtest/gtest.h>

namespace atollrt {
namespace {

constexpr ArraySize k64{64, 64};
constexpr ArraySize k32{32, 32};
constexpr ArraySize k128x16{128, 16};

// 3x3, 16 -> 100 channels, 10x12 outputs.
Conv2DInstruction Conv() {
  return {.batch = 1,
          .input_h = 10,
          .input_w = 12,
          .input_c = 16,
          .output_h = 10,
          .output_w = 12,
          .output_c = 100,
          .kernel_h = 3,
          .kernel_w = 3,
          .groups = 1};
}

TEST(Timing, OfConv2DIsTilesTimesRowsPlusSkew) {
  // K = 144: 3 tiles high, N = 100: 2 wide, M = 120.
  EXPECT_EQ(ExecutionCycles(Conv(), k64), 6u * 120 + 64 + 64 - 2);
  EXPECT_EQ(ExecutionCycles(Conv(), k32), 5u * 4 * 120 + 62);
  EXPECT_EQ(ExecutionCycles(Conv(), k128x16), 2u * 7 * 128 + 142);  // loading hides no longer
}

TEST(Timing, OfFullyConnectedIsTheLoadingOfTiles) {
  const Conv2DInstruction dense{.batch = 1,
                                .input_h = 1,
                                .input_w = 1,
                                .input_c = 1024,
                                .output_h = 1,
                                .output_w = 1,
                                .output_c = 1001,
                                .kernel_h = 1,
                                .kernel_w = 1,
                                .groups = 1};
  EXPECT_EQ(ExecutionCycles(dense, k64), 16u * 16 * 64 + 126);
}

TEST(Timing, OfGroupsIsThatOfEachInTurn) {
  Conv2DInstruction grouped = Conv();
  grouped.groups = 4;  // K = 36, N = 25
  EXPECT_EQ(ExecutionCycles(grouped, k64), 4u * 120 + 126);
}

TEST(Timing, OfTheVectorUnitIsLanesAndTaps) {
  EXPECT_EQ(ExecutionCycles(DepthwiseConv2DInstruction{.batch = 2,
                                                       .output_h = 5,
                                                       .output_w = 7,
                                                       .output_c = 65,
                                                       .kernel_h = 3,
                                                       .kernel_w = 3},
                            k64),
            70u * 2 * 9);
  EXPECT_EQ(ExecutionCycles(Pool2DInstruction{.batch = 1,
                                              .channels = 64,
                                              .output_h = 4,
                                              .output_w = 4,
                                              .kernel_h = 2,
                                              .kernel_w = 2},
                            k64),
            16u * 4);
  EXPECT_EQ(ExecutionCycles(AddInstruction{.count = 65}, k64), 4u);
  EXPECT_EQ(ExecutionCycles(MeanInstruction{.batch = 2, .positions = 49, .channels = 100}, k64),
            2u * 49 * 2);
  EXPECT_EQ(ExecutionCycles(TableInstruction{.count = 128}, k64), 2u);
}

TEST(Timing, OfTransfersIs64BytesACycle) {
  EXPECT_EQ(ExecutionCycles(InputInstruction{.bytes = 1}, k64), 1u);
  EXPECT_EQ(ExecutionCycles(OutputInstruction{.bytes = 64}, k64), 1u);
  EXPECT_EQ(ExecutionCycles(ParametersInstruction{.bytes = 65}, k64), 2u);
  EXPECT_EQ(ExecutionCycles(FillInstruction{.bytes = 129}, k32), 3u);
  EXPECT_EQ(
      ExecutionCycles(CopyInstruction{.bytes = 65, .count0 = 2, .count1 = 3, .count2 = 5}, k64),
      60u);
  EXPECT_EQ(ExecutionCycles(EndInstruction{}, k64), 0u);
}

TEST(Timing, MultiplyAccumulatesAreThoseOfFilters) {
  EXPECT_EQ(MultiplyAccumulates(Conv()), 120u * 100 * 144);
  Conv2DInstruction grouped = Conv();
  grouped.groups = 4;
  EXPECT_EQ(MultiplyAccumulates(grouped), 120u * 100 * 36);
  grouped.groups = 0;
  EXPECT_EQ(MultiplyAccumulates(grouped), 0u) << "refused by the device, but counted before";
  EXPECT_EQ(
      MultiplyAccumulates(DepthwiseConv2DInstruction{
          .batch = 2, .output_h = 5, .output_w = 7, .output_c = 65, .kernel_h = 3, .kernel_w = 3}),
      70u * 65 * 9);
  EXPECT_EQ(MultiplyAccumulates(AddInstruction{.count = 65}), 0u);
}

}  // namespace
}  // namespace atollrt
