// SPDX-License-Identifier: Apache-2.0
#include "delegate/compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "delegate/lowering.h"
#include "delegate/partitioner.h"
#include "tests/support/model_builder.h"
#include "tests/support/random_graph.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

DeviceInfo DeviceWith(uint64_t memory_bytes) {
  DeviceInfo device;
  device.name = "test";
  device.isa_version = kIsaVersion;
  device.array_rows = 64;
  device.array_columns = 64;
  device.clock_hz = 500'000'000;
  device.memory_bytes = memory_bytes;
  device.program_memory_bytes = 1 << 20;
  device.link_bytes_per_second = 455'000'000;
  return device;
}

struct Compiled {
  std::shared_ptr<const Model> model;  // keeps the graph
  SetBoundary boundary;
  CompileFailure failure;
  Result<CompiledSet> result;

  const Executable& executable() { return result->executable; }
};

// All nodes of the model as one set.
Compiled Compile(const ModelBuilder& m, uint64_t memory_bytes = 8 << 20) {
  std::shared_ptr<const Model> model = m.Load();
  std::vector<int32_t> set(model->graph().nodes.size());
  std::iota(set.begin(), set.end(), 0);
  SetBoundary boundary = FindBoundary(model->graph(), set);
  CompileFailure failure;
  Result<CompiledSet> result = CompileSet(model->graph(), set, boundary.inputs, boundary.outputs,
                                          DeviceWith(memory_bytes), &failure);
  return {std::move(model), std::move(boundary), failure, std::move(result)};
}

std::vector<std::string> Mnemonics(const std::vector<Instruction>& program) {
  std::vector<std::string> names;
  for (const Instruction& instruction : program) names.push_back(Mnemonic(instruction));
  return names;
}

// ---- What an instruction touches (docs/isa.md) --------------------------------------------------

struct Access {
  enum Kind { kRead, kWrite } kind;
  uint32_t address;
  uint64_t bytes;
};
using Accesses = std::vector<Access>;

uint64_t Product(std::initializer_list<uint32_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), uint64_t{1}, std::multiplies<>());
}

struct AccessLister {
  Accesses operator()(const EndInstruction&) const { return {}; }
  Accesses operator()(const InputInstruction& i) const {
    return {{Access::kWrite, i.output_address, i.bytes}};
  }
  Accesses operator()(const OutputInstruction& i) const {
    return {{Access::kRead, i.input_address, i.bytes}};
  }
  Accesses operator()(const ParametersInstruction& i) const {
    return {{Access::kWrite, i.output_address, i.bytes}};
  }
  Accesses operator()(const Conv2DInstruction& i) const {
    return {
        {Access::kRead, i.input_address, Product({i.batch, i.input_h, i.input_w, i.input_c})},
        {Access::kRead, i.weight_address,
         Product({i.output_c, i.kernel_h, i.kernel_w, i.input_c / i.groups})},
        {Access::kRead, i.channel_address, uint64_t{i.output_c} * kChannelRecordBytes},
        {Access::kWrite, i.output_address, Product({i.batch, i.output_h, i.output_w, i.output_c})}};
  }
  Accesses operator()(const DepthwiseConv2DInstruction& i) const {
    return {
        {Access::kRead, i.input_address, Product({i.batch, i.input_h, i.input_w, i.input_c})},
        {Access::kRead, i.weight_address, Product({i.kernel_h, i.kernel_w, i.output_c})},
        {Access::kRead, i.channel_address, uint64_t{i.output_c} * kChannelRecordBytes},
        {Access::kWrite, i.output_address, Product({i.batch, i.output_h, i.output_w, i.output_c})}};
  }
  Accesses operator()(const AddInstruction& i) const {
    return {{Access::kRead, i.input1_address, i.count},
            {Access::kRead, i.input2_address, i.count},
            {Access::kWrite, i.output_address, i.count}};
  }
  Accesses operator()(const Pool2DInstruction& i) const {
    return {
        {Access::kRead, i.input_address, Product({i.batch, i.input_h, i.input_w, i.channels})},
        {Access::kWrite, i.output_address, Product({i.batch, i.output_h, i.output_w, i.channels})}};
  }
  Accesses operator()(const MeanInstruction& i) const {
    return {{Access::kRead, i.input_address, Product({i.batch, i.positions, i.channels})},
            {Access::kWrite, i.output_address, Product({i.batch, i.channels})}};
  }
  Accesses operator()(const TableInstruction& i) const {
    return {{Access::kRead, i.input_address, i.count},
            {Access::kRead, i.table_address, 256},
            {Access::kWrite, i.output_address, i.count}};
  }
  Accesses operator()(const CopyInstruction& i) const {
    Accesses accesses;
    for (uint32_t a = 0; a < i.count0; ++a) {
      for (uint32_t b = 0; b < i.count1; ++b) {
        for (uint32_t c = 0; c < i.count2; ++c) {
          accesses.push_back(
              {Access::kRead,
               i.input_address + a * i.input_stride0 + b * i.input_stride1 + c * i.input_stride2,
               i.bytes});
          accesses.push_back({Access::kWrite,
                              i.output_address + a * i.output_stride0 + b * i.output_stride1 +
                                  c * i.output_stride2,
                              i.bytes});
        }
      }
    }
    return accesses;
  }
  Accesses operator()(const FillInstruction& i) const {
    return {{Access::kWrite, i.output_address, i.bytes}};
  }
  Accesses operator()(std::monostate) const { return {}; }
};

