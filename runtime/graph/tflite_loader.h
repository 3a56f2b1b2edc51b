// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a .tflite file -> Graph. The bytes are hostile: everything that graph.h promises is
// checked here, and a failure names the tensor or node and the numbers. Pure function.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/base/status.h"
#include "runtime/graph/graph.h"

namespace atollrt {

// Reads the first subgraph. The graph points into `bytes`, which must outlive it. kCorruptModel
// for bytes that are no valid model, kUnsupported for valid ones with something that Atoll does
// not know (types, dynamic shapes, operators with unknown shapes).
Result<Graph> LoadTflite(std::span<const uint8_t> bytes);

}  // namespace atollrt
