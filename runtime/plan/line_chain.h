// SPDX-License-Identifier: Apache-2.0
//
// LineChain: convolutions that follow each other, run a few lines at a time, so that what they hand
// on stays in the caches and needs no memory of its own in the arena. Each thread computes a band
// of the last output, from top to bottom, and keeps only those lines of the tensors in between that
// are still needed. Bytes are the same as those of the convolutions one by one.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/graph/graph.h"
#include "runtime/kernels/pairs/pairs.h"
#include "runtime/ops/node_executor.h"

namespace atollrt {

// A convolution, borrowed, and what becomes of its lines before the next one has them (or nullptr).
struct LineStage {
  const LineRunner* runner = nullptr;
  const PairTail* tail = nullptr;
};

class LineChain final : public NodeExecutor {
 public:
  // Two or more, each reading what the one before it writes. Inputs are that of the first one, then
  // the other operands of all tails.
  explicit LineChain(std::vector<LineStage> stages);

  size_t ScratchBytes(int threads) const override;
  Status Invoke(const NodeIo& io) override;

 private:
  struct Window;
  void ChooseBand();
  void RunBand(const NodeIo& io, LineRange lines, uint8_t* scratch) const;
  void RunStage(size_t stage, const LineWindow& input, LineRange lines, const NodeIo& io,
                uint8_t* output, uint8_t* scratch) const;
  size_t WorkerScratchBytes() const;

  std::vector<LineStage> stages_;
  std::vector<size_t> tail_inputs_;    // of each stage: which input its tail reads
  int32_t band_lines_ = 1;             // of the last output, at a time
  std::vector<int32_t> window_lines_;  // of each tensor in between, at most
};

// One step of an interpreter, as far as chains are concerned.
struct ChainStep {
  const LineRunner* runner = nullptr;  // nullptr: joins no chain
  std::vector<int32_t> inputs;         // tensors; -1: absent
  std::vector<int32_t> outputs;
};

// Positions of steps that should run as one chain each, in order, at the place of the last of them.
// The tensors in between are read by nothing else and are too large to wait in a cache.
std::vector<std::vector<size_t>> FindLineChains(const Graph& graph,
                                                const std::vector<ChainStep>& steps);

}  // namespace atollrt
