// SPDX-License-Identifier: Apache-2.0
//
// The options of one operator: stored table -> OpOptions. Part of the loader.
#pragma once

#include "atoll/status.h"
#include "runtime/graph/graph.h"

namespace atollrt {

namespace tflite {
struct Operator;  // of the generated schema
}

// Fills in node->options for node->type. kCorruptModel for values that do not exist or a table
// that an operator cannot do without; a table that is absent otherwise has the schema's defaults.
// Numbers (strides, axes) are judged by InferShapes.
Status ReadTfliteOptions(const tflite::Operator& op, Node* node);

}  // namespace atollrt
