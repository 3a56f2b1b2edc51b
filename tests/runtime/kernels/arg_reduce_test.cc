// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/arg_reduce.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/runtime/kernels/random_conv.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

// The first best element of each row, plainly.
template <typename T>
std::vector<int64_t> Expected(const ArgReduceParams& p, const uint8_t* input) {
  std::vector<int64_t> result;
  for (int64_t outer = 0; outer < p.outer; ++outer) {
    for (int64_t inner = 0; inner < p.inner; ++inner) {
      const auto at = [&](int64_t i) {
        return LoadLittleEndian<T>(input + ((outer * p.size + i) * p.inner + inner) *
                                               static_cast<int64_t>(sizeof(T)));
      };
      int64_t index = 0;
      for (int64_t i = 1; i < p.size; ++i) {
        if (p.which == Extreme::kMax ? at(i) > at(index) : at(i) < at(index)) index = i;
      }
      result.push_back(index);
    }
  }
  return result;
}

template <typename T>
void ExpectFindsTheFirstBest(Element element) {
  Rng rng(TestSeed(1));
  ThreadPool pool(3);
  for (int round = 0; round < TestCount(400); ++round) {
    ArgReduceParams p;
    p.which = rng.OneIn(2) ? Extreme::kMax : Extreme::kMin;
    p.input = element;
    p.output = rng.OneIn(2) ? Element::kInt32 : Element::kInt64;
    p.outer = rng.OneIn(20) ? 3000 : rng.Int(1, 5);
    p.size = rng.Int(1, rng.OneIn(4) ? 300 : 40);
    p.inner = rng.OneIn(2) ? 1 : rng.Int(2, rng.OneIn(4) ? 600 : 9);
    const size_t count = static_cast<size_t>(p.outer * p.size * p.inner);
    GuardedBuffer input(count * sizeof(T), rng.Pick({GuardedBuffer::kEnd, GuardedBuffer::kStart}));
    // Few values, so that many are equal, or the whole range.
    const int64_t values = rng.Pick<int64_t>({1, 2, 5, 256});
    for (size_t i = 0; i < count; ++i) {
      const T value = static_cast<T>(rng.Int(0, values - 1) - (values == 256 ? 128 : 0));
      StoreLittleEndian<T>(input.data() + i * sizeof(T), value);
    }
    const std::vector<int64_t> expected = Expected<T>(p, input.data());
    for (const CpuFeatures level : AvailableCpuLevels()) {
      std::vector<int64_t> output(expected.size() + 1, -1);
      uint8_t* bytes = reinterpret_cast<uint8_t*>(output.data());
      ArgReduce(p, ChooseRowLoops(level), input.data(), bytes, rng.OneIn(2) ? &pool : nullptr);
      ASSERT_EQ(output.back(), -1);
      output.pop_back();
      for (size_t i = output.size(); p.output == Element::kInt32 && i-- > 0;) {
        output[i] = LoadLittleEndian<int32_t>(bytes + 4 * i);
      }
      ASSERT_EQ(output, expected) << CpuFeaturesName(level) << ", round " << round << ": "
                                  << p.outer << " x " << p.size << " x " << p.inner;
    }
  }
}

TEST(ArgReduce, FindsTheFirstBestOfInt8) { ExpectFindsTheFirstBest<int8_t>(Element::kInt8); }
TEST(ArgReduce, FindsTheFirstBestOfUInt8) { ExpectFindsTheFirstBest<uint8_t>(Element::kUInt8); }
TEST(ArgReduce, FindsTheFirstBestOfInt16) { ExpectFindsTheFirstBest<int16_t>(Element::kInt16); }
TEST(ArgReduce, FindsTheFirstBestOfInt32) { ExpectFindsTheFirstBest<int32_t>(Element::kInt32); }
TEST(ArgReduce, FindsTheFirstBestOfInt64) { ExpectFindsTheFirstBest<int64_t>(Element::kInt64); }
TEST(ArgReduce, FindsTheFirstBestOfFloat32) { ExpectFindsTheFirstBest<float>(Element::kFloat32); }

}  // namespace
}  // namespace atollrt
