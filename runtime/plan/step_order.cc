// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/step_order.h"

#include <functional>
#include <queue>
#include <utility>

namespace atollrt {

Result<std::vector<size_t>> OrderSteps(const Graph& graph, const std::vector<StepNodes>& steps) {
  // How many steps a step waits for, and which wait for it.
  std::vector<size_t> waits_for(steps.size());
  std::vector<std::vector<size_t>> waiting(steps.size());
  const auto wait = [&](size_t step, size_t for_step) {
    ++waits_for[step];
    waiting[for_step].push_back(step);
  };
  constexpr size_t kNone = SIZE_MAX;
  std::vector<size_t> writer(graph.tensors.size(), kNone);
  for (size_t i = 0; i < steps.size(); ++i) {
    for (const int32_t tensor : steps[i].outputs) writer[tensor] = i;
  }
  std::vector<bool> is_given(graph.tensors.size());
  for (size_t i = 0; i < is_given.size(); ++i) {
    const Tensor& tensor = graph.tensors[i];
    is_given[i] = tensor.is_constant() || tensor.is_variable || tensor.element_count() == 0;
  }
  for (const int32_t input : graph.inputs) is_given[input] = true;
  for (size_t i = 0; i < steps.size(); ++i) {
    for (const int32_t tensor : steps[i].inputs) {
      if (tensor < 0 || is_given[tensor]) continue;
      // What nobody writes is waited for in vain.
      writer[tensor] == kNone ? static_cast<void>(++waits_for[i]) : wait(i, writer[tensor]);
    }
  }
  std::vector<size_t> step_of(graph.nodes.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    for (const int32_t node : steps[i].nodes) step_of[node] = i;
  }
  for (const auto& [first, second] : StateOrder(graph)) {
    if (step_of[first] != step_of[second]) wait(step_of[second], step_of[first]);
  }

  // Rounds through all steps in their order, each of which takes what is ready when it gets there:
  // what waits for a later step is of the next round. By round and step.
  using Turn = std::pair<size_t, size_t>;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> ready;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (waits_for[i] == 0) ready.emplace(0, i);
  }
  std::vector<size_t> order;
  while (!ready.empty()) {
    const auto [round, step] = ready.top();
    ready.pop();
    order.push_back(step);
    for (const size_t next : waiting[step]) {
      if (--waits_for[next] == 0) ready.emplace(next > step ? round : round + 1, next);
    }
  }
  if (order.size() < steps.size()) return InternalError("the partitions form a cycle");
  return order;
}

}  // namespace atollrt
