// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/resize.h"

#include <gtest/gtest.h>

#include "tests/runtime/kernels/filter_sums.h"

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

// The golden cases have no int16; the arithmetic is that of int8.
TEST(BilinearResize, ResizesInt16) {
  Rng rng(TestSeed(1));
  ThreadPool pool(2);
  for (int i = 0; i < 200; ++i) {
    const ResizeParams p{
        .batch = rng.Int32(1, 2),
        .input_h = rng.Int32(1, 9),
        .input_w = rng.Int32(1, 9),
        .channels = rng.Int32(1, 9),
        .output_h = rng.Int32(1, 20),
        .output_w = rng.Int32(1, 20),
        .mode = rng.Pick<ResizeMode>(
            {ResizeMode::kCorners, ResizeMode::kAlignCorners, ResizeMode::kHalfPixelCenters})};
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
    const Result<BilinearResize> resize = BilinearResize::Prepare(p, ResizeType::kInt16);
    ASSERT_TRUE(resize.ok());
    std::vector<int16_t> output(expected.size());
    std::vector<uint64_t> scratch(resize->ScratchBytes(2) / 8);
    resize->Run(BytesOf(input), BytesOf(output), BytesOf(scratch), &pool);
    ASSERT_EQ(output, expected) << "case " << i;
  }
}

// Rounding makes the last tap land beyond the image: it must not be read there.
TEST(BilinearResize, StaysInsideWhenTheStepIsRoundedUp) {
  const ResizeParams p{.input_w = 3, .output_w = 5000, .mode = ResizeMode::kAlignCorners};
  const std::vector<int8_t> input = {-128, 0, 100};
  const Result<BilinearResize> resize = BilinearResize::Prepare(p, ResizeType::kInt8);
  ASSERT_TRUE(resize.ok());
  std::vector<int8_t> output(5000);
  std::vector<uint64_t> scratch(resize->ScratchBytes(1) / 8);
  resize->Run(BytesOf(input), BytesOf(output), BytesOf(scratch), nullptr);
  EXPECT_EQ(output.front(), -128);
  EXPECT_TRUE(std::is_sorted(output.begin(), output.end()));
}

}  // namespace
}  // namespace atollrt
