// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/float_matmul.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "runtime/base/buffer.h"
#include "tests/runtime/kernels/filter_sums.h"
#include "tests/runtime/kernels/float_levels.h"

namespace atollrt {
namespace {

std::vector<float> RunOn(const FloatMatMul& product, const BatchMatMulParams& p, const uint8_t* lhs,
                         const uint8_t* rhs, ThreadPool* pool) {
  int64_t count = int64_t{p.m} * p.n;
  for (const MatrixBatch& batch : p.batches) count *= batch.count;
  std::vector<float> output(static_cast<size_t>(count), 77.0f);
  Result<Buffer> scratch =
      Buffer::Allocate(product.ScratchBytes(pool == nullptr ? 1 : pool->threads()));
  EXPECT_TRUE(scratch.ok());
  product.Run(lhs, rhs, output.data(), scratch->data(), pool);
  return output;
}

// At an address that no float has.
std::vector<uint8_t> Moved(const std::vector<float>& values) {
  std::vector<uint8_t> bytes(values.size() * 4 + 1);
  std::memcpy(bytes.data() + 1, values.data(), values.size() * 4);
  return bytes;
}

// Against the plain kernel, at every level; the same bytes for every number of threads and for
// operands at any address.
void Check(const BatchMatMulParams& p, int64_t lhs_matrices, int64_t rhs_matrices, Rng* rng) {
  const auto lhs = RandomFloats(rng, lhs_matrices * p.m * p.k);
  const auto rhs = RandomFloats(rng, rhs_matrices * p.k * p.n);
  ThreadPool two(2);
  ThreadPool three(3);
  std::vector<float> expected;
  for (const CpuFeatures level : FloatProductLevels()) {
    const FloatMatMul product(p, level);
    const std::vector<float> output = RunOn(product, p, BytesOf(lhs), BytesOf(rhs), nullptr);
    if (expected.empty()) {
      expected.resize(output.size());
      Result<Buffer> scratch =
          Buffer::Allocate(BatchMatMulScratchBytes(p, BatchMatMulType::kFloat32));
      ASSERT_TRUE(scratch.ok());
      BatchMatMul(p, BatchMatMulType::kFloat32, BytesOf(lhs), BytesOf(rhs), BytesOf(expected),
                  scratch->data(), nullptr);
    }
    for (size_t i = 0; i < output.size(); ++i) {
      ASSERT_NEAR(output[i], expected[i], 1e-6 * p.k + 1e-5) << "element " << i;
    }
    ASSERT_EQ(RunOn(product, p, BytesOf(lhs), BytesOf(rhs), &two), output);
    ASSERT_EQ(RunOn(product, p, BytesOf(lhs), BytesOf(rhs), &three), output);
    ASSERT_EQ(RunOn(product, p, Moved(lhs).data() + 1, Moved(rhs).data() + 1, &two), output);
  }
}

TEST(FloatMatMul, EqualsThePlainKernelInEveryLayout) {
  Rng rng(TestSeed(1));
  for (int i = 0; i < 60; ++i) {
    BatchMatMulParams p;
    p.m = rng.Int32(1, 70);
    p.k = rng.Int32(1, 90);
    p.n = rng.Int32(1, 70);
    p.lhs = rng.OneIn(2) ? MatrixLayout::kRowMajor : MatrixLayout::kColumnMajor;
    p.rhs = rng.OneIn(2) ? MatrixLayout::kRowMajor : MatrixLayout::kColumnMajor;
    int64_t lhs_matrices = 1;
    int64_t rhs_matrices = 1;
    for (size_t d = p.batches.size(); d-- > 0;) {
      p.batches[d].count = rng.Int(1, 3);
      if (!rng.OneIn(3)) {
        p.batches[d].lhs_stride = lhs_matrices;
        lhs_matrices *= p.batches[d].count;
      }
      if (!rng.OneIn(3)) {
        p.batches[d].rhs_stride = rhs_matrices;
        rhs_matrices *= p.batches[d].count;
      }
    }
    ASSERT_NO_FATAL_FAILURE(Check(p, lhs_matrices, rhs_matrices, &rng)) << "case " << i;
  }
}

// More rows, columns and depth than a task takes at a time.
TEST(FloatMatMul, CutsLargeMatrices) {
  Rng rng(TestSeed(2));
  for (const auto& [m, k, n] : {std::tuple{1, 1100, 3}, {800, 5, 200}, {3, 513, 400}}) {
    for (const MatrixLayout layout : {MatrixLayout::kRowMajor, MatrixLayout::kColumnMajor}) {
      BatchMatMulParams p;
      p.m = m;
      p.k = k;
      p.n = n;
      p.lhs = p.rhs = layout;
      ASSERT_NO_FATAL_FAILURE(Check(p, 1, 1, &rng)) << m << ", " << k << ", " << n;
    }
  }
}

}  // namespace
}  // namespace atollrt
