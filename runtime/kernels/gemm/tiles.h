// SPDX-License-Identifier: Apache-2.0
//
// What matrix products have in common that go from tile to tile of sums in memory, for inclusion by
// ISA files only: copying activations that stay bytes, walking over tiles, and the output stage.
//
// `Tiles` is a class with
//   kRows, kColumns            the register tile; kColumns / 2 columns fill a last panel
//   RunLineInRegisters(args, line, column)  optional: computes the panel of the line and returns
//                              true, or does nothing and returns false
//   Tile<kRows, kColumns>(args, sums)  writes the sums of so many rows and columns, bias included:
//                              [rows][columns], or [rows][kLanes] where that is more
#pragma once

#include <utility>

#include "runtime/kernels/gemm/gemm.h"
#include "runtime/kernels/isa_bytes.h"
#include "runtime/kernels/quantization/store_sums.h"

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

// Rows whose sums wait, in a level 1 cache, to become bytes together.
template <typename Tiles>
#if defined(__AVX2__)
constexpr int kHeldRows = 4 * Tiles::kRows;
#else
constexpr int kHeldRows = Tiles::kRows;
#endif

// One panel of one line.
template <typename Tiles>
void RunLine(const GemmArgs& args, int32_t line, int32_t column) {
  if constexpr (requires { Tiles::RunLineInRegisters(args, line, column); }) {
    if (Tiles::RunLineInRegisters(args, line, column)) return;
  }
  constexpr int kHalf = Tiles::kColumns / 2;
  constexpr int kVectors = Tiles::kColumns / kLanes;
  constexpr int kHalfVectors = kVectors > 1 ? kVectors / 2 : 1;
  alignas(Vector) int32_t sums[kHeldRows<Tiles> * Tiles::kColumns];
  const uint8_t* const lhs = args.lhs + line * args.lhs_line_stride;
  uint8_t* const output = args.output + line * args.output_line_stride + column;
  const int32_t left = args.end_column - column;
  const int32_t width = left < Tiles::kColumns ? left : Tiles::kColumns;
  const bool is_half = width <= kHalf;
  const auto& tile_of = is_half ? kTiles<Tiles, kHalf> : kTiles<Tiles, Tiles::kColumns>;
  const int64_t stride = kLanes * (is_half ? kHalfVectors : kVectors);
  const int32_t tiles = (args.rows + Tiles::kRows - 1) / Tiles::kRows;
  int32_t row = 0;
  int32_t held = 0;  // rows before `row`
  for (int32_t tile = 0; tile < tiles; ++tile) {
    // Tiles of equal height, as far as possible.
    const int32_t rows = (args.rows - row + (tiles - tile) - 1) / (tiles - tile);
    tile_of.of[rows - 1]({lhs + row * args.lhs_stride, args.lhs_stride,
                          args.panels + column / Tiles::kColumns, args.columns->bias + column},
                         sums + held * stride);
    row += rows;
    held += rows;
    if (tile + 1 < tiles && held + Tiles::kRows <= kHeldRows<Tiles>) continue;
    const RequantizeArgs store = {sums,
                                  stride,
                                  held,
                                  column,
                                  width,
                                  output + (row - held) * args.output_stride,
                                  args.output_stride};
    if (is_half) {
      StoreSums<kHalfVectors>(*args.columns, store);
    } else {
      StoreSums<kVectors>(*args.columns, store);
    }
    held = 0;
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
