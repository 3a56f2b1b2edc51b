// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/arena_layout.h"

#include <algorithm>
#include <utility>

#include "runtime/base/buffer.h"
#include "runtime/base/bytes.h"
#include "runtime/base/range_max.h"
#include "runtime/ops/operand_sharing.h"
#include "runtime/plan/memory_planner.h"

namespace atollrt {
namespace {

// Every tensor of a block is held against every other one, so there is a limit.
constexpr size_t kMaxTensorsPerBlock = 64;
// Concatenations of concatenations are looked through so deep.
constexpr int kMaxDepth = 8;

int64_t Rounded(int64_t bytes) {
  return static_cast<int64_t>(AlignUp(static_cast<uint64_t>(bytes), Buffer::kAlignment));
}

class Layout {
 public:
  Layout(const Graph& graph, std::span<const StepMemory> steps)
      : graph_(graph),
        steps_(steps),
        last_step_(static_cast<int32_t>(steps.size())),
        places_(graph.tensors.size()),
        members_(graph.tensors.size()),
        alive_(steps.size() + 1) {}

  ArenaLayout Make(std::span<const Variable> variables, bool keeps_all_tensors);

 private:
  // A tensor: when it is there, and where it lies in the block of tensor `root`.
  struct Place {
    int64_t bytes = 0;  // 0: not in the arena
    int32_t written = 0, last_read = 0;
    int32_t root = -1;
    int64_t offset = 0;
    // The tensor that has its bytes at `origin_offset`: itself, unless they have only been moved.
    int32_t origin = -1;
    int64_t origin_offset = 0;
    int32_t assembled_by = -1;  // the step of a CONCATENATION that has nothing to do
    bool stays = false;         // a graph's input or a variable tensor
    bool is_graph_output = false;

    bool Overlaps(const Place& other) const {
      return offset < other.offset + other.bytes && other.offset < offset + bytes;
    }
  };

  void FindLifetimes();
  void Touch(int32_t tensor, int32_t step);
  void TakeOverInput(int32_t step, std::span<const int32_t> positions);
  bool StayInInput(int32_t step, const std::vector<OperandSharing::Run>& runs);
  bool WriteIntoOutput(int32_t step, const std::vector<OperandSharing::Run>& runs);

  bool IsFree(int32_t tensor) const;
  bool HaveSameBytes(int32_t a, int32_t b, int depth) const;
  bool MayMeet(int32_t a, int32_t b, std::span<const int32_t> overwritten) const;
  bool Join(int32_t root, int32_t tensor, int64_t offset,
            std::span<const int32_t> overwritten = {});
  void Part(int32_t root);

  MemoryBlock BlockOf(int32_t root) const;
  void CountAlive(const MemoryBlock& block, int64_t sign);
  bool Exchange(const MemoryBlock& a, const MemoryBlock& b, const MemoryBlock& joined);

