// SPDX-License-Identifier: Apache-2.0
//
// FaultyBus: another UsbBus on which things go wrong, as a FaultPlan says. A lost transfer does not
// keep its caller until the deadline, but at most `patience`. What happens is logged, and counted.
//
// What is hit depends on the plan and on what is transferred, not on time. Transfers are counted
// for each port and kind, from 1 since the bus was made. A read is one when it brings bytes, unless
// it goes on where the last one ended in the same buffer. Waiting does not count, and nothing
// happens to it: a host waits when it reads the STATUS of an Atoll-1, or the same register again.
// Nor do calls count that reach no device.
//
// Thread-safe as UsbBus and UsbTransport demand.
#pragma once

#include <memory>

#include "driver/faults/fault_plan.h"
#include "driver/faults/fault_run.h"
#include "driver/usb/usb_bus.h"

namespace atollrt {

class FaultyBus final : public UsbBus {
 public:
  using Options = FaultOptions;
  FaultyBus(std::shared_ptr<UsbBus> inner, FaultPlan plan, Options options);
  ~FaultyBus() override;

  Result<std::vector<UsbDeviceInfo>> List() override;
  Result<std::unique_ptr<UsbTransport>> Open(const UsbDeviceInfo& device,
                                             uint8_t interface_number) override;
  uint64_t generation() override;
  bool WaitForChange(uint64_t seen, Deadline deadline) override;

  uint64_t faults() const;  // that have happened so far

 private:
  class Transport;
  const std::shared_ptr<UsbBus> inner_;
  const std::shared_ptr<FaultRun> run_;
};

}  // namespace atollrt
