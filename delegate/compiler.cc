// SPDX-License-Identifier: Apache-2.0
#include "delegate/compiler.h"

#include <algorithm>
#include <optional>

#include "delegate/lowering.h"
#include "delegate/row_bands.h"
#include "driver/timing.h"
#include "runtime/base/bytes.h"
#include "runtime/memory_planner.h"

namespace atollrt {
namespace {

// The driver hands out memory in whole pages of 4 KiB.
constexpr int64_t kPage = 4096;
// How many steps at most are computed in bands together, and in how many bands.
constexpr size_t kBandedStepsMax = 16;
constexpr int32_t kBandsMax = 64;

// A set on its way to an executable.
class Compilation {
 public:
  Compilation(const Graph& graph, const std::vector<int32_t>& set,
              const std::vector<int32_t>& inputs, const std::vector<int32_t>& outputs,
              const DeviceInfo& device)
      : graph_(graph),
        set_(set),
        inputs_(inputs),
        outputs_(outputs),
        device_(device),
        array_{device.array_rows, device.array_columns} {}

  Result<CompiledSet> Run(CompileFailure* failure);

 private:
  // What the memory plan is made for: which parameters are streamed, which steps run in bands.
  struct Layout {
    std::vector<bool> streamed;   // per step
    std::vector<RowBands> bands;  // in the order of steps, disjoint
  };

  Status LowerNodes();
  void ResolveAliases();
  void FindReaders();

  bool ChooseLayout();
  bool AddBands();
  bool AddStreaming();
  std::optional<RowBands> FindBands(size_t peak, int64_t budget) const;
  double LayoutSeconds() const;
  std::string LayoutNote() const;

  std::vector<MemoryBlock> MakeBlocks() const;
  void Confine(const RowBands& bands, std::vector<MemoryBlock>* blocks) const;
  int64_t ResidentBytes() const;
  int64_t MemoryBytes() const {
    return static_cast<int64_t>(device_.memory_bytes) / kPage * kPage - kPage;
  }
  bool PlanFits();
  size_t StepAtPeak(const std::vector<MemoryBlock>& blocks) const;

  void LayOutParameters();
  void EmitProgram();
  void EmitParameters(size_t step);
  void EmitStep(size_t step, const RowBands* bands, int32_t band);
  size_t LongestStep() const;
  void FillBoundary();

