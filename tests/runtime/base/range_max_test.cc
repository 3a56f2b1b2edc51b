// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/range_max.h"

#include <gtest/gtest.h>

#include "tests/support/rng.h"

namespace atollrt {
namespace {

template <typename Operation>
void ExpectWhatALoopGives(uint64_t seed) {
  Rng rng(TestSeed(seed));
  for (const size_t size : {1u, 2u, 5u, 64u, 77u}) {
    RangeMax<Operation> range(size);
    std::vector<int64_t> numbers(size);
    EXPECT_EQ(range.Max(), 0);
    for (int i = 0; i < 300; ++i) {
      const size_t first = static_cast<size_t>(rng.Int(0, static_cast<int64_t>(size) - 1));
      const size_t last =
          static_cast<size_t>(rng.Int(static_cast<int64_t>(first), static_cast<int64_t>(size) - 1));
      const int64_t by = rng.Int(-100, 100);
      range.Change(first, last, by);
      for (size_t at = first; at <= last; ++at) numbers[at] = Operation()(numbers[at], by);
      const auto begin = numbers.begin() + static_cast<std::ptrdiff_t>(first);
      const auto end = numbers.begin() + static_cast<std::ptrdiff_t>(last) + 1;
      ASSERT_EQ(range.Max(first, last), *std::max_element(begin, end));
      ASSERT_EQ(range.Max(), *std::max_element(numbers.begin(), numbers.end()));
      ASSERT_EQ(range.Max(last, last), numbers[last]);
    }
  }
}

TEST(RangeMax, Adds) { ExpectWhatALoopGives<std::plus<>>(1); }

TEST(RangeMax, Raises) { ExpectWhatALoopGives<RaiseTo>(2); }

}  // namespace
}  // namespace atollrt
