// SPDX-License-Identifier: Apache-2.0
#include "driver/coral/apex_link.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <thread>
#include <utility>

#include "atoll/check.h"
#include "runtime/base/log.h"

namespace atollrt {
namespace {

using coral::Register64;

constexpr uint64_t kRegisterPages[] = {0x40000, 0x44000, 0x48000};
constexpr uint64_t kCoherentBytes = 0x4000;  // what Google's driver asks for

// The interface of the modules gasket and apex.
struct PageTableCall {
  uint64_t table = 0;
  uint64_t size = 0;  // in bytes, or entries
  uint64_t host = 0;
  uint64_t device = 0;
};
struct MapCall {
  PageTableCall pages;
  uint32_t flags = 0;
  uint32_t unused = 0;
};
struct EventCall {
  uint64_t vector = 0;
  uint64_t event = 0;
};
struct CoherentCall {
  uint64_t table = 0;
  uint64_t enable = 0;
  uint64_t size = 0;
  uint64_t offset = 0;  // out: for mmap
};
struct GateCall {
  uint64_t enable = 0;
  uint64_t force_idle = 0;
};
constexpr unsigned long kReset = _IO(0xDC, 0);
constexpr unsigned long kSetEvent = _IOW(0xDC, 1, EventCall);
constexpr unsigned long kPartition = _IOW(0xDC, 7, PageTableCall);
constexpr unsigned long kMap = _IOW(0xDC, 8, PageTableCall);
constexpr unsigned long kUnmap = _IOW(0xDC, 9, PageTableCall);
constexpr unsigned long kCoherent = _IOWR(0xDC, 11, CoherentCall);
constexpr unsigned long kMapWithFlags = _IOW(0xDC, 12, MapCall);
constexpr unsigned long kGateClock = _IOW(0x7F, 0, GateCall);
constexpr unsigned long kPerformance = _IOW(0x7F, 1, uint32_t);
static_assert(kMapWithFlags == 0x4028DC0C && kCoherent == 0xC020DC0B && kPerformance == 0x40047F01);

// The direction is two bits from bit 1 on.
uint32_t FlagsOf(DmaDirection direction) {
  switch (direction) {
    case DmaDirection::kToDevice:
      return 1 << 1;
    case DmaDirection::kFromDevice:
      return 2 << 1;
    case DmaDirection::kBoth:
      break;
  }
  return 0;
}

// Devices on PCIe see memory in the order of the program, and the program what they wrote before
// they said so: stores to memory before one to a register, and loads after one.
void OrderStores() {
#if defined(__aarch64__)
  asm volatile("dmb oshst" ::: "memory");
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}
void OrderLoads() {
#if defined(__aarch64__)
  asm volatile("dmb oshld" ::: "memory");
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace

class CoralApexLink::File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() { close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return descriptor_; }

 private:
  const int descriptor_;
};

// Pages of a file's, or of nobody else's.
class CoralApexLink::Pages {
 public:
  // nullptr, and errno, if there are none.
  static std::unique_ptr<Pages> Create(size_t bytes, const File* file, uint64_t offset) {
    const int flags = file != nullptr ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    void* const begin = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags,
                             file != nullptr ? file->get() : -1, static_cast<off_t>(offset));
    if (begin == MAP_FAILED) return nullptr;
    // After a fork the pages stay with the parent, which has told the chip where they are.
    if (file == nullptr) (void)madvise(begin, bytes, MADV_DONTFORK);
    return std::unique_ptr<Pages>(new Pages({static_cast<uint8_t*>(begin), bytes}));
  }
  ~Pages() { munmap(bytes_.data(), bytes_.size()); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::span<uint8_t> bytes() const { return bytes_; }

 private:
  explicit Pages(std::span<uint8_t> bytes) : bytes_(bytes) {}
  const std::span<uint8_t> bytes_;
};

class CoralApexLink::Memory final : public CoralMemory {
 public:
  // `own`, if it is not nullptr, are the pages of `memory`.
  Memory(CoralApexLink* link, std::span<uint8_t> memory, uint64_t base, std::unique_ptr<Pages> own,
         DmaDirection direction)
      : CoralMemory(memory, base + Host(memory) % kCoralPageBytes),
        link_(link),
        own_(std::move(own)),
        direction_(direction) {}
  ~Memory() override {
    const std::lock_guard lock(link_->mutex_);
    std::erase(link_->mapped_, this);
    // Addresses that the modules do not give up are not given out again.
    if (Unmap().ok()) link_->space_.Give(CoralPageOf(address()), pages());
  }

