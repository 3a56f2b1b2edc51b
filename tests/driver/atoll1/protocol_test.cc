// SPDX-License-Identifier: Apache-2.0
#include "driver/atoll1/protocol.h"

#include <gtest/gtest.h>

#include "tests/support/rng.h"

namespace atollrt {
namespace {

TEST(Protocol, RegisterRequestsAreThoseOfTheDocument) {
  const ControlSetup read = RegisterRequest(0x12345678, RegisterWidth::k32, RegisterAccess::kRead);
  EXPECT_EQ(read.request_type, 0xC0);
  EXPECT_EQ(read.request, 1);
  EXPECT_EQ(read.value, 0x5678);
  EXPECT_EQ(read.index, 0x1234);
  const ControlSetup write = RegisterRequest(0x0020, RegisterWidth::k64, RegisterAccess::kWrite);
  EXPECT_EQ(write.request_type, 0x40);
  EXPECT_EQ(write.request, 0);
}

TEST(Protocol, RegisterRequestsComeBack) {
  for (const uint32_t address : {0u, 0x0108u, 0xFFFFFFFFu}) {
    for (const RegisterWidth width : {RegisterWidth::k32, RegisterWidth::k64}) {
      for (const RegisterAccess access : {RegisterAccess::kRead, RegisterAccess::kWrite}) {
        const auto decoded = DecodeRegisterRequest(RegisterRequest(address, width, access));
        ASSERT_TRUE(decoded.ok());
        EXPECT_EQ(decoded->address, address);
        EXPECT_EQ(decoded->width, width);
        EXPECT_EQ(decoded->access, access);
      }
    }
  }
}

TEST(Protocol, OtherControlRequestsAreRefused) {
  for (int type = 0; type < 256; ++type) {
    for (int request = 0; request < 4; ++request) {
      const ControlSetup setup{.request_type = static_cast<uint8_t>(type),
                               .request = static_cast<uint8_t>(request)};
      const bool valid = (type == 0xC0 || type == 0x40) && request < 2;
      EXPECT_EQ(DecodeRegisterRequest(setup).ok(), valid) << type << " " << request;
    }
  }
}

TEST(Protocol, RecordHeaderBytes) {
  const std::array<uint8_t, 8> expected = {0x20, 0, 0, 0, 0x08, 0, 0, 0};
  EXPECT_EQ(
      EncodeRecordHeader({.payload_bytes = 32, .tag = static_cast<uint8_t>(RecordTag::kStart)}),
      expected);
  const RecordHeader header{.payload_bytes = 0x89ABCDEF, .tag = 0xF};
  const auto decoded = DecodeRecordHeader(EncodeRecordHeader(header));
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(*decoded, header);
}

TEST(Protocol, ReservedBitsOfTheRecordHeaderMustBeZero) {
  const auto good = EncodeRecordHeader({.payload_bytes = 0xFFFFFFFF, .tag = 2});
  for (size_t byte = 4; byte < 8; ++byte) {
    for (int bit = byte == 4 ? 4 : 0; bit < 8; ++bit) {
      auto bad = good;
      bad[byte] = static_cast<uint8_t>(bad[byte] | (1 << bit));
      EXPECT_EQ(DecodeRecordHeader(bad).code(), StatusCode::kInvalidArgument) << byte << " " << bit;
    }
  }
}

TEST(Protocol, InstructionsPrefixBytes) {
  const std::array<uint8_t, 8> expected = {0x80, 0x01, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(EncodeInstructionsPrefix(0x180), expected);
}

TEST(Protocol, StartMessageBytes) {
  const StartMessage start{.program_offset = 0,
                           .instruction_count = 4,
                           .parameter_base = 0x7FF000,
                           .activation_base = 0,
                           .request_id = 1};
  const std::array<uint8_t, 32> expected = {0,    0, 0, 0, 4, 0, 0, 0, 0, 0xF0,
                                            0x7F, 0, 0, 0, 0, 0, 1, 0, 0, 0};
  EXPECT_EQ(EncodeStart(start), expected);
}

TEST(Protocol, StartMessagesComeBack) {
  Rng rng(TestSeed(1));
  for (int i = 0; i < 100; ++i) {
    const auto word = [&] { return static_cast<uint32_t>(rng.Next()); };
    const StartMessage start{word(), word(), word(), word(), word()};
    const auto decoded = DecodeStart(EncodeStart(start));
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(*decoded, start);
  }
}

TEST(Protocol, StartMessagesOfOtherSizesOrWithReservedBytesAreRefused) {
  const auto good = EncodeStart({.instruction_count = 1});
  std::vector<uint8_t> longer(good.begin(), good.end());
  longer.push_back(0);
  EXPECT_FALSE(DecodeStart(longer).ok());
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(DecodeStart(std::span(good).first(size)).ok()) << size;
  }
  for (size_t byte = 20; byte < good.size(); ++byte) {
    auto bad = good;
    bad[byte] = 1;
    EXPECT_FALSE(DecodeStart(bad).ok()) << byte;
  }
}

TEST(Protocol, EventBytes) {
  const std::array<uint8_t, 16> expected = {1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(EncodeEvent({.kind = EventKind::kCompleted, .request_id = 1, .detail = 256}), expected);
}

TEST(Protocol, EventsComeBack) {
  const Event event{.kind = EventKind::kFaulted,
                    .fault = FaultCode::kOverlap,
                    .request_id = 0xFEDCBA98,
                    .detail = 0x0123456789ABCDEF};
  const auto decoded = DecodeEvent(EncodeEvent(event));
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(*decoded, event);
}

TEST(Protocol, MalformedEventsAreRefused) {
  const auto good = EncodeEvent({});
  EXPECT_TRUE(DecodeEvent(good).ok());
  EXPECT_FALSE(DecodeEvent(std::span(good).first(15)).ok());
  for (const int kind : {0, 3, 255}) {
    auto bad = good;
    bad[0] = static_cast<uint8_t>(kind);
    EXPECT_FALSE(DecodeEvent(bad).ok()) << kind;
  }
  for (const size_t reserved : {2, 3}) {
    auto bad = good;
    bad[reserved] = 1;
    EXPECT_FALSE(DecodeEvent(bad).ok()) << reserved;
  }
}

TEST(Protocol, FaultCodesHaveTheNamesOfTheDocument) {
  EXPECT_STREQ(FaultCodeName(FaultCode::kBadOpcode), "BAD_OPCODE");
  EXPECT_STREQ(FaultCodeName(FaultCode::kBadOperand), "BAD_OPERAND");
  EXPECT_STREQ(FaultCodeName(FaultCode::kBadAddress), "BAD_ADDRESS");
  EXPECT_STREQ(FaultCodeName(FaultCode::kOverlap), "OVERLAP");
  EXPECT_STREQ(FaultCodeName(FaultCode::kBadProgram), "BAD_PROGRAM");
  EXPECT_STREQ(FaultCodeName(FaultCode::kBadStream), "BAD_STREAM");
  EXPECT_STREQ(FaultCodeName(static_cast<FaultCode>(200)), "UNKNOWN");
}

}  // namespace
}  // namespace atollrt
