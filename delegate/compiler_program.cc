// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "delegate/compilation.h"
#include "delegate/layer_type.h"
#include "driver/isa/memory_access.h"

namespace atollrt {
namespace {

bool RunsDuring(const MemoryBlock& block, const InstructionOrigin& origin) {
  return !origin.fetches_parameters && block.first_use <= origin.step &&
         origin.step <= block.last_use;
}

}  // namespace

// ---- Program ------------------------------------------------------------------------------------

void Compilation::LayOutParameters() {
  std::vector<uint8_t>& resident = executable_.resident_parameters;
  for (size_t step = 0; step < set_.size(); ++step) {
    const std::vector<uint8_t>& bytes = lowered_[step]->parameters();
    if (bytes.empty() || layout_.streamed[step]) continue;
    resident.resize(AlignUp(resident.size(), kOnChipAlignment));
    resident_offset_[step] = Word(resident.size());
    resident.insert(resident.end(), bytes.begin(), bytes.end());
  }
  if (resident.empty()) return;
  executable_.caching_program = {
      ParametersInstruction{.output_address = kParameterSegment, .bytes = Word(resident.size())},
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
  size_t streamed = 0;
  for (size_t step = 0; step < set_.size(); ++step) {
    if (layout_.streamed[step])
      streamed += AlignUp(lowered_[step]->parameters().size(), kOnChipAlignment);
  }
  executable_.streamed_parameters.reserve(streamed);
  executable_.name = graph_.name.empty() ? "partition" : graph_.name;
  executable_.activation_bytes = plan_.total;
  executable_.array_rows = device_.array_rows;
  executable_.array_columns = device_.array_columns;
  EmitProgram();
  ChainAdds();
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
                          .bytes = Word(graph_.tensors[tensor].byte_size())},
         {.step = -1});
  }
  const std::vector<Group> groups = Groups();
  if (layout_.prefetch && !groups.empty()) EmitParameters(groups[0]);
  group_begin_.assign(set_.size() + 1, 0);
  for (size_t i = 0; i < groups.size(); ++i) {
    const Group& group = groups[i];
    for (size_t step = group.first; step <= group.last && i > 0; ++step) {
      group_begin_[step] = static_cast<int32_t>(executable_.inference_program.size());
    }
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
  group_begin_.back() = static_cast<int32_t>(executable_.inference_program.size());
  const InstructionOrigin behind_steps{.step = static_cast<int32_t>(set_.size())};
  for (const int32_t tensor : outputs_) {
    if (MovesInRows(tensor)) continue;
    Emit(OutputInstruction{.input_address = Address(tensor),
                           .bytes = Word(graph_.tensors[tensor].byte_size())},
         behind_steps);
  }
  Emit(EndInstruction{}, behind_steps);
}

// Lets each ADD run together with the convolution before it where that makes no difference to
// memory.
void Compilation::ChainAdds() {
  std::vector<Instruction>& program = executable_.inference_program;
  for (size_t i = 1; i < program.size(); ++i) {
    auto* add = std::get_if<AddInstruction>(&program[i]);
    if (add != nullptr && MayChain(program[i - 1], *add, kSegmentsApart)) {
      add->flags |= kFlagChained;
    }
  }
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
  Emit(ParametersInstruction{.output_address = address, .bytes = Word(bytes.size())},
       {.step = static_cast<int32_t>(step), .fetches_parameters = true});
  std::vector<uint8_t>& stream = executable_.streamed_parameters;
  stream.insert(stream.end(), bytes.begin(), bytes.end());
}

uint32_t Compilation::PartAddress(size_t step, int32_t part) const {
  return ParameterAddress(step) + (part % 2 == 0 ? 0 : Word(PartBytes(step)));
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
  const int32_t writer = writer_[Number(tensor)];
  const bool internal = writer >= 0 && bands->Contains(writer) && bands->IsInternal(writer);
  return {Address(tensor), internal ? bands->Rows(band, writer) : all};
}

