// SPDX-License-Identifier: Apache-2.0
#include "delegate/compiler.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "delegate/lowering.h"
#include "delegate/on_chip_map.h"
#include "delegate/partitioner.h"
#include "delegate/row_bands.h"
#include "runtime/base/bytes.h"
#include "runtime/memory_planner.h"

namespace atollrt {
namespace {

// The driver hands out memory in whole pages of 4 KiB.
constexpr int64_t kPage = 4096;
// How many steps at most are computed in bands together, and in how many bands.
constexpr size_t kBandedStepsMax = 32;
constexpr int32_t kBandsMax = 64;

// Of a tensor that goes in or out; the partitioner lets no other types pass.
LayerType LayerTypeOf(DataType type) {
  if (type == DataType::kInt16) return LayerType::kInt16;
  return type == DataType::kUInt8 ? LayerType::kUInt8 : LayerType::kInt8;
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
  // What the memory plan is made for: which parameters are streamed, which steps run in bands.
  struct Layout {
    std::vector<bool> streamed;   // per step
    std::vector<RowBands> bands;  // in the order of steps, disjoint
    // Per step: in how many parts by output channels it is computed, whose streamed parameters take
    // turns in two buffers.
    std::vector<int32_t> parts;
    // Streamed parameters are on their way while the step before theirs runs.
    bool prefetch = false;
  };
  // Output channels [begin, end).
  struct ChannelRange {
    int32_t begin, end;
    int32_t count() const { return end - begin; }
  };
  // Steps that run together: one, or those of some bands.
  struct Group {
    size_t first, last;
    const RowBands* bands;  // nullptr for one step as a whole
  };

  Status LowerNodes();
  void ResolveAliases();
  void FindReaders();
  void FindMovingRows();

  bool ChooseLayout();
  bool AddBands();
  bool AddStreaming();
  bool AddParts();
  std::optional<RowBands> FindBands(size_t peak, int64_t budget) const;
  bool FitsBands(const RowBands& bands, const std::vector<MemoryBlock>& whole,
                 int64_t budget) const;
  void Consider(std::optional<Layout>* best, uint64_t* best_cycles);
  std::string LayoutNote() const;
  std::string DescribePeak(size_t peak) const;

  std::vector<MemoryBlock> MakeBlocks() const;
  void Confine(const RowBands& bands, std::vector<MemoryBlock>* blocks) const;
  int64_t ResidentBytes() const;
  int64_t MemoryBytes() const {
    return static_cast<int64_t>(device_.memory_bytes) / kPage * kPage - kPage;
  }
  bool PlanFits();
  size_t StepAtPeak(const std::vector<MemoryBlock>& blocks) const;

  std::vector<Group> Groups() const;
  Executable Assemble();
  void LayOutParameters();
  void EmitProgram();
  void EmitParameters(const Group& group);
  void EmitParameters(size_t step, uint32_t address, const std::vector<uint8_t>& bytes);
  uint32_t PartAddress(size_t step, int32_t part) const;
  void EmitPartParameters(size_t step, int32_t part);
  void EmitParts(size_t step, OperandPlaces place);
  void EmitStep(size_t step, const RowBands* bands, int32_t band);
  void EmitInputRows(const RowBands& bands, int32_t band);
  void EmitSentRows(const RowBands& bands, int32_t band, size_t step);
  size_t LongestStep() const;
  void FillBoundary();
  std::vector<OnChipBlock> MapMemory() const;

  const Node& NodeAt(size_t step) const { return graph_.nodes[set_[step]]; }
  // Channels of one of the parts of a step; the first is the largest.
  ChannelRange Part(size_t step, int32_t part) const {
    const int64_t channels = lowered_[step]->divisible_channels();
    const int64_t most = DivideRoundingUp<int64_t>(channels, layout_.parts[step]);
    return {static_cast<int32_t>(std::min(channels, most * part)),
            static_cast<int32_t>(std::min(channels, most * (part + 1)))};
  }
  int64_t PartBytes(size_t step) const;
  int64_t ParameterBytes(size_t step) const {
    return static_cast<int64_t>(lowered_[step]->parameters().size());
  }
  // Blocks of the memory plan: tensors, then streamed parameters, then scratch of steps.
  size_t ParameterBlock(size_t step) const { return graph_.tensors.size() + step; }
  size_t ScratchBlock(size_t step) const { return graph_.tensors.size() + set_.size() + step; }
  const RowBands* BandsOf(size_t step) const {
    for (const RowBands& bands : layout_.bands) {
      if (bands.Contains(step)) return &bands;
    }
    return nullptr;
  }
  // Whether rows of an input or output of the set come or go while its bands run.
  bool MovesInRows(int32_t tensor) const {
    for (const RowBands& bands : layout_.bands) {
      if (bands.arriving() == tensor) return true;
      const int32_t writer = writer_[Root(tensor)];
      if (writer >= 0 && bands.Sends(static_cast<size_t>(writer))) return true;
    }
    return false;
  }
  // Activation-segment address of a tensor.
  uint32_t Address(int32_t tensor) const {
    return static_cast<uint32_t>(plan_.offsets[static_cast<size_t>(Root(tensor))]);
  }
  TensorPlace PlaceOf(int32_t tensor, const RowBands* bands, int32_t band) const;
  TensorPlace InputPlace(const RowBands& bands, int32_t band) const;
  int64_t InputBufferBytes(const RowBands& bands) const;
  // Where a step's parameters lie when it runs.
  uint32_t ParameterAddress(size_t step) const {
    return layout_.streamed[step] ? static_cast<uint32_t>(plan_.offsets[ParameterBlock(step)])
                                  : kParameterSegment | resident_offset_[step];
  }
  int32_t Root(int32_t tensor) const {
    while (alias_[tensor] != tensor) tensor = alias_[tensor];
    return tensor;
  }
  void Emit(Instruction instruction, const InstructionOrigin& origin) {
    executable_.inference_program.push_back(std::move(instruction));
    SetOrigin(origin);
  }
  // Of all instructions that have none yet.
  void SetOrigin(const InstructionOrigin& origin) {
    origins_.resize(executable_.inference_program.size(), origin);
  }

  const Graph& graph_;
  const std::vector<int32_t>& set_;
  const std::vector<int32_t>& inputs_;
  const std::vector<int32_t>& outputs_;
  const DeviceInfo& device_;

  std::vector<std::unique_ptr<const NodeLowering>> lowered_;  // per step
  std::vector<int32_t> alias_;   // per tensor: the tensor whose bytes it shares
  std::vector<int32_t> writer_;  // per tensor: the step that writes it, or -1
  std::vector<BandStep> steps_;
  ArrivingInput arriving_;
  Layout layout_;
  MemoryPlan plan_;
  std::vector<uint32_t> resident_offset_;  // per step, in the parameter segment
  Executable executable_;
  std::vector<InstructionOrigin> origins_;  // of executable_.inference_program
};

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

// ---- Layout -------------------------------------------------------------------------------------

// Of the layouts that fit the one whose program takes the device the least time: whole tensors and
// resident parameters, bands, streaming, or both of these; streaming with or without prefetch.
bool Compilation::ChooseLayout() {
  if (PlanFits()) return true;
  const Layout plain = layout_;
  std::optional<Layout> best;
  uint64_t best_cycles = 0;
  const bool bands_fit = AddBands();
  if (bands_fit) Consider(&best, &best_cycles);
  const auto stream = [&](Layout layout) {
    for (const bool prefetch : {true, false}) {
      layout_ = layout;
      layout_.prefetch = prefetch;
      if (AddStreaming()) Consider(&best, &best_cycles);
    }
  };
  stream(plain);
  if (!bands_fit) {
    // Bands around what is left on chip when everything is streamed, and then stream less.
    layout_ = plain;
    for (size_t step = 0; step < set_.size(); ++step) {
      layout_.streamed[step] = ParameterBytes(step) > 0;
    }
    if (AddBands()) {
      layout_.streamed = plain.streamed;
      stream(layout_);
    }
  }
  if (!best) {
    layout_ = plain;
    PlanFits();
    return false;
  }
  layout_ = *std::move(best);
  return PlanFits();
}

// Takes the present layout, which fits, if its program is faster than the best one so far.
void Compilation::Consider(std::optional<Layout>* best, uint64_t* best_cycles) {
  const uint64_t cycles = Assemble().estimated_cycles;
  if (*best && *best_cycles <= cycles) return;
  *best = layout_;
  *best_cycles = cycles;
}

// Streams the largest parameters first, which leaves the fewest bytes to stream per byte of memory
// gained, then takes back what turns out to have been too much.
bool Compilation::AddStreaming() {
  std::vector<size_t> by_size(set_.size());
  for (size_t i = 0; i < by_size.size(); ++i) by_size[i] = i;
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](size_t a, size_t b) { return ParameterBytes(a) > ParameterBytes(b); });
  bool fits = PlanFits();
  size_t streamed = 0;
  while (!fits && streamed < by_size.size() && ParameterBytes(by_size[streamed]) > 0) {
    layout_.streamed[by_size[streamed++]] = true;
    fits = PlanFits();
  }
  if (!fits && !AddParts()) return false;
  for (size_t i = 0; i + 1 < streamed; ++i) {
    const size_t step = by_size[i];
    const int32_t parts = std::exchange(layout_.parts[step], 1);
    layout_.streamed[step] = false;
    if (PlanFits()) continue;
    layout_.streamed[step] = true;
    layout_.parts[step] = parts;
  }
  return PlanFits();
}

