// SPDX-License-Identifier: Apache-2.0
//
// A device on a bus with faults, emulated and kept running, under a clock that never waits.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "driver/atoll1/ring_session.h"
#include "driver/device/device.h"
#include "driver/emulator/emulated_pcie.h"
#include "driver/emulator/emulated_transport.h"
#include "driver/faults/faulty_bus.h"
#include "driver/faults/faulty_pcie_bus.h"
#include "tests/support/emulated_device.h"
#include "tests/support/fake_clock.h"

namespace atollrt {

// A cable.
struct ShakyUsb {
  using Bus = UsbBus;
  using Faulty = FaultyBus;
  using Emulated = EmulatedBus;
  static Result<std::unique_ptr<Chip>> Open(Bus* bus, const UsbDeviceInfo& info, NowFunction now) {
    ATOLL_ASSIGN_OR_RETURN(auto transport, bus->Open(info, 0));
    return Atoll1Chip::Open(std::move(transport), {.name = "shaky"}, std::move(now));
  }
};
// A slot.
struct ShakyPcie {
  using Bus = PcieBus;
  using Faulty = FaultyPcieBus;
  using Emulated = EmulatedPcieBus;
  static Result<std::unique_ptr<Chip>> Open(Bus* bus, const PcieDeviceInfo& info, NowFunction now) {
    ATOLL_ASSIGN_OR_RETURN(auto function, bus->Open(info));
    return OpenAtoll1OnPcie(std::move(function), {.name = "shaky"}, std::move(now));
  }
};

template <typename Link>
struct ShakyDeviceOn {
  using Bus = typename Link::Bus;

  FaultPlan plan;
  uint64_t memory_bytes = 8 << 20;
  OnDeviceLoss on_loss = OnDeviceLoss::kFallback;
  bool has_fallback = true;
  // What to put between the bus with the faults and that of the emulated device.
  std::function<std::shared_ptr<Bus>(std::shared_ptr<Bus>)> wrap;
  // What to put around each chip that is opened.
  std::function<std::unique_ptr<Chip>(std::unique_ptr<Chip>)> wrap_chip;

  FakeClock clock;
  std::shared_ptr<typename Link::Faulty> bus;

  // Tries until the device is there; `this` must outlive it.
  std::unique_ptr<Device> Open() {
    CoreOptions core;
    core.profile = DeviceProfiles()[0];
    core.profile.memory_bytes = memory_bytes;
    const Result<CpuFeatures> features = DetectCpuFeatures();
    ATOLL_CHECK(features.ok());
    core.features = *features;
    std::shared_ptr<Bus> below =
        std::make_shared<typename Link::Emulated>(std::vector<CoreOptions>{core});
    if (wrap) below = wrap(std::move(below));
    bus = std::make_shared<typename Link::Faulty>(
        std::move(below), plan,
        FaultOptions{.now = clock.Function(),
                     .sleep_until = [this](Deadline time) { clock.AdvanceTo(time); }});
    const auto open = [this](Deadline deadline) { return OpenOnBus(deadline); };
    auto first = open(clock.Now() + std::chrono::seconds(60));
    ATOLL_CHECK(first.ok());
    ChipKeeper::Options options{.on_loss = on_loss,
                                .reopen = open,
                                .open_stand_in = nullptr,
                                .bus_generation = [this] { return bus->generation(); },
                                .now = clock.Function()};
    if (has_fallback) {
      options.open_stand_in = [memory = memory_bytes]() -> Result<std::unique_ptr<Chip>> {
        return EmulatedDevice{.memory_bytes = memory}.OpenChip();
      };
    }
    return std::make_unique<Device>(*std::move(first), std::move(options));
  }

 private:
  Result<std::unique_ptr<Chip>> OpenOnBus(Deadline deadline) {
    for (;;) {
      const uint64_t generation = bus->generation();
      const auto devices = bus->List();
      Status status = devices.ok() ? NotFound("no device on the bus") : devices.status();
      if (devices.ok() && !devices->empty()) {
        auto chip = Link::Open(bus.get(), devices->front(), clock.Function());
        if (chip.ok() && wrap_chip) return wrap_chip(*std::move(chip));
        if (chip.ok()) return chip;
        status = chip.status();
      }
      if (clock.Now() >= deadline) return status;
      bus->WaitForChange(generation,
                         std::min(deadline, clock.Now() + std::chrono::milliseconds(50)));
    }
  }
};

using ShakyDevice = ShakyDeviceOn<ShakyUsb>;
using ShakyPcieDevice = ShakyDeviceOn<ShakyPcie>;

}  // namespace atollrt