void Compilation::EmitStep(size_t step, const RowBands* bands, int32_t band) {
  const Node& node = NodeAt(step);
  const RowRange rows =
      bands != nullptr ? bands->ComputedRows(band, step) : AllRows(graph_.Output(node));
  if (bands != nullptr) EmitKeptRows(KeptRows::kRestore, *bands, band, step);
  if (bands != nullptr && rows.count() <= 0) {
    EmitKeptRows(KeptRows::kSave, *bands, band + 1, step);
    return;
  }
  OperandPlaces place;
  for (const int32_t tensor : node.inputs) {
    const bool is_activation = tensor >= 0 && !graph_.tensors[tensor].is_constant();
    place.inputs.push_back(is_activation ? PlaceOf(tensor, bands, band) : TensorPlace());
  }
  for (const int32_t tensor : node.outputs) place.outputs.push_back(PlaceOf(tensor, bands, band));
  place.parameters = ParameterAddress(step);
  place.scratch = Word(plan_.offsets[ScratchBlock(step)]);
  if (layout_.parts[step] > 1) {
    EmitParts(step, std::move(place));
    return;
  }
  lowered_[step]->Emit(place, rows, &executable_.inference_program);
  SetOrigin({.step = static_cast<int32_t>(step), .band = band});
  if (bands != nullptr) EmitKeptRows(KeptRows::kSave, *bands, band + 1, step);
}

// The rows that `band` does not compute: from where they wait to the beginning of its own, or, in
// the band before, from there to where they wait.
void Compilation::EmitKeptRows(KeptRows direction, const RowBands& bands, int32_t band,
                               size_t step) {
  if (band >= bands.bands() || !bands.IsInternal(step)) return;
  const RowRange kept = bands.KeptRows(band, step);
  if (kept.count() <= 0) return;
  const int32_t at = direction == KeptRows::kSave ? band - 1 : band;
  uint32_t waiting = Word(plan_.offsets[KeptBlock(step)]);
  for (const int32_t tensor : NodeAt(step).outputs) {
    const int64_t row_bytes = RowBytes(graph_.tensors[tensor]);
    const TensorPlace place = PlaceOf(tensor, &bands, at);
    const uint32_t rows = place.address + Word((kept.begin - place.rows.begin) * row_bytes);
    const int64_t bytes = kept.count() * row_bytes;
    executable_.inference_program.push_back(direction == KeptRows::kSave
                                                ? MakeCopy(rows, waiting, bytes)
                                                : MakeCopy(waiting, rows, bytes));
    waiting += Word(bytes);
  }
  SetOrigin({.step = static_cast<int32_t>(step), .band = at});
}

// Where the rows lie that a band has of the input that arrives: in the two buffers in turn.
TensorPlace Compilation::InputPlace(const RowBands& bands, int32_t band) const {
  const int64_t offset = band % 2 == 0 ? 0 : InputBufferBytes(bands);
  return {Address(bands.arriving()) + Word(offset), bands.InputRows(band)};
}

