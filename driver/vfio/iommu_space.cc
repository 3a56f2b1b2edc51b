// SPDX-License-Identifier: Apache-2.0
#include "driver/vfio/iommu_space.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "driver/vfio/vfio_abi.h"
#include "runtime/base/log.h"

namespace atollrt {
namespace {

// Address 0 means "none" to some devices, and old firmware has mapped what lies below a megabyte.
constexpr uint64_t kFirstIova = 0x100000;
// A sum of two addresses and sizes must not run over.
constexpr uint64_t kLastIova = INT64_MAX;
// Of systems that do not tell: what the smallest IOMMUs translate (39 bits), without the addresses
// that raise interrupts on x86 and those that Linux takes for them on Arm.
constexpr IovaRange kUsualRanges[] = {
    {0, 0x7ffffff}, {0x8100000, 0xfedfffff}, {0xfef00000, (uint64_t{1} << 39) - 1}};

std::string MegabytesText(uint64_t bytes) {
  return Format("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
}

Status MapError(int error, uint64_t bytes) {
  const std::string what =
      Format("%s of memory cannot be given to the device", MegabytesText(bytes).c_str());
  switch (error) {
    case ENOMEM: {
      rlimit limit = {};
      if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        return ResourceExhausted(
            "%s: a process of this user may pin %s in all (RLIMIT_MEMLOCK); raise it: a line "
            "'* - memlock unlimited' in /etc/security/limits.d/atoll.conf and a new login, "
            "LimitMEMLOCK=infinity in a unit of systemd, --ulimit memlock=-1 for a container",
            what.c_str(), MegabytesText(limit.rlim_cur).c_str());
      }
      return ResourceExhausted("%s: the system has no memory left to pin", what.c_str());
    }
    case ENOSPC:
      return ResourceExhausted(
          "%s: too many pieces are mapped; raise /sys/module/vfio_iommu_type1/parameters/"
          "dma_entry_limit",
          what.c_str());
    case EPERM:
    case EACCES:
      return Status(
          StatusCode::kPermissionDenied,
          what +
              ": this user may not pin memory; raise RLIMIT_MEMLOCK (ulimit -l), or give the "
              "program CAP_IPC_LOCK: sudo setcap cap_ipc_lock+ep PROGRAM");
    case EFAULT:
      return InvalidArgument(
          "%s: it is not there, or it may not be written, as the device is to do", what.c_str());
    default:
      return InternalError("%s: %s", what.c_str(), strerror(error));
  }
}

}  // namespace

void IovaAllocator::SetRanges(const std::vector<IovaRange>& ranges) {
  ranges_.clear();
  for (IovaRange range : ranges) {
    range.first = std::max(range.first, kFirstIova);
    range.last = std::min(range.last, kLastIova);
    if (range.first < range.last) ranges_.push_back(range);
  }
  std::sort(ranges_.begin(), ranges_.end(),
            [](const IovaRange& a, const IovaRange& b) { return a.first < b.first; });
}

std::optional<uint64_t> IovaAllocator::Allocate(uint64_t bytes, uint64_t alignment) {
  for (const IovaRange& range : ranges_) {
    uint64_t first = range.first;
    auto next = used_.lower_bound(first);
    if (next != used_.begin() && std::prev(next)->second >= first) --next;
    for (;; ++next) {
      first = (first + alignment - 1) / alignment * alignment;
      if (first > range.last || bytes - 1 > range.last - first) break;
      if (next == used_.end() || next->first > first + (bytes - 1)) {
        used_.emplace_hint(next, first, first + (bytes - 1));
        return first;
      }
      first = std::max(first, next->second + 1);
    }
  }
  return std::nullopt;
}

void IovaAllocator::Free(uint64_t iova) { used_.erase(iova); }

IommuSpace::Pages IommuSpace::PagesOf(std::span<uint8_t> memory) const {
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  const uint64_t first = address / page_bytes_ * page_bytes_;
  const uint64_t end = (address + memory.size() + page_bytes_ - 1) / page_bytes_ * page_bytes_;
  return {first, end - first};
}

void IommuSpace::SetRanges(std::vector<IovaRange> ranges, uint64_t page_bytes) {
  const std::lock_guard lock(mutex_);
  if (ranges.empty()) ranges.assign(std::begin(kUsualRanges), std::end(kUsualRanges));
  iovas_.SetRanges(ranges);
  // Never changes while something is mapped: functions of one system have pages of one size.
  page_bytes_ = std::max(page_bytes, static_cast<uint64_t>(calls_->page_bytes()));
}

Result<uint64_t> IommuSpace::Map(std::span<uint8_t> memory, DmaDirection direction) {
  if (memory.empty()) return InvalidArgument("no memory to give to the device");
  std::unique_lock lock(mutex_);
  const Pages pages = PagesOf(memory);
  const std::optional<uint64_t> iova = iovas_.Allocate(pages.bytes, page_bytes_);
  if (!iova.has_value()) {
    return ResourceExhausted("the device has no addresses left for %s of memory",
                             MegabytesText(pages.bytes).c_str());
  }
  lock.unlock();  // pinning may take long
  const auto map = [&](bool from_device) {
    return -MapPages(pages.first, *iova, pages.bytes, direction != DmaDirection::kFromDevice,
                     from_device);
  };
  // What the device only reads, the kernel pins without a write, up to Linux 6.1 at least: of pages
  // that the process has not written to yet it is the page of zeros that all share, or a file's;
  // the first write gives the process another one, and the device keeps the old. So the pages have
  // to be its own before. Where that call does not do it, the kernel does it if the device may
  // write.
  const bool only_reads = direction == DmaDirection::kToDevice;
  const bool own = only_reads && calls_->PopulateForWriting(pages.first, pages.bytes) == 0;
  int error = map(/*from_device=*/!own);
  // The process itself may not write to them, so they stay what they are.
  if (error == EFAULT && only_reads && !own) error = map(/*from_device=*/false);
  if (error != 0) {
    lock.lock();
    iovas_.Free(*iova);
    return MapError(error, pages.bytes);
  }
  return *iova + (reinterpret_cast<uintptr_t>(memory.data()) - pages.first);
}

void IommuSpace::Unmap(std::span<uint8_t> memory, uint64_t iova) {
  std::unique_lock lock(mutex_);
  const Pages pages = PagesOf(memory);
  lock.unlock();
  const uint64_t first = iova - (reinterpret_cast<uintptr_t>(memory.data()) - pages.first);
  const int error = -UnmapPages(first, pages.bytes);
  if (error != 0) {
    // The addresses stay taken, and the system keeps the pages from other use.
    Log(LogSeverity::kError, "memory at IOVA %llx stays with the device: %s",
        static_cast<unsigned long long>(first), strerror(error));
    return;
  }
  lock.lock();
  iovas_.Free(first);
}

// Type 1.

Status Type1Space::ReadRanges() {
  constexpr uint32_t kInfoBytesMax = 1 << 20;
  vfio_iommu_type1_info head = {};
  head.argsz = sizeof(head);
  if (const int error = -calls_->Ioctl(fd_, VFIO_IOMMU_GET_INFO, &head); error != 0) {
    return InternalError("VFIO_IOMMU_GET_INFO: %s", strerror(error));
  }
  // Bit n: pages of 2^n bytes. The smallest is the unit of everything.
  const bool has_sizes = (head.flags & VFIO_IOMMU_INFO_PGSIZES) != 0 && head.iova_pgsizes != 0;
  const uint64_t page_bytes = has_sizes ? head.iova_pgsizes & -head.iova_pgsizes : 0;
  std::vector<IovaRange> ranges;
  // A list of capabilities, each with the offset of the next one; 8 bytes are a unit of alignment.
  std::vector<uint64_t> room;
  if ((head.flags & VFIO_IOMMU_INFO_CAPS) != 0 && head.argsz > sizeof(head) &&
      head.argsz <= kInfoBytesMax) {
    room.resize((head.argsz + 7) / 8);
    head.cap_offset = 0;
    memcpy(room.data(), &head, sizeof(head));
    if (calls_->Ioctl(fd_, VFIO_IOMMU_GET_INFO, room.data()) != 0) room.clear();
  }
  if (!room.empty()) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(room.data());
    const size_t size = room.size() * 8;
    memcpy(&head, bytes, sizeof(head));
    uint32_t offset = head.cap_offset;
    for (int i = 0; i < 64 && offset >= sizeof(head); ++i) {
      vfio_iommu_type1_info_cap_iova_range capability;
      if (offset + sizeof(capability) > size) break;
      memcpy(&capability, bytes + offset, sizeof(capability));
      if (capability.header.id == VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE) {
        const uint8_t* list = bytes + offset + sizeof(capability);
        const size_t count = std::min<size_t>(
            capability.nr_iovas, (size - offset - sizeof(capability)) / sizeof(vfio_iova_range));
        for (size_t k = 0; k < count; ++k) {
          vfio_iova_range range;
          memcpy(&range, list + k * sizeof(range), sizeof(range));
          ranges.push_back({range.start, range.end});
        }
      }
      offset = capability.header.next;
    }
  }
  SetRanges(std::move(ranges), page_bytes);
  return {};
}

