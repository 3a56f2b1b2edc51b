// SPDX-License-Identifier: Apache-2.0
//
// BATCH_MATMUL and TRANSPOSE_CONV of float32 on one thread: libatoll-core's kernels, and libatoll's
// on Eigen's products, in turns in one run.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <vector>

#include "runtime/base/buffer.h"
#include "runtime/kernels/conv2d_wide.h"
#include "runtime/kernels/float_conv.h"
#include "runtime/kernels/float_matmul.h"
#include "runtime/kernels/transpose_conv.h"

namespace atollrt {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<float> Values(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525 + 1013904223;
    value = static_cast<float>(state >> 8) / 16777216.0f - 0.5f;
  }
  return values;
}

const uint8_t* Bytes(const std::vector<float>& values) {
  return reinterpret_cast<const uint8_t*>(values.data());
}
uint8_t* Bytes(std::vector<float>* values) { return reinterpret_cast<uint8_t*>(values->data()); }

// Microseconds of the fastest run.
template <typename Body>
double Fastest(const Body& body) {
  double best = std::numeric_limits<double>::infinity();
  const Clock::time_point end = Clock::now() + std::chrono::milliseconds(150);
  do {
    const Clock::time_point start = Clock::now();
    body();
    best = std::min(best, std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  } while (Clock::now() < end);
  return best;
}

template <typename Plain, typename Products>
void Compare(const char* what, double products, const Plain& plain, const Products& fast) {
  double before = std::numeric_limits<double>::infinity();
  double now = before;
  for (int turn = 0; turn < 4; ++turn) {
    before = std::min(before, Fastest(plain));
    now = std::min(now, Fastest(fast));
  }
  std::printf("%-48s %9.1f us %9.1f us %6.2fx %7.1f GFLOP/s\n", what, before, now, before / now,
              2e-3 * products / now);
}

void MatMul(const char* what, int64_t pairs, int32_t m, int32_t k, int32_t n, bool transposed,
            CpuFeatures features) {
  BatchMatMulParams p;
  p.m = m;
  p.k = k;
  p.n = n;
  p.rhs = transposed ? MatrixLayout::kColumnMajor : MatrixLayout::kRowMajor;
  p.batches[2] = {.count = pairs, .lhs_stride = 1, .rhs_stride = 1};
  const auto lhs = Values(pairs * m * k);
  const auto rhs = Values(pairs * k * n);
  auto output = Values(pairs * m * n);
  const FloatMatMul product(p, features);
  Result<Buffer> plain_scratch =
      Buffer::Allocate(BatchMatMulScratchBytes(p, BatchMatMulType::kFloat32));
  Result<Buffer> scratch = Buffer::Allocate(product.ScratchBytes(1));
  if (!plain_scratch.ok() || !scratch.ok()) return;
  Compare(
      what, static_cast<double>(pairs) * m * k * n,
      [&] {
        BatchMatMul(p, BatchMatMulType::kFloat32, Bytes(lhs), Bytes(rhs), Bytes(&output),
                    plain_scratch->data(), nullptr);
      },
      [&] { product.Run(Bytes(lhs), Bytes(rhs), output.data(), scratch->data(), nullptr); });
}

void Transposed(const char* what, int32_t size, int32_t input_c, int32_t output_c, int32_t kernel,
                CpuFeatures features) {
  Conv2DFloatParams p;
  p.shape = {.input_h = size,
             .input_w = size,
             .input_c = input_c,
             .output_h = 2 * size,
             .output_w = 2 * size,
             .output_c = output_c,
             .kernel_h = kernel,
             .kernel_w = kernel,
             .stride_h = 2,
             .stride_w = 2,
             .pad_top = (kernel - 2) / 2,
             .pad_left = (kernel - 2) / 2};
  const auto weights = Values(int64_t{output_c} * kernel * kernel * input_c);
  const auto input = Values(int64_t{size} * size * input_c);
  auto output = Values(int64_t{4} * size * size * output_c);
  p.weights = Bytes(weights);
  const auto plain = TransposeConv<Conv2DFloat, Conv2DFloatParams>::Prepare(p, {4, 4, 0}, features);
  const auto fast = TransposeConv<FloatConv, Conv2DFloatParams>::Prepare(p, {4, 4, 0}, features);
  if (!plain.ok() || !fast.ok()) return;
  Result<Buffer> scratch =
      Buffer::Allocate(std::max(plain->ScratchBytes(1), fast->ScratchBytes(1)));
  if (!scratch.ok()) return;
  Compare(
      what, static_cast<double>(size) * size * input_c * output_c * kernel * kernel,
      [&] { plain->Run(Bytes(input), Bytes(&output), scratch->data(), nullptr); },
      [&] { fast->Run(Bytes(input), Bytes(&output), scratch->data(), nullptr); });
}

int Main() {
  const CpuFeatures features = DetectCpuFeatures().ok() ? *DetectCpuFeatures() : kBaseline;
  std::printf("%-48s %12s %12s\n", "one thread", "core", "Eigen");
  MatMul("BATCH_MATMUL 4 heads of 197x64 x 64x197, by rows", 4, 197, 64, 197, true, features);
  MatMul("BATCH_MATMUL 4 heads of 197x197 x 197x64", 4, 197, 197, 64, false, features);
  MatMul("BATCH_MATMUL 1 of 512x512 x 512x512", 1, 512, 512, 512, false, features);
  MatMul("BATCH_MATMUL 1 of 1x256 x 256x1000", 1, 1, 256, 1000, false, features);
  MatMul("BATCH_MATMUL 1 of 3x256 x 256x1000", 1, 3, 256, 1000, false, features);
  MatMul("BATCH_MATMUL 1 of 4x256 x 256x1000", 1, 4, 256, 1000, false, features);
  MatMul("BATCH_MATMUL 1 of 1x256 x 256x1000, by rows", 1, 1, 256, 1000, true, features);
  MatMul("BATCH_MATMUL 64 of 4x4 x 4x4", 64, 4, 4, 4, false, features);
  Transposed("TRANSPOSE_CONV 2x2, 64x64x64 to 128x128x32", 64, 64, 32, 2, features);
  Transposed("TRANSPOSE_CONV 4x4, 32x32x128 to 64x64x64", 32, 128, 64, 4, features);
  Transposed("TRANSPOSE_CONV 3x3, 16x16x256 to 32x32x128", 16, 256, 128, 3, features);
  Transposed("TRANSPOSE_CONV 4x4, 128x128x16 to 256x256x1", 128, 16, 1, 4, features);
  return 0;
}

}  // namespace
}  // namespace atollrt

int main() { return atollrt::Main(); }
