// SPDX-License-Identifier: Apache-2.0
#ifndef ATOLL_COMPAT_TFLITE_DELEGATE_CHOOSER_H_
#define ATOLL_COMPAT_TFLITE_DELEGATE_CHOOSER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "compat/tflite/abi.h"
#include "compat/tflite_delegate/partition.h"

namespace atollcompat {

// Which of a graph's operators the delegate takes. Those that a compiler made, Google's
// ("edgetpu-custom-op") or Atoll's, always: nobody else has a kernel for them, so what is wrong
// with one can be said by the delegate alone.
enum class Operators : uint8_t {
  kAll,       // all that Atoll computes, on the device or on the CPU
  kDevice,    // those that the partitioner gives to the device
  kCompiled,  // no others
};

struct ChooserOptions {
  Operators operators = Operators::kAll;
  int min_nodes = 1;  // smaller partitions stay with the runtime
  int num_threads = 0;
};

struct ChosenPartition {
  std::vector<int> nodes;
  std::vector<int> outputs;  // as the runtime asks for them
  Partition partition;
};

struct Choice {
  std::vector<int> nodes;  // to be replaced, in the order of the plan
  // As the runtime will cluster them. All have an interpreter, but for those of operators that are
  // always taken: once a runtime has replaced nodes, there is no way back.
  std::vector<ChosenPartition> partitions;
  struct Refusal {
    int node;
    std::string reason;
  };
  std::vector<Refusal> refusals;  // all other nodes of the plan
  std::string error;              // why nothing could be chosen; "" if that is not so
};

// Chooses nodes of the graph, in a delegate's Prepare.
//
// What is made of a graph is made of all of it, or of a whole partition, at once; only where that
// fails, of its halves, down to the nodes that are to blame. So a graph without such nodes is
// written, loaded and compiled once (with kDevice twice: placed, then in partitions).
Choice Choose(TfLiteContext* context, Device* device, const ChooserOptions& options);

}  // namespace atollcompat

#endif  // ATOLL_COMPAT_TFLITE_DELEGATE_CHOOSER_H_
