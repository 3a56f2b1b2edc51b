// SPDX-License-Identifier: Apache-2.0
#include "driver/atoll1/atoll1_session.h"

#include <algorithm>

#include "driver/isa/instruction.h"
#include "driver/profiles/device_profile.h"

namespace atollrt {
namespace {

// Of one run: more than the fastest clock makes in the longest timeout, and few enough to add up
// and to convert without a thought.
constexpr uint64_t kCyclesMax = uint64_t{1} << 48;

}  // namespace

Result<DeviceFigures> Atoll1Session::Identify(Deadline deadline) {
  ATOLL_ASSIGN_OR_RETURN(const uint32_t id, Read32(Register::kId, deadline));
  if (id != kDeviceId) {
    return Unsupported("the device gives ID %08X, an Atoll-1 gives %08X", id, kDeviceId);
  }
  ATOLL_ASSIGN_OR_RETURN(const uint32_t isa_version, Read32(Register::kIsa, deadline));
  if (isa_version != kIsaVersion) {
    return Unsupported(
        "the device has ISA version %u, this library needs version %u; update the device or use "
        "a library of its version",
        isa_version, kIsaVersion);
  }
  constexpr struct {
    Register address;
    const char* name;
    ProfileNumber number;
    uint32_t unit;
  } kRegisters[] = {
      {Register::kArrayRows, "ARRAY_ROWS", ProfileNumber::kArrayRows, 1},
      {Register::kArrayColumns, "ARRAY_COLUMNS", ProfileNumber::kArrayColumns, 1},
      {Register::kClockKhz, "the clock in Hz", ProfileNumber::kClock, 1000},
      {Register::kMemoryBytes, "MEMORY_BYTES", ProfileNumber::kMemory, 1},
      {Register::kProgramBytes, "PROGRAM_BYTES", ProfileNumber::kProgramMemory, 1},
      {Register::kLinkKbps, "the link in bytes per second", ProfileNumber::kLink, 1000},
  };
  DeviceProfile profile;
  for (const auto& [address, name, number, unit] : kRegisters) {
    ATOLL_ASSIGN_OR_RETURN(const uint32_t units, Read32(address, deadline));
    const Status status =
        SetProfileNumber(number, name, static_cast<double>(uint64_t{units} * unit), &profile);
    if (!status.ok()) {
      return DeviceLost("register %04X: %s; this is no working Atoll-1",
                        static_cast<uint32_t>(address), status.message().c_str());
    }
  }
  return DeviceFigures(profile);
}

Result<Atoll1Session::Fault> Atoll1Session::ReadFault(Deadline deadline) {
  Fault fault;
  ATOLL_ASSIGN_OR_RETURN(const uint32_t code, Read32(Register::kFaultCode, deadline));
  ATOLL_ASSIGN_OR_RETURN(fault.instruction, Read32(Register::kFaultInstruction, deadline));
  ATOLL_ASSIGN_OR_RETURN(fault.detail, Read32(Register::kFaultDetail, deadline));
  fault.code = static_cast<FaultCode>(std::min<uint32_t>(code, 0xFF));
  return fault;
}

Status Atoll1Session::CheckEvent(const Event& event, uint32_t request_id) {
  if (event.request_id != request_id) {
    return DeviceLost("the device reports on request %u while request %u is running",
                      event.request_id, request_id);
  }
  if (event.kind == EventKind::kCompleted && event.detail > kCyclesMax) {
    return DeviceLost("the device says that request %u took %llu cycles, more than a day",
                      event.request_id, static_cast<unsigned long long>(event.detail));
  }
  return {};
}

}  // namespace atollrt
