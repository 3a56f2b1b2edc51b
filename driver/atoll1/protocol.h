// SPDX-License-Identifier: Apache-2.0
//
// The bytes of docs/protocol.md: registers, record headers, start messages, events. Encoding and
// decoding only, no I/O; both ends of the cable (the driver and the emulated device) use it. Pure
// functions, thread-safe; decoders take hostile bytes.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "atoll/status.h"
#include "driver/usb/usb_transport.h"

namespace atollrt {

// §1
inline constexpr uint8_t kRecordEndpoint = 0x01;
inline constexpr uint8_t kOutputEndpoint = 0x81;
inline constexpr uint8_t kEventEndpoint = 0x82;
inline constexpr uint8_t kFaultEndpoint = 0x83;

// §2. The enumerator's value is the register's address.
enum class Register : uint32_t {
  kId = 0x0000,
  kIsa = 0x0004,
  kArrayRows = 0x0008,
  kArrayColumns = 0x000C,
  kClockKhz = 0x0010,
  kMemoryBytes = 0x0014,
  kProgramBytes = 0x0018,
  kLinkKbps = 0x001C,
  kControl = 0x0020,
  kStatus = 0x0024,
  kFaultCode = 0x0028,
  kFaultInstruction = 0x002C,
  kFaultDetail = 0x0030,
  kCycles = 0x0100,        // 64 bits
  kInstructions = 0x0108,  // 64 bits
};
inline constexpr uint32_t kDeviceId = 0x4C4F5441;  // "ATOL"
inline constexpr uint32_t kControlReset = 1;
enum class CoreStatus : uint32_t { kIdle = 0, kRunning = 1, kFaulted = 2 };

enum class RegisterAccess { kRead, kWrite };
enum class RegisterWidth : uint8_t { k64 = 0, k32 = 1 };  // the value of bRequest
ControlSetup RegisterRequest(uint32_t address, RegisterWidth width, RegisterAccess access);

// What a device makes of a vendor request; kInvalidArgument if it is none of §2's.
struct DecodedRegisterRequest {
  uint32_t address = 0;
  RegisterWidth width = RegisterWidth::k32;
  RegisterAccess access = RegisterAccess::kRead;
};
Result<DecodedRegisterRequest> DecodeRegisterRequest(const ControlSetup& setup);

// §3
inline constexpr size_t kRecordHeaderBytes = 8;
enum class RecordTag : uint8_t { kInstructions = 0, kInput = 1, kParameters = 2, kStart = 8 };
struct RecordHeader {
  uint32_t payload_bytes = 0;
  uint8_t tag = 0;  // a RecordTag if the sender is sane
  bool operator==(const RecordHeader&) const = default;
};
std::array<uint8_t, kRecordHeaderBytes> EncodeRecordHeader(const RecordHeader& header);
// kInvalidArgument if a bit that must be zero is set.
Result<RecordHeader> DecodeRecordHeader(std::span<const uint8_t, kRecordHeaderBytes> bytes);

// In front of the instructions of a kInstructions record.
inline constexpr size_t kInstructionsPrefixBytes = 8;
std::array<uint8_t, kInstructionsPrefixBytes> EncodeInstructionsPrefix(uint32_t program_offset);

inline constexpr size_t kStartBytes = 32;
struct StartMessage {
  uint32_t program_offset = 0;
  uint32_t instruction_count = 0;
  uint32_t parameter_base = 0;
  uint32_t activation_base = 0;
  uint32_t request_id = 0;
  bool operator==(const StartMessage&) const = default;
};
std::array<uint8_t, kStartBytes> EncodeStart(const StartMessage& start);
Result<StartMessage> DecodeStart(std::span<const uint8_t> payload);

// docs/isa.md §4
enum class FaultCode : uint8_t {
  kNone = 0,
  kBadOpcode = 1,
  kBadOperand = 2,
  kBadAddress = 3,
  kOverlap = 4,
  kBadProgram = 5,
  kBadStream = 6,
};
const char* FaultCodeName(FaultCode code);  // "BAD_OPCODE"

// §4
inline constexpr size_t kEventBytes = 16;
enum class EventKind : uint8_t { kCompleted = 1, kFaulted = 2 };
struct Event {
  EventKind kind = EventKind::kCompleted;
  FaultCode fault = FaultCode::kNone;
  uint32_t request_id = 0;
  uint64_t detail = 0;  // cycles, or the index of the faulting instruction
  bool operator==(const Event&) const = default;
};
std::array<uint8_t, kEventBytes> EncodeEvent(const Event& event);
Result<Event> DecodeEvent(std::span<const uint8_t> bytes);

}  // namespace atollrt