// Divides the largest streamed parameters at the peak until everything fits.
bool Compilation::AddParts() {
  while (!PlanFits()) {
    const std::vector<MemoryBlock> blocks = MakeBlocks();
    const int32_t peak = static_cast<int32_t>(StepAtPeak(blocks));
    std::optional<size_t> largest;
    for (size_t step = 0; step < set_.size(); ++step) {
      const MemoryBlock& block = blocks[ParameterBlock(step)];
      const bool alive = block.first_use <= peak && peak <= block.last_use && block.size > 0;
      if (!alive || BandsOf(step) != nullptr ||
          layout_.parts[step] * 2 > lowered_[step]->divisible_channels()) {
        continue;
      }
      if (!largest || block.size > blocks[ParameterBlock(*largest)].size) largest = step;
    }
    if (!largest) return false;
    layout_.parts[*largest] *= 2;
  }
  return true;
}

// Computes steps around the peak in bands until everything fits.
bool Compilation::AddBands() {
  // What fits by the sum of its blocks may not fit as a plan: gaps between blocks remain.
  int64_t budget = MemoryBytes() - ResidentBytes();
  for (;;) {
    if (PlanFits()) return true;
    const std::vector<MemoryBlock> blocks = MakeBlocks();
    const size_t peak = StepAtPeak(blocks);
    const auto around_peak =
        std::find_if(layout_.bands.begin(), layout_.bands.end(),
                     [&](const RowBands& bands) { return bands.Contains(peak); });
    if (around_peak != layout_.bands.end() ||
        MemoryLowerBound(blocks, kOnChipAlignment) <= budget) {
      budget -= budget / 16;
      if (budget < kPage) return false;
      if (around_peak != layout_.bands.end()) layout_.bands.erase(around_peak);
    }
    std::optional<RowBands> bands = FindBands(peak, budget);
    if (!bands) return false;
    layout_.bands.insert(
        std::find_if(layout_.bands.begin(), layout_.bands.end(),
                     [&](const RowBands& other) { return other.first() > bands->first(); }),
        *std::move(bands));
  }
}

