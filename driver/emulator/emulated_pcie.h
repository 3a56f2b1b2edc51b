// SPDX-License-Identifier: Apache-2.0
//
// EmulatedPcie: a slot with a PcieEndpoint in it. The emulated device has no thread of its own. It
// computes inside the host's calls: in AwaitInterrupts until a vector that is waited for is raised,
// and one Step in each read of a register, so that who polls gets there, too; but only the thread
// that waited last, if any did, so that memory does not change under its eyes. Between Steps it
// looks at the caller's deadline and at other callers, who take turns with it; a call may therefore
// be late by the host's time for one instruction. Cancel and Reset do not wait for that: a long
// instruction is given up.
//
// Its IOMMU lets the device reach bytes that are mapped, in the direction that they are mapped for,
// and nothing else: not even the rest of their pages, which a real one would. Addresses begin
// beyond 4 GiB and are not used again soon, so that a wrong one is found out. From the bytes of a
// mapping to on-chip memory or back is one copy.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "atoll/status.h"
#include "driver/emulator/core.h"
#include "driver/emulator/pcie_endpoint.h"
#include "driver/pcie/pcie_bus.h"
#include "driver/pcie/pcie_function.h"

namespace atollrt {

class EmulatedPcie final : public PcieFunction {
 public:
  // Errors as Core::Create.
  static Result<std::unique_ptr<EmulatedPcie>> Create(const CoreOptions& options);
  ~EmulatedPcie() override;

  // Base address register 0 is the only one.
  Result<uint32_t> Read32(uint32_t bar, uint64_t offset) override;
  Result<uint64_t> Read64(uint32_t bar, uint64_t offset) override;
  Status Write32(uint32_t bar, uint64_t offset, uint32_t value) override;
  Status Write64(uint32_t bar, uint64_t offset, uint64_t value) override;
  Result<std::unique_ptr<DmaMapping>> Map(std::span<uint8_t> memory,
                                          DmaDirection direction) override;
  Result<std::unique_ptr<DmaMapping>> Allocate(uint64_t size_bytes,
                                               DmaDirection direction) override;
  Status EnableInterrupts(uint32_t count) override;
  Result<uint64_t> AwaitInterrupts(uint64_t vectors, Deadline deadline) override;
  void Cancel() override;
  Status Reset(Deadline deadline) override;
  bool is_present() override { return true; }

  // For tests, while no call is in progress.
  PcieEndpoint& endpoint();

 private:
  class Slot;

  explicit EmulatedPcie(std::unique_ptr<Slot> slot);

  std::unique_ptr<Slot> slot_;
};

// A PcieBus with emulated devices in its slots. Each Open powers the device up anew.
class EmulatedPcieBus final : public PcieBus {
 public:
  // Addresses "0000:01:00.0", "0000:02:00.0", ... with one device each.
  explicit EmulatedPcieBus(std::vector<CoreOptions> devices) : devices_(std::move(devices)) {}

  Result<std::vector<PcieDeviceInfo>> List() override;
  // Errors as Core::Create, too.
  Result<std::unique_ptr<PcieFunction>> Open(const PcieDeviceInfo& device) override;
  uint64_t generation() override { return 0; }
  bool WaitForChange(uint64_t seen, Deadline deadline) override;

 private:
  const std::vector<CoreOptions> devices_;
};

}  // namespace atollrt