  const Node& NodeAt(size_t step) const { return graph_.nodes[set_[step]]; }
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
  // Activation-segment address of a tensor.
  uint32_t Address(int32_t tensor) const {
    return static_cast<uint32_t>(plan_.offsets[static_cast<size_t>(Root(tensor))]);
  }
  TensorPlace PlaceOf(int32_t tensor, const RowBands* bands, int32_t band) const;
  // Where a step's parameters lie when it runs.
  uint32_t ParameterAddress(size_t step) const {
    return layout_.streamed[step] ? static_cast<uint32_t>(plan_.offsets[ParameterBlock(step)])
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
  const ArraySize array_;

  std::vector<std::unique_ptr<const NodeLowering>> lowered_;  // per step
  std::vector<int32_t> alias_;   // per tensor: the tensor whose bytes it shares
  std::vector<int32_t> writer_;  // per tensor: the step that writes it, or -1
  std::vector<BandStep> steps_;
  Layout layout_;
  MemoryPlan plan_;
  std::vector<uint32_t> resident_offset_;  // per step, in the parameter segment
  Executable executable_;
};

Result<CompiledSet> Compilation::Run(CompileFailure* failure) {
  ATOLL_RETURN_IF_ERROR(LowerNodes());
  ResolveAliases();
  FindReaders();
  if (!ChooseLayout()) {
    failure->node = set_[StepAtPeak(MakeBlocks())];
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
  EmitProgram();
  const size_t instructions =
      executable_.caching_program.size() + executable_.inference_program.size();
  if (instructions * kInstructionBytes > device_.program_memory_bytes) {
    failure->node = set_[LongestStep()];
    return ResourceExhausted(
        "its partition takes %zu instructions, most of them for %s; the device has room for %llu",
        instructions, Describe(graph_, graph_.nodes[failure->node]).c_str(),
        static_cast<unsigned long long>(device_.program_memory_bytes / kInstructionBytes));
  }
  FillBoundary();
  for (const Instruction& instruction : executable_.inference_program) {
    executable_.estimated_cycles += IssueCycles(array_) + ExecutionCycles(instruction, array_);
  }
  std::string note = LayoutNote();
  return CompiledSet{.executable = std::move(executable_), .note = std::move(note)};
}

Status Compilation::LowerNodes() {
  for (size_t step = 0; step < set_.size(); ++step) {
    ATOLL_ASSIGN_OR_RETURN(auto lowering, LowerNode(graph_, NodeAt(step)));
    lowered_.push_back(std::move(lowering));
  }
  layout_.streamed.assign(set_.size(), false);
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
  for (const int32_t tensor : outputs_) read(tensor, set_.size());
}

// ---- Layout -------------------------------------------------------------------------------------

// Whole tensors and resident parameters if they fit; else bands or streaming, whichever the model
// of the device says is faster; else both.
bool Compilation::ChooseLayout() {
  if (PlanFits()) return true;
  const Layout plain = layout_;
  const bool bands_fit = AddBands();
  const Layout banded = layout_;
  const double banded_seconds = LayoutSeconds();
  layout_ = plain;
  if (AddStreaming() && (!bands_fit || LayoutSeconds() <= banded_seconds)) return true;
  if (bands_fit) {
    layout_ = banded;
    return PlanFits();
  }
  // Bands around what is left on chip when everything is streamed, and then stream less.
  layout_ = plain;
  for (size_t step = 0; step < set_.size(); ++step) {
    layout_.streamed[step] = ParameterBytes(step) > 0;
  }
  if (!AddBands()) return false;
  layout_.streamed = plain.streamed;
  return AddStreaming();
}

// Time that the layout costs beyond a plain one.
double Compilation::LayoutSeconds() const {
  uint64_t cycles = 0, plain_cycles = 0;
  for (const RowBands& bands : layout_.bands) {
    cycles += bands.Cycles(steps_, array_);
    plain_cycles += RowBands(steps_, bands.first(), bands.last(), 1).Cycles(steps_, array_);
  }
  uint64_t bytes = 0;
  for (size_t step = 0; step < set_.size(); ++step) {
    if (layout_.streamed[step]) bytes += static_cast<uint64_t>(ParameterBytes(step));
  }
  return EstimateSeconds(device_, cycles - std::min(cycles, plain_cycles), bytes);
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
  if (!fits) return false;
  for (size_t i = 0; i + 1 < streamed; ++i) {
    layout_.streamed[by_size[i]] = false;
    if (!PlanFits()) layout_.streamed[by_size[i]] = true;
  }
  return PlanFits();
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
// the steps concerned.
std::optional<RowBands> Compilation::FindBands(size_t peak, int64_t budget) const {
  const auto may_join = [&](size_t step) {
    return lowered_[step]->divides_into_rows() && BandsOf(step) == nullptr;
  };
  if (!may_join(peak)) return std::nullopt;
  const std::vector<MemoryBlock> whole = MakeBlocks();
  std::optional<RowBands> best;
  uint64_t best_cycles = 0;
  for (size_t first = peak;; --first) {
    for (size_t last = std::max(peak, first + 1);
         last < set_.size() && last - first < kBandedStepsMax && may_join(last); ++last) {
      const uint64_t plain_cycles = RowBands(steps_, first, last, 1).Cycles(steps_, array_);
      for (int32_t count = 2; count <= std::min(kBandsMax, steps_[last].output_rows); count *= 2) {
        RowBands bands(steps_, first, last, count);
        std::vector<MemoryBlock> blocks = whole;
        Confine(bands, &blocks);
        int64_t most = 0;
        for (size_t step = first; step <= last; ++step) {
          int64_t alive = 0;
          for (const MemoryBlock& block : blocks) {
            const int32_t at = static_cast<int32_t>(step);
            if (block.first_use <= at && at <= block.last_use) alive += block.size;
          }
          most = std::max(most, alive);
        }
        if (most > budget) continue;
        const uint64_t cycles = bands.Cycles(steps_, array_) - plain_cycles;
        if (!best || cycles < best_cycles) {
          best = std::move(bands);
          best_cycles = cycles;
        }
        break;  // more bands only cost more
      }
    }
    if (first == 0 || peak - first + 1 >= kBandedStepsMax || !may_join(first - 1)) break;
  }
  return best;
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
    add(Format(
        "nodes %d to %d are computed in %d bands of rows, because the %lld bytes that pass "
        "between them do not fit on chip",
        set_[bands.first()], set_[bands.last()], bands.bands(), static_cast<long long>(whole)));
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
    if (layout_.streamed[step]) {
      blocks[ParameterBlock(step)] = {ParameterBytes(step), at, at};
    }
    blocks[ScratchBlock(step)] = {lowered_[step]->scratch_bytes(steps_[step].output_rows), at, at};
  }
  for (const int32_t tensor : outputs_) touch(tensor, last);
  for (const RowBands& bands : layout_.bands) Confine(bands, &blocks);
  return blocks;
}

// Shrinks what stays inside to one band; everything else that the steps touch is there from the
// first of them to the last, because they all run in turn for every band.
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
  const auto append = [](std::span<const uint8_t> bytes, std::vector<uint8_t>* out) {
    out->insert(out->end(), bytes.begin(), bytes.end());
  };
  std::vector<uint8_t>& resident = executable_.resident_parameters;
  for (size_t step = 0; step < set_.size(); ++step) {
    const std::vector<uint8_t>& bytes = lowered_[step]->parameters();
    if (bytes.empty()) continue;
    if (layout_.streamed[step]) {
      append(bytes, &executable_.streamed_parameters);
      continue;
    }
    resident.resize(AlignUp(resident.size(), static_cast<uint64_t>(kOnChipAlignment)));
    resident_offset_[step] = static_cast<uint32_t>(resident.size());
    append(bytes, &resident);
  }
  if (resident.empty()) return;
  executable_.caching_program = {
      ParametersInstruction{.output_address = kParameterSegment,
                            .bytes = static_cast<uint32_t>(resident.size())},
      EndInstruction{}};
}

void Compilation::EmitProgram() {
  for (const int32_t tensor : inputs_) {
    Emit(InputInstruction{.output_address = Address(tensor),
                          .bytes = static_cast<uint32_t>(graph_.tensors[tensor].byte_size())});
  }
  for (size_t step = 0; step < set_.size(); ++step) {
    const RowBands* bands = BandsOf(step);
    if (bands == nullptr) {
      EmitParameters(step);
      EmitStep(step, nullptr, 0);
      continue;
    }
    for (size_t member = bands->first(); member <= bands->last(); ++member) EmitParameters(member);
    for (int32_t band = 0; band < bands->bands(); ++band) {
      for (size_t member = bands->first(); member <= bands->last(); ++member) {
        EmitStep(member, bands, band);
      }
    }
    step = bands->last();
  }
  for (const int32_t tensor : outputs_) {
    Emit(OutputInstruction{.input_address = Address(tensor),
                           .bytes = static_cast<uint32_t>(graph_.tensors[tensor].byte_size())});
  }
  Emit(EndInstruction{});
}

void Compilation::EmitParameters(size_t step) {
  if (!layout_.streamed[step]) return;
  Emit(ParametersInstruction{.output_address = ParameterAddress(step),
                             .bytes = static_cast<uint32_t>(ParameterBytes(step))});
}

TensorPlace Compilation::PlaceOf(int32_t tensor, const RowBands* bands, int32_t band) const {
  const RowRange all = AllRows(graph_.tensors[tensor]);
  if (bands == nullptr) return {Address(tensor), all};
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
  lowered_[step]->Emit(place, rows, &executable_.inference_program);
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
                 .type = tensor.type == DataType::kUInt8 ? LayerType::kUInt8 : LayerType::kInt8,
                 .shape = tensor.shape,
                 .bytes = static_cast<uint64_t>(tensor.byte_size())};
  };
  for (const int32_t tensor : inputs_) executable_.inputs.push_back(layer(tensor));
  for (const int32_t tensor : outputs_) executable_.outputs.push_back(layer(tensor));
}

}  // namespace

Result<CompiledSet> CompileSet(const Graph& graph, const std::vector<int32_t>& set,
                               const std::vector<int32_t>& inputs,
                               const std::vector<int32_t>& outputs, const DeviceInfo& device,
                               CompileFailure* failure) {
  return Compilation(graph, set, inputs, outputs, device).Run(failure);
}

double EstimateSeconds(const DeviceInfo& device, uint64_t cycles, uint64_t link_bytes) {
  return static_cast<double>(cycles) / static_cast<double>(device.clock_hz) +
         static_cast<double>(link_bytes) / static_cast<double>(device.link_bytes_per_second);
}

}  // namespace atollrt
