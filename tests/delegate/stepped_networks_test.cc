// SPDX-License-Identifier: Apache-2.0
//
// Whole small networks, compiled and run on both faces of the emulated device and on the CPU: the
// same bytes everywhere, and the same cycles, which the stepped face counts one by one.
#include <gtest/gtest.h>

#include <algorithm>

#include "delegate/delegate.h"
#include "runtime/interpreter.h"
#include "runtime/plan/partition_report.h"
#include "tests/support/emulated_device.h"
#include "tests/support/model_builder.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

using Bytes = std::vector<uint8_t>;

struct Array {
  uint32_t rows = 0;
  uint32_t columns = 0;
};

std::unique_ptr<DeviceDelegate> DelegateWith(Face face, Array array, uint64_t memory_bytes) {
  const EmulatedDevice device{
      .rows = array.rows, .columns = array.columns, .memory_bytes = memory_bytes, .face = face};
  return std::make_unique<DeviceDelegate>(device.Open());
}

// What several inferences, one after the other, give.
struct Outcome {
  std::vector<Bytes> outputs;
  std::vector<uint64_t> cycles;  // the device's, of each inference
  size_t partitions = 0;
  int64_t streamed_bytes = 0;  // parameters that come in with each inference
};

Outcome RunOn(std::shared_ptr<const Model> model, Delegate* delegate) {
  Outcome outcome;
  auto interpreter = Interpreter::Create(std::move(model), {.threads = 1, .delegate = delegate});
  EXPECT_TRUE(interpreter.ok()) << interpreter.status().message();
  if (!interpreter.ok()) return outcome;
  outcome.partitions = (*interpreter)->partitions().size();
  for (const Partition& partition : (*interpreter)->partitions()) {
    outcome.streamed_bytes += partition.report->streamed_parameter_bytes;
  }
  Rng rng(3);
  for (int inference = 0; inference < 2; ++inference) {
    for (const int32_t input : (*interpreter)->graph().inputs) {
      rng.Fill((*interpreter)->TensorBytes(input));
    }
    const Status status = (*interpreter)->Invoke();
    EXPECT_TRUE(status.ok()) << status.message();
    for (const int32_t output : (*interpreter)->graph().outputs) {
      const auto bytes = (*interpreter)->ConstTensorBytes(output);
      outcome.outputs.emplace_back(bytes.begin(), bytes.end());
    }
    outcome.cycles.push_back((*interpreter)->last_cost().device_cycles);
  }
  return outcome;
}

int32_t Resized(ModelBuilder& m, OpType type, int32_t x, int32_t height, int32_t width) {
  const Shape& from = m.tensor(x).shape;
  const Shape shape = {from[0], height, width, from[3]};
  const Quantization quantization = m.tensor(x).quantization;
  const int32_t y = m.Node(type, {x, m.Integers({2}, {height, width})}, shape,
                           ResizeOptions{.align_corners = false, .half_pixel_centers = true});
  m.tensor(y).quantization = quantization;
  return y;
}

ModelBuilder Classifier() {
  ModelBuilder m;
  int32_t x = m.Conv2D(m.Input({1, 12, 12, 3}), {.channels = 8, .kernel = 3, .stride = 2});
  const int32_t skip = x;
  x = m.DepthwiseConv2D(x, {.kernel = 3});
  x = m.Add(skip, m.Conv2D(x, {.channels = 8}));
  x = m.MaxPool(x, {.size = 2, .stride = 2});
  x = m.AveragePool(x, {.size = 2, .stride = 1, .padding = Padding::kSame});
  m.Output(m.Softmax(m.FullyConnected(m.Reshape(x, {1, 72}), 10)));
  return m;
}

