// SPDX-License-Identifier: Apache-2.0
//
// Values that stand for infinity: what lies around the input of a MAX_POOL, masks before SOFTMAX,
// limits that never hold. They are constants so large that beside them all other values would be
// less than a step. A range leaves them out, and they are stored as the end of the type; before
// functions that have a limit there (SOFTMAX), ranges are wide enough for it.
#pragma once

#include <span>
#include <vector>

#include "atoll/status.h"
#include "quantize/edited_graph.h"
#include "quantize/float_pass.h"
#include "quantize/scheme.h"

namespace atollrt {

// Infinite constants of pads, masks and limits become the largest finite numbers.
Status MakeInfinitiesFinite(EditedGraph* edited);

// The smallest magnitude among those values of a constant that `node` reads and that may stand for
// infinity; INFINITY: none does.
float SmallestInfinity(const Node& node, std::span<const float> values);

// For each tensor the magnitude from which on its values may stand for infinity, as the constants
// of the graph are; INFINITY: none does.
std::vector<float> PossibleInfinities(const Graph& graph);

// Decides which of the possible infinities are some, by what is beside them: measures->infinities
// becomes INFINITY for all other tensors, and measures->ranges leave them out.
void SettleInfinities(const Graph& graph, Precision precision, FloatMeasures* measures);

}  // namespace atollrt
