// SPDX-License-Identifier: Apache-2.0
#include "delegate/compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <string_view>

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
  SetBoundary boundary = BoundaryFinder(model->graph()).Find(set);
  CompileFailure failure;
  Result<CompiledSet> result =
      CompileSet(model->graph(), set, boundary.inputs, boundary.OutputsAndState(),
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
  Accesses operator()(const TransposeConv2DInstruction& i) const {
    return {
        {Access::kRead, i.input_address, Product({i.batch, i.input_h, i.input_w, i.input_c})},
        {Access::kRead, i.weight_address, Product({i.output_c, i.kernel_h, i.kernel_w, i.input_c})},
        {Access::kRead, i.channel_address, uint64_t{i.output_c} * kChannelRecordBytes},
        {Access::kWrite, i.output_address, Product({i.batch, i.output_h, i.output_w, i.output_c})}};
  }
  Accesses operator()(const LstmInstruction& i) const {
    return {{Access::kRead, i.input_address, Product({i.batch, i.steps, i.inputs})},
            {Access::kRead, i.weight_address, Product({4, i.units, i.inputs + i.units})},
            {Access::kRead, i.channel_address, uint64_t{8} * i.units * kChannelRecordBytes},
            {Access::kRead, i.hidden_address, Product({i.batch, i.units})},
            {Access::kRead, i.cell_address, Product({2, i.batch, i.units})},
            {Access::kWrite, i.hidden_address, Product({i.batch, i.units})},
            {Access::kWrite, i.cell_address, Product({2, i.batch, i.units})},
            {Access::kWrite, i.output_address, Product({i.batch, i.steps, i.units})}};
  }
  template <PairInstruction T>
  Accesses operator()(const T& i) const {
    Accesses accesses;
    uint32_t element = 0;
    for (uint32_t a = 0; a < i.count0; ++a) {
      for (uint32_t b = 0; b < i.count1; ++b) {
        for (uint32_t c = 0; c < i.count2; ++c) {
          const uint32_t offset1 =
              a * i.input1_stride0 + b * i.input1_stride1 + c * i.input1_stride2;
          const uint32_t offset2 =
              a * i.input2_stride0 + b * i.input2_stride1 + c * i.input2_stride2;
          accesses.push_back(
              {Access::kRead, i.input1_address + offset1, (i.count3 - 1) * i.input1_stride3 + 1});
          accesses.push_back(
              {Access::kRead, i.input2_address + offset2, (i.count3 - 1) * i.input2_stride3 + 1});
          accesses.push_back({Access::kWrite, i.output_address + element, i.count3});
          element += i.count3;
        }
      }
    }
    return accesses;
  }
  Accesses operator()(const Pool2DInstruction& i) const {
    return {
        {Access::kRead, i.input_address, Product({i.batch, i.input_h, i.input_w, i.channels})},
        {Access::kWrite, i.output_address, Product({i.batch, i.output_h, i.output_w, i.channels})}};
  }
  template <typename T>
  static Accesses OfReduction(const T& i) {
    return {{Access::kRead, i.input_address,
             Product({i.kept0, i.reduced0, i.kept1, i.reduced1, i.kept2, i.reduced2})},
            {Access::kWrite, i.output_address, Product({i.kept0, i.kept1, i.kept2})}};
  }
  Accesses operator()(const ReduceSumInstruction& i) const { return OfReduction(i); }
  Accesses operator()(const ReduceMaxInstruction& i) const { return OfReduction(i); }
  Accesses operator()(const ReduceMinInstruction& i) const { return OfReduction(i); }
  template <typename T>
  static Accesses OfRows(const T& i) {
    return {{Access::kRead, i.input_address, Product({i.rows, i.depth})},
            {Access::kWrite, i.output_address, Product({i.rows, i.depth})}};
  }
  Accesses operator()(const SoftmaxInstruction& i) const { return OfRows(i); }
  Accesses operator()(const L2NormalizationInstruction& i) const { return OfRows(i); }
  template <typename T>
  static Accesses OfResize(const T& i) {
    return {
        {Access::kRead, i.input_address, Product({i.batch, i.input_rows, i.input_w, i.channels})},
        {Access::kWrite, i.output_address,
         Product({i.batch, i.output_rows, i.output_w, i.channels})}};
  }
  Accesses operator()(const ResizeBilinearInstruction& i) const { return OfResize(i); }
  Accesses operator()(const ResizeNearestNeighborInstruction& i) const { return OfResize(i); }
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
          for (uint32_t d = 0; d < i.count3; ++d) {
            for (uint32_t e = 0; e < i.count4; ++e) {
              const uint32_t in = a * i.input_stride0 + b * i.input_stride1 + c * i.input_stride2 +
                                  d * i.input_stride3 + e * i.input_stride4;
              const uint32_t out = a * i.output_stride0 + b * i.output_stride1 +
                                   c * i.output_stride2 + d * i.output_stride3 +
                                   e * i.output_stride4;
              accesses.push_back({Access::kRead, i.input_address + in, i.bytes});
              accesses.push_back({Access::kWrite, i.output_address + out, i.bytes});
            }
          }
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
  std::string written(executable.activation_bytes, '\0');
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
      if (access.kind == Access::kWrite) {
        written.replace(begin, access.bytes, access.bytes, '\1');
      } else {
        const size_t unwritten = std::string_view(written).substr(begin, access.bytes).find('\0');
        ASSERT_EQ(unwritten, std::string_view::npos) << "byte " << begin + unwritten;
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

TEST(Compiler, GivesEachBandOfAResizeItsPlaceInTheImage) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 20, 20, 16});
  const int32_t size = m.Integers({2}, {60, 60});
  const int32_t y = m.Node(OpType::kRESIZE_BILINEAR, {x, size}, {1, 60, 60, 16},
                           ResizeOptions{.align_corners = false, .half_pixel_centers = true});
  m.Output(m.MaxPool(y, {.size = 3, .stride = 3}));
  Compiled compiled = Compile(m, 32 * 1024);
  ASSERT_TRUE(compiled.result.ok()) << compiled.result.status().message();
  ExpectSoundAccesses(compiled.executable());
  uint32_t next_row = 0;
  for (const Instruction& instruction : compiled.executable().inference_program) {
    const auto* resize = std::get_if<ResizeBilinearInstruction>(&instruction);
    if (resize == nullptr) continue;
    EXPECT_EQ(resize->input_h, 20u);
    EXPECT_EQ(resize->output_h, 60u);
    EXPECT_LT(resize->output_rows, 60u);
    EXPECT_EQ(resize->output_first, next_row);
    next_row += resize->output_rows;
  }
  EXPECT_EQ(next_row, 60u);
}

