// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/quantization/float_stage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <vector>

#include "runtime/base/buffer.h"
#include "runtime/kernels/cpu_features.h"
#include "runtime/kernels/quantization/kept_fits.h"
#include "runtime/kernels/quantization/quantization.h"
#include "runtime/kernels/quantization/store_sums256.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

// What float_stage.h says of g, with the clamp.
int32_t ByFloat(const FloatColumn& fit, FloatForm form, const FixedPointColumn& column, int32_t x) {
  const float offset = form == FloatForm::kAny && x < 0 ? -fit.offset : fit.offset;
  const double y = std::nearbyint(std::fmaf(static_cast<float>(x), fit.scale, offset));
  const int32_t more = form == FloatForm::kAny && x == fit.exception ? 1 : 0;
  return Clamp(static_cast<int32_t>(y) + more, column.low, column.high);
}

int32_t ByIntegers(const FixedPointColumn& column, int32_t x) {
  return Clamp(MultiplyByQuantizedMultiplier(x, {column.multiplier, column.exponent}), column.low,
               column.high);
}

// Both for x, in every form that the column may be computed in.
void Compare(const FixedPointColumn& column, const FloatColumn& fit, int64_t x) {
  if (x < column.least || x > column.largest) return;
  const int32_t x32 = static_cast<int32_t>(x);
  const int32_t expected = ByIntegers(column, x32);
  ASSERT_EQ(ByFloat(fit, FloatForm::kAny, column, x32), expected)
      << "x " << x << " multiplier " << column.multiplier << " exponent " << column.exponent
      << " clamp " << column.low << " " << column.high << " range " << column.least << " "
      << column.largest;
  if (fit.form == FloatForm::kPositive) {
    ASSERT_EQ(ByFloat(fit, FloatForm::kPositive, column, x32), expected) << "x " << x;
  }
}

FixedPointColumn RandomColumn(Rng* rng) {
  FixedPointColumn column;
  const Multiplier m = rng->OneIn(8)
                           ? Multiplier{1 << 30, -rng->Int32(0, 14)}
                           : QuantizeMultiplier(std::ldexp(rng->Real() + 1, -rng->Int32(0, 16)));
  column.multiplier = m.value;
  column.exponent = m.exponent;
  const int32_t zero_point = rng->Pick<int32_t>({0, 0, 128, 255, rng->Int32(0, 255)});
  column.low = -zero_point;
  column.high = 255 - zero_point;
  if (rng->OneIn(4)) {
    column.low = rng->Int32(column.low, column.high);
    column.high = rng->Int32(column.low, column.high);
  }
  const int64_t wide = int64_t{1} << rng->Int32(4, 31);
  const int64_t middle = rng->OneIn(3) ? rng->Int32(-(1 << 24), 1 << 24) : 0;
  column.least = std::max<int64_t>(middle - wide, INT32_MIN);
  column.largest = std::min<int64_t>(middle + wide, INT32_MAX);
  return column;
}

// Near every step, at both ends, at 0, and anywhere.
void CompareWhereItMatters(const FixedPointColumn& column, const FloatColumn& fit, Rng* rng) {
  const double real = std::ldexp(column.multiplier, column.exponent - 31);
  for (int32_t j = column.low; j <= column.high; ++j) {
    const int64_t near = std::llround((j - 0.5) / real);
    for (int64_t x = near - 3; x <= near + 3; ++x) Compare(column, fit, x);
  }
  for (int64_t i = -2; i <= 2; ++i) {
    Compare(column, fit, i);
    Compare(column, fit, column.least + i);
    Compare(column, fit, column.largest + i);
  }
  for (int i = 0; i < 100; ++i) {
    Compare(column, fit, rng->Int(column.least, column.largest));
  }
}

class FloatStage : public testing::Test {
 protected:
  void SetUp() override {
    const Result<CpuFeatures> features = DetectCpuFeatures();
    if (!features.ok() || !Supports(*features, kAvx2)) GTEST_SKIP() << "this CPU has no AVX2";
  }
  Rng rng_{TestSeed(20261127)};
};

