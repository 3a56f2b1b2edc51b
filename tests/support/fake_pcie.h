// SPDX-License-Identifier: Apache-2.0
//
// FakePcie: a PcieBus with one function that a test moves: registers that keep what is written
// unless the test has something else in mind, memory that it reaches as a device does, interrupts
// that it raises. Waits that find nothing end at once.
#pragma once

#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "driver/pcie/pcie_bus.h"
#include "runtime/base/bytes.h"

namespace atollrt {

// What all functions that were opened have in common; the test's end of them.
struct FakePcieDevice {
  // Called for each write to a register, before it is kept.
  std::function<void(uint64_t offset, uint64_t value)> on_write = [](uint64_t, uint64_t) {};
  bool maps_callers_memory = true;
  PcieId id = kAtollPcieId;

  std::recursive_mutex mutex;  // guards what follows; held while on_write runs
  std::map<uint64_t, uint64_t> registers;
  std::vector<std::string> log;  // "write 214 1", "reset", ...
  uint64_t raised = 0;           // vectors
  bool cancelled = false;
  std::map<uint64_t, std::span<uint8_t>> memory;  // by bus address
  uint64_t next_iova = uint64_t{1} << 32;

  void Raise(uint32_t vector) { raised |= uint64_t{1} << vector; }
  // Memory of the host; empty unless all of it may be reached.
  std::span<uint8_t> Reach(uint64_t iova, size_t size) {
    const std::lock_guard lock(mutex);
    auto found = memory.upper_bound(iova);
    if (found == memory.begin()) return {};
    --found;
    const uint64_t offset = iova - found->first;
    if (offset + size > found->second.size()) return {};
    return found->second.subspan(offset, size);
  }
  bool Store(uint64_t iova, std::span<const uint8_t> bytes) {
    const std::span<uint8_t> there = Reach(iova, bytes.size());
    if (!there.empty()) std::memcpy(there.data(), bytes.data(), bytes.size());
    return !there.empty();
  }
};

class FakePcieBus final : public PcieBus {
 public:
  const std::shared_ptr<FakePcieDevice> device = std::make_shared<FakePcieDevice>();

  Result<std::vector<PcieDeviceInfo>> List() override {
    return std::vector<PcieDeviceInfo>{{.id = device->id,
                                        .address = "0000:01:00.0",
                                        .driver = "vfio-pci",
                                        .link_lanes = 4,
                                        .link_generation = 3}};
  }
  Result<std::unique_ptr<PcieFunction>> Open(const PcieDeviceInfo& info) override {
    if (info.address != "0000:01:00.0") return NotFound("nothing at %s", info.address.c_str());
    const std::lock_guard lock(device->mutex);
    device->log.push_back("open");
    device->cancelled = false;
    return std::unique_ptr<PcieFunction>(std::make_unique<Function>(device));
  }
  uint64_t generation() override { return 0; }
  bool WaitForChange(uint64_t, Deadline) override { return false; }

 private:
  class Mapping final : public DmaMapping {
   public:
    using Memory = std::unique_ptr<uint8_t, decltype(&std::free)>;
    Mapping(std::shared_ptr<FakePcieDevice> device, std::span<uint8_t> bytes, uint64_t iova,
            Memory memory)
        : DmaMapping(bytes, iova), device_(std::move(device)), memory_(std::move(memory)) {
      device_->memory[iova] = bytes;
    }
    ~Mapping() override {
      const std::lock_guard lock(device_->mutex);
      device_->memory.erase(iova());
    }

   private:
    const std::shared_ptr<FakePcieDevice> device_;
    const Memory memory_;
  };

  class Function final : public PcieFunction {
   public:
    explicit Function(std::shared_ptr<FakePcieDevice> device) : device_(std::move(device)) {}
    Result<uint32_t> Read32(uint32_t, uint64_t offset) override {
      return static_cast<uint32_t>(Read(offset));
    }
    Result<uint64_t> Read64(uint32_t, uint64_t offset) override { return Read(offset); }
    Status Write32(uint32_t, uint64_t offset, uint32_t value) override {
      return Write(offset, value);
    }
    Status Write64(uint32_t, uint64_t offset, uint64_t value) override {
      return Write(offset, value);
    }
    bool maps_callers_memory() const override { return device_->maps_callers_memory; }
    Result<std::unique_ptr<DmaMapping>> Map(std::span<uint8_t> memory, DmaDirection) override {
      if (!device_->maps_callers_memory) return Unsupported("no memory of others");
      return Make(memory, {nullptr, std::free});
    }
    Result<std::unique_ptr<DmaMapping>> Allocate(uint64_t size, DmaDirection) override {
      const size_t pages = AlignUp(size, kDmaPageBytes);
      Mapping::Memory memory(static_cast<uint8_t*>(std::aligned_alloc(kDmaPageBytes, pages)),
                             std::free);
      std::memset(memory.get(), 0, pages);
      const std::span<uint8_t> bytes(memory.get(), size);
      return Make(bytes, std::move(memory));
    }
    Status EnableInterrupts(uint32_t count) override {
      const std::lock_guard lock(device_->mutex);
      device_->log.push_back(Format("vectors %u", count));
      device_->raised = 0;
      return {};
    }
    Result<uint64_t> AwaitInterrupts(uint64_t vectors, Deadline) override {
      const std::lock_guard lock(device_->mutex);
      if (device_->cancelled) return Status(StatusCode::kCancelled, "cancelled");
      const uint64_t raised = std::exchange(device_->raised, device_->raised & ~vectors) & vectors;
      if (raised == 0) return Timeout("no interrupt");
      return raised;
    }
    void Cancel() override {
      const std::lock_guard lock(device_->mutex);
      device_->cancelled = true;
    }
    Status Reset(Deadline) override {
      const std::lock_guard lock(device_->mutex);
      device_->cancelled = false;
      device_->log.push_back("reset");
      return {};
    }
    bool is_present() override { return true; }

   private:
    uint64_t Read(uint64_t offset) {
      const std::lock_guard lock(device_->mutex);
      device_->log.push_back(Format("read %llx", static_cast<unsigned long long>(offset)));
      return device_->registers[offset];
    }
    Status Write(uint64_t offset, uint64_t value) {
      const std::lock_guard lock(device_->mutex);
      device_->log.push_back(Format("write %llx %llx", static_cast<unsigned long long>(offset),
                                    static_cast<unsigned long long>(value)));
      device_->on_write(offset, value);
      device_->registers[offset] = value;
      return {};
    }
    Result<std::unique_ptr<DmaMapping>> Make(std::span<uint8_t> bytes, Mapping::Memory memory) {
      const std::lock_guard lock(device_->mutex);
      const uint64_t iova = device_->next_iova;
      device_->next_iova += AlignUp(bytes.size(), kDmaPageBytes) + kDmaPageBytes;
      return std::unique_ptr<DmaMapping>(
          std::make_unique<Mapping>(device_, bytes, iova, std::move(memory)));
    }

    const std::shared_ptr<FakePcieDevice> device_;
  };
};

}  // namespace atollrt
