// SPDX-License-Identifier: Apache-2.0
//
// Random quantized models: chains and graphs of every operator that the CPU computes for int8,
// uint8 or int16, with skip connections, several inputs and outputs, constant operands and shared
// ones, broadcasting, state, batches, extreme scales and zero points, odd shapes, and images of
// which a small device can only hold bands. All of them are valid: whatever the generator chooses,
// the loader accepts the model and the interpreter runs it. The same choices give the same model.
//
//   Choices choices(seed);
//   const auto model = Model::FromBuffer(RandomModel(&choices, {}));
//
// The operators are those of random_graph/recipes.inc; one that is missing there is reported by
// the test that runs these models (tests/integration/random_graphs_test.cc).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/graph/graph.h"
#include "tests/support/choices.h"

namespace atollrt {

struct RandomGraphOptions {
  int32_t max_nodes = 20;          // give or take those that an operator brings with it
  int64_t max_elements = 1 << 17;  // of a tensor
  int64_t max_work = 12'000'000;   // of all nodes (tests/support/work.h)
  // Operators that most graphs are made of.
  std::function<bool(OpType)> likes = nullptr;
};

// The bytes of a .tflite file with at least one output.
std::vector<uint8_t> RandomModel(Choices* choices, const RandomGraphOptions& options);

}  // namespace atollrt
