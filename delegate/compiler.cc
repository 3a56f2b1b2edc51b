// SPDX-License-Identifier: Apache-2.0
#include "delegate/compiler.h"

#include <algorithm>
#include <cstring>

#include "driver/timing.h"
#include "runtime/base/bytes.h"
#include "runtime/graph/shape_inference.h"
#include "runtime/memory_planner.h"
#include "runtime/ops/quantized_params.h"

namespace atollrt {
namespace {

constexpr size_t kCopyLoops = 3;    // of a COPY instruction
constexpr int64_t kAlignment = 64;  // of tensors and parameters on chip: one DMA beat

// Parameters of one node, as bytes in the order in which the device keeps them.
struct NodeParameters {
  std::vector<uint8_t> bytes;
  uint32_t channel_offset = 0;  // of the channel records behind the weights
};

void AppendAligned(std::vector<uint8_t>* out, std::span<const uint8_t> bytes) {
  out->resize(AlignUp(out->size(), kAlignment));
  out->insert(out->end(), bytes.begin(), bytes.end());
}

NodeParameters PackFilter(const uint8_t* weights, int64_t weight_bytes, const OutputStage& output) {
  NodeParameters parameters;
  AppendAligned(&parameters.bytes, {weights, static_cast<size_t>(weight_bytes)});
  std::vector<uint8_t> records(output.channels.size() * kChannelRecordBytes);
  for (size_t c = 0; c < output.channels.size(); ++c) {
    uint8_t* record = records.data() + c * kChannelRecordBytes;
    const OutputChannel& channel = output.channels[c];
    StoreLittleEndian<int32_t>(record, channel.bias);
    if (output.mode == RequantizeMode::kDouble) {
      StoreLittleEndian<double>(record + 8, channel.scale);
    } else {
      StoreLittleEndian<int32_t>(record + 4, channel.multiplier.value);
      StoreLittleEndian<int32_t>(record + 8, channel.multiplier.exponent);
    }
  }
  parameters.channel_offset = static_cast<uint32_t>(AlignUp(parameters.bytes.size(), kAlignment));
  AppendAligned(&parameters.bytes, records);
  return parameters;
}

uint32_t UnsignedFlag(ByteType type, uint32_t flag) { return type == ByteType::kUInt8 ? flag : 0; }

// The operands that CONV_2D and DEPTHWISE_CONV_2D share. Addresses are filled in later.
template <typename Instruction, typename Params>
Instruction MakeFilterInstruction(const Params& params) {
  const ConvShape& s = params.shape;
  Instruction i;
  i.batch = s.batch;
  i.input_h = s.input_h;
  i.input_w = s.input_w;
  i.input_c = s.input_c;
  i.output_h = s.output_h;
  i.output_w = s.output_w;
  i.output_c = s.output_c;
  i.kernel_h = s.kernel_h;
  i.kernel_w = s.kernel_w;
  i.stride_h = s.stride_h;
  i.stride_w = s.stride_w;
  i.dilation_h = s.dilation_h;
  i.dilation_w = s.dilation_w;
  i.pad_top = s.pad_top;
  i.pad_left = s.pad_left;
  i.flags = UnsignedFlag(params.input_type, kFlagInputUnsigned) |
            UnsignedFlag(params.weight_type, kFlagWeightsUnsigned) |
            (params.output.mode == RequantizeMode::kDouble ? kFlagDouble : 0);
  i.input_zero_point = params.input_zero_point;
  i.weight_zero_point = params.weight_zero_point;
  i.output_zero_point = params.output.zero_point;
  i.clamp_min = params.output.clamp.min;
  i.clamp_max = params.output.clamp.max;
  return i;
}

// A set on its way to an executable.
class Compilation {
 public:
  Compilation(const Graph& graph, const std::vector<int32_t>& set,
              const std::vector<int32_t>& inputs, const std::vector<int32_t>& outputs,
              const DeviceInfo& device)
      : graph_(graph), set_(set), inputs_(inputs), outputs_(outputs), device_(device) {}

  Result<CompiledSet> Run(CompileFailure* failure);

 private:
  Status CollectParameters();
  Status CollectParameters(size_t step);
  void ResolveAliases();
  bool PlanActivations();
  bool ChooseResidency();
  int32_t NodeAtPeak() const;
  void LayOutParameters();
  Status EmitProgram();
  Status EmitNode(size_t step);
  Status EmitConv2D(size_t step, const Conv2DParams& params);
  Status EmitDepthwiseConv2D(size_t step);
  Status EmitAdd(const Node& node);
  Status EmitPool2D(const Node& node);
  Status EmitMean(const Node& node);
  Status EmitTable(size_t step);
  Status EmitMoves(const Node& node);
  void EmitConcatenation(const Node& node);
  void FillBoundary();
  void EstimateCycles();

