// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/batch_matmul.h"

#include <gtest/gtest.h>

#include "runtime/base/buffer.h"
#include "tests/runtime/kernels/filter_sums.h"

namespace atollrt {
namespace {

// Three dimensions of batches, each repeated for one operand, for both or for none.
BatchMatMulParams RandomShape(Rng* rng) {
  BatchMatMulParams p;
  p.m = rng->Int32(1, 5);
  p.k = rng->Int32(1, 300);
  p.n = rng->Int32(1, 5);
  p.lhs = rng->OneIn(2) ? MatrixLayout::kRowMajor : MatrixLayout::kColumnMajor;
  p.rhs = rng->OneIn(2) ? MatrixLayout::kRowMajor : MatrixLayout::kColumnMajor;
  int64_t lhs_count = 1;
  int64_t rhs_count = 1;
  for (int i = 2; i >= 0; --i) {
    MatrixBatch& batch = p.batches[i];
    batch.count = rng->Int(1, 3);
    if (!rng->OneIn(3)) {
      batch.lhs_stride = lhs_count;
      lhs_count *= batch.count;
    }
    if (!rng->OneIn(3)) {
      batch.rhs_stride = rhs_count;
      rhs_count *= batch.count;
    }
  }
  return p;
}
constexpr int64_t kMostBatches = 27;

template <typename Sum, typename T>
std::vector<Sum> ExpectedSums(const BatchMatMulParams& p, const std::vector<T>& lhs,
                              const std::vector<T>& rhs) {
  std::vector<Sum> sums;
  const auto& b = p.batches;
  for (int x = 0; x < b[0].count; ++x) {
    for (int y = 0; y < b[1].count; ++y) {
      for (int z = 0; z < b[2].count; ++z) {
        const int64_t left = x * b[0].lhs_stride + y * b[1].lhs_stride + z * b[2].lhs_stride;
        const int64_t right = x * b[0].rhs_stride + y * b[1].rhs_stride + z * b[2].rhs_stride;
        for (int i = 0; i < p.m; ++i) {
          for (int j = 0; j < p.n; ++j) {
            Sum sum = 0;
            for (int k = 0; k < p.k; ++k) {
              const int64_t l = p.lhs == MatrixLayout::kRowMajor ? i * p.k + k : k * p.m + i;
              const int64_t r = p.rhs == MatrixLayout::kRowMajor ? k * p.n + j : j * p.k + k;
              sum += Sum(lhs[left * p.m * p.k + l]) * Sum(rhs[right * p.k * p.n + r]);
            }
            sums.push_back(sum);
          }
        }
      }
    }
  }
  return sums;
}

template <typename T>
std::vector<T> Product(const BatchMatMulParams& p, BatchMatMulType type, const std::vector<T>& lhs,
                       const std::vector<T>& rhs, size_t count) {
  ThreadPool pool(2);
  std::vector<T> output(count);
  Result<Buffer> scratch = Buffer::Allocate(BatchMatMulScratchBytes(p, type));
  BatchMatMul(p, type, BytesOf(lhs), BytesOf(rhs), BytesOf(output), scratch->data(), &pool);
  return output;
}

TEST(BatchMatMul, MultipliesInt16In64Bits) {
  Rng rng(TestSeed(1));
  for (int i = 0; i < 100; ++i) {
    BatchMatMulParams p = RandomShape(&rng);
    p.multiplier = QuantizeMultiplier(rng.Real() * 1e-4);
    const auto lhs = RandomInt16(&rng, kMostBatches * p.m * p.k);
    const auto rhs = RandomInt16(&rng, kMostBatches * p.k * p.n);
    std::vector<int16_t> expected;
    for (const int64_t sum : ExpectedSums<int64_t>(p, lhs, rhs)) {
      expected.push_back(static_cast<int16_t>(
          Clamp(MultiplyByQuantizedMultiplier64(sum, p.multiplier), INT16_MIN, INT16_MAX)));
    }
    ASSERT_EQ(Product(p, BatchMatMulType::kInt16, lhs, rhs, expected.size()), expected);
  }
}

TEST(BatchMatMul, MultipliesFloats) {
  Rng rng(TestSeed(2));
  for (int i = 0; i < 100; ++i) {
    const BatchMatMulParams p = RandomShape(&rng);
    const auto lhs = RandomFloats(&rng, kMostBatches * p.m * p.k);
    const auto rhs = RandomFloats(&rng, kMostBatches * p.k * p.n);
    const std::vector<double> sums = ExpectedSums<double>(p, lhs, rhs);
    const std::vector<float> output = Product(p, BatchMatMulType::kFloat32, lhs, rhs, sums.size());
    for (size_t j = 0; j < sums.size(); ++j) ASSERT_NEAR(output[j], sums[j], 1e-4);
  }
}

}  // namespace
}  // namespace atollrt