ModelBuilder Segmenter() {
  ModelBuilder m;
  const int32_t image = m.Input({1, 8, 8, 4});
  const int32_t deep =
      m.Conv2D(m.Pad(image, {0, 0, 1, 1, 1, 1, 0, 0}),
               {.channels = 9, .kernel = 3, .stride = 2, .padding = Padding::kValid});
  const int32_t up = m.TransposeConv(deep, {.channels = 5, .kernel = 3, .stride = 2}, 8, 8);
  const int32_t smooth = Resized(m, OpType::kRESIZE_BILINEAR, deep, 8, 8);
  const int32_t nearest = Resized(m, OpType::kRESIZE_NEAREST_NEIGHBOR, deep, 8, 8);
  const int32_t all = m.Concatenation({m.Conv2D(up, {.channels = 4}), m.Relu(smooth), nearest}, 3);
  m.Output(m.L2Normalization(m.Logistic(m.Conv2D(all, {.channels = 6}))));
  return m;
}

// Its parameters are more than the smaller memory holds at once.
ModelBuilder Dense() {
  ModelBuilder m;
  const int32_t x = m.FullyConnected(m.Input({2, 64}), 40);
  m.Output(m.FullyConnected(m.FullyConnected(x, 40), 10));
  return m;
}

ModelBuilder Recurrent() {
  ModelBuilder m;
  const int32_t hidden = m.Lstm(m.Input({2, 4, 6}), {.units = 5, .cell_clip = 0.4f});
  m.Output(m.Softmax(m.FullyConnected(m.Reshape(hidden, {2, 20}), 7)));
  return m;
}

ModelBuilder Arithmetic() {
  ModelBuilder m;
  const Shape shape = {1, 6, 5, 9};
  const int32_t a = m.Input(shape);
  const int32_t b = m.Conv2D(m.Input(shape), {.channels = 9});
  int32_t x = m.Node(OpType::kMUL, {a, b}, shape, ElementwiseOptions{});
  x = m.Node(OpType::kSUB, {x, m.Constant({9})}, shape, ElementwiseOptions{});
  x = m.Node(OpType::kPRELU, {x, m.Constant({1, 1, 9})}, shape);
  x = m.Node(OpType::kSQUARED_DIFFERENCE, {x, b}, shape);
  x = m.Node(OpType::kMAXIMUM, {x, m.Node(OpType::kMINIMUM, {a, b}, shape)}, shape);
  for (const OpType type : {OpType::kREDUCE_MAX, OpType::kREDUCE_MIN, OpType::kSUM}) {
    m.Output(m.Node(type, {x, m.Integers({2}, {1, 3})}, {1, 5}, ReducerOptions{}));
  }
  m.Output(m.Mean(x, {1, 2}));
  return m;
}

// On-chip memories large and so small that parameters are streamed.
TEST(SteppedNetworks, GiveTheSameBytesAndCyclesAsTheDirectFace) {
  const std::pair<const char*, ModelBuilder (*)()> networks[] = {{"arithmetic", Arithmetic},
                                                                 {"classifier", Classifier},
                                                                 {"dense", Dense},
                                                                 {"recurrent", Recurrent},
                                                                 {"segmenter", Segmenter}};
  int streamed = 0;
  for (const auto& [name, network] : networks) {
    const std::shared_ptr<const Model> model = network().Load();
    const Outcome on_cpu = RunOn(model, nullptr);
    for (const Array array : {Array{4, 4}, Array{3, 7}, Array{8, 2}, Array{64, 64}}) {
      for (const uint64_t memory_bytes : {uint64_t{64} << 10, uint64_t{8} << 10}) {
        SCOPED_TRACE(std::string(name) + " on " + std::to_string(array.rows) + "x" +
                     std::to_string(array.columns) + ", " + std::to_string(memory_bytes) +
                     " bytes");
        const auto direct = DelegateWith(Face::kDirect, array, memory_bytes);
        const auto stepped = DelegateWith(Face::kStepped, array, memory_bytes);
        const Outcome expected = RunOn(model, direct.get());
        const Outcome got = RunOn(model, stepped.get());
        EXPECT_EQ(expected.outputs, on_cpu.outputs);
        EXPECT_EQ(got.outputs, expected.outputs);
        EXPECT_EQ(got.cycles, expected.cycles);
        EXPECT_EQ(got.partitions, 1u);
        EXPECT_GT(got.cycles[0], 0u);
        streamed += got.streamed_bytes > 0 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(streamed, 0);
}

}  // namespace
}  // namespace atollrt
