// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "delegate/compiler.h"
#include "delegate/delegate.h"
#include "runtime/interpreter.h"
#include "tests/support/emulated_device.h"
#include "tests/support/large_graphs.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

DeviceInfo DeviceWith(uint64_t memory_bytes, uint64_t instructions) {
  DeviceInfo device;
  device.name = "test";
  device.isa_version = kIsaVersion;
  device.array_rows = device.array_columns = 64;
  device.clock_hz = 500'000'000;
  device.memory_bytes = memory_bytes;
  device.program_memory_bytes = instructions * kInstructionBytes;
  device.link_bytes_per_second = 455'000'000;
  return device;
}

CompiledGraph Compile(const Model& model, const DeviceInfo& device) {
  Result<CompiledGraph> compiled = CompileGraph(model.graph(), device, 0, {});
  EXPECT_TRUE(compiled.ok()) << compiled.status().message();
  return compiled.ok() ? *std::move(compiled) : CompiledGraph();
}

// ---- Large graphs -------------------------------------------------------------------------------

struct SmallDevice {
  uint64_t memory_bytes;
  uint64_t instructions;
};

// Graphs of some hundred nodes and more on devices on which that is as much as 100,000 are on
// others: in time, what takes a work in proportion here does so there.
class LargeGraphTest : public testing::TestWithParam<std::tuple<const char*, SmallDevice>> {
 protected:
  std::string name() const { return std::get<0>(GetParam()); }
  bool has_large_tensors() const { return name() == "held" || name() == "images"; }
  uint64_t memory_bytes() const {
    return has_large_tensors() ? 8 << 20 : std::get<1>(GetParam()).memory_bytes;
  }
  uint64_t instructions() const { return std::get<1>(GetParam()).instructions; }
};

TEST_P(LargeGraphTest, TakesWorkInProportion) {
  const DeviceInfo device = DeviceWith(memory_bytes(), instructions());
  for (const int32_t nodes : {250, 1500}) {
    SCOPED_TRACE(nodes);
    const std::shared_ptr<const Model> model = MakeLargeGraph(name(), nodes).Load();
    ASSERT_NE(model, nullptr);
    const CompiledGraph compiled = Compile(*model, device);
    EXPECT_LE(compiled.rounds, 20);
    // In each round, and then as halves of halves down to single nodes.
    EXPECT_LE(compiled.compiled_nodes, (20 + std::bit_width(static_cast<uint32_t>(nodes))) * nodes);
    std::vector<int> places(model->graph().nodes.size());
    for (const CompiledPartition& partition : compiled.partitions) {
      for (const int32_t node : partition.nodes) ++places[static_cast<size_t>(node)];
    }
    ASSERT_EQ(compiled.refusals.size(), places.size());
    for (size_t i = 0; i < places.size(); ++i) {
      EXPECT_EQ(places[i], compiled.refusals[i].empty() ? 1 : 0) << "node " << i;
    }
  }
}

TEST_P(LargeGraphTest, GivesTheBytesOfTheCpu) {
  const int32_t nodes = has_large_tensors() ? 40 : 600;
  const std::shared_ptr<const Model> model = MakeLargeGraph(name(), nodes).Load();
  ASSERT_NE(model, nullptr);
  DeviceDelegate delegate(EmulatedDevice{.memory_bytes = memory_bytes(),
                                         .program_bytes = instructions() * kInstructionBytes}
                              .Open());
  const auto outputs = [&](Delegate* on) {
    std::vector<uint8_t> bytes;
    auto interpreter = Interpreter::Create(model, {.threads = 1, .delegate = on});
    EXPECT_TRUE(interpreter.ok()) << interpreter.status().message();
    if (!interpreter.ok()) return bytes;
    EXPECT_EQ((*interpreter)->partitions().empty(), on == nullptr);
    Rng rng(1);
    for (const int32_t input : model->graph().inputs) {
      rng.Fill((*interpreter)->TensorBytes(input));
    }
    const Status status = (*interpreter)->Invoke();
    EXPECT_TRUE(status.ok()) << status.message();
    for (const int32_t output : model->graph().outputs) {
      const std::span<const uint8_t> from = (*interpreter)->ConstTensorBytes(output);
      bytes.insert(bytes.end(), from.begin(), from.end());
    }
    return bytes;
  };
  EXPECT_TRUE(outputs(&delegate) == outputs(nullptr));
}