  const Node& NodeAt(size_t step) const { return graph_.nodes[set_[step]]; }
  // Activation-segment address of a tensor.
  uint32_t Address(int32_t tensor) const {
    return static_cast<uint32_t>(plan_.offsets[static_cast<size_t>(Root(tensor))]);
  }
  // Where a step's parameters lie when it runs.
  uint32_t ParameterAddress(size_t step) const {
    return streamed_[step] ? static_cast<uint32_t>(plan_.offsets[graph_.tensors.size() + step])
                           : kParameterSegment | resident_offset_[step];
  }
  int32_t Root(int32_t tensor) const {
    while (alias_[tensor] != tensor) tensor = alias_[tensor];
    return tensor;
  }
  void Emit(Instruction instruction) {
    executable_.inference_program.push_back(std::move(instruction));
  }

  const Graph& graph_;
  const std::vector<int32_t>& set_;
  const std::vector<int32_t>& inputs_;
  const std::vector<int32_t>& outputs_;
  const DeviceInfo& device_;

  std::vector<NodeParameters> parameters_;  // per step
  std::vector<bool> streamed_;              // per step
  std::vector<uint32_t> resident_offset_;   // per step, in the parameter segment
  std::vector<int32_t> alias_;              // per tensor: the tensor whose bytes it shares
  std::vector<MemoryBlock> blocks_;         // per tensor, then per step (streamed parameters)
  MemoryPlan plan_;
  Executable executable_;
};

Result<CompiledSet> Compilation::Run(CompileFailure* failure) {
  ATOLL_RETURN_IF_ERROR(CollectParameters());
  ResolveAliases();
  if (!ChooseResidency()) {
    failure->node = NodeAtPeak();
    return ResourceExhausted(
        "%s and its neighbours need %lld bytes of on-chip memory at once; "
        "the device has %llu",
        Describe(graph_, graph_.nodes[failure->node]).c_str(), static_cast<long long>(plan_.total),
        static_cast<unsigned long long>(device_.memory_bytes));
  }
  LayOutParameters();
  executable_.name = graph_.name.empty() ? "partition" : graph_.name;
  executable_.activation_bytes = static_cast<uint64_t>(plan_.total);
  executable_.array_rows = device_.array_rows;
  executable_.array_columns = device_.array_columns;
  ATOLL_RETURN_IF_ERROR(EmitProgram());
  FillBoundary();
  EstimateCycles();

  CompiledSet result;
  const int64_t streamed = std::count(streamed_.begin(), streamed_.end(), true);
  if (streamed > 0) {
    result.note = Format(
        "parameters of %lld of %zu nodes (%zu bytes) do not fit into %llu bytes on chip beside "
        "%lld bytes of activations and are streamed for every inference",
        static_cast<long long>(streamed), set_.size(), executable_.streamed_parameters.size(),
        static_cast<unsigned long long>(device_.memory_bytes), static_cast<long long>(plan_.total));
  }
  result.executable = std::move(executable_);
  return result;
}

// Weights, channel records and tables of every node.
Status Compilation::CollectParameters() {
  parameters_.resize(set_.size());
  streamed_.assign(set_.size(), false);
  resident_offset_.assign(set_.size(), 0);
  for (size_t step = 0; step < set_.size(); ++step) {
    Status status = CollectParameters(step);
    if (!status.ok()) return std::move(status).WithContext(Describe(graph_, NodeAt(step)));
  }
  return Status();
}

Status Compilation::CollectParameters(size_t step) {
  const Node& node = NodeAt(step);
  const auto pack = [&](const auto& params) {
    parameters_[step] =
        PackFilter(params.weights, graph_.Input(node, 1)->byte_size(), params.output);
  };
  switch (node.type) {
    case OpType::kCONV_2D: {
      ATOLL_ASSIGN_OR_RETURN(const auto params, MakeConv2DParams(graph_, node));
      pack(params);
      return Status();
    }
    case OpType::kFULLY_CONNECTED: {
      ATOLL_ASSIGN_OR_RETURN(const auto params, MakeFullyConnectedParams(graph_, node));
      pack(params);
      return Status();
    }
    case OpType::kDEPTHWISE_CONV_2D: {
      ATOLL_ASSIGN_OR_RETURN(const auto params, MakeDepthwiseConv2DParams(graph_, node));
      pack(params);
      return Status();
    }
    case OpType::kEXP:
    case OpType::kHARD_SWISH:
    case OpType::kLEAKY_RELU:
    case OpType::kLOGISTIC:
    case OpType::kQUANTIZE:
    case OpType::kRELU:
    case OpType::kRELU6:
    case OpType::kRELU_N1_TO_1:
    case OpType::kTANH: {
      ATOLL_ASSIGN_OR_RETURN(const LookupTable table, MakeNodeTable(graph_, node));
      parameters_[step].bytes.assign(table.begin(), table.end());
      return Status();
    }
    default:
      return Status();
  }
}

// EXPAND_DIMS, RESHAPE and SQUEEZE cost nothing: their output is their input under another name.
void Compilation::ResolveAliases() {
  alias_.resize(graph_.tensors.size());
  for (size_t i = 0; i < alias_.size(); ++i) alias_[i] = static_cast<int32_t>(i);
  for (const int32_t index : set_) {
    const Node& node = graph_.nodes[index];
    if (node.type == OpType::kEXPAND_DIMS || node.type == OpType::kRESHAPE ||
        node.type == OpType::kSQUEEZE) {
      alias_[node.outputs[0]] = node.inputs[0];
    }
  }
}

// Lifetimes: inputs arrive before step 0, outputs leave after the last step, streamed parameters
// live during their step. True if the plan fits beside the resident parameters.
bool Compilation::PlanActivations() {
  const int32_t last = static_cast<int32_t>(set_.size());
  blocks_.assign(graph_.tensors.size() + set_.size(), MemoryBlock());
  const auto touch = [&](int32_t tensor, int32_t step) {
    if (tensor < 0 || graph_.tensors[tensor].is_constant()) return;
    const int32_t root = Root(tensor);
    MemoryBlock& block = blocks_[root];
    if (block.size == 0) {
      block.size = graph_.tensors[root].byte_size();
      block.first_use = step;
    }
    block.last_use = std::max(block.last_use, step);
  };
  for (const int32_t tensor : inputs_) touch(tensor, -1);
  int64_t resident = 0;
  for (size_t step = 0; step < set_.size(); ++step) {
    const int32_t at = static_cast<int32_t>(step);
    for (const int32_t tensor : NodeAt(step).outputs) touch(tensor, at);
    for (const int32_t tensor : NodeAt(step).inputs) touch(tensor, at);
    const int64_t bytes = static_cast<int64_t>(parameters_[step].bytes.size());
    if (streamed_[step]) {
      blocks_[graph_.tensors.size() + step] = {.size = bytes, .first_use = at, .last_use = at};
    } else {
      resident += static_cast<int64_t>(AlignUp(static_cast<uint64_t>(bytes), kAlignment));
    }
  }
  for (const int32_t tensor : outputs_) touch(tensor, last);
  plan_ = PlanMemory(blocks_, kAlignment);
  // The driver hands out memory in whole pages of 4 KiB.
  constexpr int64_t kPage = 4096;
  const int64_t memory = static_cast<int64_t>(device_.memory_bytes) / kPage * kPage;
  return plan_.total + kPage + resident <= memory;
}

// Keeps everything resident if it fits, else streams the largest parameters first, which leaves
// the fewest bytes to stream per byte of memory gained.
bool Compilation::ChooseResidency() {
  if (PlanActivations()) return true;
  std::vector<size_t> by_size(set_.size());
  for (size_t i = 0; i < by_size.size(); ++i) by_size[i] = i;
  std::stable_sort(by_size.begin(), by_size.end(), [&](size_t a, size_t b) {
    return parameters_[a].bytes.size() > parameters_[b].bytes.size();
  });
  for (const size_t step : by_size) {
    if (parameters_[step].bytes.empty()) break;
    streamed_[step] = true;
    if (PlanActivations()) return true;
  }
  return false;
}

// The step at which the most activation bytes are alive.
int32_t Compilation::NodeAtPeak() const {
  size_t peak = 0;
  int64_t peak_bytes = -1;
  for (size_t step = 0; step < set_.size(); ++step) {
    const int32_t at = static_cast<int32_t>(step);
    int64_t alive = 0;
    for (const MemoryBlock& block : blocks_) {
      if (block.first_use <= at && at <= block.last_use) alive += block.size;
    }
    if (alive > peak_bytes) {
      peak_bytes = alive;
      peak = step;
    }
  }
  return set_[peak];
}

void Compilation::LayOutParameters() {
  for (size_t step = 0; step < set_.size(); ++step) {
    const std::vector<uint8_t>& bytes = parameters_[step].bytes;
    if (bytes.empty()) continue;
    if (streamed_[step]) {
      executable_.streamed_parameters.insert(executable_.streamed_parameters.end(), bytes.begin(),
                                             bytes.end());
      continue;
    }
    AppendAligned(&executable_.resident_parameters, bytes);
    resident_offset_[step] =
        static_cast<uint32_t>(executable_.resident_parameters.size() - bytes.size());
  }
  if (executable_.resident_parameters.empty()) return;
  executable_.caching_program = {
      ParametersInstruction{.output_address = kParameterSegment,
                            .bytes = static_cast<uint32_t>(executable_.resident_parameters.size())},
      EndInstruction{}};
}

Status Compilation::EmitProgram() {
  for (const int32_t tensor : inputs_) {
    Emit(InputInstruction{.output_address = Address(tensor),
                          .bytes = static_cast<uint32_t>(graph_.tensors[tensor].byte_size())});
  }
  for (size_t step = 0; step < set_.size(); ++step) {
    if (streamed_[step]) {
      Emit(ParametersInstruction{.output_address = ParameterAddress(step),
                                 .bytes = static_cast<uint32_t>(parameters_[step].bytes.size())});
    }
    Status status = EmitNode(step);
    if (!status.ok()) return std::move(status).WithContext(Describe(graph_, NodeAt(step)));
  }
  for (const int32_t tensor : outputs_) {
    Emit(OutputInstruction{.input_address = Address(tensor),
                           .bytes = static_cast<uint32_t>(graph_.tensors[tensor].byte_size())});
  }
  Emit(EndInstruction{});
  return Status();
}

Status Compilation::EmitNode(size_t step) {
  const Node& node = NodeAt(step);
  switch (node.type) {
    case OpType::kCONV_2D: {
      ATOLL_ASSIGN_OR_RETURN(const Conv2DParams params, MakeConv2DParams(graph_, node));
      return EmitConv2D(step, params);
    }
    case OpType::kFULLY_CONNECTED: {
      ATOLL_ASSIGN_OR_RETURN(const Conv2DParams params, MakeFullyConnectedParams(graph_, node));
      return EmitConv2D(step, params);
    }
    case OpType::kDEPTHWISE_CONV_2D:
      return EmitDepthwiseConv2D(step);
    case OpType::kADD:
    case OpType::kSUB:
      return EmitAdd(node);
    case OpType::kAVERAGE_POOL_2D:
    case OpType::kMAX_POOL_2D:
      return EmitPool2D(node);
    case OpType::kMEAN:
      return EmitMean(node);
    case OpType::kEXP:
    case OpType::kHARD_SWISH:
    case OpType::kLEAKY_RELU:
    case OpType::kLOGISTIC:
    case OpType::kQUANTIZE:
    case OpType::kRELU:
    case OpType::kRELU6:
    case OpType::kRELU_N1_TO_1:
    case OpType::kTANH:
      return EmitTable(step);
    case OpType::kCONCATENATION:
      EmitConcatenation(node);
      return Status();
    case OpType::kEXPAND_DIMS:
    case OpType::kRESHAPE:
    case OpType::kSQUEEZE:
      return Status();
    default:
      if (IsMove(node.type)) return EmitMoves(node);
      return InternalError("no instruction for %s", node.op_name().c_str());
  }
}

Status Compilation::EmitConv2D(size_t step, const Conv2DParams& params) {
  Conv2DInstruction i = MakeFilterInstruction<Conv2DInstruction>(params);
  i.groups = static_cast<uint32_t>(params.shape.groups);
  i.input_address = Address(NodeAt(step).inputs[0]);
  i.weight_address = ParameterAddress(step);
  i.channel_address = ParameterAddress(step) + parameters_[step].channel_offset;
  i.output_address = Address(NodeAt(step).outputs[0]);
  Emit(i);
  return Status();
}

Status Compilation::EmitDepthwiseConv2D(size_t step) {
  ATOLL_ASSIGN_OR_RETURN(const DepthwiseConv2DParams params,
                         MakeDepthwiseConv2DParams(graph_, NodeAt(step)));
  DepthwiseConv2DInstruction i = MakeFilterInstruction<DepthwiseConv2DInstruction>(params);
  i.input_address = Address(NodeAt(step).inputs[0]);
  i.weight_address = ParameterAddress(step);
  i.channel_address = ParameterAddress(step) + parameters_[step].channel_offset;
  i.output_address = Address(NodeAt(step).outputs[0]);
  Emit(i);
  return Status();
}

Status Compilation::EmitAdd(const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const AddParams params, MakeAddParams(graph_, node));
  Emit(AddInstruction{.input1_address = Address(node.inputs[0]),
                      .input2_address = Address(node.inputs[1]),
                      .output_address = Address(node.outputs[0]),
                      .count = static_cast<uint32_t>(graph_.Output(node).element_count()),
                      .flags = UnsignedFlag(params.type, kFlagInputUnsigned) |
                               (params.kind == AddKind::kSubtract ? kFlagSubtract : 0),
                      .left_shift = static_cast<uint32_t>(params.left_shift),
                      .input1_zero_point = params.input1_zero_point,
                      .input2_zero_point = params.input2_zero_point,
                      .output_zero_point = params.output_zero_point,
                      .input1_multiplier = params.input1.value,
                      .input1_exponent = params.input1.exponent,
                      .input2_multiplier = params.input2.value,
                      .input2_exponent = params.input2.exponent,
                      .output_multiplier = params.output.value,
                      .output_exponent = params.output.exponent,
                      .clamp_min = params.clamp.min,
                      .clamp_max = params.clamp.max});
  return Status();
}

Status Compilation::EmitPool2D(const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const Pool2DParams params, MakePool2DParams(graph_, node));
  Pool2DInstruction i;
  i.input_address = Address(node.inputs[0]);
  i.output_address = Address(node.outputs[0]);
  i.batch = params.batch;
  i.input_h = params.input_h;
  i.input_w = params.input_w;
  i.channels = params.channels;
  i.output_h = params.output_h;
  i.output_w = params.output_w;
  i.kernel_h = params.kernel_h;
  i.kernel_w = params.kernel_w;
  i.stride_h = params.stride_h;
  i.stride_w = params.stride_w;
  i.pad_top = params.pad_top;
  i.pad_left = params.pad_left;
  i.flags = UnsignedFlag(params.type, kFlagInputUnsigned) |
            (params.kind == PoolKind::kAverage ? kFlagAverage : 0);
  i.clamp_min = params.clamp.min;
  i.clamp_max = params.clamp.max;
  Emit(i);
  return Status();
}

