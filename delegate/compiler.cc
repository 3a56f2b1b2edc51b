// SPDX-License-Identifier: Apache-2.0
#include "delegate/compiler.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "delegate/compilation.h"
#include "runtime/kernels/lookup_table.h"
#include "runtime/kernels/recurrent.h"

namespace atollrt {
namespace {

// In so many rounds the first set that does not fit into on-chip memory loses a node, one in each,
// if it is not larger than that: what there is of networks needs no more. After that, and for large
// sets, cutting them is what takes a bounded number of steps.
constexpr int32_t kRefusingRounds = 16;
constexpr size_t kRefusingNodes = 1024;

// ---- Parameters that are shared -----------------------------------------------------------------

// An executable has a copy of its nodes' parameters for each of them. Nodes may share them, as many
// as there are steps of an unrolled network, but a file of a megabyte must not ask for gigabytes.
constexpr int64_t kMaxCopiesOfByte = 16;
constexpr int64_t kCopiesOfSmallModel = int64_t{128} << 20;

// What the lowering of a node has, about: its constants, and a record for each channel, of which
// those of filters are the last dimension of the output, or a table.
int64_t ParameterBytes(const Graph& graph, const Node& node) {
  int64_t bytes = kOnChipAlignment;
  for (const int32_t tensor : node.inputs) {
    if (tensor >= 0 && graph.tensors[tensor].is_constant()) {
      bytes += graph.tensors[tensor].byte_size();
    }
  }
  const Shape& shape = graph.Output(node).shape;
  const int64_t channels = shape.empty() ? 1 : shape.back();
  switch (node.type) {
    case OpType::kCONV_2D:
    case OpType::kDEPTHWISE_CONV_2D:
    case OpType::kFULLY_CONNECTED:
    case OpType::kTRANSPOSE_CONV:
      return bytes + channels * kChannelRecordBytes;
    case OpType::kUNIDIRECTIONAL_SEQUENCE_LSTM:
      return bytes + channels * 2 * kLstmGates * kChannelRecordBytes;
    default:
      return bytes + std::tuple_size_v<LookupTable>;
  }
}

// Refuses the nodes of the sets, which come in the order in which they run, from the first one on
// whose parameters are too many. True if there is one.
bool RefuseCopies(const Graph& graph, const std::vector<std::vector<int32_t>>& sets,
                  std::vector<std::string>* refused) {
  const int64_t constants = ConstantBytes(graph);
  const int64_t limit = kMaxCopiesOfByte * constants + kCopiesOfSmallModel;
  int64_t bytes = 0;
  bool refuses = false;
  for (const std::vector<int32_t>& set : sets) {
    for (const int32_t node : set) {
      const int64_t more = ParameterBytes(graph, graph.nodes[node]);
      if (more > limit - bytes) {
        refuses = true;
        (*refused)[node] = Format(
            "operators share their constants so often that they would be over %lld bytes on the "
            "device; the model has %lld",
            static_cast<long long>(limit), static_cast<long long>(constants));
      } else {
        bytes += more;
      }
    }
  }
  return refuses;
}

}  // namespace

Result<CompiledSet> Compilation::Run(WhenTooLarge when_too_large, CompileFailure* failure) {
  if (const size_t layers = inputs_.size() + outputs_.size(); layers > kMaxLayers) {
    return Cut(2, {},
               Format("its partition has %zu inputs and outputs, at most %zu are allowed", layers,
                      kMaxLayers),
               failure);
  }
  NumberTensors();
  ATOLL_RETURN_IF_ERROR(LowerNodes(failure));
  // Before a large set is laid out, which the program of does not fit whatever the layout.
  if (set_.size() > kSearchedSteps) {
    const std::vector<size_t> counts = CountInstructions();
    size_t instructions = 0;
    for (const size_t count : counts) instructions += count;
    ATOLL_RETURN_IF_ERROR(FitProgram(instructions, counts, failure));
  }
  ResolveAliases();
  FindReaders();
  FindMovingRows();
  if (!ChooseLayout()) {
    const std::vector<MemoryBlock> blocks = MakeBlocks();
    const std::vector<int64_t> alive = BytesAlive(blocks);
    const auto peak = std::max_element(alive.begin(), alive.end());
    const size_t step = peak - alive.begin();
    const std::string reason = DescribePeak(step, blocks);
    if (when_too_large == WhenTooLarge::kCut) {
      const int64_t pieces = *peak / std::max<int64_t>(MemoryBytes(), 1) + 1;
      return Cut(pieces, CountInstructions(), reason, failure);
    }
    failure->node = set_[step];
    return ResourceExhausted("%s", reason.c_str());
  }
  MakeRoomForChains();
  executable_ = Assemble();
  ATOLL_RETURN_IF_ERROR(FitProgram(
      executable_.caching_program.size() + executable_.inference_program.size(), {}, failure));
  std::string note = LayoutNote();
  std::vector<OnChipBlock> memory = MapMemory();
  return CompiledSet{
      .executable = std::move(executable_), .note = std::move(note), .memory = std::move(memory)};
}

void Compilation::NumberTensors() {
  const auto touch = [&](const std::vector<int32_t>& tensors) {
    for (const int32_t tensor : tensors) {
      if (tensor >= 0) tensors_.push_back(tensor);
    }
  };
  for (size_t step = 0; step < set_.size(); ++step) {
    touch(NodeAt(step).inputs);
    touch(NodeAt(step).outputs);
  }
  touch(inputs_);
  touch(outputs_);
  SortAndUnify(&tensors_);
}

Status Compilation::LowerNodes(CompileFailure* failure) {
  uint64_t parameters = 0;
  for (size_t step = 0; step < set_.size(); ++step) {
    ATOLL_ASSIGN_OR_RETURN(auto lowering, LowerNode(graph_, NodeAt(step)));
    lowered_.push_back(std::move(lowering));
    parameters += AlignUp(lowered_[step]->parameters().size(), kOnChipAlignment);
    if (parameters < kSegmentLimit) continue;
    return Cut(2, {}, "its partition has 2 GiB of parameters or more", failure);
  }
  layout_.streamed.assign(set_.size(), false);
  layout_.parts.assign(set_.size(), 1);
  resident_offset_.assign(set_.size(), 0);
  return Status();
}

// For each step, if it is computed as a whole. Addresses do not matter.
std::vector<size_t> Compilation::CountInstructions() const {
  std::vector<size_t> counts;
  std::vector<Instruction> program;
  for (size_t step = 0; step < set_.size(); ++step) {
    OperandPlaces place;
    place.inputs.resize(NodeAt(step).inputs.size());
    place.outputs.resize(NodeAt(step).outputs.size());
    program.clear();
    lowered_[step]->Emit(place, AllRows(graph_.Output(NodeAt(step))), &program);
    counts.push_back(program.size());
  }
  return counts;
}

// That so many instructions have room; else cuts the set, by the `counts` of its steps if known.
Status Compilation::FitProgram(size_t instructions, std::vector<size_t> counts,
                               CompileFailure* failure) const {
  const size_t room = device_.program_memory_bytes / kInstructionBytes;
  if (instructions <= room) return Status();
  if (counts.empty()) counts = CountInstructions();
  const size_t longest = std::max_element(counts.begin(), counts.end()) - counts.begin();
  // What moves inputs and outputs takes room in every piece.
  const size_t pieces = instructions / std::max<size_t>(room - room / 16, 1) + 1;
  return Cut(pieces, counts,
             Format("its partition takes %zu instructions, most of them for %s; the device has "
                    "room for %zu",
                    instructions, Describe(graph_, NodeAt(longest)).c_str(), room),
             failure);
}

// Into so many pieces, or one for each step if there are fewer, of about as many instructions each
// (or nodes, if they are not known). What is contiguous in a convex set is convex. A node by itself
// is refused.
Status Compilation::Cut(size_t pieces, const std::vector<size_t>& instructions,
                        const std::string& reason, CompileFailure* failure) const {
  if (set_.size() == 1) {
    failure->node = set_[0];
    return ResourceExhausted("%s", reason.c_str());
  }
  pieces = std::clamp<size_t>(pieces, 2, set_.size());
  // A node counts even if it has no instructions, so that no piece has too many.
  const auto weight = [&](size_t step) {
    return std::max<size_t>(instructions.empty() ? 1 : instructions[step], 1);
  };
  size_t total = 0;
  for (size_t step = 0; step < set_.size(); ++step) total += weight(step);
  size_t before = 0;
  for (size_t step = 0; step < set_.size(); ++step) {
    const size_t piece = std::min((before + weight(step) / 2) * pieces / total, pieces - 1);
    before += weight(step);
    failure->pieces.resize(std::max(failure->pieces.size(), piece + 1));
    failure->pieces[piece].push_back(set_[step]);
  }
  std::erase_if(failure->pieces, [](const std::vector<int32_t>& piece) { return piece.empty(); });
  return ResourceExhausted("%s", reason.c_str());
}

void Compilation::ResolveAliases() {
  root_.resize(tensors_.size());
  for (size_t i = 0; i < root_.size(); ++i) root_[i] = i;
  for (const int32_t index : set_) {
    const Node& node = graph_.nodes[index];
    if (FindDeviceOp(node.type)->effort == DeviceEffort::kRenames) {
      root_[Number(node.outputs[0])] = root_[Number(node.inputs[0])];
    }
  }
}

void Compilation::FindReaders() {
  writer_.assign(tensors_.size(), -1);
  for (size_t step = 0; step < set_.size(); ++step) {
    const Node& node = NodeAt(step);
    const Tensor& output = graph_.Output(node);
    steps_.push_back(
        {.node = &node, .lowering = lowered_[step].get(), .output_rows = RowCount(output)});
    for (const int32_t tensor : node.outputs) {
      if (Root(tensor) == tensor) writer_[Number(tensor)] = static_cast<int32_t>(step);
    }
  }
  const auto read = [&](int32_t tensor, size_t step) {
    if (tensor < 0) return;
    const int32_t writer = Writer(tensor);
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
    const int32_t writer = Writer(tensor);
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
                               CompileFailure* failure, WhenTooLarge when_too_large) {
  return Compilation(graph, set, inputs, outputs, device).Run(when_too_large, failure);
}

Result<CompiledGraph> CompileGraph(const Graph& graph, const DeviceInfo& device, int32_t max_nodes,
                                   std::span<const int32_t> stages) {
  const PartitionLimits limits{.memory_bytes = static_cast<int64_t>(device.memory_bytes),
                               .max_nodes = max_nodes,
                               .stages = stages};
  CompiledGraph result;
  BoundaryFinder boundaries(graph);
  std::vector<std::string> refused(graph.nodes.size());
  // What became of the sets of this round and earlier ones, by their first nodes: most are the same
  // in the next one.
  struct Known {
    std::vector<int32_t> set;
    std::vector<CompiledPartition> partitions;
  };
  std::vector<Known> known(graph.nodes.size());
  NodeSets sets;
  for (bool all_fit = false; !all_fit; ++result.rounds) {
    sets = PartitionGraph(graph, limits, refused);
    // Later rounds have fewer nodes.
    if (result.rounds == 0 && RefuseCopies(graph, sets.sets, &refused)) {
      sets = PartitionGraph(graph, limits, refused);
    }
    all_fit = true;
    for (const std::vector<int32_t>& set : sets.sets) {
      Known& last = known[set[0]];
      if (last.set == set) continue;
      last = {};
      const bool refuses = result.rounds < kRefusingRounds && set.size() <= kRefusingNodes;
      bool fits = true;
      std::vector<std::vector<int32_t>> pieces = {set};  // the next one last
      while (!pieces.empty()) {
        CompiledPartition& partition = last.partitions.emplace_back();
        partition.nodes = std::move(pieces.back());
        pieces.pop_back();
        partition.boundary = boundaries.Find(partition.nodes);
        result.compiled_nodes += static_cast<int64_t>(partition.nodes.size());
        CompileFailure failure;
        Result<CompiledSet> one = CompileSet(
            graph, partition.nodes, partition.boundary.inputs, partition.boundary.OutputsAndState(),
            device, &failure, refuses ? WhenTooLarge::kRefusePeak : WhenTooLarge::kCut);
        if (one.ok()) {
          partition.compiled = *std::move(one);
          continue;
        }
        last.partitions.pop_back();
        if (failure.node >= 0) {
          refused[failure.node] = one.status().message();
          fits = false;
        } else if (!failure.pieces.empty()) {
          std::move(failure.pieces.rbegin(), failure.pieces.rend(), std::back_inserter(pieces));
        } else {
          return one.status();
        }
      }
      if (fits) {
        last.set = set;
        continue;
      }
      all_fit = false;
      if (refuses) break;
    }
  }
  result.refusals = std::move(sets.reasons);
  // By their first nodes, too.
  std::vector<CompiledPartition*> partitions(graph.nodes.size());
  for (const std::vector<int32_t>& set : sets.sets) {
    for (CompiledPartition& partition : known[set[0]].partitions) {
      partitions[partition.nodes[0]] = &partition;
    }
  }
  for (CompiledPartition* const partition : partitions) {
    if (partition != nullptr) result.partitions.push_back(std::move(*partition));
  }
  return result;
}

ScheduleOptions ScheduleOptionsOf(const DeviceInfo& device) {
  return {.array = {device.array_rows, device.array_columns},
          .clock_hz = device.clock_hz,
          .link_bytes_per_second = device.link_bytes_per_second};
}

}  // namespace atollrt
