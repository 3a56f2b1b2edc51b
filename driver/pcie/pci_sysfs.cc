// SPDX-License-Identifier: Apache-2.0
#include "driver/pcie/pci_sysfs.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "runtime/base/process_files.h"

namespace atollrt {
namespace {

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The last part of what a link points to; "" if it is none.
std::string LinkedName(const std::string& path) {
  std::array<char, 1024> target;
  const ssize_t length = readlink(path.c_str(), target.data(), target.size());
  if (length <= 0) return "";
  const std::string_view text(target.data(), static_cast<size_t>(length));
  return std::string(text.substr(text.rfind('/') + 1));
}

bool IsEntry(const std::string& name) { return !name.empty() && name[0] != '.'; }

// What lets others of its group be given away: no driver, VFIO's own, and those of bridges, which
// do no DMA of their own.
bool IsInTheWay(const std::string& driver) {
  return !driver.empty() && driver != "vfio-pci" && driver != "pci-stub" && driver != "pcieport";
}

}  // namespace

uint32_t PcieGeneration(const std::string& speed) {
  const double gigatransfers = std::strtod(speed.c_str(), nullptr);
  constexpr double kSpeeds[] = {2.5, 5, 8, 16, 32, 64};
  for (uint32_t i = 0; i < std::size(kSpeeds); ++i) {
    if (gigatransfers == kSpeeds[i]) return i + 1;
  }
  return 0;
}

std::string PciSysfs::Folder(const std::string& address) const {
  return root_ + "/sys/bus/pci/devices/" + address;
}

std::vector<std::string> PciSysfs::Addresses() const {
  std::vector<std::string> names = NamesIn(root_ + "/sys/bus/pci/devices");
  std::erase_if(names, [](const std::string& name) { return !IsEntry(name); });
  std::sort(names.begin(), names.end());
  return names;
}

std::string PciSysfs::Attribute(const std::string& address, const std::string& name) const {
  return FirstLine(Folder(address) + "/" + name);
}

PcieId PciSysfs::Id(const std::string& address) const {
  const auto number = [&](const char* name) {
    return static_cast<uint16_t>(std::strtoul(Attribute(address, name).c_str(), nullptr, 16));
  };
  return {number("vendor"), number("device")};
}

PcieDeviceInfo PciSysfs::Info(const std::string& address) const {
  PcieDeviceInfo info;
  info.id = Id(address);
  info.address = address;
  info.driver = Driver(address);
  const std::string width = Attribute(address, "current_link_width");
  info.link_lanes = static_cast<uint32_t>(std::strtoul(width.c_str(), nullptr, 10));
  if (info.link_lanes > 32) info.link_lanes = 0;  // how some write that it is down
  info.link_generation = PcieGeneration(Attribute(address, "current_link_speed"));
  return info;
}

std::vector<PcieDeviceInfo> PciSysfs::Known() const {
  std::vector<PcieDeviceInfo> devices;
  for (const std::string& address : Addresses()) {
    if (IsKnown(Id(address))) devices.push_back(Info(address));
  }
  return devices;
}

std::string PciSysfs::Driver(const std::string& address) const {
  return LinkedName(Folder(address) + "/driver");
}

std::string PciSysfs::IommuGroup(const std::string& address) const {
  const std::string link = Folder(address) + "/iommu_group";
  return FirstLine(link + "/name") == "vfio-noiommu" ? "" : LinkedName(link);
}

std::vector<std::string> PciSysfs::MembersInTheWay(const std::string& group) const {
  std::vector<std::string> members;
  for (const std::string& address :
       NamesIn(root_ + "/sys/kernel/iommu_groups/" + group + "/devices")) {
    const std::string driver = IsEntry(address) ? Driver(address) : "";
    if (IsInTheWay(driver)) members.push_back(address + " (" + driver + ")");
  }
  std::sort(members.begin(), members.end());
  return members;
}

std::string PciSysfs::VfioDevice(const std::string& address) const {
  for (const std::string& name : NamesIn(Folder(address) + "/vfio-dev")) {
    if (name.starts_with("vfio")) return name;
  }
  return "";
}

}  // namespace atollrt
