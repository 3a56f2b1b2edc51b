// SPDX-License-Identifier: Apache-2.0
#include "driver/isa/executable.h"

#include <flatbuffers/flatbuffers.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>

#include "runtime/base/bytes.h"
#include "tests/support/allocation_meter.h"
#include "tests/support/rng.h"
#include "tests/support/test_executables.h"

namespace atollrt {
namespace {

using ::testing::HasSubstr;

// Bytes in a heap block of exactly their size, so that the sanitizers see every over-read.
Result<Executable> ReadExact(std::span<const uint8_t> bytes) {
  const std::unique_ptr<uint8_t[]> block(new uint8_t[bytes.size()]);
  std::copy(bytes.begin(), bytes.end(), block.get());
  return ReadExecutable({block.get(), bytes.size()});
}

std::string RandomName(Rng& rng) {
  std::string name(static_cast<size_t>(rng.Int(0, 12)), ' ');
  for (char& c : name) c = static_cast<char>(rng.Int(-128, 127));
  return name;
}

std::vector<uint8_t> RandomBytes(Rng& rng, int64_t most) {
  std::vector<uint8_t> bytes(static_cast<size_t>(rng.Int(0, most)));
  rng.Fill(bytes);
  return bytes;
}

std::vector<Layer> RandomLayers(Rng& rng) {
  std::vector<Layer> layers(static_cast<size_t>(rng.Int(0, 3)));
  for (Layer& layer : layers) {
    layer.name = RandomName(rng);
    layer.type = rng.Pick({LayerType::kInt8, LayerType::kUInt8, LayerType::kInt16});
    layer.bytes = LayerTypeBytes(layer.type);
    for (int64_t rank = rng.Int(0, 4); rank > 0; --rank) {
      layer.shape.push_back(rng.Int32(1, 9));
      layer.bytes *= static_cast<uint64_t>(layer.shape.back());
    }
  }
  return layers;
}

// Takes, computes, gives: with random operands, all of which are the device's to judge.
Executable RandomExecutable(Rng& rng) {
  Executable executable;
  executable.name = RandomName(rng);
  executable.inputs = RandomLayers(rng);
  executable.outputs = RandomLayers(rng);
  executable.resident_parameters = RandomBytes(rng, 300);
  executable.streamed_parameters = RandomBytes(rng, 300);
  executable.activation_bytes = static_cast<uint64_t>(rng.Int(2 * 6561, 1 << 30));
  executable.estimated_cycles = rng.Next();
  executable.array_rows = static_cast<uint32_t>(rng.Next());
  executable.array_columns = static_cast<uint32_t>(rng.Next());
  const auto address = [&] { return static_cast<uint32_t>(rng.Int(0, 6560)); };
  auto& program = executable.inference_program;
  for (const Layer& layer : executable.inputs) {
    program.push_back(InputInstruction{0, static_cast<uint32_t>(layer.bytes)});
  }
  if (const auto size = static_cast<uint32_t>(executable.streamed_parameters.size())) {
    program.push_back(ParametersInstruction{0, size});
  }
  for (int64_t count = rng.Int(0, 5); count > 0; --count) {
    program.push_back(TableInstruction{address(), address(), 7, address()});
    program.push_back(FillInstruction{address(), static_cast<uint32_t>(rng.Next()), 3});
  }
  for (const Layer& layer : executable.outputs) {
    program.push_back(OutputInstruction{0, static_cast<uint32_t>(layer.bytes)});
  }
  program.push_back(EndInstruction{});
  if (const auto size = static_cast<uint32_t>(executable.resident_parameters.size())) {
    executable.caching_program = {ParametersInstruction{kParameterSegment, size}, EndInstruction{}};
  }
  if (rng.Int(0, 3) > 0) {
    executable.inference_nodes.resize(program.size());
    for (int32_t& node : executable.inference_nodes) {
      node = rng.Pick({-1, 0, rng.Int32(0, INT32_MAX)});
    }
  }
  return executable;
}

TEST(Executable, ComesBackAsItWasWritten) {
  Rng rng(TestSeed(1));
  for (int i = 0; i < 500; ++i) {
    const Executable executable = RandomExecutable(rng);
    const Result<Executable> read = ReadExact(WriteExecutable(executable));
    ASSERT_TRUE(read.ok()) << read.status().message();
    ASSERT_EQ(*read, executable);
  }
}

// docs/executable.md §3.
TEST(Executable, TheExampleOfTheDocumentIsWhatIsWritten) {
  Executable executable;
  executable.name = "minimal";
  executable.inference_program = {InputInstruction{0, 4}, OutputInstruction{0, 4},
                                  EndInstruction{}};
  executable.activation_bytes = 4;
  executable.inputs = {Layer{.name = "x", .shape = {1, 4}, .bytes = 4}};
  executable.outputs = {Layer{.name = "y", .shape = {1, 4}, .bytes = 4}};
  executable.estimated_cycles = 386;
  executable.array_rows = executable.array_columns = 64;
  const std::vector<uint8_t> bytes = WriteExecutable(executable);
  ASSERT_EQ(bytes.size(), 632u);
  const auto word = [&](size_t offset) { return LoadLittleEndian<uint32_t>(&bytes[offset]); };
  EXPECT_EQ(word(0x000), 0x24u);
  EXPECT_EQ(std::memcmp(&bytes[4], "ATX1", 4), 0);
  EXPECT_EQ(word(0x028), 1u);
  EXPECT_EQ(word(0x034), 0xB0u);
  EXPECT_EQ(word(0x050), 4u);
  EXPECT_EQ(word(0x058), 386u);
  EXPECT_EQ(word(0x0E4), 384u);
  EXPECT_EQ(word(0x0E8), 1u);
  EXPECT_EQ(word(0x168), 2u);
  EXPECT_EQ(word(0x26C), 7u);
}

TEST(Executable, IsReadAtAnyAlignment) {
  const Executable executable = MakeTableExecutable({});
  const std::vector<uint8_t> bytes = WriteExecutable(executable);
  for (size_t shift = 0; shift < 16; ++shift) {
    std::vector<uint8_t> shifted(bytes.size() + shift);
    std::copy(bytes.begin(), bytes.end(), shifted.begin() + static_cast<ptrdiff_t>(shift));
    const Result<Executable> read = ReadExecutable(std::span(shifted).subspan(shift));
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(*read, executable);
  }
}

TEST(Executable, ParametersAreAlignedInTheStoredForm) {
  Executable executable = MakeTableExecutable({});
  std::fill(executable.resident_parameters.begin(), executable.resident_parameters.end(), 0xEE);
  const std::vector<uint8_t> bytes = WriteExecutable(executable);
  const std::vector<uint8_t> run(256, 0xEE);
  const auto found = std::search(bytes.begin(), bytes.end(), run.begin(), run.end());
  ASSERT_NE(found, bytes.end());
  EXPECT_EQ((found - bytes.begin()) % 32, 0);
}

TEST(Executable, EveryPrefixIsRefusedOrWhole) {
  const Executable executable = MakeTableExecutable({});
  const std::vector<uint8_t> bytes = WriteExecutable(executable);
  for (size_t size = 0; size < bytes.size(); ++size) {
    const Result<Executable> read = ReadExact(std::span(bytes).first(size));
    if (read.ok()) {
      EXPECT_EQ(*read, executable) << size;  // what is missing was padding
    } else {
      EXPECT_EQ(read.code(), StatusCode::kCorruptModel) << size;
    }
  }
}

TEST(Executable, EverySingleByteCorruptionGivesAnErrorOrSomethingValid) {
  for (const auto table : {TableExecutableOptions::kResident, TableExecutableOptions::kStreamed}) {
    const std::vector<uint8_t> bytes = WriteExecutable(MakeTableExecutable({.table = table}));
    for (size_t i = 0; i < bytes.size(); ++i) {
      for (const int flip : {0x01, 0x80, 0xFF}) {
        std::vector<uint8_t> damaged = bytes;
        damaged[i] = static_cast<uint8_t>(damaged[i] ^ flip);
        const Result<Executable> read = ReadExact(damaged);
        if (!read.ok()) continue;
        ASSERT_TRUE(ValidateExecutable(*read).ok());
        const Result<Executable> again = ReadExact(WriteExecutable(*read));
        ASSERT_TRUE(again.ok()) << i << ": " << again.status().message();
        ASSERT_EQ(*again, *read) << i;
      }
    }
  }
}

TEST(Executable, RandomBytesAreRefused) {
  Rng rng(TestSeed(2));
  for (int i = 0; i < 2000; ++i) {
    std::vector<uint8_t> bytes = RandomBytes(rng, 200);
    if (bytes.size() > 8) std::memcpy(&bytes[4], "ATX1", 4);
    EXPECT_FALSE(ReadExact(bytes).ok());
  }
}

// What must hold, each rule broken alone.
struct Rule {
  const char* name;
  std::function<void(Executable&)> breaks;
  const char* sentence;
  StatusCode code = StatusCode::kCorruptModel;
};

std::vector<Rule> Rules() {
  return {
      {"version", [](auto& e) { e.isa_version = 2; },
       "executable 'table': made for ISA version 2, this library knows version 1",
       StatusCode::kUnsupported},
      {"shape",
       [](auto& e) {
         e.inputs[0].shape = {1, 5};
       },
       "input 0 'x': the shape has 5 bytes, the layer says 4"},
      {"negative",
       [](auto& e) {
         e.outputs[0].shape = {-1, -4};
       },
       "output 0 'y': dimension 0 is -1, must be at least 1"},
      {"huge shape",
       [](auto& e) {
         e.outputs[0].shape = {65536, 32768};
       },
       "larger than 2 GiB"},
      {"overflowing shape",
       [](auto& e) {
         e.outputs[0].shape = {1 << 30, 1 << 30, 1 << 30, 1 << 30, 4};
       },
       "larger than 2 GiB"},
      {"rank", [](auto& e) { e.outputs[0].shape.resize(9, 1); }, "has rank 9"},
      {"type", [](auto& e) { e.inputs[0].type = static_cast<LayerType>(7); }, "unknown type 7"},
      {"int16", [](auto& e) { e.inputs[0].type = LayerType::kInt16; },
       "the shape has 8 bytes, the layer says 4"},
      {"layers", [](auto& e) { e.inputs.resize(2000); }, "2000 inputs"},
      {"activations", [](auto& e) { e.activation_bytes = uint64_t{1} << 31; }, "below 2 GiB"},
      {"empty", [](auto& e) { e.inference_program.clear(); },
       "inference program: the program is empty"},
      {"no end", [](auto& e) { e.inference_program.pop_back(); },
       "the last instruction, 2, is OUTPUT; it must be END"},
      {"early end",
       [](auto& e) { e.inference_program.insert(e.inference_program.begin(), EndInstruction{}); },
       "instruction 0 is END, but 4 more follow"},
      {"input", [](auto& e) { std::get<InputInstruction>(e.inference_program[0]).bytes = 3; },
       "the program takes 3 bytes of input, the executable announces 4"},
      {"output", [](auto& e) { e.outputs.clear(); },
       "the program gives 4 bytes of output, the executable announces 0"},
      {"parameters", [](auto& e) { e.streamed_parameters.resize(9); },
       "the program takes 0 bytes of parameters, the executable announces 9"},
      {"no caching", [](auto& e) { e.caching_program.clear(); },
       "caching program: the program is empty"},
      {"caching nothing",
       [](auto& e) {
         e = MakeTableExecutable({.table = TableExecutableOptions::kStreamed});
         e.caching_program = {FillInstruction{0, 1, 0}};
       },
       "caching program: the last instruction, 0, is FILL"},
      {"caching output",
       [](auto& e) {
         e.caching_program.insert(e.caching_program.begin(), OutputInstruction{0, 1});
       },
       "caching program: the program gives 1 bytes of output, the executable announces 0"},
      {"stream address", [](auto& e) { e.activation_bytes = 7; },
       "inference program: instruction 2: OUTPUT input_address reaches byte 8 of the activation "
       "segment, which has 7"},
      {"address",
       [](auto& e) {
         std::get<TableInstruction>(e.inference_program[1]).table_address = kParameterSegment + 256;
       },
       "instruction 1: TABLE table_address reaches byte 257 of the parameter segment, which has "
       "256"},
      {"number of nodes",
       [](auto& e) {
         e.inference_nodes = {-1, 0, 0, -1, -1};
       },
       "inference program: 4 instructions, but 5 nodes that they belong to"},
      {"node",
       [](auto& e) {
         e.inference_nodes = {-1, 0, -2, -1};
       },
       "inference program: instruction 2 belongs to node -2; must be at least -1"},
  };
}

TEST(Executable, EachRuleIsCheckedWithTheNamesAndNumbers) {
  ASSERT_TRUE(ValidateExecutable(MakeTableExecutable({})).ok());
  for (const Rule& rule : Rules()) {
    Executable executable = MakeTableExecutable({});
    rule.breaks(executable);
    const Status status = ValidateExecutable(executable);
    EXPECT_EQ(status.code(), rule.code) << rule.name;
    EXPECT_THAT(status.message(), HasSubstr(rule.sentence)) << rule.name;
    const Result<Executable> read = ReadExact(WriteExecutable(executable));
    EXPECT_EQ(read.code(), rule.code) << rule.name << ": " << read.status().message();
  }
}

TEST(Executable, UndecodableInstructionsAreNamed) {
  std::vector<uint8_t> bytes = WriteExecutable(MakeTableExecutable({.name = "net"}));
  const EncodedInstruction table = Encode(MakeTableExecutable({}).inference_program[1]);
  const auto found = std::search(bytes.begin(), bytes.end(), table.begin(), table.end());
  ASSERT_NE(found, bytes.end());
  *found = 0x77;
  const Result<Executable> read = ReadExact(bytes);
  EXPECT_EQ(read.code(), StatusCode::kCorruptModel);
  EXPECT_THAT(read.status().message(),
              HasSubstr("executable 'net': inference program, instruction 1"));
}

TEST(Executable, NamesFromOutsideAreMadePrintable) {
  Executable executable = MakeTableExecutable({.name = "a\nb\x1b" + std::string(200, 'z')});
  executable.isa_version = 9;
  const std::string message = ValidateExecutable(executable).message();
  EXPECT_THAT(message, HasSubstr("'a?b?zzz"));
  EXPECT_LT(message.size(), 200u);
}

// A container whose layers all have the name and the shape at one place; fields by their numbers in
// executable.fbs.
std::vector<uint8_t> LayersThatShare(int layers, size_t name_bytes, size_t rank) {
  flatbuffers::FlatBufferBuilder builder;
  const auto field = [](int number) { return static_cast<flatbuffers::voffset_t>(4 + 2 * number); };
  const auto name = builder.CreateString(std::string(name_bytes, 'n'));
  const auto shape = builder.CreateVector(std::vector<int32_t>(rank, 1));
  const auto start = builder.StartTable();
  builder.AddOffset(field(0), name);
  builder.AddOffset(field(2), shape);
  builder.AddElement<uint64_t>(field(3), 1, 0);
  const flatbuffers::Offset<void> layer(builder.EndTable(start));
  const auto inputs = builder.CreateVector(std::vector(static_cast<size_t>(layers), layer));
  const auto root = builder.StartTable();
  builder.AddElement<uint32_t>(field(0), 1, 0);
  builder.AddOffset(field(7), inputs);
  builder.Finish(flatbuffers::Offset<void>(builder.EndTable(root)), "ATX1");
  return {builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize()};
}

TEST(ReadExecutable, CopiesNoMoreThanTheContainerHas) {
  struct Case {
    int layers;
    size_t name_bytes, rank;
    StatusCode code;
    const char* says;
  };
  const Case kCases[] = {
      {1000, 4 << 20, 1, StatusCode::kResourceExhausted, "names of its layers take more than"},
      {1000, 1, 1 << 20, StatusCode::kCorruptModel, "has rank 1048576, at most 8"},
      {1000, 1, 1, StatusCode::kCorruptModel, "the program is empty"},  // sharing is allowed
  };
  for (const Case& hostile : kCases) {
    const auto bytes = LayersThatShare(hostile.layers, hostile.name_bytes, hostile.rank);
    const MemoryLimit limit(ProportionalBytes(bytes.size()));
    const auto executable = ReadExecutable(bytes);
    EXPECT_EQ(executable.code(), hostile.code);
    EXPECT_THAT(executable.status().message(), HasSubstr(hostile.says));
  }
}

}  // namespace
}  // namespace atollrt
