// SPDX-License-Identifier: Apache-2.0
//
// Lowering: one node of the graph -> its parameters on the device and the instructions that compute
// it (docs/isa.md), for any band of its output's rows. Other nodes, and where things lie, are the
// compiler's. device_ops.inc lists the operators.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "atoll/status.h"
#include "driver/isa/instruction.h"
#include "runtime/graph/graph.h"
#include "runtime/kernels/broadcast.h"
#include "runtime/kernels/quantization/quantization.h"
#include "runtime/kernels/reduce.h"
#include "runtime/kernels/strided_copy.h"
#include "runtime/ops/move_plan.h"

namespace atollrt {

// An operand, which has been checked, as instructions have it.
inline uint32_t Word(int64_t value) { return static_cast<uint32_t>(value); }

// ---- Rows ---------------------------------------------------------------------------------------

// Rows [begin, end) of a tensor. Those of an image [1, h, w, c] are its h rows; every other tensor
// counts as one row.
struct RowRange {
  int32_t begin = 0, end = 0;
  int32_t count() const { return end - begin; }
  bool operator==(const RowRange&) const = default;
};
bool IsImage(const Tensor& tensor);  // [1, h, w, c]
int32_t RowCount(const Tensor& tensor);
int64_t RowBytes(const Tensor& tensor);
inline RowRange AllRows(const Tensor& tensor) { return {0, RowCount(tensor)}; }

// ---- Places -------------------------------------------------------------------------------------

// Where some rows of a tensor lie on chip, contiguously.
struct TensorPlace {
  uint32_t address = 0;  // of row rows.begin
  RowRange rows;
};

// Where everything that a node touches lies. Inputs and outputs by position; places of absent and
// of constant inputs are not read.
struct OperandPlaces {
  std::vector<TensorPlace> inputs;
  std::vector<TensorPlace> outputs;
  uint32_t parameters = 0;  // of NodeLowering::parameters(), in either segment
  uint32_t scratch = 0;     // of NodeLowering::scratch_bytes(rows) bytes
};

// ---- Nodes --------------------------------------------------------------------------------------

// Immutable. Borrows the graph.
class NodeLowering {
 public:
  NodeLowering(const Graph& graph, const Node& node) : graph_(graph), node_(node) {}
  virtual ~NodeLowering() = default;

  // Weights, channel records, tables and constant operands in the order in which the device keeps
  // them. Offsets in it are multiples of kOnChipAlignment where that matters for speed.
  const std::vector<uint8_t>& parameters() const { return parameters_; }

  // On-chip memory that the instructions of a band of at most so many rows need for themselves.
  virtual int64_t scratch_bytes(int32_t) const { return 0; }

  // Whether Emit can compute any band of rows by itself. Then all outputs are images of equally
  // many rows. Inputs may be of other heights, and no images at all: those count as one row.
  virtual bool divides_into_rows() const { return false; }
  // The rows of the input at a position from which rows `output` are made; none if it is a
  // constant. Only if divides_into_rows(); the default is that rows correspond one to one.
  virtual RowRange InputRows(size_t, RowRange output) const { return output; }

  // How many output channels there are by which parameters and work can be divided: 1 if they
  // cannot be. What follows is for channels [begin, end) of them, the two numbers.
  virtual int32_t divisible_channels() const { return 1; }
  virtual std::vector<uint8_t> PartParameters(int32_t, int32_t) const { return parameters_; }
  virtual int64_t PartParameterBytes(int32_t, int32_t) const { return parameters_.size(); }
  virtual int64_t PartScratchBytes(int32_t, int32_t) const {
    return scratch_bytes(RowCount(output()));
  }
  // Appends the instructions that make these channels of all rows; the places are of whole tensors,
  // place.parameters of PartParameters and place.scratch of PartScratchBytes.
  virtual void EmitPart(const OperandPlaces& place, int32_t, int32_t,
                        std::vector<Instruction>* program) const {
    Emit(place, AllRows(output()), program);
  }

