// SPDX-License-Identifier: Apache-2.0
#include "tests/support/large_graphs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

namespace atollrt {
namespace {

const Shape kSmall = {1, 8};

void Chain(ModelBuilder& m, int32_t nodes) {
  int32_t x = m.Input(kSmall);
  for (int32_t i = 0; i < nodes; ++i) x = m.Add(x, x);
  m.Output(x);
}

void Tables(ModelBuilder& m, int32_t nodes) {
  int32_t x = m.Input(kSmall);
  for (int32_t i = 0; i < nodes; ++i) x = m.Logistic(x);
  m.Output(m.Add(x, x));
}

void Convolutions(ModelBuilder& m, int32_t nodes) {
  int32_t x = m.Input({1, 2, 2, 8});
  for (int32_t i = 0; i < nodes; ++i) x = m.Conv2D(x, {.channels = 8});
  m.Output(x);
}

void Dense(ModelBuilder& m, int32_t nodes) {
  int32_t x = m.Input({1, 32});
  for (int32_t i = 0; i < nodes; ++i) x = m.FullyConnected(x, 32);
  m.Output(x);
}

void Residual(ModelBuilder& m, int32_t nodes) {
  int32_t x = m.Input({1, 2, 2, 8});
  for (int32_t i = 0; i < nodes / 2; ++i) x = m.Add(x, m.Conv2D(x, {.channels = 8}));
  m.Output(x);
}

void Reshapes(ModelBuilder& m, int32_t nodes) {
  int32_t x = m.Input(kSmall);
  x = m.Add(x, x);
  for (int32_t i = 0; i < nodes; ++i) x = m.Reshape(x, i % 2 == 0 ? Shape{8} : kSmall);
  m.Output(m.Add(x, x));
}

void Skips(ModelBuilder& m, int32_t nodes) {
  int32_t before = m.Input(kSmall);
  int32_t x = m.Add(before, before);
  for (int32_t i = 1; i < nodes; ++i) {
    const int32_t next = m.Add(x, before);
    before = x;
    x = next;
  }
  m.Output(x);
}

void Nested(ModelBuilder& m, int32_t nodes) {
  std::vector<int32_t> down = {m.Input(kSmall)};
  for (int32_t i = 0; i < nodes / 2; ++i) down.push_back(m.Relu(down.back()));
  int32_t x = down.back();
  for (int32_t i = nodes / 2; i-- > 0;) x = m.Add(x, down[static_cast<size_t>(i)]);
  m.Output(x);
}

void Diamonds(ModelBuilder& m, int32_t nodes) {
  int32_t x = m.Input(kSmall);
  for (int32_t i = 0; i < nodes / 3; ++i) x = m.Add(m.Relu(x), m.Add(x, x));
  m.Output(x);
}

void Fan(ModelBuilder& m, int32_t nodes) {
  const int32_t x = m.Input(kSmall);
  const int32_t shared = m.Add(x, x);
  for (int32_t i = 0; i < nodes; ++i) m.Output(m.Add(shared, x));
}

void Joined(ModelBuilder& m, int32_t nodes) {
  const int32_t x = m.Input(kSmall);
  std::vector<int32_t> parts;
  constexpr int32_t kMost = 60000;  // inputs of a node
  for (int32_t i = 0; i < std::min(nodes, kMost); ++i) parts.push_back(m.Add(x, x));
  m.Output(m.Concatenation(parts, 0));
}

void Tree(ModelBuilder& m, int32_t nodes) {
  const int32_t x = m.Input(kSmall);
  std::deque<int32_t> open;
  for (int32_t i = 0; i < (nodes + 1) / 2; ++i) open.push_back(m.Add(x, x));
  while (open.size() > 1) {
    const int32_t a = open[0], b = open[1];
    open.erase(open.begin(), open.begin() + 2);
    open.push_back(m.Add(a, b));
  }
  m.Output(open[0]);
}

void Inputs(ModelBuilder& m, int32_t nodes) {
  int32_t x = m.Input(kSmall);
  for (int32_t i = 0; i < nodes; ++i) x = m.Add(x, m.Input(kSmall));
  m.Output(x);
}

void Outputs(ModelBuilder& m, int32_t nodes) {
  int32_t x = m.Input(kSmall);
  for (int32_t i = 0; i < nodes; ++i) m.Output(x = m.Add(x, x));
}

// LOG_SOFTMAX has no instruction.
void Alternating(ModelBuilder& m, int32_t nodes) {
  int32_t x = m.Input(kSmall);
  for (int32_t i = 0; i < nodes / 2; ++i) x = m.LogSoftmax(m.Add(x, x));
  m.Output(x);
}

void Leaves(ModelBuilder& m, int32_t nodes) {
  int32_t x = m.Input(kSmall);
  for (int32_t i = 0; i < nodes / 2; ++i) {
    x = m.Add(x, x);
    m.Output(m.LogSoftmax(x));
  }
  m.Output(x);
}

void Rails(ModelBuilder& m, int32_t nodes) {
  int32_t x = m.Input(kSmall);
  int32_t other = m.LogSoftmax(m.Add(x, x));
  std::vector<int32_t> given;
  for (int32_t i = 0; i < nodes / 3; ++i) {
    x = m.Add(x, other);
    other = m.LogSoftmax(other);
    given.push_back(m.LogSoftmax(x));
  }
  for (size_t i = 0; i < given.size(); ++i) x = m.Add(x, given[i]);
  m.Output(x);
}

// Nine tensors of a megabyte are alive at any time: too much for a device of 8 MiB.
void Held(ModelBuilder& m, int32_t nodes) {
  const Shape large = {1, 1 << 20};
  std::vector<int32_t> x = {m.Input(large)};
  for (int32_t i = 0; i < nodes; ++i) {
    const size_t last = x.size() - 1;
    x.push_back(m.Add(x[last], x[last - std::min<size_t>(last, 8)]));
  }
  m.Output(x.back());
}

// Images of 5 MB each, which a device of 8 MiB computes in bands of rows.
void Images(ModelBuilder& m, int32_t nodes) {
  int32_t x = m.Input({1, 2048, 2560, 1});
  for (int32_t i = 0; i < nodes; ++i) x = m.Add(x, x);
  m.Output(x);
}

}  // namespace

const std::vector<LargeGraph>& LargeGraphs() {
  static const std::vector<LargeGraph> graphs = {
      {"chain", "one after the other", Chain},
      {"tables", "one after the other, each with a table of 256 bytes", Tables},
      {"convolutions", "one after the other, 192 bytes of parameters each", Convolutions},
      {"dense", "one after the other, 1.5 KiB of parameters each", Dense},
      {"residual", "x + convolution of x", Residual},
      {"reshapes", "renames of one tensor", Reshapes},
      {"skips", "each reads the two before it", Skips},
      {"nested", "skip connections inside of each other", Nested},
      {"diamonds", "two branches that meet, and again", Diamonds},
      {"fan", "all read the same, all are outputs", Fan},
      {"joined", "all read the same, one reads all", Joined},
      {"tree", "a binary tree towards the output", Tree},
      {"inputs", "each with an input of its own", Inputs},
      {"outputs", "each with an output of its own", Outputs},
      {"alternating", "every other node has no instruction", Alternating},
      {"leaves", "a node without instruction hangs on every other one", Leaves},
      {"rails", "exchange with nodes without instruction at every step", Rails},
      {"held", "1 MiB each, alive during eight more", Held},
      {"images", "5 MiB each, in bands", Images},
  };
  return graphs;
}

ModelBuilder MakeLargeGraph(const std::string& name, int32_t nodes) {
  ModelBuilder m;
  for (const LargeGraph& graph : LargeGraphs()) {
    if (graph.name != name) continue;
    graph.build(m, nodes);
    return m;
  }
  ADD_FAILURE() << "no graph '" << name << "'";
  return m;
}

}  // namespace atollrt
