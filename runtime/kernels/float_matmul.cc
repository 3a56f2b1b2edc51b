// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/float_matmul.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/buffer.h"
#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

// A task packs so many columns of rhs, of so much depth at a time, and multiplies so many rows of
// lhs by them.
constexpr int64_t kTaskColumns = 192;
constexpr int64_t kTaskDepth = 512;
constexpr int64_t kTaskRows = 16 * kProductColumns;

// The matrix [rows, columns] that begins at `row` and `column` of one whose cells lie so many
// floats apart, row by row.
struct Cut {
  const uint8_t* matrix;
  int64_t row_step, column_step;
};
void CopyCut(const Cut& cut, int64_t row, int64_t column, int64_t rows, int64_t columns,
             float* target) {
  const uint8_t* const first = cut.matrix + 4 * (row * cut.row_step + column * cut.column_step);
  if (cut.column_step == 1) {
    for (int64_t r = 0; r < rows; ++r, target += columns) {
      std::memcpy(target, first + 4 * r * cut.row_step, static_cast<size_t>(columns) * 4);
    }
    return;
  }
  // Reads the source in its order, a few rows at a time for the sake of the target.
  constexpr int64_t kRows = 16;
  for (int64_t begin = 0; begin < rows; begin += kRows) {
    const int64_t end = std::min(begin + kRows, rows);
    for (int64_t c = 0; c < columns; ++c) {
      const uint8_t* const cells = first + 4 * c * cut.column_step;
      for (int64_t r = begin; r < end; ++r) {
        std::memcpy(target + r * columns + c, cells + 4 * r * cut.row_step, sizeof(float));
      }
    }
  }
}

bool IsAligned(const uint8_t* p) { return reinterpret_cast<uintptr_t>(p) % alignof(float) == 0; }

}  // namespace

struct FloatMatMul::Scratch {
  float* products;  // what FloatProducts needs
  float* packed;    // of rhs
  float* columns;   // of rhs, as rows
  float* rows;      // of lhs
  int64_t floats;   // of all
};

FloatMatMul::Scratch FloatMatMul::ScratchAt(float* memory) const {
  constexpr auto kAligned = static_cast<int64_t>(Buffer::kAlignment / sizeof(float));
  Scratch scratch{};
  const auto take = [&](int64_t floats) {
    float* const begin = memory == nullptr ? nullptr : memory + scratch.floats;
    scratch.floats += (floats + kAligned - 1) / kAligned * kAligned;
    return begin;
  };
  const int64_t depth = std::min<int64_t>(kTaskDepth, params_.k);
  const int64_t columns = std::min<int64_t>(kTaskColumns, params_.n);
  scratch.products = take(products_->scratch_floats(depth));
  scratch.packed = take(products_->packed_floats(columns, depth));
  scratch.columns = take(columns * depth);
  scratch.rows = take(std::min<int64_t>(kProductColumns, params_.m) * depth);
  return scratch;
}

FloatMatMul::FloatMatMul(const BatchMatMulParams& params, CpuFeatures features)
    : params_(params), products_(&ChooseFloatProducts(features)) {}

size_t FloatMatMul::ScratchBytes(int threads) const {
  return static_cast<size_t>(threads) * static_cast<size_t>(ScratchAt(nullptr).floats) *
         sizeof(float);
}

void FloatMatMul::Multiply(const uint8_t* lhs, const uint8_t* rhs, int64_t row, int64_t column,
                           float* output, const Scratch& scratch) const {
  const int64_t m = params_.m;
  const int64_t n = params_.n;
  const int64_t k = params_.k;
  const bool is_row_major = params_.lhs == MatrixLayout::kRowMajor;
  // [m, k], and [n, k]: a column of rhs is a row here.
  const Cut left = is_row_major ? Cut{lhs, k, 1} : Cut{lhs, 1, m};
  const Cut right = params_.rhs == MatrixLayout::kColumnMajor ? Cut{rhs, k, 1} : Cut{rhs, 1, n};
  const bool as_it_lies = is_row_major && IsAligned(lhs);
  const int64_t columns = std::min(kTaskColumns, n - column);
  const int64_t row_end = std::min(row + kTaskRows, m);
  for (int64_t r = row; r < row_end; ++r) std::fill_n(output + r * n + column, columns, 0.0f);
  for (int64_t at = 0; at < k; at += kTaskDepth) {
    const int64_t depth = std::min(kTaskDepth, k - at);
    CopyCut(right, column, at, columns, depth, scratch.columns);
    products_->pack(scratch.columns, columns, depth, scratch.packed);
    for (int64_t r = row; r < row_end; r += kProductColumns) {
      const int64_t rows = std::min(kProductColumns, row_end - r);
      const float* x = scratch.rows;
      if (as_it_lies) {
        x = reinterpret_cast<const float*>(lhs) + r * k + at;
      } else {
        CopyCut(left, r, at, rows, depth, scratch.rows);
      }
      products_->multiply(scratch.packed, columns, depth, x, as_it_lies ? k : depth, rows,
                          output + r * n + column, n, scratch.products);
    }
  }
}

void FloatMatMul::Run(const uint8_t* lhs, const uint8_t* rhs, float* output, uint8_t* scratch,
                      ThreadPool* pool) const {
  const int64_t m = params_.m;
  const int64_t n = params_.n;
  const int64_t k = params_.k;
  // Tasks are a matter of the shape alone, and so is what each of them computes.
  const int64_t column_tasks = (n + kTaskColumns - 1) / kTaskColumns;
  const int64_t tasks = column_tasks * ((m + kTaskRows - 1) / kTaskRows);
  const MatrixBatch& outer = params_.batches[0];
  const MatrixBatch& middle = params_.batches[1];
  const MatrixBatch& inner = params_.batches[2];
  const int64_t pairs = outer.count * middle.count * inner.count;
  constexpr int64_t kGrain = int64_t{1} << 17;  // products
  const int64_t work = std::min(kTaskColumns, n) * std::min(kTaskRows, m) * k;
  const int64_t least = std::max<int64_t>(1, kGrain / std::max<int64_t>(work, 1));
  const size_t own_bytes = ScratchBytes(1);
  ParallelRanges(pool, pairs * tasks, least, [&](int64_t begin, int64_t end, int worker) {
    const Scratch own =
        ScratchAt(reinterpret_cast<float*>(scratch + static_cast<size_t>(worker) * own_bytes));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t pair = i / tasks;
      const int64_t a = pair / inner.count / middle.count;
      const int64_t b = pair / inner.count % middle.count;
      const int64_t c = pair % inner.count;
      const int64_t l = a * outer.lhs_stride + b * middle.lhs_stride + c * inner.lhs_stride;
      const int64_t r = a * outer.rhs_stride + b * middle.rhs_stride + c * inner.rhs_stride;
      Multiply(lhs + 4 * l * m * k, rhs + 4 * r * k * n, i % tasks / column_tasks * kTaskRows,
               i % tasks % column_tasks * kTaskColumns, output + pair * m * n, own);
    }
  });
}

}  // namespace atollrt