// The cheapest bands around a step with which no more than `budget` bytes are alive at once during
// the steps concerned. A step by itself, whose rows can only come from the host or go to it, is the
// last choice: its neighbours could no longer join it.
std::optional<RowBands> Compilation::FindBands(size_t peak, int64_t budget) const {
  const auto may_join = [&](size_t step) {
    return lowered_[step]->divides_into_rows() && BandsOf(step) == nullptr &&
           layout_.parts[step] == 1;
  };
  if (!may_join(peak)) return std::nullopt;
  const ArraySize array{device_.array_rows, device_.array_columns};
  const std::vector<MemoryBlock> whole = MakeBlocks();
  std::optional<RowBands> best;
  uint64_t best_cycles = 0;
  const auto consider = [&](size_t first, size_t last) {
    const uint64_t plain_cycles = RowBands(steps_, arriving_, first, last, 1).Cycles(steps_, array);
    for (int32_t count = 2; count <= std::min(kBandsMax, steps_[last].output_rows); count *= 2) {
      RowBands bands(steps_, arriving_, first, last, count);
      if (!FitsBands(bands, whole, budget)) continue;
      const uint64_t cycles = bands.Cycles(steps_, array) - plain_cycles;
      if (!best || cycles < best_cycles) {
        best = std::move(bands);
        best_cycles = cycles;
      }
      break;  // more bands only cost more
    }
  };
  for (size_t first = peak;; --first) {
    for (size_t last = std::max(peak, first + 1);
         last < set_.size() && last - first < kBandedStepsMax && may_join(last); ++last) {
      consider(first, last);
    }
    if (first == 0 || peak - first + 1 >= kBandedStepsMax || !may_join(first - 1)) break;
  }
  if (!best) consider(peak, peak);
  if (!best) return best;
  // Half as many are too few; fewer than these may do.
  for (int32_t too_few = best->bands() / 2; best->bands() - too_few > 1;) {
    const int32_t count = (best->bands() + too_few) / 2;
    RowBands bands(steps_, arriving_, best->first(), best->last(), count);
    if (FitsBands(bands, whole, budget)) {
      best = std::move(bands);
    } else {
      too_few = count;
    }
  }
  return best;
}

// Whether no more than `budget` bytes are alive at once during the steps of the bands, if `whole`
// is all there is without them.
bool Compilation::FitsBands(const RowBands& bands, const std::vector<MemoryBlock>& whole,
                            int64_t budget) const {
  std::vector<MemoryBlock> blocks = whole;
  Confine(bands, &blocks);
  for (size_t step = bands.first(); step <= bands.last(); ++step) {
    const int32_t at = static_cast<int32_t>(step);
    int64_t alive = 0;
    for (const MemoryBlock& block : blocks) {
      if (block.first_use <= at && at <= block.last_use) alive += block.size;
    }
    if (alive > budget) return false;
  }
  return true;
}

