// SPDX-License-Identifier: Apache-2.0
#include "delegate/on_chip_map.h"

namespace atollrt {
namespace {

bool RunsDuring(const MemoryBlock& block, const InstructionOrigin& origin) {
  return !origin.fetches_parameters && block.first_use <= origin.step &&
         origin.step <= block.last_use;
}

}  // namespace

std::vector<InstructionRange> InstructionsOf(const MemoryBlock& block, int32_t bands,
                                             const std::vector<InstructionOrigin>& origins) {
  std::vector<std::optional<InstructionRange>> of_band(static_cast<size_t>(bands));
  for (size_t i = 0; i < origins.size(); ++i) {
    if (!RunsDuring(block, origins[i])) continue;
    const auto at = static_cast<int32_t>(i);
    auto& range = of_band[bands > 1 ? static_cast<size_t>(origins[i].band) : 0];
    if (!range) range = {at, at};
    range->last = at;
  }
  std::vector<InstructionRange> ranges;
  for (const auto& range : of_band) {
    if (range) ranges.push_back(*range);
  }
  return ranges;
}

std::optional<InstructionRange> InstructionsOfParameters(
    const MemoryBlock& block, int32_t step, const std::vector<InstructionOrigin>& origins) {
  std::optional<InstructionRange> range;
  for (size_t i = 0; i < origins.size(); ++i) {
    const auto at = static_cast<int32_t>(i);
    const bool fetches = origins[i].fetches_parameters && origins[i].step == step;
    if (fetches && !range) range = {at, at};
    if (range && (fetches || RunsDuring(block, origins[i]))) range->last = at;
  }
  return range;
}

}  // namespace atollrt
