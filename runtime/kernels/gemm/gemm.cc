// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/gemm/gemm.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/bytes.h"
#include "runtime/kernels/cpu_features.h"

namespace atollrt {

const GemmKernel& ChooseGemm(uint32_t features) {
#define ATOLL_GEMM_KERNEL(name, needed) \
  if (Supports(features, needed)) return name;
#include "runtime/kernels/gemm/kernels.inc"
#undef ATOLL_GEMM_KERNEL
  return GemmPlain;
}

int64_t PaddedDepth(const GemmKernel& kernel, int64_t depth) {
  return DivideRoundingUp<int64_t>(depth, kernel.k_group) * kernel.k_group;
}

namespace {

// The columns that the panel starting at `column` is packed with.
int32_t PanelWidth(const GemmKernel& kernel, int32_t columns, int32_t column) {
  const int32_t half = kernel.panel_columns / 2;
  return columns - column > half ? kernel.panel_columns : half;
}

}  // namespace

size_t PackedRhsBytes(const GemmKernel& kernel, int32_t columns, int64_t depth) {
  int64_t width = 0;
  while (width < columns) width += PanelWidth(kernel, columns, static_cast<int32_t>(width));
  return static_cast<size_t>(width * PaddedDepth(kernel, depth));
}

void PackRhs(const GemmKernel& kernel, const uint8_t* weights, ByteType type, int32_t columns,
             int64_t depth, uint8_t* packed) {
  const uint8_t flip = type == ByteType::kUInt8 ? 0x80 : 0;  // w - 128 in eight bits
  const int64_t k_group = kernel.k_group;
  const int64_t padded_depth = PaddedDepth(kernel, depth);
  std::memset(packed, 0, PackedRhsBytes(kernel, columns, depth));
  for (int32_t first = 0; first < columns; first += kernel.panel_columns) {
    const int64_t width = PanelWidth(kernel, columns, first);
    const int32_t end = static_cast<int32_t>(std::min<int64_t>(columns, first + width));
    for (int32_t column = first; column < end; ++column) {
      const uint8_t* from = weights + column * depth;
      uint8_t* to = packed + (column - first) * k_group;
      for (int64_t k = 0; k < depth; k += k_group, to += width * k_group) {
        const int64_t group = std::min(k_group, depth - k);
        for (int64_t i = 0; i < group; ++i) to[i] = from[k + i] ^ flip;
      }
    }
    packed += width * padded_depth;
  }
}

// The plain kernel: lhs as int16, a dot product per output that compilers vectorize.
namespace {

constexpr int32_t kPanelColumns = 2;
constexpr int32_t kGroup = 16;

void CopyLhs(const CopyLhsArgs& args) {
  for (int32_t r = 0; r < args.rows; ++r) {
    const uint8_t* source = args.source + r * args.source_stride;
    int16_t* target = reinterpret_cast<int16_t*>(args.target + r * args.target_stride);
    for (int64_t i = 0; i < args.count; ++i) {
      target[i] = static_cast<int16_t>(ByteValue(source[i], args.type));
    }
  }
}

void RowTerms(const RowTermsArgs& args) {
  for (int32_t r = 0; r < args.rows; ++r) {
    const int16_t* row = reinterpret_cast<const int16_t*>(args.lhs + r * args.lhs_stride);
    uint32_t sum = 0;
    for (int64_t k = 0; k < args.depth; ++k) sum += static_cast<uint32_t>(int32_t{row[k]});
    args.terms[r] = static_cast<int32_t>(sum * static_cast<uint32_t>(args.factor));
  }
}

int32_t Dot(const int16_t* lhs, const int8_t* rhs, int64_t rhs_step, int64_t depth) {
  // Unsigned, so that the sum of many groups may wrap; within a group it cannot.
  uint32_t sum = 0;
  for (int64_t k = 0; k < depth; k += kGroup, lhs += kGroup, rhs += rhs_step) {
    int32_t group = 0;
    for (int32_t i = 0; i < kGroup; ++i) group += lhs[i] * rhs[i];
    sum += static_cast<uint32_t>(group);
  }
  return static_cast<int32_t>(sum);
}

void Run(const GemmArgs& args) {
  for (int32_t column = args.first_column; column < args.end_column; ++column) {
    const int32_t panel = column / kPanelColumns * kPanelColumns;
    const int64_t width = args.columns->count - panel > 1 ? kPanelColumns : 1;
    const int8_t* rhs = reinterpret_cast<const int8_t*>(args.rhs) + panel * args.padded_depth +
                        (column - panel) * kGroup;
    for (int32_t r = 0; r < args.rows; ++r) {
      uint32_t sum = static_cast<uint32_t>(args.columns->bias[column]);
      if (args.row_terms != nullptr) sum += static_cast<uint32_t>(args.row_terms[r]);
      const int16_t* lhs = reinterpret_cast<const int16_t*>(args.lhs + r * args.lhs_stride);
      sum += static_cast<uint32_t>(Dot(lhs, rhs, width * kGroup, args.padded_depth));
      const int32_t accumulator = static_cast<int32_t>(sum);
      RequantizePlain(*args.columns, {.accumulators = &accumulator,
                                      .accumulator_stride = 1,
                                      .rows = 1,
                                      .first = column,
                                      .count = 1,
                                      .output = args.output + r * args.output_stride + column,
                                      .output_stride = args.output_stride});
    }
  }
}

}  // namespace

const GemmKernel GemmPlain = {
    .name = "GemmPlain",
    .tile_rows = 4,
    .panel_columns = kPanelColumns,
    .k_group = kGroup,
    .lhs_element_bytes = 2,
    .int8_lhs_offset = 0,
    .copy_lhs = CopyLhs,
    .row_terms = RowTerms,
    .run = Run,
};

}  // namespace atollrt