TEST_F(FloatStage, EqualsTheFixedPointFunction) {
  int found = 0, with_exception = 0, positive = 0, constant = 0;
  const int count = TestCount(3000);
  for (int i = 0; i < count && !HasFatalFailure(); ++i) {
    const FixedPointColumn column = RandomColumn(&rng_);
    const FloatColumn fit = FitFloatColumnAvx2(column, {});
    if (fit.form == FloatForm::kNone) continue;
    ++found;
    if (fit.exception != INT32_MIN) ++with_exception;
    if (fit.form == FloatForm::kPositive) ++positive;
    if (fit.scale == 0) ++constant;
    CompareWhereItMatters(column, fit, &rng_);
  }
  if (count < 200) return;
  EXPECT_GT(found, count / 4);
  EXPECT_GT(with_exception, 0);
  EXPECT_GT(positive, 0);
  EXPECT_GT(constant, 0);
}

// The fit of a neighbour is used where it holds, and only there.
TEST_F(FloatStage, NeighboursShareAFit) {
  int shared = 0;
  FittedColumn before;
  const int count = TestCount(2000);
  for (int i = 0; i < count && !HasFatalFailure(); ++i) {
    FixedPointColumn column = RandomColumn(&rng_);
    if (!rng_.OneIn(4)) {
      column.multiplier = before.column.multiplier;
      column.exponent = before.column.exponent;
      if (!rng_.OneIn(4)) {
        column.low = before.column.low;
        column.high = before.column.high;
      }
    }
    const FloatColumn fit = FitFloatColumnAvx2(column, before);
    if (fit.form != FloatForm::kNone) {
      shared += fit.scale == before.fit.scale && fit.scale != 0 ? 1 : 0;
      CompareWhereItMatters(column, fit, &rng_);
    }
    before = {column, fit};
  }
  if (count < 200) return;
  EXPECT_GT(shared, 0);
}

// Every accumulator of some columns, of the size that layers have.
TEST_F(FloatStage, EqualsItForEveryAccumulator) {
  for (int i = 0; i < TestCount(20) && !HasFatalFailure(); ++i) {
    FixedPointColumn column = RandomColumn(&rng_);
    column.least = std::max<int64_t>(column.least, -(1 << 17));
    column.largest = std::clamp<int64_t>(column.largest, column.least, 1 << 17);
    const FloatColumn fit = FitFloatColumnAvx2(column, {});
    if (fit.form == FloatForm::kNone) continue;
    for (int64_t x = column.least; x <= column.largest; ++x) Compare(column, fit, x);
  }
}

TEST_F(FloatStage, FindsNothingWhereAccumulatorsMayWrap) {
  EXPECT_EQ(FitFloatColumnAvx2({.multiplier = 1 << 30,
                                .exponent = -8,
                                .least = -(int64_t{1} << 31) - 1,
                                .largest = 5,
                                .low = -128,
                                .high = 127},
                               {})
                .form,
            FloatForm::kNone);
  EXPECT_EQ(
      FitFloatColumnAvx2(
          {.multiplier = -5, .exponent = -8, .least = -9, .largest = 9, .low = 0, .high = 255}, {})
          .form,
      FloatForm::kNone);
}

// A program may round otherwise: the form is the same.
TEST_F(FloatStage, IsFoundWhateverTheProgramsRounding) {
  for (int i = 0; i < TestCount(300); ++i) {
    const FixedPointColumn column = RandomColumn(&rng_);
    const FloatColumn expected = FitFloatColumnAvx2(column, {});
    for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
      std::fesetround(mode);
      const FloatColumn fit = FitFloatColumnAvx2(column, {});
      EXPECT_EQ(std::fegetround(), mode);
      std::fesetround(FE_TONEAREST);
      EXPECT_EQ(fit.form, expected.form);
      EXPECT_EQ(fit.scale, expected.scale);
      EXPECT_EQ(fit.offset, expected.offset);
      EXPECT_EQ(fit.exception, expected.exception);
    }
  }
}

