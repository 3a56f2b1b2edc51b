// SPDX-License-Identifier: Apache-2.0
//
// VfioBus: the PCI functions of a Linux computer, given to programs by its driver vfio-pci. A
// function is opened by its own node (/dev/vfio/devices/vfioN, with /dev/iommu) where the kernel
// has that and the user may, otherwise by the node of its IOMMU group (/dev/vfio/GROUP). All of a
// process share one container, and functions of one group one address space.
//
// Whether something came or went is found by looking, a few times in a second.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "driver/pcie/pci_sysfs.h"
#include "driver/pcie/pcie_bus.h"
#include "driver/vfio/iommu_space.h"
#include "driver/vfio/system_calls.h"

namespace atollrt {

class VfioBus final : public PcieBus {
 public:
  struct Options {
    std::string root = {};         // a folder that stands for / where /sys is meant
    SystemCalls* calls = nullptr;  // that outlive the bus and its functions; nullptr: the kernel's
  };
  VfioBus() : VfioBus(Options()) {}
  explicit VfioBus(Options options);

  Result<std::vector<PcieDeviceInfo>> List() override;
  Result<std::unique_ptr<PcieFunction>> Open(const PcieDeviceInfo& device) override;
  uint64_t generation() override;
  bool WaitForChange(uint64_t seen, Deadline deadline) override;

 private:
  struct Group;
  struct Tenancy;
  // Addresses that are open, which outlives the bus in functions.
  struct Taken {
    std::mutex mutex;
    std::set<std::string> addresses;
  };
  // A device's file that is in an address space already.
  struct Joined {
    int device = -1;
    std::shared_ptr<IommuSpace> space;
    std::shared_ptr<Group> group;  // if it was opened by that
  };

  Result<Joined> OpenByNode(const std::string& address, const std::string& group);
  Result<Joined> OpenByGroup(const std::string& address, const std::string& group);
  Result<std::shared_ptr<Group>> JoinGroup(const std::string& address, const std::string& number);
  Result<std::shared_ptr<Type1Space>> Attach(int group, const std::string& number);
  Status ExplainOpen(int error, const std::string& node, const std::string& address) const;
  Status NotViable(const std::string& address, const std::string& group) const;

  SystemCalls* const calls_;
  const PciSysfs sysfs_;
  const std::shared_ptr<Taken> taken_ = std::make_shared<Taken>();

  std::mutex open_mutex_;  // one Open at a time
  std::map<std::string, std::weak_ptr<Group>> groups_;
  std::weak_ptr<Type1Space> container_;
  std::weak_ptr<Iommufd> iommufd_;
  std::map<std::string, std::weak_ptr<IoasSpace>> spaces_;  // of groups

  std::mutex look_mutex_;
  std::vector<PcieDeviceInfo> last_list_;
  Deadline next_look_{};
  uint64_t changes_ = 0;
};

}  // namespace atollrt
