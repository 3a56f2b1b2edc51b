// SPDX-License-Identifier: Apache-2.0
//
// EchoingCoral: a chip of the family of Corals that takes any executable of theirs and gives, as
// every byte of its outputs, the sum of all bytes of its inputs.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "driver/coral/executable.h"
#include "driver/device/device.h"

namespace atollrt {

class EchoingCoral final : public Chip {
 public:
  EchoingCoral() {
    info_.name = "echo";
    info_.family = DeviceFamily::kCoral;
  }
  const DeviceInfo& info() const override { return info_; }
  Result<std::unique_ptr<PreparedExecutable>> Prepare(
      std::shared_ptr<const AnyExecutable> executable) const override {
    auto prepared = std::make_unique<PreparedExecutable>();
    prepared->executable = std::move(executable);
    return prepared;
  }
  void Forget(const PreparedExecutable&) override {}
  bool IsResident(const PreparedExecutable&) const override { return true; }
  uint64_t memory_used_bytes() const override { return 0; }
  Status Run(const Job& job, std::span<const Job>, RequestReport*) override {
    uint8_t sum = 0;
    for (const auto& input : job.inputs) sum = std::accumulate(input.begin(), input.end(), sum);
    for (const auto& output : job.outputs) std::ranges::fill(output, sum);
    return {};
  }
  Status Recover() override { return {}; }
  Status Reopen() override { return {}; }

 private:
  DeviceInfo info_;
};

inline std::unique_ptr<Device> EchoingCoralDevice() {
  return std::make_unique<Device>(std::make_unique<EchoingCoral>(), ChipKeeper::Options());
}

}  // namespace atollrt
