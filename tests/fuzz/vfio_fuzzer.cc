// SPDX-License-Identifier: Apache-2.0
//
// Whatever Linux's VFIO may say of a function: its regions, the capabilities behind them, sizes of
// BARs, interrupts, the configuration space, errors of every call. The function is opened or
// refused, and answers every call within what was mapped.
#include <linux/vfio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "atoll/check.h"
#include "driver/vfio/iommu_space.h"
#include "driver/vfio/system_calls.h"
#include "driver/vfio/vfio_function.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/requests.h"
#include "tests/support/allocation_meter.h"

namespace atollrt::vfio_fuzzer {

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kMapMax = size_t{1} << 20;  // at once
constexpr int kMapsMax = 64;

class HostileKernel final : public SystemCalls {
 public:
  explicit HostileKernel(Input* input) : input_(*input) {}

  int Open(const char*) override { return 5; }
  void Close(int) override {}
  int Ioctl(int, unsigned long request, void* argument) override {
    const std::lock_guard lock(mutex_);
    if (input_.Byte() >= 0xF0) return -EIO;
    switch (request) {
      case VFIO_DEVICE_GET_INFO: {
        auto* const info = static_cast<vfio_device_info*>(argument);
        info->flags = VFIO_DEVICE_FLAGS_PCI | input_.Byte();
        info->num_regions = input_.Byte();
        info->num_irqs = input_.Byte();
        return 0;
      }
      case VFIO_DEVICE_GET_REGION_INFO:
        FillRegion(static_cast<vfio_region_info*>(argument));
        return 0;
      case VFIO_DEVICE_GET_IRQ_INFO: {
        auto* const info = static_cast<vfio_irq_info*>(argument);
        info->flags = input_.Byte();
        info->count = input_.Byte() < 0xF0 ? input_.Byte() : input_.Word();
        return 0;
      }
      case VFIO_DEVICE_SET_IRQS: {
        const auto* const irqs = static_cast<const vfio_irq_set*>(argument);
        if ((irqs->flags & VFIO_IRQ_SET_DATA_EVENTFD) == 0) return 0;
        ATOLL_CHECK(irqs->argsz == sizeof(*irqs) + irqs->count * sizeof(int32_t));
        for (uint32_t i = 0; i < irqs->count; ++i) {
          int32_t event = -1;
          memcpy(&event, irqs->data + i * sizeof(event), sizeof(event));
          const uint64_t one = 1;
          if (event >= 0 && irqs->index <= VFIO_PCI_MSIX_IRQ_INDEX && input_.Byte() % 2 == 1) {
            (void)!write(event, &one, sizeof(one));
          }
        }
        return 0;
      }
      default:
        return 0;
    }
  }
  ssize_t Read(int, void* data, size_t bytes, uint64_t) override {
    const std::lock_guard lock(mutex_);
    const uint8_t act = input_.Byte();
    if (act >= 0xF0) return act % 2 == 0 ? -EIO : static_cast<ssize_t>(bytes / 2);
    input_.Fill({static_cast<uint8_t*>(data), bytes});
    return static_cast<ssize_t>(bytes);
  }
  ssize_t Write(int, const void*, size_t bytes, uint64_t) override {
    const std::lock_guard lock(mutex_);
    return input_.Byte() >= 0xF0 ? -EIO : static_cast<ssize_t>(bytes);
  }
  void* MapFile(int, uint64_t, size_t bytes, bool, bool) override {
    const std::lock_guard lock(mutex_);
    if (input_.Byte() >= 0xF0 || bytes == 0 || bytes > kMapMax || ++maps_ > kMapsMax) {
      return nullptr;
    }
    void* const memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? nullptr : memory;
  }
  int PopulateForWriting(uint64_t, uint64_t) override { return 0; }
  size_t page_bytes() override { return kPage; }

