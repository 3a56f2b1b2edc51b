// SPDX-License-Identifier: Apache-2.0
//
// What a file has beside its graphs: signatures and metadata.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "atoll/status.h"
#include "runtime/graph/graph.h"
#include "runtime/tflite/tflite_tables.h"

namespace atollrt {

// `graphs` are those of the file. Metadata points into `bytes`. kCorruptModel if something names a
// graph, tensor or buffer that is not there; kResourceExhausted if `budget` is spent.
Result<ModelExtras> ReadExtras(std::span<const uint8_t> bytes, const tflite::Model& model,
                               const std::vector<Graph>& graphs, CopyBudget* budget);

}  // namespace atollrt
