// SPDX-License-Identifier: Apache-2.0
#include "driver/coral/coral_options.h"

namespace atollrt {
namespace {

constexpr uint64_t kClockHz[] = {62'500'000, 125'000'000, 250'000'000, 500'000'000};
// What is published of the chip. The memory is what is left for parameters, roughly.
constexpr uint32_t kArraySide = 64;
constexpr uint64_t kMemoryBytes = 8 << 20;

}  // namespace

uint64_t CoralClockHz(CoralPerformance performance) {
  return kClockHz[static_cast<size_t>(performance)];
}

DeviceInfo CoralDeviceInfo(const CoralOptions& options, const std::string& link,
                           uint64_t link_bytes_per_second) {
  DeviceInfo info;
  info.family = DeviceFamily::kCoral;
  info.array_rows = info.array_columns = kArraySide;
  info.clock_hz = CoralClockHz(options.performance);
  info.memory_bytes = kMemoryBytes;
  info.link_bytes_per_second = link_bytes_per_second;
  info.name = options.name;
  info.description = Format("Coral Edge TPU, %u MHz, %s",
                            static_cast<unsigned>(info.clock_hz / 1'000'000), link.c_str());
  return info;
}

}  // namespace atollrt
