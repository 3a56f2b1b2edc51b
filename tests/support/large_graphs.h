// SPDX-License-Identifier: Apache-2.0
//
// Models of as many operators as one likes, of shapes that strain whatever looks at all pairs of
// nodes, tensors or partitions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/model_builder.h"

namespace atollrt {

struct LargeGraph {
  const char* name;
  const char* about;
  // Of about `nodes` operators, and small tensors unless `about` says otherwise.
  void (*build)(ModelBuilder& m, int32_t nodes);
};

const std::vector<LargeGraph>& LargeGraphs();
// The test fails if there is none of that name.
ModelBuilder MakeLargeGraph(const std::string& name, int32_t nodes);

}  // namespace atollrt
