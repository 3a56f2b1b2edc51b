// SPDX-License-Identifier: Apache-2.0
//
// FakeCoralFunction: a Coral on PCIe as docs/coral.md has it, behind a PcieFunction: power and
// reset, its page table, its queue, and an IOMMU. It computes nothing: it follows the transfers of
// the executables that it was shown, through the addresses that it finds in their instructions, and
// gives made-up outputs. What it is asked that no Coral should be asked is a complaint. Acts when
// the host waits for an interrupt, on that thread, so nothing depends on time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "driver/coral/executable.h"
#include "driver/pcie/pcie_bus.h"
#include "tests/support/fake_clock.h"

namespace atollrt {

struct FakeCoralFunctionState {
  // What it knows, and does wrong.
  std::vector<std::shared_ptr<const CoralExecutable>> executables;
  bool is_gone = false;       // all registers are ones
  bool can_map = true;        // maps_callers_memory
  bool resets = true;         // by PcieFunction::Reset
  std::set<uint32_t> stuck;   // registers that keep their value
  uint32_t reading = 484;     // of the thermal sensor, once it is on
  uint64_t lost_vectors = 0;  // are never raised
  int hang_at = 0;            // this run, from 1 on, never ends
  int fatal_at = 0;           // this run ends with fatal_bits in the error register
  uint64_t fatal_bits = 0;
  int queue_error_at = 0;      // this run ends with error 3 in the status block
  int lie_at = 0;              // this run says that it has retired what was never queued
  int unmap_at = 0;            // when this run begins, the IOMMU has nothing any more
  uint32_t noise = 0;          // not 0: one answer in 16 is any, by this seed
  bool retires_late = false;   // chunks, after their programs
  int mappings_max = 1 << 20;  // that the system allows
  // Host memory at a bus address from there to the end of the page, nullptr if the device may not
  // go there: instead of what Map and Allocate give.
  std::function<uint8_t*(uint64_t iova, bool writes)> reach = {};

  // What it saw.
  std::vector<std::pair<uint32_t, uint64_t>> writes;  // but to the page table
  std::vector<std::string> complaints;
  int runs = 0;                              // begun
  std::vector<uint32_t> waiting;             // descriptors in the ring when it looked there
  std::vector<std::vector<uint8_t>> inputs;  // of each run that has some, as it read the first
  std::vector<uint64_t> input_hosts;         // where in this process that lies
  int mappings = 0;                          // that live
  int function_resets = 0;

  uint64_t Last(uint32_t address) const;  // that was written there; 0 if nothing was
};

// What run number `run` gives for output `index`, as it is in the device.
std::vector<uint8_t> FakeCoralOutput(int run, uint32_t index, size_t bytes);

// `state` and `clock` must outlive it; registers take 10 ms each.
std::unique_ptr<PcieFunction> MakeFakeCoralFunction(FakeCoralFunctionState* state,
                                                    FakeClock* clock);

}  // namespace atollrt
