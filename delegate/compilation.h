// SPDX-License-Identifier: Apache-2.0
//
// Compilation: a set of nodes on its way to an executable, for compiler*.cc only. compiler.cc
// lowers the nodes and finds who reads what; compiler_layout.cc decides what is streamed and what
// runs in bands or parts, and plans the memory for it; compiler_program.cc writes the program of a
// layout, and the report.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "delegate/compiler.h"
#include "delegate/lowering.h"
#include "delegate/row_bands.h"
#include "runtime/base/bytes.h"
#include "runtime/plan/memory_planner.h"

namespace atollrt {

// ---- The memory plan, which is made in steps, told in instructions of the program, for reports
// ----

// Which part of the plan an instruction carries out.
struct InstructionOrigin {
  int32_t step = -1;  // -1: takes inputs, before all steps; behind the last one: gives outputs
  int32_t band = 0;   // of a step that runs in bands of rows
  bool fetches_parameters = false;  // PARAMETERS: runs before its step does
  bool moves_rows = false;          // of an input or output, for the band: computes no node
};

// Instructions [first, last].
struct InstructionRange {
  int32_t first = 0, last = 0;
  bool operator==(const InstructionRange&) const = default;
};

// The life of a tensor or of scratch: one range, or, for what is used anew for each of `bands`
// bands, up to one for each, in ascending order. None if its steps have no instructions. Looks at
// the instructions of `around` only, beginning from both ends: outside of it there are none that
// belong to it.
std::vector<InstructionRange> InstructionsOf(const MemoryBlock& block, int32_t bands,
                                             std::span<const InstructionOrigin> origins,
                                             InstructionRange around);

// The life of the streamed parameters of `step`, from the first instruction that fetches them on;
// none if nothing does.
std::vector<InstructionRange> InstructionsOfParameters(const MemoryBlock& block, int32_t step,
                                                       std::span<const InstructionOrigin> origins,
                                                       InstructionRange around);

template <typename T>
void SortAndUnify(std::vector<T>* list) {
  std::sort(list->begin(), list->end());
  list->erase(std::unique(list->begin(), list->end()), list->end());
}

// ---- The compiler -------------------------------------------------------------------------------

class Compilation {
 public:
  Compilation(const Graph& graph, const std::vector<int32_t>& set,
              const std::vector<int32_t>& inputs, const std::vector<int32_t>& outputs,
              const DeviceInfo& device)
      : graph_(graph), set_(set), inputs_(inputs), outputs_(outputs), device_(device) {}

  Result<CompiledSet> Run(WhenTooLarge when_too_large, CompileFailure* failure);

 private:
  // The driver hands out memory in whole pages of 4 KiB.
  static constexpr int64_t kPage = 4096;
  // Of sets of more steps than this the longer searches for a layout are not tried. No network that
  // people use has as many.
  static constexpr size_t kSearchedSteps = 1024;

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

  void NumberTensors();
  Status LowerNodes(CompileFailure* failure);
  void ResolveAliases();
  void FindReaders();
  void FindMovingRows();
  std::vector<size_t> CountInstructions() const;
  Status Cut(size_t pieces, const std::vector<size_t>& instructions, const std::string& reason,
             CompileFailure* failure) const;
  Status FitProgram(size_t instructions, std::vector<size_t> counts, CompileFailure* failure) const;

  bool ChooseLayout();
  bool AddBands();
  bool AddStreaming();
  bool AddParts();
  std::optional<RowBands> FindBands(size_t peak, int64_t budget,
                                    std::vector<MemoryBlock> blocks) const;
  int64_t WholeBytes(size_t first, size_t last, const std::vector<MemoryBlock>& blocks) const;
  bool FitsBands(const RowBands& bands, int64_t budget, const std::vector<int64_t>& alive,
                 std::vector<MemoryBlock>* blocks) const;
  void Consider(std::optional<Layout>* best, uint64_t* best_cycles);
  std::string LayoutNote() const;
  std::string DescribePeak(size_t peak, const std::vector<MemoryBlock>& blocks) const;

  std::vector<MemoryBlock> MakeBlocks() const;
  void Confine(const RowBands& bands, std::vector<MemoryBlock>* blocks) const;
  std::vector<size_t> BlocksThatMayChange(const RowBands& bands) const;
  MemoryBlock StreamedBlock(size_t step) const;
  int64_t ResidentBytes() const;
  int64_t MemoryBytes() const {
    return static_cast<int64_t>(device_.memory_bytes) / kPage * kPage - kPage;
  }
  bool PlanFits();
  void MakeRoomForChains();
  std::vector<int64_t> BytesAlive(const std::vector<MemoryBlock>& blocks) const;
  size_t StepAtPeak(const std::vector<MemoryBlock>& blocks) const;

