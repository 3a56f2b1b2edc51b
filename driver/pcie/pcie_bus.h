// SPDX-License-Identifier: Apache-2.0
//
// PcieBus: the PCI functions of this computer, and the way to open one. Behind it are Linux's VFIO,
// the emulator, recordings and faults; who opens a function cannot tell which. A function is known
// by its address.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "driver/pcie/pcie_function.h"

namespace atollrt {

struct PcieId {
  uint16_t vendor = 0;
  uint16_t device = 0;
  bool operator==(const PcieId&) const = default;
};

// The devices that this driver knows. The first is no registered number.
inline constexpr PcieId kAtollPcieId{0x1209, 0xA701};
inline constexpr PcieId kCoralPcieId{0x1AC1, 0x089A};

inline bool IsCoral(const PcieId& id) { return id == kCoralPcieId; }
inline bool IsKnown(const PcieId& id) { return id == kAtollPcieId || IsCoral(id); }
inline const char* PcieProductName(const PcieId& id) {
  return IsCoral(id) ? "Coral Accelerator (PCIe)" : "Atoll-1";
}

struct PcieDeviceInfo {
  PcieId id;
  std::string address = {};  // domain, bus, device, function as Linux writes them: "0000:01:00.0"
  std::string driver = {};   // of the kernel, that it is bound to; "": none
  // Of the link as it is now; 0: not known, or the link is down.
  uint32_t link_lanes = 0;
  uint32_t link_generation = 0;
  bool operator==(const PcieDeviceInfo&) const = default;
};

class PcieBus {
 public:
  virtual ~PcieBus() = default;

  // The functions that IsKnown, in the order of addresses. An empty list is no error.
  virtual Result<std::vector<PcieDeviceInfo>> List() = 0;

  // Opens a function of List for this process alone; memory access and bus mastering are on, and no
  // interrupts. kDeviceLost if it is gone, kDeviceBusy if another program has it, kPermissionDenied
  // if this user may not, kUnsupported if it is bound to a driver that does not give it to programs
  // or there is no IOMMU, each with what to do about it.
  virtual Result<std::unique_ptr<PcieFunction>> Open(const PcieDeviceInfo& device) = 0;

  // A number that changes whenever a function comes or goes.
  virtual uint64_t generation() = 0;
  // Blocks until generation() is no longer `seen` or `deadline` has passed; true in the former
  // case.
  virtual bool WaitForChange(uint64_t seen, Deadline deadline) = 0;
};

// The PCIe of this computer, one for the whole process while somebody holds it. Nothing happens
// before its first use. nullptr if this program was built without. Thread-safe.
std::shared_ptr<PcieBus> SystemPcieBus();

}  // namespace atollrt
