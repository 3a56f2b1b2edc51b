// SPDX-License-Identifier: Apache-2.0
#include "driver/isa/instruction.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>

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

TEST(Instruction, FlagsAreDistinctBits) {
  uint32_t seen = 0;
  for (const FlagInfo& flag : FlagTable()) {
    EXPECT_TRUE(std::has_single_bit(flag.bit)) << flag.name;
    EXPECT_GT(flag.bit, seen) << flag.name;
    seen |= flag.bit;
  }
  EXPECT_EQ(seen, kFlagInputUnsigned | kFlagWeightsUnsigned | kFlagDouble | kFlagSubtract |
                      kFlagAverage | kFlagSquare | kFlagChained);
}

}  // namespace
}  // namespace atollrt
