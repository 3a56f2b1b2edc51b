// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/mean.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace atollrt {
namespace {

std::vector<uint8_t> MeanOf(const MeanParams& p, const std::vector<uint8_t>& input) {
  std::vector<uint8_t> output(size_t(p.batch) * p.channels);
  Mean(p, input.data(), output.data());
  return output;
}

TEST(Mean, DividesByTheMultiplier) {
  const MeanParams p{.positions = 4,
                     .channels = 2,
                     .input_zero_point = 1,
                     .multiplier = QuantizeMultiplier(0.25),
                     .output_zero_point = 3};
  // (5+5+9+9 - 4)/4 + 3 and (-1-1-1-1 - 4)/4 + 3.
  EXPECT_EQ(MeanOf(p, {5, 0xFF, 5, 0xFF, 9, 0xFF, 9, 0xFF}), (std::vector<uint8_t>{9, 1}));
}

TEST(Mean, EqualsTheFormulaOnRandomShapes) {
  std::mt19937 rng(20240612);
  const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
  for (int round = 0; round < 200; ++round) {
    MeanParams p;
    p.batch = pick(1, 3);
    p.positions = pick(1, 60);
    p.channels = round % 10 == 0 ? pick(250, 520) : pick(1, 20);
    p.type = pick(0, 1) != 0 ? ByteType::kUInt8 : ByteType::kInt8;
    p.input_zero_point = pick(ByteMin(p.type), ByteMax(p.type));
    p.output_zero_point = pick(ByteMin(p.type), ByteMax(p.type));
    p.multiplier = QuantizeMultiplier(pick(1, 4000) / 1000.0 / p.positions);
    p.clamp = {ByteMin(p.type) + pick(0, 20), ByteMax(p.type) - pick(0, 20)};
    std::vector<uint8_t> input(size_t(p.batch) * p.positions * p.channels);
    for (uint8_t& byte : input) byte = static_cast<uint8_t>(pick(0, 255));
    std::vector<uint8_t> expected;
    for (int n = 0; n < p.batch; ++n) {
      for (int c = 0; c < p.channels; ++c) {
        int32_t sum = 0;
        for (int i = 0; i < p.positions; ++i) {
          sum +=
              ByteValue(input[(n * p.positions + i) * p.channels + c], p.type) - p.input_zero_point;
        }
        const int32_t value =
            MultiplyByQuantizedMultiplier(sum, p.multiplier) + p.output_zero_point;
        expected.push_back(static_cast<uint8_t>(Clamp(value, p.clamp.min, p.clamp.max)));
      }
    }
    ASSERT_EQ(MeanOf(p, input), expected) << "round " << round;
  }
}

TEST(Mean, LetsSumsWrap) {
  // The difference of sum and zero points does not fit 32 bits.
  const MeanParams p{.positions = 1 << 24,
                     .type = ByteType::kInt8,
                     .input_zero_point = 127,
                     .multiplier = {1 << 30, 1},
                     .output_zero_point = 0,
                     .clamp = {-128, 127}};
  const std::vector<uint8_t> input(size_t{1} << 24, 0x80);
  // -255 * 2^24 = 2^24 modulo 2^32.
  EXPECT_EQ(MeanOf(p, input), std::vector<uint8_t>{127});
}

}  // namespace
}  // namespace atollrt
