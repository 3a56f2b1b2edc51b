// SPDX-License-Identifier: Apache-2.0
#include "driver/vfio/vfio_function.h"

#include <linux/pci_regs.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <map>
#include <utility>

#include "driver/pcie/device_memory.h"
#include "driver/vfio/vfio_abi.h"
#include "runtime/base/log.h"

namespace atollrt {
namespace {

constexpr std::chrono::milliseconds kResetPause{10};
// A list of capabilities that is longer is none.
constexpr uint32_t kRegionInfoBytesMax = 1 << 16;

// What was stored before is seen by the device before what is stored to it behind: on x86 the order
// of stores does that, and the compiler has to be told.
inline void BarrierBeforeStore() {
#if defined(__aarch64__)
  asm volatile("dmb oshst" ::: "memory");
#elif defined(__x86_64__)
  asm volatile("" ::: "memory");
#else
  __sync_synchronize();
#endif
}

// What is loaded behind was stored by the device before it gave what was loaded before.
inline void BarrierAfterLoad() {
#if defined(__aarch64__)
  asm volatile("dmb oshld" ::: "memory");
#elif defined(__x86_64__)
  asm volatile("" ::: "memory");
#else
  __sync_synchronize();
#endif
}

uint64_t RoundUp(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

// A counter that the kernel raises, and that poll waits for.
class VfioFunction::EventFd {
 public:
  EventFd() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~EventFd() {
    if (fd_ >= 0) close(fd_);
  }
  EventFd(const EventFd&) = delete;
  EventFd& operator=(const EventFd&) = delete;

  int fd() const { return fd_; }
  void Raise() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof(one));
  }
  // Whether it was raised; it is not any more.
  bool Take() {
    uint64_t count = 0;
    return read(fd_, &count, sizeof(count)) == sizeof(count);
  }

 private:
  const int fd_;
};

struct VfioFunction::MappedMemory {
  // Ends one, if it has not ended yet.
  void Unmap(uint64_t iova) {
    const std::lock_guard lock(mutex);
    const auto found = pieces.find(iova);
    if (found == pieces.end()) return;
    space->Unmap(found->second, iova);
    pieces.erase(found);
  }
  void UnmapAll() {
    const std::lock_guard lock(mutex);
    for (const auto& [iova, memory] : pieces) space->Unmap(memory, iova);
    pieces.clear();
    space = nullptr;
  }

  std::mutex mutex;
  std::shared_ptr<IommuSpace> space;  // nullptr: the device is closed
  std::map<uint64_t, std::span<uint8_t>> pieces;
};

class VfioFunction::Mapping final : public DmaMapping {
 public:
  // `own` bytes at memory.data() go with the mapping.
  Mapping(std::shared_ptr<MappedMemory> mapped, std::span<uint8_t> memory, uint64_t iova,
          size_t own)
      : DmaMapping(memory, iova), mapped_(std::move(mapped)), own_bytes_(own) {}
  ~Mapping() override {
    mapped_->Unmap(iova());
    if (own_bytes_ > 0) munmap(bytes().data(), own_bytes_);
  }

