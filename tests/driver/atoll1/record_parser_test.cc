// SPDX-License-Identifier: Apache-2.0
#include "driver/atoll1/record_parser.h"

#include <gtest/gtest.h>

#include "tests/driver/emulator/emulated_program.h"

namespace atollrt {
namespace {

constexpr uint64_t kProgramBytes = 4 * kInstructionBytes;
using Event = RecordParser::Event;

// All that a stream means, with payloads joined: the same however the stream was cut.
struct Meaning {
  std::vector<std::string> events;
  Bytes program = Bytes(kProgramBytes);
  Bytes input, parameters;
  std::vector<StartMessage> starts;
  bool bad = false;
  bool operator==(const Meaning&) const = default;
};

void Feed(RecordParser& parser, std::span<const uint8_t> bytes, Meaning& meaning) {
  while (!meaning.bad) {
    const RecordParser::Piece piece = parser.Next(bytes);
    switch (piece.event) {
      case Event::kNeedBytes:
        EXPECT_TRUE(bytes.empty());
        return;
      case Event::kProgramBytes:
        std::copy(piece.payload.begin(), piece.payload.end(),
                  meaning.program.begin() + piece.program_offset);
        break;
      case Event::kInput:
        Append(meaning.input, piece.payload);
        break;
      case Event::kParameters:
        Append(meaning.parameters, piece.payload);
        break;
      case Event::kStart:
        meaning.starts.push_back(piece.start);
        break;
      case Event::kBadRecord:
        meaning.bad = true;
        break;
    }
  }
}

Bytes GoodStream() {
  Bytes stream = ProgramRecord(
      {FillInstruction{.output_address = 3, .bytes = 4, .value = 5}, EndInstruction{}},
      kInstructionBytes);
  Append(stream, Record(RecordTag::kInput, Bytes{1, 2, 3}));
  Append(stream, Record(RecordTag::kInput, Bytes{}));
  Append(stream, StartRecord({.program_offset = 128, .instruction_count = 2, .request_id = 9}));
  Append(stream, Record(RecordTag::kParameters, Bytes{4, 5}));
  Append(stream, ProgramRecord({}));
  Append(stream, Record(RecordTag::kInput, Bytes{6}));
  return stream;
}

TEST(RecordParser, UnderstandsAStreamOfRecords) {
  RecordParser parser(kProgramBytes);
  Meaning meaning;
  Feed(parser, GoodStream(), meaning);
  EXPECT_FALSE(meaning.bad);
  EXPECT_EQ(meaning.input, (Bytes{1, 2, 3, 6}));
  EXPECT_EQ(meaning.parameters, (Bytes{4, 5}));
  ASSERT_EQ(meaning.starts.size(), 1u);
  EXPECT_EQ(meaning.starts[0].request_id, 9u);
  const EncodedInstruction fill =
      Encode(FillInstruction{.output_address = 3, .bytes = 4, .value = 5});
  EXPECT_TRUE(std::equal(fill.begin(), fill.end(), meaning.program.begin() + kInstructionBytes));
}

TEST(RecordParser, DoesNotCareWhereTransfersAreCut) {
  const Bytes stream = GoodStream();
  const std::span<const uint8_t> all(stream);
  Meaning whole;
  RecordParser parser(kProgramBytes);
  Feed(parser, all, whole);
  for (size_t cut = 0; cut <= stream.size(); ++cut) {
    Meaning meaning;
    RecordParser cut_parser(kProgramBytes);
    Feed(cut_parser, all.first(cut), meaning);
    Feed(cut_parser, all.subspan(cut), meaning);
    EXPECT_EQ(meaning, whole) << "cut at " << cut;
  }
  Meaning bytewise;
  RecordParser bytewise_parser(kProgramBytes);
  for (size_t i = 0; i < stream.size(); ++i) Feed(bytewise_parser, all.subspan(i, 1), bytewise);
  EXPECT_EQ(bytewise, whole);
}

TEST(RecordParser, ForgetsAHalfReadRecordOnReset) {
  RecordParser parser(kProgramBytes);
  Meaning meaning;
  const Bytes stream = GoodStream();
  Feed(parser, std::span(stream).first(70), meaning);
  parser.Reset();
  Feed(parser, Record(RecordTag::kInput, Bytes{42}), meaning);
  EXPECT_FALSE(meaning.bad);
  EXPECT_EQ(meaning.input, Bytes{42});
}

struct BadRecordCase {
  const char* name;
  Bytes bytes;
};

Bytes Patched(Bytes bytes, size_t index, uint8_t value) {
  bytes[index] = value;
  return bytes;
}

TEST(RecordParser, RefusesRecordsThatTheProtocolDoesNotKnow) {
  const Bytes program = ProgramRecord({EndInstruction{}});
  const Bytes start = StartRecord({.instruction_count = 1});
  const BadRecordCase cases[] = {
      {"unknown tag", {0, 0, 0, 0, 3, 0, 0, 0}},
      {"tag with high bits", {0, 0, 0, 0, 0x11, 0, 0, 0}},
      {"reserved byte 5", {0, 0, 0, 0, 1, 1, 0, 0}},
      {"reserved byte 7", {0, 0, 0, 0, 1, 0, 0, 1}},
      {"short start", {31, 0, 0, 0, 8, 0, 0, 0}},
      {"long start", {33, 0, 0, 0, 8, 0, 0, 0}},
      {"start with reserved byte", Patched(start, 8 + 31, 1)},
      {"program record without prefix", {4, 0, 0, 0, 0, 0, 0, 0}},
      {"half an instruction", {8 + 64, 0, 0, 0, 0, 0, 0, 0}},
      {"program offset inside an instruction", Patched(program, 8, 4)},
      {"prefix with reserved byte", Patched(program, 12, 1)},
      {"program past the end", ProgramRecord({EndInstruction{}}, kProgramBytes)},
      {"program far past the end", ProgramRecord({EndInstruction{}}, 0xFFFFFF80)},
  };
  for (const BadRecordCase& test : cases) {
    RecordParser parser(kProgramBytes);
    Meaning meaning;
    Feed(parser, test.bytes, meaning);
    EXPECT_TRUE(meaning.bad) << test.name;
    EXPECT_EQ(meaning.program, Bytes(kProgramBytes)) << test.name;
  }
}

}  // namespace
}  // namespace atollrt