std::string Compilation::LayoutNote() const {
  std::string note;
  const auto add = [&](std::string sentence) {
    if (!note.empty()) note += "; ";
    note += std::move(sentence);
  };
  for (const RowBands& bands : layout_.bands) {
    int64_t whole = 0;
    for (size_t step = bands.first(); step <= bands.last(); ++step) {
      if (!bands.IsInternal(step)) continue;
      for (const int32_t tensor : NodeAt(step).outputs) whole += graph_.tensors[tensor].byte_size();
    }
    if (bands.first() == bands.last()) {
      add(Format(
          "node %d is computed in %d bands of rows, because its input and output do not fit on "
          "chip",
          set_[bands.first()], bands.bands()));
    } else {
      add(Format(
          "nodes %d to %d are computed in %d bands of rows, because the %lld bytes that pass "
          "between them do not fit on chip",
          set_[bands.first()], set_[bands.last()], bands.bands(), static_cast<long long>(whole)));
    }
    const bool sends = std::any_of(outputs_.begin(), outputs_.end(), [&](int32_t tensor) {
      const int32_t writer = writer_[Root(tensor)];
      return writer >= 0 && bands.Sends(static_cast<size_t>(writer));
    });
    if (bands.arriving() >= 0 || sends) {
      note += Format(" (%s%s%s while others are computed)",
                     bands.arriving() >= 0 ? "rows of the input arrive" : "",
                     bands.arriving() >= 0 && sends ? " and " : "",
                     sends ? "rows of the output leave" : "");
    }
  }
  for (size_t step = 0; step < set_.size(); ++step) {
    if (layout_.parts[step] == 1) continue;
    add(
        Format("node %d is computed in %d parts of its output channels, because its %lld bytes of "
               "parameters do not fit on chip at once",
               set_[step], layout_.parts[step], static_cast<long long>(ParameterBytes(step))));
  }
  const int64_t streamed = std::count(layout_.streamed.begin(), layout_.streamed.end(), true);
  if (streamed > 0) {
    add(Format(
        "parameters of %lld of %zu nodes (%zu bytes) do not fit into %llu bytes on chip "
        "beside %lld bytes of activations and are streamed for every inference",
        static_cast<long long>(streamed), set_.size(), executable_.streamed_parameters.size(),
        static_cast<unsigned long long>(device_.memory_bytes),
        static_cast<long long>(plan_.total)));
  }
  return note;
}

// What is alive at the step that needs the most memory, and what would make it fit.
std::string Compilation::DescribePeak(size_t peak) const {
  const std::vector<MemoryBlock> blocks = MakeBlocks();
  const int32_t at = static_cast<int32_t>(peak);
  std::vector<MemoryNeed> needs;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].size == 0 || blocks[i].first_use > at || blocks[i].last_use < at) continue;
    if (i >= graph_.tensors.size()) {
      if (i == ScratchBlock(peak)) needs.push_back({blocks[i].size, "room to work in"});
      continue;
    }
    // Names of tensors are long; most are those of the node.
    const std::string shape = ShapeString(graph_.tensors[i].shape);
    const auto is_one_of = [&](const std::vector<int32_t>& tensors) {
      return std::any_of(tensors.begin(), tensors.end(), [&](int32_t tensor) {
        return tensor >= 0 && Root(tensor) == static_cast<int32_t>(i);
      });
    };
    if (is_one_of(NodeAt(peak).outputs)) {
      needs.push_back({blocks[i].size, "its output " + shape});
    } else if (is_one_of(NodeAt(peak).inputs)) {
      needs.push_back({blocks[i].size, "its input " + shape});
    } else {
      needs.push_back({blocks[i].size, Format("tensor %zu %s", i, shape.c_str())});
    }
  }
  // At the least, parameters are there one after the other.
  if (ParameterBytes(peak) > 0) needs.push_back({ParameterBytes(peak), "its parameters"});
  return Format("%s and its neighbours need on-chip memory for %s; the device has %llu. %s",
                Describe(graph_, NodeAt(peak)).c_str(), DescribeNeeds(std::move(needs)).c_str(),
                static_cast<unsigned long long>(device_.memory_bytes), kMemoryAdvice);
}

// ---- Memory -------------------------------------------------------------------------------------