Status Compilation::EmitMean(const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const MeanPlan plan, MakeMeanPlan(graph_, node));
  const MeanParams& params = plan.params;
  MeanInstruction i;
  i.input_address = Address(node.inputs[0]);
  i.output_address = Address(node.outputs[0]);
  i.batch = params.batch;
  i.positions = params.positions;
  i.channels = params.channels;
  i.flags = UnsignedFlag(params.type, kFlagInputUnsigned);
  i.input_zero_point = params.input_zero_point;
  i.multiplier = params.multiplier.value;
  i.exponent = params.multiplier.exponent;
  i.output_zero_point = params.output_zero_point;
  i.clamp_min = params.clamp.min;
  i.clamp_max = params.clamp.max;
  Emit(i);
  return Status();
}

Status Compilation::EmitTable(size_t step) {
  const Node& node = NodeAt(step);
  Emit(TableInstruction{.input_address = Address(node.inputs[0]),
                        .output_address = Address(node.outputs[0]),
                        .count = static_cast<uint32_t>(graph_.Output(node).element_count()),
                        .table_address = ParameterAddress(step)});
  return Status();
}

Status Compilation::EmitMoves(const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const MovePlan plan, MakeMovePlan(graph_, node));
  const auto word = [](int64_t value) { return static_cast<uint32_t>(value); };
  if (plan.fill.count > 0) {
    Emit(FillInstruction{.output_address = Address(node.outputs[0]),
                         .bytes = word(plan.fill.count),
                         .value = plan.fill.element[0]});
  }
  for (const auto& [from, to, copy] : plan.copies) {
    // As three loops, with counts of 1 in front.
    StridedCopy::Loop loops[kCopyLoops];
    std::copy_backward(copy.loops.begin(), copy.loops.end(), std::end(loops));
    Emit(CopyInstruction{
        .input_address = Address(node.inputs[from.position]) + word(copy.in_offset),
        .output_address = Address(node.outputs[to.position]) + word(copy.out_offset),
        .bytes = word(copy.run_bytes),
        .count0 = word(loops[0].count),
        .count1 = word(loops[1].count),
        .count2 = word(loops[2].count),
        .input_stride0 = word(loops[0].in_stride),
        .input_stride1 = word(loops[1].in_stride),
        .input_stride2 = word(loops[2].in_stride),
        .output_stride0 = word(loops[0].out_stride),
        .output_stride1 = word(loops[1].out_stride),
        .output_stride2 = word(loops[2].out_stride)});
  }
  return Status();
}