// Lanes are what lies next to each other: channels here, elements of one channel there.
TEST(Compiler, PutsTheInnermostAxesOfAReductionLast) {
  const auto reduction = [](const std::vector<int32_t>& axes) {
    ModelBuilder m;
    m.Output(m.Mean(m.Input({2, 7, 6, 10}), axes));
    Compiled compiled = Compile(m);
    ReduceSumInstruction i =
        std::get<ReduceSumInstruction>(compiled.executable().inference_program[1]);
    return std::vector<uint32_t>{i.kept0, i.reduced0, i.kept1, i.reduced1, i.kept2, i.reduced2};
  };
  EXPECT_THAT(reduction({1, 2}), ElementsAre(1, 1, 2, 42, 10, 1));
  EXPECT_THAT(reduction({3}), ElementsAre(1, 1, 1, 1, 84, 10));
  EXPECT_THAT(reduction({0, 2}), ElementsAre(1, 2, 7, 6, 10, 1));
  EXPECT_THAT(reduction({0, 1, 2, 3}), ElementsAre(1, 1, 1, 1, 1, 840));
}

TEST(Compiler, MovesTheStateOfARecurrentLayerInAndOut) {
  ModelBuilder m;
  const int32_t y = m.Lstm(m.Relu(m.Input({2, 3, 4})), {.units = 5});
  m.Output(m.Relu(y));
  Compiled compiled = Compile(m);
  ASSERT_TRUE(compiled.result.ok()) << compiled.result.status().message();
  const Executable& executable = compiled.executable();
  const std::vector<Instruction>& program = executable.inference_program;
  ASSERT_THAT(Mnemonics(program), ElementsAre("INPUT", "INPUT", "INPUT", "TABLE", "LSTM", "TABLE",
                                              "OUTPUT", "OUTPUT", "OUTPUT", "END"));
  // In place: it arrives where the instruction changes it and where it leaves from.
  const LstmInstruction& lstm = std::get<LstmInstruction>(program[4]);
  EXPECT_EQ(std::get<InputInstruction>(program[1]).output_address, lstm.hidden_address);
  EXPECT_EQ(std::get<InputInstruction>(program[2]).output_address, lstm.cell_address);
  EXPECT_EQ(std::get<OutputInstruction>(program[7]).input_address, lstm.hidden_address);
  EXPECT_EQ(std::get<OutputInstruction>(program[8]).input_address, lstm.cell_address);
  ASSERT_EQ(executable.inputs.size(), 3u);
  ASSERT_EQ(executable.outputs.size(), 3u);
  for (const Layer& cell : {executable.inputs[2], executable.outputs[2]}) {
    EXPECT_EQ(cell.type, LayerType::kInt16);
    EXPECT_EQ(cell.bytes, 20u);
  }
  EXPECT_TRUE(ValidateExecutable(executable).ok());
  ExpectSoundAccesses(executable);
}

