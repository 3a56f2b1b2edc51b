// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/resize.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/base/buffer.h"
#include "runtime/kernels/cpu_features.h"
#include "tests/runtime/kernels/filter_sums.h"
#include "tests/runtime/kernels/random_conv.h"

namespace atollrt {
namespace {

// docs/quantization.md §9 for one axis, with the fraction left as it comes.
struct Tap {
  int64_t low, high, fraction;
};
Tap TapAt(ResizeMode mode, int64_t n, int64_t m, int64_t i) {
  int64_t step = (n * 1024 + m / 2) / m;
  if (mode == ResizeMode::kAlignCorners && m > 1) step = ((n - 1) * 1024 + (m - 1) / 2) / (m - 1);
  int64_t v = i * step;
  if (mode == ResizeMode::kHalfPixelCenters) v += step / 2 - 512;
  const int64_t low = std::max<int64_t>(v / 1024, 0);
  const int64_t high = std::min<int64_t>((v + 1023) / 1024, n - 1);
  return {low, high, v - 1024 * low};
}

// Of any level that this machine has.
const RowLoops& AnyLoops(Rng& rng) {
  const std::vector<CpuFeatures> levels = AvailableCpuLevels();
  return ChooseRowLoops(levels[rng.Int(0, static_cast<int64_t>(levels.size()) - 1)]);
}

ResizeParams RandomParams(Rng& rng) {
  ResizeParams p = {.batch = rng.Int32(1, 2),
                    .input_h = rng.Int32(1, 9),
                    .input_w = rng.Int32(1, rng.OneIn(3) ? 50 : 9),
                    .channels = rng.OneIn(3) ? rng.Int32(10, 70) : rng.Int32(1, 9),
                    .output_h = rng.Int32(1, 20),
                    .output_w = rng.Int32(1, 20),
                    .mode = rng.Pick<ResizeMode>({ResizeMode::kCorners, ResizeMode::kAlignCorners,
                                                  ResizeMode::kHalfPixelCenters})};
  if (rng.OneIn(3)) {
    // An enlargement whose weights are sixteenths.
    const int32_t factor = rng.Pick<int32_t>({1, 2, 4, 8, 16});
    const int32_t same = p.mode == ResizeMode::kAlignCorners ? 1 : 0;
    p.output_h = (p.input_h - same) * factor + same;
    p.output_w = (p.input_w - same) * factor + same;
  }
  return p;
}

// Aligned to 64 bytes.
Buffer BilinearScratch(const ResizeParams& p, ResizeType type, int threads) {
  return *Buffer::Allocate(BilinearScratchBytes(p, type, threads));
}

// The golden cases have no int16; the arithmetic is that of int8.
TEST(ResizeBilinear, ResizesInt16) {
  Rng rng(TestSeed(1));
  ThreadPool pool(2);
  for (int i = 0; i < 200; ++i) {
    const ResizeParams p = RandomParams(rng);
    const std::vector<int16_t> input =
        RandomInt16(&rng, int64_t{p.batch} * p.input_h * p.input_w * p.channels);
    std::vector<int16_t> expected;
    for (int n = 0; n < p.batch; ++n) {
      for (int y = 0; y < p.output_h; ++y) {
        for (int x = 0; x < p.output_w; ++x) {
          const Tap ty = TapAt(p.mode, p.input_h, p.output_h, y);
          const Tap tx = TapAt(p.mode, p.input_w, p.output_w, x);
          for (int c = 0; c < p.channels; ++c) {
            const auto at = [&](int64_t row, int64_t column) {
              return int64_t{input[((n * p.input_h + row) * p.input_w + column) * p.channels + c]};
            };
            const int64_t a = at(ty.low, tx.low) * (1024 - ty.fraction) * (1024 - tx.fraction) +
                              at(ty.high, tx.low) * ty.fraction * (1024 - tx.fraction) +
                              at(ty.low, tx.high) * (1024 - ty.fraction) * tx.fraction +
                              at(ty.high, tx.high) * ty.fraction * tx.fraction;
            const int64_t half = 1 << 19;
            expected.push_back(static_cast<int16_t>((a > 0 ? a + half : a - half) / (1 << 20)));
          }
        }
      }
    }
    std::vector<int16_t> output(expected.size());
    Buffer scratch = BilinearScratch(p, ResizeType::kInt16, 2);
    ResizeBilinear(p, ResizeType::kInt16, AnyLoops(rng), WholeImages(p), BytesOf(input),
                   BytesOf(output), scratch.data(), &pool);
    ASSERT_EQ(output, expected) << "case " << i;
    std::fill(output.begin(), output.end(), int16_t{0});
    ResizeBilinear(p, ResizeType::kInt16, AnyLoops(rng), WholeImages(p), BytesOf(input),
                   BytesOf(output), nullptr, nullptr);
    ASSERT_EQ(output, expected) << "case " << i << " without scratch";
  }
}

// Rounding makes the last tap land beyond the image: it must not be read there.
TEST(ResizeBilinear, StaysInsideWhenTheStepIsRoundedUp) {
  const ResizeParams p{.input_w = 3, .output_w = 5000, .mode = ResizeMode::kAlignCorners};
  const std::vector<int8_t> input = {-128, 0, 100};
  std::vector<int8_t> output(5000);
  Rng rng(TestSeed(3));
  Buffer scratch = BilinearScratch(p, ResizeType::kInt8, 1);
  ResizeBilinear(p, ResizeType::kInt8, AnyLoops(rng), WholeImages(p), BytesOf(input),
                 BytesOf(output), scratch.data(), nullptr);
  EXPECT_EQ(output.front(), -128);
  EXPECT_TRUE(std::is_sorted(output.begin(), output.end()));
}

// Every byte type and operator, with and without scratch: the rows of a band from the input rows
// that it is said to need, in a block of their own size.
TEST(Resize, GivesTheSameRowsInBands) {
  Rng rng(TestSeed(2));
  ThreadPool pool(2);
  for (int i = 0; i < TestCount(2000); ++i) {
    const ResizeParams p = RandomParams(rng);
    const auto type = i % 2 == 0 ? ResizeType::kInt8 : ResizeType::kUInt8;
    const bool is_nearest = i % 3 == 0;
    std::vector<uint8_t> input(static_cast<size_t>(p.batch) * p.input_h * p.input_w * p.channels);
    rng.Fill(input);
    const int64_t out_row = int64_t{p.output_w} * p.channels;
    const int64_t in_row = int64_t{p.input_w} * p.channels;
    Buffer scratch = BilinearScratch(p, type, 2);
    const auto run = [&](const ResizeBand& band, const uint8_t* rows, uint8_t* scratch_block) {
      std::vector<uint8_t> out(static_cast<size_t>(p.batch * band.output.count * out_row));
      if (is_nearest) {
        ResizeNearest(p, p.channels, band, rows, out.data(), &pool);
      } else {
        ResizeBilinear(p, type, AnyLoops(rng), band, rows, out.data(), scratch_block, &pool);
      }
      return out;
    };
    if (rng.OneIn(4)) std::fill(input.begin(), input.end(), rng.Pick<uint8_t>({0, 127, 128, 255}));
    const std::vector<uint8_t> whole = run(WholeImages(p), input.data(), nullptr);
    for (int level = 0; level < 3; ++level) {
      std::fill_n(scratch.data(), scratch.size(), uint8_t{0xff});
      ASSERT_EQ(run(WholeImages(p), input.data(), scratch.data()), whole) << "case " << i;
    }
    ResizeBand band;
    band.output.first = rng.Int32(0, p.output_h - 1);
    band.output.count = rng.Int32(1, p.output_h - band.output.first);
    band.input =
        is_nearest ? NearestInputRows(p, band.output) : BilinearInputRows(p, type, band.output);
    ASSERT_GE(band.input.first, 0);
    ASSERT_GE(band.input.count, 1);
    ASSERT_LE(band.input.first + band.input.count, p.input_h);
    std::vector<uint8_t> rows, expected;
    for (int n = 0; n < p.batch; ++n) {
      const auto from = input.begin() + (int64_t{n} * p.input_h + band.input.first) * in_row;
      rows.insert(rows.end(), from, from + band.input.count * in_row);
      const auto to = whole.begin() + (int64_t{n} * p.output_h + band.output.first) * out_row;
      expected.insert(expected.end(), to, to + band.output.count * out_row);
    }
    ASSERT_EQ(run(band, rows.data(), scratch.data()), expected) << "case " << i;
  }
}

}  // namespace
}  // namespace atollrt
