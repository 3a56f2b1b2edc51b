// SPDX-License-Identifier: Apache-2.0
#include "delegate/lowering.h"

#include <algorithm>
#include <iterator>

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

constexpr DeviceOp kDeviceOps[] = {
#define ATOLL_DEVICE_OP(NAME, effort, Lower) {OpType::k##NAME, DeviceEffort::effort, Lower},
#include "delegate/device_ops.inc"
#undef ATOLL_DEVICE_OP
};

uint32_t RowAddress(const TensorPlace& place, const Tensor& tensor, int32_t row) {
  return place.address + Word((row - place.rows.begin) * RowBytes(tensor));
}

}  // namespace

bool IsImage(const Tensor& tensor) { return tensor.shape.size() == 4 && tensor.shape[0] == 1; }

int32_t RowCount(const Tensor& tensor) { return IsImage(tensor) ? tensor.shape[1] : 1; }

int64_t RowBytes(const Tensor& tensor) {
  const int32_t rows = RowCount(tensor);
  return rows == 0 ? 0 : tensor.byte_size() / rows;
}

uint32_t NodeLowering::AppendAligned(std::span<const uint8_t> bytes,
                                     std::vector<uint8_t>* parameters) {
  parameters->resize(AlignUp(parameters->size(), kOnChipAlignment));
  const size_t offset = parameters->size();
  // Records behind weights shall not make twice as much of them.
  constexpr size_t kMostToSpare = 1 << 16;
  if (const size_t needed = offset + bytes.size(); needed > parameters->capacity()) {
    parameters->reserve(needed + std::min(needed, kMostToSpare));
  }
  parameters->insert(parameters->end(), bytes.begin(), bytes.end());
  return static_cast<uint32_t>(offset);
}

void NodeLowering::AddConstantInput(size_t position, std::span<const uint8_t> bytes) {
  constant_inputs_.emplace_back(position, AddParameters(bytes));
}

uint32_t NodeLowering::InputAddress(const OperandPlaces& place, size_t position,
                                    int32_t row) const {
  for (const auto& [constant, offset] : constant_inputs_) {
    if (constant != position) continue;
    const TensorPlace all{place.parameters + offset, AllRows(input(position))};
    return RowAddress(all, input(position), row);
  }
  return RowAddress(place.inputs[position], input(position), row);
}

uint32_t NodeLowering::OutputAddress(const OperandPlaces& place, size_t position,
                                     int32_t row) const {
  return RowAddress(place.outputs[position], output(position), row);
}

std::vector<uint8_t> ChannelRecords(RequantizeMode mode, std::span<const OutputChannel> channels) {
  std::vector<uint8_t> records(channels.size() * kChannelRecordBytes);
  uint8_t* record = records.data();
  for (const OutputChannel& channel : channels) {
    StoreLittleEndian<int32_t>(record, channel.bias);
    if (mode == RequantizeMode::kDouble) {
      StoreLittleEndian<double>(record + 8, channel.scale);
    } else {
      StoreLittleEndian<int32_t>(record + 4, channel.multiplier.value);
      StoreLittleEndian<int32_t>(record + 8, InstructionExponent(channel.multiplier.exponent));
    }
    record += kChannelRecordBytes;
  }
  return records;
}

CopyInstruction MakeCopy(uint32_t from, uint32_t to, int64_t bytes,
                         std::span<const StridedCopy::Loop> loops) {
  CopyInstruction i{.input_address = from, .output_address = to, .bytes = Word(bytes)};
  // Counts of 1 in front.
  StridedCopy::Loop all[kCopyLoops];
  std::copy_backward(loops.begin(), loops.end(), std::end(all));
  const auto set = [](const StridedCopy::Loop& loop, uint32_t& count, uint32_t& input_stride,
                      uint32_t& output_stride) {
    count = Word(loop.count);
    input_stride = Word(loop.in_stride);
    output_stride = Word(loop.out_stride);
  };
  set(all[0], i.count0, i.input_stride0, i.output_stride0);
  set(all[1], i.count1, i.input_stride1, i.output_stride1);
  set(all[2], i.count2, i.input_stride2, i.output_stride2);
  set(all[3], i.count3, i.input_stride3, i.output_stride3);
  set(all[4], i.count4, i.input_stride4, i.output_stride4);
  return i;
}

const DeviceOp* FindDeviceOp(OpType type) {
  for (const DeviceOp& op : kDeviceOps) {
    if (op.type == type) return &op;
  }
  return nullptr;
}

Lowering LowerNode(const Graph& graph, const Node& node) {
  const DeviceOp* op = FindDeviceOp(node.type);
  if (op == nullptr) return InternalError("%s: no instruction", Describe(graph, node).c_str());
  Lowering lowering = op->lower(graph, node);
  if (!lowering.ok()) return Status(lowering.status()).WithContext(Describe(graph, node));
  return lowering;
}

}  // namespace atollrt
