// SPDX-License-Identifier: Apache-2.0
//
// Transposed convolutions in bands of rows: each band, from the input rows that its lowering asks
// for and no others, gives the rows of the whole.
#include <gtest/gtest.h>

#include "delegate/lowering.h"
#include "tests/driver/emulator/emulated_program.h"
#include "tests/support/model_builder.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

constexpr uint32_t kParameters = 0x2000;
constexpr uint32_t kOutput = 0x8000;

// Runs rows `rows` of a node with an image, input `position`, of which the device gets only the
// rows that the node asks for.
Bytes RunRows(Core& core, const Node& node, const NodeLowering& lowering, size_t position,
              RowRange rows, const Tensor& image, const Bytes& image_bytes, const Tensor& output) {
  const RowRange from = lowering.InputRows(position, rows);
  EXPECT_GE(from.begin, 0);
  EXPECT_LE(from.end, RowCount(image));
  const auto row = image_bytes.begin() + from.begin * RowBytes(image);
  const Bytes input(row, row + from.count() * RowBytes(image));
  const uint32_t output_bytes = static_cast<uint32_t>(rows.count() * RowBytes(output));

  OperandPlaces place;
  place.inputs.resize(node.inputs.size());
  place.inputs[position] = {.address = 0, .rows = from};
  place.outputs = {{.address = kOutput, .rows = rows}};
  place.parameters = kParameters;
  const uint32_t parameter_bytes = static_cast<uint32_t>(lowering.parameters().size());
  std::vector<Instruction> program = {
      InputInstruction{.bytes = static_cast<uint32_t>(input.size())},
      ParametersInstruction{.output_address = kParameters, .bytes = parameter_bytes}};
  lowering.Emit(place, rows, &program);
  program.push_back(OutputInstruction{.input_address = kOutput, .bytes = output_bytes});
  const RunResult result =
      RunProgram(core, program, {.inputs = input, .parameters = lowering.parameters()});
  EXPECT_EQ(result.event.kind, EventKind::kCompleted) << FaultCodeName(result.event.fault);
  return result.outputs;
}

TEST(LowerTransposeConv, GivesEveryBandTheRowsOfTheWhole) {
  Rng rng(TestSeed(31));
  const auto core = MakeCore({.profile = SmallProfile(), .features = *DetectCpuFeatures()});
  for (int round = 0; round < 60; ++round) {
    ModelBuilder m(rng.Next());
    const int32_t height = rng.Int32(1, 8);
    const int32_t kernel = rng.Int32(1, 5);
    const int32_t stride = rng.Int32(1, 6);
    const int32_t x = m.Input({1, height, 3, 2});
    // As the converter makes it, or shorter, or longer than anything reaches.
    const int32_t output_height = rng.OneIn(2) ? height * stride : rng.Int32(1, 40);
    const Padding padding = rng.OneIn(2) ? Padding::kSame : Padding::kValid;
    m.Output(
        m.TransposeConv(x, {.channels = 3, .kernel = kernel, .stride = stride, .padding = padding},
                        output_height, 4));
    const std::shared_ptr<const Model> model = m.Load();
    ASSERT_NE(model, nullptr);
    const Graph& graph = model->graph();
    const Node& node = graph.nodes[0];
    const auto lowering = LowerNode(graph, node);
    ASSERT_TRUE(lowering.ok()) << lowering.status().message();
    ASSERT_TRUE((*lowering)->divides_into_rows());
    const Tensor& image = *graph.Input(node, 2);
    const Tensor& output = graph.Output(node);
    Bytes bytes(static_cast<size_t>(image.byte_size()));
    rng.Fill(bytes);
    const auto run = [&](RowRange rows) {
      return RunRows(*core, node, **lowering, 2, rows, image, bytes, output);
    };
    const Bytes whole = run(AllRows(output));
    for (int32_t begin = 0; begin < output_height; ++begin) {
      const RowRange rows{begin, rng.Int32(begin + 1, std::min(begin + 5, output_height))};
      const auto row = whole.begin() + begin * RowBytes(output);
      ASSERT_EQ(run(rows), Bytes(row, row + rows.count() * RowBytes(output)))
          << "round " << round << ", rows " << rows.begin << " to " << rows.end << " of "
          << output_height << ", kernel " << kernel << ", stride " << stride;
    }
  }
}

TEST(LowerTransposeConv, AsksForNoMoreRowsThanReachTheBand) {
  ModelBuilder m;
  m.Output(
      m.TransposeConv(m.Input({1, 10, 2, 1}), {.channels = 1, .kernel = 4, .stride = 2}, 20, 4));
  const std::shared_ptr<const Model> model = m.Load();
  const auto lowering = LowerNode(model->graph(), model->graph().nodes[0]);
  ASSERT_TRUE(lowering.ok());
  // Row i reaches output rows 2i - 1 to 2i + 2.
  EXPECT_EQ((*lowering)->InputRows(2, {0, 20}), (RowRange{0, 10}));
  EXPECT_EQ((*lowering)->InputRows(2, {0, 4}), (RowRange{0, 3}));
  EXPECT_EQ((*lowering)->InputRows(2, {4, 8}), (RowRange{1, 5}));
  EXPECT_EQ((*lowering)->InputRows(2, {5, 6}), (RowRange{2, 4}));
}

}  // namespace
}  // namespace atollrt