int Type1Space::MapPages(uint64_t host, uint64_t iova, uint64_t bytes, bool to_device,
                         bool from_device) {
  vfio_iommu_type1_dma_map map = {};
  map.argsz = sizeof(map);
  map.flags =
      (to_device ? VFIO_DMA_MAP_FLAG_READ : 0) | (from_device ? VFIO_DMA_MAP_FLAG_WRITE : 0);
  map.vaddr = host;
  map.iova = iova;
  map.size = bytes;
  return calls_->Ioctl(fd_, VFIO_IOMMU_MAP_DMA, &map);
}

int Type1Space::UnmapPages(uint64_t iova, uint64_t bytes) {
  vfio_iommu_type1_dma_unmap unmap = {};
  unmap.argsz = sizeof(unmap);
  unmap.iova = iova;
  unmap.size = bytes;
  const int result = calls_->Ioctl(fd_, VFIO_IOMMU_UNMAP_DMA, &unmap);
  if (result != 0) return result;
  return unmap.size == bytes ? 0 : -ENOENT;
}

// iommufd.

Result<std::shared_ptr<IoasSpace>> IoasSpace::Create(std::shared_ptr<Iommufd> iommufd) {
  vfio_abi::IoasAlloc alloc;
  const int error = -iommufd->calls->Ioctl(iommufd->fd, vfio_abi::kIoasAlloc, &alloc);
  if (error != 0) return ResourceExhausted("no address space of /dev/iommu: %s", strerror(error));
  return std::shared_ptr<IoasSpace>(new IoasSpace(std::move(iommufd), alloc.out_ioas_id));
}

