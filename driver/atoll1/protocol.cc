// SPDX-License-Identifier: Apache-2.0
#include "driver/atoll1/protocol.h"

#include <iterator>

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

// bmRequestType: vendor, device; USB 2.0, table 9-2.
constexpr uint8_t kVendorIn = 0xC0;
constexpr uint8_t kVendorOut = 0x40;

}  // namespace

ControlSetup RegisterRequest(uint32_t address, RegisterWidth width, RegisterAccess access) {
  return {.request_type = access == RegisterAccess::kRead ? kVendorIn : kVendorOut,
          .request = static_cast<uint8_t>(width),
          .value = static_cast<uint16_t>(address & 0xFFFF),
          .index = static_cast<uint16_t>(address >> 16)};
}

Result<DecodedRegisterRequest> DecodeRegisterRequest(const ControlSetup& setup) {
  if (setup.request_type != kVendorIn && setup.request_type != kVendorOut) {
    return InvalidArgument("request type %02X is not a vendor request", setup.request_type);
  }
  if (setup.request > 1) {
    return InvalidArgument("vendor request %d is neither 0 nor 1", setup.request);
  }
  return DecodedRegisterRequest{
      .address = setup.value | (static_cast<uint32_t>(setup.index) << 16),
      .width = static_cast<RegisterWidth>(setup.request),
      .access = setup.request_type == kVendorIn ? RegisterAccess::kRead : RegisterAccess::kWrite};
}

std::array<uint8_t, kRecordHeaderBytes> EncodeRecordHeader(const RecordHeader& header) {
  std::array<uint8_t, kRecordHeaderBytes> bytes{};
  StoreLittleEndian<uint32_t>(&bytes[0], header.payload_bytes);
  bytes[4] = header.tag;
  return bytes;
}

Result<RecordHeader> DecodeRecordHeader(std::span<const uint8_t, kRecordHeaderBytes> bytes) {
  if ((bytes[4] & 0xF0) != 0 || bytes[5] != 0 || bytes[6] != 0 || bytes[7] != 0) {
    return InvalidArgument("record header has nonzero reserved bytes %02X %02X %02X %02X", bytes[4],
                           bytes[5], bytes[6], bytes[7]);
  }
  return RecordHeader{.payload_bytes = LoadLittleEndian<uint32_t>(&bytes[0]), .tag = bytes[4]};
}

std::array<uint8_t, kInstructionsPrefixBytes> EncodeInstructionsPrefix(uint32_t program_offset) {
  std::array<uint8_t, kInstructionsPrefixBytes> bytes{};
  StoreLittleEndian<uint32_t>(&bytes[0], program_offset);
  return bytes;
}

std::array<uint8_t, kStartBytes> EncodeStart(const StartMessage& start) {
  std::array<uint8_t, kStartBytes> bytes{};
  StoreLittleEndian<uint32_t>(&bytes[0], start.program_offset);
  StoreLittleEndian<uint32_t>(&bytes[4], start.instruction_count);
  StoreLittleEndian<uint32_t>(&bytes[8], start.parameter_base);
  StoreLittleEndian<uint32_t>(&bytes[12], start.activation_base);
  StoreLittleEndian<uint32_t>(&bytes[16], start.request_id);
  return bytes;
}

Result<StartMessage> DecodeStart(std::span<const uint8_t> payload) {
  if (payload.size() != kStartBytes) {
    return InvalidArgument("start message has %zu bytes, must have %zu", payload.size(),
                           kStartBytes);
  }
  for (size_t i = 20; i < kStartBytes; ++i) {
    if (payload[i] != 0) return InvalidArgument("start message: byte %zu must be 0", i);
  }
  return StartMessage{.program_offset = LoadLittleEndian<uint32_t>(&payload[0]),
                      .instruction_count = LoadLittleEndian<uint32_t>(&payload[4]),
                      .parameter_base = LoadLittleEndian<uint32_t>(&payload[8]),
                      .activation_base = LoadLittleEndian<uint32_t>(&payload[12]),
                      .request_id = LoadLittleEndian<uint32_t>(&payload[16])};
}

const char* FaultCodeName(FaultCode code) {
  constexpr const char* kNames[] = {"NONE",    "BAD_OPCODE",  "BAD_OPERAND", "BAD_ADDRESS",
                                    "OVERLAP", "BAD_PROGRAM", "BAD_STREAM"};
  const auto index = static_cast<size_t>(code);
  return index < std::size(kNames) ? kNames[index] : "UNKNOWN";
}

std::array<uint8_t, kEventBytes> EncodeEvent(const Event& event) {
  std::array<uint8_t, kEventBytes> bytes{};
  bytes[0] = static_cast<uint8_t>(event.kind);
  bytes[1] = static_cast<uint8_t>(event.fault);
  StoreLittleEndian<uint32_t>(&bytes[4], event.request_id);
  StoreLittleEndian<uint64_t>(&bytes[8], event.detail);
  return bytes;
}

Result<Event> DecodeEvent(std::span<const uint8_t> bytes) {
  if (bytes.size() != kEventBytes) {
    return InvalidArgument("event has %zu bytes, must have %zu", bytes.size(), kEventBytes);
  }
  if (bytes[0] != static_cast<uint8_t>(EventKind::kCompleted) &&
      bytes[0] != static_cast<uint8_t>(EventKind::kFaulted)) {
    return InvalidArgument("event of unknown kind %d", bytes[0]);
  }
  if (bytes[2] != 0 || bytes[3] != 0) {
    return InvalidArgument("event with nonzero reserved bytes %02X %02X", bytes[2], bytes[3]);
  }
  return Event{.kind = static_cast<EventKind>(bytes[0]),
               .fault = static_cast<FaultCode>(bytes[1]),
               .request_id = LoadLittleEndian<uint32_t>(&bytes[4]),
               .detail = LoadLittleEndian<uint64_t>(&bytes[8])};
}

}  // namespace atollrt