void Compilation::EmitConcatenation(const Node& node) {
  const Tensor& output = graph_.Output(node);
  const int32_t axis = NormalizeAxis(std::get<AxisOptions>(node.options).axis, output.shape.size());
  int64_t outer = 1;
  for (int32_t i = 0; i < axis; ++i) outer *= output.shape[i];
  const int64_t output_run = output.byte_size() / outer;
  int64_t offset = 0;
  for (const int32_t tensor : node.inputs) {
    const int64_t run = graph_.tensors[tensor].byte_size() / outer;
    CopyInstruction i;
    i.input_address = Address(tensor);
    i.output_address = Address(node.outputs[0]) + static_cast<uint32_t>(offset);
    i.bytes = static_cast<uint32_t>(run);
    i.count0 = 1;
    i.count1 = 1;
    i.count2 = static_cast<uint32_t>(outer);
    i.input_stride2 = static_cast<uint32_t>(run);
    i.output_stride2 = static_cast<uint32_t>(output_run);
    Emit(i);
    offset += run;
  }
}

void Compilation::FillBoundary() {
  const auto layer = [&](int32_t index) {
    const Tensor& tensor = graph_.tensors[index];
    return Layer{.name = tensor.name,
                 .type = tensor.type == DataType::kUInt8 ? LayerType::kUInt8 : LayerType::kInt8,
                 .shape = tensor.shape,
                 .bytes = static_cast<uint64_t>(tensor.byte_size())};
  };
  for (const int32_t tensor : inputs_) executable_.inputs.push_back(layer(tensor));
  for (const int32_t tensor : outputs_) executable_.outputs.push_back(layer(tensor));
}

