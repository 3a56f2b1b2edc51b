// SPDX-License-Identifier: Apache-2.0
#include "runtime/step_order.h"

#include <algorithm>

namespace atollrt {

Result<std::vector<size_t>> OrderSteps(const Graph& graph, const std::vector<StepNodes>& steps) {
  std::vector<bool> ready(graph.tensors.size());
  for (size_t i = 0; i < ready.size(); ++i) {
    const Tensor& tensor = graph.tensors[i];
    ready[i] = tensor.is_constant() || tensor.is_variable || tensor.element_count() == 0;
  }
  for (const int32_t input : graph.inputs) ready[input] = true;
  std::vector<size_t> step_of(graph.nodes.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    for (const int32_t node : steps[i].nodes) step_of[node] = i;
  }
  std::vector<std::vector<size_t>> earlier(steps.size());
  for (const auto& [first, second] : StateOrder(graph)) {
    if (step_of[first] != step_of[second]) earlier[step_of[second]].push_back(step_of[first]);
  }
  std::vector<size_t> order;
  std::vector<bool> done(steps.size());
  while (order.size() < steps.size()) {
    const size_t before = order.size();
    for (size_t i = 0; i < steps.size(); ++i) {
      if (done[i]) continue;
      const std::vector<int32_t>& inputs = steps[i].inputs;
      if (!std::all_of(inputs.begin(), inputs.end(),
                       [&](int32_t tensor) { return tensor < 0 || ready[tensor]; }) ||
          !std::all_of(earlier[i].begin(), earlier[i].end(),
                       [&](size_t step) { return done[step]; })) {
        continue;
      }
      done[i] = true;
      for (const int32_t tensor : steps[i].outputs) ready[tensor] = true;
      order.push_back(i);
    }
    if (order.size() == before) return InternalError("the partitions form a cycle");
  }
  return order;
}

}  // namespace atollrt