IoasSpace::~IoasSpace() {
  vfio_abi::Destroy destroy;
  destroy.id = id_;
  calls_->Ioctl(iommufd_->fd, vfio_abi::kDestroy, &destroy);
}

Status IoasSpace::ReadRanges() {
  std::vector<vfio_abi::IovaRange> allowed(16);
  vfio_abi::IoasIovaRanges ask;
  ask.ioas_id = id_;
  int result = -EMSGSIZE;
  for (int attempt = 0; attempt < 4 && result == -EMSGSIZE; ++attempt) {
    allowed.resize(std::clamp<size_t>(ask.num_iovas, allowed.size(), 4096));
    ask.num_iovas = static_cast<uint32_t>(allowed.size());
    ask.allowed_iovas = reinterpret_cast<uintptr_t>(allowed.data());
    result = calls_->Ioctl(iommufd_->fd, vfio_abi::kIoasIovaRanges, &ask);
  }
  if (result != 0) return InternalError("IOMMU_IOAS_IOVA_RANGES: %s", strerror(-result));
  allowed.resize(std::min<size_t>(allowed.size(), ask.num_iovas));
  std::vector<IovaRange> ranges;
  for (const vfio_abi::IovaRange& range : allowed) ranges.push_back({range.start, range.last});
  SetRanges(std::move(ranges), ask.out_iova_alignment);
  return {};
}

int IoasSpace::MapPages(uint64_t host, uint64_t iova, uint64_t bytes, bool to_device,
                        bool from_device) {
  vfio_abi::IoasMap map;
  map.flags = vfio_abi::kMapFixedIova | (to_device ? vfio_abi::kMapReadable : 0) |
              (from_device ? vfio_abi::kMapWriteable : 0);
  map.ioas_id = id_;
  map.user_va = host;
  map.length = bytes;
  map.iova = iova;
  return calls_->Ioctl(iommufd_->fd, vfio_abi::kIoasMap, &map);
}

int IoasSpace::UnmapPages(uint64_t iova, uint64_t bytes) {
  vfio_abi::IoasUnmap unmap;
  unmap.ioas_id = id_;
  unmap.iova = iova;
  unmap.length = bytes;
  return calls_->Ioctl(iommufd_->fd, vfio_abi::kIoasUnmap, &unmap);
}

}  // namespace atollrt