// Lifetimes: inputs arrive before step 0, outputs leave after the last step, streamed parameters
// and scratch live during their step.
std::vector<MemoryBlock> Compilation::MakeBlocks() const {
  const int32_t last = static_cast<int32_t>(set_.size());
  std::vector<MemoryBlock> blocks(graph_.tensors.size() + 2 * set_.size());
  // An empty life, so that no step counts what has not been touched.
  for (MemoryBlock& block : blocks) block = {.size = 0, .first_use = 0, .last_use = -2};
  const auto touch = [&](int32_t tensor, int32_t step) {
    if (tensor < 0 || graph_.tensors[tensor].is_constant()) return;
    const int32_t root = Root(tensor);
    MemoryBlock& block = blocks[root];
    if (block.size == 0) {
      block.size = graph_.tensors[root].byte_size();
      block.first_use = step;
    }
    block.last_use = std::max(block.last_use, step);
  };
  for (const int32_t tensor : inputs_) touch(tensor, -1);
  for (size_t step = 0; step < set_.size(); ++step) {
    const int32_t at = static_cast<int32_t>(step);
    for (const int32_t tensor : NodeAt(step).outputs) touch(tensor, at);
    for (const int32_t tensor : NodeAt(step).inputs) touch(tensor, at);
    int64_t scratch = lowered_[step]->scratch_bytes(steps_[step].output_rows);
    if (layout_.parts[step] > 1) {
      const ChannelRange part = Part(step, 0);
      blocks[ParameterBlock(step)] = {2 * PartBytes(step), at, at};
      scratch = lowered_[step]->PartScratchBytes(part.begin, part.end);
    } else if (layout_.streamed[step]) {
      blocks[ParameterBlock(step)] = {ParameterBytes(step), at, at};
    }
    blocks[ScratchBlock(step)] = {scratch, at, at};
  }
  for (const int32_t tensor : outputs_) touch(tensor, last);
  for (const RowBands& bands : layout_.bands) Confine(bands, &blocks);
  if (layout_.prefetch) {
    int32_t before = -1;
    for (const Group& group : Groups()) {
      for (size_t step = group.first; step <= group.last; ++step) {
        if (layout_.streamed[step]) blocks[ParameterBlock(step)].first_use = before;
      }
      before = static_cast<int32_t>(group.first);
    }
  }
  return blocks;
}

// Shrinks what stays inside to one band, and an input that arrives in rows to two; everything else
// that the steps touch is there from the first of them to the last, because they all run in turn
// for every band.
void Compilation::Confine(const RowBands& bands, std::vector<MemoryBlock>* blocks) const {
  const int32_t first = static_cast<int32_t>(bands.first());
  const int32_t last = static_cast<int32_t>(bands.last());
  const auto extend = [&](MemoryBlock& block) {
    if (block.size == 0) return;
    block.first_use = std::min(block.first_use, first);
    block.last_use = std::max(block.last_use, last);
  };
  for (size_t step = bands.first(); step <= bands.last(); ++step) {
    const Node& node = NodeAt(step);
    const int32_t rows = bands.BandRows(step);
    for (const int32_t tensor : node.outputs) {
      MemoryBlock& output = (*blocks)[Root(tensor)];
      if (bands.IsInternal(step)) {
        output.size = rows * RowBytes(graph_.tensors[tensor]);
        output.last_use = std::max(static_cast<int32_t>(step), steps_[step].last_reader);
      } else {
        extend(output);
      }
    }
    (*blocks)[ScratchBlock(step)].size = lowered_[step]->scratch_bytes(rows);
    for (const int32_t tensor : node.inputs) {
      if (tensor < 0) continue;
      const int32_t root = Root(tensor);
      const int32_t writer = writer_[root];
      const bool inside = writer >= first && writer <= last;
      if (!inside) extend((*blocks)[root]);
    }
    extend((*blocks)[ParameterBlock(step)]);
  }
  if (bands.arriving() >= 0) {
    (*blocks)[bands.arriving()] = {2 * InputBufferBytes(bands), first, last};
  }
}

// Of each of the two buffers of the input that arrives.
int64_t Compilation::InputBufferBytes(const RowBands& bands) const {
  const int64_t bytes = bands.InputBandRows() * RowBytes(graph_.tensors[bands.arriving()]);
  return static_cast<int64_t>(AlignUp(static_cast<uint64_t>(bytes), kOnChipAlignment));
}

// Of the buffer for one part.
int64_t Compilation::PartBytes(size_t step) const {
  const ChannelRange part = Part(step, 0);
  const int64_t bytes = lowered_[step]->PartParameterBytes(part.begin, part.end);
  return static_cast<int64_t>(AlignUp(static_cast<uint64_t>(bytes), kOnChipAlignment));
}

int64_t Compilation::ResidentBytes() const {
  int64_t bytes = 0;
  for (size_t step = 0; step < set_.size(); ++step) {
    if (!layout_.streamed[step]) {
      bytes += static_cast<int64_t>(AlignUp(static_cast<uint64_t>(ParameterBytes(step)),
                                            static_cast<uint64_t>(kOnChipAlignment)));
    }
  }
  return bytes;
}

bool Compilation::PlanFits() {
  plan_ = PlanMemory(MakeBlocks(), kOnChipAlignment);
  return plan_.total + ResidentBytes() <= MemoryBytes();
}

