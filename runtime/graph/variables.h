// SPDX-License-Identifier: Apache-2.0
//
// Variables: what VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE and CALL_ONCE of a model mean
// together. Handles are resolved here, once, so nothing looks at their values when the model
// runs. Part of the loader.
#pragma once

#include <vector>

#include "atoll/status.h"
#include "runtime/graph/graph.h"

namespace atollrt {

// Numbers the variables of all graphs (those of equal names are one) and writes the numbers into
// the options of the nodes that use them. Shapes must have been inferred. kUnsupported if a handle
// is not of a VAR_HANDLE in the same graph, if a variable has several shapes or if CALL_ONCE is
// nested; kCorruptModel if CALL_ONCE names no graph without inputs and outputs or a variable is
// read before it is assigned.
Result<std::vector<Variable>> ResolveVariables(std::vector<Graph>* graphs);

}  // namespace atollrt
