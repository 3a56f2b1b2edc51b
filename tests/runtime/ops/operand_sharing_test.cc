// SPDX-License-Identifier: Apache-2.0
//
// Operators that may write where they read do so without changing a byte of the result.
#include "runtime/ops/operand_sharing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "runtime/ops/cpu_ops.h"
#include "tests/support/model_builder.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes Run(NodeExecutor* executor, const std::vector<const uint8_t*>& inputs, uint8_t* output,
          size_t size) {
  ThreadPool pool(2);
  RequestCost cost;
  const std::vector<uint8_t*> state(inputs.size());
  EXPECT_EQ(executor->ScratchBytes(2), 0u);
  const Status status = executor->Invoke(
      {.inputs = inputs, .outputs = {&output, 1}, .state = state, .pool = &pool, .cost = &cost});
  EXPECT_TRUE(status.ok()) << status.message();
  return {output, output + size};
}

struct Case {
  OpType type;
  int inputs;
};

// All that SharingOf lets write to its input, of the activations of ModelBuilder.
constexpr Case kCases[] = {{OpType::kADD, 2},        {OpType::kDIV, 2},
                           {OpType::kEXP, 1},        {OpType::kHARD_SWISH, 1},
                           {OpType::kLEAKY_RELU, 1}, {OpType::kLOGISTIC, 1},
                           {OpType::kMAXIMUM, 2},    {OpType::kMINIMUM, 2},
                           {OpType::kMUL, 2},        {OpType::kPRELU, 2},
                           {OpType::kQUANTIZE, 1},   {OpType::kRELU, 1},
                           {OpType::kRELU6, 1},      {OpType::kRELU_N1_TO_1, 1},
                           {OpType::kRSQRT, 1},      {OpType::kSQUARED_DIFFERENCE, 2},
                           {OpType::kSUB, 2},        {OpType::kTANH, 1}};

OpOptions OptionsOf(OpType type) {
  if (type == OpType::kADD || type == OpType::kSUB || type == OpType::kMUL ||
      type == OpType::kDIV) {
    return ElementwiseOptions{};
  }
  if (type == OpType::kLEAKY_RELU) return LeakyReluOptions{.alpha = 0.25f};
  return {};
}

// Shapes of the second input for an output of [1, 1, rows, channels].
std::vector<Shape> OtherShapes(int32_t rows, int32_t channels) {
  return {{1, 1, rows, channels}, {1, 1, 1, channels}, {1, 1, rows, 1}, {1, 1, 1, 1}};
}

void CheckInPlace(const Case& c, const Shape& shape, const Shape& other, Rng* rng) {
  ModelBuilder m;
  std::vector<int32_t> inputs = {m.Input(shape)};
  if (c.inputs == 2) inputs.push_back(m.Input(other));
  const int32_t result = m.Node(c.type, inputs, shape, OptionsOf(c.type));
  // The formats that these have in every model.
  if (c.type == OpType::kTANH) m.tensor(result).quantization = {{1.0f / 128}, {0}, 0};
  if (c.type == OpType::kLOGISTIC) m.tensor(result).quantization = {{1.0f / 256}, {-128}, 0};
  m.Output(result);
  const std::shared_ptr<const Model> model = m.Load();
  ASSERT_NE(model, nullptr);
  const Graph& graph = model->graph();
  const Node& node = graph.nodes[0];
  const auto features = DetectCpuFeatures();
  ASSERT_TRUE(features.ok());
  auto executor = PrepareCpuNode(graph, node, *features);
  ASSERT_TRUE(executor.ok()) << executor.status().message();

  std::vector<Bytes> values;
  for (const int32_t tensor : inputs) {
    values.emplace_back(static_cast<size_t>(graph.tensors[tensor].byte_size()));
    rng->Fill(values.back());
    // No square root of a negative number, and no division by zero.
    for (uint8_t& byte : values.back()) {
      if (c.type == OpType::kRSQRT) byte &= 0x7f;
      if (static_cast<int8_t>(byte) == -3) byte = 7;
    }
  }
  const size_t size = values[0].size();
  Bytes apart(size);
  const auto pointers = [&] {
    std::vector<const uint8_t*> list;
    for (const Bytes& value : values) list.push_back(value.data());
    return list;
  };
  const Bytes expected = Run(executor->get(), pointers(), apart.data(), size);
  const std::vector<int32_t> overwritable = SharingOf(graph, node).overwritable;
  EXPECT_EQ(overwritable.size(), c.inputs == 2 && shape == other ? 2u : 1u);
  for (const int32_t position : overwritable) {
    const std::vector<Bytes> before = values;
    EXPECT_EQ(Run(executor->get(), pointers(), values[position].data(), size), expected)
        << OpTypeName(c.type) << " of " << ShapeString(shape) << " and " << ShapeString(other)
        << " in place of input " << position;
    values = before;
  }
  if (c.inputs == 2 && shape == other) {  // x + x, in place of x
    Bytes twice = values[0];
    const Bytes doubled =
        Run(executor->get(), {values[0].data(), values[0].data()}, apart.data(), size);
    EXPECT_EQ(Run(executor->get(), {twice.data(), twice.data()}, twice.data(), size), doubled)
        << OpTypeName(c.type) << " of one tensor";
  }
}

TEST(OperandSharing, OutputsMayTakeOverInputs) {
  Rng rng(TestSeed(1));
  std::vector<int32_t> sizes = {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 129, 255};
  for (int i = 0; i < 4; ++i) sizes.push_back(rng.Int32(256, 3000));
  for (const Case& c : kCases) {
    for (const int32_t channels : sizes) {
      const int32_t rows = rng.Int32(1, 9);
      const Shape shape = {1, 1, rows, channels};
      for (const Shape& other : OtherShapes(rows, channels)) {
        CheckInPlace(c, shape, other, &rng);
        if (c.inputs == 1) break;
      }
    }
  }
}

TEST(OperandSharing, ConcatenationOfOtherScalesIsMoreThanAMove) {
  ModelBuilder m;
  const int32_t a = m.Input({1, 2, 2, 4});
  const int32_t b = m.Input({1, 2, 2, 4});
  const int32_t both = m.Concatenation({a, b}, 1);
  for (const int32_t tensor : {a, b, both}) m.tensor(tensor).type = DataType::kUInt8;
  EXPECT_EQ(SharingOf(m.graph(), m.graph().nodes[0]).runs.size(), 2u);
  m.tensor(b).quantization.scales = {0.5f};
  EXPECT_TRUE(SharingOf(m.graph(), m.graph().nodes[0]).runs.empty());
}

}  // namespace
}  // namespace atollrt
