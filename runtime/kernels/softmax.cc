// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/softmax.h"

#include <algorithm>
#include <cmath>

#include "runtime/kernels/fixed_point.h"
#include "runtime/kernels/parallel_ranges.h"

namespace atollrt {
namespace {

constexpr int kScaledDifferenceBits = 5;  // differences are F5
constexpr int kSumBits = 12;              // sums of exponentials are F12

// From one row's greatest value and its sum to its results.
class RowScale {
 public:
  // Of `output_bits` bits, 8 or 16.
  RowScale(uint32_t sum, int output_bits, ClampRange range)
      : scale_(FixedPointReciprocal(static_cast<int32_t>(sum), kSumBits)),
        // Above 31, which takes a sum of 512 and more, nothing is left of a product of 31 bits.
        // Below 0, for a sum that wrapped to 0 and 16 bits, the product is negative and the result
        // the least.
        shift_(scale_.bits + 31 - output_bits),
        range_(range) {}

  // Exponentials that do not matter are 0, and so are their steps.
  int32_t operator()(int32_t exponential) const {
    const int32_t product = SaturatingRoundingDoublingHighMul(exponential, scale_.value);
    const int32_t steps =
        shift_ > 31 ? 0 : RoundingDivideByPowerOfTwo(product, std::max(shift_, 0));
    return Clamp(steps + range_.min, range_.min, range_.max);
  }

 private:
  const Reciprocal scale_;
  const int32_t shift_;
  const ClampRange range_;
};

// Bytes in the order of the values they stand for.
uint8_t OrderFlip(ByteType type) { return type == ByteType::kInt8 ? 0x80 : 0; }

uint8_t GreatestOf(const uint8_t* row, int32_t depth, uint8_t flip) {
  uint8_t greatest = 0;
  for (int32_t i = 0; i < depth; ++i) {
    greatest = std::max(greatest, static_cast<uint8_t>(row[i] ^ flip));
  }
  return greatest;
}

// Element by element.
template <typename Out>
void SoftmaxRow(const SoftmaxParams& params, const SoftmaxTable& table, const uint8_t* input,
                Out* output, ClampRange range) {
  const uint8_t flip = OrderFlip(params.type);
  const uint8_t greatest = GreatestOf(input, params.depth, flip);
  uint32_t sum = 0;
  for (int32_t i = 0; i < params.depth; ++i) {
    sum += static_cast<uint32_t>(table.term[greatest - (input[i] ^ flip)]);
  }
  const RowScale scale(sum, 8 * sizeof(Out), range);
  for (int32_t i = 0; i < params.depth; ++i) {
    output[i] = static_cast<Out>(scale(table.exponential[greatest - (input[i] ^ flip)]));
  }
}

// Rows that are longer have most values more than once.
constexpr int32_t kLongRow = 128;

// By how often each byte occurs, and a table of results.
void SoftmaxLongRow(const SoftmaxParams& params, const SoftmaxTable& table, const Loops& loops,
                    const uint8_t* input, uint8_t* output, ClampRange range) {
  // In turns, so that equal neighbours do not wait for each other.
  uint32_t counts[2][256] = {};
  int32_t i = 0;
  for (; i + 2 <= params.depth; i += 2) {
    ++counts[0][input[i]];
    ++counts[1][input[i + 1]];
  }
  if (i < params.depth) ++counts[0][input[i]];
  const uint8_t flip = OrderFlip(params.type);
  const uint8_t greatest = GreatestOf(input, params.depth, flip);
  uint32_t sum = 0;
  for (int key = 0; key <= greatest; ++key) {
    const uint32_t count = counts[0][key ^ flip] + counts[1][key ^ flip];
    sum += count * static_cast<uint32_t>(table.term[greatest - key]);
  }
  const RowScale scale(sum, 8, range);
  uint8_t results[256] = {};
  for (int key = 0; key <= greatest; ++key) {
    results[key ^ flip] = static_cast<uint8_t>(scale(table.exponential[greatest - key]));
  }
  loops.apply_table(results, input, output, params.depth);
}

template <typename Row>
void ForEachRow(const SoftmaxParams& params, ThreadPool* pool, const Row& row) {
  constexpr int64_t kGrain = 1 << 12;  // elements
  ParallelRanges(pool, params.rows, std::max<int64_t>(kGrain / params.depth, 1),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) row(i * params.depth);
                 });
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
    table->exponential[-difference] = exponential;
    table->term[-difference] = RoundingDivideByPowerOfTwo(exponential, kSumBits);
  }
}

void Softmax(const SoftmaxParams& params, const SoftmaxTable& table, const Loops& loops,
             const uint8_t* input, uint8_t* output, ThreadPool* pool) {
  const ClampRange range{ByteMin(params.type), ByteMax(params.type)};
  ForEachRow(params, pool, [&](int64_t offset) {
    if (params.depth >= kLongRow) {
      SoftmaxLongRow(params, table, loops, input + offset, output + offset, range);
    } else {
      SoftmaxRow(params, table, input + offset, output + offset, range);
    }
  });
}

void SoftmaxToInt16(const SoftmaxParams& params, const SoftmaxTable& table, const uint8_t* input,
                    int16_t* output, ThreadPool* pool) {
  ForEachRow(params, pool, [&](int64_t offset) {
    SoftmaxRow(params, table, input + offset, output + offset, {-32768, 32767});
  });
}

}  // namespace atollrt
