// SPDX-License-Identifier: Apache-2.0
//
// GemmAvx512Vnni: VPDPBUSD multiplies unsigned by signed bytes, four at a time, and adds the sum
// of the four products, at most 4 * 255 * 128, to an int32 that wraps: exact. int8 activations are
// therefore moved by 128; weights are int8 already (gemm.h).
//
// The register tile is 14 x 32: 28 sums, two vectors of weights, one broadcast of activations. 28
// instructions hide their own latency many times over and cost 16 loads. 14 because the sides of
// feature maps are multiples of 7 more often than not. The sums become bytes where they are, in
// registers.
#include "runtime/kernels/gemm/gemm.h"
#include "runtime/kernels/quantization/store_sums.h"

namespace atollrt {
namespace {

constexpr int32_t kTileRows = 14;
constexpr int32_t kPanelColumns = 32;
constexpr int32_t kGroup = 4;

__mmask64 LowBytes(int64_t count) {
  return count >= 64 ? ~__mmask64{0} : (__mmask64{1} << count) - 1;
}

void CopyLhs(const CopyLhsArgs& args) {
  const __m512i flip = _mm512_set1_epi8(args.type == ByteType::kInt8 ? -128 : 0);
  const __mmask64 rest = LowBytes(args.count & 63);
  for (int32_t r = 0; r < args.rows; ++r) {
    const uint8_t* source = args.source + r * args.source_stride;
    uint8_t* target = args.target + r * args.target_stride;
    int64_t i = 0;
    for (; i + 64 <= args.count; i += 64) {
      _mm512_storeu_si512(target + i, _mm512_xor_si512(_mm512_loadu_si512(source + i), flip));
    }
    if (i < args.count) {
      const __m512i last = _mm512_maskz_loadu_epi8(rest, source + i);
      _mm512_storeu_si512(target + i, _mm512_xor_si512(last, flip));
    }
  }
}

__m512i Broadcast4(const uint8_t* from) {
  int32_t four;
  __builtin_memcpy(&four, from, sizeof(four));
  return _mm512_set1_epi32(four);
}

// What all tiles of a panel have in common.
struct PanelArgs {
  const RhsPanel* panel;
  const OutputColumns* columns;
  int32_t column;
  int32_t width;  // columns to write
  // How each vector becomes bytes in registers, and its scale; by way of memory if one of them has
  // a form that is not for that, which is rare.
  bool by_memory;
  Epilogue epilogue[2];
  Scale scale[2];
  Bytes to_bytes;
};

struct TileArgs {
  const uint8_t* lhs;
  int64_t lhs_stride;
  uint8_t* output;
  int64_t output_stride;
  // Weights this far ahead are fetched into the caches: the next panel's, by a panel's first tile.
  int64_t prefetch;
};

// kRows times 32 columns, as bytes, two rows at a time; an odd last row is done twice.
template <int kRows>
inline void StoreWide(__m512i (&v)[kRows][2], const PanelArgs& panel, const TileArgs& args) {
  const __mmask32 mask = static_cast<__mmask32>(LowBytes(panel.width));
#pragma GCC unroll 16
  for (int r = 0; r < kRows; r += 2) {
    const int next = r + 1 < kRows ? r + 1 : r;
    const __m512i bytes = ToBytes(v[r][0], v[r][1], v[next][0], v[next][1], panel.to_bytes);
    uint8_t* const output0 = args.output + r * args.output_stride;
    uint8_t* const output1 = args.output + next * args.output_stride;
    const __m256i bytes0 = _mm512_castsi512_si256(bytes);
    const __m256i bytes1 = _mm512_extracti64x4_epi64(bytes, 1);
    if (panel.width == 32) [[likely]] {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(output0), bytes0);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(output1), bytes1);
    } else {
      _mm256_mask_storeu_epi8(output0, mask, bytes0);
      _mm256_mask_storeu_epi8(output1, mask, bytes1);
    }
  }
}

// kRows times 16 columns, four rows at a time; the last ones may be done more than once.
template <int kRows>
inline void StoreNarrow(__m512i (&v)[kRows][1], const PanelArgs& panel, const TileArgs& args) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; r += 4) {
    const int r1 = r + 1 < kRows ? r + 1 : r, r2 = r + 2 < kRows ? r + 2 : r,
              r3 = r + 3 < kRows ? r + 3 : r;
    uint8_t* const to[4] = {
        args.output + r * args.output_stride, args.output + r1 * args.output_stride,
        args.output + r2 * args.output_stride, args.output + r3 * args.output_stride};
    StoreQuarters(ToBytes(v[r][0], v[r1][0], v[r2][0], v[r3][0], panel.to_bytes),
                  LowBytes16(panel.width), to);
  }
}