 private:
  void FillRegion(vfio_region_info* info) {
    const uint32_t room = info->argsz;
    const uint32_t index = info->index;
    info->flags = VFIO_REGION_INFO_FLAG_READ | input_.Byte();
    info->size = input_.Byte() < 0xE0 ? uint64_t{input_.Byte()} << input_.Byte() % 16
                                      : uint64_t{input_.Word()} << input_.Byte() % 64;
    info->offset = uint64_t{index} << 40;
    if ((info->flags & VFIO_REGION_INFO_FLAG_CAPS) == 0) return;
    info->argsz = sizeof(*info) + input_.Byte() * uint32_t{4};
    info->cap_offset = sizeof(*info);
    if (room <= sizeof(*info)) return;
    // What fits of a capability or two, and of nonsense.
    std::vector<uint8_t> rest(room - sizeof(*info));
    input_.Fill(rest);
    vfio_region_info_cap_sparse_mmap list;
    list.header.id = VFIO_REGION_INFO_CAP_SPARSE_MMAP;
    list.header.version = 1;
    list.header.next = input_.Byte() * uint32_t{8};
    list.nr_areas = input_.Byte();
    list.reserved = 0;
    if (input_.Byte() % 4 != 0) memcpy(rest.data(), &list, std::min(rest.size(), sizeof(list)));
    memcpy(reinterpret_cast<uint8_t*>(info) + sizeof(*info), rest.data(), rest.size());
    if (input_.Byte() % 8 == 0) info->cap_offset = input_.Word();
  }

  std::mutex mutex_;  // the function's own thread calls, too
  Input& input_;
  int maps_ = 0;
};

class AnySpace final : public IommuSpace {
 public:
  explicit AnySpace(SystemCalls* calls) : IommuSpace(calls) {}
  Status ReadRanges() override { return {}; }

 private:
  int MapPages(uint64_t, uint64_t, uint64_t, bool, bool) override { return 0; }
  int UnmapPages(uint64_t, uint64_t) override { return 0; }
};

void Use(PcieFunction& function, std::span<const uint8_t> bytes) {
  Input input(bytes);
  for (int i = 0; i < 100 && !input.empty(); ++i) {
    const uint32_t bar = input.Byte() % 7;
    const uint64_t offset =
        input.Byte() < 0xF0 ? uint64_t{input.Byte()} << input.Byte() % 16 : input.Word() * 8ull;
    switch (input.Byte() % 10) {
      case 0:
        (void)function.Read32(bar, offset & ~3ull).ok();
        break;
      case 1:
        (void)function.Read64(bar, offset & ~7ull).ok();
        break;
      case 2:
        (void)function.Write32(bar, offset & ~3ull, 1).ok();
        break;
      case 3:
        (void)function.Write64(bar, offset & ~7ull, 1).ok();
        break;
      case 4:
        (void)function.EnableInterrupts(input.Byte() % 70).ok();
        break;
      case 5:
        (void)function.AwaitInterrupts(input.Word(), Clock::now()).ok();
        break;
      case 6:
        (void)function.Reset(Clock::now()).ok();
        break;
      case 7:
        (void)function.is_present();
        break;
      case 8: {
        const auto memory = function.Allocate(input.Byte() * 100 + 1, DmaDirection::kBoth);
        if (memory.ok()) (*memory)->bytes().back() = 1;
        break;
      }
      default:
        function.Cancel();
        break;
    }
  }
}

}  // namespace

ATOLL_FUZZ_TARGET(vfio) {
  constexpr int64_t kFunctionBytes = int64_t{16} << 20;
  const MemoryLimit limit(ProportionalBytes(size, kFunctionBytes));
  // One half of the input is the kernel's, the other the program's.
  const std::span<const uint8_t> bytes(data, size);
  Input input(bytes.first(size / 2));
  HostileKernel kernel(&input);
  auto function = VfioFunction::Create({.calls = &kernel,
                                        .device = 5,
                                        .space = std::make_shared<AnySpace>(&kernel),
                                        .tenancy = nullptr,
                                        .address = "0000:01:00.0"});
  if (function.ok()) {
    Use(**function, bytes.subspan(size / 2));
  } else {
    ATOLL_CHECK(!function.status().message().empty());
  }
  return 0;
}

}  // namespace atollrt::vfio_fuzzer
