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
                                             std::span<const InstructionOrigin> origins,
                                             InstructionRange around) {
  if (bands == 1) {
    while (around.first <= around.last && !RunsDuring(block, origins[around.first])) ++around.first;
    while (around.first <= around.last && !RunsDuring(block, origins[around.last])) --around.last;
    if (around.first > around.last) return {};
    return {around};
  }
  std::vector<std::optional<InstructionRange>> of_band(static_cast<size_t>(bands));
  for (int32_t at = around.first; at <= around.last; ++at) {
    if (!RunsDuring(block, origins[at])) continue;
    auto& range = of_band[static_cast<size_t>(origins[at].band)];
    if (!range) range = {at, at};
    range->last = at;
  }
  std::vector<InstructionRange> ranges;
  for (const auto& range : of_band) {
    if (range) ranges.push_back(*range);
  }
  return ranges;
}

std::optional<InstructionRange> InstructionsOfParameters(const MemoryBlock& block, int32_t step,
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
  if (around.first > around.last) return std::nullopt;
  return around;
}

}  // namespace atollrt
