// SPDX-License-Identifier: Apache-2.0
//
// What Linux shows of the PCI functions of this computer in /sys, read afresh by each call; nothing
// is opened. Functions are known by their addresses ("0000:01:00.0").
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "driver/pcie/pcie_bus.h"

namespace atollrt {

// "5.0 GT/s PCIe" is 2; 0 for what is no speed of PCIe.
uint32_t PcieGeneration(const std::string& speed);

class PciSysfs {
 public:
  // `root` is a folder that stands for /; "" is this computer.
  explicit PciSysfs(std::string root = {}) : root_(std::move(root)) {}

  // In ascending order.
  std::vector<std::string> Addresses() const;
  // Zeros if there is none.
  PcieId Id(const std::string& address) const;
  // With id, driver and link.
  PcieDeviceInfo Info(const std::string& address) const;
  // The functions that IsKnown, in the order of addresses.
  std::vector<PcieDeviceInfo> Known() const;

  // The kernel's driver; "" for none.
  std::string Driver(const std::string& address) const;
  // The first line of one of its files; "" if it has none.
  std::string Attribute(const std::string& address, const std::string& name) const;

  // The number of its IOMMU group: "" if there is no IOMMU for it, or only a pretended one.
  std::string IommuGroup(const std::string& address) const;
  // Functions of a group whose drivers keep it from being given to a program, with the drivers:
  // "0000:01:00.1 (snd_hda_intel)".
  std::vector<std::string> MembersInTheWay(const std::string& group) const;

  // The name of a function's device of its own in VFIO: "vfio0"; "" if the kernel has none.
  std::string VfioDevice(const std::string& address) const;

  std::string Folder(const std::string& address) const;

 private:
  const std::string root_;
};

}  // namespace atollrt
