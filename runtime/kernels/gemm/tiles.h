// SPDX-License-Identifier: Apache-2.0
//
// What matrix products have in common that go from tile to tile of sums in memory, for inclusion by
// ISA files only: copying activations that stay bytes, walking over tiles, and the output stage.
//
// `Tiles` is a class with
//   kRows, kColumns            the register tile; kColumns / 2 columns fill a last panel
//   Tile<kRows, kColumns>(args, sums)  writes the sums of so many rows and columns, bias included:
//                              [rows][columns], or [rows][kLanes] where that is more
#pragma once

#include <utility>

#include "runtime/kernels/gemm/gemm.h"
#include "runtime/kernels/isa_bytes.h"
#include "runtime/kernels/quantization/requantize.h"

namespace atollrt {
namespace {

// Of bytes, of which those of type kFlipped are moved by 128.
template <ByteType kFlipped>
void CopyBytes(const CopyLhsArgs& args) {
  const uint8_t flip = args.type == kFlipped ? 0x80 : 0;
  for (int32_t r = 0; r < args.rows; ++r) {
    const uint8_t* source = args.source + r * args.source_stride;
    uint8_t* target = args.target + r * args.target_stride;
    for (int64_t i = 0; i < args.count; i += 16) {
      const Bytes16 bytes = Load16Before(source + i, args.source_end) ^ flip;
      __builtin_memcpy(target + i, &bytes, sizeof(bytes));
    }
  }
}

struct TileArgs {
  const uint8_t* lhs;
  int64_t lhs_stride;
  const RhsPanel* panel;
  const int32_t* bias;
};
using TileFn = void (*)(const TileArgs& args, int32_t* sums);

// By rows, less one.
template <int kRows>
struct TileFns {
  TileFn of[kRows];
};
template <typename Tiles, int kColumns>
constexpr TileFns<Tiles::kRows> kTiles = []<int... kRow>(std::integer_sequence<int, kRow...>) {
  return TileFns<Tiles::kRows>{{Tiles::template Tile<kRow + 1, kColumns>...}};
}
(std::make_integer_sequence<int, Tiles::kRows>());

struct StoreArgs {
  const OutputColumns* columns;
  int32_t column;
  int32_t width;  // columns to write
  int32_t rows;
  uint8_t* output;
  int64_t output_stride;
};

// sums[rows][kLanes * kVectors] to bytes, four vectors at a time; the last rows may be done more
// than once.
template <Epilogue kEpilogue, int kVectors>
void StoreRows(const StoreArgs& args, const int32_t* sums) {
  constexpr int kRowsAtOnce = 4 / kVectors;
  constexpr int kWidth = kLanes * kVectors;
  Scale scale[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    scale[v] = LoadScale<kEpilogue>(*args.columns, args.column + kLanes * v);
  }
  const Bytes to_bytes = LoadBytes(args.columns->zero_point, args.columns->clamp);
  for (int32_t r = 0; r < args.rows; r += kRowsAtOnce) {
    Vector value[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const int32_t row = r + i / kVectors < args.rows ? r + i / kVectors : args.rows - 1;
      value[i] = Rescale<kEpilogue>(LoadVector(sums + kWidth * row + kLanes * (i % kVectors)),
                                    scale[i % kVectors]);
    }
    alignas(ByteVector) uint8_t bytes[sizeof(ByteVector)];
    StoreBytes(bytes, ToBytes(value[0], value[1], value[2], value[3], to_bytes));
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
  if (args.columns->wide_vectorizable[args.column / OutputColumns::kBlock] == 0) {
    RequantizePlain(*args.columns, {sums, kLanes * kVectors, args.rows, args.column, args.width,
                                    args.output, args.output_stride});
    return;
  }
  WithEpilogue(*args.columns, args.column,
               [&]<Epilogue kEpilogue>() { StoreRows<kEpilogue, kVectors>(args, sums); });
}

// One panel of one line.
template <typename Tiles>
void RunLine(const GemmArgs& args, int32_t line, int32_t column) {
  constexpr int kHalf = Tiles::kColumns / 2;
  constexpr int kVectors = Tiles::kColumns / kLanes;
  constexpr int kHalfVectors = kVectors > 1 ? kVectors / 2 : 1;
  alignas(Vector) int32_t sums[Tiles::kRows * Tiles::kColumns];
  const uint8_t* const lhs = args.lhs + line * args.lhs_line_stride;
  uint8_t* const output = args.output + line * args.output_line_stride + column;
  const int32_t left = args.end_column - column;
  const int32_t width = left < Tiles::kColumns ? left : Tiles::kColumns;
  const bool is_half = width <= kHalf;
  const auto& tile_of = is_half ? kTiles<Tiles, kHalf> : kTiles<Tiles, Tiles::kColumns>;
  const int32_t tiles = (args.rows + Tiles::kRows - 1) / Tiles::kRows;
  int32_t row = 0;
  for (int32_t tile = 0; tile < tiles; ++tile) {
    // Tiles of equal height, as far as possible.
    const int32_t rows = (args.rows - row + (tiles - tile) - 1) / (tiles - tile);
    tile_of.of[rows - 1]({lhs + row * args.lhs_stride, args.lhs_stride,
                          args.panels + column / Tiles::kColumns, args.columns->bias + column},
                         sums);
    (is_half ? Store<kHalfVectors> : Store<kVectors>)({args.columns, column, width, rows,
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

}  // namespace
}  // namespace atollrt
