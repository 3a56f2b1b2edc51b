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
  RunStridedCopy(copy, nullptr, nullptr, nullptr);
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
    RunStridedCopy(MakeStridedCopy(elements, static_cast<size_t>(bytes)), in.data(), out.data(),
                   nullptr);
    ASSERT_EQ(out, expected) << "round " << round;
  }
}

// ---- Parts --------------------------------------------------------------------------------------

TEST(ClipStridedCopy, KeepsACopyThatIsInsideAsItIs) {
  const StridedCopy copy = MakeStridedCopy({.loops = {{7, 1, 40}, {8, 7, 5}, {5, 56, 1}}}, 1);
  std::vector<StridedCopy> parts;
  ClipStridedCopy(copy, 0, 280, &parts);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].loops[1].in_stride, 1);
}

TEST(ClipStridedCopy, CutsRowsOutOfABox) {
  // Rows 1 and 2 of a 3 x 4 box in a 5 x 6 image, from its second row and third column on.
  const StridedCopy copy{.in_offset = 0, .out_offset = 8, .run_bytes = 4, .loops = {{3, 4, 6}}};
  std::vector<StridedCopy> parts;
  ClipStridedCopy(copy, 12, 24, &parts);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].in_offset, 4);
  EXPECT_EQ(parts[0].out_offset, 14);
  ASSERT_EQ(parts[0].loops.size(), 1u);
  EXPECT_EQ(parts[0].loops[0].count, 2);
  parts.clear();
  ClipStridedCopy(copy, 0, 8, &parts);
  ClipStridedCopy(copy, 24, 30, &parts);
  EXPECT_TRUE(parts.empty());
}

// Any cut of the output, anywhere: the parts together are the copy, and none leaves its range.
TEST(ClipStridedCopy, DividesRandomCopies) {
  Rng rng(TestSeed(5));
  for (int round = 0; round < 500; ++round) {
    StridedCopy elements;
    const int64_t bytes = rng.Int(1, 3);
    int64_t out_size = 1;
    const int64_t rank = rng.Int(0, 5);
    for (int64_t i = 0; i < rank; ++i) {
      const int64_t count = rng.Int(1, 5);
      elements.loops.insert(elements.loops.begin(), {count, rng.Int(-9, 9), out_size});
      out_size *= count + rng.Int(0, 2);
    }
    for (const Loop& loop : elements.loops) {
      elements.in_offset += loop.in_stride < 0 ? -loop.in_stride * (loop.count - 1) : 0;
    }
    elements.out_offset = rng.Int(0, 7);
    const int64_t size = (out_size + 10) * bytes;
    std::vector<uint8_t> in(600);
    rng.Fill(in);
    const StridedCopy copy = MakeStridedCopy(elements, static_cast<size_t>(bytes));
    std::vector<uint8_t> expected(static_cast<size_t>(size), 0xEE), out = expected;
    RunStridedCopy(copy, in.data(), expected.data(), nullptr);
    for (int64_t begin = 0; begin < size;) {
      const int64_t end = std::min(size, begin + rng.Int(1, size));
      std::vector<StridedCopy> parts;
      ClipStridedCopy(copy, begin, end, &parts);
      EXPECT_LE(parts.size(), 2 * copy.loops.size() + 1);
      const std::vector<uint8_t> before = out;
      for (const StridedCopy& part : parts) RunStridedCopy(part, in.data(), out.data(), nullptr);
      for (int64_t i = 0; i < size; ++i) {
        const bool inside = i >= begin && i < end;
        ASSERT_TRUE(inside || out[i] == before[i]) << "round " << round;
      }
      begin = end;
    }
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