TEST(Compiler, MakesParametersOfConstantOperands) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 6, 5, 4});
  const int32_t channels = m.Constant({4});
  m.Output(m.Node(OpType::kMAXIMUM, {channels, x}, {1, 6, 5, 4}));
  Compiled compiled = Compile(m);
  ASSERT_TRUE(compiled.result.ok()) << compiled.result.status().message();
  EXPECT_THAT(Mnemonics(compiled.executable().inference_program),
              ElementsAre("INPUT", "MAXIMUM", "OUTPUT", "END"));
  const std::span<const uint8_t> bytes = m.tensor(channels).data;
  EXPECT_EQ(compiled.executable().resident_parameters,
            std::vector<uint8_t>(bytes.begin(), bytes.end()));
  // 30 positions of 4 channels, the constant at a standstill from one to the next.
  const auto& i = std::get<MaximumInstruction>(compiled.executable().inference_program[1]);
  EXPECT_EQ(i.input1_address, kParameterSegment);
  EXPECT_EQ((std::vector{i.count0, i.count1, i.count2, i.count3}),
            (std::vector<uint32_t>{1, 1, 30, 4}));
  EXPECT_EQ((std::vector{i.input1_stride2, i.input1_stride3}), (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ((std::vector{i.input2_stride2, i.input2_stride3}), (std::vector<uint32_t>{4, 1}));
}

TEST(Compiler, TakesTensorsOfOneShapeAsOneRun) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 6, 5, 4});
  m.Output(m.Add(x, x));
  Compiled compiled = Compile(m);
  const auto& i = std::get<AddInstruction>(compiled.executable().inference_program[1]);
  EXPECT_EQ((std::vector{i.count0, i.count1, i.count2, i.count3}),
            (std::vector<uint32_t>{1, 1, 1, 120}));
  EXPECT_EQ(i.input1_address, i.input2_address);
}

// ---- Chains (docs/isa.md §3, ADD) ---------------------------------------------------------------

// Whether each of the program's ADDs is chained.
std::vector<bool> Chains(const Executable& executable) {
  std::vector<bool> chains;
  for (const Instruction& instruction : executable.inference_program) {
    if (std::holds_alternative<AddInstruction>(instruction)) {
      chains.push_back(ChainedAdd(instruction) != nullptr);
    }
  }
  return chains;
}

TEST(Compiler, ChainsTheAddOfAResidualBlockToItsConvolution) {
  for (const bool is_second : {false, true}) {
    ModelBuilder m;
    int32_t x = m.Conv2D(m.Input({1, 16, 16, 16}), {.channels = 4, .stride = 2});
    for (int block = 0; block < 2; ++block) {
      const int32_t wide = m.Conv2D(x, {.channels = 24});
      const int32_t made = m.Conv2D(wide, {.channels = 4, .kernel = 3});
      x = is_second ? m.Add(x, made) : m.Add(made, x);
    }
    m.Output(x);
    EXPECT_THAT(Chains(Compile(m).executable()), ElementsAre(true, true));
  }
}

