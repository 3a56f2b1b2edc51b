// SPDX-License-Identifier: Apache-2.0
#include "delegate/lowering.h"

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

constexpr DeviceOp kDeviceOps[] = {
#define ATOLL_DEVICE_OP(NAME, effort, Lower) {OpType::k##NAME, DeviceEffort::effort, Lower},
#include "delegate/device_ops.inc"
#undef ATOLL_DEVICE_OP
};

uint32_t RowAddress(const TensorPlace& place, const Tensor& tensor, int32_t row) {
  return place.address + static_cast<uint32_t>((row - place.rows.begin) * RowBytes(tensor));
}

}  // namespace

bool IsImage(const Tensor& tensor) { return tensor.shape.size() == 4 && tensor.shape[0] == 1; }

int32_t RowCount(const Tensor& tensor) { return IsImage(tensor) ? tensor.shape[1] : 1; }

int64_t RowBytes(const Tensor& tensor) {
  const int32_t rows = RowCount(tensor);
  return rows == 0 ? 0 : tensor.byte_size() / rows;
}

int64_t NodeLowering::scratch_bytes(int32_t) const { return 0; }

RowRange NodeLowering::InputRows(size_t, RowRange output) const { return output; }

std::vector<uint8_t> NodeLowering::PartParameters(int32_t, int32_t) const { return parameters_; }

int64_t NodeLowering::PartParameterBytes(int32_t, int32_t) const {
  return static_cast<int64_t>(parameters_.size());
}

int64_t NodeLowering::PartScratchBytes(int32_t, int32_t) const {
  return scratch_bytes(RowCount(output()));
}

void NodeLowering::EmitPart(const OperandPlaces& place, int32_t, int32_t,
                            std::vector<Instruction>* program) const {
  Emit(place, AllRows(output()), program);
}

uint32_t NodeLowering::AppendAligned(std::span<const uint8_t> bytes,
                                     std::vector<uint8_t>* parameters) {
  parameters->resize(AlignUp(parameters->size(), kOnChipAlignment));
  const size_t offset = parameters->size();
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