// By way of memory, [rows][vectors] Vectors: each vector as its columns need.
void StoreFromMemory(const int32_t* sums, int rows, int vectors, const PanelArgs& panel,
                     const TileArgs& args) {
  for (int v = 0; v < vectors; ++v) {
    const int32_t left = panel.width - kLanes * v;
    StoreVectors<1>(*panel.columns, {.accumulators = sums + kLanes * v,
                                     .accumulator_stride = kLanes * vectors,
                                     .rows = rows,
                                     .first = panel.column + kLanes * v,
                                     .count = left < kLanes ? left : kLanes,
                                     .output = args.output + kLanes * v,
                                     .output_stride = args.output_stride});
  }
}

template <Epilogue kEpilogue, int kRows, int kVectors>
[[gnu::always_inline]] inline void RescaleRows(const Scale& scale, int v,
                                               __m512i (&sums)[kRows][kVectors]) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) sums[r][v] = Rescale<kEpilogue>(sums[r][v], scale);
}

// Few sums are split over several chains, since one chain advances only once per latency of
// VPDPBUSD.
constexpr int ChainsOf(int sums) { return sums >= 6 ? 1 : (sums >= 3 ? 2 : 4); }
template <int kRows, int kVectors>
using Chains = __m512i[ChainsOf(kRows * kVectors)][kRows][kVectors];

// The first chain begins with the bias.
template <int kRows, int kVectors>
[[gnu::always_inline]] inline void Start(const int32_t* bias, Chains<kRows, kVectors>& c) {
  constexpr int kChains = ChainsOf(kRows * kVectors);
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) {
    const __m512i first = _mm512_load_si512(bias + 16 * v);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) c[0][r][v] = first;
  }
#pragma GCC unroll 16
  for (int chain = 1; chain < kChains; ++chain) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) c[chain][r][v] = _mm512_setzero_si512();
    }
  }
}

// The products of all segments.
template <int kRows, int kVectors>
[[gnu::always_inline]] inline void AddProducts(const PanelArgs& panel, const TileArgs& args,
                                               Chains<kRows, kVectors>& c) {
  constexpr int kChains = ChainsOf(kRows * kVectors);
  // x86 addresses base + {0, 1, 2} * stride for free, so a third of the row pointers suffices.
  constexpr int kPointers = (kRows + 2) / 3;
  const int64_t stride = args.lhs_stride;
  const int64_t prefetch = args.prefetch;
  const uint8_t* rhs = panel.panel->weights;
  const RhsSegment* segment = panel.panel->segments;
  const RhsSegment* const end = segment + panel.panel->segment_count;
  do {
    const uint8_t* lhs[kPointers];
#pragma GCC unroll 16
    for (int i = 0; i < kPointers; ++i) lhs[i] = args.lhs + segment->lhs_offset + 3 * i * stride;
    const auto step = [&](int chain) __attribute__((always_inline)) {
      __m512i b[kVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) b[v] = _mm512_load_si512(rhs + 64 * v);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) _mm_prefetch(rhs + prefetch + 64 * v, _MM_HINT_T0);
      rhs += 64 * kVectors;
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const __m512i a = Broadcast4(lhs[r / 3] + (r % 3) * stride);
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) {
          c[chain][r][v] = _mm512_dpbusd_epi32(c[chain][r][v], a, b[v]);
        }
      }
#pragma GCC unroll 16
      for (int i = 0; i < kPointers; ++i) lhs[i] += kGroup;
    };
    int64_t group = 0;
    for (; group + kChains <= segment->groups; group += kChains) {
#pragma GCC unroll 16
      for (int chain = 0; chain < kChains; ++chain) step(chain);
    }
    if constexpr (kChains > 1) {
      for (; group < segment->groups; ++group) step(0);
    }
  } while (++segment != end);
}

// The chains' sums to bytes.
template <int kRows, int kVectors>
[[gnu::always_inline]] inline void Store(const PanelArgs& panel, const TileArgs& args,
                                         const Chains<kRows, kVectors>& c) {
  constexpr int kChains = ChainsOf(kRows * kVectors);
  __m512i sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = c[0][r][v];
      asm volatile("" : "+v"(sums[r][v]));
#pragma GCC unroll 16
      for (int chain = 1; chain < kChains; ++chain) {
        sums[r][v] = _mm512_add_epi32(sums[r][v], c[chain][r][v]);
      }
    }
  }
  if (panel.by_memory) {
    alignas(64) int32_t memory[16 * kRows * kVectors];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        _mm512_store_si512(memory + 16 * (kVectors * r + v), sums[r][v]);
      }
    }
    StoreFromMemory(memory, kRows, kVectors, panel, args);
    return;
  }
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) {
    if (panel.epilogue[v] == Epilogue::kFloatPositive) {
      RescaleRows<Epilogue::kFloatPositive>(panel.scale[v], v, sums);
    } else if (panel.epilogue[v] == Epilogue::kFloat) {
      RescaleRows<Epilogue::kFloat>(panel.scale[v], v, sums);
    } else {
      RescaleRows<Epilogue::kFixedPoint>(panel.scale[v], v, sums);
    }
  }
  if constexpr (kVectors == 2) {
    StoreWide<kRows>(sums, panel, args);
  } else {
    StoreNarrow<kRows>(sums, panel, args);
  }
}

