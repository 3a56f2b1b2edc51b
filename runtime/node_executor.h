// SPDX-License-Identifier: Apache-2.0
//
// NodeExecutor and Delegate: the seam between the interpreter and whatever runs nodes. One CPU
// operator is an executor, and so is a whole partition on a device; this file is all that
// runtime/ knows of acceleration.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/graph/graph.h"
#include "runtime/kernels/line_window.h"
#include "runtime/kernels/pairs/pair_tail.h"
#include "runtime/kernels/thread_pool.h"
#include "runtime/trace.h"

namespace atollrt {

// What a device did for one Invoke of one executor.
struct DeviceUsage {
  uint64_t cycles = 0;
  uint64_t bytes_to_device = 0;
  uint64_t bytes_from_device = 0;
  double seconds = 0;  // modelled: device cycles and transfer over the link
  // Measured on the host; their meaning is AtollInvokeInfo's.
  int64_t queue_ns = 0;
  int64_t link_out_ns = 0;
  int64_t compute_ns = 0;
  int64_t link_in_ns = 0;
};

// The operands of one Invoke, in the order in which the step names its tensors. Inputs that are
// absent are nullptr. Sizes are those of the tensors in the graph.
struct NodeIo {
  std::span<const uint8_t* const> inputs;
  std::span<uint8_t* const> outputs;
  // One per input: where it lives if it outlasts the invocation (variable tensors, and for the
  // handle that READ_ and ASSIGN_VARIABLE take the variable), else nullptr.
  std::span<uint8_t* const> state;
  uint8_t* scratch = nullptr;    // ScratchBytes() bytes, aligned to Buffer::kAlignment
  ThreadPool* pool = nullptr;    // never nullptr during Invoke
  DeviceUsage* usage = nullptr;  // never nullptr during Invoke; zeroed before
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
  // Of one thread.
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

// Where the modelled time of one inference on a device goes, in seconds. Link and units work side
// by side, so the parts may add up to more than the total.
struct ModelledLatency {
  double total = 0;
  double host = 0;        // submitting and collecting the request
  double link_out = 0;    // inputs on their way to the device
  double parameters = 0;  // streamed parameters on their way to the device
  double array = 0;       // the array is busy
  double vector = 0;      // the vector unit is busy
  double dma = 0;         // bytes are moved on chip
  double link_in = 0;     // outputs on their way to the host
};

// Bytes of a device's on-chip memory that are reserved for something during some instructions of a
// partition's program.
struct OnChipBlock {
  enum class Kind : uint8_t { kTensor, kResidentParameters, kStreamedParameters, kScratch };
  Kind kind = Kind::kTensor;
  int32_t tensor = -1;  // kTensor
  int32_t node = -1;    // that writes the tensor (-1: an input) or owns the parameters or scratch
  int64_t offset = 0;   // in the parameter segment for kResidentParameters, else in the other one
  int64_t bytes = 0;
  int32_t first_instruction = 0;
  int32_t last_instruction = 0;
};

// What is known of a partition once it is compiled; numbers are per inference.
struct PartitionReport {
  int32_t instruction_count = 0;
  int64_t resident_parameter_bytes = 0;
  int64_t streamed_parameter_bytes = 0;
  int64_t activation_bytes = 0;
  int64_t input_bytes = 0;
  int64_t output_bytes = 0;
  int64_t estimated_cycles = 0;  // modelled, from the start message to the last output byte
  ModelledLatency latency;
  // What it takes to bring it to a device where it is not, or no longer, resident.
  int64_t program_bytes = 0;
  int64_t upload_bytes = 0;         // over the link, all records
  double upload_seconds = 0;        // modelled
  std::vector<OnChipBlock> memory;  // empty if the partition came compiled with the model
  std::string note;                 // what a user should know; empty if nothing
};

// A connected, acyclic set of nodes that one executor replaces.
struct Partition {
  std::vector<int32_t> nodes;    // ascending
  std::vector<int32_t> inputs;   // tensors that come from outside, constants not among them
  std::vector<int32_t> outputs;  // tensors that are read outside
  std::unique_ptr<NodeExecutor> executor;
  PartitionReport report;
};

struct DelegatePlan {
  std::vector<Partition> partitions;
  // For each node of the graph: why it is in no partition; empty for nodes that are in one.
  std::vector<std::string> refusals;
};

// How the partitions of a graph share a device with those of others (driver/device/device_info.h).
struct PlanOptions {
  int32_t priority = 0;        // of their requests; the higher, the sooner
  uint32_t residency_set = 0;  // graphs of one set stay on the device together; 0: this one alone
};

class Delegate {
 public:
  virtual ~Delegate() = default;
  // Decides what to take of `graph`, which outlives the plan, and makes it ready to run. May be
  // called from several threads.
  virtual Result<DelegatePlan> Plan(const Graph& graph, const PlanOptions& options) = 0;
};

}  // namespace atollrt
