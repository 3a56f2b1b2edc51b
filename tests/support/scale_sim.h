// SPDX-License-Identifier: Apache-2.0
//
// The cycles of SCALE-Sim, for comparison with the device's (bench/scale_sim, docs/fidelity.md).
#pragma once

#include <cstdint>

#include "driver/isa/timing.h"
#include "runtime/base/bytes.h"

namespace atollrt {

// A matrix product as SCALE-Sim's weight-stationary model counts it (arXiv 1811.02883 and its
// successors): tiles follow each other without double-buffered weights, R cycles to load each, and
// the count begins at 0. `positions`, `products` and `channels` are M, K and N of docs/isa.md §5,
// at least 1.
inline uint64_t ScaleSimCycles(uint64_t positions, uint64_t products, uint64_t channels,
                               ArraySize array) {
  const uint64_t rows = array.rows;
  const uint64_t columns = array.columns;
  const uint64_t folds = DivideRoundingUp(products, rows) * DivideRoundingUp(channels, columns);
  return folds * (positions + 2 * rows + columns - 2) - 1;
}

}  // namespace atollrt
