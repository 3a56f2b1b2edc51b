// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/transpose_conv.h"

#include <algorithm>
#include <cstring>

namespace atollrt {

// With oy = first + j * stride and first + pad = base * stride + remainder, the tap
// ky = remainder + t * stride meets the input at iy = base + j - t. Turning the taps around,
// t = taps - 1 - u, that is j - (taps - 1 - base) + u: a convolution with taps - 1 - base cells of
// padding. Taps of zeros are added where that would be negative, or where there is no tap.
std::vector<TransposePhase> SplitTransposeConv(const TransposeAxis& axis) {
  std::vector<TransposePhase> phases;
  for (int32_t first = 0; first < std::min(axis.stride, axis.output); ++first) {
    const int32_t base = (first + axis.pad) / axis.stride;
    const int32_t remainder = (first + axis.pad) % axis.stride;
    TransposePhase phase{.first = first, .first_tap = remainder};
    phase.count = (axis.output - first - 1) / axis.stride + 1;
    if (remainder < axis.filter) phase.taps = (axis.filter - remainder - 1) / axis.stride + 1;
    phase.taps = std::max(phase.taps, base + 1);
    phase.pad = phase.taps - 1 - base;
    phases.push_back(phase);
  }
  return phases;
}

namespace {

uint64_t PhaseCount(const ConvShape& s) {
  return uint64_t{static_cast<uint32_t>(std::min(s.stride_h, s.output_h))} *
         static_cast<uint32_t>(std::min(s.stride_w, s.output_w));
}

ConvShape PhaseShape(const ConvShape& whole, const TransposePhase& row,
                     const TransposePhase& column) {
  ConvShape shape = whole;
  shape.output_h = row.count;
  shape.output_w = column.count;
  shape.kernel_h = row.taps;
  shape.kernel_w = column.taps;
  shape.stride_h = shape.stride_w = 1;
  shape.pad_top = row.pad;
  shape.pad_left = column.pad;
  return shape;
}

}  // namespace

int64_t TransposeTaps(const ConvShape& s) {
  const auto taps = [](const TransposeAxis& axis) {
    int64_t sum = 0;
    for (const TransposePhase& phase : SplitTransposeConv(axis)) sum += phase.taps;
    return sum;
  };
  return taps({s.output_h, s.kernel_h, s.stride_h, s.pad_top}) *
         taps({s.output_w, s.kernel_w, s.stride_w, s.pad_left});
}

bool SplitsWell(const ConvShape& s) {
  constexpr int64_t kMostTapsPerTap = 16;
  return PhaseCount(s) <= kMaxTransposePhases &&
         TransposeTaps(s) <= kMostTapsPerTap * s.kernel_h * s.kernel_w;
}

Result<std::vector<TransposeCell>> TransposeCells(const ConvShape& s) {
  if (PhaseCount(s) > kMaxTransposePhases) {
    return Unsupported("strides of %d and %d; their product must be at most %zu", s.stride_h,
                       s.stride_w, kMaxTransposePhases);
  }
  std::vector<TransposeCell> cells;
  const auto columns = SplitTransposeConv({s.output_w, s.kernel_w, s.stride_w, s.pad_left});
  for (const TransposePhase& row :
       SplitTransposeConv({s.output_h, s.kernel_h, s.stride_h, s.pad_top})) {
    for (const TransposePhase& column : columns) {
      cells.push_back({row, column, PhaseShape(s, row, column)});
    }
  }
  return cells;
}

Result<Buffer> TransposeCellWeights(const ConvShape& s, const TransposeCell& cell,
                                    const TransposeConvFormat& format, const uint8_t* weights) {
  const TransposePhase& row = cell.row;
  const TransposePhase& column = cell.column;
  const size_t cell_bytes = static_cast<size_t>(s.input_c) * format.weight_bytes;
  const size_t cells = static_cast<size_t>(s.output_c) * static_cast<size_t>(row.taps) *
                       static_cast<size_t>(column.taps);
  ATOLL_ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(cells * cell_bytes));
  uint8_t* target = buffer.data();
  for (int64_t o = 0; o < s.output_c; ++o) {
    for (int32_t u = row.taps; u-- > 0;) {
      const int64_t ky = row.first_tap + int64_t{u} * s.stride_h;
      for (int32_t v = column.taps; v-- > 0; target += cell_bytes) {
        const int64_t kx = column.first_tap + int64_t{v} * s.stride_w;
        if (ky >= s.kernel_h || kx >= s.kernel_w) {
          std::memset(target, format.zero_weight, cell_bytes);
          continue;
        }
        const size_t tap = static_cast<size_t>((o * s.kernel_h + ky) * s.kernel_w + kx);
        std::memcpy(target, weights + tap * cell_bytes, cell_bytes);
      }
    }
  }
  return buffer;
}

void InterleaveTransposeCell(const ConvShape& s, const TransposeCell& cell, size_t pixel_bytes,
                             const uint8_t* source, uint8_t* output, ThreadPool* pool) {
  const size_t step = pixel_bytes * static_cast<size_t>(s.stride_w);
  const int64_t lines = int64_t{s.batch} * cell.row.count;
  const int threads = pool == nullptr ? 1 : pool->threads();
  ParallelFor(pool, threads, [&](int task, int) {
    for (int64_t line = lines * task / threads; line < lines * (task + 1) / threads; ++line) {
      const int64_t y = cell.row.first + line % cell.row.count * s.stride_h;
      const int64_t row = line / cell.row.count * s.output_h + y;
      const uint8_t* from = source + static_cast<size_t>(line * cell.column.count) * pixel_bytes;
      uint8_t* to =
          output + static_cast<size_t>(row * s.output_w + cell.column.first) * pixel_bytes;
      for (int32_t x = 0; x < cell.column.count; ++x, from += pixel_bytes, to += step) {
        std::memcpy(to, from, pixel_bytes);
      }
    }
  });
}

}  // namespace atollrt
