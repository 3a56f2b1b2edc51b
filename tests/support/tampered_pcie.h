// SPDX-License-Identifier: Apache-2.0
//
// TamperedPcie: a PcieFunction with somebody in between, who drops and changes what a test wants,
// and writes down what happens to memory.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "atoll/check.h"
#include "driver/atoll1/ring.h"
#include "driver/atoll1/ring_session.h"
#include "driver/device/device.h"
#include "driver/emulator/emulated_pcie.h"
#include "driver/profiles/device_profile.h"

namespace atollrt {

struct Tampering {
  std::function<bool(RingRegister at, uint32_t value)> drops_write;
  std::function<std::optional<uint32_t>(RingRegister at)> answers;
  std::function<Result<uint64_t>(Result<uint64_t> raised)> on_interrupts;
  std::function<Status()> on_map;    // before Map and Allocate
  std::function<Status()> on_reset;  // instead of Reset, if it fails
  bool maps_callers_memory = true;
  uint64_t lies_by = 0;  // addresses of Map are wrong by so much
  std::atomic<bool> is_present = true;

  std::atomic<int> maps = 0, allocations = 0;
  std::atomic<int> mapped = 0;  // now
  std::atomic<int> doorbells = 0, resets = 0, waits = 0;
  std::mutex mutex;
  std::vector<std::string> log;     // "ring on", "ring off", "reset", "unmap", "gone"
  std::vector<DmaMapping*> events;  // memory that only the device writes

  void Note(std::string what) {
    const std::lock_guard lock(mutex);
    log.push_back(std::move(what));
  }
};

class TamperedPcie final : public PcieFunction {
 public:
  TamperedPcie(std::unique_ptr<PcieFunction> inner, Tampering* tampering)
      : inner_(std::move(inner)), tampering_(*tampering) {}
  ~TamperedPcie() override {
    EXPECT_EQ(tampering_.mapped, 0) << "mappings outlive their function";
    tampering_.Note("gone");
  }

  Result<uint32_t> Read32(uint32_t bar, uint64_t offset) override {
    const auto value =
        tampering_.answers ? tampering_.answers(static_cast<RingRegister>(offset)) : std::nullopt;
    const Result<uint32_t> real = inner_->Read32(bar, offset);
    if (value.has_value()) return *value;
    return real.ok() ? Result<uint32_t>(*real) : Result<uint32_t>(real.status());
  }
  Result<uint64_t> Read64(uint32_t bar, uint64_t offset) override {
    return inner_->Read64(bar, offset);
  }
  Status Write32(uint32_t bar, uint64_t offset, uint32_t value) override {
    const auto at = static_cast<RingRegister>(offset);
    if (at == RingRegister::kRingTail) ++tampering_.doorbells;
    if (at == RingRegister::kRingControl) tampering_.Note(value == 0 ? "ring off" : "ring on");
    if (tampering_.drops_write && tampering_.drops_write(at, value)) return {};
    return inner_->Write32(bar, offset, value);
  }
  Status Write64(uint32_t bar, uint64_t offset, uint64_t value) override {
    return inner_->Write64(bar, offset, value);
  }
  bool maps_callers_memory() const override { return tampering_.maps_callers_memory; }
  Result<std::unique_ptr<DmaMapping>> Map(std::span<uint8_t> memory,
                                          DmaDirection direction) override {
    EXPECT_TRUE(tampering_.maps_callers_memory);
    if (tampering_.on_map) ATOLL_RETURN_IF_ERROR(tampering_.on_map());
    ++tampering_.maps;
    return Wrap(inner_->Map(memory, direction), tampering_.lies_by);
  }
  Result<std::unique_ptr<DmaMapping>> Allocate(uint64_t size_bytes,
                                               DmaDirection direction) override {
    if (tampering_.on_map) ATOLL_RETURN_IF_ERROR(tampering_.on_map());
    ++tampering_.allocations;
    auto mapping = Wrap(inner_->Allocate(size_bytes, direction));
    if (mapping.ok() && direction == DmaDirection::kFromDevice) {
      tampering_.events.push_back(mapping->get());
    }
    return mapping;
  }
  Status EnableInterrupts(uint32_t count) override { return inner_->EnableInterrupts(count); }
  Result<uint64_t> AwaitInterrupts(uint64_t vectors, Deadline deadline) override {
    ++tampering_.waits;
    Result<uint64_t> raised = inner_->AwaitInterrupts(vectors, deadline);
    return tampering_.on_interrupts ? tampering_.on_interrupts(std::move(raised))
                                    : std::move(raised);
  }
  void Cancel() override { inner_->Cancel(); }
  Status Reset(Deadline deadline) override {
    ++tampering_.resets;
    tampering_.Note("reset");
    if (tampering_.on_reset) ATOLL_RETURN_IF_ERROR(tampering_.on_reset());
    return inner_->Reset(deadline);
  }
  bool is_present() override { return tampering_.is_present; }

 private:
  class Mapping final : public DmaMapping {
   public:
    Mapping(std::unique_ptr<DmaMapping> inner, Tampering* tampering, uint64_t lies_by)
        : DmaMapping(inner->bytes(), inner->iova() + lies_by),
          inner_(std::move(inner)),
          tampering_(*tampering) {
      ++tampering_.mapped;
    }
    ~Mapping() override {
      --tampering_.mapped;
      tampering_.Note("unmap");
    }

   private:
    std::unique_ptr<DmaMapping> inner_;
    Tampering& tampering_;
  };
  Result<std::unique_ptr<DmaMapping>> Wrap(Result<std::unique_ptr<DmaMapping>> inner,
                                           uint64_t lies_by = 0) {
    if (!inner.ok()) return inner.status();
    return std::unique_ptr<DmaMapping>(
        std::make_unique<Mapping>(*std::move(inner), &tampering_, lies_by));
  }

  const std::unique_ptr<PcieFunction> inner_;
  Tampering& tampering_;
};

struct RingDevice {
  uint64_t memory_bytes = 8 << 20;
  Face face = Face::kDirect;

  std::unique_ptr<PcieFunction> OpenFunction(Tampering* tampering = nullptr) const {
    CoreOptions core;
    core.profile = *FindDeviceProfile("pcie");
    core.profile.memory_bytes = memory_bytes;
    core.face = face;
    core.features = *DetectCpuFeatures();
    auto function = EmulatedPcie::Create(core);
    ATOLL_CHECK(function.ok());
    if (tampering == nullptr) return *std::move(function);
    return std::make_unique<TamperedPcie>(*std::move(function), tampering);
  }
  std::unique_ptr<Chip> OpenChip(Tampering* tampering = nullptr) const {
    auto chip = OpenAtoll1OnPcie(OpenFunction(tampering), {.name = "ring"});
    EXPECT_TRUE(chip.ok()) << chip.status().message();
    ATOLL_CHECK(chip.ok());
    return *std::move(chip);
  }
  // `recovers`: it is opened anew when it is lost, as often as wanted.
  std::unique_ptr<Device> Open(Tampering* tampering = nullptr, bool recovers = false) const {
    ChipKeeper::Options options;
    options.on_loss = OnDeviceLoss::kReplay;
    if (recovers) {
      options.reopen = [this_copy = *this, tampering](Deadline) -> Result<std::unique_ptr<Chip>> {
        return OpenAtoll1OnPcie(this_copy.OpenFunction(tampering), {.name = "ring"});
      };
    }
    return std::make_unique<Device>(OpenChip(tampering), std::move(options));
  }
};

}  // namespace atollrt
