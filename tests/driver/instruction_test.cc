// SPDX-License-Identifier: Apache-2.0
#include "driver/instruction.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

EncodedInstruction RandomEncoding(const InstructionInfo& info, std::mt19937& rng) {
  EncodedInstruction bytes{};
  StoreLittleEndian<uint32_t>(bytes.data(), info.opcode);
  for (size_t i = 0; i < info.operands.size(); ++i) {
    StoreLittleEndian(&bytes[4 * (i + 1)], static_cast<uint32_t>(rng()));
  }
  return bytes;
}

TEST(Instruction, DecodesAndEncodesRandomOperandsToTheSameBytes) {
  std::mt19937 rng(1);
  for (const InstructionInfo& info : InstructionTable()) {
    for (int round = 0; round < 20; ++round) {
      const EncodedInstruction bytes = RandomEncoding(info, rng);
      const Result<Instruction> instruction = Decode(bytes);
      ASSERT_TRUE(instruction.ok()) << instruction.status().message();
      EXPECT_STREQ(Mnemonic(*instruction), info.mnemonic);
      EXPECT_EQ(UnitOf(*instruction), info.unit);
      EXPECT_EQ(Encode(*instruction), bytes) << info.mnemonic;
      EXPECT_EQ(*Decode(Encode(*instruction)), *instruction);
    }
  }
}

TEST(Instruction, PutsOperandsInTheOrderOfTheList) {
  const EncodedInstruction bytes =
      Encode(FillInstruction{.output_address = kParameterSegment | 5, .bytes = 7, .value = 9});
  EXPECT_EQ(LoadLittleEndian<uint32_t>(&bytes[0]), 0x25u);
  EXPECT_EQ(LoadLittleEndian<uint32_t>(&bytes[4]), 0x80000005u);
  EXPECT_EQ(LoadLittleEndian<uint32_t>(&bytes[8]), 7u);
  EXPECT_EQ(LoadLittleEndian<uint32_t>(&bytes[12]), 9u);
  for (size_t i = 16; i < kInstructionBytes; ++i) EXPECT_EQ(bytes[i], 0);
}

TEST(Instruction, RefusesUnknownOpcodes) {
  for (const uint32_t opcode : {0x7Fu, 0x10010u, 0xFFFFFFFFu}) {
    EncodedInstruction bytes{};
    StoreLittleEndian<uint32_t>(bytes.data(), opcode);
    EXPECT_EQ(Decode(bytes).code(), StatusCode::kCorruptModel);
    EXPECT_EQ(FindMalformedWord(bytes), 0u);
  }
}

TEST(Instruction, RefusesEveryNonzeroUnusedWord) {
  std::mt19937 rng(2);
  for (const InstructionInfo& info : InstructionTable()) {
    for (size_t word = info.operands.size() + 1; word < kInstructionWords; ++word) {
      EncodedInstruction bytes = RandomEncoding(info, rng);
      bytes[4 * word + word % 4] = 0x80;
      EXPECT_EQ(FindMalformedWord(bytes), word);
      const Result<Instruction> instruction = Decode(bytes);
      ASSERT_EQ(instruction.code(), StatusCode::kCorruptModel);
      EXPECT_NE(instruction.status().message().find("word " + std::to_string(word)),
                std::string::npos)
          << instruction.status().message();
    }
  }
}

TEST(Instruction, DisassemblesToOneLine) {
  EXPECT_EQ(Disassemble(EndInstruction{}), "END");
  EXPECT_EQ(Disassemble(TableInstruction{.input_address = 0x10,
                                         .output_address = 0,
                                         .count = 12,
                                         .table_address = kParameterSegment | 0x1000}),
            "TABLE input_address=0x00000010 output_address=0x00000000 count=12 "
            "table_address=P+0x00001000");
  EXPECT_EQ(Disassemble(ReduceSumInstruction{.kept0 = 1,
                                             .reduced0 = 49,
                                             .kept2 = 8,
                                             .input_zero_point = -3,
                                             .exponent = -5,
                                             .clamp_min = -128,
                                             .clamp_max = 127}),
            "REDUCE_SUM input_address=0x00000000 output_address=0x00000000 kept0=1 reduced0=49 "
            "kept2=8 input_zero_point=-3 exponent=-5 clamp_min=-128 clamp_max=127");
}

const char* UnitName(Unit unit) {
  switch (unit) {
    case Unit::kSequencer:
      return "sequencer";
    case Unit::kInfeed:
      return "infeed";
    case Unit::kOutfeed:
      return "outfeed";
    case Unit::kDma:
      return "DMA";
    case Unit::kArray:
      return "array";
    case Unit::kVector:
      return "vector";
  }
  return "";
}

// docs/isa.md must begin each instruction with exactly this, and have them in this order.
TEST(Instruction, IsDocumentedWithOpcodeUnitAndOperandsInOrder) {
  std::ifstream file(ATOLL_SOURCE_DIR "/docs/isa.md");
  std::stringstream stream;
  stream << file.rdbuf();
  const std::string page = stream.str();
  ASSERT_FALSE(page.empty());
  size_t position = 0;
  for (const InstructionInfo& info : InstructionTable()) {
    std::string expected =
        Format("\n**%s** (0x%02X, %s): ", info.mnemonic, info.opcode, UnitName(info.unit));
    for (size_t i = 0; i < info.operands.size(); ++i) {
      expected += Format("%s`%s`", i == 0 ? "" : ", ", info.operands[i].name);
    }
    expected += info.operands.empty() ? "no operands." : ".";
    const size_t found = page.find(expected, position);
    ASSERT_NE(found, std::string::npos)
        << "docs/isa.md lacks, or has in another order:" << expected;
    position = found + expected.size();
  }
}

TEST(Instruction, DocumentNamesNoOtherInstruction) {
  std::ifstream file(ATOLL_SOURCE_DIR "/docs/isa.md");
  size_t entries = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("**", 0) == 0 && line.find("** (0x") != std::string::npos) ++entries;
  }
  EXPECT_EQ(entries, InstructionTable().size());
}

}  // namespace
}  // namespace atollrt