template <int kRows, int kVectors>
void Tile(const PanelArgs& panel, const TileArgs& args) {
  Chains<kRows, kVectors> c;
  Start<kRows, kVectors>(panel.columns->bias + panel.column, c);
  AddProducts<kRows, kVectors>(panel, args, c);
  Store<kRows, kVectors>(panel, args, c);
}

using TileFn = void (*)(const PanelArgs& panel, const TileArgs& args);
template <int kVectors>
constexpr TileFn kTiles[kTileRows + 1] = {nullptr,
                                          Tile<1, kVectors>,
                                          Tile<2, kVectors>,
                                          Tile<3, kVectors>,
                                          Tile<4, kVectors>,
                                          Tile<5, kVectors>,
                                          Tile<6, kVectors>,
                                          Tile<7, kVectors>,
                                          Tile<8, kVectors>,
                                          nullptr,
                                          Tile<10, kVectors>,
                                          nullptr,
                                          Tile<12, kVectors>,
                                          nullptr,
                                          Tile<14, kVectors>};

// Of the next tile of `rows` rows: tiles are of equal height, as far as possible, as a last tile of
// one row would cost like four. Where a height has no tile, the first ones take a row more, and the
// last one is cut in two.
int32_t NextTileRows(int32_t rows) {
  const int32_t tiles = (rows + kTileRows - 1) / kTileRows;
  const int32_t equal = (rows + tiles - 1) / tiles;
  if (kTiles<1>[equal] != nullptr) return equal;
  return tiles > 1 ? equal + 1 : (equal + 1) / 2;
}

void SetEpilogues(int vectors, PanelArgs* panel) {
  panel->by_memory = false;
  for (int v = 0; v < vectors; ++v) {
    const int32_t column = panel->column + kLanes * v;
    panel->epilogue[v] = EpilogueOf<1>(*panel->columns, column);
    switch (panel->epilogue[v]) {
      case Epilogue::kFloatPositive:
      case Epilogue::kFloat:
        panel->scale[v] = LoadScale<Epilogue::kFloat>(*panel->columns, column);
        break;
      case Epilogue::kFixedPoint:
        panel->scale[v] = LoadScale<Epilogue::kFixedPoint>(*panel->columns, column);
        break;
      default:
        panel->by_memory = true;
    }
  }
}

void Run(const GemmArgs& args) {
  PanelArgs panel;
  panel.columns = args.columns;
  panel.to_bytes = LoadBytes(args.columns->zero_point, args.columns->clamp);
  for (int32_t column = args.first_column; column < args.end_column; column += kPanelColumns) {
    const int32_t left = args.end_column - column;
    panel.panel = args.panels + column / kPanelColumns;
    panel.column = column;
    panel.width = left < kPanelColumns ? left : kPanelColumns;
    const int vectors = panel.width > 16 ? 2 : 1;
    SetEpilogues(vectors, &panel);
    const TileFn* const tile_of = vectors == 2 ? kTiles<2> : kTiles<1>;
    int64_t prefetch = column + kPanelColumns < args.end_column
                           ? panel.panel[1].weights - panel.panel->weights
                           : 0;
    for (int32_t line = 0; line < args.lines; ++line) {
      TileArgs tile_args = {args.lhs + line * args.lhs_line_stride, args.lhs_stride,
                            args.output + line * args.output_line_stride + column,
                            args.output_stride, prefetch};
      for (int32_t row = 0; row < args.rows;) {
        const int32_t rows = NextTileRows(args.rows - row);
        tile_of[rows](panel, tile_args);
        tile_args.lhs += rows * args.lhs_stride;
        tile_args.output += rows * args.output_stride;
        tile_args.prefetch = prefetch = 0;
        row += rows;
      }
    }
  }
}

}  // namespace

const GemmKernel GemmAvx512Vnni = {
    .name = "GemmAvx512Vnni",
    .tile_rows = kTileRows,
    .panel_columns = kPanelColumns,
    .k_group = kGroup,
    .lhs_element_bytes = 1,
    .int8_lhs_offset = 128,
    .fit = FitFloatColumnAvx2,
    .copy_lhs = CopyLhs,
    .run = Run,
};

}  // namespace atollrt
