// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/gemm/gemm.h"

#include "runtime/kernels/cpu_features.h"

namespace atollrt {

const GemmKernel& ChooseGemm(uint32_t features) {
#define ATOLL_GEMM_KERNEL(name, needed) \
  if (Supports(features, needed)) return name;
#include "runtime/kernels/gemm/kernels.inc"
#undef ATOLL_GEMM_KERNEL
  return GemmPlain;
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

uint32_t Dot(const uint8_t* row, const RhsPanel& panel, int64_t width, int64_t column) {
  const int8_t* rhs = reinterpret_cast<const int8_t*>(panel.weights) + column * kGroup;
  uint32_t sum = 0;  // of many groups: may wrap
  for (int64_t s = 0; s < panel.segment_count; ++s) {
    const int16_t* lhs = reinterpret_cast<const int16_t*>(row + panel.segments[s].lhs_offset);
    for (int64_t g = 0; g < panel.segments[s].groups; ++g, lhs += kGroup, rhs += width * kGroup) {
      int32_t group = 0;
      for (int32_t i = 0; i < kGroup; ++i) group += lhs[i] * rhs[i];
      sum += static_cast<uint32_t>(group);
    }
  }
  return sum;
}

void RunLine(const GemmArgs& args, const uint8_t* lhs, uint8_t* output) {
  for (int32_t column = args.first_column; column < args.end_column; ++column) {
    const int32_t panel = column / kPanelColumns;
    const int64_t width = args.columns->count - panel * kPanelColumns > 1 ? kPanelColumns : 1;
    for (int32_t r = 0; r < args.rows; ++r) {
      const uint32_t dot =
          Dot(lhs + r * args.lhs_stride, args.panels[panel], width, column - panel * kPanelColumns);
      const int32_t accumulator =
          static_cast<int32_t>(dot + static_cast<uint32_t>(args.columns->bias[column]));
      RequantizePlain(*args.columns, {.accumulators = &accumulator,
                                      .accumulator_stride = 1,
                                      .rows = 1,
                                      .first = column,
                                      .count = 1,
                                      .output = output + r * args.output_stride + column,
                                      .output_stride = args.output_stride});
    }
  }
}

void Run(const GemmArgs& args) {
  for (int32_t line = 0; line < args.lines; ++line) {
    RunLine(args, args.lhs + line * args.lhs_line_stride,
            args.output + line * args.output_line_stride);
  }
}

}  // namespace

const GemmKernel GemmPlain = {
    .name = "GemmPlain",
    .tile_rows = 4,
    .panel_columns = kPanelColumns,
    .k_group = kGroup,
    .lhs_element_bytes = 2,
    .copy_lhs = CopyLhs,
    .run = Run,
};

}  // namespace atollrt
