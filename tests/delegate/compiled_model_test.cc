// SPDX-License-Identifier: Apache-2.0
//
// Models with compiled partitions: they give the original's bytes on every device, and a damaged
// one is refused.
#include "delegate/compiled_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "delegate/delegate.h"
#include "driver/open_device.h"
#include "runtime/graph/compiled_op.h"
#include "runtime/interpreter.h"
#include "runtime/plan/partition_report.h"
#include "runtime/tflite/tflite_writer.h"
#include "tests/delegate/emulated_delegate.h"
#include "tests/support/model_builder.h"
#include "tests/support/seeded_run.h"

namespace atollrt {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Bytes = std::vector<uint8_t>;

// Two partitions around an operator that no device has, a skip connection and two outputs.
ModelBuilder Islands() {
  ModelBuilder m;
  const int32_t x = m.Conv2D(m.Input({1, 8, 8, 4}), {.channels = 6, .kernel = 3});
  const int32_t divisor = m.Constant(DataType::kInt8, {6}, {5, 6, 7, 8, 9, 10});
  m.tensor(divisor).quantization = {.scales = {1.0f / 8}, .zero_points = {-3}};
  const int32_t quotient = m.Node(OpType::kDIV, {x, divisor}, {1, 8, 8, 6}, ElementwiseOptions{});
  const int32_t y = m.DepthwiseConv2D(quotient, {.kernel = 3, .stride = 2});
  m.Output(m.FullyConnected(m.Reshape(y, {1, 96}), 10));
  m.Output(m.Relu(m.Conv2D(x, {.channels = 3})));
  return m;
}

std::shared_ptr<const Model> Reload(const Bytes& bytes) {
  auto model = Model::FromBuffer(bytes);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? *std::move(model) : nullptr;
}

TEST(CompiledModel, GivesTheOriginalsBytesEverywhere) {
  const std::unique_ptr<DeviceDelegate> roomy = DelegateWith(8 << 20);
  const std::unique_ptr<DeviceDelegate> tight = DelegateWith(16 << 10);
  const std::shared_ptr<const Model> original = Islands().Load();
  const Result<Bytes> file = roomy->Compile(*original);
  ASSERT_TRUE(file.ok()) << file.status().message();
  const std::shared_ptr<const Model> compiled = Reload(*file);
  ASSERT_NE(compiled, nullptr);
  EXPECT_EQ(compiled->graph().compiled.size(), 2u);
  EXPECT_EQ(compiled->graph().nodes.size(), original->graph().nodes.size());
  const std::vector<Bytes> want = RunWithSeed(MakeInterpreter(original, nullptr).get(), 1);
  EXPECT_EQ(RunWithSeed(MakeInterpreter(compiled, nullptr).get(), 1), want) << "on the CPU";
  EXPECT_EQ(RunWithSeed(MakeInterpreter(compiled, roomy.get()).get(), 1), want) << "as compiled";
  EXPECT_EQ(RunWithSeed(MakeInterpreter(compiled, tight.get()).get(), 1), want)
      << "compiled anew for less memory";
}

TEST(CompiledModel, RunsTheProgramsThatItHolds) {
  const std::unique_ptr<DeviceDelegate> delegate = DelegateWith(8 << 20);
  const std::shared_ptr<const Model> original = Islands().Load();
  const std::shared_ptr<const Model> compiled = Reload(*delegate->Compile(*original));
  const auto before = MakeInterpreter(original, delegate.get());
  const auto after = MakeInterpreter(compiled, delegate.get());
  ASSERT_EQ(after->partitions().size(), before->partitions().size());
  for (size_t i = 0; i < after->partitions().size(); ++i) {
    EXPECT_EQ(after->partitions()[i].report->instruction_count,
              before->partitions()[i].report->instruction_count);
    EXPECT_EQ(after->partitions()[i].report->estimated_cycles,
              before->partitions()[i].report->estimated_cycles);
  }
  int on_cpu = 0;
  for (const NodePlacement& placement : after->placements()) {
    if (placement.partition >= 0) continue;
    EXPECT_EQ(placement.reason, "the compiled model leaves it to the CPU");
    ++on_cpu;
  }
  EXPECT_EQ(on_cpu, 1);
}

// The cycles that the executable states are those of the device that it was compiled for.
TEST(CompiledModel, ReportsTheTimesOfTheDeviceThatRunsIt) {
  const std::shared_ptr<const Model> compiled =
      Reload(*DelegateWith(8 << 20)->Compile(*Islands().Load()));
  auto device = OpenDevice({.device = "emu:32x32", .threads = 1});
  ASSERT_TRUE(device.ok()) << device.status().message();
  DeviceDelegate other(*std::move(device));
  const auto interpreter = MakeInterpreter(compiled, &other);
  RunWithSeed(interpreter.get(), 1);
  int64_t cycles = 0;
  for (const Partition& partition : interpreter->partitions()) {
    cycles += partition.report->estimated_cycles;
  }
  EXPECT_EQ(cycles, static_cast<int64_t>(interpreter->last_cost().device_cycles));
}

TEST(CompiledModel, CanBeCompiledAgain) {
  const std::unique_ptr<DeviceDelegate> delegate = DelegateWith(8 << 20);
  const std::shared_ptr<const Model> original = Islands().Load();
  const Bytes once = *delegate->Compile(*original);
  const Bytes twice = *delegate->Compile(*Reload(once));
  EXPECT_EQ(RunWithSeed(MakeInterpreter(Reload(twice), delegate.get()).get(), 2),
            RunWithSeed(MakeInterpreter(original, nullptr).get(), 2));
}

size_t PackedTensors(const Model& model) {
  const std::vector<Tensor>& tensors = model.graph().tensors;
  return static_cast<size_t>(std::count_if(
      tensors.begin(), tensors.end(), [](const Tensor& t) { return !t.packed_weights.empty(); }));
}

TEST(CompiledModel, HasTheWeightsOfTheCpuPacked) {
  const std::shared_ptr<const Model> original = Islands().Load();
  const std::vector<Bytes> want = RunWithSeed(MakeInterpreter(original, nullptr).get(), 1);
  const Bytes file = *CompileForCpu(*original);
  const std::shared_ptr<const Model> compiled = Reload(file);
  EXPECT_EQ(PackedTensors(*compiled), 4u);  // two convolutions, one by channels, a full layer
  const auto on_cpu = MakeInterpreter(compiled, nullptr);
  EXPECT_EQ(RunWithSeed(on_cpu.get(), 1), want);
  int64_t packed = 0;
  for (const Tensor& tensor : compiled->graph().tensors) {
    packed += static_cast<int64_t>(tensor.packed_weights.size());
  }
  EXPECT_EQ(on_cpu->used_packed_weight_bytes(), packed);
  EXPECT_EQ(*CompileForCpu(*compiled), file) << "compiled again";
  // Those of nodes on the device have their place in its program.
  const std::unique_ptr<DeviceDelegate> delegate = DelegateWith(8 << 20);
  const std::shared_ptr<const Model> for_device = Reload(*delegate->Compile(*compiled));
  EXPECT_EQ(PackedTensors(*for_device), 0u);
  EXPECT_EQ(RunWithSeed(MakeInterpreter(for_device, delegate.get()).get(), 1), want);
  EXPECT_EQ(RunWithSeed(MakeInterpreter(compiled, delegate.get()).get(), 1), want);
}

// For each kind of CPU, run on this one, which uses what is for it and packs what is not.
TEST(CompiledModel, RunsWithWeightsPackedForAnyCpu) {
  const std::shared_ptr<const Model> original = Islands().Load();
  const std::vector<Bytes> want = RunWithSeed(MakeInterpreter(original, nullptr).get(), 1);
  const Result<CpuFeatures> available = DetectCpuFeatures();
  ASSERT_TRUE(available.ok());
  for (const CpuLevel& level : CpuLevels()) {
    if (!Supports(*available, level.features)) continue;
    const auto file = WriteCompiledModel(original->graphs(), {}, {}, level.features);
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ(RunWithSeed(MakeInterpreter(Reload(*file), nullptr).get(), 1), want) << level.name;
  }
}

TEST(CompiledModel, NeedsSomethingToCompile) {
  ModelBuilder m;
  m.Output(m.Node(OpType::kDIV, {m.Input({1, 4}), m.Input({1, 4})}, {1, 4}, ElementwiseOptions{}));
  const std::unique_ptr<DeviceDelegate> delegate = DelegateWith(8 << 20);
  EXPECT_EQ(delegate->Compile(*m.Load()).status().code(), StatusCode::kUnsupported);
}

// ---- Damaged files ------------------------------------------------------------------------------

// One convolution, as a compiled model whose operator's options are `options`.
Bytes WithOptions(const Bytes& options, const Graph& partition) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 4, 4, 2});
  m.Output(m.Custom(kCompiledOpName, x));
  m.graph().nodes.back().custom_options = options;
  const Graph* graphs[] = {&m.graph(), &partition};
  return *WriteTflite(graphs);
}

