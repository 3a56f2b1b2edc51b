// SPDX-License-Identifier: Apache-2.0
//
// Emulated devices of any size, for tests that want other ones than
// driver/profiles/device_profile.h has.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "atoll/check.h"
#include "driver/device/device.h"
#include "driver/emulator/emulated_transport.h"
#include "driver/profiles/device_profile.h"
#include "runtime/kernels/cpu_features.h"
#include "tests/support/open_atoll1.h"

namespace atollrt {

struct EmulatedDevice {
  uint32_t rows = 64, columns = 64;
  uint64_t memory_bytes = 8 << 20;
  uint64_t program_bytes = 1 << 20;
  Face face = Face::kDirect;
  int threads = 1;
  std::chrono::milliseconds request_timeout_min = std::chrono::minutes(10);

  std::unique_ptr<Device> Open() const {
    return std::make_unique<Device>(OpenChip(), ChipKeeper::Options());
  }

  std::unique_ptr<Chip> OpenChip() const {
    CoreOptions core;
    core.profile = DeviceProfiles()[0];
    core.profile.array_rows = rows;
    core.profile.array_columns = columns;
    core.profile.memory_bytes = memory_bytes;
    core.profile.program_memory_bytes = program_bytes;
    core.face = face;
    core.threads = threads;
    const Result<CpuFeatures> features = DetectCpuFeatures();
    ATOLL_CHECK(features.ok());
    core.features = *features;
    auto transport = EmulatedTransport::Create(core);
    ATOLL_CHECK(transport.ok());
    auto chip = Atoll1Chip::Open(*std::move(transport),
                                 {.name = "emu", .request_timeout_min = request_timeout_min});
    ATOLL_CHECK(chip.ok());
    return *std::move(chip);
  }

  std::string Describe() const {
    return Format("device of %ux%u cells (%s), %llu bytes of memory, %llu for programs", rows,
                  columns, face == Face::kStepped ? "stepped" : "direct",
                  static_cast<unsigned long long>(memory_bytes),
                  static_cast<unsigned long long>(program_bytes));
  }
};

}  // namespace atollrt
