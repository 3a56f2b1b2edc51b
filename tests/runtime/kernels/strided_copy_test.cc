// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/strided_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/support/rng.h"

namespace atollrt {
namespace {

using Loop = StridedCopy::Loop;

// The definition, element by element, with loops as they are given.
void CopyByDefinition(const StridedCopy& elements, size_t loop, int64_t in_at, int64_t out_at,
                      int64_t bytes, const std::vector<uint8_t>& in, std::vector<uint8_t>* out) {
  if (loop == elements.loops.size()) {
    std::copy_n(in.begin() + in_at * bytes, bytes, out->begin() + out_at * bytes);
    return;
  }
  const Loop& l = elements.loops[loop];
  for (int64_t i = 0; i < l.count; ++i) {
    CopyByDefinition(elements, loop + 1, in_at + i * l.in_stride, out_at + i * l.out_stride, bytes,
                     in, out);
  }
}

TEST(StridedCopy, TurnsAWholeTensorIntoOneRun) {
  const StridedCopy copy = MakeStridedCopy({.loops = {{2, 12, 12}, {3, 4, 4}, {4, 1, 1}}}, 4);
  EXPECT_EQ(copy.run_bytes, 96);
  EXPECT_TRUE(copy.loops.empty());
}

TEST(StridedCopy, TurnsASliceOfRowsIntoRuns) {
  // Columns 2 to 4 of a 5 x 8 image with 3 channels.
  const StridedCopy copy =
      MakeStridedCopy({.in_offset = 6, .loops = {{5, 24, 9}, {3, 3, 3}, {3, 1, 1}}}, 1);
  EXPECT_EQ(copy.in_offset, 6);
  EXPECT_EQ(copy.run_bytes, 9);
  ASSERT_EQ(copy.loops.size(), 1u);
  EXPECT_EQ(copy.loops[0].count, 5);
}

TEST(StridedCopy, PutsTheSequentialLoopsOfATranspositionNextToEachOther) {
  // [a, b, c] to [c, b, a].
  const StridedCopy copy = MakeStridedCopy({.loops = {{7, 1, 40}, {8, 7, 5}, {5, 56, 1}}}, 1);
  ASSERT_EQ(copy.loops.size(), 3u);
  EXPECT_EQ(copy.loops[1].in_stride, 1);
  EXPECT_EQ(copy.loops[2].out_stride, 1);
}

TEST(StridedCopy, CopiesNothingWhenALoopIsEmpty) {
  const StridedCopy copy = MakeStridedCopy({.loops = {{3, 1, 1}, {0, 1, 1}}}, 4);
  EXPECT_EQ(copy.run_bytes, 0);
  RunStridedCopy(copy, nullptr, nullptr);
}

// Views of random boxes: a random order of axes, some repeated, some reversed, in larger tensors.
TEST(StridedCopy, EqualsTheDefinitionOnRandomViews) {
  Rng rng(TestSeed(20240917));
  for (int round = 0; round < 400; ++round) {
    const int rank = static_cast<int>(rng.Int(0, 5));
    const int64_t bytes = int64_t{1} << rng.Int(0, 3);
    std::vector<int> order(static_cast<size_t>(rank));
    for (int i = 0; i < rank; ++i) order[static_cast<size_t>(i)] = i;
    for (size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[static_cast<size_t>(rng.Int(0, static_cast<int64_t>(i) - 1))]);
    }
    StridedCopy elements;
    elements.loops.resize(order.size());
    int64_t out_size = 1;
    for (size_t i = order.size(); i-- > 0;) {
      Loop& loop = elements.loops[i];
      loop.count = rng.Int(1, rank < 3 ? 70 : 6);
      loop.out_stride = out_size;
      out_size *= loop.count + rng.Int(0, 1);
    }
    int64_t in_size = 1;
    for (const int axis : order) {
      Loop& loop = elements.loops[static_cast<size_t>(axis)];
      const int64_t kind = rng.Int(0, 5);
      if (kind == 0) continue;  // repeated: stride 0
      loop.in_stride = in_size;
      if (kind == 1) {
        elements.in_offset += (loop.count - 1) * in_size;
        loop.in_stride = -in_size;
      }
      in_size *= loop.count + rng.Int(0, 1);
    }
    std::vector<uint8_t> in(static_cast<size_t>(in_size * bytes));
    rng.Fill(in);
    std::vector<uint8_t> out(static_cast<size_t>(out_size * bytes), 0xEE);
    std::vector<uint8_t> expected = out;
    CopyByDefinition(elements, 0, elements.in_offset, 0, bytes, in, &expected);
    RunStridedCopy(MakeStridedCopy(elements, static_cast<size_t>(bytes)), in.data(), out.data());
    ASSERT_EQ(out, expected) << "round " << round;
  }
}

TEST(FillElements, RepeatsElementsOfAnySize) {
  const std::vector<uint8_t> element{1, 2, 3, 4};
  std::vector<uint8_t> out(7 * 4 + 1, 0xEE);
  FillElements(element.data(), 4, 7, out.data());
  for (size_t i = 0; i < 28; ++i) EXPECT_EQ(out[i], element[i % 4]);
  EXPECT_EQ(out[28], 0xEE);
  FillElements(element.data(), 1, 28, out.data());
  EXPECT_EQ(out[27], 1);
  FillElements(element.data(), 4, 0, nullptr);
}

}  // namespace
}  // namespace atollrt
