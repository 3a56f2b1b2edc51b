// SPDX-License-Identifier: Apache-2.0
//
// Every level of the loops over float32 that this machine can run, against double precision.
#include "runtime/kernels/float_loops/float_loops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "runtime/kernels/cpu_features.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Level {
  const char* name;
  const FloatLoops* loops;
};
std::vector<Level> Levels() {
  const CpuFeatures features = DetectCpuFeatures().ok() ? *DetectCpuFeatures() : kBaseline;
  std::vector<Level> levels;
#define ATOLL_FLOAT_LOOPS(name, needed) \
  if (Supports(features, needed)) levels.push_back({#name, &name});
#include "runtime/kernels/float_loops/kernels.inc"
#undef ATOLL_FLOAT_LOOPS
  return levels;
}

struct Function {
  FloatMap map;
  double (*exact)(double x);
};
constexpr Function kFunctions[] = {
    {FloatMap::kExp, [](double x) { return std::exp(x); }},
    {FloatMap::kLogistic, [](double x) { return 1 / (1 + std::exp(-x)); }},
    {FloatMap::kTanh, [](double x) { return std::tanh(x); }},
    {FloatMap::kElu, [](double x) { return x > 0 ? x : std::expm1(x); }},
    {FloatMap::kAbs, [](double x) { return std::abs(x); }},
    {FloatMap::kNegate, [](double x) { return -x; }},
    {FloatMap::kSquare, [](double x) { return x * x; }},
};

std::vector<float> Mapped(const FloatLoops& loops, FloatMap map, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  loops.map(map)(reinterpret_cast<const uint8_t*>(x.data()), reinterpret_cast<uint8_t*>(y.data()),
                 static_cast<int64_t>(x.size()));
  return y;
}

// Units in the last place of `exact`, of which numbers that are not normal have the least.
double Ulps(float value, double exact) {
  const float nearest = static_cast<float>(exact);
  if (value == nearest || (std::isnan(value) && std::isnan(nearest))) return 0;
  if (!std::isfinite(value) || !std::isfinite(nearest)) return kInfinity;
  const float magnitude = std::max(std::abs(nearest), std::numeric_limits<float>::min());
  const double unit = static_cast<double>(std::nextafter(magnitude, kInfinity) - magnitude);
  return std::abs(static_cast<double>(value) - exact) / unit;
}

TEST(FloatLoops, AreWithinFourUnitsOfExactFunctions) {
  Rng rng(TestSeed(1));
  std::vector<float> x = {0.0f,   1e-30f, -1e-30f, 88.7f,   88.8f,     89.5f,
                          -87.0f, -88.0f, -103.0f, -110.0f, 9.0f,      -9.0f,
                          17.5f,  -17.5f, 1e20f,   -1e20f,  kInfinity, -kInfinity};
  for (int i = 0; i < 20000; ++i) {
    const double range = std::exp(rng.Real() * 10 - 5);
    x.push_back(static_cast<float>((rng.Real() * 2 - 1) * range));
  }
  for (const Level& level : Levels()) {
    for (const Function& function : kFunctions) {
      const std::vector<float> y = Mapped(*level.loops, function.map, x);
      for (size_t i = 0; i < x.size(); ++i) {
        const double exact = function.exact(static_cast<double>(x[i]));
        ASSERT_LE(Ulps(y[i], exact), 4)
            << level.name << " " << static_cast<int>(function.map) << " of " << x[i] << " is "
            << y[i] << ", exactly " << exact;
      }
    }
  }
}

TEST(FloatLoops, KeepWhatIsNoNumberAndTheSignOfZero) {
  for (const Level& level : Levels()) {
    for (const Function& function : kFunctions) {
      const std::vector<float> y = Mapped(*level.loops, function.map, {NAN, -0.0f});
      EXPECT_TRUE(std::isnan(y[0])) << level.name << " " << static_cast<int>(function.map);
    }
    EXPECT_TRUE(std::signbit(Mapped(*level.loops, FloatMap::kTanh, {-0.0f})[0]));
    EXPECT_FALSE(std::signbit(Mapped(*level.loops, FloatMap::kAbs, {-0.0f})[0]));
  }
}

TEST(FloatLoops, FunctionsGiveTheSameBytesAtEveryLevelAndInPlace) {
  Rng rng(TestSeed(2));
  std::vector<float> x(1003);
  for (float& value : x) value = static_cast<float>(rng.Real() * 40 - 20);
  for (const Function& function : kFunctions) {
    const std::vector<float> expected = Mapped(kFloatLoopsBaseline, function.map, x);
    for (const Level& level : Levels()) {
      EXPECT_EQ(Mapped(*level.loops, function.map, x), expected) << level.name;
      // One element further, so that nothing is aligned; and each count of a last vector.
      for (int64_t count = 0; count < 40; ++count) {
        std::vector<float> y = x;
        auto* const bytes = reinterpret_cast<uint8_t*>(y.data() + 1);
        level.loops->map(function.map)(bytes, bytes, count);
        for (size_t i = 0; i < y.size(); ++i) {
          const bool is_mapped = i >= 1 && static_cast<int64_t>(i) < count + 1;
          ASSERT_EQ(y[i], is_mapped ? expected[i] : x[i]) << level.name << " " << count;
        }
      }
    }
  }
}

TEST(FloatLoops, FillAndClampColumnsAndNothingBesides) {
  Rng rng(TestSeed(3));
  for (int round = 0; round < TestCount(60); ++round) {
    const int64_t rows = rng.Int(1, 70);
    const int64_t columns = rng.Int(1, 5);
    const int64_t stride = rows + rng.Int(0, 3);
    std::vector<float> before(static_cast<size_t>(columns * stride));
    std::vector<float> values(static_cast<size_t>(rows));
    for (std::vector<float>* floats : {&before, &values}) {
      for (float& x : *floats) x = static_cast<float>(rng.Real() * 4 - 2);
    }
    before[0] = std::numeric_limits<float>::quiet_NaN();
    for (const Level& level : Levels()) {
      std::vector<float> filled = before;
      std::vector<float> clamped = before;
      level.loops->fill(values.data(), rows, columns, filled.data(), stride);
      level.loops->clamp(-1, 0.5f, rows, columns, clamped.data(), stride);
      EXPECT_TRUE(std::isnan(clamped[0])) << level.name;
      for (int64_t i = 1; i < columns * stride; ++i) {
        const auto at = static_cast<size_t>(i);
        const bool is_row = i % stride < rows;
        ASSERT_EQ(filled[at], is_row ? values[static_cast<size_t>(i % stride)] : before[at])
            << level.name;
        ASSERT_EQ(clamped[at], is_row ? std::clamp(before[at], -1.0f, 0.5f) : before[at])
            << level.name;
      }
    }
  }
}

}  // namespace
}  // namespace atollrt
