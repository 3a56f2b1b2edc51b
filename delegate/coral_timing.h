// SPDX-License-Identifier: Apache-2.0
//
// What a real Coral Edge TPU would take for a model: a prediction from the shapes of its layers.
// Nothing here was measured on hardware; docs/fidelity.md compares it with published latencies and
// says how far to trust it. It has nothing to do with the timing of the emulated Atoll-1, which is
// exact by definition (docs/isa.md §5).
//
// One inference is a start by the host, instructions and inputs over the link, the layers, and the
// outputs back. A layer costs its arithmetic at one of two rates, and a constant. Parameters that
// do not fit on the chip cross the link in every inference, partly under the computation:
//
//   T = host + (instructions + inputs) / B + (1 - x) pre + max(x pre + post, streamed / B)
//       + outputs / B
//
// where B is the link's rate and pre and post are the times of the layers before and from the first
// one whose parameters are streamed. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "atoll/status.h"
#include "runtime/graph/graph.h"

namespace atollrt {

// One node on the device.
struct TimedCoralLayer {
  double dense_macs = 0;         // of convolutions and matrix products
  double vector_operations = 0;  // taps of depthwise convolutions and pools, operands of the rest
  bool is_issued = true;         // false: only another view of its input, costs nothing
  uint64_t parameter_bytes = 0;  // as the chip stores them
};

// A model as Google's compiler would map it: every node up to the first that a Coral cannot run.
struct TimedCoralProgram {
  std::vector<TimedCoralLayer> layers;  // in order of execution
  uint64_t parameter_bytes = 0;         // of all layers
  uint64_t instruction_bytes = 0;       // sent with every inference; estimated
  uint64_t input_bytes = 0;
  uint64_t output_bytes = 0;
  uint64_t activation_bytes = 0;  // on-chip memory that parameters cannot have
  int32_t device_nodes = 0;
  int32_t host_nodes = 0;  // run on the host's CPU; their time is not part of any estimate
};
// kUnsupported if no node would run on the device. `graph` must be loaded or shape-inferred.
Result<TimedCoralProgram> DescribeForCoral(const Graph& graph);

// Rates of the chip, fitted by bench/coral_fit.
struct CoralRates {
  double dense_macs_per_cycle = 0;
  double vector_operations_per_cycle = 0;
  double cycles_per_layer = 0;
};
CoralRates FittedCoralRates();

// What the chip is plugged into, fitted by bench/coral_fit.
struct CoralHost {
  const char* name;     // "usb3"
  const char* summary;  // "desktop, USB 3"
  double link_bytes_per_second = 0;
  double request_seconds = 0;  // of the host, per inference
};
std::span<const CoralHost> CoralHosts();
// kNotFound, listing the names, if there is none.
Result<CoralHost> FindCoralHost(std::string_view name);

inline constexpr double kCoralMaxClockHz = 500e6;  // with the -max runtime; -std has half

struct CoralSetup {
  CoralRates rates;
  CoralHost host;
  double clock_hz = kCoralMaxClockHz;
};

struct CoralEstimate {
  // Where the time of one inference goes; `seconds()` is their sum.
  double host_seconds = 0;
  double link_out_seconds = 0;   // instructions and inputs
  double dense_seconds = 0;      // convolutions, matrix products
  double vector_seconds = 0;     // depthwise convolutions, pooling, element-wise operators
  double layer_seconds = 0;      // the constant part of every layer
  double parameter_seconds = 0;  // streaming that no computation hides
  double link_in_seconds = 0;    // outputs

  double seconds() const {
    return host_seconds + link_out_seconds + dense_seconds + vector_seconds + layer_seconds +
           parameter_seconds + link_in_seconds;
  }
  uint64_t cached_bytes = 0;    // of parameters, resident while no other model needs the chip
  uint64_t streamed_bytes = 0;  // of parameters, sent with every inference
  // Of the cached parameters: before the first inference, and after every one of another model
  // that was not compiled together with this one.
  double upload_seconds = 0;
};

CoralEstimate EstimateCoral(const TimedCoralProgram& program, const CoralSetup& setup);
// Models compiled together, which share the chip's memory: parameters are cached in the order of
// the models until it is full. One estimate for each.
std::vector<CoralEstimate> EstimateCoCompiled(std::span<const TimedCoralProgram> programs,
                                              const CoralSetup& setup);

}  // namespace atollrt