std::vector<const char*> Names() {
  std::vector<const char*> names;
  for (const LargeGraph& graph : LargeGraphs()) names.push_back(graph.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(
    All, LargeGraphTest,
    testing::Combine(testing::ValuesIn(Names()),
                     testing::Values(SmallDevice{8 << 20, 8192}, SmallDevice{8 << 20, 100},
                                     SmallDevice{16 << 10, 8192}, SmallDevice{9 << 10, 40})),
    [](const testing::TestParamInfo<std::tuple<const char*, SmallDevice>>& test) {
      const SmallDevice device = std::get<1>(test.param);
      return Format("%s_%llu_%llu", std::get<0>(test.param),
                    static_cast<unsigned long long>(device.memory_bytes),
                    static_cast<unsigned long long>(device.instructions));
    });

// ---- What does not fit --------------------------------------------------------------------------

TEST(GraphCompiler, CutsWhatProgramMemoryDoesNotHold) {
  const auto model = MakeLargeGraph("chain", 300).Load();
  const CompiledGraph compiled = Compile(*model, DeviceWith(8 << 20, 100));
  ASSERT_EQ(compiled.partitions.size(), 4u);
  for (const CompiledPartition& partition : compiled.partitions) {
    EXPECT_EQ(partition.nodes.size(), 75u);
    EXPECT_LE(partition.compiled.executable.inference_program.size(), 100u);
  }
  EXPECT_THAT(compiled.refusals, Each(""));
}

TEST(GraphCompiler, CutsWhatHasTooManyInputsAndOutputs) {
  const auto model = MakeLargeGraph("fan", 1500).Load();
  const CompiledGraph compiled = Compile(*model, DeviceWith(8 << 20, 8192));
  EXPECT_EQ(compiled.partitions.size(), 2u);
  for (const CompiledPartition& partition : compiled.partitions) {
    EXPECT_TRUE(ValidateExecutable(partition.compiled.executable).ok());
  }
  EXPECT_THAT(compiled.refusals, Each(""));
}

TEST(GraphCompiler, LeavesANodeThatFitsNowhereToTheCpu) {
  const auto model = MakeLargeGraph("chain", 3).Load();
  const CompiledGraph compiled = Compile(*model, DeviceWith(8 << 20, 2));
  EXPECT_TRUE(compiled.partitions.empty());
  EXPECT_THAT(compiled.refusals, Each(HasSubstr("takes 4 instructions, most of them for node")));
}

// Small sets lose the node at the peak and nothing else.
TEST(GraphCompiler, RefusesOneNodeOfASmallSet) {
  ModelBuilder m;
  const int32_t x = m.Conv2D(m.Input({1, 16, 16, 4}), {.channels = 4});
  const int32_t large = m.Conv2D(m.Conv2D(x, {.channels = 64}), {.channels = 64});
  m.Output(m.Mean(m.Conv2D(large, {.channels = 4}), {1, 2}));
  const CompiledGraph compiled = Compile(*m.Load(), DeviceWith(12 << 10, 8192));
  EXPECT_THAT(compiled.refusals[2], HasSubstr("and its neighbours need on-chip memory for"));
  for (const size_t node : {0u, 1u, 3u, 4u}) EXPECT_EQ(compiled.refusals[node], "") << node;
  EXPECT_EQ(compiled.rounds, 2);
}

}  // namespace
}  // namespace atollrt
