// SPDX-License-Identifier: Apache-2.0
#include "driver/isa/assembly.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <random>

#include "driver/open_device.h"
#include "runtime/base/bytes.h"
#include "tests/support/allocation_meter.h"
#include "tests/support/test_executables.h"

namespace atollrt {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<uint8_t> Encoded(const std::vector<Instruction>& program) {
  std::vector<uint8_t> bytes;
  for (const Instruction& instruction : program) {
    const EncodedInstruction encoded = Encode(instruction);
    bytes.insert(bytes.end(), encoded.begin(), encoded.end());
  }
  return bytes;
}

// Any word of any operand, often a small or an extreme one.
Instruction RandomInstruction(const InstructionInfo& info, std::mt19937& rng) {
  constexpr uint32_t kUsual[] = {0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFF80};
  EncodedInstruction bytes{};
  StoreLittleEndian(bytes.data(), info.opcode);
  for (size_t i = 0; i < info.operands.size(); ++i) {
    const uint32_t word = rng() % 2 != 0 ? static_cast<uint32_t>(rng()) : kUsual[rng() % 6];
    StoreLittleEndian(&bytes[4 * (i + 1)], word);
  }
  return *Decode(bytes);
}

TEST(Assembly, GivesBackEveryInstructionWithAnyOperands) {
  std::mt19937 rng(1);
  std::vector<Instruction> program;
  std::string text;
  for (const InstructionInfo& info : InstructionTable()) {
    for (int round = 0; round < 50; ++round) {
      program.push_back(RandomInstruction(info, rng));
      text += Disassemble(program.back()) + "\n";
    }
  }
  const auto read = AssembleProgram(text);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(Encoded(*read), Encoded(program));
}

TEST(Assembly, IsReadable) {
  EXPECT_EQ(Disassemble(EndInstruction{}), "END");
  EXPECT_EQ(Disassemble(TableInstruction{.input_address = 0x10,
                                         .output_address = 0,
                                         .count = 12,
                                         .table_address = kParameterSegment | 0x1000}),
            "TABLE input_address=act+0x10, output_address=act+0x0, count=12, "
            "table_address=par+0x1000");
  EXPECT_EQ(Disassemble(ReduceSumInstruction{.kept0 = 1,
                                             .reduced0 = 49,
                                             .kept2 = 8,
                                             .flags = kFlagInputUnsigned | kFlagDouble | 0x80,
                                             .input_zero_point = -3,
                                             .exponent = -5,
                                             .clamp_min = -128,
                                             .clamp_max = 127}),
            "REDUCE_SUM input_address=act+0x0, output_address=act+0x0, kept0=1, reduced0=49, "
            "kept2=8, flags=INPUT_UNSIGNED|DOUBLE|0x80, input_zero_point=-3, exponent=-5, "
            "clamp_min=-128, clamp_max=127");
}

TEST(Assembly, TakesOperandsInAnyOrderAndNumbersInBothBases) {
  const auto program = AssembleProgram(
      "\n"
      "  ; a comment\n"
      "\tFILL value=0xff,bytes = 7 , output_address=par+16 ; and one here\r\n"
      "END;");
  ASSERT_TRUE(program.ok()) << program.status().message();
  EXPECT_EQ(*program,
            (std::vector<Instruction>{
                FillInstruction{.output_address = kParameterSegment | 16, .bytes = 7, .value = 255},
                EndInstruction{}}));
}

struct BadText {
  const char* text;
  const char* says;
};

TEST(Assembly, NamesLineColumnAndNextStepOfAMistake) {
  const BadText kTexts[] = {
      {"NOP", "line 1, column 1: 'NOP' is no instruction; docs/isa.md, section 3"},
      {"END\n\n  @\n", "line 3, column 3: '@' is no instruction"},
      {"FILL size=3",
       "line 1, column 6: 'size' is no operand of FILL; it has output_address, bytes, "
       "value"},
      {"END bytes=1", "line 1, column 5: 'bytes' is no operand of END; it has none"},
      {"FILL bytes 3", "line 1, column 12: '=' and a value belong after bytes"},
      {"FILL bytes=",
       "line 1, column 12: '' is no value of bytes; write a number from 0 to "
       "4294967295"},
      {"FILL bytes=4294967296", "line 1, column 12: '4294967296' is no value of bytes"},
      {"FILL bytes=99999999999999999999999", "is no value of bytes"},
      {"FILL bytes=-1", "'-1' is no value of bytes"},
      {"FILL bytes=0x", "'0x' is no value of bytes"},
      {"FILL bytes=1a", "'1a' is no value of bytes"},
      {"FILL bytes=1 value=2", "line 1, column 14: operands are divided by ','"},
      {"FILL bytes=1,", "line 1, column 14: an operand belongs after ','"},
      {"FILL bytes=1, bytes=1", "line 1, column 15: bytes is there twice; keep one"},
      {"FILL output_address=16",
       "line 1, column 21: '16' is no value of output_address; write an "
       "address, act+0x10 or par+0x10"},
      {"FILL output_address=act", "is no value of output_address"},
      {"FILL output_address=act+0x80000000", "is no value of output_address"},
      {"FILL output_address=ram+1", "is no value of output_address"},
      {"MAXIMUM flags=UNSIGNED",
       "'UNSIGNED' is no value of flags; write flags joined by '|', of "
       "INPUT_UNSIGNED, WEIGHTS_UNSIGNED, DOUBLE"},
      {"MAXIMUM flags=DOUBLE|", "is no value of flags"},
      {"SOFTMAX exponent=2147483648", "write a number from -2147483648 to 2147483647"},
      {"SOFTMAX exponent=-2147483649", "is no value of exponent"},
      {"SOFTMAX exponent=--1", "is no value of exponent"},
  };
  for (const BadText& bad : kTexts) {
    const auto program = AssembleProgram(bad.text);
    ASSERT_EQ(program.code(), StatusCode::kCorruptModel) << bad.text;
    EXPECT_THAT(program.status().message(), HasSubstr(bad.says)) << bad.text;
  }
  const auto extreme = AssembleProgram("SOFTMAX exponent=-2147483648, min_difference=2147483647");
  ASSERT_TRUE(extreme.ok());
  EXPECT_EQ(std::get<SoftmaxInstruction>((*extreme)[0]).exponent, INT32_MIN);
}

// ---- Executables --------------------------------------------------------------------------------

std::string WithParameters(const Executable& executable) {
  return DisassembleExecutable(executable, {.parameters = true});
}

TEST(Assembly, GivesBackExecutables) {
  std::vector<Executable> executables = {
      MakeTableExecutable({}), MakeTableExecutable({.name = "", .count = 1, .extra_parameters = 3}),
      MakeTableExecutable({.name = "\"two\"\n\\lines; \xC3\xA9\xFF",
                           .count = 100,
                           .extra_activations = 1 << 20,
                           .table = TableExecutableOptions::kStreamed})};
  executables[1].inputs[0].type = LayerType::kUInt8;
  executables[1].outputs[0].shape = {};
  executables[1].estimated_cycles = UINT64_MAX;
  executables[1].array_rows = 0;
  executables[1].inference_nodes = {-1, -1, -1, -1};
  executables[2].inference_nodes = {-1, 2147483647, 0, 0, -1};
  executables[2].inputs[0].type = LayerType::kInt16;
  executables[2].inputs[0].shape = {50};
  std::string all;
  for (const Executable& executable : executables) {
    ASSERT_TRUE(ValidateExecutable(executable).ok()) << ValidateExecutable(executable).message();
    const std::string text = WithParameters(executable);
    const auto read = AssembleExecutables(text);
    ASSERT_TRUE(read.ok()) << read.status().message() << "\n" << text;
    EXPECT_EQ(*read, std::vector<Executable>{executable}) << text;
    EXPECT_EQ(WriteExecutable((*read)[0]), WriteExecutable(executable));
    all += text;
  }
  const auto read = AssembleExecutables(all);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, executables);
}

