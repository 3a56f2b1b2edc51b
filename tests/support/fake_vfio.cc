// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_vfio.h"

#include <gtest/gtest.h>
#include <linux/pci_regs.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "driver/vfio/vfio_abi.h"

namespace atollrt {
namespace {

constexpr int kRegionShift = 40;
constexpr uint64_t kOffsetMask = (uint64_t{1} << kRegionShift) - 1;

template <typename T>
T ReadAs(const void* argument) {
  T value;
  memcpy(&value, argument, sizeof(value));
  return value;
}

// The C library's own numbers are in its way.
constexpr unsigned long long Hex(uint64_t value) { return value; }

}  // namespace

FakeRoot::FakeRoot() {
  char name[] = "/tmp/atoll_pci_XXXXXX";
  path_ = mkdtemp(name);
  std::filesystem::create_directories(path_ + "/sys/bus/pci/devices");
}

FakeRoot::~FakeRoot() { std::filesystem::remove_all(path_); }

void FakeRoot::Write(const std::string& file, const std::string& text) const {
  const std::filesystem::path path = path_ + file;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

void FakeRoot::Link(const std::string& file, const std::string& target) const {
  const std::filesystem::path path = path_ + file;
  std::filesystem::create_directories(path.parent_path());
  std::filesystem::remove(path);
  std::filesystem::create_symlink(target, path);
}

void FakeRoot::Remove(const std::string& file) const { std::filesystem::remove_all(path_ + file); }

void FakeRoot::Plug(const Function& function) const {
  const std::string folder = "/sys/bus/pci/devices/" + function.address;
  Write(folder + "/vendor", Format("0x%04x\n", function.id.vendor));
  Write(folder + "/device", Format("0x%04x\n", function.id.device));
  if (!function.group.empty()) {
    Link(folder + "/iommu_group", "../../../../kernel/iommu_groups/" + function.group);
    Write("/sys/kernel/iommu_groups/" + function.group + "/devices/" + function.address, "");
  }
  Bind(function.address, function.driver);
}

void FakeRoot::Unplug(const std::string& address) const {
  Remove("/sys/bus/pci/devices/" + address);
}

void FakeRoot::Bind(const std::string& address, const std::string& driver) const {
  const std::string link = "/sys/bus/pci/devices/" + address + "/driver";
  Remove(link);
  if (!driver.empty()) Link(link, "../../../../bus/pci/drivers/" + driver);
}

FakeVfio::~FakeVfio() {
  for (const auto& [name, device] : devices_) {
    for (const auto& [bar, file] : device.memory) close(file);
  }
}

int FakeVfio::AddFile(File file) {
  files_.emplace(++next_file_, std::move(file));
  return next_file_;
}

int FakeVfio::Open(const char* path) {
  const std::lock_guard lock(mutex_);
  const std::string name = path;
  if (const auto error = open_errors.find(name); error != open_errors.end()) return -error->second;
  File file;
  if (name == "/dev/vfio/vfio") {
    file.kind = "container";
  } else if (name == "/dev/iommu") {
    file.kind = "iommu";
  } else if (name.starts_with("/dev/vfio/devices/")) {
    file = {"device", name.substr(18)};
  } else {
    file = {"group", name.substr(10)};
    for (const auto& [number, other] : files_) {
      if (other.kind == "group" && other.name == file.name) return -EBUSY;
    }
  }
  if (!has_groups && (file.kind == "container" || file.kind == "group")) return -ENOENT;
  log_.push_back("open " + name);
  return AddFile(std::move(file));
}

void FakeVfio::Close(int fd) {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(fd);
  if (found == files_.end()) {
    ADD_FAILURE() << "file " << fd << " is not open";
    return;
  }
  const bool is_space = found->second.kind == "container" || found->second.kind == "iommu";
  if (is_space && !mappings_.empty()) log_.push_back("all unmapped");
  if (is_space) mappings_.clear();
  log_.push_back("close " + found->second.kind);
  files_.erase(found);
}

void FakeVfio::PowerUp(const std::string& device) {
  // What was set up before is the first one's.
  if (last_device_.empty()) devices_[device] = std::exchange(devices_[""], {});
  last_device_ = device;
  devices_[device].command = 0;
  ResetDevice(device);  // as the real one does
}

// 0: go on.
int FakeVfio::Fail(const std::string& call) {
  std::vector<int>& list = failures[call];
  if (list.empty()) return 0;
  const int error = list.front();
  list.erase(list.begin());
  return -error;
}

int FakeVfio::Ioctl(int fd, unsigned long request, void* argument) {
  const std::lock_guard lock(mutex_);
  return Call(fd, request, argument);
}

int FakeVfio::Call(int fd, unsigned long request, void* argument) {
  const auto found = files_.find(fd);
  if (found == files_.end()) return -EBADF;
  File& file = found->second;
  const auto name_of_device = [&] { return std::string(static_cast<const char*>(argument)); };
  switch (request) {
    case VFIO_GET_API_VERSION:
      return VFIO_API_VERSION;
    case VFIO_CHECK_EXTENSION:
      return reinterpret_cast<uintptr_t>(argument) == VFIO_TYPE1v2_IOMMU;
    case VFIO_SET_IOMMU:
      if (const int error = Fail("set_iommu"); error != 0) return error;
      if (file.has_iommu) return -EINVAL;
      file.has_iommu = true;
      return 0;
    case VFIO_GROUP_GET_STATUS: {
      auto status = ReadAs<vfio_group_status>(argument);
      status.flags = viable.contains(file.name) ? VFIO_GROUP_FLAGS_VIABLE : 0;
      memcpy(argument, &status, sizeof(status));
      return 0;
    }
    case VFIO_GROUP_SET_CONTAINER: {
      if (const int error = Fail("set_container"); error != 0) return error;
      const auto container = files_.find(ReadAs<int>(argument));
      if (container == files_.end() || container->second.kind != "container") return -EBADF;
      file.container = container->first;
      return 0;
    }
    case VFIO_GROUP_GET_DEVICE_FD: {
      if (const int error = Fail("get_device"); error != 0) return error;
      const auto container = files_.find(file.container);
      if (container == files_.end() || !container->second.has_iommu) return -EINVAL;
      PowerUp(name_of_device());
      log_.push_back("get " + name_of_device());
      return AddFile({"device", name_of_device()});
    }
    case vfio_abi::kBindIommufd: {
      if (const int error = Fail("bind"); error != 0) return error;
      const auto bind = ReadAs<vfio_abi::BindIommufd>(argument);
      if (bind.argsz != sizeof(bind) || bind.flags != 0 || !files_.contains(bind.iommufd)) {
        return -EINVAL;
      }
      PowerUp(file.name);
      return 0;
    }
    case vfio_abi::kAttachPageTable: {
      if (const int error = Fail("attach"); error != 0) return error;
      const auto attach = ReadAs<vfio_abi::AttachPageTable>(argument);
      log_.push_back("attach to " + std::to_string(attach.pt_id));
      return 0;
    }
    case vfio_abi::kIoasAlloc: {
      if (const int error = Fail("alloc"); error != 0) return error;
      auto alloc = ReadAs<vfio_abi::IoasAlloc>(argument);
      alloc.out_ioas_id = next_space_++;
      memcpy(argument, &alloc, sizeof(alloc));
      return 0;
    }
    case vfio_abi::kDestroy:
      log_.push_back("destroy " + std::to_string(ReadAs<vfio_abi::Destroy>(argument).id));
      return 0;
    case vfio_abi::kIoasIovaRanges: {
      auto ask = ReadAs<vfio_abi::IoasIovaRanges>(argument);
      const auto room = ask.num_iovas;
      ask.num_iovas = static_cast<uint32_t>(ranges.size());
      ask.out_iova_alignment = page_sizes & -page_sizes;
      if (room >= ranges.size() && !ranges.empty()) {
        static_assert(sizeof(Range) == sizeof(vfio_abi::IovaRange));
        memcpy(reinterpret_cast<void*>(ask.allowed_iovas), ranges.data(),
               ranges.size() * sizeof(Range));
      }
      memcpy(argument, &ask, sizeof(ask));
      return room >= ranges.size() ? 0 : -EMSGSIZE;
    }
    case vfio_abi::kIoasMap: {
      const auto map = ReadAs<vfio_abi::IoasMap>(argument);
      if ((map.flags & vfio_abi::kMapFixedIova) == 0) return -EOPNOTSUPP;
      return Map(map.user_va, map.iova, map.length,
                 std::string((map.flags & vfio_abi::kMapReadable) != 0 ? "r" : "") +
                     ((map.flags & vfio_abi::kMapWriteable) != 0 ? "w" : ""));
    }
    case vfio_abi::kIoasUnmap: {
      const auto unmap = ReadAs<vfio_abi::IoasUnmap>(argument);
      return Unmap(unmap.iova, unmap.length);
    }
    case VFIO_IOMMU_GET_INFO:
      return IommuInfo(argument);
    case VFIO_IOMMU_MAP_DMA: {
      const auto map = ReadAs<vfio_iommu_type1_dma_map>(argument);
      return Map(map.vaddr, map.iova, map.size,
                 std::string((map.flags & VFIO_DMA_MAP_FLAG_READ) != 0 ? "r" : "") +
                     ((map.flags & VFIO_DMA_MAP_FLAG_WRITE) != 0 ? "w" : ""));
    }
    case VFIO_IOMMU_UNMAP_DMA: {
      const auto unmap = ReadAs<vfio_iommu_type1_dma_unmap>(argument);
      return Unmap(unmap.iova, unmap.size);
    }
    case VFIO_DEVICE_GET_INFO: {
      if (const int error = Fail("get_info"); error != 0) return error;
      auto info = ReadAs<vfio_device_info>(argument);
      info.flags = VFIO_DEVICE_FLAGS_PCI | (function.can_reset ? VFIO_DEVICE_FLAGS_RESET : 0);
      info.num_regions = 9;
      info.num_irqs = 5;
      memcpy(argument, &info, sizeof(info));
      return 0;
    }
    case VFIO_DEVICE_GET_REGION_INFO:
      return RegionInfo(argument);
    case VFIO_DEVICE_GET_IRQ_INFO: {
      auto info = ReadAs<vfio_irq_info>(argument);
      const bool is_msix = info.index == VFIO_PCI_MSIX_IRQ_INDEX;
      const bool is_request = info.index == VFIO_PCI_REQ_IRQ_INDEX && function.has_request;
      info.flags = VFIO_IRQ_INFO_EVENTFD;
      info.count = is_msix ? function.vectors : (is_request ? 1 : 0);
      memcpy(argument, &info, sizeof(info));
      return 0;
    }
    case VFIO_DEVICE_SET_IRQS:
      return SetIrqs(&devices_[file.name], argument);
    case VFIO_DEVICE_RESET:
      if (const int error = Fail("reset"); error != 0) return error;
      log_.push_back("reset");
      ResetDevice(file.name);
      return 0;
    default:
      return -ENOTTY;
  }
}

int FakeVfio::PopulateForWriting(uint64_t host, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (const int error = Fail("populate"); error != 0) return error;
  populated_.emplace(host, bytes);
  return 0;
}

int FakeVfio::Map(uint64_t host, uint64_t iova, uint64_t bytes, const std::string& rights) {
  if (const int error = Fail("map"); error != 0) return error;
  const uint64_t unit = std::max<uint64_t>(page_sizes & -page_sizes, host_page_bytes);
  if ((host | iova | bytes) % unit != 0 || bytes == 0 || rights.empty()) return -EINVAL;
  for (const auto& [other, mapped] : mappings_) {
    if (iova < other + mapped.bytes && other < iova + bytes) return -EEXIST;
  }
  bool in_range = ranges.empty();
  for (const Range& range : ranges) {
    in_range = in_range || (iova >= range.first && iova + (bytes - 1) <= range.last);
  }
  if (!in_range) return -EINVAL;
  mappings_[iova] = {host, bytes, rights};
  // Read by the device alone, and perhaps not the pages that the process will write to.
  const bool others = rights == "r" && populated_.count({host, bytes}) == 0;
  log_.push_back(Format("map %llx+%llx %s%s", Hex(iova), Hex(bytes), rights.c_str(),
                        others ? ", not the process's own" : ""));
  return 0;
}

int FakeVfio::Unmap(uint64_t iova, uint64_t bytes) {
  if (const int error = Fail("unmap"); error != 0) return error;
  const auto found = mappings_.find(iova);
  if (found == mappings_.end() || found->second.bytes != bytes) return -ENOENT;
  mappings_.erase(found);
  log_.push_back(Format("unmap %llx+%llx", Hex(iova), Hex(bytes)));
  return 0;
}

int FakeVfio::IommuInfo(void* argument) {
  auto info = ReadAs<vfio_iommu_type1_info>(argument);
  const uint32_t room = info.argsz;
  info.flags = VFIO_IOMMU_INFO_PGSIZES;
  info.iova_pgsizes = page_sizes;
  info.cap_offset = 0;
  if (!ranges.empty()) {
    // A capability of another kind stands in front.
    struct {
      vfio_info_cap_header other;
      vfio_iommu_type1_info_cap_iova_range list;
    } caps = {};
    const uint32_t start = (sizeof(info) + 7) / 8 * 8;
    caps.other = {.id = 99, .version = 1, .next = start + 8};
    caps.list.header = {.id = VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE, .version = 1, .next = 0};
    caps.list.nr_iovas = static_cast<uint32_t>(ranges.size());
    info.flags |= VFIO_IOMMU_INFO_CAPS;
    info.argsz = static_cast<uint32_t>(start + sizeof(caps) + ranges.size() * sizeof(Range));
    if (room >= info.argsz) {
      info.cap_offset = start;
      auto* bytes = static_cast<uint8_t*>(argument);
      memcpy(bytes + start, &caps, sizeof(caps));
      memcpy(bytes + start + sizeof(caps), ranges.data(), ranges.size() * sizeof(Range));
    }
  }
  memcpy(argument, &info, sizeof(info));
  return 0;
}

int FakeVfio::RegionInfo(void* argument) {
  auto info = ReadAs<vfio_region_info>(argument);
  const uint32_t room = info.argsz;
  info.flags = 0;
  info.cap_offset = 0;
  info.size = info.index == VFIO_PCI_CONFIG_REGION_INDEX ? 256
              : info.index < 6                           ? function.bar_bytes[info.index]
                                                         : 0;
  info.offset = static_cast<uint64_t>(info.index) << kRegionShift;
  if (info.size > 0) info.flags = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
  if (info.index < 6 && info.size > 0 && function.may_map) {
    info.flags |= VFIO_REGION_INFO_FLAG_MMAP;
  }
  if (info.index == 2 && !function.sparse.empty()) {
    vfio_region_info_cap_sparse_mmap list = {};
    list.header = {.id = VFIO_REGION_INFO_CAP_SPARSE_MMAP, .version = 1, .next = 0};
    list.nr_areas = static_cast<uint32_t>(function.sparse.size());
    info.flags |= VFIO_REGION_INFO_FLAG_CAPS;
    info.argsz = static_cast<uint32_t>(sizeof(info) + sizeof(list) +
                                       function.sparse.size() * sizeof(Window));
    if (room >= info.argsz) {
      info.cap_offset = sizeof(info);
      auto* bytes = static_cast<uint8_t*>(argument);
      memcpy(bytes + sizeof(info), &list, sizeof(list));
      memcpy(bytes + sizeof(info) + sizeof(list), function.sparse.data(),
             function.sparse.size() * sizeof(Window));
    }
  }
  memcpy(argument, &info, sizeof(info));
  return 0;
}

int FakeVfio::SetIrqs(Device* device, const void* argument) {
  const auto set = ReadAs<vfio_irq_set>(argument);
  std::vector<int> events(set.count);
  if (set.count > 0) {
    memcpy(events.data(), static_cast<const uint8_t*>(argument) + sizeof(set),
           events.size() * sizeof(int));
  }
  if (set.index == VFIO_PCI_REQ_IRQ_INDEX) {
    if (set.count != 1) return -EINVAL;
    device->request = events[0];
    return 0;
  }
  if (set.count > 0) {
    if (const int error = Fail("set_irqs"); error != 0) return error;
  }
  if (set.index != VFIO_PCI_MSIX_IRQ_INDEX || set.count > function.vectors) return -EINVAL;
  device->vectors = events;
  log_.push_back(set.count > 0 ? "irqs " + std::to_string(set.count) : "irqs off");
  return 0;
}

int FakeVfio::MemoryOf(Device* device, uint64_t bar) {
  const auto found = device->memory.find(bar);
  if (found != device->memory.end()) return found->second;
  const int file = memfd_create("bar", MFD_CLOEXEC);
  if (ftruncate(file, static_cast<off_t>(function.bar_bytes[bar])) != 0) ADD_FAILURE();
  device->memory[bar] = file;
  return file;
}

void* FakeVfio::MapFile(int fd, uint64_t offset, size_t bytes, bool, bool) {
  const std::lock_guard lock(mutex_);
  const auto file = files_.find(fd);
  if (file == files_.end()) return nullptr;
  const uint64_t bar = offset >> kRegionShift;
  // At most what a program can address is there to be mapped.
  if (bar > 5 || bytes > (uint64_t{1} << 40)) return nullptr;
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
           MemoryOf(&devices_[file->second.name], bar), static_cast<off_t>(offset & kOffsetMask));
  return memory == MAP_FAILED ? nullptr : memory;
}

ssize_t FakeVfio::Read(int fd, void* data, size_t bytes, uint64_t offset) {
  const std::lock_guard lock(mutex_);
  const auto file = files_.find(fd);
  if (file == files_.end()) return -EBADF;
  const std::string& name = file->second.name;
  Device& device = devices_[name];
  const uint64_t region = offset >> kRegionShift;
  offset &= kOffsetMask;
  if (region == VFIO_PCI_CONFIG_REGION_INDEX) {
    std::array<uint8_t, 256> config = {};
    memcpy(config.data() + PCI_VENDOR_ID, &function.id.vendor, sizeof(function.id.vendor));
    memcpy(config.data() + PCI_DEVICE_ID, &function.id.device, sizeof(function.id.device));
    memcpy(config.data() + PCI_COMMAND, &device.command, sizeof(device.command));
    // VFIO remembers the ids of a function that is gone.
    if (is_gone || gone_.contains(name)) std::fill(config.begin() + 4, config.end(), 0xff);
    memcpy(data, config.data() + offset, bytes);
    return static_cast<ssize_t>(bytes);
  }
  if (Access(name, static_cast<uint32_t>(region), offset, {static_cast<uint8_t*>(data), bytes},
             false)) {
    return static_cast<ssize_t>(bytes);
  }
  log_.push_back("read by call");
  return pread(MemoryOf(&device, region), data, bytes, static_cast<off_t>(offset));
}

ssize_t FakeVfio::Write(int fd, const void* data, size_t bytes, uint64_t offset) {
  const std::lock_guard lock(mutex_);
  const auto file = files_.find(fd);
  if (file == files_.end()) return -EBADF;
  const std::string& name = file->second.name;
  Device& device = devices_[name];
  const uint64_t region = offset >> kRegionShift;
  offset &= kOffsetMask;
  if (region == VFIO_PCI_CONFIG_REGION_INDEX) {
    if (offset != PCI_COMMAND || bytes != 2) return -EINVAL;
    const auto value = ReadAs<uint16_t>(data);
    const bool had_master = (device.command & PCI_COMMAND_MASTER) != 0;
    const bool has_master = (value & PCI_COMMAND_MASTER) != 0;
    if (had_master && !has_master && function.bus_master_sticks) return -EIO;
    device.command = value;
    if (had_master != has_master) log_.push_back(has_master ? "bus master on" : "bus master off");
    return 2;
  }
  auto* const bytes_of = static_cast<uint8_t*>(const_cast<void*>(data));
  if (Access(name, static_cast<uint32_t>(region), offset, {bytes_of, bytes}, true)) {
    return static_cast<ssize_t>(bytes);
  }
  log_.push_back("write by call");
  return pwrite(MemoryOf(&device, region), data, bytes, static_cast<off_t>(offset));
}

std::vector<std::string> FakeVfio::TakeLog() {
  const std::lock_guard lock(mutex_);
  return std::exchange(log_, {});
}

void FakeVfio::WaitForLog(const std::string& line) {
  for (int i = 0; i < 60'000; ++i) {
    {
      const std::lock_guard lock(mutex_);
      for (const std::string& one : log_) {
        if (one == line) return;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ADD_FAILURE() << "no '" << line << "' in a minute";
}

void FakeVfio::SetRegister(uint32_t bar, uint64_t offset, uint32_t value) {
  const std::lock_guard lock(mutex_);
  EXPECT_EQ(pwrite(MemoryOf(&Find(""), bar), &value, sizeof(value), static_cast<off_t>(offset)), 4);
}

std::span<uint8_t> FakeVfio::At(uint64_t iova, char right) const {
  auto found = mappings_.upper_bound(iova);
  if (found == mappings_.begin()) return {};
  --found;
  const Mapped& mapped = found->second;
  const uint64_t offset = iova - found->first;
  if (offset >= mapped.bytes || mapped.rights.find(right) == std::string::npos) return {};
  return {reinterpret_cast<uint8_t*>(mapped.host) + offset, mapped.bytes - offset};
}

void FakeVfio::RaiseVector(uint32_t vector) {
  const std::lock_guard lock(mutex_);
  Signal("", vector);
}

void FakeVfio::Signal(const std::string& device, uint32_t vector) {
  const std::vector<int>& vectors = Find(device).vectors;
  if (vector < vectors.size()) eventfd_write(vectors[vector], 1);
}

void FakeVfio::AskBack(const std::string& device) {
  const std::lock_guard lock(mutex_);
  eventfd_write(Find(device).request, 1);
}

uint16_t FakeVfio::command() const {
  const std::lock_guard lock(mutex_);
  return devices_.at(last_device_).command;
}

}  // namespace atollrt