void Compilation::EstimateCycles() {
  const ArraySize array{device_.array_rows, device_.array_columns};
  for (const Instruction& instruction : executable_.inference_program) {
    executable_.estimated_cycles += IssueCycles(array) + ExecutionCycles(instruction, array);
  }
}

}  // namespace

Result<CompiledSet> CompileSet(const Graph& graph, const std::vector<int32_t>& set,
                               const std::vector<int32_t>& inputs,
                               const std::vector<int32_t>& outputs, const DeviceInfo& device,
                               CompileFailure* failure) {
  return Compilation(graph, set, inputs, outputs, device).Run(failure);
}

bool IsMove(OpType type) {
  switch (type) {
    case OpType::kBATCH_TO_SPACE_ND:
    case OpType::kDEPTH_TO_SPACE:
    case OpType::kMIRROR_PAD:
    case OpType::kPACK:
    case OpType::kPAD:
    case OpType::kPADV2:
    case OpType::kSLICE:
    case OpType::kSPACE_TO_BATCH_ND:
    case OpType::kSPACE_TO_DEPTH:
    case OpType::kSPLIT:
    case OpType::kSPLIT_V:
    case OpType::kSTRIDED_SLICE:
    case OpType::kTILE:
    case OpType::kTRANSPOSE:
    case OpType::kUNPACK:
      return true;
    default:
      return false;
  }
}

bool IsCopyProgram(const MovePlan& plan) {
  if (plan.fill.count > 0 && plan.fill.element.size() != 1) return false;
  return std::all_of(plan.copies.begin(), plan.copies.end(), [](const MovePlan::Copy& step) {
    return step.from.kind == MoveOperand::Kind::kInput &&
           step.to.kind == MoveOperand::Kind::kOutput && step.copy.run_bytes > 0 &&
           step.copy.loops.size() <= kCopyLoops &&
           std::all_of(step.copy.loops.begin(), step.copy.loops.end(),
                       [](const StridedCopy::Loop& loop) { return loop.in_stride >= 0; });
  });
}

double EstimateSeconds(const DeviceInfo& device, uint64_t cycles, uint64_t link_bytes) {
  return static_cast<double>(cycles) / static_cast<double>(device.clock_hz) +
         static_cast<double>(link_bytes) / static_cast<double>(device.link_bytes_per_second);
}

}  // namespace atollrt
