// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/reduce.h"

#include <algorithm>

namespace atollrt {

ReducePlan MakeReducePlan(const std::vector<int32_t>& sizes, const std::vector<bool>& reduce) {
  ReducePlan plan;
  // From the innermost axis outwards, merging into the loop found last.
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 1) continue;
    const int64_t out_stride = reduce[i] ? 0 : plan.outputs;
    const bool continues = !plan.loops.empty() && (plan.loops.back().out_stride == 0) == reduce[i];
    if (continues) {
      plan.loops.back().count *= sizes[i];
    } else {
      plan.loops.push_back({sizes[i], plan.outputs * plan.reduced, out_stride});
    }
    (reduce[i] ? plan.reduced : plan.outputs) *= sizes[i];
  }
  std::reverse(plan.loops.begin(), plan.loops.end());
  return plan;
}

}  // namespace atollrt
