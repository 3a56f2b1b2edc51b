// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/plan/step_plan.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;

// Tensor i is what step i writes; step 0 needs nothing.
Graph GraphOf(size_t steps) {
  Graph graph;
  graph.nodes.resize(steps);
  graph.tensors.resize(steps);
  for (Tensor& tensor : graph.tensors) tensor.shape = {1};
  return graph;
}

StepNodes StepOfNode(int32_t number, std::vector<int32_t> inputs) {
  return {.nodes = {number}, .inputs = std::move(inputs), .outputs = {number}};
}

TEST(OrderSteps, KeepsWhatIsInOrder) {
  EXPECT_THAT(*OrderSteps(GraphOf(3),
                          {StepOfNode(0, {}), StepOfNode(1, {0, -1}), StepOfNode(2, {0, 1, 1})}),
              ElementsAre(0, 1, 2));
}

TEST(OrderSteps, TakesWhatComesTooEarlyInTheNextRound) {
  EXPECT_THAT(*OrderSteps(GraphOf(4), {StepOfNode(0, {1}), StepOfNode(1, {3}), StepOfNode(2, {}),
                                       StepOfNode(3, {2})}),
              ElementsAre(2, 3, 1, 0));
}

TEST(OrderSteps, NamesACycle) {
  EXPECT_EQ(OrderSteps(GraphOf(2), {StepOfNode(0, {1}), StepOfNode(1, {0})}).status().code(),
            StatusCode::kInternal);
  EXPECT_EQ(OrderSteps(GraphOf(1), {StepOfNode(0, {0})}).status().code(), StatusCode::kInternal);
}

// Round after round through all that is left, as the order is defined.
std::vector<size_t> OrderByRounds(const std::vector<StepNodes>& steps) {
  std::vector<size_t> order;
  std::vector<bool> done(steps.size());
  while (order.size() < steps.size()) {
    for (size_t i = 0; i < steps.size(); ++i) {
      const auto ready = [&](int32_t tensor) { return done[static_cast<size_t>(tensor)]; };
      if (done[i] || !std::all_of(steps[i].inputs.begin(), steps[i].inputs.end(), ready)) continue;
      order.push_back(i);
      done[i] = true;
    }
  }
  return order;
}

TEST(OrderSteps, GoesRoundAfterRound) {
  Rng rng(TestSeed(1));
  for (int i = 0; i < 200; ++i) {
    const int32_t count = rng.Int32(1, 40);
    // The place of a step in a hidden order; it reads what comes before it there.
    std::vector<int32_t> hidden(static_cast<size_t>(count));
    for (size_t at = 0; at < hidden.size(); ++at) {
      hidden[at] = static_cast<int32_t>(at);
      std::swap(hidden[at], hidden[static_cast<size_t>(rng.Int(0, static_cast<int64_t>(at)))]);
    }
    std::vector<StepNodes> steps(hidden.size());
    for (size_t at = 0; at < hidden.size(); ++at) {
      std::vector<int32_t> inputs;
      for (int k = 0; at > 0 && k < 3; ++k) {
        if (rng.OneIn(3)) continue;
        inputs.push_back(hidden[static_cast<size_t>(rng.Int(0, static_cast<int64_t>(at) - 1))]);
      }
      steps[static_cast<size_t>(hidden[at])] = StepOfNode(hidden[at], std::move(inputs));
    }
    ASSERT_EQ(*OrderSteps(GraphOf(steps.size()), steps), OrderByRounds(steps));
  }
}

}  // namespace
}  // namespace atollrt
