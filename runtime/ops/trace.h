// SPDX-License-Identifier: Apache-2.0
//
// TraceEvent: one thing that took time during an Invoke. Time of the host is measured, in
// nanoseconds; time of a device is modelled, in cycles of that device. They have separate fields,
// no event has both, and nothing converts one into the other.
#pragma once

#include <cstdint>
#include <functional>

#include "runtime/base/unit.h"

namespace atollrt {

enum class TraceKind : uint8_t {
  kNode,    // host: a node on the CPU, on the invoking thread
  kWorker,  // host: what another thread of the pool did for that node
  kSubmit,  // host: a partition's request is handed to the device
  kWait,    // host: until the request has completed; an emulated device computes in here
  kDevice,  // device: one part of it is busy with one instruction
};

// Measured.
struct HostTime {
  int32_t thread = 0;  // 0: the invoking one; 1 ...: others of the interpreter's pool
  int64_t start_ns = 0;
  int64_t duration_ns = 0;
};

// Modelled; cycles since the start message of the request.
struct DeviceTime {
  Unit unit = Unit::kSequencer;
  int32_t instruction = 0;  // index in the partition's program
  uint64_t issue_cycle = 0;
  uint64_t start_cycle = 0;
  uint64_t end_cycle = 0;
  uint64_t bytes = 0;  // over the link, or on-chip memory read and written
  uint64_t macs = 0;   // multiply-accumulates
};

struct TraceEvent {
  TraceKind kind = TraceKind::kNode;
  // An operator, the mnemonic of an instruction, "submit" or "wait"; valid during the call.
  const char* name = "";
  int32_t partition = -1;  // -1: on the CPU
  int32_t node = -1;       // -1: belongs to no node
  HostTime host{};         // zeros in kDevice
  DeviceTime device{};     // zeros in all others
};

// Called on the invoking thread; may allocate.
using Trace = std::function<void(const TraceEvent& event)>;

}  // namespace atollrt