// The step at which the most bytes are alive.
size_t Compilation::StepAtPeak(const std::vector<MemoryBlock>& blocks) const {
  size_t peak = 0;
  int64_t peak_bytes = -1;
  for (size_t step = 0; step < set_.size(); ++step) {
    const int32_t at = static_cast<int32_t>(step);
    int64_t alive = 0;
    for (const MemoryBlock& block : blocks) {
      if (block.first_use <= at && at <= block.last_use) alive += block.size;
    }
    if (alive > peak_bytes) {
      peak_bytes = alive;
      peak = step;
    }
  }
  return peak;
}

// ---- Program ------------------------------------------------------------------------------------

void Compilation::LayOutParameters() {
  std::vector<uint8_t>& resident = executable_.resident_parameters;
  for (size_t step = 0; step < set_.size(); ++step) {
    const std::vector<uint8_t>& bytes = lowered_[step]->parameters();
    if (bytes.empty() || layout_.streamed[step]) continue;
    resident.resize(AlignUp(resident.size(), static_cast<uint64_t>(kOnChipAlignment)));
    resident_offset_[step] = static_cast<uint32_t>(resident.size());
    resident.insert(resident.end(), bytes.begin(), bytes.end());
  }
  if (resident.empty()) return;
  executable_.caching_program = {
      ParametersInstruction{.output_address = kParameterSegment,
                            .bytes = static_cast<uint32_t>(resident.size())},
      EndInstruction{}};
}

std::vector<Compilation::Group> Compilation::Groups() const {
  std::vector<Group> groups;
  for (size_t step = 0; step < set_.size();) {
    const RowBands* bands = BandsOf(step);
    groups.push_back({step, bands != nullptr ? bands->last() : step, bands});
    step = groups.back().last + 1;
  }
  return groups;
}

// The executable of the present layout and plan.
Executable Compilation::Assemble() {
  executable_ = Executable();
  origins_.clear();
  LayOutParameters();
  executable_.name = graph_.name.empty() ? "partition" : graph_.name;
  executable_.activation_bytes = static_cast<uint64_t>(plan_.total);
  executable_.array_rows = device_.array_rows;
  executable_.array_columns = device_.array_columns;
  EmitProgram();
  for (const InstructionOrigin& origin : origins_) {
    const bool is_step = origin.step >= 0 && origin.step < static_cast<int32_t>(set_.size());
    executable_.inference_nodes.push_back(is_step && !origin.moves_rows ? origin.step : -1);
  }
  FillBoundary();
  executable_.estimated_cycles =
      SummarizeProgram(executable_.inference_program, ScheduleOptionsOf(device_)).total;
  return std::move(executable_);
}

void Compilation::EmitProgram() {
  for (const int32_t tensor : inputs_) {
    if (MovesInRows(tensor)) continue;
    Emit(InputInstruction{.output_address = Address(tensor),
                          .bytes = static_cast<uint32_t>(graph_.tensors[tensor].byte_size())},
         {.step = -1});
  }
  const std::vector<Group> groups = Groups();
  if (layout_.prefetch && !groups.empty()) EmitParameters(groups[0]);
  for (size_t i = 0; i < groups.size(); ++i) {
    const Group& group = groups[i];
    const auto prefetch_next = [&] {
      if (layout_.prefetch && i + 1 < groups.size()) EmitParameters(groups[i + 1]);
    };
    if (!layout_.prefetch) EmitParameters(group);
    // A step in parts keeps the link busy by itself.
    const bool in_parts = layout_.parts[group.first] > 1;
    if (!in_parts) prefetch_next();
    const int32_t bands = group.bands != nullptr ? group.bands->bands() : 1;
    for (int32_t band = 0; band < bands; ++band) {
      if (group.bands != nullptr) EmitInputRows(*group.bands, band);
      for (size_t step = group.first; step <= group.last; ++step) {
        EmitStep(step, group.bands, band);
        if (group.bands != nullptr) EmitSentRows(*group.bands, band, step);
      }
    }
    if (in_parts) prefetch_next();
  }
  const InstructionOrigin behind_steps{.step = static_cast<int32_t>(set_.size())};
  for (const int32_t tensor : outputs_) {
    if (MovesInRows(tensor)) continue;
    Emit(OutputInstruction{.input_address = Address(tensor),
                           .bytes = static_cast<uint32_t>(graph_.tensors[tensor].byte_size())},
         behind_steps);
  }
  Emit(EndInstruction{}, behind_steps);
}

void Compilation::EmitParameters(const Group& group) {
  for (size_t step = group.first; step <= group.last; ++step) {
    if (!layout_.streamed[step]) continue;
    if (layout_.parts[step] > 1) {
      EmitPartParameters(step, 0);
    } else {
      EmitParameters(step, ParameterAddress(step), lowered_[step]->parameters());
    }
  }
}

