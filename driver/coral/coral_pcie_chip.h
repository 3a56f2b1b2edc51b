// SPDX-License-Identifier: Apache-2.0
//
// Corals on PCIe: where the system has VFIO, over a PcieFunction; where Google's kernel modules
// (gasket, apex) are loaded and work, over their node /dev/apex_N.
//
// The chip fetches instructions, parameters and inputs, and writes outputs, where the instructions
// say that they are: there each run has its own copy of them, with the addresses filled in. Inputs
// and outputs that lie in registered memory as the chip wants them are used where they are, all
// others are copied. The upload of parameters and the run that needs it are queued together, and so
// are runs that come next. Parameters count as being on the chip (parameter_cache.h) as soon as
// their upload is queued, and no longer after any error.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "driver/coral/coral_options.h"
#include "driver/coral/executable.h"
#include "driver/coral/parameter_cache.h"
#include "driver/coral/pcie_link.h"
#include "driver/coral/pcie_session.h"
#include "driver/device/chip.h"
#include "driver/device/link_meter.h"
#include "driver/pcie/pcie_bus.h"

namespace atollrt {

// `device` is a kCoralPcieId of `bus`, which must outlive the chip. Errors of PcieBus::Open;
// kUnsupported if another chip answers, kTimeout if it does not follow, kDeviceLost if it is gone.
Result<std::unique_ptr<Chip>> OpenCoralPcie(PcieBus* bus, const PcieDeviceInfo& device,
                                            const CoralOptions& options);

// A Coral that the kernel modules drive.
struct ApexDevice {
  std::string node;         // "/dev/apex_0"
  std::string pci_address;  // "0000:01:00.0"; "": not known
  std::string status;       // "ALIVE", or why it cannot be used: "DEAD", "LAMED"; "": not known
  int temperature_mc = 0;   // thousandths of a degree Celsius; 0: not known
  bool operator==(const ApexDevice&) const = default;
};
// By number. An empty list is no error: the modules are not loaded. `sysfs` is for tests.
std::vector<ApexDevice> ListApex(const std::string& sysfs = "/sys");

// `node` as ApexDevice has it. kNotFound if there is no such node, kPermissionDenied and
// kDeviceBusy, with what to do about it, if this user may not or another process has it;
// otherwise as OpenCoralPcie.
Result<std::unique_ptr<Chip>> OpenApex(const std::string& node, const CoralOptions& options);

class CoralPcieChip final : public Chip {
 public:
  // Starts the link and brings the chip up. `where` is for people: the device's address or node.
  static Result<std::unique_ptr<Chip>> Open(std::unique_ptr<CoralPcieLink> link,
                                            const CoralOptions& options, const std::string& where,
                                            uint64_t link_bytes_per_second);
  // Halts the chip and puts it into reset.
  ~CoralPcieChip() override;

  const DeviceInfo& info() const override { return info_; }
  Result<std::unique_ptr<PreparedExecutable>> Prepare(
      std::shared_ptr<const AnyExecutable> executable) const override;
  void Forget(const PreparedExecutable& prepared) override { cache_.Forget(prepared); }
  bool IsResident(const PreparedExecutable& prepared) const override {
    return cache_.IsResident(prepared);
  }
  uint64_t memory_used_bytes() const override { return cache_.used_bytes(); }
  Status Run(const Job& job, std::span<const Job> ahead, RequestReport* report) override;
  size_t jobs_in_flight_max() const override { return kJobsInFlightMax; }
  void Abandon() override {
    if (!flights_.empty()) BreakOff();
  }
  Status RegisterMemory(const HostMemory& memory) override;
  void UnregisterMemory(std::span<uint8_t> memory) override;
  // Once; then not before a run has succeeded: kDeviceLost.
  Status Recover() override { return Reopen(); }
  Status Reopen() override;

 private:
  struct Slot;
  struct Prepared;
  struct Flight;

  CoralPcieChip(std::unique_ptr<CoralPcieLink> link, const CoralOptions& options,
                const std::string& where, uint64_t link_bytes_per_second);

  Result<std::unique_ptr<CoralMemory>> Share(std::span<const uint8_t> bytes) const;
  Result<std::unique_ptr<Slot>> MakeSlot(const Prepared& prepared) const;
  Result<Slot*> TakeSlot(const Prepared& prepared) const;
  uint64_t FindRegistered(std::span<const uint8_t> memory);
  Flight* FindFlight(const Job& job);
  template <typename Done>
  Status Await(Deadline deadline, const Done& done);
  Status Queue(const CoralProgram& program, const std::vector<uint64_t>& offsets,
               const CoralMemory& memory, Deadline deadline);
  Status Begin(const Job& job, Slot* slot);
  Status Finish(const Job& job, const Flight& flight);
  Status RunAhead(std::span<const Job> ahead);
  Status RunThrough(const Job& job, std::span<const Job> ahead, RequestReport* report);
  void BreakOff();

  const DeviceInfo info_;
  const NowFunction now_;
  const std::unique_ptr<CoralPcieLink> link_;
  CoralParameterCache cache_;

  // These belong to the holder of the wire.
  CoralPcieSession session_;
  bool is_up_ = false;
  // Not twice without a run that succeeds: what does not help once does not help again.
  bool may_reset_ = true;
  std::vector<Flight> flights_;  // in the order in which they were queued
  LinkMeter meter_;

  struct Region {
    std::span<uint8_t> memory;
    std::unique_ptr<CoralMemory> mapped;
  };
  std::mutex mutex_;  // guards what follows
  std::vector<Region> registered_;
};

}  // namespace atollrt
