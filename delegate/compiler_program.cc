// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "delegate/compilation.h"
#include "delegate/layer_type.h"
#include "driver/isa/memory_access.h"

namespace atollrt {

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
                          .bytes = static_cast<uint32_t>(graph_.tensors[tensor].byte_size())},
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
                           .bytes = static_cast<uint32_t>(graph_.tensors[tensor].byte_size())},
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
  const int32_t writer = writer_[Number(tensor)];
  const bool internal = writer >= 0 && bands->Contains(static_cast<size_t>(writer)) &&
                        bands->IsInternal(static_cast<size_t>(writer));
  return {Address(tensor), internal ? bands->Rows(band, static_cast<size_t>(writer)) : all};
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
  place.scratch = static_cast<uint32_t>(plan_.offsets[ScratchBlock(step)]);
  if (layout_.parts[step] > 1) {
    EmitParts(step, std::move(place));
    return;
  }
  lowered_[step]->Emit(place, rows, &executable_.inference_program);
  SetOrigin({.step = static_cast<int32_t>(step), .band = band});
  if (bands != nullptr) EmitKeptRows(KeptRows::kSave, *bands, band + 1, step);
}

void Compilation::EmitCopy(uint32_t from, uint32_t to, int64_t bytes) {
  CopyInstruction copy{
      .input_address = from, .output_address = to, .bytes = static_cast<uint32_t>(bytes)};
  copy.count0 = copy.count1 = copy.count2 = copy.count3 = copy.count4 = 1;
  executable_.inference_program.push_back(copy);
}

// The rows that `band` does not compute: from where they wait to the beginning of its own, or, in
// the band before, from there to where they wait.
void Compilation::EmitKeptRows(KeptRows direction, const RowBands& bands, int32_t band,
                               size_t step) {
  if (band >= bands.bands() || !bands.IsInternal(step)) return;
  const RowRange kept = bands.KeptRows(band, step);
  if (kept.count() <= 0) return;
  const int32_t at = direction == KeptRows::kSave ? band - 1 : band;
  uint32_t waiting = static_cast<uint32_t>(plan_.offsets[KeptBlock(step)]);
  for (const int32_t tensor : NodeAt(step).outputs) {
    const int64_t row_bytes = RowBytes(graph_.tensors[tensor]);
    const TensorPlace place = PlaceOf(tensor, &bands, at);
    const uint32_t rows =
        place.address + static_cast<uint32_t>((kept.begin - place.rows.begin) * row_bytes);
    const int64_t bytes = kept.count() * row_bytes;
    direction == KeptRows::kSave ? EmitCopy(rows, waiting, bytes) : EmitCopy(waiting, rows, bytes);
    waiting += static_cast<uint32_t>(bytes);
  }
  SetOrigin({.step = static_cast<int32_t>(step), .band = at});
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
      EmitCopy(before.address + static_cast<uint32_t>(skipped) * row_bytes, place.address,
               int64_t{kept} * row_bytes);
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

std::vector<OnChipBlock> Compilation::MapMemory() const {
  using Kind = OnChipBlock::Kind;
  std::vector<OnChipBlock> map;
  const auto add = [&](OnChipBlock block, const InstructionRange& life) {
    block.first_instruction = life.first;
    block.last_instruction = life.last;
    map.push_back(block);
  };
  const std::vector<MemoryBlock> blocks = MakeBlocks();
  const std::span<const InstructionOrigin> origins = origins_;
  // The instructions of the groups during which a block lives.
  const auto around = [&](const MemoryBlock& block) {
    const size_t last = static_cast<size_t>(std::max(block.last_use, 0));
    const RowBands* bands = last < set_.size() ? BandsOf(last) : nullptr;
    const size_t behind = std::min((bands != nullptr ? bands->last() : last) + 1, set_.size());
    return InstructionRange{
        block.first_use < 0 ? 0 : group_begin_[static_cast<size_t>(block.first_use)],
        (last < set_.size() ? group_begin_[behind] : static_cast<int32_t>(origins.size())) - 1};
  };
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (blocks[i].size == 0) continue;
    const int32_t writer = writer_[i];
    const RowBands* bands = writer >= 0 ? BandsOf(static_cast<size_t>(writer)) : nullptr;
    const bool refilled = bands != nullptr && bands->IsInternal(static_cast<size_t>(writer));
    const OnChipBlock block{.kind = Kind::kTensor,
                            .tensor = tensors_[i],
                            .node = writer >= 0 ? set_[writer] : -1,
                            .offset = plan_.offsets[i],
                            .bytes = blocks[i].size};
    for (const InstructionRange& life :
         InstructionsOf(blocks[i], refilled ? bands->bands() : 1, origins, around(blocks[i]))) {
      add(block, life);
    }
  }
  const InstructionRange whole_program{0, static_cast<int32_t>(origins.size()) - 1};
  for (size_t step = 0; step < set_.size(); ++step) {
    if (const int64_t bytes = ParameterBytes(step); bytes > 0 && !layout_.streamed[step]) {
      add({.kind = Kind::kResidentParameters,
           .node = set_[step],
           .offset = resident_offset_[step],
           .bytes = bytes},
          whole_program);
    }
    const size_t parameters = ParameterBlock(step);
    if (blocks[parameters].size > 0) {
      const auto life = InstructionsOfParameters(blocks[parameters], static_cast<int32_t>(step),
                                                 origins, around(blocks[parameters]));
      if (life) {
        add({.kind = Kind::kStreamedParameters,
             .node = set_[step],
             .offset = plan_.offsets[parameters],
             .bytes = blocks[parameters].size},
            *life);
      }
    }
    const size_t kept = KeptBlock(step);
    if (blocks[kept].size > 0) {
      for (const InstructionRange& life :
           InstructionsOf(blocks[kept], 1, origins, around(blocks[kept]))) {
        add({.kind = Kind::kScratch,
             .node = set_[step],
             .offset = plan_.offsets[kept],
             .bytes = blocks[kept].size},
            life);
      }
    }
    const size_t scratch = ScratchBlock(step);
    if (blocks[scratch].size == 0) continue;
    const RowBands* bands = BandsOf(step);
    for (const InstructionRange& life :
         InstructionsOf(blocks[scratch], bands != nullptr ? bands->bands() : 1, origins,
                        around(blocks[scratch]))) {
      add({.kind = Kind::kScratch,
           .node = set_[step],
           .offset = plan_.offsets[scratch],
           .bytes = blocks[scratch].size},
          life);
    }
  }
  return map;
}

}  // namespace atollrt
