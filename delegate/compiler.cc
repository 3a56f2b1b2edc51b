// SPDX-License-Identifier: Apache-2.0
#include "delegate/compiler.h"

#include <algorithm>
#include <utility>

#include "delegate/compilation.h"

namespace atollrt {

Result<CompiledSet> Compilation::Run(CompileFailure* failure) {
  ATOLL_RETURN_IF_ERROR(LowerNodes());
  ResolveAliases();
  FindReaders();
  FindMovingRows();
  if (!ChooseLayout()) {
    const size_t peak = StepAtPeak(MakeBlocks());
    failure->node = set_[peak];
    return ResourceExhausted("%s", DescribePeak(peak).c_str());
  }
  MakeRoomForChains();
  executable_ = Assemble();
  const size_t instructions =
      executable_.caching_program.size() + executable_.inference_program.size();
  if (instructions * kInstructionBytes > device_.program_memory_bytes) {
    failure->node = set_[LongestStep()];
    return ResourceExhausted(
        "its partition takes %zu instructions, most of them for %s; the device has room for %llu",
        instructions, Describe(graph_, graph_.nodes[failure->node]).c_str(),
        static_cast<unsigned long long>(device_.program_memory_bytes / kInstructionBytes));
  }
  std::string note = LayoutNote();
  std::vector<OnChipBlock> memory = MapMemory();
  return CompiledSet{
      .executable = std::move(executable_), .note = std::move(note), .memory = std::move(memory)};
}

Status Compilation::LowerNodes() {
  for (size_t step = 0; step < set_.size(); ++step) {
    ATOLL_ASSIGN_OR_RETURN(auto lowering, LowerNode(graph_, NodeAt(step)));
    lowered_.push_back(std::move(lowering));
  }
  layout_.streamed.assign(set_.size(), false);
  layout_.parts.assign(set_.size(), 1);
  resident_offset_.assign(set_.size(), 0);
  return Status();
}

void Compilation::ResolveAliases() {
  alias_.resize(graph_.tensors.size());
  for (size_t i = 0; i < alias_.size(); ++i) alias_[i] = static_cast<int32_t>(i);
  for (const int32_t index : set_) {
    const Node& node = graph_.nodes[index];
    if (FindDeviceOp(node.type)->effort == DeviceEffort::kRenames) {
      alias_[node.outputs[0]] = node.inputs[0];
    }
  }
}

void Compilation::FindReaders() {
  writer_.assign(graph_.tensors.size(), -1);
  for (size_t step = 0; step < set_.size(); ++step) {
    const Node& node = NodeAt(step);
    const Tensor& output = graph_.Output(node);
    steps_.push_back(
        {.node = &node, .lowering = lowered_[step].get(), .output_rows = RowCount(output)});
    for (const int32_t tensor : node.outputs) {
      if (Root(tensor) == tensor) writer_[tensor] = static_cast<int32_t>(step);
    }
  }
  const auto read = [&](int32_t tensor, size_t step) {
    if (tensor < 0) return;
    const int32_t writer = writer_[Root(tensor)];
    if (writer < 0) return;
    steps_[writer].last_reader = std::max(steps_[writer].last_reader, static_cast<int32_t>(step));
  };
  for (size_t step = 0; step < set_.size(); ++step) {
    for (const int32_t tensor : NodeAt(step).inputs) read(tensor, step);
  }
}

// Finds the input whose rows may arrive while others are computed, the last one, because what comes
// before it has then arrived; and the output whose rows may leave so, the first one.
void Compilation::FindMovingRows() {
  const auto is_only = [&](int32_t tensor, const std::vector<int32_t>& tensors) {
    return std::count_if(tensors.begin(), tensors.end(),
                         [&](int32_t other) { return Root(other) == Root(tensor); }) == 1;
  };
  for (const int32_t tensor : outputs_) {
    const int32_t writer = writer_[Root(tensor)];
    if (writer < 0) continue;
    BandStep& step = steps_[writer];
    if (tensor == outputs_[0] && is_only(tensor, outputs_) && step.node->outputs.size() == 1) {
      step.may_send_rows = true;
    } else {
      step.last_reader = static_cast<int32_t>(set_.size());
    }
  }
  if (inputs_.empty()) return;
  const int32_t input = inputs_.back();
  if (!IsImage(graph_.tensors[input]) || !is_only(input, inputs_)) return;
  ArrivingInput arriving{.tensor = input, .rows = RowCount(graph_.tensors[input])};
  for (size_t step = set_.size(); step-- > 0;) {
    const std::vector<int32_t>& read = NodeAt(step).inputs;
    if (std::count(read.begin(), read.end(), input) == 0) continue;
    arriving.first_reader = static_cast<int32_t>(step);
    arriving.last_reader = std::max(arriving.last_reader, arriving.first_reader);
  }
  const auto shares_its_bytes = [&](int32_t tensor) {
    return tensor != input && tensor >= 0 && Root(tensor) == input;
  };
  for (size_t step = 0; step < set_.size(); ++step) {
    const std::vector<int32_t>& made = NodeAt(step).outputs;
    if (std::any_of(made.begin(), made.end(), shares_its_bytes)) return;
  }
  const bool is_output = std::any_of(outputs_.begin(), outputs_.end(),
                                     [&](int32_t tensor) { return Root(tensor) == input; });
  if (!is_output && arriving.last_reader >= 0) arriving_ = arriving;
}

Result<CompiledSet> CompileSet(const Graph& graph, const std::vector<int32_t>& set,
                               const std::vector<int32_t>& inputs,
                               const std::vector<int32_t>& outputs, const DeviceInfo& device,
                               CompileFailure* failure) {
  return Compilation(graph, set, inputs, outputs, device).Run(failure);
}

ScheduleOptions ScheduleOptionsOf(const DeviceInfo& device) {
  return {.array = {device.array_rows, device.array_columns},
          .clock_hz = device.clock_hz,
          .link_bytes_per_second = device.link_bytes_per_second};
}

}  // namespace atollrt
