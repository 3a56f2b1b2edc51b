// SPDX-License-Identifier: Apache-2.0
//
// The options of TensorFlow Lite's operators: tables of a file -> OpOptions and back, by the list
// tflite_options.inc. Part of the loader and the writer.
#pragma once

#include "atoll/status.h"
#include "runtime/graph/graph.h"
#include "tflite_generated.h"

namespace atollrt {

// Fills in node->options for node->type. kCorruptModel for values that do not exist or a table
// that an operator cannot do without; a table that is absent otherwise has the schema's defaults.
// Numbers (strides, axes) are judged by InferShapes.
Status ReadTfliteOptions(const tflite::Operator& op, Node* node);

struct StoredOptions {
  tflite::BuiltinOptions type = tflite::BuiltinOptions::NONE;
  flatbuffers::Offset<void> table;
};
// Stores node.options as the table of node.type; nothing if they are NoOptions, but for what
// follows from the node's tensors. kInvalidArgument if they are those of another operator.
Result<StoredOptions> WriteTfliteOptions(const Graph& graph, const Node& node,
                                         flatbuffers::FlatBufferBuilder* fbb);

}  // namespace atollrt
