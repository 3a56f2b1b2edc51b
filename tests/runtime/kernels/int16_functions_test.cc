// SPDX-License-Identifier: Apache-2.0
//
// What compat/int16_ops_test compares with TensorFlow Lite's own library, without it: distances
// from the real functions, and hashes of results that were found equal to that library's.
#include "runtime/kernels/int16_functions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "tests/support/rng.h"

namespace atollrt {
namespace {

using Numbers = std::vector<int16_t>;

Numbers AllNumbers() {
  Numbers all(1 << 16);
  std::iota(all.begin(), all.end(), INT16_MIN);
  return all;
}

Numbers LogisticOf(const Numbers& x, float scale) {
  Numbers y(x.size());
  Logistic16(MakeLogisticScale(scale), reinterpret_cast<const uint8_t*>(x.data()),
             reinterpret_cast<uint8_t*>(y.data()), static_cast<int64_t>(x.size()));
  return y;
}

Numbers TanhOf(const Numbers& x, float scale) {
  Numbers y(x.size());
  Tanh16(MakeTanhScale(scale), reinterpret_cast<const uint8_t*>(x.data()),
         reinterpret_cast<uint8_t*>(y.data()), static_cast<int64_t>(x.size()));
  return y;
}

Numbers SoftmaxOf(const Numbers& x, int64_t rows, float scale) {
  Numbers y(x.size());
  Softmax16(scale).Run(reinterpret_cast<const uint8_t*>(x.data()),
                       reinterpret_cast<uint8_t*>(y.data()), rows,
                       static_cast<int32_t>(static_cast<int64_t>(x.size()) / rows));
  return y;
}

// FNV-1a of 64 bits.
uint64_t HashOf(const Numbers& numbers) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const int16_t number : numbers) {
    for (const int shift : {0, 8}) {
      hash = (hash ^ (static_cast<uint16_t>(number) >> shift & 0xff)) * 0x100000001b3u;
    }
  }
  return hash;
}

TEST(Int16Functions, AreNearTheRealOnesAndAscend) {
  const Numbers x = AllNumbers();
  for (const float scale : {3.1e-5f, 1.0f / 4096, 1.7e-3f, 0.3f, kMaxSigmoidScale}) {
    const Numbers logistic = LogisticOf(x, scale);
    const Numbers tanh = TanhOf(x, scale);
    for (size_t i = 0; i < x.size(); ++i) {
      const double real = static_cast<double>(scale) * x[i];
      ASSERT_NEAR(logistic[i], 32768 / (1 + std::exp(-real)), 2.5) << scale << " * " << x[i];
      ASSERT_NEAR(tanh[i], 32768 * std::tanh(real), 4.5) << scale << " * " << x[i];
    }
    EXPECT_TRUE(std::is_sorted(logistic.begin(), logistic.end()));
    EXPECT_TRUE(std::is_sorted(tanh.begin(), tanh.end()));
  }
}

TEST(Int16Functions, HaveTheResultsOfTensorFlowLite) {
  const Numbers x = AllNumbers();
  EXPECT_EQ(HashOf(LogisticOf(x, 2.9e-4f)), 13067364956435701703u);
  EXPECT_EQ(HashOf(LogisticOf(x, 1.7e-3f)), 8753408565776255068u);
  EXPECT_EQ(HashOf(TanhOf(x, 2.9e-4f)), 14767516236102385478u);
  EXPECT_EQ(HashOf(TanhOf(x, 1.7e-3f)), 15177663291805918115u);
  EXPECT_EQ(HashOf(SoftmaxOf(x, 64, 3e-4f)), 12297331899863415589u);
  EXPECT_EQ(HashOf(SoftmaxOf(x, 65536, 3e-4f)), 673826769913783077u);
}

TEST(Int16Functions, TakeScalesNearPowersOfTwoForThose) {
  const Numbers x = AllNumbers();
  for (const float near : {0.9994f, 1.0f, 1.0006f}) {
    EXPECT_EQ(LogisticOf(x, near / 4096), LogisticOf(x, 1.0f / 4096)) << near;
    for (const float scale : {1.0f / 4096, 1.0f / 2048}) {
      EXPECT_EQ(TanhOf(x, near * scale), TanhOf(x, scale)) << near;
    }
  }
  for (const float beside : {0.999f, 1.001f}) {
    EXPECT_NE(LogisticOf(x, beside / 4096), LogisticOf(x, 1.0f / 4096));
    EXPECT_NE(TanhOf(x, beside / 2048), TanhOf(x, 1.0f / 2048));
  }
  EXPECT_NE(LogisticOf(x, 1.0006f / 2048), LogisticOf(x, 1.0f / 2048));
}

TEST(Int16Functions, RunInPlace) {
  Numbers x = AllNumbers();
  const Numbers wanted = SoftmaxOf(x, 256, 1e-3f);
  auto* const bytes = reinterpret_cast<uint8_t*>(x.data());
  Softmax16(1e-3f).Run(bytes, bytes, 256, 256);
  EXPECT_EQ(x, wanted);
  const Numbers logistic = LogisticOf(x, 1e-3f);
  Logistic16(MakeLogisticScale(1e-3f), bytes, bytes, static_cast<int64_t>(x.size()));
  EXPECT_EQ(x, logistic);
}

TEST(Softmax16, IsNearTheRealOne) {
  Rng rng(TestSeed(1));
  for (const float scale : {1e-5f, 3e-4f, 0.01f, Softmax16::kMaxScale}) {
    for (const int32_t depth : {1, 2, 17, 1000}) {
      Numbers x(static_cast<size_t>(depth));
      for (int16_t& number : x) number = static_cast<int16_t>(rng.Int(INT16_MIN, INT16_MAX));
      const int16_t max = *std::max_element(x.begin(), x.end());
      double sum = 0;
      for (const int16_t number : x) sum += std::exp(static_cast<double>(scale) * (number - max));
      const Numbers y = SoftmaxOf(x, 1, scale);
      for (size_t i = 0; i < x.size(); ++i) {
        const double real = std::exp(static_cast<double>(scale) * (x[i] - max)) / sum;
        // No power is less than that of -10, and the sum too large by so many.
        ASSERT_NEAR(y[i], 32768 * real, 16 + 2 * depth) << depth << " of scale " << scale;
      }
    }
  }
}

// The longest row, of equal numbers at either end: its sum is as large as it gets.
TEST(Softmax16, HasRowsOf65536) {
  for (const int number : {INT16_MIN, INT16_MAX}) {
    const Numbers x(Softmax16::kMaxDepth, static_cast<int16_t>(number));
    for (const int16_t y : SoftmaxOf(x, 1, Softmax16::kMaxScale)) ASSERT_LE(y, 1);
  }
  Numbers x(Softmax16::kMaxDepth, INT16_MIN);
  x.back() = INT16_MAX;
  const Numbers y = SoftmaxOf(x, 1, Softmax16::kMaxScale);
  EXPECT_GT(y.back(), 1000 * y.front());
}

}  // namespace
}  // namespace atollrt
