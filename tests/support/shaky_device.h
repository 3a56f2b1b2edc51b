// SPDX-License-Identifier: Apache-2.0
//
// A device on a FaultyBus, emulated and kept running, under a clock that never waits.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "driver/device/device.h"
#include "driver/emulator/emulated_transport.h"
#include "driver/faults/faulty_bus.h"
#include "tests/support/emulated_device.h"
#include "tests/support/fake_clock.h"

namespace atollrt {

struct ShakyDevice {
  FaultPlan plan;
  uint64_t memory_bytes = 8 << 20;
  OnDeviceLoss on_loss = OnDeviceLoss::kFallback;
  bool has_fallback = true;
  // What to put between the bus with the faults and that of the emulated device.
  std::function<std::shared_ptr<UsbBus>(std::shared_ptr<UsbBus>)> wrap;
  // What to put around each chip that is opened.
  std::function<std::unique_ptr<Chip>(std::unique_ptr<Chip>)> wrap_chip;

  FakeClock clock;
  std::shared_ptr<FaultyBus> bus;

  // Tries until the device is there; `this` must outlive it.
  std::unique_ptr<Device> Open() {
    CoreOptions core;
    core.profile = DeviceProfiles()[0];
    core.profile.memory_bytes = memory_bytes;
    const Result<CpuFeatures> features = DetectCpuFeatures();
    ATOLL_CHECK(features.ok());
    core.features = *features;
    std::shared_ptr<UsbBus> below = std::make_shared<EmulatedBus>(std::vector<CoreOptions>{core});
    if (wrap) below = wrap(std::move(below));
    bus = std::make_shared<FaultyBus>(
        std::move(below), plan,
        FaultyBus::Options{.now = clock.Function(),
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
        auto transport = bus->Open(devices->front(), 0);
        if (transport.ok()) {
          auto chip = Atoll1Chip::Open(*std::move(transport), {.name = "shaky"}, clock.Function());
          if (chip.ok() && wrap_chip) return wrap_chip(*std::move(chip));
          if (chip.ok()) return chip;
          status = chip.status();
        } else {
          status = transport.status();
        }
      }
      if (clock.Now() >= deadline) return status;
      bus->WaitForChange(generation,
                         std::min(deadline, clock.Now() + std::chrono::milliseconds(50)));
    }
  }
};

}  // namespace atollrt
