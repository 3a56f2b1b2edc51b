// SPDX-License-Identifier: Apache-2.0
//
// Graphs -> the bytes of a .tflite file: the inverse of LoadTflite. What the loader reads of a
// model, the writer writes; what it reads back equals what was written, except that shapes of
// intermediate tensors are inferred again. Pure function.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "atoll/status.h"
#include "runtime/graph/graph.h"

namespace atollrt {

// The first graph is the model; CALL_ONCE names the others by position. Graphs need not be valid:
// what LoadTflite would refuse can be written. Constants are copied, each into its own buffer,
// aligned to 16 bytes like the options of custom operators; packed weights, too, at multiples
// of 64.
//
// A node's options become the table of its operator, none if they are std::monostate. Those of
// the custom operators that Atoll knows are encoded only if node.custom_options is empty: bytes
// that came from a file are written as they were, with whatever else they hold.
//
// `extras` are written as they are, but for metadata that says where packed weights lie, which is
// made anew.
//
// kInvalidArgument if a node's options are those of another operator, or a tensor index without
// a tensor is needed to write them; kUnsupported if the file would exceed 2 GiB, which is what
// offsets in this format reach.
Result<std::vector<uint8_t>> WriteTflite(std::span<const Graph* const> graphs,
                                         const ModelExtras& extras = {});
Result<std::vector<uint8_t>> WriteTflite(const Graph& graph);

}  // namespace atollrt
