// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/int16_functions.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>

#include "runtime/base/bytes.h"
#include "runtime/kernels/quantization/fixed_point.h"

namespace atollrt {
namespace {

constexpr int64_t kBytes = sizeof(int16_t);

int32_t At(const uint8_t* x, int64_t i) { return LoadLittleEndian<int16_t>(x + i * kBytes); }
void Set(uint8_t* y, int64_t i, int32_t value) {
  StoreLittleEndian<int16_t>(y + i * kBytes, static_cast<int16_t>(value));
}

// 1 / (1 + exp(-i / 24)) in units of 2^-16. Half of what a straight line to the next entry would
// be too low in its middle is added, so that it errs as much at its ends.
using SigmoidTable = std::array<uint16_t, 256>;
SigmoidTable MakeSigmoidTable() {
  const auto sigmoid = [](double i) { return 65536.0 / (1.0 + std::exp(-i / 24.0)); };
  SigmoidTable table;
  for (int i = 0; i < 255; ++i) {
    const double line = (sigmoid(i) + sigmoid(i + 1)) / 2;
    table[i] = static_cast<uint16_t>(std::round(sigmoid(i) + (sigmoid(i + 0.5) - line) / 2));
  }
  table[255] = UINT16_MAX;
  return table;
}
const SigmoidTable& Sigmoid() {
  static const SigmoidTable table = MakeSigmoidTable();
  return table;
}

int32_t Scaled(SigmoidScale scale, int32_t x) {
  const int64_t round = scale.shift > 0 ? int64_t{1} << (scale.shift - 1) : 0;
  return static_cast<int32_t>((int64_t{x} * scale.multiplier + round) >> scale.shift);
}

// How LOGISTIC and TANH are made of the table: of entries that are 2^bits steps apart, in units of
// 2^-(16 + bits).
struct SigmoidForm {
  int bits;
  int32_t saturated;  // behind the last entry
  int32_t subtracted;
  int32_t mirror;  // what a number and its negative add up to
  int shift;       // to units of 2^-15
};
constexpr SigmoidForm kLogistic = {
    .bits = 9, .saturated = 0x7fff << 10, .subtracted = 0, .mirror = 1 << 25, .shift = 10};
// 2 / (1 + exp(-2x)) - 1.
constexpr SigmoidForm kTanh = {
    .bits = 8, .saturated = 0xffff << 8, .subtracted = 1 << 23, .mirror = 0, .shift = 8};

int32_t Interpolate(const SigmoidTable& table, const SigmoidForm& form, uint32_t x) {
  const uint32_t entry = x >> form.bits;
  if (entry >= table.size() - 1) return form.saturated;
  const int32_t slope = table[entry + 1] - table[entry];
  const int32_t rest = static_cast<int32_t>(x & ((1u << form.bits) - 1));
  return (table[entry] << form.bits) + rest * slope;
}

void MapSigmoid(const SigmoidForm& form, SigmoidScale scale, const uint8_t* x, uint8_t* y,
                int64_t count) {
  const SigmoidTable& table = Sigmoid();
  const int32_t half = 1 << (form.shift - 1);
  for (int64_t i = 0; i < count; ++i) {
    const int32_t scaled = Scaled(scale, At(x, i));
    const int32_t value =
        Interpolate(table, form, static_cast<uint32_t>(std::abs(scaled))) - form.subtracted;
    Set(y, i, ((scaled >= 0 ? value : form.mirror - value - 1) + half) >> form.shift);
  }
}

// `max_shift`: 2^-12 and what is so many times doubled is exact.
SigmoidScale MakeSigmoidScale(float scale, int32_t max_shift) {
  int32_t exponent = 0;
  if (IsPowerOfTwo(scale, &exponent) && exponent >= -12 && exponent <= max_shift - 12) {
    return {.multiplier = 3 << (exponent + 12), .shift = 0};
  }
  double multiplier = static_cast<double>(scale) * 4096.0 * 3.0;
  SigmoidScale result;
  while (multiplier <= 32767.0 / 2.0 && result.shift <= 30) {
    ++result.shift;
    multiplier *= 2.0;
  }
  result.multiplier = static_cast<int32_t>(multiplier);
  return result;
}

// Of a function's values at 513 places, the first for INT16_MIN, the last for 2^15.
using Table = std::array<int16_t, 513>;

// Each entry is lowered by half of what the straight line to the next one is too high in its
// middle, every number rounded to units of 2^-15 on the way.
template <typename Function>
Table MakeTable(double first, double last, const Function& function) {
  constexpr double kOne = 1 << 15;
  constexpr int kSteps = 512;
  const double step = (last - first) / kSteps;
  const auto saturated = [](double value) {
    return static_cast<int16_t>(std::clamp(value, -kOne, kOne - 1));
  };
  Table table;
  for (int i = 0; i < kSteps; ++i) {
    const double sample = std::round(function(first + i * step) * kOne);
    const double line = std::round((function(first + (i + 1) * step) * kOne + sample) / 2.0);
    const double middle = std::round(function(first + i * step + step / 2.0) * kOne);
    table[i] = saturated(sample - std::round((line - middle) / 2.0));
  }
  table[kSteps] = saturated(std::round(function(last) * kOne));
  return table;
}

int32_t LookUp(const Table& table, int32_t x) {
  constexpr int kBits = 7;
  const int32_t entry = 256 + (x >> kBits);
  const int32_t slope = table[entry + 1] - table[entry];
  return table[entry] + ((slope * (x & ((1 << kBits) - 1)) + (1 << (kBits - 1))) >> kBits);
}

struct SoftmaxTables {
  Table exponential = MakeTable(-10.0, 0.0, [](double x) { return std::exp(x); });
  Table reciprocal = MakeTable(0.0, 1.0, [](double x) { return 1.0 / (1.0 + x); });  // of 1 + x
};
const SoftmaxTables& TablesOfSoftmax() {
  static const SoftmaxTables tables;
  return tables;
}

}  // namespace

SigmoidScale MakeLogisticScale(float scale) { return MakeSigmoidScale(scale, 0); }
SigmoidScale MakeTanhScale(float scale) { return MakeSigmoidScale(scale, 1); }

void Logistic16(SigmoidScale scale, const uint8_t* x, uint8_t* y, int64_t count) {
  MapSigmoid(kLogistic, scale, x, y, count);
}

void Tanh16(SigmoidScale scale, const uint8_t* x, uint8_t* y, int64_t count) {
  MapSigmoid(kTanh, scale, x, y, count);
}

void Softmax16::Run(const uint8_t* x, uint8_t* y, int64_t rows, int32_t depth) const {
  const SoftmaxTables& tables = TablesOfSoftmax();
  for (int64_t row = 0; row < rows; ++row, x += depth * kBytes, y += depth * kBytes) {
    int32_t max = INT16_MIN;
    for (int32_t i = 0; i < depth; ++i) max = std::max(max, At(x, i));
    int32_t sum = 0;  // at least the last entry of the table
    for (int32_t i = 0; i < depth; ++i) {
      const int32_t below = MultiplyByQuantizedMultiplier(At(x, i) - max, multiplier_);
      const int32_t power = LookUp(tables.exponential, SaturateToInt16(int64_t{below} + INT16_MAX));
      Set(y, i, power);
      sum += power;
    }
    // sum = f * 2^(16 - shift), 1 <= f < 2.
    const int shift = std::countl_zero(static_cast<uint32_t>(sum));
    const int64_t fraction = ((int64_t{sum} << (shift - 1)) + (1 << 13)) >> 14;  // 16 bits
    const int32_t reciprocal =
        LookUp(tables.reciprocal, SaturateToInt16(fraction - (1 << 16) - (1 << 15)));
    const int right = 31 - shift;
    for (int32_t i = 0; i < depth; ++i) {
      const int64_t product = int64_t{At(y, i)} * reciprocal + (int64_t{1} << (right - 1));
      Set(y, i, static_cast<int32_t>(std::clamp<int64_t>(product >> right, 0, INT16_MAX)));
    }
  }
}

}  // namespace atollrt