// Walks the inference program: every access lies inside its segment, nothing writes to resident
// parameters, nothing reads an activation byte that has not been written.
void ExpectSoundAccesses(const Executable& executable) {
  std::vector<bool> written(executable.activation_bytes);
  for (const Instruction& instruction : executable.inference_program) {
    SCOPED_TRACE(Disassemble(instruction));
    for (const Access& access : std::visit(AccessLister(), instruction)) {
      const bool is_parameter = (access.address & kParameterSegment) != 0;
      const uint64_t begin = access.address & ~kParameterSegment;
      const uint64_t segment =
          is_parameter ? executable.resident_parameters.size() : executable.activation_bytes;
      ASSERT_LE(begin + access.bytes, segment);
      if (is_parameter) {
        ASSERT_EQ(access.kind, Access::kRead);
        continue;
      }
      for (uint64_t byte = begin; byte < begin + access.bytes; ++byte) {
        if (access.kind == Access::kWrite) written[byte] = true;
        ASSERT_TRUE(written[byte]) << "byte " << byte;
      }
    }
  }
}

// ---- Programs -----------------------------------------------------------------------------------

TEST(Compiler, StartsWithInputsAndEndsWithOutputs) {
  ModelBuilder m;
  const int32_t a = m.Input({1, 4, 4, 2});
  const int32_t sum = m.Add(a, m.Input({1, 4, 4, 2}));
  m.Output(sum);
  m.Output(m.Conv2D(sum, {.channels = 3}));
  Compiled compiled = Compile(m);
  ASSERT_TRUE(compiled.result.ok()) << compiled.result.status().message();
  EXPECT_THAT(Mnemonics(compiled.executable().inference_program),
              ElementsAre("INPUT", "INPUT", "ADD", "CONV_2D", "OUTPUT", "OUTPUT", "END"));
}

TEST(Compiler, MovesTheBytesOfTheBoundary) {
  ModelBuilder m;
  m.Output(m.Conv2D(m.Input({1, 4, 4, 2}), {.channels = 3}));
  Compiled compiled = Compile(m);
  const Executable& executable = compiled.executable();
  ASSERT_EQ(executable.inputs.size(), 1u);
  EXPECT_EQ(executable.inputs[0].bytes, 32u);
  EXPECT_EQ(executable.inputs[0].name, "t0");
  EXPECT_THAT(executable.inputs[0].shape, ElementsAre(1, 4, 4, 2));
  ASSERT_EQ(executable.outputs.size(), 1u);
  EXPECT_EQ(executable.outputs[0].bytes, 48u);
  EXPECT_EQ(std::get<InputInstruction>(executable.inference_program.front()).bytes, 32u);
}

TEST(Compiler, GivesReshapeNoInstruction) {
  ModelBuilder m;
  const int32_t x = m.Conv2D(m.Input({1, 2, 2, 2}), {.channels = 2});
  m.Output(m.FullyConnected(m.Reshape(x, {1, 8}), 3));
  Compiled compiled = Compile(m);
  EXPECT_THAT(Mnemonics(compiled.executable().inference_program),
              ElementsAre("INPUT", "CONV_2D", "CONV_2D", "OUTPUT", "END"));
}

