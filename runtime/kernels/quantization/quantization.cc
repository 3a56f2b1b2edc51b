// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/quantization/quantization.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "runtime/base/bytes.h"
#include "runtime/kernels/quantization/kept_fits.h"

namespace atollrt {

Multiplier QuantizeMultiplier(double real) {
  if (real == 0 || !std::isfinite(real)) return {};
  int exponent = 0;
  const double fraction = std::frexp(real, &exponent);
  int64_t value = std::llround(fraction * 2147483648.0);
  if (value == int64_t{1} << 31) {
    value /= 2;
    ++exponent;
  }
  if (exponent < -31) return {};
  // A left shift is taken modulo 32, so this changes no product.
  while (exponent > kMaxMultiplierExponent) exponent -= 32;
  return {static_cast<int32_t>(value), exponent};
}

bool IsPowerOfTwo(float scale, int32_t* exponent) {
  const float log2 = std::log(scale) * (1.0f / std::log(2.0f));
  const float rounded = std::round(log2);
  *exponent = static_cast<int32_t>(rounded);
  return std::abs(log2 - rounded) < 1e-3f;
}

int32_t Requantize(int32_t accumulator, RequantizeMode mode, const OutputChannel& channel,
                   int32_t zero_point, ClampRange clamp) {
  const int32_t sum = static_cast<int32_t>(static_cast<uint32_t>(accumulator) +
                                           static_cast<uint32_t>(channel.bias));
  if (mode == RequantizeMode::kFixedPoint) {
    const uint32_t scaled =
        static_cast<uint32_t>(MultiplyByQuantizedMultiplier(sum, channel.multiplier));
    return Clamp(static_cast<int32_t>(scaled + static_cast<uint32_t>(zero_point)), clamp.min,
                 clamp.max);
  }
  // In double throughout, so that products beyond int32 saturate at the clamp.
  const double value = std::round(static_cast<double>(sum) * channel.scale) + zero_point;
  if (value <= clamp.min) return clamp.min;
  if (value >= clamp.max) return clamp.max;
  return static_cast<int32_t>(value);
}

// ---- The output stage of convolutions -----------------------------------------------------------

namespace {

size_t PaddedCount(int32_t count) {
  return AlignUp(static_cast<size_t>(count), OutputColumns::kPadding);
}

}  // namespace

size_t OutputColumns::Bytes(int32_t count, FitFloatColumn fit) {
  const size_t padded = PaddedCount(count);
  const size_t bytes =
      padded * (3 * sizeof(int32_t) + sizeof(double)) + 2 * AlignUp(padded / kBlock, 64);
  return fit == nullptr ? bytes
                        : bytes + padded * (2 * sizeof(float) + sizeof(int32_t)) +
                              AlignUp(padded / kFloatBlock, 64);
}

OutputColumns OutputColumns::In(uint8_t* memory, int32_t count, RequantizeMode mode,
                                int32_t zero_point, ClampRange clamp, FitFloatColumn fit) {
  const size_t padded = PaddedCount(count);
  OutputColumns columns;
  columns.mode = mode;
  columns.zero_point = zero_point;
  columns.clamp = clamp;
  columns.count = count;
  columns.fit = fit;
  // kPadding values of either size fill whole cache lines, so every array starts aligned.
  const auto take = [&]<typename T>(T** array, size_t bytes) {
    *array = reinterpret_cast<T*>(memory);
    memory += bytes;
  };
  take(&columns.scale, padded * sizeof(double));
  take(&columns.bias, padded * sizeof(int32_t));
  take(&columns.multiplier, padded * sizeof(int32_t));
  take(&columns.shift, padded * sizeof(int32_t));
  take(&columns.vectorizable, AlignUp(padded / kBlock, 64));
  take(&columns.wide_vectorizable, AlignUp(padded / kBlock, 64));
  for (size_t column = 0; column < padded; ++column) columns.shift[column] = 1;
  std::memset(columns.vectorizable, 1, padded / kBlock);
  std::memset(columns.wide_vectorizable, 1, padded / kBlock);
  if (fit == nullptr) return columns;
  take(&columns.float_scale, padded * sizeof(float));
  take(&columns.float_offset, padded * sizeof(float));
  take(&columns.exception, padded * sizeof(int32_t));
  take(&columns.forms, AlignUp(padded / kFloatBlock, 64));
  return columns;
}

FixedPointColumn ColumnOf(const OutputChannel& channel, const WeightSums& sums, ByteType type,
                          int32_t input_zero_point, int32_t zero_point, ClampRange clamp) {
  // Positive weights with the largest activation, negative ones with the smallest, and the other
  // way round.
  const int64_t below = input_zero_point - ByteMin(type), above = ByteMax(type) - input_zero_point;
  const int64_t positive = (sums.absolute + sums.sum) / 2, negative = sums.absolute - positive;
  return {.multiplier = channel.multiplier.value,
          .exponent = channel.multiplier.value == 0 ? -1 : channel.multiplier.exponent,
          .least = channel.bias - positive * below - negative * above,
          .largest = channel.bias + positive * above + negative * below,
          .low = clamp.min - zero_point,
          .high = clamp.max - zero_point};
}

void OutputColumns::Set(int32_t column, const OutputChannel& channel, const WeightSums& sums,
                        ByteType type, int32_t input_zero_point, int32_t offset) {
  const uint32_t moved = static_cast<uint32_t>(input_zero_point + offset);
  bias[column] = static_cast<int32_t>(static_cast<uint32_t>(channel.bias) -
                                      moved * static_cast<uint32_t>(sums.sum));
  if (mode == RequantizeMode::kDouble) {
    scale[column] = channel.scale;
    return;
  }
  const bool is_zero = channel.multiplier.value == 0;
  multiplier[column] = channel.multiplier.value;
  shift[column] = is_zero ? 1 : -channel.multiplier.exponent;
  const FixedPointColumn wanted =
      ColumnOf(channel, sums, type, input_zero_point, zero_point, clamp);
  const int64_t magnitude = std::max(std::abs(wanted.least), std::abs(wanted.largest));
  const bool is_negative = channel.multiplier.value < 0;
  if (is_negative || !IsVectorShift(shift[column]) || magnitude >= int64_t{1} << 30) {
    vectorizable[column / kBlock] = 0;
  }
  if (is_negative) wide_vectorizable[column / kBlock] = 0;
  if (fit == nullptr) return;
  const std::optional<FloatColumn> found =
      kept_fits == nullptr
          ? std::nullopt
          : KeptFit(wanted, kept_fits + static_cast<size_t>(column) * kKeptFitBytes);
  fitted = {wanted, found ? *found : finds_fits ? fit(wanted, fitted) : FloatColumn()};
  float_scale[column] = fitted.fit.scale;
  float_offset[column] = fitted.fit.offset;
  exception[column] = fitted.fit.exception;
  forms[column / kFloatBlock] = std::max(forms[column / kFloatBlock], fitted.fit.form);
}

int32_t OutputColumns::CountFloat() const {
  if (fit == nullptr || mode != RequantizeMode::kFixedPoint) return 0;
  int32_t columns = 0;
  for (int32_t first = 0; first < count; first += kFloatBlock) {
    if (forms[first / kFloatBlock] == FloatForm::kNone) continue;
    columns += std::min(kFloatBlock, count - first);
  }
  return columns;
}

void RequantizePlain(const OutputColumns& columns, const RequantizeArgs& args) {
  for (int32_t c = 0; c < args.count; ++c) {
    const int32_t column = args.first + c;
    const OutputChannel channel = {
        .bias = 0,  // already in the accumulator
        .multiplier = {columns.multiplier[column], -columns.shift[column]},
        .scale = columns.scale[column],
    };
    for (int32_t r = 0; r < args.rows; ++r) {
      args.output[r * args.output_stride + c] = static_cast<uint8_t>(
          Requantize(args.accumulators[r * args.accumulator_stride + c], columns.mode, channel,
                     columns.zero_point, columns.clamp));
    }
  }
}

}  // namespace atollrt
