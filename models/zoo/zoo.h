// SPDX-License-Identifier: Apache-2.0
//
// The zoo: well-known networks as int8 graphs with weights from a seed, for benchmarks, exactness
// tests and timing, where a network's shapes count and what it has learned does not. Topologies
// are those of the papers and of TensorFlow's published implementations.
//
// A name is a family and its parameters: "mobilenet_v1_0.75_192" has the width multiplier 0.75 and
// takes pictures of 192 x 192, "posenet_mobilenet_v1_0.75_353x481" of 353 rows by 481 columns.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/status.h"
#include "models/zoo/owned_graph.h"

namespace atollrt {

using ZooModel = OwnedGraph;

// What a name may be: "mobilenet_v1_<width>_<size>", one per family.
std::vector<std::string> ZooFamilies();
// The networks whose latency on a Coral has been published, and other usual ones.
std::vector<std::string> ZooNetworks();

struct ZooOptions {
  uint64_t seed = 1;  // the same seed gives the same bytes
  // kZero: weights and biases are zero, which is faster for those who only look at shapes.
  enum class Weights { kRandom, kZero } weights = Weights::kRandom;
};

// The network of that name. kNotFound, listing the families, if there is none; kInvalidArgument if
// a parameter is out of range or the picture too small.
Result<ZooModel> BuildZooModel(std::string_view name, const ZooOptions& options = {});

}  // namespace atollrt