  const Graph& graph_;
  const std::span<const StepMemory> steps_;
  const int32_t last_step_;
  std::vector<Place> places_;                  // per tensor
  std::vector<std::vector<int32_t>> members_;  // per tensor that is a root: the block's tensors
  RangeMax<> alive_;                           // bytes per step
  int64_t peak_ = 0;                           // of these, before anything was shared
};

void Layout::Touch(int32_t tensor, int32_t step) {
  if (tensor < 0 || graph_.tensors[tensor].is_constant()) return;
  Place& place = places_[tensor];
  if (place.bytes == 0) {
    place.bytes = graph_.tensors[tensor].byte_size();
    place.written = step;
    place.root = place.origin = tensor;
    members_[tensor] = {tensor};
  }
  place.last_read = std::max(place.last_read, step);
}

void Layout::FindLifetimes() {
  const auto stay = [&](int32_t tensor) {
    Touch(tensor, 0);
    Touch(tensor, last_step_);
    places_[tensor].stays = true;
  };
  // Callers may fill inputs once and invoke many times, so nothing else may use their memory. The
  // same holds for what the next invocation finds again.
  for (const int32_t tensor : graph_.inputs) stay(tensor);
  for (size_t i = 0; i < graph_.tensors.size(); ++i) {
    if (graph_.tensors[i].is_variable) stay(static_cast<int32_t>(i));
  }
  for (int32_t i = 0; i < last_step_; ++i) {
    for (const int32_t tensor : steps_[i].outputs) Touch(tensor, i);
    for (const int32_t tensor : steps_[i].inputs) Touch(tensor, i);
  }
  for (const int32_t tensor : graph_.outputs) {
    Touch(tensor, last_step_);
    places_[tensor].is_graph_output = true;
  }
}

// ---- Which tensors may lie in one block ---------------------------------------------------------

// It has a block, for whose beginning nobody else decides.
bool Layout::IsFree(int32_t tensor) const {
  return tensor >= 0 && places_[tensor].bytes > 0 && places_[tensor].root == tensor &&
         !places_[tensor].stays;
}

// Of two tensors: those of their bytes that lie in the same place are equal.
bool Layout::HaveSameBytes(int32_t a, int32_t b, int depth) const {
  const Place& x = places_[a];
  const Place& y = places_[b];
  if (x.root != y.root || !x.Overlaps(y)) return true;
  if (x.origin == y.origin && x.offset - x.origin_offset == y.offset - y.origin_offset) return true;
  if (depth == 0) return false;
  // What has been put together has the bytes of its parts.
  const auto parts_have_same = [&](int32_t whole, int32_t other) {
    if (places_[whole].assembled_by < 0 || places_[whole].root != x.root) return false;
    const std::span<const int32_t> parts = steps_[places_[whole].assembled_by].inputs;
    return std::all_of(parts.begin(), parts.end(), [&](int32_t part) {
      return places_[part].bytes == 0 || HaveSameBytes(part, other, depth - 1);
    });
  };
  return parts_have_same(x.origin, b) || parts_have_same(y.origin, a);
}

// Two tensors of a block leave each other's bytes alone while they are needed. `overwritten`: what
// the step that writes the later one reads for the last time.
bool Layout::MayMeet(int32_t a, int32_t b, std::span<const int32_t> overwritten) const {
  if (places_[b].written < places_[a].written) std::swap(a, b);
  const Place& earlier = places_[a];
  const Place& later = places_[b];
  // A caller may fill an input while it looks at outputs.
  if ((earlier.stays && later.is_graph_output) || (later.stays && earlier.is_graph_output)) {
    return false;
  }
  if (!earlier.Overlaps(later) || earlier.last_read < later.written) return true;
  if (HaveSameBytes(a, b, kMaxDepth)) return true;
  return earlier.last_read == later.written && earlier.offset == later.offset &&
         std::find(overwritten.begin(), overwritten.end(), a) != overwritten.end();
}

// The block of `root` becomes bytes [offset, ...) of a tensor of another block. False, and nothing
// has changed, if it cannot.
bool Layout::Join(int32_t root, int32_t tensor, int64_t offset,
                  std::span<const int32_t> overwritten) {
  const int32_t into = places_[tensor].root;
  std::vector<int32_t>& members = members_[into];
  const std::vector<int32_t>& joining = members_[root];
  offset += places_[tensor].offset;
  if (into == root || members.size() + joining.size() > kMaxTensorsPerBlock ||
      offset + places_[root].bytes > places_[into].bytes) {
    return false;
  }
  const MemoryBlock block = BlockOf(into);
  const MemoryBlock joining_block = BlockOf(root);
  const size_t before = members.size();
  for (const int32_t member : joining) {
    places_[member].root = into;
    places_[member].offset += offset;
    members.push_back(member);
  }
  bool fits = true;
  for (size_t i = 0; i < before && fits; ++i) {
    fits = std::all_of(joining.begin(), joining.end(),
                       [&](int32_t member) { return MayMeet(members[i], member, overwritten); });
  }
  if (fits && Exchange(block, joining_block, BlockOf(into))) return true;
  members.resize(before);
  for (const int32_t member : joining) {
    places_[member].root = root;
    places_[member].offset -= offset;
  }
  return false;
}

// Undoes the last Join of a block to this one.
void Layout::Part(int32_t root) {
  const int32_t from = places_[root].root;
  const int64_t offset = places_[root].offset;
  const MemoryBlock block = BlockOf(from);
  members_[from].resize(members_[from].size() - members_[root].size());
  for (const int32_t member : members_[root]) {
    places_[member].root = root;
    places_[member].offset -= offset;
  }
  CountAlive(block, -1);
  CountAlive(BlockOf(from), 1);
  CountAlive(BlockOf(root), 1);
}

// ---- Bytes alive --------------------------------------------------------------------------------

MemoryBlock Layout::BlockOf(int32_t root) const {
  MemoryBlock block = {places_[root].bytes, places_[root].written, places_[root].last_read};
  for (const int32_t member : members_[root]) {
    block.first_use = std::min(block.first_use, places_[member].written);
    block.last_use = std::max(block.last_use, places_[member].last_read);
  }
  return block;
}

void Layout::CountAlive(const MemoryBlock& block, int64_t sign) {
  alive_.Change(static_cast<size_t>(block.first_use), static_cast<size_t>(block.last_use),
                sign * Rounded(block.size));
}

// One block instead of two, unless the peak would rise.
bool Layout::Exchange(const MemoryBlock& a, const MemoryBlock& b, const MemoryBlock& joined) {
  CountAlive(a, -1);
  CountAlive(b, -1);
  CountAlive(joined, 1);
  // It could only have risen where the joined block lies.
  if (alive_.Max() <= peak_) return true;
  CountAlive(joined, -1);
  CountAlive(b, 1);
  CountAlive(a, 1);
  return false;
}

// ---- The three ways of sharing ------------------------------------------------------------------

void Layout::TakeOverInput(int32_t step, std::span<const int32_t> positions) {
  const int32_t output = steps_[step].outputs[0];
  if (!IsFree(output)) return;
  std::vector<int32_t> inputs;
  for (const int32_t position : positions) {
    const int32_t input = steps_[step].inputs[position];
    if (places_[input].bytes > 0) inputs.push_back(input);
  }
  for (const int32_t input : inputs) {
    if (Join(output, input, 0, inputs)) return;
  }
}

// Every output is a part of an input.
bool Layout::StayInInput(int32_t step, const std::vector<OperandSharing::Run>& runs) {
  std::vector<int32_t> joined;
  const auto join = [&](const OperandSharing::Run& run) {
    const int32_t input = steps_[step].inputs[run.input];
    const int32_t output = steps_[step].outputs[run.output];
    if (!IsFree(output) || places_[input].bytes == 0 || run.bytes != places_[output].bytes) {
      return false;
    }
    // A later step may change what a variable tensor holds.
    if (graph_.tensors[input].is_variable) return false;
    Place& place = places_[output];
    place.origin = places_[input].origin;
    place.origin_offset = places_[input].origin_offset + run.input_offset;
    if (Join(output, input, run.input_offset)) {
      joined.push_back(output);
      return true;
    }
    place.origin = output;
    place.origin_offset = 0;
    return false;
  };
  if (std::all_of(runs.begin(), runs.end(), join)) return true;
  for (; !joined.empty(); joined.pop_back()) {
    Part(joined.back());
    places_[joined.back()].origin = joined.back();
    places_[joined.back()].origin_offset = 0;
  }
  return false;
}

// Every input is a part of the only output.
bool Layout::WriteIntoOutput(int32_t step, const std::vector<OperandSharing::Run>& runs) {
  const int32_t output = steps_[step].outputs[0];
  if (steps_[step].outputs.size() != 1 || runs.size() >= kMaxTensorsPerBlock) return false;
  std::vector<int32_t> joined;
  const auto join = [&](const OperandSharing::Run& run) {
    const int32_t input = steps_[step].inputs[run.input];
    const int32_t root = places_[input].root;  // -1: a constant
    if (!IsFree(root) || places_[input].offset != 0 || places_[root].bytes != run.bytes ||
        !Join(root, output, run.output_offset)) {
      return false;
    }
    joined.push_back(root);
    return true;
  };
  places_[output].assembled_by = step;
  if (std::all_of(runs.begin(), runs.end(), join)) return true;
  for (; !joined.empty(); joined.pop_back()) Part(joined.back());
  places_[output].assembled_by = -1;
  return false;
}

// -------------------------------------------------------------------------------------------------

ArenaLayout Layout::Make(std::span<const Variable> variables, bool keeps_all_tensors) {
  FindLifetimes();
  if (keeps_all_tensors) {
    for (Place& place : places_) {
      place.written = 0;
      place.last_read = last_step_;
    }
  }
  for (size_t i = 0; i < places_.size(); ++i) {
    if (places_[i].bytes > 0) CountAlive(BlockOf(static_cast<int32_t>(i)), 1);
  }
  for (size_t i = 0; i < steps_.size(); ++i) alive_.Change(i, i, Rounded(steps_[i].scratch_bytes));
  peak_ = alive_.Max();

  ArenaLayout layout;
  layout.is_done.resize(steps_.size());
  std::vector<std::pair<int32_t, OperandSharing>> assembling;
  for (int32_t i = 0; i < last_step_; ++i) {
    if (steps_[i].node == nullptr || keeps_all_tensors) continue;
    OperandSharing sharing = SharingOf(graph_, *steps_[i].node);
    if (!sharing.overwritable.empty()) TakeOverInput(i, sharing.overwritable);
    if (sharing.runs.empty()) continue;
    layout.is_done[i] = StayInInput(i, sharing.runs);
    if (!layout.is_done[i]) assembling.emplace_back(i, std::move(sharing));
  }
  // When all that follows an output is known: what else its block holds, and for how long.
  for (const auto& [step, sharing] : assembling) {
    layout.is_done[step] = WriteIntoOutput(step, sharing.runs);
  }

  // A block per tensor that is the root of one, one of scratch per step, one per variable.
  const size_t first_scratch = places_.size();
  const size_t first_variable = first_scratch + steps_.size();
  std::vector<MemoryBlock> blocks(first_variable + variables.size());
  for (size_t i = 0; i < places_.size(); ++i) {
    const int32_t tensor = static_cast<int32_t>(i);
    if (places_[i].bytes > 0 && places_[i].root == tensor) blocks[i] = BlockOf(tensor);
  }
  for (size_t i = 0; i < steps_.size(); ++i) {
    const int32_t step = static_cast<int32_t>(i);
    blocks[first_scratch + i] = {steps_[i].scratch_bytes, step, step};
  }
  for (size_t i = 0; i < variables.size(); ++i) {
    blocks[first_variable + i] = {variables[i].byte_size(), 0, last_step_};
  }
  const MemoryPlan plan = PlanMemory(blocks, Buffer::kAlignment);
  layout.total_bytes = plan.total;
  layout.lower_bound_bytes = MemoryLowerBound(blocks, Buffer::kAlignment);
  for (const Place& place : places_) {
    layout.blocks.push_back(place.root);
    layout.tensors.push_back(place.bytes == 0 ? -1 : plan.offsets[place.root] + place.offset);
  }
  const auto scratch = plan.offsets.begin() + static_cast<std::ptrdiff_t>(first_scratch);
  const auto variable = plan.offsets.begin() + static_cast<std::ptrdiff_t>(first_variable);
  layout.scratch.assign(scratch, variable);
  layout.variables.assign(variable, plan.offsets.end());
  return layout;
}

}  // namespace

ArenaLayout LayOutArena(const Graph& graph, std::span<const StepMemory> steps,
                        std::span<const Variable> variables, bool keeps_all_tensors) {
  return Layout(graph, steps).Make(variables, keeps_all_tensors);
}

}  // namespace atollrt
