// SPDX-License-Identifier: Apache-2.0
#include "driver/vfio/vfio_bus.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "driver/vfio/vfio_abi.h"
#include "driver/vfio/vfio_function.h"
#include "runtime/base/process_files.h"

namespace atollrt {
namespace {

constexpr std::chrono::milliseconds kLookInterval{250};
constexpr const char* kContainerNode = "/dev/vfio/vfio";
constexpr const char* kIommufdNode = "/dev/iommu";
constexpr const char* kVfioDriver = "vfio-pci";

// The device's file until a function takes it.
class OpenFile {
 public:
  OpenFile(SystemCalls* calls, int fd) : calls_(calls), fd_(fd) {}
  ~OpenFile() {
    if (fd_ >= 0) calls_->Close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  SystemCalls* const calls_;
  int fd_;
};

Status Busy(const std::string& address, const std::string& node) {
  const std::string holders = ProcessesText(ProcessesWithFile(node));
  return Status(StatusCode::kDeviceBusy,
                holders.empty()
                    ? Format("pci:%s is in use; 'sudo fuser -v %s' tells by whom", address.c_str(),
                             node.c_str())
                    : Format("pci:%s is in use: %s is open in process %s; end it, or choose "
                             "another device",
                             address.c_str(), node.c_str(), holders.c_str()));
}

}  // namespace

// An opened group that is in a container.
struct VfioBus::Group {
  Group(SystemCalls* system_calls, int number) : calls(system_calls), fd(number) {}
  ~Group() { calls->Close(fd); }  // in front of the container
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  SystemCalls* const calls;
  std::shared_ptr<Type1Space> container;
  const int fd;
};

// What a function holds beside its device: its address, and its group.
struct VfioBus::Tenancy {
  Tenancy(std::shared_ptr<Taken> all, std::string own)
      : taken(std::move(all)), address(std::move(own)) {}
  ~Tenancy() {
    group = nullptr;
    const std::lock_guard lock(taken->mutex);
    taken->addresses.erase(address);
  }
  Tenancy(const Tenancy&) = delete;
  Tenancy& operator=(const Tenancy&) = delete;

