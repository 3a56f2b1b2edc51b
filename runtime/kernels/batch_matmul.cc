// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/batch_matmul.h"

#include <algorithm>

#include "runtime/base/bytes.h"
#include "runtime/kernels/scratch.h"

namespace atollrt {
namespace {

// How a stored matrix of `rows` rows becomes one whose rows are together.
struct Rearrangement {
  int64_t rows = 0, columns = 0;
  MatrixLayout layout = MatrixLayout::kRowMajor;
};

// target[row][column] = stored value - zero_point.
template <typename T, typename Value>
void Rearrange(const Rearrangement& matrix, const uint8_t* stored, Value zero_point,
               Value* target) {
  const bool row_major = matrix.layout == MatrixLayout::kRowMajor;
  const int64_t row_step = row_major ? matrix.columns : 1;
  const int64_t column_step = row_major ? 1 : matrix.rows;
  for (int64_t row = 0; row < matrix.rows; ++row) {
    for (int64_t column = 0; column < matrix.columns; ++column) {
      const int64_t index = row * row_step + column * column_step;
      const T value = LoadLittleEndian<T>(stored + index * static_cast<int64_t>(sizeof(T)));
      *target++ = static_cast<Value>(value - zero_point);
    }
  }
}

MatrixLayout Transposed(MatrixLayout layout) {
  return layout == MatrixLayout::kRowMajor ? MatrixLayout::kColumnMajor : MatrixLayout::kRowMajor;
}

// Each type works on rows of lhs, [m, k], and on rows of rhs, [n, k] for the integers, whose dot
// products have instructions, [k, n] for floats, whose additions must stay in order.

struct Int8Type {
  using Stored = int8_t;
  using Value = int16_t;  // differences of bytes
  static constexpr bool kRhsByColumns = true;
  static void MultiplyRow(const BatchMatMulParams& p, const Value* a, const Value* b, int8_t* out) {
    for (int32_t j = 0; j < p.n; ++j, b += p.k) {
      uint32_t sum = 0;  // wraps beyond k = 2^15
      for (int32_t i = 0; i < p.k; ++i) sum += static_cast<uint32_t>(a[i] * b[i]);
      const int32_t scaled = MultiplyByQuantizedMultiplier(static_cast<int32_t>(sum), p.multiplier);
      const uint32_t moved =
          static_cast<uint32_t>(scaled) + static_cast<uint32_t>(p.output_zero_point);
      out[j] = static_cast<int8_t>(Clamp(static_cast<int32_t>(moved), -128, 127));
    }
  }
};

struct Int16Type {
  using Stored = int16_t;
  using Value = int16_t;
  static constexpr bool kRhsByColumns = true;
  static void MultiplyRow(const BatchMatMulParams& p, const Value* a, const Value* b,
                          int16_t* out) {
    for (int32_t j = 0; j < p.n; ++j, b += p.k) {
      int64_t sum = 0;
      for (int32_t i = 0; i < p.k; ++i) sum += a[i] * b[i];
      out[j] = static_cast<int16_t>(
          Clamp(MultiplyByQuantizedMultiplier64(sum, p.multiplier), -32768, 32767));
    }
  }
};

struct FloatType {
  using Stored = float;
  using Value = float;
  static constexpr bool kRhsByColumns = false;
  static void MultiplyRow(const BatchMatMulParams& p, const Value* a, const Value* b, float* out) {
    std::fill_n(out, p.n, 0.0f);
    for (int32_t i = 0; i < p.k; ++i, b += p.n) {
      for (int32_t j = 0; j < p.n; ++j) out[j] += a[i] * b[j];
    }
  }
};

// The operands, rearranged.
template <typename Type>
struct Rearranged {
  Rearranged(const BatchMatMulParams& p, Scratch* scratch)
      : a(scratch->Take<typename Type::Value>(int64_t{p.m} * p.k)),
        b(scratch->Take<typename Type::Value>(int64_t{p.k} * p.n)) {}
  typename Type::Value* const a;
  typename Type::Value* const b;
};

template <typename Type>
size_t ScratchBytes(const BatchMatMulParams& p) {
  Scratch count(nullptr);
  Rearranged<Type>(p, &count);
  return count.size();
}

template <typename Type>
void MultiplyMatrices(const BatchMatMulParams& p, const uint8_t* lhs, const uint8_t* rhs,
                      typename Type::Stored* output, uint8_t* scratch, ThreadPool* pool) {
  using Stored = typename Type::Stored;
  using Value = typename Type::Value;
  Scratch block(scratch);
  const Rearranged<Type> rows(p, &block);
  Value* const a = rows.a;
  Value* const b = rows.b;
  Rearrange<Stored>({p.m, p.k, p.lhs}, lhs, static_cast<Value>(p.lhs_zero_point), a);
  const Rearrangement rhs_rows = Type::kRhsByColumns ? Rearrangement{p.n, p.k, Transposed(p.rhs)}
                                                     : Rearrangement{p.k, p.n, p.rhs};
  Rearrange<Stored>(rhs_rows, rhs, static_cast<Value>(p.rhs_zero_point), b);
  const int threads = pool == nullptr ? 1 : pool->threads();
  ParallelFor(pool, std::min(threads, p.m), [&](int task, int) {
    const int tasks = std::min(threads, p.m);
    const int64_t end = int64_t{p.m} * (task + 1) / tasks;
    for (int64_t row = int64_t{p.m} * task / tasks; row < end; ++row) {
      Type::MultiplyRow(p, a + row * p.k, b, output + row * p.n);
    }
  });
}

template <typename Type>
void MultiplyAll(const BatchMatMulParams& p, const uint8_t* lhs, const uint8_t* rhs,
                 uint8_t* output, uint8_t* scratch, ThreadPool* pool) {
  constexpr int64_t kSize = sizeof(typename Type::Stored);
  auto* out = reinterpret_cast<typename Type::Stored*>(output);
  const auto& [outer, middle, inner] = p.batches;
  for (int64_t i = 0; i < outer.count * middle.count * inner.count; ++i) {
    const int64_t x = i / middle.count / inner.count;
    const int64_t y = i / inner.count % middle.count;
    const int64_t z = i % inner.count;
    const int64_t left = x * outer.lhs_stride + y * middle.lhs_stride + z * inner.lhs_stride;
    const int64_t right = x * outer.rhs_stride + y * middle.rhs_stride + z * inner.rhs_stride;
    MultiplyMatrices<Type>(p, lhs + left * p.m * p.k * kSize, rhs + right * p.k * p.n * kSize, out,
                           scratch, pool);
    out += int64_t{p.m} * p.n;
  }
}

}  // namespace

size_t BatchMatMulScratchBytes(const BatchMatMulParams& params, BatchMatMulType type) {
  return type == BatchMatMulType::kFloat32 ? ScratchBytes<FloatType>(params)
                                           : ScratchBytes<Int16Type>(params);
}

void BatchMatMul(const BatchMatMulParams& params, BatchMatMulType type, const uint8_t* lhs,
                 const uint8_t* rhs, uint8_t* output, uint8_t* scratch, ThreadPool* pool) {
  switch (type) {
    case BatchMatMulType::kInt8:
      return MultiplyAll<Int8Type>(params, lhs, rhs, output, scratch, pool);
    case BatchMatMulType::kInt16:
      return MultiplyAll<Int16Type>(params, lhs, rhs, output, scratch, pool);
    case BatchMatMulType::kFloat32:
      return MultiplyAll<FloatType>(params, lhs, rhs, output, scratch, pool);
  }
}

}  // namespace atollrt
