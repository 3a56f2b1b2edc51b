// SPDX-License-Identifier: Apache-2.0
//
// DirectArray: the array's direct face. It runs a whole CONV_2D, DEPTHWISE_CONV_2D,
// TRANSPOSE_CONV_2D or LSTM through the kernels of runtime/kernels. Weights of filters are packed
// the first time that an instruction runs and again only when the memory under them has changed to
// something new, so steady inferences pack and allocate nothing. Instructions that take long run in
// slices, between which they can be stopped. Not thread-safe, but spreads the work over the pool.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <variant>

#include "driver/emulator/host_scratch.h"
#include "driver/emulator/memory.h"
#include "driver/emulator/slices.h"
#include "driver/emulator/stop_signal.h"
#include "driver/isa/instruction.h"
#include "driver/isa/memory_access.h"
#include "runtime/base/thread_pool.h"
#include "runtime/kernels/conv2d.h"
#include "runtime/kernels/cpu_features.h"
#include "runtime/kernels/depthwise/depthwise_conv2d.h"
#include "runtime/kernels/recurrent.h"
#include "runtime/kernels/transpose_conv.h"

namespace atollrt {

class DirectArray {
 public:
  // All are borrowed for the life of the array; `pool` may be nullptr.
  DirectArray(OnChipMemory* memory, CpuFeatures features, ThreadPool* pool,
              const WorkLimits& limits = {});
  ~DirectArray();

  // `instruction` is one of the three filters and has passed CheckInstruction, and its channel
  // records CheckChannelRecords.
  void Run(const Instruction& instruction, const Segments& segments);
  // The same for a CONV_2D together with `add`, which has passed CheckInstruction and CheckChain
  // behind it: each part of the sum is made as soon as there are the bytes for it.
  void RunChained(const Instruction& instruction, const AddInstruction& add,
                  const Segments& segments);
  // The same for an LSTM.
  void RunLstm(const LstmInstruction& instruction, const Segments& segments);

  // Instructions in progress end early when it says so. Without one they never do.
  void set_stop(const StopSignal& stop) { stop_ = stop; }

  // How often weights have been packed.
  uint64_t packings() const { return packings_; }

 private:
  // One instruction as it runs, wherever in program memory it is.
  struct Key {
    Instruction instruction;
    Segments segments;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  struct Prepared;

  Prepared* Prepare(const Key& key);
  void Run(const Instruction& instruction, const Segments& segments, const PairTailOperands& tail);
  template <typename Mapping, typename T>
  void RunInSlices(const T& operands, const Segments& segments, const uint8_t* input,
                   uint8_t* output);
  void MakeRoom(uint64_t bytes);
  bool Holds(const Prepared& prepared) const;
  bool HoldsAgain(Prepared* prepared) const;

  OnChipMemory* memory_;
  CpuFeatures features_;
  ThreadPool* pool_;
  const WorkLimits limits_;
  const PairFn combine_pairs_;
  const uint64_t packed_limit_;
  std::unordered_map<Key, std::unique_ptr<Prepared>, KeyHash> prepared_;
  uint64_t prepared_bytes_ = 0;
  uint64_t packings_ = 0;
  HostScratch scratch_;
  HostScratch cells_;  // of slices
  StopSignal stop_;
  LstmParams lstm_;  // of the latest one; keeps its memory
};

}  // namespace atollrt
