// SPDX-License-Identifier: Apache-2.0
//
// What tests of the core need to talk to it: records as bytes, and one program run from start to
// event.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "driver/atoll1/protocol.h"
#include "driver/emulator/core.h"
#include "runtime/base/bytes.h"
#include "tests/support/rng.h"

namespace atollrt {

using Bytes = std::vector<uint8_t>;

inline void Append(Bytes& to, std::span<const uint8_t> bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

inline Bytes Record(RecordTag tag, std::span<const uint8_t> payload) {
  Bytes record;
  Append(record, EncodeRecordHeader({.payload_bytes = static_cast<uint32_t>(payload.size()),
                                     .tag = static_cast<uint8_t>(tag)}));
  Append(record, payload);
  return record;
}

inline Bytes ProgramRecord(const std::vector<Instruction>& program, uint32_t offset = 0) {
  Bytes payload;
  Append(payload, EncodeInstructionsPrefix(offset));
  for (const Instruction& instruction : program) Append(payload, Encode(instruction));
  return Record(RecordTag::kInstructions, payload);
}

inline Bytes StartRecord(const StartMessage& start) {
  return Record(RecordTag::kStart, EncodeStart(start));
}

inline DeviceProfile SmallProfile() {
  DeviceProfile profile = *FindDeviceProfile("");
  profile.memory_bytes = 64 << 10;
  profile.program_memory_bytes = 64 * kInstructionBytes;
  return profile;
}

inline std::unique_ptr<Core> MakeCore(const CoreOptions& options = {.profile = SmallProfile()}) {
  Result<std::unique_ptr<Core>> core = Core::Create(options);
  EXPECT_TRUE(core.ok()) << core.status().message();
  return *std::move(core);
}

inline void Send(Core& core, const Bytes& bytes) {
  ASSERT_EQ(core.AcceptBulkOut(bytes), bytes.size());
}

inline Bytes TakeAll(ByteQueue& queue) {
  Bytes bytes(queue.size());
  queue.Take(bytes);
  return bytes;
}

inline uint64_t ReadRegister(Core& core, Register address, RegisterWidth width) {
  Bytes data(width == RegisterWidth::k32 ? 4 : 8);
  const Status status = core.Control(
      RegisterRequest(static_cast<uint32_t>(address), width, RegisterAccess::kRead), data);
  EXPECT_TRUE(status.ok()) << status.message();
  data.resize(8);
  return LoadLittleEndian<uint64_t>(data.data());
}

inline Status ResetByRegister(Core& core) {
  Bytes data = {kControlReset, 0, 0, 0};
  return core.Control(RegisterRequest(static_cast<uint32_t>(Register::kControl), RegisterWidth::k32,
                                      RegisterAccess::kWrite),
                      data);
}

// What a run of a program sent back.
struct RunResult {
  Bytes outputs;
  Event event;
};

// Runs `program`, which needs neither END nor to be stored, and fails the test if no event comes.
struct RunOptions {
  Bytes inputs = {};
  Bytes parameters = {};
  Segments segments = {};
};
inline RunResult RunProgram(Core& core, std::vector<Instruction> program,
                            const RunOptions& options = {}) {
  program.push_back(EndInstruction{});
  Send(core, ProgramRecord(program));
  Send(core, StartRecord({.instruction_count = static_cast<uint32_t>(program.size()),
                          .parameter_base = options.segments.parameter_base,
                          .activation_base = options.segments.activation_base,
                          .request_id = 7}));
  Send(core, Record(RecordTag::kInput, options.inputs));
  Send(core, Record(RecordTag::kParameters, options.parameters));
  while (core.Step()) {
  }
  RunResult result{.outputs = TakeAll(core.outputs()), .event = {}};
  const Bytes event = TakeAll(core.events());
  EXPECT_EQ(event.size(), kEventBytes);
  if (event.size() == kEventBytes) result.event = *DecodeEvent(event);
  EXPECT_EQ(result.event.request_id, 7u);
  return result;
}

inline Bytes RandomBytes(Rng& rng, size_t count) {
  Bytes bytes(count);
  rng.Fill(bytes);
  return bytes;
}

// What an instruction makes of the bytes at address 0, if it writes `output_bytes` at
// `output_address`.
inline Bytes RunOne(Core& core, const Instruction& instruction, const Bytes& input,
                    uint32_t output_address, uint64_t output_bytes) {
  const RunResult result =
      RunProgram(core,
                 {InputInstruction{.bytes = static_cast<uint32_t>(input.size())}, instruction,
                  OutputInstruction{.input_address = output_address,
                                    .bytes = static_cast<uint32_t>(output_bytes)}},
                 {.inputs = input});
  EXPECT_EQ(result.event.kind, EventKind::kCompleted)
      << FaultCodeName(result.event.fault) << ": " << Disassemble(instruction);
  return result.outputs;
}

// The fault that a faulted core reports.
inline Fault ReadFault(Core& core) {
  EXPECT_EQ(ReadRegister(core, Register::kStatus, RegisterWidth::k32),
            static_cast<uint64_t>(CoreStatus::kFaulted));
  return {
      .code = static_cast<FaultCode>(ReadRegister(core, Register::kFaultCode, RegisterWidth::k32)),
      .detail =
          static_cast<uint32_t>(ReadRegister(core, Register::kFaultDetail, RegisterWidth::k32))};
}

inline void PrintTo(const Fault& fault, std::ostream* out) {
  *out << FaultCodeName(fault.code) << " " << fault.detail;
}

}  // namespace atollrt