TEST(Compiler, TakesNoMoreMemoryForChains) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 64, 64, 16});
  const int32_t wide = m.Conv2D(x, {.channels = 32});
  m.Output(m.Add(x, m.Conv2D(wide, {.channels = 16})));
  Compiled compiled = Compile(m);
  // The sum where the wide tensor was.
  EXPECT_EQ(compiled.executable().activation_bytes, 64u * 64 * (16 + 32 + 16));
  EXPECT_THAT(Chains(compiled.executable()), ElementsAre(false));
}

TEST(Compiler, ChainsNothingToWhatDoesNotStandBeforeIt) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 8, 8, 4});
  const int32_t made = m.Conv2D(x, {.channels = 4});
  const int32_t between = m.Relu(x);
  m.Output(m.Add(made, between));
  m.Output(m.Conv2D(made, {.channels = 4}));
  EXPECT_THAT(Chains(Compile(m).executable()), ElementsAre(false));
}

TEST(Compiler, ChainsNothingWhoseOperandsDoNotAllowIt) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 8, 8, 4});
  const int32_t twice = m.Conv2D(x, {.channels = 4});
  const int32_t sum = m.Add(twice, twice);
  const int32_t repeating = m.Conv2D(sum, {.channels = 4});
  const int32_t shifted = m.Add(repeating, m.Constant({4}));
  const int32_t depthwise = m.DepthwiseConv2D(shifted, {});
  m.Output(m.Add(depthwise, shifted));
  EXPECT_THAT(Chains(Compile(m).executable()), ElementsAre(false, false, false));
}

// uint8 parts: like the result, of another scale, and a constant of another scale.
TEST(Compiler, RescalesPartsOnTheirWay) {
  ModelBuilder m;
  const std::vector<int32_t> parts = {m.Input({1, 2, 3, 4}), m.Input({1, 2, 3, 4}),
                                      m.Constant({1, 2, 3, 1})};
  m.Output(m.Concatenation(parts, 3));
  for (Tensor& tensor : m.graph().tensors) {
    tensor.type = DataType::kUInt8;
    tensor.quantization.zero_points = {125};
  }
  for (const size_t part : {1, 2}) {
    m.tensor(parts[part]).quantization = {.scales = {0.125f}, .zero_points = {3}};
  }
  Compiled compiled = Compile(m);
  ASSERT_TRUE(compiled.result.ok()) << compiled.result.status().message();
  const Executable& executable = compiled.executable();
  EXPECT_THAT(Mnemonics(executable.inference_program),
              ElementsAre("INPUT", "INPUT", "COPY", "TABLE", "COPY", "COPY", "OUTPUT", "END"));
  ExpectSoundAccesses(executable);
  // A table, and the constant at the result's scale: 125 + 2 * (x - 3).
  ASSERT_EQ(executable.resident_parameters.size(), 256u + 6);
  for (size_t i = 0; i < 6; ++i) {
    const int value = 125 + 2 * (m.tensor(parts[2]).data[i] - 3);
    EXPECT_EQ(executable.resident_parameters[256 + i], std::min(value, 255));
  }
}

TEST(Compiler, RescalesPartsStraightToTheirPlaceWhereItIsInOnePiece) {
  ModelBuilder m;
  const int32_t a = m.Input({1, 2, 3, 4});
  m.Output(m.Concatenation({m.Input({1, 1, 3, 4}), a}, 1));
  for (Tensor& tensor : m.graph().tensors) {
    tensor.type = DataType::kUInt8;
    tensor.quantization.zero_points = {125};
  }
  m.tensor(a).quantization.scales = {0.5f};
  EXPECT_THAT(Mnemonics(Compile(m).executable().inference_program),
              ElementsAre("INPUT", "INPUT", "COPY", "TABLE", "OUTPUT", "END"));
}

