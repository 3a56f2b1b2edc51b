// SPDX-License-Identifier: Apache-2.0
#include "driver/emulator/vector_unit.h"

#include <cstring>

#include "runtime/kernels/mean.h"
#include "runtime/kernels/pool2d.h"
#include "runtime/kernels/quantization.h"

namespace atollrt {
namespace {

ByteType TypeOf(uint32_t flags) {
  return (flags & kFlagInputUnsigned) != 0 ? ByteType::kUInt8 : ByteType::kInt8;
}

// Checked operands fit.
int32_t Size(uint32_t operand) { return static_cast<int32_t>(operand); }

}  // namespace

void VectorUnit::Run(const AddInstruction& i, const Segments& segments) {
  PairParams params;
  params.type = TypeOf(i.flags);
  params.op = (i.flags & kFlagSubtract) != 0 ? PairOp::kSubtract : PairOp::kAdd;
  params.left_shift = static_cast<int32_t>(i.left_shift);
  params.input1_zero_point = i.input1_zero_point;
  params.input2_zero_point = i.input2_zero_point;
  params.output_zero_point = i.output_zero_point;
  params.input1 = {i.input1_multiplier, i.input1_exponent};
  params.input2 = {i.input2_multiplier, i.input2_exponent};
  params.output = {i.output_multiplier, i.output_exponent};
  params.clamp = {i.clamp_min, i.clamp_max};
  combine_pairs_(params, memory_.ReadAt(segments.Resolve(i.input1_address), i.count),
                 memory_.ReadAt(segments.Resolve(i.input2_address), i.count),
                 memory_.WriteAt(segments.Resolve(i.output_address), i.count), i.count);
}

void VectorUnit::Run(const Pool2DInstruction& i, const Segments& segments) {
  const Pool2DParams params{
      .batch = Size(i.batch),
      .input_h = Size(i.input_h),
      .input_w = Size(i.input_w),
      .channels = Size(i.channels),
      .output_h = Size(i.output_h),
      .output_w = Size(i.output_w),
      .kernel_h = Size(i.kernel_h),
      .kernel_w = Size(i.kernel_w),
      .stride_h = Size(i.stride_h),
      .stride_w = Size(i.stride_w),
      .pad_top = Size(i.pad_top),
      .pad_left = Size(i.pad_left),
      .type = TypeOf(i.flags),
      .kind = (i.flags & kFlagAverage) != 0 ? PoolKind::kAverage : PoolKind::kMax,
      .clamp = {i.clamp_min, i.clamp_max}};
  const uint64_t input_bytes = uint64_t{i.batch} * i.input_h * i.input_w * i.channels;
  const uint64_t output_bytes = uint64_t{i.batch} * i.output_h * i.output_w * i.channels;
  Pool2D(params, memory_.ReadAt(segments.Resolve(i.input_address), input_bytes),
         memory_.WriteAt(segments.Resolve(i.output_address), output_bytes));
}

void VectorUnit::Run(const MeanInstruction& i, const Segments& segments) {
  const MeanParams params{.batch = Size(i.batch),
                          .positions = Size(i.positions),
                          .channels = Size(i.channels),
                          .type = TypeOf(i.flags),
                          .input_zero_point = i.input_zero_point,
                          .multiplier = {i.multiplier, i.exponent},
                          .output_zero_point = i.output_zero_point,
                          .clamp = {i.clamp_min, i.clamp_max}};
  const uint64_t input_bytes = uint64_t{i.batch} * i.positions * i.channels;
  const uint64_t output_bytes = uint64_t{i.batch} * i.channels;
  Mean(params, memory_.ReadAt(segments.Resolve(i.input_address), input_bytes),
       memory_.WriteAt(segments.Resolve(i.output_address), output_bytes));
}

void VectorUnit::Run(const TableInstruction& i, const Segments& segments) {
  const uint8_t* table = memory_.ReadAt(segments.Resolve(i.table_address), 256);
  const uint8_t* input = memory_.ReadAt(segments.Resolve(i.input_address), i.count);
  uint8_t* output = memory_.WriteAt(segments.Resolve(i.output_address), i.count);
  for (uint32_t k = 0; k < i.count; ++k) output[k] = table[input[k]];
}

void VectorUnit::Run(const CopyInstruction& i, const Segments& segments) {
  const uint64_t from = segments.Resolve(i.input_address);
  const uint64_t to = segments.Resolve(i.output_address);
  const uint64_t span = uint64_t{i.count0 - 1} * i.output_stride0 +
                        uint64_t{i.count1 - 1} * i.output_stride1 +
                        uint64_t{i.count2 - 1} * i.output_stride2 + i.bytes;
  const uint8_t* input = memory_.ReadAt(from, i.bytes);
  uint8_t* output = memory_.WriteAt(to, span);
  for (uint64_t i0 = 0; i0 < i.count0; ++i0) {
    for (uint64_t i1 = 0; i1 < i.count1; ++i1) {
      for (uint64_t i2 = 0; i2 < i.count2; ++i2) {
        std::memcpy(output + i0 * i.output_stride0 + i1 * i.output_stride1 + i2 * i.output_stride2,
                    input + i0 * i.input_stride0 + i1 * i.input_stride1 + i2 * i.input_stride2,
                    i.bytes);
      }
    }
  }
}

void VectorUnit::Run(const FillInstruction& i, const Segments& segments) {
  std::memset(memory_.WriteAt(segments.Resolve(i.output_address), i.bytes),
              static_cast<int>(i.value), i.bytes);
}

}  // namespace atollrt