void Compilation::EmitParameters(size_t step, uint32_t address, const std::vector<uint8_t>& bytes) {
  Emit(ParametersInstruction{.output_address = address,
                             .bytes = static_cast<uint32_t>(bytes.size())},
       {.step = static_cast<int32_t>(step), .fetches_parameters = true});
  std::vector<uint8_t>& stream = executable_.streamed_parameters;
  stream.insert(stream.end(), bytes.begin(), bytes.end());
}

uint32_t Compilation::PartAddress(size_t step, int32_t part) const {
  return ParameterAddress(step) + (part % 2 == 0 ? 0 : static_cast<uint32_t>(PartBytes(step)));
}

void Compilation::EmitPartParameters(size_t step, int32_t part) {
  const ChannelRange channels = Part(step, part);
  EmitParameters(step, PartAddress(step, part),
                 lowered_[step]->PartParameters(channels.begin, channels.end));
}

// Parameters of the next part are on their way while one is computed.
void Compilation::EmitParts(size_t step, OperandPlaces place) {
  for (int32_t part = 0; part < layout_.parts[step]; ++part) {
    const ChannelRange channels = Part(step, part);
    if (channels.count() == 0) break;
    const bool more = part + 1 < layout_.parts[step] && Part(step, part + 1).count() > 0;
    if (more) EmitPartParameters(step, part + 1);
    place.parameters = PartAddress(step, part);
    lowered_[step]->EmitPart(place, channels.begin, channels.end, &executable_.inference_program);
    SetOrigin({.step = static_cast<int32_t>(step)});
  }
}

TensorPlace Compilation::PlaceOf(int32_t tensor, const RowBands* bands, int32_t band) const {
  const RowRange all = AllRows(graph_.tensors[tensor]);
  if (bands == nullptr) return {Address(tensor), all};
  if (tensor == bands->arriving()) return InputPlace(*bands, band);
  const int32_t writer = writer_[tensor];
  const bool internal = writer >= 0 && bands->Contains(static_cast<size_t>(writer)) &&
                        bands->IsInternal(static_cast<size_t>(writer));
  return {Address(tensor), internal ? bands->Rows(band, static_cast<size_t>(writer)) : all};
}

void Compilation::EmitStep(size_t step, const RowBands* bands, int32_t band) {
  const Node& node = NodeAt(step);
  const RowRange rows = bands != nullptr ? bands->Rows(band, step) : AllRows(graph_.Output(node));
  if (bands != nullptr && rows.count() <= 0) return;
  OperandPlaces place;
  for (const int32_t tensor : node.inputs) {
    const bool is_activation = tensor >= 0 && !graph_.tensors[tensor].is_constant();
    place.inputs.push_back(is_activation ? PlaceOf(tensor, bands, band) : TensorPlace());
  }
  for (const int32_t tensor : node.outputs) place.outputs.push_back(PlaceOf(tensor, bands, band));
  place.parameters = ParameterAddress(step);
  place.scratch = static_cast<uint32_t>(plan_.offsets[ScratchBlock(step)]);
  if (layout_.parts[step] > 1) {
    EmitParts(step, std::move(place));
    return;
  }
  lowered_[step]->Emit(place, rows, &executable_.inference_program);
  SetOrigin({.step = static_cast<int32_t>(step), .band = band});
}

// Where the rows lie that a band has of the input that arrives: in the two buffers in turn.
TensorPlace Compilation::InputPlace(const RowBands& bands, int32_t band) const {
  const int64_t offset = band % 2 == 0 ? 0 : InputBufferBytes(bands);
  return {Address(bands.arriving()) + static_cast<uint32_t>(offset), bands.InputRows(band)};
}

// Those rows that are here already move over from the other buffer; the others arrive.
void Compilation::EmitInputRows(const RowBands& bands, int32_t band) {
  if (bands.arriving() < 0) return;
  const uint32_t row_bytes = static_cast<uint32_t>(RowBytes(graph_.tensors[bands.arriving()]));
  const TensorPlace place = InputPlace(bands, band);
  int32_t here = place.rows.begin;
  if (band > 0) {
    const TensorPlace before = InputPlace(bands, band - 1);
    here = before.rows.end;
    const int32_t kept = here - place.rows.begin;
    if (kept > 0) {
      const int32_t skipped = place.rows.begin - before.rows.begin;
      CopyInstruction copy{
          .input_address = before.address + static_cast<uint32_t>(skipped) * row_bytes,
          .output_address = place.address,
          .bytes = static_cast<uint32_t>(kept) * row_bytes};
      copy.count0 = copy.count1 = copy.count2 = copy.count3 = copy.count4 = 1;
      executable_.inference_program.push_back(copy);
    }
  }
  if (place.rows.end > here) {
    executable_.inference_program.push_back(InputInstruction{
        .output_address =
            place.address + static_cast<uint32_t>(here - place.rows.begin) * row_bytes,
        .bytes = static_cast<uint32_t>(place.rows.end - here) * row_bytes});
  }
  SetOrigin({.step = static_cast<int32_t>(bands.first()), .band = band, .moves_rows = true});
}