struct Conv {
  ModelBuilder builder;
  std::shared_ptr<const Model> model;
  Bytes executable;
  Conv() {
    builder.Output(builder.Conv2D(builder.Input({1, 4, 4, 2}), {.channels = 2}));
    model = builder.Load();
    const auto delegate = DelegateWith(8 << 20);
    const std::shared_ptr<const Model> compiled = Reload(*delegate->Compile(*model));
    const std::span<const uint8_t> bytes = compiled->graph().compiled[0];
    executable.assign(bytes.begin(), bytes.end());
  }
  const Graph& graph() const { return builder.graph(); }
};

TEST(CompiledModel, RefusesOperatorsThatNameNoSubgraph) {
  const Conv conv;
  for (const int32_t subgraph : {-1, 2, 1'000'000'000}) {
    const Bytes file = WithOptions(
        EncodeCompiledOp({.subgraph = subgraph, .executable = conv.executable}), conv.graph());
    const Status status = Model::FromBuffer(file).status();
    EXPECT_EQ(status.code(), StatusCode::kCorruptModel) << subgraph;
    EXPECT_THAT(status.message(), HasSubstr(kCompiledOpName));
  }
}

// What a delegate of another runtime writes of a compiled model.
TEST(CompiledModel, NeedsNoSubgraphOnADeviceThatTakesTheExecutable) {
  const Conv conv;
  const Bytes file =
      WithOptions(EncodeCompiledOp({.subgraph = 0, .executable = conv.executable}), conv.graph());
  const std::shared_ptr<const Model> model = Reload(file);
  ASSERT_NE(model, nullptr);
  const auto delegate = DelegateWith(8 << 20);
  EXPECT_EQ(RunWithSeed(MakeInterpreter(model, delegate.get()).get(), 1),
            RunWithSeed(MakeInterpreter(conv.model, nullptr).get(), 1));
  const auto on_cpu = Interpreter::Create(model, {.threads = 1});
  EXPECT_EQ(on_cpu.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(on_cpu.status().message(), HasSubstr("what it was compiled from is not here"));
}

TEST(CompiledModel, RefusesOtherEndsAndDamageWithoutASubgraph) {
  const Conv conv;
  const auto delegate = DelegateWith(8 << 20);
  ModelBuilder other;
  const int32_t x = other.Input({1, 4, 4, 3});
  other.Output(other.Custom(kCompiledOpName, x));
  const Bytes options = EncodeCompiledOp({.subgraph = 0, .executable = conv.executable});
  other.graph().nodes.back().custom_options = options;
  const auto wider = Interpreter::Create(other.Load(), {.threads = 1, .delegate = delegate.get()});
  EXPECT_EQ(wider.status().code(), StatusCode::kCorruptModel);
  EXPECT_THAT(wider.status().message(), HasSubstr("input 0 of its executable has 32 bytes"));
  Bytes damaged = conv.executable;
  damaged.resize(damaged.size() / 2);
  const auto half = Interpreter::Create(
      Reload(WithOptions(EncodeCompiledOp({.subgraph = 0, .executable = damaged}), conv.graph())),
      {.threads = 1, .delegate = delegate.get()});
  EXPECT_EQ(half.status().code(), StatusCode::kCorruptModel);
}

TEST(CompiledModel, SurvivesDamageWithoutASubgraph) {
  const Conv conv;
  const auto delegate = DelegateWith(8 << 20);
  Bytes file = WithOptions(EncodeCompiledOp({.subgraph = 0, .executable = conv.executable}),
                           ModelBuilder().graph());
  int runs = 0;
  for (uint8_t& byte : file) {
    for (const uint8_t damage : {uint8_t{0x00}, uint8_t{0xFF}, static_cast<uint8_t>(byte + 1)}) {
      const uint8_t before = std::exchange(byte, damage);
      if (const auto model = Model::FromBuffer(file); model.ok()) {
        runs += Interpreter::Create(*model, {.threads = 1, .delegate = delegate.get()}).ok();
      }
      byte = before;
    }
  }
  EXPECT_GT(runs, 0);
}

TEST(CompiledModel, RefusesOptionsThatAreNone) {
  const Conv conv;
  const Bytes good = EncodeCompiledOp({.subgraph = 1, .executable = conv.executable});
  for (size_t size = 0; size < 16; ++size) {
    const Bytes cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(Model::FromBuffer(WithOptions(cut, conv.graph())).ok()) << size;
  }
  Bytes newer = good;
  newer[4] = 2;
  EXPECT_THAT(Model::FromBuffer(WithOptions(newer, conv.graph())).status().message(),
              HasSubstr("compile the original model again"));
}

TEST(CompiledModel, RefusesASubgraphWithOtherEnds) {
  const Conv conv;
  ModelBuilder other;
  const int32_t x = other.Input({1, 4, 4, 2});
  other.Output(other.Add(x, other.Input({1, 4, 4, 2})));
  const Bytes file =
      WithOptions(EncodeCompiledOp({.subgraph = 1, .executable = conv.executable}), other.graph());
  EXPECT_THAT(Model::FromBuffer(file).status().message(), HasSubstr("its subgraph 1 has 2 and 1"));
}

// The CPU never looks at the executable.
TEST(CompiledModel, RefusesADamagedExecutableOnTheDeviceOnly) {
  const Conv conv;
  Bytes damaged = conv.executable;
  damaged.resize(damaged.size() / 2);
  const std::shared_ptr<const Model> model =
      Reload(WithOptions(EncodeCompiledOp({.subgraph = 1, .executable = damaged}), conv.graph()));
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(RunWithSeed(MakeInterpreter(model, nullptr).get(), 1),
            RunWithSeed(MakeInterpreter(conv.model, nullptr).get(), 1));
  const auto delegate = DelegateWith(8 << 20);
  const auto interpreter = Interpreter::Create(model, {.threads = 1, .delegate = delegate.get()});
  EXPECT_EQ(interpreter.status().code(), StatusCode::kCorruptModel);
  EXPECT_THAT(interpreter.status().message(), HasSubstr("compiled partition 0"));
}

TEST(CompiledModel, RefusesAnotherVersionOfTheInstructionSet) {
  const Conv conv;
  Executable executable = *ReadExecutable(conv.executable);
  executable.isa_version = kIsaVersion + 1;
  const Bytes file = WithOptions(
      EncodeCompiledOp({.subgraph = 1, .executable = WriteExecutable(executable)}), conv.graph());
  const auto delegate = DelegateWith(8 << 20);
  const auto interpreter =
      Interpreter::Create(Reload(file), {.threads = 1, .delegate = delegate.get()});
  EXPECT_EQ(interpreter.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(interpreter.status().message(),
              AllOf(HasSubstr("version 2"), HasSubstr("compile the original model again")));
}

// Values of operands are the device's to judge; whoever computes times with them must survive them.
TEST(CompiledModel, FaultsOnTheDeviceAtOperandsThatMeanNothing) {
  const Conv conv;
  Executable executable = *ReadExecutable(conv.executable);
  for (Instruction& instruction : executable.inference_program) {
    if (auto* filter = std::get_if<Conv2DInstruction>(&instruction)) filter->groups = 0;
  }
  const auto model = Reload(WithOptions(
      EncodeCompiledOp({.subgraph = 1, .executable = WriteExecutable(executable)}), conv.graph()));
  const auto delegate = DelegateWith(8 << 20);
  const auto interpreter = MakeInterpreter(model, delegate.get());
  ASSERT_NE(interpreter, nullptr);
  const Status status = interpreter->Invoke();
  EXPECT_EQ(status.code(), StatusCode::kCorruptModel);
  EXPECT_THAT(status.message(), HasSubstr("device fault BAD_OPERAND in instruction 1 (CONV_2D "));
}

TEST(CompiledModel, TellsWhichNodesItsInstructionsComeFrom) {
  const Conv conv;
  EXPECT_TRUE(ReadExecutables(conv.model->bytes())->empty());
  const auto executables = ReadExecutables(
      WithOptions(EncodeCompiledOp({.subgraph = 1, .executable = conv.executable}), conv.graph()));
  ASSERT_TRUE(executables.ok()) << executables.status().message();
  ASSERT_EQ(executables->size(), 1u);
  const DescribedExecutable& one = (*executables)[0];
  ASSERT_EQ(one.executable.inference_nodes.size(), one.executable.inference_program.size());
  for (size_t i = 0; i < one.executable.inference_program.size(); ++i) {
    const bool is_conv =
        std::holds_alternative<Conv2DInstruction>(one.executable.inference_program[i]);
    EXPECT_EQ(one.executable.inference_nodes[i], is_conv ? 0 : -1) << i;
  }
  ASSERT_EQ(one.node_names.size(), 1u);
  EXPECT_THAT(one.node_names[0], HasSubstr("(CONV_2D)"));
  // A bare executable knows the place of a node, and no name.
  const auto bare = ReadExecutables(conv.executable);
  ASSERT_TRUE(bare.ok());
  EXPECT_EQ((*bare)[0].executable, one.executable);
  EXPECT_TRUE((*bare)[0].node_names.empty());
}

TEST(CompiledModel, RefusesAnExecutableOfOtherNodes) {
  const Conv conv;
  ModelBuilder other;
  other.Output(other.Conv2D(other.Input({1, 4, 4, 2}), {.channels = 3}));
  const Bytes file =
      WithOptions(EncodeCompiledOp({.subgraph = 1, .executable = conv.executable}), other.graph());
  const auto delegate = DelegateWith(8 << 20);
  const auto interpreter =
      Interpreter::Create(Reload(file), {.threads = 1, .delegate = delegate.get()});
  EXPECT_EQ(interpreter.status().code(), StatusCode::kCorruptModel);
  EXPECT_THAT(interpreter.status().message(), HasSubstr("output 0 of its executable has 32 bytes"));
}

}  // namespace
}  // namespace atollrt
