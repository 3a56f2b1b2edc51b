// SPDX-License-Identifier: Apache-2.0
//
// VectorUnit: what the vector unit and the on-chip DMA do to memory, instruction by instruction:
// docs/isa.md §3 without convolutions and streams. Not thread-safe.
#pragma once

#include "driver/emulator/host_scratch.h"
#include "driver/emulator/memory.h"
#include "driver/emulator/slices.h"
#include "driver/emulator/stop_signal.h"
#include "driver/isa/instruction.h"
#include "driver/isa/memory_access.h"
#include "runtime/base/thread_pool.h"
#include "runtime/kernels/broadcast.h"
#include "runtime/kernels/cpu_features.h"
#include "runtime/kernels/normalization.h"
#include "runtime/kernels/pairs/pairs.h"
#include "runtime/kernels/reduce.h"
#include "runtime/kernels/row_loops/row_loops.h"
#include "runtime/kernels/strided_copy.h"

namespace atollrt {

// What an ADD computes.
PairParams PairParamsOf(const AddInstruction& instruction);

class VectorUnit {
 public:
  // `memory` and `pool` are borrowed for the life of the unit; `pool` may be nullptr.
  VectorUnit(OnChipMemory* memory, CpuFeatures features, ThreadPool* pool,
             const WorkLimits& limits = {});

  // Instructions in progress end early when it says so. Without one they never do.
  void set_stop(const StopSignal& stop) { stop_ = stop; }

  // Each instruction must have passed CheckInstruction for these segments.
  void Run(const AddInstruction& instruction, const Segments& segments);
  void Run(const Pool2DInstruction& instruction, const Segments& segments);
  void Run(const ReduceSumInstruction& instruction, const Segments& segments);
  void Run(const TableInstruction& instruction, const Segments& segments);
  void Run(const CopyInstruction& instruction, const Segments& segments);
  void Run(const FillInstruction& instruction, const Segments& segments);
  void Run(const MultiplyInstruction& instruction, const Segments& segments);
  void Run(const MaximumInstruction& instruction, const Segments& segments);
  void Run(const MinimumInstruction& instruction, const Segments& segments);
  void Run(const PreluInstruction& instruction, const Segments& segments);
  void Run(const ReduceMaxInstruction& instruction, const Segments& segments);
  void Run(const ReduceMinInstruction& instruction, const Segments& segments);
  void Run(const SoftmaxInstruction& instruction, const Segments& segments);
  void Run(const L2NormalizationInstruction& instruction, const Segments& segments);
  void Run(const ResizeBilinearInstruction& instruction, const Segments& segments);
  void Run(const ResizeNearestNeighborInstruction& instruction, const Segments& segments);

 private:
  template <typename T>
  void RunExtreme(Extreme which, const T& instruction, const Segments& segments);
  // Calls resize(params, band, input, output).
  template <typename T, typename Function>
  void RunResize(const T& instruction, const Segments& segments, const Function& resize);

  template <PairInstruction T>
  void RunPair(const T& instruction, const PairParams& params, const Segments& segments);

  OnChipMemory& memory_;
  ThreadPool* const pool_;
  const WorkLimits limits_;
  PairFn combine_pairs_;
  const RowLoops& loops_;
  SoftmaxTable softmax_table_;  // of the last SOFTMAX
  HostScratch scratch_;
  HostScratch cells_;  // of slices
  StopSignal stop_;
  // The loops of the instruction that runs; kept so that a run allocates nothing.
  Broadcast broadcast_;
  StridedCopy copy_;
};

}  // namespace atollrt