void Compilation::EmitSentRows(const RowBands& bands, int32_t band, size_t step) {
  if (!bands.Sends(step) || bands.SentRows(band).count() <= 0) return;
  const int32_t tensor = NodeAt(step).outputs[0];
  const int64_t row_bytes = RowBytes(graph_.tensors[tensor]);
  const TensorPlace place = PlaceOf(tensor, &bands, band);
  const RowRange sent = bands.SentRows(band);
  const int64_t offset = (sent.begin - place.rows.begin) * row_bytes;
  Emit(OutputInstruction{.input_address = place.address + static_cast<uint32_t>(offset),
                         .bytes = static_cast<uint32_t>(sent.count() * row_bytes)},
       {.step = static_cast<int32_t>(step), .band = band, .moves_rows = true});
}

// The step that takes the most instructions.
size_t Compilation::LongestStep() const {
  size_t longest = 0;
  size_t most = 0;
  for (size_t step = 0; step < set_.size(); ++step) {
    OperandPlaces place;
    place.inputs.resize(NodeAt(step).inputs.size());
    place.outputs.resize(NodeAt(step).outputs.size());
    std::vector<Instruction> program;
    lowered_[step]->Emit(place, AllRows(graph_.Output(NodeAt(step))), &program);
    if (program.size() > most) {
      most = program.size();
      longest = step;
    }
  }
  return longest;
}

void Compilation::FillBoundary() {
  const auto layer = [&](int32_t index) {
    const Tensor& tensor = graph_.tensors[index];
    return Layer{.name = tensor.name,
                 .type = LayerTypeOf(tensor.type),
                 .shape = tensor.shape,
                 .bytes = static_cast<uint64_t>(tensor.byte_size())};
  };
  for (const int32_t tensor : inputs_) executable_.inputs.push_back(layer(tensor));
  for (const int32_t tensor : outputs_) executable_.outputs.push_back(layer(tensor));
}

// ---- Report -------------------------------------------------------------------------------------

std::vector<OnChipBlock> Compilation::MapMemory() const {
  using Kind = OnChipBlock::Kind;
  std::vector<OnChipBlock> map;
  const auto add = [&](OnChipBlock block, const InstructionRange& life) {
    block.first_instruction = life.first;
    block.last_instruction = life.last;
    map.push_back(block);
  };
  const std::vector<MemoryBlock> blocks = MakeBlocks();
  for (size_t i = 0; i < graph_.tensors.size(); ++i) {
    if (blocks[i].size == 0) continue;
    const int32_t writer = writer_[i];
    const RowBands* bands = writer >= 0 ? BandsOf(static_cast<size_t>(writer)) : nullptr;
    const bool refilled = bands != nullptr && bands->IsInternal(static_cast<size_t>(writer));
    const OnChipBlock block{.kind = Kind::kTensor,
                            .tensor = static_cast<int32_t>(i),
                            .node = writer >= 0 ? set_[writer] : -1,
                            .offset = plan_.offsets[i],
                            .bytes = blocks[i].size};
    for (const InstructionRange& life :
         InstructionsOf(blocks[i], refilled ? bands->bands() : 1, origins_)) {
      add(block, life);
    }
  }
  const InstructionRange whole_program{0, static_cast<int32_t>(origins_.size()) - 1};
  for (size_t step = 0; step < set_.size(); ++step) {
    if (const int64_t bytes = ParameterBytes(step); bytes > 0 && !layout_.streamed[step]) {
      add({.kind = Kind::kResidentParameters,
           .node = set_[step],
           .offset = resident_offset_[step],
           .bytes = bytes},
          whole_program);
    }
    const size_t parameters = ParameterBlock(step);
    if (const auto life =
            InstructionsOfParameters(blocks[parameters], static_cast<int32_t>(step), origins_)) {
      add({.kind = Kind::kStreamedParameters,
           .node = set_[step],
           .offset = plan_.offsets[parameters],
           .bytes = blocks[parameters].size},
          *life);
    }
    const size_t scratch = ScratchBlock(step);
    if (blocks[scratch].size == 0) continue;
    const RowBands* bands = BandsOf(step);
    for (const InstructionRange& life :
         InstructionsOf(blocks[scratch], bands != nullptr ? bands->bands() : 1, origins_)) {
      add({.kind = Kind::kScratch,
           .node = set_[step],
           .offset = plan_.offsets[scratch],
           .bytes = blocks[scratch].size},
          life);
    }
  }
  return map;
}

}  // namespace

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
