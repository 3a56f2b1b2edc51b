// SPDX-License-Identifier: Apache-2.0
#include "delegate/program_trace.h"

#include "delegate/compiler.h"
#include "driver/isa/memory_access.h"
#include "driver/isa/timing.h"

namespace atollrt {
void TraceProgram(const Executable& executable, std::span<const int32_t> nodes,
                  const DeviceInfo& device, const Trace& trace) {
  Schedule schedule(ScheduleOptionsOf(device));
  for (size_t i = 0; i < executable.inference_program.size(); ++i) {
    const Instruction& instruction = executable.inference_program[i];
    const Schedule::Slot slot = schedule.Add(instruction);
    TraceEvent event{.kind = TraceKind::kDevice,
                     .name = Mnemonic(instruction),
                     .device = {.unit = slot.unit,
                                .instruction = static_cast<int32_t>(i),
                                .issue_cycle = slot.issued,
                                .start_cycle = slot.start,
                                .end_cycle = slot.end,
                                .macs = MultiplyAccumulates(instruction)}};
    if (!executable.inference_nodes.empty()) {
      const int32_t node = executable.inference_nodes[i];
      if (node >= 0) event.node = nodes[static_cast<size_t>(node)];
    }
    for (const MemoryAccess& access : AccessesOf(instruction)) event.device.bytes += access.bytes;
    trace(event);
    if (slot.unit != Unit::kInfeed && slot.unit != Unit::kOutfeed) continue;
    event.device.unit = slot.unit == Unit::kInfeed ? Unit::kLinkOut : Unit::kLinkIn;
    event.device.start_cycle = slot.link_start;
    event.device.end_cycle = slot.link_end;
    trace(event);
  }
}

}  // namespace atollrt
