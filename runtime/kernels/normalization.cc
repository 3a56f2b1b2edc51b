// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/normalization.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/base/bytes.h"
#include "runtime/base/thread_pool.h"
#include "runtime/kernels/quantization/fixed_point.h"

namespace atollrt {
namespace {

constexpr int kScaledDifferenceBits = 5;  // differences are F5
constexpr int kSumBits = 12;              // sums of exponentials are F12

// Bytes in the order of the values they stand for.
uint8_t OrderFlip(ByteType type) { return type == ByteType::kInt8 ? 0x80 : 0; }

uint8_t GreatestOf(const uint8_t* row, int64_t depth, uint8_t flip) {
  typedef uint8_t Bytes __attribute__((vector_size(16)));
  constexpr int kLanes = sizeof(Bytes);
  Bytes lanes = {};
  int64_t i = 0;
  for (; i + kLanes <= depth; i += kLanes) {
    Bytes bytes;
    std::memcpy(&bytes, row + i, kLanes);
    bytes ^= flip;
    lanes = lanes < bytes ? bytes : lanes;
  }
  uint8_t greatest = 0;
  for (int k = 0; k < kLanes; ++k) greatest = std::max<uint8_t>(greatest, lanes[k]);
  for (; i < depth; ++i) greatest = std::max<uint8_t>(greatest, row[i] ^ flip);
  return greatest;
}

// From the exponentials of a row, whose sum this is, to its results. Those that do not matter are
// 0, and so are their steps.
RequantizeParams RowScale(uint32_t sum, int output_bits, int32_t output_min) {
  RequantizeParams scale{.output_zero_point = output_min};
  const Reciprocal reciprocal = FixedPointReciprocal(static_cast<int32_t>(sum), kSumBits);
  const int shift = reciprocal.bits + 31 - output_bits;
  // Nothing is left of products of 31 bits if the sum is 512 or more; that of 0 has wrapped.
  if (shift > 31 || sum == 0) return scale;
  scale.multiplier = reciprocal.value;
  scale.exponent = -std::max(shift, 0);
  return scale;
}

// Elements that are scaled at a time. Longer rows have most bytes more than once.
constexpr int64_t kScaled = 256;

// `requantize` goes from int32 to the type of the output.
void SoftmaxRow(const SoftmaxParams& params, const SoftmaxTable& table, const RowLoops& loops,
                RequantizeFn requantize, const uint8_t* input, uint8_t* output) {
  const int64_t depth = params.depth;
  const uint8_t flip = OrderFlip(params.type);
  const uint8_t greatest = GreatestOf(input, depth, flip);
  // By bytes in their order, up to the greatest.
  const int32_t* const exponentials = table.exponential + 255 - greatest;
  const uint32_t* const terms = table.term + 255 - greatest;
  uint32_t sum = 0;
#pragma GCC unroll 4
  for (int64_t i = 0; i < depth; ++i) sum += terms[input[i] ^ flip];
  const RequantizeParams scale =
      params.to_int16 ? RowScale(sum, 16, INT16_MIN) : RowScale(sum, 8, ByteMin(params.type));
  if (depth > kScaled && !params.to_int16) {
    uint8_t results[256] = {}, by_byte[256];
    requantize(scale, reinterpret_cast<const uint8_t*>(exponentials), results, greatest + 1);
    for (int byte = 0; byte < 256; ++byte) by_byte[byte] = results[byte ^ flip];
    return loops.apply_table(by_byte, input, output, depth);
  }
  for (int64_t i = 0; i < depth; i += kScaled) {
    const int64_t count = std::min(depth - i, kScaled);
    int32_t block[kScaled];
#pragma GCC unroll 4
    for (int64_t k = 0; k < count; ++k) block[k] = exponentials[input[i + k] ^ flip];
    requantize(scale, reinterpret_cast<const uint8_t*>(block),
               output + (params.to_int16 ? 2 * i : i), count);
  }
}

}  // namespace

SoftmaxParams MakeSoftmaxParams(int64_t rows, int32_t depth, ByteType type, float beta,
                                float input_scale) {
  SoftmaxParams params;
  params.rows = rows;
  params.depth = depth;
  params.type = type;
  const double real = std::min(static_cast<double>(beta) * static_cast<double>(input_scale) *
                                   (1 << (31 - kScaledDifferenceBits)),
                               2147483647.0);
  params.multiplier = QuantizeMultiplier(real);
  const double reach =
      std::ldexp(31.0 * (1 << (31 - kScaledDifferenceBits)), -params.multiplier.exponent);
  params.min_difference = -static_cast<int32_t>(std::floor(std::min(reach, 1e9)));
  return params;
}

void UpdateSoftmaxTable(const SoftmaxParams& params, SoftmaxTable* table) {
  if (table->multiplier == params.multiplier && table->min_difference == params.min_difference) {
    return;
  }
  *table = {.multiplier = params.multiplier, .min_difference = params.min_difference};
  for (int32_t difference = 0; difference > -256; --difference) {
    if (difference < params.min_difference) break;
    const int32_t exponential =
        FixedPointExp(MultiplyByQuantizedMultiplier(difference, params.multiplier));
    table->exponential[255 + difference] = exponential;
    table->term[255 + difference] =
        static_cast<uint32_t>(RoundingDivideByPowerOfTwo(exponential, kSumBits));
  }
}

void Softmax(const SoftmaxParams& params, const SoftmaxTable& table, const RowLoops& loops,
             const uint8_t* input, uint8_t* output, ThreadPool* pool) {
  const Element to = params.to_int16                  ? Element::kInt16
                     : params.type == ByteType::kInt8 ? Element::kInt8
                                                      : Element::kUInt8;
  const RequantizeFn requantize = loops.requantize(Element::kInt32, to);
  constexpr int64_t kGrain = 1 << 12;  // elements
  ParallelRanges(pool, params.rows, std::max<int64_t>(kGrain / params.depth, 1),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin * params.depth; i < end * params.depth;
                        i += params.depth) {
                     SoftmaxRow(params, table, loops, requantize, input + i,
                                output + (params.to_int16 ? 2 * i : i));
                   }
                 });
}

