// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/pool2d.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "runtime/kernels/cpu_features.h"
#include "tests/runtime/kernels/random_conv.h"
#include "tests/support/guarded_buffer.h"

namespace atollrt {
namespace {

// The formulas of the header, cell by cell, in 64-bit integers.
std::vector<uint8_t> ExpectedPool(const Pool2DParams& p, const std::vector<uint8_t>& input) {
  std::vector<uint8_t> output;
  for (int n = 0; n < p.batch; ++n) {
    for (int y = 0; y < p.output_h; ++y) {
      for (int x = 0; x < p.output_w; ++x) {
        for (int c = 0; c < p.channels; ++c) {
          int64_t sum = 0, count = 0, best = -1000;
          for (int ky = 0; ky < p.kernel_h; ++ky) {
            for (int kx = 0; kx < p.kernel_w; ++kx) {
              const int iy = y * p.stride_h - p.pad_top + ky;
              const int ix = x * p.stride_w - p.pad_left + kx;
              if (iy < 0 || iy >= p.input_h || ix < 0 || ix >= p.input_w) continue;
              const int value = ByteValue(
                  input[((n * p.input_h + iy) * p.input_w + ix) * p.channels + c], p.type);
              sum += value;
              best = std::max<int64_t>(best, value);
              ++count;
            }
          }
          int64_t value = best;
          if (p.kind == PoolKind::kAverage) {
            value = p.type == ByteType::kUInt8 || sum > 0 ? (sum + count / 2) / count
                                                          : (sum - count / 2) / count;
          }
          output.push_back(
              static_cast<uint8_t>(Clamp(static_cast<int32_t>(value), p.clamp.min, p.clamp.max)));
        }
      }
    }
  }
  return output;
}

// What all levels give, each reading and writing nothing but the tensors.
std::vector<uint8_t> Pooled(const Pool2DParams& p, const std::vector<uint8_t>& input) {
  static ThreadPool pool(2);
  std::vector<uint8_t> first;
  for (const CpuFeatures level : AvailableCpuLevels()) {
    for (const auto at : {GuardedBuffer::kStart, GuardedBuffer::kEnd}) {
      GuardedBuffer in(input.size(), at);
      std::copy(input.begin(), input.end(), in.data());
      GuardedBuffer out(size_t(p.batch) * p.output_h * p.output_w * p.channels, at);
      Pool2D(p, ChooseRowLoops(level), in.data(), out.data(), &pool);
      EXPECT_TRUE(out.Intact());
      const std::vector<uint8_t> output(out.data(), out.data() + out.size());
      if (first.empty()) first = output;
      EXPECT_EQ(output, first) << CpuFeaturesName(level);
    }
  }
  return first;
}

TEST(Pool2D, RoundsTiesByTypeAndSign) {
  Pool2DParams p{.input_w = 2, .kernel_w = 2, .kind = PoolKind::kAverage};
  EXPECT_EQ(Pooled(p, {1, 2}), std::vector<uint8_t>{2});
  EXPECT_EQ(Pooled(p, {0xFF, 0xFE}), std::vector<uint8_t>{0xFE});  // (-1 - 2 - 1) / 2 = -2
  p.type = ByteType::kUInt8;
  p.clamp = {0, 255};
  EXPECT_EQ(Pooled(p, {0xFF, 0xFE}), std::vector<uint8_t>{0xFF});
}

TEST(Pool2D, IsExactForTheLargestWindow) {
  Pool2DParams p{.input_h = 2048, .input_w = 4096, .kernel_h = INT32_MAX, .kernel_w = INT32_MAX};
  p.kind = PoolKind::kAverage;
  p.type = ByteType::kUInt8;
  p.clamp = {0, 255};
  std::vector<uint8_t> image(size_t{2048} * 4096, 255);
  EXPECT_EQ(Pooled(p, image), std::vector<uint8_t>{255});
  std::fill_n(image.begin(), image.size() / 2, uint8_t{254});  // 254.5 rounds up ...
  EXPECT_EQ(Pooled(p, image), std::vector<uint8_t>{255});
  image.back() = 254;  // ... and just below it rounds down
  EXPECT_EQ(Pooled(p, image), std::vector<uint8_t>{254});
}

// From the least to the greatest sum of each window.
TEST(Pool2D, DividesSumsOfSmallWindowsExactly) {
  for (const int n : {1, 2, 3, 7, 49, 64, 255, 256, 257, 258}) {
    for (const ByteType type : {ByteType::kInt8, ByteType::kUInt8}) {
      Pool2DParams p{.input_w = n, .channels = 3, .kernel_w = n, .kind = PoolKind::kAverage};
      p.type = type;
      p.clamp = {ByteMin(type), ByteMax(type)};
      std::vector<uint8_t> image(static_cast<size_t>(n) * 3);
      for (int round = 0; round < 20; ++round) {
        for (size_t i = 0; i < image.size(); ++i) {
          const int place = static_cast<int>(i) / 3;
          const uint8_t edge =
              static_cast<uint8_t>(place * 19 < round * n ? ByteMax(type) : ByteMin(type));
          image[i] = i % 3 == 0 ? edge : static_cast<uint8_t>(i * 37 + round * 11);
        }
        ASSERT_EQ(Pooled(p, image), ExpectedPool(p, image)) << n << " cells, round " << round;
      }
    }
  }
}

// Channel s of a window of n cells has the sum s.
TEST(Pool2D, DividesEverySum) {
  for (const int n :
       {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 15, 16, 25, 35, 49, 64, 127, 255, 256}) {
    Pool2DParams p{.input_w = n, .channels = 255 * n + 1, .kernel_w = n};
    p.kind = PoolKind::kAverage;
    std::vector<uint8_t> image(static_cast<size_t>(n) * p.channels);
    for (int s = 0; s < p.channels; ++s) {
      for (int cell = 0; cell < n; ++cell) {
        image[static_cast<size_t>(cell) * p.channels + s] =
            static_cast<uint8_t>(s / n + (cell < s % n ? 1 : 0));
      }
    }
    p.type = ByteType::kUInt8;
    p.clamp = {0, 255};
    std::vector<uint8_t> expected;
    for (int s = 0; s < p.channels; ++s) expected.push_back(static_cast<uint8_t>((s + n / 2) / n));
    ASSERT_EQ(Pooled(p, image), expected) << n << " cells of uint8";
    for (uint8_t& byte : image) byte ^= 0x80;
    p.type = ByteType::kInt8;
    p.clamp = {-128, 127};
    for (int s = 0; s < p.channels; ++s) {
      const int sum = s - 128 * n;
      expected[static_cast<size_t>(s)] =
          static_cast<uint8_t>((sum > 0 ? sum + n / 2 : sum - n / 2) / n);
    }
    ASSERT_EQ(Pooled(p, image), expected) << n << " cells of int8";
  }
}

TEST(Pool2D, EqualsTheFormulaOnRandomShapes) {
  std::mt19937 rng(20240611);
  const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
  for (int round = 0; round < 300; ++round) {
    Pool2DParams p;
    p.batch = pick(1, 2);
    p.kernel_h = pick(1, 5);
    p.kernel_w = pick(1, 5);
    p.stride_h = pick(1, 3);
    p.stride_w = pick(1, 3);
    p.pad_top = pick(0, p.kernel_h - 1);
    p.pad_left = pick(0, p.kernel_w - 1);
    p.output_h = pick(1, 4);
    p.output_w = pick(1, 4);
    p.input_h = std::max(1, (p.output_h - 1) * p.stride_h - p.pad_top + pick(1, p.kernel_h));
    p.input_w = std::max(1, (p.output_w - 1) * p.stride_w - p.pad_left + pick(1, p.kernel_w));
    p.channels = round % 10 == 0 ? pick(250, 520) : pick(1, round % 2 == 0 ? 20 : 100);
    p.type = pick(0, 1) != 0 ? ByteType::kUInt8 : ByteType::kInt8;
    p.kind = pick(0, 1) != 0 ? PoolKind::kAverage : PoolKind::kMax;
    p.clamp = {ByteMin(p.type) + pick(0, 20), ByteMax(p.type) - pick(0, 20)};
    std::vector<uint8_t> input(size_t(p.batch) * p.input_h * p.input_w * p.channels);
    for (uint8_t& byte : input) byte = static_cast<uint8_t>(pick(0, 255));
    ASSERT_EQ(Pooled(p, input), ExpectedPool(p, input)) << "round " << round;
  }
}

TEST(Pool2D, AveragesInt16LikeInt8) {
  Pool2DParams p{.input_w = 2, .kernel_w = 2, .kind = PoolKind::kAverage};
  p.clamp = {INT16_MIN, 20000};
  const auto average = [&](int16_t a, int16_t b) {
    const int16_t input[] = {a, b};
    int16_t output = 0;
    Pool2DInt16(p, reinterpret_cast<const uint8_t*>(input), &output, nullptr);
    return output;
  };
  EXPECT_EQ(average(-1, -2), -2);
  EXPECT_EQ(average(1, 2), 2);
  EXPECT_EQ(average(INT16_MIN, INT16_MIN), INT16_MIN);
  EXPECT_EQ(average(INT16_MAX, INT16_MAX), 20000);
}

TEST(Pool2D, PoolsFloats) {
  Pool2DParams p{.input_w = 2, .kernel_w = 2, .kind = PoolKind::kAverage};
  const float input[] = {-1.5f, -4};
  float output = 0;
  Pool2DFloat(p, {}, reinterpret_cast<const uint8_t*>(input), &output, nullptr);
  EXPECT_EQ(output, -2.75f);
  p.kind = PoolKind::kMax;
  Pool2DFloat(p, {}, reinterpret_cast<const uint8_t*>(input), &output, nullptr);
  EXPECT_EQ(output, -1.5f);
  Pool2DFloat(p, {0, 6}, reinterpret_cast<const uint8_t*>(input), &output, nullptr);
  EXPECT_EQ(output, 0);
}

}  // namespace
}  // namespace atollrt