 private:
  const std::shared_ptr<MappedMemory> mapped_;
  const size_t own_bytes_;
};

// The beginning.

Result<std::unique_ptr<PcieFunction>> VfioFunction::Create(Opened opened) {
  std::unique_ptr<VfioFunction> function(new VfioFunction(std::move(opened)));
  ATOLL_RETURN_IF_ERROR(function->Prepare());
  return std::unique_ptr<PcieFunction>(std::move(function));
}

VfioFunction::VfioFunction(Opened opened)
    : calls_(opened.calls),
      address_(std::move(opened.address)),
      fd_(opened.device),
      space_(std::move(opened.space)),
      tenancy_(std::move(opened.tenancy)),
      mapped_(std::make_shared<MappedMemory>()),
      wake_(std::make_unique<EventFd>()),
      asked_back_(std::make_unique<EventFd>()),
      failed_(std::make_unique<EventFd>()),
      stop_watching_(std::make_unique<EventFd>()) {
  mapped_->space = space_;
}

Status VfioFunction::Prepare() {
  for (const EventFd* event :
       {wake_.get(), asked_back_.get(), failed_.get(), stop_watching_.get()}) {
    if (event->fd() < 0) return ResourceExhausted("no eventfd: %s", strerror(errno));
  }
  vfio_device_info info = {};
  info.argsz = sizeof(info);
  if (const int error = -calls_->Ioctl(fd_, VFIO_DEVICE_GET_INFO, &info); error != 0) {
    return DeviceLost("pci:%s does not answer (VFIO_DEVICE_GET_INFO: %s)", address_.c_str(),
                      strerror(error));
  }
  if ((info.flags & VFIO_DEVICE_FLAGS_PCI) == 0) {
    return Unsupported("%s is no PCI device of VFIO", address_.c_str());
  }
  can_reset_ = (info.flags & VFIO_DEVICE_FLAGS_RESET) != 0;
  ATOLL_RETURN_IF_ERROR(ReadRegion(VFIO_PCI_CONFIG_REGION_INDEX, &config_, /*map=*/false));
  for (uint32_t bar = 0; bar < kBars; ++bar) {
    ATOLL_RETURN_IF_ERROR(ReadRegion(bar, &bars_[bar], /*map=*/true));
  }
  // MSI does, too, for a device that has no MSI-X.
  for (const uint32_t index : {VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_MSI_IRQ_INDEX}) {
    vfio_irq_info irq = {};
    irq.argsz = sizeof(irq);
    irq.index = index;
    if (calls_->Ioctl(fd_, VFIO_DEVICE_GET_IRQ_INFO, &irq) != 0 || irq.count == 0 ||
        (irq.flags & VFIO_IRQ_INFO_EVENTFD) == 0) {
      continue;
    }
    vector_index_ = index;
    vectors_there_ = irq.count;
    break;
  }
  events_.reserve(kVectorsMax);
  if (!SwitchCommand(PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER | PCI_COMMAND_INTX_DISABLE, 0)) {
    return DeviceLost("pci:%s does not answer in its configuration space", address_.c_str());
  }
  WatchForEnd();
  return {};
}

Status VfioFunction::ReadRegion(uint32_t index, Region* region, bool map) {
  vfio_region_info info = {};
  info.argsz = sizeof(info);
  info.index = index;
  if (calls_->Ioctl(fd_, VFIO_DEVICE_GET_REGION_INFO, &info) != 0) {
    if (!map) return DeviceLost("pci:%s has no configuration space", address_.c_str());
    return {};  // no such BAR
  }
  region->bytes = info.size;
  region->position = info.offset;
  if (!map || info.size == 0 || (info.flags & VFIO_REGION_INFO_FLAG_MMAP) == 0) return {};
  // Kernels that keep the MSI-X table from being mapped say which parts remain; the others name it
  // in a capability of its own, and everything may be mapped.
  std::vector<uint64_t> room;
  if ((info.flags & VFIO_REGION_INFO_FLAG_CAPS) != 0 && info.argsz > sizeof(info) &&
      info.argsz <= kRegionInfoBytesMax) {
    room.resize((info.argsz + 7) / 8);
    memcpy(room.data(), &info, sizeof(info));
    if (calls_->Ioctl(fd_, VFIO_DEVICE_GET_REGION_INFO, room.data()) != 0) room.clear();
  }
  bool sparse = false;
  const auto* bytes = reinterpret_cast<const uint8_t*>(room.data());
  const size_t size = room.size() * 8;
  if (!room.empty()) memcpy(&info, bytes, sizeof(info));
  uint32_t offset = room.empty() ? 0 : info.cap_offset;
  for (int i = 0; i < 64 && offset >= sizeof(info); ++i) {
    vfio_info_cap_header header;
    if (offset + sizeof(header) > size) break;
    memcpy(&header, bytes + offset, sizeof(header));
    vfio_region_info_cap_sparse_mmap list;
    if (header.id == VFIO_REGION_INFO_CAP_SPARSE_MMAP && offset + sizeof(list) <= size) {
      sparse = true;
      memcpy(&list, bytes + offset, sizeof(list));
      vfio_region_sparse_mmap_area area;
      const size_t count =
          std::min<size_t>(list.nr_areas, (size - offset - sizeof(list)) / sizeof(area));
      for (size_t k = 0; k < count; ++k) {
        memcpy(&area, bytes + offset + sizeof(list) + k * sizeof(area), sizeof(area));
        if (area.offset <= region->bytes && area.size <= region->bytes - area.offset) {
          MapWindow(region, area.offset, area.size);
        }
      }
    }
    offset = header.next;
  }
  if (!sparse) MapWindow(region, 0, region->bytes);
  return {};
}

// What cannot be mapped is reached by calls.
void VfioFunction::MapWindow(Region* region, uint64_t offset, uint64_t bytes) {
  if (bytes == 0 || offset % calls_->page_bytes() != 0) return;
  void* memory = calls_->MapFile(fd_, region->position + offset, bytes, true, true);
  if (memory != nullptr) {
    region->windows.push_back({offset, bytes, static_cast<uint8_t*>(memory)});
  }
}

bool VfioFunction::Connect(uint32_t index, const EventFd& event) {
  vfio_irq_info irq = {};
  irq.argsz = sizeof(irq);
  irq.index = index;
  if (calls_->Ioctl(fd_, VFIO_DEVICE_GET_IRQ_INFO, &irq) != 0 || irq.count == 0) return false;
  const int number = event.fd();
  return SetIrqs(index, {&number, 1}) == 0;
}

void VfioFunction::WatchForEnd() {
  const bool hears_requests = Connect(VFIO_PCI_REQ_IRQ_INDEX, *asked_back_);
  const bool hears_errors = Connect(VFIO_PCI_ERR_IRQ_INDEX, *failed_);
  if (hears_requests || hears_errors) watcher_ = std::thread([this] { Watch(); });
}

void VfioFunction::Watch() {
  pollfd events[] = {{stop_watching_->fd(), POLLIN, 0},
                     {asked_back_->fd(), POLLIN, 0},
                     {failed_->fd(), POLLIN, 0}};
  while (poll(events, std::size(events), -1) < 0) {  // interrupted
  }
  if (events[0].revents != 0) return;
  Lose(events[1].revents != 0 ? "the system wants it back"
                              : "the bus reports an error that it cannot correct");
}

// The end.

VfioFunction::~VfioFunction() {
  if (watcher_.joinable()) {
    stop_watching_->Raise();
    watcher_.join();
  }
  Close();
  for (const Region& bar : bars_) {
    for (const Window& window : bar.windows) munmap(window.memory, window.bytes);
  }
}

void VfioFunction::Lose(const char* reason) {
  {
    const std::lock_guard lock(loss_mutex_);
    loss_ = reason;
  }
  lost_.store(true, std::memory_order_release);
  wake_->Raise();
  Log(LogSeverity::kWarning, "pci:%s is given back: %s", address_.c_str(), reason);
  Close();
}

void VfioFunction::TakeDmaAway() {
  if (SwitchCommand(0, PCI_COMMAND_MASTER)) return;
  calls_->Ioctl(fd_, VFIO_DEVICE_RESET, nullptr);
}

void VfioFunction::Close() {
  const std::lock_guard lock(fd_mutex_);
  if (fd_ < 0) return;
  TakeDmaAway();
  DisableInterrupts();
  mapped_->UnmapAll();
  // Loads and stores may be under way, and the device's file counts as open while it is mapped:
  // memory that nobody looks at takes the place of registers.
  for (const Region& bar : bars_) {
    for (const Window& window : bar.windows) {
      (void)mmap(window.memory, window.bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    }
  }
  calls_->Close(std::exchange(fd_, -1));
  tenancy_ = nullptr;
  space_ = nullptr;
}

Status VfioFunction::Gone() {
  const std::lock_guard lock(loss_mutex_);
  return DeviceLost("pci:%s is gone: %s", address_.c_str(),
                    loss_.empty() ? "it does not answer" : loss_.c_str());
}

// Registers.

// Where it is mapped, or nullptr.
Result<uint8_t*> VfioFunction::Find(uint32_t bar, uint64_t offset, size_t width) {
  if (bar >= kBars || offset % width != 0 || bars_[bar].bytes < width ||
      offset > bars_[bar].bytes - width) {
    return InvalidArgument("BAR %u of pci:%s has %llu bytes; %zu at %llu are none of them", bar,
                           address_.c_str(),
                           bar < kBars ? static_cast<unsigned long long>(bars_[bar].bytes) : 0ull,
                           width, static_cast<unsigned long long>(offset));
  }
  if (lost_.load(std::memory_order_acquire)) return Gone();
  for (const Window& window : bars_[bar].windows) {
    if (offset >= window.offset && offset + width <= window.offset + window.bytes) {
      return window.memory + (offset - window.offset);
    }
  }
  return nullptr;
}

template <typename Word>
Result<Word> VfioFunction::Read(uint32_t bar, uint64_t offset) {
  ATOLL_ASSIGN_OR_RETURN(uint8_t* const mapped, Find(bar, offset, sizeof(Word)));
  Word value = 0;
  if (mapped != nullptr) {
    value = LoadRegister<Word>(mapped);
    BarrierAfterLoad();
    if (lost_.load(std::memory_order_acquire)) return Gone();
    return value;
  }
  const std::shared_lock lock(fd_mutex_);
  if (fd_ < 0 || calls_->Read(fd_, &value, sizeof(value), bars_[bar].position + offset) !=
                     static_cast<ssize_t>(sizeof(value))) {
    return Gone();
  }
  BarrierAfterLoad();
  return value;
}

template <typename Word>
Status VfioFunction::Write(uint32_t bar, uint64_t offset, Word value) {
  ATOLL_ASSIGN_OR_RETURN(uint8_t* const mapped, Find(bar, offset, sizeof(Word)));
  BarrierBeforeStore();
  if (mapped != nullptr) {
    StoreRegister(mapped, value);
    return lost_.load(std::memory_order_acquire) ? Gone() : Status();
  }
  const std::shared_lock lock(fd_mutex_);
  if (fd_ < 0 || calls_->Write(fd_, &value, sizeof(value), bars_[bar].position + offset) !=
                     static_cast<ssize_t>(sizeof(value))) {
    return Gone();
  }
  return {};
}

Result<uint32_t> VfioFunction::Read32(uint32_t bar, uint64_t offset) {
  return Read<uint32_t>(bar, offset);
}
Result<uint64_t> VfioFunction::Read64(uint32_t bar, uint64_t offset) {
  return Read<uint64_t>(bar, offset);
}
Status VfioFunction::Write32(uint32_t bar, uint64_t offset, uint32_t value) {
  return Write(bar, offset, value);
}
Status VfioFunction::Write64(uint32_t bar, uint64_t offset, uint64_t value) {
  return Write(bar, offset, value);
}

// Configuration space.

template <typename Word>
bool VfioFunction::ReadConfig(uint64_t offset, Word* value) {
  return fd_ >= 0 && calls_->Read(fd_, value, sizeof(*value), config_.position + offset) ==
                         static_cast<ssize_t>(sizeof(*value));
}

template <typename Word>
bool VfioFunction::WriteConfig(uint64_t offset, Word value) {
  return fd_ >= 0 && calls_->Write(fd_, &value, sizeof(value), config_.position + offset) ==
                         static_cast<ssize_t>(sizeof(value));
}

bool VfioFunction::SwitchCommand(uint16_t on, uint16_t off) {
  uint16_t command = 0;
  return ReadConfig(PCI_COMMAND, &command) &&
         WriteConfig(PCI_COMMAND, static_cast<uint16_t>((command & ~off) | on));
}

bool VfioFunction::Answers() {
  // The ids are those that VFIO remembers; class and revision are read from the device.
  uint32_t ids = 0, revision = 0;
  return !lost_.load(std::memory_order_acquire) && ReadConfig(PCI_VENDOR_ID, &ids) &&
         ReadConfig(PCI_CLASS_REVISION, &revision) && ids != UINT32_MAX && revision != UINT32_MAX;
}

bool VfioFunction::is_present() {
  const std::shared_lock lock(fd_mutex_);
  return Answers();
}

// Memory.

Result<std::unique_ptr<DmaMapping>> VfioFunction::Map(std::span<uint8_t> memory,
                                                      DmaDirection direction) {
  const std::lock_guard lock(mapped_->mutex);
  if (mapped_->space == nullptr) return Gone();
  ATOLL_ASSIGN_OR_RETURN(const uint64_t iova, mapped_->space->Map(memory, direction));
  mapped_->pieces.emplace(iova, memory);
  return std::unique_ptr<DmaMapping>(std::make_unique<Mapping>(mapped_, memory, iova, 0));
}

Result<std::unique_ptr<DmaMapping>> VfioFunction::Allocate(uint64_t size_bytes,
                                                           DmaDirection direction) {
  if (size_bytes == 0 || size_bytes > PTRDIFF_MAX / 2) {
    return InvalidArgument("%llu bytes of memory for a device",
                           static_cast<unsigned long long>(size_bytes));
  }
  const size_t own = RoundUp(size_bytes, std::max<uint64_t>(calls_->page_bytes(), kDmaPageBytes));
  void* memory = mmap(nullptr, own, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return ResourceExhausted("no memory for %zu bytes of a device's", own);
  }
  // A child of this process would take the pages with it, or get copies of them.
  madvise(memory, own, MADV_DONTFORK);
  const std::span<uint8_t> bytes(static_cast<uint8_t*>(memory), size_bytes);
  const std::lock_guard lock(mapped_->mutex);
  const Result<uint64_t> iova =
      mapped_->space != nullptr ? mapped_->space->Map(bytes, direction) : Result<uint64_t>(Gone());
  if (!iova.ok()) {
    munmap(memory, own);
    return iova.status();
  }
  mapped_->pieces.emplace(*iova, bytes);
  return std::unique_ptr<DmaMapping>(std::make_unique<Mapping>(mapped_, bytes, *iova, own));
}

// Interrupts.

int VfioFunction::SetIrqs(uint32_t index, std::span<const int> events) {
  // The numbers follow the head.
  std::vector<uint64_t> room((sizeof(vfio_irq_set) + events.size_bytes() + 7) / 8);
  vfio_irq_set head = {};
  head.argsz = static_cast<uint32_t>(sizeof(head) + events.size_bytes());
  head.flags = VFIO_IRQ_SET_ACTION_TRIGGER |
               (events.empty() ? VFIO_IRQ_SET_DATA_NONE : VFIO_IRQ_SET_DATA_EVENTFD);
  head.index = index;
  head.count = static_cast<uint32_t>(events.size());
  memcpy(room.data(), &head, sizeof(head));
  if (!events.empty()) {
    memcpy(reinterpret_cast<uint8_t*>(room.data()) + sizeof(head), events.data(),
           events.size_bytes());
  }
  return calls_->Ioctl(fd_, VFIO_DEVICE_SET_IRQS, room.data());
}

void VfioFunction::DisableInterrupts() {
  if (vectors_.exchange(0) > 0) SetIrqs(vector_index_, {});
}

Status VfioFunction::EnableInterrupts(uint32_t count) {
  const std::lock_guard lock(fd_mutex_);
  if (fd_ < 0) return Gone();
  DisableInterrupts();
  if (count > std::min(vectors_there_, kVectorsMax)) {
    return Unsupported(
        "pci:%s has %u MSI-X vectors and %u are needed; where the system hides them, look at 'sudo "
        "lspci -vv -s %s' and at 'pci=nomsi' in /proc/cmdline",
        address_.c_str(), vectors_there_, count, address_.c_str());
  }
  while (events_.size() < count) {
    auto event = std::make_unique<EventFd>();
    if (event->fd() < 0) {
      return ResourceExhausted("no eventfd for an interrupt: %s; raise 'ulimit -n'",
                               strerror(errno));
    }
    events_.push_back(std::move(event));
  }
  for (const auto& event : events_) event->Take();
  if (count == 0) return {};
  std::array<int, kVectorsMax> numbers;
  for (uint32_t i = 0; i < count; ++i) numbers[i] = events_[i]->fd();
  const int result = SetIrqs(vector_index_, {numbers.data(), count});
  if (result != 0) {
    SetIrqs(vector_index_, {});
    return Unsupported(
        "the system refuses %u MSI-X vectors of pci:%s (%s); without them the device cannot be "
        "used: see 'sudo dmesg', and 'pci=nomsi' in /proc/cmdline",
        count, address_.c_str(),
        result > 0 ? Format("it has %d left", result).c_str() : strerror(-result));
  }
  vectors_.store(count, std::memory_order_release);
  return {};
}

Result<uint64_t> VfioFunction::AwaitInterrupts(uint64_t vectors, Deadline deadline) {
  for (;;) {
    if (lost_.load(std::memory_order_acquire)) return Gone();
    if (cancelled_.load(std::memory_order_acquire)) {
      return Status(StatusCode::kCancelled, "the wait for an interrupt was cancelled");
    }
    std::array<pollfd, kVectorsMax + 1> polled;
    std::array<uint8_t, kVectorsMax + 1> numbers;
    polled[0] = {wake_->fd(), POLLIN, 0};
    size_t count = 1;
    const uint32_t connected = vectors_.load(std::memory_order_acquire);
    for (uint32_t i = 0; i < connected; ++i) {
      if ((vectors >> i & 1) == 0) continue;
      numbers[count] = static_cast<uint8_t>(i);
      polled[count++] = {events_[i]->fd(), POLLIN, 0};
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    const int wait_ms = static_cast<int>(std::clamp<int64_t>(left.count(), 0, INT_MAX));
    const int ready = poll(polled.data(), count, wait_ms);
    uint64_t raised = 0;
    for (size_t i = 1; ready > 0 && polled[0].revents == 0 && i < count; ++i) {
      if (polled[i].revents != 0 && events_[numbers[i]]->Take())
        raised |= uint64_t{1} << numbers[i];
    }
    if (raised != 0) {
      BarrierAfterLoad();
      return raised;
    }
    if (polled[0].revents != 0) {
      // Raised behind what it was raised for; whoever raises it has set a flag before.
      if (!lost_.load(std::memory_order_acquire) && !cancelled_.load(std::memory_order_acquire)) {
        wake_->Take();
      }
    } else if (Clock::now() >= deadline) {
      return Timeout("no interrupt of pci:%s", address_.c_str());
    }
  }
}

void VfioFunction::Cancel() {
  cancelled_.store(true, std::memory_order_release);
  wake_->Raise();
}

Status VfioFunction::Reset(Deadline deadline) {
  const std::lock_guard lock(fd_mutex_);
  if (fd_ < 0) return Gone();
  if (!can_reset_) return Unsupported("pci:%s knows no reset of its own", address_.c_str());
  // The kernel would wait for more than a minute until it comes back, and keep the system from
  // taking it out in the meantime.
  if (!Answers()) return Gone();
  SwitchCommand(0, PCI_COMMAND_MASTER);
  DisableInterrupts();
  for (;;) {
    const int error = -calls_->Ioctl(fd_, VFIO_DEVICE_RESET, nullptr);
    if (error == 0) break;
    if (error != EAGAIN && error != EBUSY) {
      return DeviceLost("pci:%s cannot be reset: %s", address_.c_str(), strerror(error));
    }
    // Somebody in the kernel is at it.
    if (Clock::now() >= deadline) {
      return Timeout("pci:%s could not be reset in time: %s", address_.c_str(), strerror(error));
    }
    std::this_thread::sleep_for(kResetPause);
  }
  if (!SwitchCommand(PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER | PCI_COMMAND_INTX_DISABLE, 0)) {
    return Gone();
  }
  for (const auto& event : events_) event->Take();
  if (!lost_.load(std::memory_order_acquire)) {
    wake_->Take();
    cancelled_.store(false, std::memory_order_release);
  }
  return {};
}

}  // namespace atollrt
