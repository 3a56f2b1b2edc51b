// SPDX-License-Identifier: Apache-2.0
//
// FaultyPcieBus: another PcieBus on which things go wrong, as a FaultPlan says. What happens is
// logged, and counted.
//
// What is hit depends on the plan and on what the host does, not on time. Writes to registers are
// counted from 1 since the bus was made, for each function; reads likewise. What happens to
// interrupts, or to what the device wrote for the host when it raised one, has the number of the
// last write: it is the answer to that, whether it comes in one interrupt or in several. Waiting
// does not count, and nothing happens to it: a host waits when it writes the same once more, or
// reads a register that it has read since the last write; of an Atoll-1, also the registers that
// tell how far it is and whether it is there. Nor do calls count that reach no function.
//
// A function that is gone gives ones for every register, takes writes and raises no interrupts. The
// one below is reset then, so that it does not go on to write to memory.
//
// Damage to what the device wrote is to memory of PcieFunction::Allocate alone, and of an Atoll-1
// to events alone: they have a check. Payload has that of the link.
//
// A mapping that the device no longer reaches comes back for who maps anew. Memory of a bus that
// does not map that of callers always stays within reach.
//
// Thread-safe as PcieBus and PcieFunction demand.
#pragma once

#include <memory>

#include "driver/faults/fault_plan.h"
#include "driver/faults/fault_run.h"
#include "driver/pcie/pcie_bus.h"

namespace atollrt {

class FaultyPcieBus final : public PcieBus {
 public:
  using Options = FaultOptions;
  FaultyPcieBus(std::shared_ptr<PcieBus> inner, FaultPlan plan, Options options);
  ~FaultyPcieBus() override;

  Result<std::vector<PcieDeviceInfo>> List() override;
  Result<std::unique_ptr<PcieFunction>> Open(const PcieDeviceInfo& device) override;
  uint64_t generation() override;
  bool WaitForChange(uint64_t seen, Deadline deadline) override;

  uint64_t faults() const;  // that have happened so far

 private:
  class Function;
  const std::shared_ptr<PcieBus> inner_;
  const std::shared_ptr<FaultRun> run_;
};

}  // namespace atollrt