  std::vector<Group> Groups() const;
  Executable Assemble();
  void LayOutParameters();
  void EmitProgram();
  void ChainAdds();
  void EmitParameters(const Group& group);
  void EmitParameters(size_t step, uint32_t address, const std::vector<uint8_t>& bytes);
  uint32_t PartAddress(size_t step, int32_t part) const;
  void EmitPartParameters(size_t step, int32_t part);
  void EmitParts(size_t step, OperandPlaces place);
  void EmitStep(size_t step, const RowBands* bands, int32_t band);
  void EmitInputRows(const RowBands& bands, int32_t band);
  enum class KeptRows { kSave, kRestore };
  void EmitKeptRows(KeptRows direction, const RowBands& bands, int32_t band, size_t step);
  void EmitSentRows(const RowBands& bands, int32_t band, size_t step);
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
  int64_t ParameterBytes(size_t step) const { return lowered_[step]->parameters().size(); }
  // Tensors that the set touches are numbered in the order that they have in the graph.
  size_t Number(int32_t tensor) const {
    return std::lower_bound(tensors_.begin(), tensors_.end(), tensor) - tensors_.begin();
  }
  // Blocks of the memory plan: tensors, then, of steps, streamed parameters, scratch, and rows that
  // one band keeps for the next.
  size_t TensorBlock(int32_t tensor) const { return root_[Number(tensor)]; }
  size_t ParameterBlock(size_t step) const { return tensors_.size() + step; }
  size_t ScratchBlock(size_t step) const { return tensors_.size() + set_.size() + step; }
  size_t KeptBlock(size_t step) const { return tensors_.size() + 2 * set_.size() + step; }
  // nullptr for a step that is computed as a whole, and for -1.
  const RowBands* BandsOf(size_t step) const {
    const auto behind =
        std::partition_point(layout_.bands.begin(), layout_.bands.end(),
                             [&](const RowBands& bands) { return bands.first() <= step; });
    if (behind == layout_.bands.begin()) return nullptr;
    return (behind - 1)->Contains(step) ? &*(behind - 1) : nullptr;
  }
  // The step that writes a tensor's bytes, or -1.
  int32_t Writer(int32_t tensor) const { return writer_[TensorBlock(tensor)]; }
  // Whether rows of an input or output of the set come or go while its bands run.
  bool MovesInRows(int32_t tensor) const {
    if (tensor == arriving_.tensor) {
      const RowBands* bands = BandsOf(arriving_.first_reader);
      if (bands != nullptr && bands->arriving() == tensor) return true;
    }
    const RowBands* bands = BandsOf(Writer(tensor));
    return bands != nullptr && bands->Sends(Writer(tensor));
  }
  // Activation-segment address of a tensor.
  uint32_t Address(int32_t tensor) const { return Word(plan_.offsets[TensorBlock(tensor)]); }
  TensorPlace PlaceOf(int32_t tensor, const RowBands* bands, int32_t band) const;
  TensorPlace InputPlace(const RowBands& bands, int32_t band) const;
  int64_t InputBufferBytes(const RowBands& bands) const;
  // Where a step's parameters lie when it runs.
  uint32_t ParameterAddress(size_t step) const {
    return layout_.streamed[step] ? Word(plan_.offsets[ParameterBlock(step)])
                                  : kParameterSegment | resident_offset_[step];
  }
  // The tensor whose bytes it shares.
  int32_t Root(int32_t tensor) const { return tensors_[TensorBlock(tensor)]; }
  void Emit(Instruction instruction, const InstructionOrigin& origin) {
    executable_.inference_program.push_back(std::move(instruction));
    SetOrigin(origin);
  }
  // Says where all instructions come from of which nobody has said so yet.
  void SetOrigin(const InstructionOrigin& origin) {
    origins_.resize(executable_.inference_program.size(), origin);
  }

  const Graph& graph_;
  const std::vector<int32_t>& set_;
  const std::vector<int32_t>& inputs_;
  const std::vector<int32_t>& outputs_;
  const DeviceInfo& device_;

  std::vector<std::unique_ptr<const NodeLowering>> lowered_;  // per step
  std::vector<int32_t> tensors_;                              // by their numbers
  // Per tensor that the set touches, by its number.
  std::vector<size_t> root_;     // the number of the tensor whose bytes it shares
  std::vector<int32_t> writer_;  // the step that writes it, or -1; of those that share none
  std::vector<BandStep> steps_;
  ArrivingInput arriving_;
  Layout layout_;
  MemoryPlan plan_;
  std::vector<uint32_t> resident_offset_;  // per step, in the parameter segment
  Executable executable_;
  std::vector<InstructionOrigin> origins_;  // of executable_.inference_program
  // Where the instructions of each step's group begin, and behind all of them.
  std::vector<int32_t> group_begin_;
};

}  // namespace atollrt