  Status GiveToChip() override {
    if (link_->sees_caches_) return {};
    const std::lock_guard lock(link_->mutex_);
    ATOLL_RETURN_IF_ERROR(Unmap());
    return Map();
  }
  Status TakeBack() override {
    if (link_->sees_caches_) return {};
    const std::lock_guard lock(link_->mutex_);
    return Unmap();
  }

  // With the link's mutex held. A node that is closed has nothing mapped.
  Status Map() {
    if (!link_->is_open_) return {};
    ATOLL_RETURN_IF_ERROR(
        link_->MapPages(CoralPageOf(Host(bytes())), CoralPageOf(address()), pages(), direction_));
    is_mapped_ = true;
    return {};
  }
  Status Unmap() {
    if (!link_->is_open_ || !is_mapped_) return {};
    is_mapped_ = false;
    return link_->UnmapPages(CoralPageOf(address()), pages());
  }
  void ForgetMapped() { is_mapped_ = false; }
  uint64_t pages() const { return CoralPagesOf(Host(bytes()), bytes().size()); }

 private:
  static uint64_t Host(std::span<uint8_t> memory) {
    return reinterpret_cast<uintptr_t>(memory.data());
  }

  CoralApexLink* const link_;
  const std::unique_ptr<Pages> own_;
  const DmaDirection direction_;
  bool is_mapped_ = false;
};

CoralApexLink::CoralApexLink(std::string node, CoralPerformance performance, NowFunction now,
                             std::string name, bool sees_caches)
    : node_(std::move(node)),
      performance_(performance),
      now_(std::move(now)),
      name_(std::move(name)),
      sees_caches_(sees_caches) {}

CoralApexLink::~CoralApexLink() {
  ATOLL_CHECK(mapped_.empty());
  Close();
}

Status CoralApexLink::Call(unsigned long request, void* argument, const char* what) const {
  if (ioctl(file_->get(), request, argument) == 0) return {};
  const int error = errno;
  const std::string text = Format("the kernel module does not %s: %s", what, strerror(error));
  switch (error) {
    case ENOMEM:
      return Status(StatusCode::kResourceExhausted, text);
    case EPERM:
    case ENODEV:
    case EIO:
      return Status(StatusCode::kDeviceLost, text + " (a module that has lost its chip says so)");
    default:
      return Status(StatusCode::kUnsupported, text);
  }
}

// The node.

Status CoralApexLink::Open() {
  const int descriptor = open(node_.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) {
    const int error = errno;
    switch (error) {
      case ENOENT:
      case ENXIO:
      case ENODEV:
        return NotFound(
            "there is no %s: the kernel modules gasket and apex are not loaded, or the device is "
            "gone; 'atoll doctor' says which, --device pci drives a Coral without them, by VFIO; "
            "or use --device emu for the emulated one",
            node_.c_str());
      case EACCES:
        return Status(StatusCode::kPermissionDenied,
                      "this user may not open it: add the user to the group of the node, mostly "
                      "'apex', and log in again");
      case EPERM:
      case EBUSY:
        return Status(StatusCode::kDeviceBusy, "another process has it open; end that first");
      case ETIMEDOUT:
        return Timeout("the kernel module cannot reset the chip");
      default:
        return DeviceLost("it cannot be opened: %s", strerror(error));
    }
  }
  auto file = std::make_unique<File>(descriptor);
  for (size_t i = 0; i < std::size(kRegisterPages); ++i) {
    registers_[i] = Pages::Create(kCoralPageBytes, file.get(), kRegisterPages[i]);
    if (registers_[i] == nullptr) {
      return DeviceLost("its registers cannot be mapped: %s", strerror(errno));
    }
  }
  const std::lock_guard lock(mutex_);
  file_ = std::move(file);
  return {};
}

// With the last descriptor the modules reset the chip, and only then let go of what was mapped.
void CoralApexLink::Close() {
  const std::lock_guard lock(mutex_);
  is_open_ = false;
  queue_ = nullptr;
  for (auto& page : registers_) page = nullptr;
  file_ = nullptr;
  for (Memory* const memory : mapped_) memory->ForgetMapped();
}

Status CoralApexLink::ConnectInterrupts() {
  for (uint32_t vector = 0; vector < kCoralVectors; ++vector) {
    const int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (event < 0) return ResourceExhausted("no eventfd for interrupts: %s", strerror(errno));
    events_[vector] = std::make_unique<File>(event);
    EventCall call{.vector = vector, .event = static_cast<uint64_t>(event)};
    ATOLL_RETURN_IF_ERROR(Call(kSetEvent, &call, "connect its interrupts"));
  }
  return {};
}

Status CoralApexLink::PrepareQueue() {
  CoherentCall call{.enable = 1, .size = kCoherentBytes};
  ATOLL_RETURN_IF_ERROR(Call(kCoherent, &call, "give memory for its queue"));
  queue_ = Pages::Create(kCoherentBytes, file_.get(), call.offset);
  if (queue_ == nullptr) {
    return ResourceExhausted("its queue cannot be mapped: %s", strerror(errno));
  }
  std::fill(queue_->bytes().begin(), queue_->bytes().end(), uint8_t{0});
  const std::lock_guard lock(mutex_);
  return MapPages(reinterpret_cast<uintptr_t>(queue_->bytes().data()), kCoralQueueAddress,
                  kCoralQueueBytes / kCoralPageBytes, DmaDirection::kBoth);
}

Status CoralApexLink::StartOnce() {
  ATOLL_RETURN_IF_ERROR(Open());
  GateCall gate;
  ATOLL_RETURN_IF_ERROR(Call(kGateClock, &gate, "switch its clock on"));
  auto level = static_cast<uint32_t>(performance_);
  if (const Status status = Call(kPerformance, &level, "set its clock"); !status.ok()) {
    Log(LogSeverity::kWarning, "device %s: %s", name_.c_str(), status.message().c_str());
  }
  PageTableCall partition{.size = kCoralSimpleEntries};
  ATOLL_RETURN_IF_ERROR(Call(kPartition, &partition, "split its page table"));
  ATOLL_RETURN_IF_ERROR(ConnectInterrupts());
  ATOLL_RETURN_IF_ERROR(PrepareQueue());
  const std::lock_guard lock(mutex_);
  is_open_ = true;
  for (Memory* const memory : mapped_) {
    ATOLL_RETURN_IF_ERROR(memory->Map());
  }
  return {};
}

Status CoralApexLink::Start(Deadline deadline) {
  ATOLL_RETURN_IF_ERROR(Stop(deadline));
  Status status = StartOnce();
  if (!status.ok()) Close();
  return status;
}

// The node alone would not do: a child of this process may still have it open.
Status CoralApexLink::Stop(Deadline) {
  // A chip that is gone does nothing, and is not worth the time that the modules would wait for it.
  if (file_ != nullptr && Read(Register64::kDescriptorBytes).ok()) {
    (void)Call(kReset, nullptr, "reset").ok();
  }
  Close();
  return {};
}

// Registers.

Result<volatile uint64_t*> CoralApexLink::RegisterAt(Register64 address) const {
  const auto place = static_cast<uint64_t>(address);
  const auto page =
      std::find(std::begin(kRegisterPages), std::end(kRegisterPages), CoralPageOf(place));
  ATOLL_CHECK(page != std::end(kRegisterPages));
  const auto& pages = registers_[static_cast<size_t>(page - std::begin(kRegisterPages))];
  if (pages == nullptr) return DeviceLost("it was closed after an error");
  return reinterpret_cast<volatile uint64_t*>(pages->bytes().data() + place % kCoralPageBytes);
}

Result<uint64_t> CoralApexLink::Read(Register64 address) {
  ATOLL_ASSIGN_OR_RETURN(const volatile uint64_t* const place, RegisterAt(address));
  const uint64_t value = *place;
  OrderLoads();
  if (value == ~uint64_t{0}) {
    return DeviceLost("its registers read as ones: it is no longer on the bus");
  }
  return value;
}

Status CoralApexLink::Write(Register64 address, uint64_t value) {
  ATOLL_ASSIGN_OR_RETURN(volatile uint64_t* const place, RegisterAt(address));
  OrderStores();
  *place = value;
  return {};
}

// Memory.

CoralPcieLink::QueueMemory CoralApexLink::queue_memory() const {
  return {queue_->bytes().first(kCoralQueueBytes), kCoralQueueAddress};
}

// Older modules know no directions.
Status CoralApexLink::MapPages(uint64_t host, uint64_t address, uint64_t pages,
                               DmaDirection direction) const {
  MapCall call{.pages = {.size = pages * kCoralPageBytes, .host = host, .device = address},
               .flags = FlagsOf(direction)};
  Status status = Call(kMapWithFlags, &call, "map memory");
  if (status.ok() || status.code() == StatusCode::kDeviceLost) return status;
  if (Call(kMap, &call.pages, "map memory").ok()) return {};
  return status;
}

Status CoralApexLink::UnmapPages(uint64_t address, uint64_t pages) const {
  PageTableCall call{.size = pages * kCoralPageBytes, .device = address};
  return Call(kUnmap, &call, "unmap memory");
}

Result<std::unique_ptr<CoralMemory>> CoralApexLink::Add(std::span<uint8_t> memory,
                                                        std::unique_ptr<Pages> pages,
                                                        DmaDirection direction) {
  const uint64_t count = CoralPagesOf(reinterpret_cast<uintptr_t>(memory.data()), memory.size());
  std::unique_ptr<Memory> added;
  Status status;
  {
    const std::lock_guard lock(mutex_);
    ATOLL_ASSIGN_OR_RETURN(const uint64_t base, space_.Take(count));
    added = std::make_unique<Memory>(this, memory, base, std::move(pages), direction);
    mapped_.push_back(added.get());
    status = added->Map();  // with the next Start, if the node is closed
  }
  if (!status.ok()) return status;
  return std::unique_ptr<CoralMemory>(std::move(added));
}

Result<std::unique_ptr<CoralMemory>> CoralApexLink::Allocate(uint64_t bytes,
                                                             DmaDirection direction) {
  auto pages = Pages::Create(CoralPagesOf(0, bytes) * kCoralPageBytes, nullptr, 0);
  if (pages == nullptr) {
    return ResourceExhausted("no memory for %llu bytes that the device is to reach",
                             static_cast<unsigned long long>(bytes));
  }
  const std::span<uint8_t> memory = pages->bytes().first(bytes);
  return Add(memory, std::move(pages), direction);
}

Result<std::unique_ptr<CoralMemory>> CoralApexLink::Map(std::span<uint8_t> memory,
                                                        DmaDirection direction) {
  if (!sees_caches_) {
    return Unsupported("devices on PCIe do not look into this CPU's caches: everything is copied");
  }
  return Add(memory, nullptr, direction);
}

bool CoralApexLink::IsMapped(uint64_t address) {
  const std::lock_guard lock(mutex_);
  return std::any_of(mapped_.begin(), mapped_.end(), [address](const Memory* memory) {
    return CoralPageOf(address) - CoralPageOf(memory->address()) <
           memory->pages() * kCoralPageBytes;
  });
}

// Interrupts.

Result<uint64_t> CoralApexLink::AwaitInterrupts(uint64_t vectors, Deadline deadline) {
  std::array<pollfd, kCoralVectors> events;
  for (uint32_t i = 0; i < kCoralVectors; ++i) {
    const bool is_wanted = (vectors >> i & 1) != 0 && events_[i] != nullptr;
    events[i] = {.fd = is_wanted ? events_[i]->get() : -1, .events = POLLIN, .revents = 0};
  }
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now_()).count();
    const int count = poll(events.data(), events.size(),
                           static_cast<int>(std::clamp<int64_t>(left, 0, 3600 * 1000)));
    if (count < 0 && errno != EINTR) {
      return Status(StatusCode::kInternal, Format("poll: %s", strerror(errno)));
    }
    uint64_t raised = 0;
    for (uint32_t i = 0; i < kCoralVectors && count > 0; ++i) {
      uint64_t times = 0;
      if ((events[i].revents & POLLIN) != 0 &&
          read(events[i].fd, &times, sizeof(times)) == sizeof(times)) {
        raised |= uint64_t{1} << i;
      }
    }
    OrderLoads();
    if (raised != 0) return raised;
    if (now_() >= deadline) return Timeout("no interrupt");
  }
}

}  // namespace atollrt
