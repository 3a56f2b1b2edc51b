// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/quantization/quantization.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "runtime/base/bytes.h"

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

// Leaves room for a zero point, moved left as far, in 31 bits.
constexpr int32_t kMaxVectorShift = 22;

size_t PaddedCount(int32_t count) {
  return AlignUp(static_cast<size_t>(count), OutputColumns::kPadding);
}

}  // namespace

size_t OutputColumns::Bytes(int32_t count) {
  const size_t padded = PaddedCount(count);
  return padded * (3 * sizeof(int32_t) + sizeof(double)) + 2 * AlignUp(padded / kBlock, 64);
}

OutputColumns OutputColumns::In(uint8_t* memory, int32_t count, RequantizeMode mode,
                                int32_t zero_point, ClampRange clamp) {
  const size_t padded = PaddedCount(count);
  OutputColumns columns;
  columns.mode = mode;
  columns.zero_point = zero_point;
  columns.clamp = clamp;
  columns.count = count;
  // kPadding values of either size fill whole cache lines, so every array starts aligned.
  columns.scale = reinterpret_cast<double*>(memory);
  columns.bias = reinterpret_cast<int32_t*>(columns.scale + padded);
  columns.multiplier = columns.bias + padded;
  columns.shift = columns.multiplier + padded;
  columns.vectorizable = reinterpret_cast<uint8_t*>(columns.shift + padded);
  for (size_t column = 0; column < padded; ++column) columns.shift[column] = 1;
  columns.wide_vectorizable = columns.vectorizable + AlignUp(padded / kBlock, 64);
  std::memset(columns.vectorizable, 1, padded / kBlock);
  std::memset(columns.wide_vectorizable, 1, padded / kBlock);
  return columns;
}

void OutputColumns::Set(int32_t column, const OutputChannel& channel, int32_t folded_bias,
                        int64_t magnitude) {
  bias[column] = folded_bias;
  if (mode == RequantizeMode::kDouble) {
    scale[column] = channel.scale;
    return;
  }
  const bool zero = channel.multiplier.value == 0;
  multiplier[column] = channel.multiplier.value;
  shift[column] = zero ? 1 : -channel.multiplier.exponent;
  const bool is_negative = channel.multiplier.value < 0;
  if (is_negative || shift[column] < 1 || shift[column] > kMaxVectorShift ||
      magnitude >= int64_t{1} << 30) {
    vectorizable[column / kBlock] = 0;
  }
  if (is_negative) wide_vectorizable[column / kBlock] = 0;
}

void OutputColumns::Set(int32_t column, const OutputChannel& channel, const WeightSums& sums,
                        ByteType type, int32_t input_zero_point, int32_t offset) {
  const uint32_t moved = static_cast<uint32_t>(input_zero_point + offset);
  const uint32_t folded =
      static_cast<uint32_t>(channel.bias) - moved * static_cast<uint32_t>(sums.sum);
  const int32_t largest =
      std::max(input_zero_point - ByteMin(type), ByteMax(type) - input_zero_point);
  Set(column, channel, static_cast<int32_t>(folded),
      sums.absolute * largest + std::abs(int64_t{channel.bias}));
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