void SoftmaxFloat(int64_t rows, int32_t depth, float beta, const uint8_t* input, uint8_t* output) {
  float* out = reinterpret_cast<float*>(output);
  for (int64_t row = 0; row < rows; ++row, out += depth, input += int64_t{4} * depth) {
    const auto x = [&](int64_t i) { return LoadLittleEndian<float>(input + 4 * i); };
    float max = x(0);
    for (int32_t i = 1; i < depth; ++i) max = std::max(max, x(i));
    float sum = 0;
    for (int32_t i = 0; i < depth; ++i) {
      out[i] = std::exp((x(i) - max) * beta);
      sum += out[i];
    }
    typedef float Lanes __attribute__((vector_size(16)));
    constexpr int32_t kLanes = 4;
    int32_t i = 0;
    for (; i + kLanes <= depth; i += kLanes) {
      Lanes lanes;
      std::memcpy(&lanes, out + i, sizeof(lanes));
      lanes /= sum;
      std::memcpy(out + i, &lanes, sizeof(lanes));
    }
    for (; i < depth; ++i) out[i] /= sum;
  }
}

LogSoftmaxParams MakeLogSoftmaxParams(int64_t rows, int32_t depth, ByteType type,
                                      float input_scale) {
  LogSoftmaxParams params{MakeSoftmaxParams(rows, depth, type, 1, input_scale), {}};
  const Multiplier& m = params.multiplier;
  params.inverse_multiplier =
      QuantizeMultiplier(std::ldexp(1.0, 31 - m.exponent) / static_cast<double>(m.value));
  return params;
}

void LogSoftmax(const LogSoftmaxParams& params, const uint8_t* input, uint8_t* output) {
  const int32_t lo = ByteMin(params.type);
  const int32_t hi = ByteMax(params.type);
  const auto value = [&](int32_t i) { return ByteValue(input[i], params.type); };
  for (int64_t row = 0; row < params.rows; ++row) {
    int32_t max = lo;
    for (int32_t i = 0; i < params.depth; ++i) max = std::max(max, value(i));
    uint32_t sum = 0;
    for (int32_t i = 0; i < params.depth; ++i) {
      const int32_t difference = value(i) - max;
      if (difference < params.min_difference) continue;
      const int32_t exponential =
          FixedPointExp(MultiplyByQuantizedMultiplier(difference, params.multiplier));
      sum += static_cast<uint32_t>(RoundingDivideByPowerOfTwo(exponential, kSumBits));
    }
    // F5. Only rows of 4096 elements and more can exceed F12, and wrap.
    const int32_t log_sum = FixedPointLog(static_cast<int32_t>(sum));
    // Below this the result is the type's minimum.
    const int32_t wrapped = static_cast<int32_t>(static_cast<uint32_t>(log_sum) + (1u << 31));
    const int32_t limit =
        std::max(params.min_difference - 1,
                 MultiplyByQuantizedMultiplier(wrapped, params.inverse_multiplier));
    for (int32_t i = 0; i < params.depth; ++i) {
      const int32_t difference = value(i) - max;
      int32_t result = lo;
      if (difference > limit) {
        constexpr int kOutputBits = 4;  // of the scale 1/16
        const int32_t scaled = MultiplyByQuantizedMultiplier(difference, params.multiplier);
        const int32_t log =
            static_cast<int32_t>(static_cast<uint32_t>(scaled) - static_cast<uint32_t>(log_sum));
        result = Clamp(
            RoundingDivideByPowerOfTwo(log, 31 - kScaledDifferenceBits - kOutputBits) + hi, lo, hi);
      }
      output[i] = static_cast<uint8_t>(result);
    }
    input += params.depth;
    output += params.depth;
  }
}

void L2Normalization(const L2NormalizationParams& params, const uint8_t* input, uint8_t* output) {
  constexpr int kOutputBits = 7;  // of the scale 1/128
  const auto value = [&](int32_t i) {
    return ByteValue(input[i], params.type) - params.input_zero_point;
  };
  for (int64_t row = 0; row < params.rows; ++row) {
    uint32_t sum = 0;
    for (int32_t i = 0; i < params.depth; ++i) sum += static_cast<uint32_t>(value(i) * value(i));
    const Multiplier scale = InverseSquareRoot(static_cast<int32_t>(sum));
    for (int32_t i = 0; i < params.depth; ++i) {
      int32_t result = 0;
      if (params.type == ByteType::kUInt8) {
        const int32_t product =
            SaturatingRoundingDoublingHighMul(value(i) << kOutputBits, scale.value);
        result = Clamp(128 + RoundingDivideByPowerOfTwo(product, -scale.exponent), 0, 255);
      } else {
        result = Clamp(
            MultiplyByQuantizedMultiplier(value(i), {scale.value, scale.exponent + kOutputBits}),
            -128, 127);
      }
      output[i] = static_cast<uint8_t>(result);
    }
    input += params.depth;
    output += params.depth;
  }
}

}  // namespace atollrt
