// SPDX-License-Identifier: Apache-2.0
//
// Compiling takes memory in proportion to the model, whoever shares its constants: a megabyte of
// weights under a thousand operators is no gigabyte of parameters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "delegate/compiler.h"
#include "delegate/delegate.h"
#include "tests/support/allocation_meter.h"
#include "tests/support/model_builder.h"

namespace atollrt {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kSide = 1024;
// What small models may have of parameters, about three times: as lowered, laid out, the best yet.
constexpr int64_t kConstant = int64_t{512} << 20;

// Compiles what `m` makes; the test fails if that takes more than is in proportion to its file.
CompiledGraph CompileMetered(const ModelBuilder& m) {
  const std::vector<uint8_t> file = m.Build();
  const auto model = Model::FromBuffer(file);
  EXPECT_TRUE(model.ok()) << model.status().message();
  if (!model.ok()) return {};
  DeviceInfo device;
  device.name = "test";
  device.isa_version = kIsaVersion;
  device.array_rows = device.array_columns = 64;
  device.clock_hz = 500'000'000;
  device.memory_bytes = 8 << 20;
  device.program_memory_bytes = 1 << 20;
  device.link_bytes_per_second = 455'000'000;
  const AllocationMeter meter;
  auto compiled = CompileGraph((*model)->graph(), device, 0, {});
  EXPECT_LE(meter.peak_bytes(), ProportionalBytes(file.size(), kConstant)) << "for " << file.size();
  EXPECT_TRUE(compiled.ok()) << compiled.status().message();
  return compiled.ok() ? *std::move(compiled) : CompiledGraph();
}

// That most of so many nodes were left to the CPU, with the reason.
void ExpectMostRefused(const CompiledGraph& compiled, int nodes) {
  int refused = 0;
  for (const std::string& reason : compiled.refusals) {
    if (reason.empty()) continue;
    EXPECT_THAT(reason, HasSubstr("share their constants so often"));
    ++refused;
  }
  EXPECT_GT(refused, nodes / 2);
  EXPECT_LT(refused, nodes);
}

using First = std::function<int32_t(ModelBuilder* m, int32_t input)>;

// A thousand operators, one behind the other, that share what the first has for constants.
void CompileThousand(const Shape& shape, const First& first) {
  constexpr int kNodes = 1000;
  ModelBuilder m;
  int32_t tensor = first(&m, m.Input(shape));
  const Node node = m.graph().nodes.back();
  const Shape output = m.tensor(tensor).shape;
  for (int i = 1; i < kNodes; ++i) {
    std::vector<int32_t> inputs = node.inputs;
    inputs[node.type == OpType::kTRANSPOSE_CONV ? 2 : 0] = tensor;
    tensor = m.Node(node.type, std::move(inputs), output, node.options);
  }
  m.Output(tensor);
  ExpectMostRefused(CompileMetered(m), kNodes);
}

TEST(CompilerMemory, OfSharedWeights) {
  CompileThousand({1, kSide}, [](auto* m, auto x) { return m->FullyConnected(x, kSide); });
}

TEST(CompilerMemory, OfSharedFilters) {
  CompileThousand({1, 1, 1, kSide},
                  [](auto* m, auto x) { return m->Conv2D(x, {.channels = kSide}); });
}

TEST(CompilerMemory, OfSharedDepthwiseFilters) {
  CompileThousand({1, 1, 1, kSide},
                  [](auto* m, auto x) { return m->DepthwiseConv2D(x, {.kernel = 32}); });
}

TEST(CompilerMemory, OfSharedTransposedFilters) {
  CompileThousand({1, 1, 1, kSide},
                  [](auto* m, auto x) { return m->TransposeConv(x, {.channels = kSide}, 1, 1); });
}

TEST(CompilerMemory, OfASharedOperand) {
  constexpr int32_t kCount = kSide * kSide;
  CompileThousand({kCount}, [](auto* m, auto x) { return m->Add(x, m->Constant({kCount})); });
}

// Few bytes of weights, and 16 for each channel that they make.
TEST(CompilerMemory, OfRecordsOfChannels) {
  constexpr int kNodes = 1000;
  ModelBuilder m;
  const int32_t x = m.Input({1, 1});
  m.Output(m.FullyConnected(x, 1 << 16));
  const Node node = m.graph().nodes.back();
  for (int i = 1; i < kNodes; ++i) {
    m.Output(m.Node(node.type, node.inputs, {1, 1 << 16}, node.options));
  }
  ExpectMostRefused(CompileMetered(m), kNodes);
}

// Tensors that share their bytes, each with weights of its own in the order of a kernel.
TEST(CompilerMemory, OfPackedWeights) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 512});
  m.Output(m.FullyConnected(x, 512));
  const Node node = m.graph().nodes.back();
  for (int i = 1; i < 200; ++i) {
    std::vector<int32_t> inputs = node.inputs;
    m.graph().tensors.push_back(m.tensor(inputs[1]));
    inputs[1] = static_cast<int32_t>(m.graph().tensors.size()) - 1;
    m.Output(m.Node(node.type, std::move(inputs), {1, 512}, node.options));
  }
  const std::vector<uint8_t> file = m.Build();
  EXPECT_LT(file.size(), 4u << 20);  // the weights once, scales for each
  const auto model = Model::FromBuffer(file);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const AllocationMeter meter;
  const auto compiled = CompileForCpu(**model);
  ASSERT_TRUE(compiled.ok()) << compiled.status().message();
  EXPECT_LE(meter.peak_bytes(), ProportionalBytes(file.size()));
  EXPECT_LT(compiled->size(), 24 * file.size());
}

}  // namespace
}  // namespace atollrt