// The example of docs/assembly.md is complete.
TEST(Assembly, ExampleOfThePageAssemblesAndRuns) {
  std::ifstream file(ATOLL_SOURCE_DIR "/docs/assembly.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const size_t begin = page.find("```\n") + 4;
  const auto read = AssembleExecutables(page.substr(begin, page.find("```", begin) - begin));
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read->size(), 1u);
  const auto device = OpenDevice({.device = "emu", .threads = 1});
  ASSERT_TRUE(device.ok());
  const auto id = (*device)->Load(std::make_shared<Executable>((*read)[0]));
  ASSERT_TRUE(id.ok()) << id.status().message();
  const std::vector<uint8_t> input = {0xFF, 2, 0xFD, 4};
  std::vector<uint8_t> output(4);
  Request request{.executable = *id, .inputs = {input}, .outputs = {output}};
  const Status status = (*device)->Wait(*(*device)->Submit(request), nullptr);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(output, (std::vector<uint8_t>{1, 2, 0, 5}));
}

TEST(Assembly, SaysWhatIsResidentAndWhatEachInstructionTakes) {
  Executable executable = MakeTableExecutable({});
  executable.inference_nodes = {-1, 0, -1, -1};
  const std::vector<std::string> names = {"node 7 (TANH) 'a\nb'"};
  const std::string text = DisassembleExecutable(executable, {.node_names = names});
  for (const char* line :
       {".executable \"table\"\n.isa 1\n.array 64 64", "\n.activations 8 ",
        "\n; 256 bytes of parameters are resident", "\n; 0 bytes of parameters are streamed",
        "\n.input \"x\" int8 [1, 4]  ; 4 bytes\n", "\n.caching  ; 2 instructions\n",
        "\n  ; 0: infeed, 4 cycles\n  PARAMETERS output_address=par+0x0, bytes=256\n",
        "\n.node 0\n  ; 1: vector, 1 cycles, node 7 (TANH) 'a?b'\n  TABLE input_address=act+0x0",
        "\n.node none\n  ; 2: outfeed, 1 cycles\n", "\n.resident 256\n.streamed 0\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(Assembly, TextWithoutParametersSaysHowToGetThem) {
  const auto read = AssembleExecutables(DisassembleExecutable(MakeTableExecutable({}), {}));
  ASSERT_EQ(read.code(), StatusCode::kCorruptModel);
  EXPECT_THAT(read.status().message(),
              HasSubstr("'table': .resident announces 256 bytes, 0 follow; disassemble with "
                        "parameters"));
}

TEST(Assembly, RefusesExecutablesOfAnotherVersionInOneSentence) {
  Executable executable = MakeTableExecutable({});
  executable.isa_version = 2;
  const auto read = AssembleExecutables(WithParameters(executable));
  ASSERT_EQ(read.code(), StatusCode::kUnsupported);
  EXPECT_THAT(read.status().message(),
              StartsWith("'table' is written for ISA version 2, this library knows version 1; "));
}

TEST(Assembly, NamesMistakesOfDirectives) {
  const std::string kHead = ".executable \"x\"\n";
  const BadText kTexts[] = {
      {"", "the text holds no executable; it begins with .executable"},
      {"; nothing", "the text holds no executable"},
      {"END", "line 1, column 1: a directive belongs here: .executable"},
      {".isa 1", "line 1, column 2: a text begins with .executable"},
      {".executable x", "line 1, column 13: a name in double quotes belongs here"},
      {".executable \"x", "the name does not end; close it"},
      {".executable \"\\n\"", "line 1, column 15: no such escape"},
      {".executable \"x\" y", "line 1, column 17: 'y' is one too many"},
      {"+END", "line 2, column 1: a directive belongs here"},
      {"+.program", "line 2, column 2: 'program' is no directive; there are .executable, .isa"},
      {"+.isa one", "line 2, column 6: 'one' is no number from 0 to 4294967295"},
      {"+.isa 1\n.isa 1", "line 3, column 2: .isa is there twice"},
      {"+.array 64", "line 2, column 10: '' is no number"},
      {"+.cycles -1", "'-1' is no number"},
      {"+.input \"a\" float [1]", "'float' is no type of a layer; there are int8, uint8 and int16"},
      {"+.input \"a\" int8 1", "line 2, column 17: a shape like [1, 4] belongs here"},
      {"+.input \"a\" int8 [1 2]", "line 2, column 20: a shape goes on with ',' or ends with ']'"},
      {"+.input \"a\" int8 [1,", "'' is no number"},
      {"+.input \"a\" int8 [2147483648]", "'2147483648' is no number from 0 to 2147483647"},
      {"+.node 1", "line 2, column 2: .node belongs into the .inference program"},
      {"+.inference\n.node -1", "line 3, column 7: '-1' is no node; write 'none' or a number"},
      {"+.resident 2\n 0g", "line 3, column 2: '0g' is no byte"},
      {"+.resident 2\n 012", "line 3, column 4: '2' is no byte"},
      {"+.resident 2\n 01", "'x': .resident announces 2 bytes, 1 follow"},
      {"+.inference", "executable 'x': inference program: the program is empty"},
  };
  for (const BadText& bad : kTexts) {
    const std::string text = *bad.text == '+' ? kHead + (bad.text + 1) : bad.text;
    const auto read = AssembleExecutables(text);
    ASSERT_EQ(read.code(), StatusCode::kCorruptModel) << text;
    EXPECT_THAT(read.status().message(), HasSubstr(bad.says)) << text;
  }
}

TEST(Assembly, SurvivesEveryPrefixAndEveryChangedByte) {
  Executable executable = MakeTableExecutable({.extra_parameters = 1});
  executable.inference_nodes = {-1, 0, -1, -1};
  const std::string text = WithParameters(executable);
  for (size_t size = 0; size + 1 < text.size(); ++size) {
    // A prefix lacks parameters, unless it only lacks the last section, which is empty.
    const auto read = AssembleExecutables(std::string(text, 0, size));
    EXPECT_TRUE(!read.ok() || (*read)[0] == executable) << size;
  }
  for (size_t i = 0; i < text.size(); i += 3) {
    for (const char c : {'\0', '"', '\n', ';', '.', '=', '9', '\xFF'}) {
      std::string changed = text;
      changed[i] = c;
      const auto read = AssembleExecutables(changed);
      EXPECT_TRUE(!read.ok() || ValidateExecutable((*read)[0]).ok()) << i;
    }
  }
}

// The shortest lines make the largest things of the fewest bytes.
TEST(Assembly, TakesMemoryInProportionToTheText) {
  std::string program;  // a little more than a power of two, which vectors grow by
  for (int i = 0; i < 65'600; ++i) program += "ADD\n";
  std::string layers = ".executable \"\"\n";
  for (int i = 0; i < 20'000; ++i) layers += ".input \"\"int8[]\n";
  for (const std::string& text :
       {program, ".executable \"\"\n.inference\n" + program, layers,
        ".executable \"\"\n.caching\n" + program + ".inference\n" + program}) {
    const MemoryLimit limit(ProportionalBytes(text.size()));
    (void)AssembleProgram(text).ok();
    EXPECT_FALSE(AssembleExecutables(text).ok());
  }
}

}  // namespace
}  // namespace atollrt