TEST(Compiler, GivesAReshapeOfAnInputTheInputsBytes) {
  ModelBuilder m;
  const int32_t flat = m.Reshape(m.Input({1, 2, 2, 2}), {1, 8});
  m.Output(flat);
  m.Output(m.FullyConnected(flat, 3));
  Compiled compiled = Compile(m);
  ASSERT_TRUE(compiled.result.ok());
  const std::vector<Instruction>& program = compiled.executable().inference_program;
  EXPECT_EQ(std::get<InputInstruction>(program[0]).output_address,
            std::get<OutputInstruction>(program[2]).input_address);
}

TEST(Compiler, MakesFunctionsOfOneByteTables) {
  ModelBuilder m;
  const Shape shape = {1, 2, 2, 2};
  int32_t x = m.Conv2D(m.Input(shape), {.channels = 2});
  x = m.Node(OpType::kHARD_SWISH, {x}, shape);
  x = m.Node(OpType::kLEAKY_RELU, {x}, shape, LeakyReluOptions{.alpha = 0.25f});
  m.Output(m.Node(OpType::kEXP, {x}, shape));
  Compiled compiled = Compile(m);
  EXPECT_THAT(Mnemonics(compiled.executable().inference_program),
              ElementsAre("INPUT", "CONV_2D", "TABLE", "TABLE", "TABLE", "OUTPUT", "END"));
}

TEST(Compiler, PadsByFillAndCopy) {
  ModelBuilder m;
  const int32_t x = m.Pad(m.Input({1, 2, 2, 2}), {0, 0, 1, 0, 0, 1, 0, 0});
  m.Output(m.Conv2D(x, {.channels = 2}));
  Compiled compiled = Compile(m);
  EXPECT_THAT(Mnemonics(compiled.executable().inference_program),
              ElementsAre("INPUT", "FILL", "COPY", "CONV_2D", "OUTPUT", "END"));
  EXPECT_EQ(std::get<FillInstruction>(compiled.executable().inference_program[1]).value, 0xFDu)
      << "the zero point, -3";
}

TEST(Compiler, SplitsByOneCopyPerPart) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 2, 2, 4});
  const int32_t a =
      m.Node(OpType::kSPLIT, {m.Integers({}, {3}), x}, {1, 2, 2, 2}, SplitOptions{.num_splits = 2});
  const int32_t b = m.Activation({1, 2, 2, 2});
  m.graph().nodes.back().outputs.push_back(b);
  m.Output(m.Add(a, b));
  Compiled compiled = Compile(m);
  EXPECT_THAT(Mnemonics(compiled.executable().inference_program),
              ElementsAre("INPUT", "COPY", "COPY", "ADD", "OUTPUT", "END"));
}

TEST(Compiler, NamesTheNodeThatMakesNoSense) {
  ModelBuilder m;
  const int32_t y = m.Conv2D(m.Input({1, 2, 2, 2}), {.channels = 2});
  m.tensor(y).quantization = {};
  m.Output(y);
  Compiled compiled = Compile(m);
  EXPECT_EQ(compiled.result.status().code(), StatusCode::kCorruptModel);
  EXPECT_THAT(compiled.result.status().message(),
              HasSubstr("node 0 (CONV_2D): output 't3' has 0 scales"));
  EXPECT_EQ(compiled.failure.node, -1);
}

// ---- Memory -------------------------------------------------------------------------------------

// Dense layers with about 68, 68 and 17 KiB of parameters.
ModelBuilder DenseLayers() {
  ModelBuilder m;
  const int32_t x = m.FullyConnected(m.Input({1, 256}), 256);
  m.Output(m.FullyConnected(m.FullyConnected(x, 256), 64));
  return m;
}

