// SPDX-License-Identifier: Apache-2.0
//
// The device's timing model of an inference (driver/isa/timing.h) as trace events.
#pragma once

#include <cstdint>
#include <span>

#include "driver/device/device_info.h"
#include "driver/isa/executable.h"
#include "runtime/ops/trace.h"

namespace atollrt {

// One event for each instruction of the inference program, in program order, on the unit that
// executes it; INPUT, PARAMETERS and OUTPUT are followed by one for their bytes on the link. Events
// name no partition. `nodes` are those of the partition in the graph, as many as the executable
// knows. Allocates nothing.
void TraceProgram(const Executable& executable, std::span<const int32_t> nodes,
                  const DeviceInfo& device, const Trace& trace);

}  // namespace atollrt
