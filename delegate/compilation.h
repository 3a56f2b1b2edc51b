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
#include <string>
#include <vector>

#include "delegate/compiler.h"
#include "delegate/lowering.h"
#include "delegate/on_chip_map.h"
#include "delegate/row_bands.h"
#include "runtime/base/bytes.h"
#include "runtime/memory_planner.h"

namespace atollrt {

// A set on its way to an executable.
class Compilation {
 public:
  Compilation(const Graph& graph, const std::vector<int32_t>& set,
              const std::vector<int32_t>& inputs, const std::vector<int32_t>& outputs,
              const DeviceInfo& device)
      : graph_(graph), set_(set), inputs_(inputs), outputs_(outputs), device_(device) {}

  Result<CompiledSet> Run(CompileFailure* failure);

 private:
  // The driver hands out memory in whole pages of 4 KiB.
  static constexpr int64_t kPage = 4096;

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
  void MakeRoomForChains();
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
  void EmitCopy(uint32_t from, uint32_t to, int64_t bytes);
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
  // Blocks of the memory plan: tensors, then, of steps, streamed parameters, scratch, and rows that
  // one band keeps for the next.
  size_t ParameterBlock(size_t step) const { return graph_.tensors.size() + step; }
  size_t ScratchBlock(size_t step) const { return graph_.tensors.size() + set_.size() + step; }
  size_t KeptBlock(size_t step) const { return graph_.tensors.size() + 2 * set_.size() + step; }
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

}  // namespace atollrt
