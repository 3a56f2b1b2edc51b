// SPDX-License-Identifier: Apache-2.0
//
// For fuzzers of what an Atoll-1 answers, on every bus: the input, and what is asked of the device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "atoll/check.h"
#include "driver/device/device.h"
#include "driver/profiles/device_profile.h"
#include "tests/support/test_executables.h"

namespace atollrt {

// The input, byte by byte; nothing behind its end.
class Input {
 public:
  explicit Input(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  uint8_t Byte() {
    if (bytes_.empty()) return 0;
    const uint8_t byte = bytes_[0];
    bytes_ = bytes_.subspan(1);
    return byte;
  }
  uint32_t Word() {
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) word = word << 8 | Byte();
    return word;
  }
  void Fill(std::span<uint8_t> data) {
    for (uint8_t& byte : data) byte = Byte();
  }

  std::span<const uint8_t> rest() const { return bytes_; }

 private:
  std::span<const uint8_t> bytes_;
};

// A few requests; each completes once.
inline void Use(Device& device) {
  // What plans, divides and sizes things by these numbers does not look at them again.
  const DeviceInfo& info = device.info();
  const auto check = [](ProfileNumber number, auto value) {
    DeviceProfile ignored;
    ATOLL_CHECK(SetProfileNumber(number, "", static_cast<double>(value), &ignored).ok());
  };
  check(ProfileNumber::kArrayRows, info.array_rows);
  check(ProfileNumber::kArrayColumns, info.array_columns);
  check(ProfileNumber::kClock, info.clock_hz);
  check(ProfileNumber::kMemory, info.memory_bytes);
  check(ProfileNumber::kProgramMemory, info.program_memory_bytes);
  check(ProfileNumber::kLink, info.link_bytes_per_second);
  std::vector<ExecutableId> ids;
  for (const uint32_t extra : {0u, 20'000u, 40'000u}) {
    const auto id =
        device.Load(std::make_shared<Executable>(MakeTableExecutable({.extra_parameters = extra})));
    if (id.ok()) ids.push_back(*id);
  }
  const std::vector<uint8_t> bytes(4);
  for (int round = 0; round < 2; ++round) {
    std::vector<std::pair<RequestId, std::vector<uint8_t>>> requests;
    requests.reserve(ids.size());
    for (const ExecutableId id : ids) {
      requests.emplace_back(0, std::vector<uint8_t>(4));
      const auto request = device.Submit({.executable = id,
                                          .inputs = {bytes},
                                          .outputs = {requests.back().second},
                                          .timeout = std::chrono::milliseconds(500)});
      if (request.ok()) {
        requests.back().first = *request;
      } else {
        ATOLL_CHECK(request.code() == StatusCode::kDeviceLost);
        requests.pop_back();
      }
    }
    for (const auto& [id, output] : requests) {
      RequestReport report;
      const Status status = device.Wait(id, &report);
      ATOLL_CHECK(status.ok() || !status.message().empty());
      ATOLL_CHECK(report.device_cycles <= uint64_t{1} << 48);
      ATOLL_CHECK(device.Wait(id, nullptr).code() == StatusCode::kInvalidArgument);
    }
  }
  for (const ExecutableId id : ids) (void)device.Unload(id).ok();
}

}  // namespace atollrt
