// SPDX-License-Identifier: Apache-2.0
//
// The matrix product under every convolution: bytes in, int32 sums, requantized bytes out.
//
//   out[r][c] = Requantize(bias[c] + row_terms[r] + sum over k of lhs[r][k] * rhs[k][c])
//
// lhs are patches of activations, one row per output pixel, copied into a small block by the
// kernel's own CopyLhs; rhs are weights, packed once by PackRhs. Sums are exact modulo 2^32 and
// the output stage is fused, so an accumulator never leaves L1.
//
// Zero points never reach the inner loop. With x' = x + lhs_offset and w' = w - rhs offset the
// bytes that are multiplied, and zx', zw' the zero points moved alike,
//   sum (x - zx)(w - zw) = sum x' w' - zw' sum x' - zx' (sum w' - K zw'):
// the last term belongs to the bias, the middle one, where zw' != 0, to row_terms.
//
// All functions are thread-safe. ISA files include this header and no other, hence no inline
// functions here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/output_columns.h"
#include "runtime/kernels/quantization.h"

namespace atollrt {

// Bytes that CopyLhs may write past the end of what it was asked to, and that row strides and
// buffers must therefore leave.
inline constexpr int64_t kLhsSlack = 64;

// Copies `rows` runs of `count` activations into a lhs block, converting them to lhs elements.
// Targets may be overwritten by up to kLhsSlack bytes after each run with anything: write runs
// that are neighbours in a row from left to right.
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

// terms[r] = factor * (sum of the first `depth` elements of row r), modulo 2^32.
struct RowTermsArgs {
  const uint8_t* lhs = nullptr;
  int64_t lhs_stride = 0;  // bytes
  int32_t rows = 0;
  int64_t depth = 0;
  int32_t factor = 0;
  int32_t* terms = nullptr;
};

struct GemmArgs {
  const uint8_t* lhs = nullptr;  // written by CopyLhs; elements past the depth may be anything
  int64_t lhs_stride = 0;        // bytes; at least padded_depth elements
  const int32_t* row_terms = nullptr;  // [rows], or nullptr for zeros
  int32_t rows = 0;
  const uint8_t* rhs = nullptr;  // all columns, packed by PackRhs
  int64_t padded_depth = 0;      // PaddedDepth(kernel, K)
  // Columns [first_column, end_column) are computed; the first is a multiple of panel_columns, the
  // end one too or the number of columns.
  int32_t first_column = 0;
  int32_t end_column = 0;
  const OutputColumns* columns = nullptr;
  uint8_t* output = nullptr;  // [rows, output_stride], at row 0, column 0
  int64_t output_stride = 0;  // bytes
};

struct GemmKernel {
  const char* name;
  // Register tile. Rows are computed in tiles of at most this many; columns are packed in panels
  // of panel_columns, the last one in half a panel if that holds it.
  int32_t tile_rows;
  int32_t panel_columns;
  // Neighbouring values of k that one instruction multiplies: the depth is padded to a multiple,
  // and rhs is packed as [panel][k / k_group][column][k_group].
  int32_t k_group;
  int32_t lhs_element_bytes;
  int32_t int8_lhs_offset;  // added to int8 activations by copy_lhs

  void (*copy_lhs)(const CopyLhsArgs& args);
  void (*row_terms)(const RowTermsArgs& args);
  // Writes exactly rows * (end_column - first_column) bytes.
  void (*run)(const GemmArgs& args);
};

#define ATOLL_GEMM_KERNEL(name, features) extern const GemmKernel name;
#include "runtime/kernels/gemm/kernels.inc"
#undef ATOLL_GEMM_KERNEL

// The fastest kernel for a CPU with `features` (a CpuFeatures).
const GemmKernel& ChooseGemm(uint32_t features);

int64_t PaddedDepth(const GemmKernel& kernel, int64_t depth);

// Bytes of the packed form of [columns, depth] weights.
size_t PackedRhsBytes(const GemmKernel& kernel, int32_t columns, int64_t depth);

// Packs row-major weights [columns, depth]; uint8 ones become int8 by subtracting 128. The padding
// of depth and columns is zero. `packed` is PackedRhsBytes long.
void PackRhs(const GemmKernel& kernel, const uint8_t* weights, ByteType type, int32_t columns,
             int64_t depth, uint8_t* packed);

}  // namespace atollrt
