// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace atollcmd {

// The smallest sample that at least `percent` % of the samples do not exceed (nearest rank);
// `sorted` is ascending and not empty.
inline double Percentile(const std::vector<double>& sorted, double percent) {
  const double rank = std::ceil(percent / 100 * static_cast<double>(sorted.size()));
  return sorted[static_cast<size_t>(std::max(rank, 1.0)) - 1];
}

}  // namespace atollcmd
