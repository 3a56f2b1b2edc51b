// SPDX-License-Identifier: Apache-2.0
//
// What the tests of Conv2D and DepthwiseConv2D have in common: `Conv` is one of them, `Params` what
// it is prepared from.
#pragma once

#include <gtest/gtest.h>

#include <cfenv>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/runtime/kernels/random_conv.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/rng.h"

namespace atollrt {

template <typename Params>
std::string DescribeFilter(const Params& p) {
  const ConvShape& s = p.shape;
  return Format(
      "input %dx%dx%dx%d output %dx%dx%d kernel %dx%d stride %dx%d dilation %dx%d pad %d,%d groups "
      "%d types %d,%d zero points %d,%d mode %d clamp %d..%d output zero point %d",
      s.batch, s.input_h, s.input_w, s.input_c, s.output_h, s.output_w, s.output_c, s.kernel_h,
      s.kernel_w, s.stride_h, s.stride_w, s.dilation_h, s.dilation_w, s.pad_top, s.pad_left,
      s.groups, int(p.input_type), int(p.weight_type), p.input_zero_point, p.weight_zero_point,
      int(p.output.mode), p.output.clamp.min, p.output.clamp.max, p.output.zero_point);
}

// Types and zero points at random, and an output stage for sums of `depth` products.
template <typename Params>
void ChooseNumbers(Rng* rng, double depth, Params* p) {
  p->input_type = RandomType(rng);
  p->weight_type = RandomType(rng);
  p->input_zero_point = RandomZeroPoint(rng, p->input_type);
  p->weight_zero_point = RandomZeroPoint(rng, p->weight_type);
  p->output = RandomOutputStage(rng, p->shape.output_c, depth * 128 * 64);
}

template <typename Conv>
struct FilterRun {
  const Conv& conv;
  GuardedBuffer &input, &output, &scratch;
  const std::vector<uint8_t>& expected;
};

// Runs `p` with operands hard against unmapped pages, whatever the program's rounding mode, and
// compares with the reference; then more(run) may look at it.
template <typename Conv, typename Params, typename Reference, typename More>
void ExpectEqualsReference(Rng* rng, Params p, int64_t weight_bytes, Reference reference,
                           CpuFeatures features, ThreadPool* pool, More more) {
  const auto side = [&] { return rng->Pick({GuardedBuffer::kEnd, GuardedBuffer::kStart}); };
  const auto gap = [&] { return static_cast<size_t>(rng->Int(0, 63)); };
  GuardedBuffer weights(static_cast<size_t>(weight_bytes), side());
  GuardedBuffer input(static_cast<size_t>(p.shape.InputBytes()), side());
  GuardedBuffer output(static_cast<size_t>(p.shape.OutputBytes()), side(), gap());
  RandomWeights(rng, p.weight_type, p.weight_zero_point, weights.bytes());
  RandomBytes(rng, input.bytes());
  p.weights = weights.data();

  std::vector<uint8_t> expected(output.size());
  reference(p, input.data(), expected.data());

  // Weights are packed by Prepare, or were before and are used where they lie.
  const bool is_packed = rng->OneIn(2);
  const PackedFile packed(is_packed ? Conv::PackWeights(p, features) : std::vector<uint8_t>());
  p.packed_weights = packed.bytes();
  Result<Conv> prepared = Conv::Prepare(p, features);
  ASSERT_TRUE(prepared.ok()) << prepared.status().message();
  const Conv conv = *std::move(prepared);
  EXPECT_EQ(conv.uses_packed_weights(), is_packed) << DescribeFilter(p);
  std::memset(weights.data(), 0x55, weights.size());  // not needed any more
  GuardedBuffer scratch(conv.ScratchBytes(pool == nullptr ? 1 : pool->threads()), side(), gap());
  // Scales in double precision round as the program says.
  std::fesetround(p.output.mode == RequantizeMode::kDouble
                      ? FE_TONEAREST
                      : rng->Pick({FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}));
  conv.Run(input.data(), output.data(), scratch.data(), pool);
  std::fesetround(FE_TONEAREST);

  const std::vector<uint8_t> actual(output.data(), output.data() + output.size());
  EXPECT_EQ(actual, expected) << conv.kernel_name() << ": " << DescribeFilter(p);
  EXPECT_TRUE(output.Intact() && scratch.Intact())
      << conv.kernel_name() << ": " << DescribeFilter(p);
  more(FilterRun<Conv>{conv, input, output, scratch, expected});
}

// `least` bytes of the smallest value of a type, then `most` of the largest, and so on.
struct ExtremeRuns {
  int64_t least = 0;
  int64_t most = 0;
};
inline std::vector<uint8_t> ExtremeBytes(ByteType type, ExtremeRuns runs, int64_t count) {
  std::vector<uint8_t> bytes;
  for (int64_t i = 0; i < count; ++i) {
    bytes.push_back(static_cast<uint8_t>(
        i % (runs.least + runs.most) < runs.least ? ByteMin(type) : ByteMax(type)));
  }
  return bytes;
}

// Weights less their zero point, and activations, of -128 and 127: products and their sums in the
// kernels' 16 bits are largest. For every CPU level, types, and weights packed before or not.
template <typename Conv, typename Params, typename Reference>
void ExpectExactAtTheBounds(Params p, int64_t weight_bytes, Reference reference) {
  constexpr ExtremeRuns kRuns[] = {{1, 0}, {0, 1}, {1, 1}, {2, 2}, {8, 8}, {1, 30}};
  std::vector<uint8_t> expected(static_cast<size_t>(p.shape.OutputBytes()));
  std::vector<uint8_t> actual(expected.size());
  for (const ByteType type : {ByteType::kInt8, ByteType::kUInt8}) {
    p.input_type = p.weight_type = type;
    p.input_zero_point = p.weight_zero_point = ByteMin(type) + 128;
    for (const ExtremeRuns weight_runs : kRuns) {
      const std::vector<uint8_t> weights = ExtremeBytes(type, weight_runs, weight_bytes);
      p.weights = weights.data();
      for (const ExtremeRuns input_runs : kRuns) {
        const std::vector<uint8_t> input = ExtremeBytes(type, input_runs, p.shape.InputBytes());
        p.packed_weights = {};
        reference(p, input.data(), expected.data());
        for (const CpuFeatures features : AvailableCpuLevels()) {
          for (const bool is_packed : {false, true}) {
            const PackedFile packed(is_packed ? Conv::PackWeights(p, features)
                                              : std::vector<uint8_t>());
            p.packed_weights = packed.bytes();
            const Result<Conv> conv = Conv::Prepare(p, features);
            ASSERT_TRUE(conv.ok()) << conv.status().message();
            EXPECT_EQ(conv->uses_packed_weights(), is_packed);
            std::vector<uint8_t> scratch(conv->ScratchBytes(1));
            conv->Run(input.data(), actual.data(), scratch.data(), nullptr);
            EXPECT_EQ(actual, expected) << conv->kernel_name() << ", weights " << weight_runs.least
                                        << "+" << weight_runs.most << ", input " << input_runs.least
                                        << "+" << input_runs.most << ": " << DescribeFilter(p);
          }
        }
      }
    }
  }
}

// What is over padding in every output takes neither time nor memory.
template <typename Conv, typename Params>
void ExpectLittleScratch(Params p, int64_t weight_bytes, CpuFeatures features) {
  const std::vector<uint8_t> weights(static_cast<size_t>(weight_bytes), 3);
  p.weights = weights.data();
  const auto conv = Conv::Prepare(p, features);
  ASSERT_TRUE(conv.ok());
  EXPECT_LE(conv->ScratchBytes(1), 2u << 20) << DescribeFilter(p);
}

}  // namespace atollrt