  const std::shared_ptr<Taken> taken;
  const std::string address;
  std::shared_ptr<Group> group;
};

VfioBus::VfioBus(Options options)
    : calls_([&] {
        static SystemCalls kernel;
        return options.calls != nullptr ? options.calls : &kernel;
      }()),
      sysfs_(std::move(options.root)) {}

Result<std::vector<PcieDeviceInfo>> VfioBus::List() { return sysfs_.Known(); }

Status VfioBus::ExplainOpen(int error, const std::string& node, const std::string& address) const {
  switch (error) {
    case EACCES:
    case EPERM:
      return Status(
          StatusCode::kPermissionDenied,
          Format("this user may not open pci:%s (%s); copy 61-atoll-pcie.rules to "
                 "/etc/udev/rules.d, run 'sudo udevadm control --reload && sudo udevadm trigger "
                 "--subsystem-match=vfio', and join the group plugdev (sudo usermod -aG plugdev "
                 "$USER, then log in again); without udev: sudo chown $USER %s",
                 address.c_str(), node.c_str(), node.c_str()));
    case EBUSY:
      return Busy(address, node);
    case ENOENT:
    case ENODEV:
    case ENXIO:
      return NotFound(
          "%s is not there: load the driver with 'sudo modprobe vfio-pci', or give the container "
          "this program runs in --device /dev/vfio",
          node.c_str());
    default:
      return InternalError("%s cannot be opened: %s", node.c_str(), strerror(error));
  }
}

Status VfioBus::NotViable(const std::string& address, const std::string& group) const {
  std::string others;
  for (const std::string& member : sysfs_.MembersInTheWay(group)) {
    others += (others.empty() ? "" : ", ") + member;
  }
  return Unsupported(
      "pci:%s shares IOMMU group %s with functions that the system uses: %s; bind those to "
      "vfio-pci, too ('atoll doctor --fix' shows how), or put the card into another slot",
      address.c_str(), group.c_str(), others.empty() ? "it does not say which" : others.c_str());
}

// By the node of the function itself.

Result<VfioBus::Joined> VfioBus::OpenByNode(const std::string& address, const std::string& group) {
  const std::string name = sysfs_.VfioDevice(address);
  if (name.empty()) return NotFound("this kernel has no nodes of single functions");
  std::shared_ptr<Iommufd> iommufd = iommufd_.lock();
  if (iommufd == nullptr) {
    const int fd = calls_->Open(kIommufdNode);
    if (fd < 0) return ExplainOpen(-fd, kIommufdNode, address);
    iommufd = std::make_shared<Iommufd>(calls_, fd);
  }
  const std::string node = "/dev/vfio/devices/" + name;
  OpenFile device(calls_, calls_->Open(node.c_str()));
  if (device.get() < 0) return ExplainOpen(-device.get(), node, address);
  vfio_abi::BindIommufd bind;
  bind.iommufd = iommufd->fd;
  if (const int error = -calls_->Ioctl(device.get(), vfio_abi::kBindIommufd, &bind); error != 0) {
    if (!sysfs_.MembersInTheWay(group).empty()) return NotViable(address, group);
    return ExplainOpen(error == EINVAL ? EBUSY : error, node, address);
  }
  const auto attach = [&](const IoasSpace& space) {
    vfio_abi::AttachPageTable page_table;
    page_table.pt_id = space.id();
    return -calls_->Ioctl(device.get(), vfio_abi::kAttachPageTable, &page_table);
  };
  // Functions of one group cannot be told apart by the IOMMU, and have to share.
  std::shared_ptr<IoasSpace> space = spaces_[group].lock();
  int error = space != nullptr ? attach(*space) : 0;
  if (space == nullptr || error != 0) {
    ATOLL_ASSIGN_OR_RETURN(space, IoasSpace::Create(iommufd));
    error = attach(*space);
  }
  if (error != 0) {
    return Unsupported("pci:%s cannot be put behind the IOMMU (%s): %s", address.c_str(),
                       strerror(error),
                       error == EPERM ? "interrupts are not remapped; switch that on in the BIOS"
                                      : "see 'sudo dmesg'");
  }
  ATOLL_RETURN_IF_ERROR(space->ReadRanges());
  iommufd_ = iommufd;
  spaces_[group] = space;
  return Joined{device.Release(), space, nullptr};
}

// By the node of its group.

Result<std::shared_ptr<Type1Space>> VfioBus::Attach(int group, const std::string& number) {
  std::shared_ptr<Type1Space> container = container_.lock();
  if (container != nullptr) {
    int fd = container->fd();
    // The type is there already, unless the last group has just left.
    if (calls_->Ioctl(group, VFIO_GROUP_SET_CONTAINER, &fd) == 0) {
      calls_->Ioctl(fd, VFIO_SET_IOMMU, reinterpret_cast<void*>(VFIO_TYPE1v2_IOMMU));
      return container;
    }
  }
  int fd = calls_->Open(kContainerNode);
  if (fd < 0) return ExplainOpen(-fd, kContainerNode, "group " + number);
  container = std::make_shared<Type1Space>(calls_, fd);
  if (calls_->Ioctl(fd, VFIO_GET_API_VERSION, nullptr) != VFIO_API_VERSION ||
      calls_->Ioctl(fd, VFIO_CHECK_EXTENSION, reinterpret_cast<void*>(VFIO_TYPE1v2_IOMMU)) <= 0) {
    return Unsupported(
        "this system's VFIO has no type 1 IOMMU; load it with 'sudo modprobe vfio_iommu_type1'");
  }
  int error = -calls_->Ioctl(group, VFIO_GROUP_SET_CONTAINER, &fd);
  if (error != 0) {
    return InternalError("IOMMU group %s cannot be used: %s", number.c_str(), strerror(error));
  }
  error = -calls_->Ioctl(fd, VFIO_SET_IOMMU, reinterpret_cast<void*>(VFIO_TYPE1v2_IOMMU));
  if (error == EPERM) {
    return Unsupported(
        "the IOMMU does not remap interrupts, so a device could raise any; switch that on in the "
        "BIOS (x2APIC, interrupt remapping), or, if you trust the device, 'echo Y | sudo tee "
        "/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts'");
  }
  if (error != 0) {
    return Unsupported("IOMMU group %s cannot be used (VFIO_SET_IOMMU: %s); see 'sudo dmesg'",
                       number.c_str(), strerror(error));
  }
  container_ = container;
  return container;
}

Result<std::shared_ptr<VfioBus::Group>> VfioBus::JoinGroup(const std::string& address,
                                                           const std::string& number) {
  if (std::shared_ptr<Group> group = groups_[number].lock()) return group;
  const std::string node = "/dev/vfio/" + number;
  const int fd = calls_->Open(node.c_str());
  if (fd < 0) return ExplainOpen(-fd, node, address);
  auto group = std::make_shared<Group>(calls_, fd);
  vfio_group_status status = {};
  status.argsz = sizeof(status);
  if (const int error = -calls_->Ioctl(fd, VFIO_GROUP_GET_STATUS, &status); error != 0) {
    return InternalError("IOMMU group %s does not answer: %s", number.c_str(), strerror(error));
  }
  if ((status.flags & VFIO_GROUP_FLAGS_VIABLE) == 0) return NotViable(address, number);
  ATOLL_ASSIGN_OR_RETURN(group->container, Attach(fd, number));
  groups_[number] = group;
  return group;
}

Result<VfioBus::Joined> VfioBus::OpenByGroup(const std::string& address, const std::string& group) {
  ATOLL_ASSIGN_OR_RETURN(const std::shared_ptr<Group> joined, JoinGroup(address, group));
  std::string name = address;
  OpenFile device(calls_, calls_->Ioctl(joined->fd, VFIO_GROUP_GET_DEVICE_FD, name.data()));
  if (device.get() < 0) {
    const int error = -device.get();
    if (error == EBUSY) return Busy(address, "/dev/vfio/" + group);
    return DeviceLost("pci:%s cannot be opened: %s; see 'sudo dmesg'", address.c_str(),
                      strerror(error));
  }
  ATOLL_RETURN_IF_ERROR(joined->container->ReadRanges());
  return Joined{device.Release(), joined->container, joined};
}

Result<std::unique_ptr<PcieFunction>> VfioBus::Open(const PcieDeviceInfo& device) {
  const std::lock_guard lock(open_mutex_);
  const std::string& address = device.address;
  if (sysfs_.Id(address) != device.id) {
    return DeviceLost("%04x:%04x is no longer at pci:%s", device.id.vendor, device.id.device,
                      address.c_str());
  }
  const std::string driver = sysfs_.Driver(address);
  const std::string group = sysfs_.IommuGroup(address);
  if (group.empty()) {
    return Unsupported(
        "there is no IOMMU for pci:%s, and without one no program may drive it: switch it on in "
        "the BIOS (VT-d, AMD-Vi, SMMU), on Intel also with intel_iommu=on on the kernel's command "
        "line, then start again",
        address.c_str());
  }
  if (driver != kVfioDriver) {
    return Unsupported(
        "pci:%s is bound to %s instead of vfio-pci; 'sudo atoll doctor --fix' binds it, or 'sudo "
        "driverctl set-override %s vfio-pci', or, as root: modprobe vfio-pci; echo vfio-pci > "
        "/sys/bus/pci/devices/%s/driver_override; %secho %s > /sys/bus/pci/drivers_probe",
        address.c_str(), driver.empty() ? "no driver" : ("the driver " + driver).c_str(),
        address.c_str(), address.c_str(),
        driver.empty() ? ""
                       : Format("echo %s > /sys/bus/pci/devices/%s/driver/unbind; ",
                                address.c_str(), address.c_str())
                             .c_str(),
        address.c_str());
  }
  std::shared_ptr<Tenancy> tenancy;
  {
    const std::lock_guard taken(taken_->mutex);
    if (!taken_->addresses.insert(address).second) {
      return Status(StatusCode::kDeviceBusy,
                    Format("pci:%s is open in this process already", address.c_str()));
    }
  }
  tenancy = std::make_shared<Tenancy>(taken_, address);
  Result<Joined> joined = OpenByNode(address, group);
  if (!joined.ok()) {
    const Status by_node = joined.status();
    joined = OpenByGroup(address, group);
    // A kernel without the nodes of groups, where the other error says more.
    if (!joined.ok() && joined.code() == StatusCode::kNotFound &&
        by_node.code() != StatusCode::kNotFound) {
      return by_node;
    }
    if (!joined.ok()) return joined.status();
  }
  tenancy->group = joined->group;
  return VfioFunction::Create({.calls = calls_,
                               .device = joined->device,
                               .space = joined->space,
                               .tenancy = tenancy,
                               .address = address});
}

// Changes.

uint64_t VfioBus::generation() {
  const std::lock_guard lock(look_mutex_);
  const Deadline now = Clock::now();
  if (now < next_look_) return changes_;
  next_look_ = now + kLookInterval;
  std::vector<PcieDeviceInfo> list = sysfs_.Known();
  // A link that changes its speed to save power is no news.
  for (PcieDeviceInfo& info : list) info.link_lanes = info.link_generation = 0;
  if (list != last_list_) {
    last_list_ = std::move(list);
    ++changes_;
  }
  return changes_;
}

bool VfioBus::WaitForChange(uint64_t seen, Deadline deadline) {
  for (;;) {
    if (generation() != seen) return true;
    const Deadline now = Clock::now();
    if (now >= deadline) return false;
    std::this_thread::sleep_until(std::min(deadline, now + kLookInterval));
  }
}

std::shared_ptr<PcieBus> SystemPcieBus() {
  static std::mutex mutex;
  static std::weak_ptr<PcieBus> shared;
  const std::lock_guard lock(mutex);
  std::shared_ptr<PcieBus> bus = shared.lock();
  if (bus == nullptr) {
    bus = std::make_shared<VfioBus>();
    shared = bus;
  }
  return bus;
}

}  // namespace atollrt