TEST(Compiler, UnrollsTheShortestLoopsBeyondFive) {
  ModelBuilder m;
  m.Output(m.Node(OpType::kTRANSPOSE,
                  {m.Input({2, 3, 4, 5, 6, 7}), m.Integers({6}, {5, 3, 1, 4, 0, 2})},
                  {7, 5, 3, 6, 2, 4}));
  Compiled compiled = Compile(m);
  EXPECT_THAT(Mnemonics(compiled.executable().inference_program),
              ElementsAre("INPUT", "COPY", "COPY", "OUTPUT", "END"));
  ExpectSoundAccesses(compiled.executable());
}

TEST(Compiler, UsesScratchMemoryOnlyWhileItMoves) {
  ModelBuilder m;
  int32_t x = m.Input({1, 7, 7, 4});
  for (int i = 0; i < 3; ++i) {
    x = m.Node(OpType::kSPACE_TO_BATCH_ND,
               {x, m.Integers({2}, {2, 2}), m.Integers({2, 2}, {0, 1, 1, 0})}, {4, 4, 4, 4});
    x = m.Node(OpType::kBATCH_TO_SPACE_ND,
               {x, m.Integers({2}, {2, 2}), m.Integers({2, 2}, {1, 0, 0, 1})}, {1, 7, 7, 4});
  }
  m.Output(x);
  Compiled compiled = Compile(m);
  ASSERT_TRUE(compiled.result.ok()) << compiled.result.status().message();
  ExpectSoundAccesses(compiled.executable());
  EXPECT_LE(compiled.executable().activation_bytes, 4u * 256);
}

TEST(Compiler, NamesTheNodeThatMakesNoSense) {
  ModelBuilder m;
  const int32_t y = m.Conv2D(m.Input({1, 2, 2, 2}), {.channels = 2});
  m.tensor(y).quantization = {};
  m.Output(y);
  Compiled compiled = Compile(m);
  EXPECT_EQ(compiled.result.status().code(), StatusCode::kCorruptModel);
  EXPECT_THAT(compiled.result.status().message(),
              HasSubstr("node 0 (CONV_2D) 't3': output 't3' has 0 scales"));
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

// One layer of 512 KiB in a memory of 128: parts of its channels take turns in two buffers.
TEST(Compiler, DividesParametersThatDoNotFitAtOnce) {
  ModelBuilder m;
  m.Output(m.FullyConnected(m.Input({1, 1024}), 512));
  Compiled compiled = Compile(m, 128 * 1024);
  ASSERT_TRUE(compiled.result.ok()) << compiled.result.status().message();
  const Executable& executable = compiled.executable();
  EXPECT_THAT(executable.resident_parameters, IsEmpty());
  EXPECT_EQ(executable.streamed_parameters.size(), 512u * (1024 + kChannelRecordBytes));
  const std::vector<std::string> names = Mnemonics(executable.inference_program);
  EXPECT_EQ(std::count(names.begin(), names.end(), "CONV_2D"), 16);
  EXPECT_EQ(std::count(names.begin(), names.end(), "PARAMETERS"), 16);
  EXPECT_EQ(names[2], "PARAMETERS") << "the second part is on its way while the first is computed";
  EXPECT_EQ(names[3], "CONV_2D");
  EXPECT_THAT(compiled.result->note, HasSubstr("node 0 is computed in 16 parts"));
  ExpectSoundAccesses(executable);
}

// Several positions: each part is a tensor of its own first.
TEST(Compiler, CopiesPartsOfImagesIntoPlace) {
  ModelBuilder m;
  m.Output(m.Conv2D(m.Input({1, 3, 3, 64}), {.channels = 100, .kernel = 3}));
  Compiled compiled = Compile(m, 40 * 1024);
  ASSERT_TRUE(compiled.result.ok()) << compiled.result.status().message();
  EXPECT_THAT(Mnemonics(compiled.executable().inference_program),
              AllOf(testing::Contains("CONV_2D").Times(4), testing::Contains("COPY").Times(4)));
  ExpectSoundAccesses(compiled.executable());
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
              AllOf(HasSubstr("node 2 (CONV_2D) 't9' and its neighbours need"),
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
        const SetBoundary boundary = BoundaryFinder(graph).Find(set);
        CompileFailure failure;
        const Result<CompiledSet> compiled = CompileSet(
            graph, set, boundary.inputs, boundary.OutputsAndState(), DeviceWith(memory), &failure);
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