// What the kernels make of it, too.
TEST_F(FloatStage, GivesTheSameBytesWhateverTheProgramsRounding) {
  constexpr int32_t kColumns = 16, kRows = 64;
  const size_t bytes = OutputColumns::Bytes(kColumns, FitFloatColumnAvx2);
  Result<Buffer> memory = Buffer::Allocate(bytes);
  ASSERT_TRUE(memory.ok());
  std::memset(memory->data(), 0, bytes);
  OutputColumns columns = OutputColumns::In(memory->data(), kColumns, RequantizeMode::kFixedPoint,
                                            3, {-128, 127}, FitFloatColumnAvx2);
  for (int32_t c = 0; c < kColumns; ++c) {
    columns.Set(c, {.bias = 100 * c, .multiplier = QuantizeMultiplier(0.001 * (c + 1)), .scale = 0},
                {.sum = 0, .absolute = 600}, ByteType::kInt8, 0, 0);
  }
  std::vector<int32_t> sums(kColumns * kRows);
  for (int32_t& sum : sums) sum = rng_.Int32(-70000, 70000);
  std::vector<uint8_t> expected(sums.size()), actual(sums.size());
  const auto args = [&](std::vector<uint8_t>* output) {
    return RequantizeArgs{sums.data(), kColumns, kRows, 0, kColumns, output->data(), kColumns};
  };
  RequantizePlain(columns, args(&expected));
  for (const int mode : {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    std::fesetround(mode);
    StoreSums256(columns, args(&actual));
    std::fesetround(FE_TONEAREST);
    EXPECT_EQ(actual, expected) << "mode " << mode;
  }
}

// Dead channels: huge biases, or multipliers that leave nothing.
TEST_F(FloatStage, DeadColumnsAreConstants) {
  for (const int64_t x : {int64_t{-1} << 30, int64_t{-3}, int64_t{7}, int64_t{1} << 30}) {
    for (const int32_t low : {-128, 0}) {
      const FixedPointColumn column = {.multiplier = 1292672447,
                                       .exponent = -26,
                                       .least = x,
                                       .largest = x,
                                       .low = low,
                                       .high = 127};
      const FloatColumn fit = FitFloatColumnAvx2(column, {});
      ASSERT_NE(fit.form, FloatForm::kNone);
      EXPECT_EQ(fit.scale, 0);
      Compare(column, fit, x);
    }
  }
}

TEST(KeptFits, AreOfTheirColumn) {
  Rng rng(TestSeed(6));
  for (int i = 0; i < TestCount(2000); ++i) {
    const FixedPointColumn column = RandomColumn(&rng);
    const FloatColumn fit = {.scale = static_cast<float>(rng.Real()),
                             .offset = static_cast<float>(-rng.Real()),
                             .exception = rng.Int32(INT32_MIN, INT32_MAX),
                             .form = static_cast<FloatForm>(rng.Int32(0, 2)),
                             .all_steps = rng.OneIn(2)};
    uint8_t bytes[kKeptFitBytes];
    KeepFit({column, fit}, bytes);
    const std::optional<FloatColumn> found = KeptFit(column, bytes);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->scale, fit.scale);
    EXPECT_EQ(found->offset, fit.offset);
    EXPECT_EQ(found->exception, fit.exception);
    EXPECT_EQ(found->form, fit.form);
    EXPECT_EQ(found->all_steps, fit.all_steps);
    FixedPointColumn others[6] = {column, column, column, column, column, column};
    ++others[0].multiplier;
    --others[1].exponent;
    ++others[2].least;
    --others[3].largest;
    ++others[4].low;
    --others[5].high;
    for (const FixedPointColumn& other : others) EXPECT_FALSE(KeptFit(other, bytes).has_value());
    bytes[29] = 3;  // no form
    EXPECT_FALSE(KeptFit(column, bytes).has_value());
    // Wider than the bytes: not kept.
    FixedPointColumn wide = column;
    wide.largest = int64_t{1} << 31;
    KeepFit({wide, fit}, bytes);
    EXPECT_FALSE(KeptFit(wide, bytes).has_value());
  }
}

}  // namespace
}  // namespace atollrt
