// SPDX-License-Identifier: Apache-2.0
//
// The options of the custom operators that Atoll has: stored bytes -> OpOptions and back, by one
// list of their fields. Part of the loader and the writer.
#pragma once

#include <cstdint>
#include <vector>

#include "atoll/status.h"
#include "runtime/graph/graph.h"
#include "runtime/tflite/flexbuffer.h"

namespace atollrt {

// Fills in node->options from node->custom_options if node->custom_name is one that Atoll has;
// others keep none. kCorruptModel for bytes that are damaged, options that an operator cannot do
// without and numbers out of range.
Status ReadCustomOptions(Node* node);

// The same of options that come from elsewhere.
Status SetCustomOptions(const std::vector<FlexbufferEntry>& entries, Node* node);

// As a FlexBuffers map; empty if they are of no custom operator.
std::vector<uint8_t> EncodeCustomOptions(const OpOptions& options);

}  // namespace atollrt
