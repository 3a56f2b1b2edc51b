// SPDX-License-Identifier: Apache-2.0
//
// NodeExecutor: the seam between the interpreter and whatever runs nodes. One CPU operator is an
// executor, and so is a whole partition on a device (plan/delegate.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "runtime/base/request_cost.h"
#include "runtime/base/thread_pool.h"
#include "runtime/graph/graph.h"
#include "runtime/kernels/conv_shape.h"
#include "runtime/kernels/pairs/pairs.h"
#include "runtime/ops/trace.h"

namespace atollrt {

// The operands of one Invoke, in the order in which the step names its tensors. Inputs that are
// absent are nullptr. Sizes are those of the tensors in the graph.
struct NodeIo {
  std::span<const uint8_t* const> inputs;
  std::span<uint8_t* const> outputs;
  // One per input: where it lives if it outlasts the invocation (variable tensors, and for the
  // handle that READ_ and ASSIGN_VARIABLE take the variable), else nullptr.
  std::span<uint8_t* const> state;
  uint8_t* scratch = nullptr;   // ScratchBytes() bytes, aligned to Buffer::kAlignment
  ThreadPool* pool = nullptr;   // never nullptr during Invoke
  RequestCost* cost = nullptr;  // never nullptr during Invoke; zeroed before; for devices
  // Where the executor of a partition reports what it does; nullptr: nobody listens. Events need no
  // partition.
  const Trace* trace = nullptr;
};

// A convolution of input 0 to output 0 that can be computed line by line (line_chain.h).
class LineRunner {
 public:
  virtual ~LineRunner() = default;

  virtual const ConvShape& shape() const = 0;
  virtual int64_t WeightBytes() const = 0;
  // Whether they lie in the file as its kernel reads them (Tensor::packed_weights).
  virtual bool uses_packed_weights() const { return false; }
  // The kernel in use, and how many output channels become bytes by its float form.
  virtual const char* kernel_name() const = 0;
  virtual int32_t CountFloatChannels() const { return 0; }
  // Scratch memory of RunLines, which each thread needs.
  virtual size_t LineScratchBytes() const = 0;
  // Computes lines `lines` of the output of one image, on this thread: `input` has all lines that
  // they depend on, lines.first goes to the beginning of `output`. Allocates nothing.
  virtual void RunLines(const LineWindow& input, LineRange lines, uint8_t* output,
                        uint8_t* scratch) const = 0;

  // Whether RunWithTail may be called: the executor's Invoke, whose output goes through a tail.
  virtual bool takes_tail() const { return false; }
  virtual void RunWithTail(const NodeIo& io, const PairTailOperands& tail) const {
    (void)io;
    (void)tail;
  }
};

class NodeExecutor {
 public:
  virtual ~NodeExecutor() = default;

  // nullptr if its output cannot be computed line by line.
  virtual const LineRunner* line_runner() const { return nullptr; }
  // What happens to the lines that line_runner() makes, with input 1 as the other operand; nullptr:
  // they are the output as they are.
  virtual const PairTail* pair_tail() const { return nullptr; }

  // Memory that Invoke needs besides its operands, with a pool of `threads`.
  virtual size_t ScratchBytes(int threads) const {
    (void)threads;
    return 0;
  }
  // Runs once. Allocates nothing; fails only because of a device or of what its data says (an
  // index out of range, a box that ends before it begins). Errors do not name the node.
  virtual Status Invoke(const NodeIo& io) = 0;
  // Makes an Invoke in progress on another thread end early, if it can.
  virtual void Cancel() {}
};

}  // namespace atollrt
