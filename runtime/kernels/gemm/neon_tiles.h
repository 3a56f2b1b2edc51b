// SPDX-License-Identifier: Apache-2.0
//
// What the matrix products on NEON have in common, for inclusion by their ISA files only: copying
// activations, walking over tiles, and the output stage. Both operands are signed bytes, so int8
// activations are read as they are and uint8 ones moved by -128.
//
// `Tiles` is a class with
//   kRows, kColumns        the register tile; kColumns / 2 columns fill a last panel
//   Find(rows, columns)    the TileFn for `rows` rows of a panel of kColumns or kColumns / 2
//   columns
#pragma once

#include <arm_neon.h>

#include "runtime/kernels/gemm/gemm.h"
#include "runtime/kernels/quantization/requantize_neon.h"

namespace atollrt {
namespace {

inline void CopyLhs(const CopyLhsArgs& args) {
  const uint8x16_t flip = vdupq_n_u8(args.type == ByteType::kInt8 ? 0 : 0x80);
  for (int32_t r = 0; r < args.rows; ++r) {
    const uint8_t* source = args.source + r * args.source_stride;
    uint8_t* target = args.target + r * args.target_stride;
    for (int64_t i = 0; i < args.count; i += 16) {
      vst1q_u8(target + i, veorq_u8(Load16Before(source + i, args.source_end), flip));
    }
  }
}

struct TileArgs {
  const uint8_t* lhs;
  int64_t lhs_stride;
  const RhsPanel* panel;
  const int32_t* bias;
};

// Writes the sums of a tile, bias included: [rows][columns], rows of at least 4.
using TileFn = void (*)(const TileArgs& args, int32_t* sums);

inline const int8_t* Signed(const uint8_t* bytes) { return reinterpret_cast<const int8_t*>(bytes); }

struct StoreArgs {
  const OutputColumns* columns;
  int32_t column;
  int32_t width;  // columns to write
  int32_t rows;
  uint8_t* output;
  int64_t output_stride;
};

// sums[rows][4 * kVectors] to bytes, 16 at a time; the last rows may be done more than once.
template <Epilogue kEpilogue, int kVectors>
void StoreRows(const StoreArgs& args, const int32_t* sums) {
  constexpr int kRowsAtOnce = 4 / kVectors;
  constexpr int kWidth = 4 * kVectors;
  Scale128 scale[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    scale[v] = LoadScale<kEpilogue>(*args.columns, args.column + 4 * v);
  }
  const Bytes128 to_bytes = LoadBytes(args.columns->zero_point, args.columns->clamp);
  for (int32_t r = 0; r < args.rows; r += kRowsAtOnce) {
    int32x4_t value[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const int32_t row = r + i / kVectors < args.rows ? r + i / kVectors : args.rows - 1;
      value[i] = Rescale<kEpilogue>(vld1q_s32(sums + kWidth * row + 4 * (i % kVectors)),
                                    scale[i % kVectors]);
    }
    alignas(16) uint8_t bytes[16];
    vst1q_u8(bytes, ToBytes(value[0], value[1], value[2], value[3], to_bytes));
    for (int i = 0; i < kRowsAtOnce && r + i < args.rows; ++i) {
      uint8_t* output = args.output + (r + i) * args.output_stride;
      if (args.width == kWidth) {
        __builtin_memcpy(output, bytes + kWidth * i, kWidth);
      } else {
        for (int32_t c = 0; c < args.width; ++c) output[c] = bytes[kWidth * i + c];
      }
    }
  }
}

template <int kVectors>
void Store(const StoreArgs& args, const int32_t* sums) {
  const int32_t block = args.column / OutputColumns::kBlock;
  if (args.columns->wide_vectorizable[block] == 0) {
    RequantizePlain(*args.columns, {sums, 4 * kVectors, args.rows, args.column, args.width,
                                    args.output, args.output_stride});
    return;
  }
  if (args.columns->mode == RequantizeMode::kDouble) {
    StoreRows<Epilogue::kDouble, kVectors>(args, sums);
  } else if (args.columns->vectorizable[block] == 0) {
    StoreRows<Epilogue::kWide, kVectors>(args, sums);
  } else {
    StoreRows<Epilogue::kFixedPoint, kVectors>(args, sums);
  }
}

// One panel of one line.
template <typename Tiles>
void RunLine(const GemmArgs& args, int32_t line, int32_t column) {
  constexpr int kVectors = Tiles::kColumns / 4;
  constexpr int kHalfVectors = kVectors > 1 ? kVectors / 2 : 1;
  alignas(16) int32_t sums[Tiles::kRows * Tiles::kColumns];
  const uint8_t* const lhs = args.lhs + line * args.lhs_line_stride;
  uint8_t* const output = args.output + line * args.output_line_stride + column;
  const int32_t left = args.end_column - column;
  const int32_t width = left < Tiles::kColumns ? left : Tiles::kColumns;
  const bool half = width <= Tiles::kColumns / 2;
  const int32_t tiles = (args.rows + Tiles::kRows - 1) / Tiles::kRows;
  int32_t row = 0;
  for (int32_t tile = 0; tile < tiles; ++tile) {
    // Tiles of equal height, as far as possible.
    const int32_t rows = (args.rows - row + (tiles - tile) - 1) / (tiles - tile);
    Tiles::Find(rows, half ? Tiles::kColumns / 2 : Tiles::kColumns)(
        {lhs + row * args.lhs_stride, args.lhs_stride, args.panels + column / Tiles::kColumns,
         args.columns->bias + column},
        sums);
    (half ? Store<kHalfVectors> : Store<kVectors>)({args.columns, column, width, rows,
                                                    output + row * args.output_stride,
                                                    args.output_stride},
                                                   sums);
    row += rows;
  }
}

template <typename Tiles>
void Run(const GemmArgs& args) {
  for (int32_t column = args.first_column; column < args.end_column; column += Tiles::kColumns) {
    for (int32_t line = 0; line < args.lines; ++line) RunLine<Tiles>(args, line, column);
  }
}

template <typename Tiles>
constexpr GemmKernel NeonGemm(const char* name, int32_t k_group) {
  return {.name = name,
          .tile_rows = Tiles::kRows,
          .panel_columns = Tiles::kColumns,
          .k_group = k_group,
          .lhs_element_bytes = 1,
          .int8_lhs_offset = 0,
          .uint8_lhs_offset = -128,
          .copy_lhs = CopyLhs,
          .run = Run<Tiles>};
}

}  // namespace
}  // namespace atollrt
