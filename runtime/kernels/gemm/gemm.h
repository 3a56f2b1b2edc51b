// SPDX-License-Identifier: Apache-2.0
//
// The matrix product under every convolution: bytes in, int32 sums, requantized bytes out.
//
//   out[r][c] = Requantize(bias[c] + sum over k of lhs[r][k] * rhs[k][c])
//
// A row of lhs belongs to an output pixel: the activations under its filter, in segments, one per
// row of the filter. Rows of neighbouring pixels overlap in memory; nothing is gathered. Where
// activations are bytes that the kernel can multiply as they are, lhs is the input itself; else,
// and where a filter hangs over the edge of the image, it is a small block that CopyLhs has filled
// (conv_blocks.h). rhs are weights, packed once (packed_rhs.h). Sums are exact modulo 2^32, and
// become bytes tile by tile.
//
// Zero points never reach the inner loop. With x' = x + lhs_offset the byte that is multiplied and
// zx' the zero point moved alike, sum (x - zx)(w - zw) = sum x' (w - zw) - zx' sum (w - zw), the
// last term being part of the bias. Weights less their zero point may need nine bits; what does not
// fit a byte is multiplied in a segment of its own.
//
// All functions are thread-safe. ISA files include this header, and so must not call inline
// functions that it, or what it includes, defines for all: the linker might keep their copy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/quantization/quantization.h"

namespace atollrt {

// Bytes that CopyLhs may write past the end of what it was asked to, and that row strides and
// buffers must therefore leave.
inline constexpr int64_t kLhsSlack = 64;

// Copies `rows` runs of `count` activations into a lhs block, converting them to lhs elements.
// Targets may be overwritten by up to kLhsSlack bytes after each run with anything: write runs
// that are neighbours from left to right.
struct CopyLhsArgs {
  const uint8_t* source = nullptr;  // run r starts at source + r * source_stride
  int64_t source_stride = 0;
  const uint8_t* source_end = nullptr;  // nothing at or past this is read
  uint8_t* target = nullptr;            // run r goes to target + r * target_stride (bytes)
  int64_t target_stride = 0;
  int64_t count = 0;
  int32_t rows = 0;
  ByteType type = ByteType::kInt8;
};

// `groups` times k_group neighbouring elements of lhs that meet the next weights of a panel.
struct RhsSegment {
  int64_t lhs_offset = 0;  // bytes from the row's first element
  int64_t groups = 0;
};

// The weights of panel_columns neighbouring columns, one k group after the other, or of half as
// many, if that is all there is.
struct RhsPanel {
  const uint8_t* weights = nullptr;  // aligned to 64 bytes
  const RhsSegment* segments = nullptr;
  int64_t segment_count = 0;  // at least 1
};

// Rows come in lines: those of one line are lhs_stride bytes apart, lines lhs_line_stride. Each
// segment of each row may be read to the end of its last group.
struct GemmArgs {
  const uint8_t* lhs = nullptr;  // line 0, row 0
  int64_t lhs_stride = 0;
  int64_t lhs_line_stride = 0;
  int32_t rows = 0;  // of a line
  int32_t lines = 1;
  const RhsPanel* panels = nullptr;  // of all columns
  // Columns [first_column, end_column) are computed; the first is a multiple of panel_columns, the
  // end one too or the number of columns.
  int32_t first_column = 0;
  int32_t end_column = 0;
  const OutputColumns* columns = nullptr;
  uint8_t* output = nullptr;  // of line 0, row 0, column 0
  int64_t output_stride = 0;  // bytes between rows
  int64_t output_line_stride = 0;
};

struct GemmKernel {
  const char* name;
  // Register tile. Rows are computed in tiles of at most this many; columns are packed in panels
  // of panel_columns, the last one in half a panel if that holds it.
  int32_t tile_rows;
  int32_t panel_columns;
  // Neighbouring values of k that one instruction multiplies: segments are padded to a multiple,
  // and weights are packed as [panel][k / k_group][column][k_group].
  int32_t k_group;
  int32_t lhs_element_bytes;
  // Whether weights are packed within [-127, 127], where -128 would overflow: it is then one of
  // those that do not fit.
  bool narrow_weights = false;
  // Not nullptr where sums of 16 bits are in between: of two neighbouring k groups of a segment,
  // the first of them at an even place, or of the last one alone. Bytes 2 i and 2 i + 1 of both
  // make one, whose positive weights may sum to at most 128, and its negative ones to at least
  // -128; what is more does not fit. Of `count` weights of a column in one segment, which are
  // unsigned bytes after an exclusive or with `flip` and then have the zero point `zero`, this adds
  // the bits of `mark` to wide[i] where those of the i-th two groups do not fit, or one of them is
  // +128.
  void (*mark_wide)(const uint8_t* weights, int64_t count, uint8_t flip, uint8_t zero,
                    uint64_t mark, uint64_t* wide) = nullptr;
  bool sums_words() const { return mark_wide != nullptr; }
  // Faster for the same CPUs where most weights fit it; nullptr: there is none.
  const GemmKernel* for_small_weights = nullptr;
  // Added to activations of either type by copy_lhs. Where it is 0 and elements are bytes,
  // activations can be multiplied as they are.
  int32_t int8_lhs_offset = 0;
  int32_t uint8_lhs_offset = 0;

  // What the output stage wants of columns besides; nullptr if nothing.
  FitFloatColumn fit = nullptr;

  void (*copy_lhs)(const CopyLhsArgs& args);
  // Writes exactly lines * rows * (end_column - first_column) bytes.
  void (*run)(const GemmArgs& args);
};

#define ATOLL_GEMM_KERNEL(name, features) extern const GemmKernel name;
#include "runtime/kernels/gemm/kernels.inc"
#undef ATOLL_GEMM_KERNEL

#if defined(__x86_64__)
extern const GemmKernel GemmAvx2Bytes;  // GemmAvx2's for small weights
#endif

// The fastest kernel for a CPU with `features` (a CpuFeatures).
const GemmKernel& ChooseGemm(uint32_t features);

}  // namespace atollrt