  // Appends the instructions that make rows `rows` of all outputs: AllRows if it does not divide.
  // The places hold at least the rows that are needed.
  virtual void Emit(const OperandPlaces& place, RowRange rows,
                    std::vector<Instruction>* program) const = 0;

 protected:
  // Appends to parameters(), aligned, and returns the offset.
  uint32_t AddParameters(std::span<const uint8_t> bytes) {
    return AppendAligned(bytes, &parameters_);
  }
  static uint32_t AppendAligned(std::span<const uint8_t> bytes, std::vector<uint8_t>* parameters);
  // Makes parameters of a constant input. `bytes` take the place of its own.
  void AddConstantInput(size_t position, std::span<const uint8_t> bytes);

  const Tensor& input(size_t position) const { return *graph_.Input(node_, position); }
  const Tensor& output(size_t position = 0) const { return graph_.Output(node_, position); }
  // On-chip address of row `row` of an input, which AddConstantInput has got if it is a constant,
  // or of an output.
  uint32_t InputAddress(const OperandPlaces& place, size_t position, int32_t row = 0) const;
  uint32_t OutputAddress(const OperandPlaces& place, size_t position, int32_t row = 0) const;
  // Elements, which are bytes, of a band of the output.
  uint32_t CountOf(RowRange rows) const { return Word(rows.count() * RowBytes(output())); }

  const Graph& graph_;
  const Node& node_;

 private:
  std::vector<uint8_t> parameters_;
  std::vector<std::pair<size_t, uint32_t>> constant_inputs_;  // position and offset
};

// Tensors and parameters on chip are aligned to one DMA beat.
inline constexpr int64_t kOnChipAlignment = 64;

using Lowering = Result<std::unique_ptr<const NodeLowering>>;

enum class DeviceEffort : uint8_t { kComputes, kMoves, kRenames };

struct DeviceOp {
  OpType type;
  DeviceEffort effort;
  Lowering (*lower)(const Graph& graph, const Node& node);
};

template <typename Kind, typename... Arguments>
Lowering MakeLowering(const Graph& graph, const Node& node, Arguments&&... arguments) {
  return std::unique_ptr<const NodeLowering>(
      std::make_unique<Kind>(graph, node, std::forward<Arguments>(arguments)...));
}

// nullptr for operators that the device has no instructions for.
const DeviceOp* FindDeviceOp(OpType type);

// For a node that fulfils constraints.inc. Errors are contradictions in the model and name the
// node.
Lowering LowerNode(const Graph& graph, const Node& node);

// The channel records of docs/isa.md, one for each of `channels`.
std::vector<uint8_t> ChannelRecords(RequantizeMode mode, std::span<const OutputChannel> channels);

// `flag` for uint8, else 0.
inline uint32_t UnsignedFlag(ByteType type, uint32_t flag) {
  return type == ByteType::kUInt8 ? flag : 0;
}

// A COPY of runs of `bytes`; `loops`, kCopyLoops at most, go forwards.
CopyInstruction MakeCopy(uint32_t from, uint32_t to, int64_t bytes,
                         std::span<const StridedCopy::Loop> loops = {});

// Whether the loops around an instruction of two tensors (driver/isa/instruction.h) suffice for it.
bool FitsPairLoops(const Broadcast& broadcast);

// A plan that COPY instructions can follow, with a FILL in front: each copy takes at most
// kCopiesMax instructions.
bool IsCopyProgram(const MovePlan& plan);
inline constexpr int64_t kCopiesMax = 64;

// A multiplier's exponent as instructions have it, 127 at most. Above 31 it counts modulo 32.
inline int32_t InstructionExponent(int32_t exponent) {
  return exponent > 31 ? exponent % 32 : exponent;
}

// A reduction that one instruction can make.
bool IsReduction(const ReducePlan& plan);

// The functions of device_ops.inc. Errors do not name the node.
#define ATOLL_DEVICE_OP(NAME, effort, Lower) Lowering Lower(const Graph& graph, const Node& node);
#include "delegate/device_ops.inc"
#undef ATOLL_DEVICE_OP

}  // namespace atollrt