// Those rows that are here already move over from the other buffer; the others arrive.
void Compilation::EmitInputRows(const RowBands& bands, int32_t band) {
  if (bands.arriving() < 0) return;
  std::vector<Instruction>& program = executable_.inference_program;
  const int64_t row_bytes = RowBytes(graph_.tensors[bands.arriving()]);
  const TensorPlace place = InputPlace(bands, band);
  int32_t here = place.rows.begin;
  if (band > 0) {
    const TensorPlace before = InputPlace(bands, band - 1);
    here = before.rows.end;
    const int32_t kept = here - place.rows.begin;
    const int32_t skipped = place.rows.begin - before.rows.begin;
    if (kept > 0) {
      program.push_back(
          MakeCopy(before.address + Word(skipped * row_bytes), place.address, kept * row_bytes));
    }
  }
  if (place.rows.end > here) {
    program.push_back(InputInstruction{
        .output_address = place.address + Word((here - place.rows.begin) * row_bytes),
        .bytes = Word((place.rows.end - here) * row_bytes)});
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
  Emit(OutputInstruction{.input_address = place.address + Word(offset),
                         .bytes = Word(sent.count() * row_bytes)},
       {.step = static_cast<int32_t>(step), .band = band, .moves_rows = true});
}

void Compilation::FillBoundary() {
  const auto layer = [&](int32_t index) {
    const Tensor& tensor = graph_.tensors[index];
    Shape shape = tensor.shape;
    // An executable takes no more dimensions; its bytes are the same.
    if (shape.size() > kMaxLayerRank) shape = {static_cast<int32_t>(tensor.element_count())};
    return Layer{.name = tensor.name,
                 .type = *LayerTypeOf(tensor.type),
                 .shape = std::move(shape),
                 .bytes = static_cast<uint64_t>(tensor.byte_size())};
  };
  for (const int32_t tensor : inputs_) executable_.inputs.push_back(layer(tensor));
  for (const int32_t tensor : outputs_) executable_.outputs.push_back(layer(tensor));
}

// ---- Report -------------------------------------------------------------------------------------

std::vector<InstructionRange> InstructionsOf(const MemoryBlock& block, int32_t bands,
                                             std::span<const InstructionOrigin> origins,
                                             InstructionRange around) {
  if (bands == 1) {
    while (around.first <= around.last && !RunsDuring(block, origins[around.first])) ++around.first;
    while (around.first <= around.last && !RunsDuring(block, origins[around.last])) --around.last;
    if (around.first > around.last) return {};
    return {around};
  }
  std::vector<std::optional<InstructionRange>> of_band(bands);
  for (int32_t at = around.first; at <= around.last; ++at) {
    if (!RunsDuring(block, origins[at])) continue;
    auto& range = of_band[origins[at].band];
    if (!range) range = {at, at};
    range->last = at;
  }
  std::vector<InstructionRange> ranges;
  for (const auto& range : of_band) {
    if (range) ranges.push_back(*range);
  }
  return ranges;
}

std::vector<InstructionRange> InstructionsOfParameters(const MemoryBlock& block, int32_t step,
                                                       std::span<const InstructionOrigin> origins,
                                                       InstructionRange around) {
  const auto fetches = [&](int32_t at) {
    return origins[at].fetches_parameters && origins[at].step == step;
  };
  while (around.first <= around.last && !fetches(around.first)) ++around.first;
  while (around.first <= around.last && !fetches(around.last) &&
         !RunsDuring(block, origins[around.last])) {
    --around.last;
  }
  if (around.first > around.last) return {};
  return {around};
}

std::vector<OnChipBlock> Compilation::MapMemory() const {
  using Kind = OnChipBlock::Kind;
  std::vector<OnChipBlock> map;
  const std::vector<MemoryBlock> blocks = MakeBlocks();
  const std::span<const InstructionOrigin> origins = origins_;
  const int32_t last_instruction = static_cast<int32_t>(origins.size()) - 1;
  // The instructions of the groups during which a block lives.
  const auto around = [&](const MemoryBlock& block) {
    const size_t last = std::max(block.last_use, 0);
    const RowBands* bands = last < set_.size() ? BandsOf(last) : nullptr;
    const size_t behind = std::min((bands != nullptr ? bands->last() : last) + 1, set_.size());
    return InstructionRange{block.first_use < 0 ? 0 : group_begin_[block.first_use],
                            last < set_.size() ? group_begin_[behind] - 1 : last_instruction};
  };
  const auto add = [&](OnChipBlock block, size_t index,
                       const std::vector<InstructionRange>& lives) {
    block.offset = plan_.offsets[index];
    block.bytes = blocks[index].size;
    for (const InstructionRange& life : lives) {
      block.first_instruction = life.first;
      block.last_instruction = life.last;
      map.push_back(block);
    }
  };
  // What has room for one of the bands, or for everything if there are none.
  const auto add_each = [&](const OnChipBlock& block, size_t index, const RowBands* bands) {
    if (blocks[index].size == 0) return;
    add(block, index,
        InstructionsOf(blocks[index], bands != nullptr ? bands->bands() : 1, origins,
                       around(blocks[index])));
  };
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const int32_t writer = writer_[i];
    const RowBands* bands = BandsOf(writer);
    const bool refilled = bands != nullptr && bands->IsInternal(writer);
    add_each(
        {.kind = Kind::kTensor, .tensor = tensors_[i], .node = writer >= 0 ? set_[writer] : -1}, i,
        refilled ? bands : nullptr);
  }
  for (size_t step = 0; step < set_.size(); ++step) {
    if (const int64_t bytes = ParameterBytes(step); bytes > 0 && !layout_.streamed[step]) {
      map.push_back({.kind = Kind::kResidentParameters,
                     .node = set_[step],
                     .offset = resident_offset_[step],
                     .bytes = bytes,
                     .last_instruction = last_instruction});
    }
    const size_t parameters = ParameterBlock(step);
    if (blocks[parameters].size > 0) {
      add({.kind = Kind::kStreamedParameters, .node = set_[step]}, parameters,
          InstructionsOfParameters(blocks[parameters], static_cast<int32_t>(step), origins,
                                   around(blocks[parameters])));
    }
    const OnChipBlock scratch{.kind = Kind::kScratch, .node = set_[step]};
    add_each(scratch, KeptBlock(step), nullptr);
    add_each(scratch, ScratchBlock(step), BandsOf(step));
  }
  return map;
}

}  // namespace atollrt