TEST(Compiler, KeepsParametersResidentWhenTheyFit) {
  Compiled compiled = Compile(DenseLayers());
  const Executable& executable = compiled.executable();
  EXPECT_GT(executable.resident_parameters.size(), 150'000u);
  EXPECT_THAT(executable.streamed_parameters, IsEmpty());
  EXPECT_THAT(Mnemonics(executable.caching_program), ElementsAre("PARAMETERS", "END"));
  EXPECT_EQ(std::get<ParametersInstruction>(executable.caching_program[0]).bytes,
            executable.resident_parameters.size());
  EXPECT_EQ(compiled.result->note, "");
}

// The two large layers take turns in one buffer; the small one stays.
TEST(Compiler, StreamsTheLargestParametersWhenTheyDoNotFit) {
  Compiled compiled = Compile(DenseLayers(), 96 * 1024);
  ASSERT_TRUE(compiled.result.ok()) << compiled.result.status().message();
  const Executable& executable = compiled.executable();
  EXPECT_THAT(Mnemonics(executable.inference_program),
              ElementsAre("INPUT", "PARAMETERS", "CONV_2D", "PARAMETERS", "CONV_2D", "CONV_2D",
                          "OUTPUT", "END"));
  EXPECT_EQ(executable.streamed_parameters.size(), 2u * (65'536 + 256 * kChannelRecordBytes));
  EXPECT_EQ(executable.resident_parameters.size(), 16'384u + 64 * kChannelRecordBytes);
  EXPECT_THAT(compiled.result->note,
              AllOf(HasSubstr("parameters of 2 of 3 nodes (139264 bytes)"),
                    HasSubstr("98304 bytes on chip"), HasSubstr("streamed for every inference")));
}

TEST(Compiler, StaysWithinTheMemory) {
  for (const uint64_t memory : {96'000u, 120'000u, 163'840u, 200'000u}) {
    Compiled compiled = Compile(DenseLayers(), memory);
    ASSERT_TRUE(compiled.result.ok()) << memory;
    const Executable& executable = compiled.executable();
    EXPECT_LE(executable.activation_bytes + executable.resident_parameters.size(), memory);
    ExpectSoundAccesses(executable);
  }
}

TEST(Compiler, NamesTheNodeAtThePeakWhenActivationsDoNotFit) {
  ModelBuilder m;
  const int32_t small = m.Conv2D(m.Input({1, 16, 16, 4}), {.channels = 4});
  const int32_t large = m.Conv2D(small, {.channels = 64});
  m.Output(m.Mean(m.Conv2D(large, {.channels = 64}), {1, 2}));
  Compiled compiled = Compile(m, 16 * 1024);
  EXPECT_EQ(compiled.result.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(compiled.failure.node, 2);
  EXPECT_THAT(compiled.result.status().message(),
              AllOf(HasSubstr("node 2 (CONV_2D) and its neighbours need"),
                    HasSubstr("the device has 16384")));
}

TEST(Compiler, ReusesMemoryOfActivationsThatAreGone) {
  ModelBuilder m;
  int32_t x = m.Input({1, 16, 16, 16});
  for (int i = 0; i < 10; ++i) x = m.Conv2D(x, {.channels = 16});
  m.Output(x);
  Compiled compiled = Compile(m);
  EXPECT_EQ(compiled.executable().activation_bytes, 2u * 16 * 16 * 16);
}

// ---- Properties ---------------------------------------------------------------------------------

TEST(Compiler, TouchesOnlyWhatItOwnsAndHasWrittenInRandomModels) {
  const uint64_t seed = TestSeed(11);
  int sets = 0;
  for (int i = 0; i < TestCount(1000) && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE("ATOLL_TEST_SEED=" + std::to_string(seed + i) + " begins with this model");
    Choices choices(seed + i);
    RandomGraphOptions options{.max_elements = 1 << 14};
    options.likes = [](OpType type) { return FindDeviceOp(type) != nullptr; };
    const auto model = Model::FromBuffer(RandomModel(&choices, options));
    ASSERT_TRUE(model.ok()) << model.status().message();
    const Graph& graph = (*model)->graph();
    for (const uint64_t memory : {8u << 20, 40u << 10, 12u << 10}) {
      const PartitionLimits limits{.memory_bytes = static_cast<int64_t>(memory)};
      for (const std::vector<int32_t>& set : PartitionGraph(graph, limits, {}).sets) {
        const SetBoundary boundary = FindBoundary(graph, set);
        CompileFailure failure;
        const Result<CompiledSet> compiled =
            CompileSet(graph, set, boundary.inputs, boundary.outputs, DeviceWith(memory), &failure);
        if (!compiled.ok()) {
          EXPECT_EQ(compiled.status().code(), StatusCode::kResourceExhausted);
          EXPECT_GE(failure.node, 0);
          continue;
        }
        ++sets;
        const Executable& executable = compiled->executable;
        EXPECT_TRUE(ValidateExecutable(executable).ok());
        EXPECT_LE(executable.activation_bytes + executable.resident_parameters.size(), memory);
        ExpectSoundAccesses(executable);
      }
    }
  }
  EXPECT_GT(sets, TestCount(1000));
}

}  // namespace
}  // namespace atollrt
