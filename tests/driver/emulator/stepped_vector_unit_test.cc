// SPDX-License-Identifier: Apache-2.0
//
// The example of docs/isa.md §5, "How the vector unit computes". Bytes and cycles of all
// instructions are the business of stepped_machine_test.
#include "driver/emulator/stepped_vector_unit.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/assembled.h"

namespace atollrt {
namespace {

TEST(SteppedVectorUnit, HoldsTheRegistersOfThePageInEachCycle) {
  const std::vector<std::vector<int64_t>> expected = {
      {3, 1, 4, 1}, {8, 10, 6, 1}, {18, 10, 7, 1}, {25, 10, 7, 1}};
  SteppedVectorUnit unit(4);
  std::vector<std::vector<int64_t>> got;
  unit.lanes().set_observer([&](uint64_t cycle) {
    EXPECT_EQ(cycle, got.size());
    got.emplace_back();
    for (const stepped::Lane& lane : unit.lanes().all()) got.back().push_back(lane.value);
  });
  std::vector<uint8_t> memory = {3, 1, 4, 1, 5, 9, 2, 0};
  const ReduceSumInstruction sum = Assembled<ReduceSumInstruction>(
      "output_address=act+7, kept0=1, reduced0=1, kept1=1, reduced1=1, kept2=1, reduced2=7, "
      "multiplier=1073741824, exponent=1, clamp_min=-128, clamp_max=127");
  EXPECT_EQ(unit.Run(sum, {}, memory), 4u);
  EXPECT_EQ(got, expected);
  EXPECT_EQ(memory.back(), 25);
}

}  // namespace
}  // namespace atollrt
