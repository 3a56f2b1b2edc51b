// SPDX-License-Identifier: Apache-2.0
//
// CountingChip: counts the runs of a chip.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "driver/device/device.h"
#include "tests/support/emulated_device.h"
#include "tests/support/forwarding_chip.h"

namespace atollrt {

class CountingChip final : public ForwardingChip {
 public:
  CountingChip(std::unique_ptr<Chip> inner, std::atomic<int>* runs)
      : ForwardingChip(std::move(inner)), runs_(runs) {}
  Status Run(const Job& job, std::span<const Job> ahead, RequestReport* report) override {
    ++*runs_;
    return ForwardingChip::Run(job, ahead, report);
  }

 private:
  std::atomic<int>* const runs_;
};

inline std::unique_ptr<Device> CountedDevice(std::atomic<int>* runs) {
  return std::make_unique<Device>(std::make_unique<CountingChip>(EmulatedDevice().OpenChip(), runs),
                                  ChipKeeper::Options());
}

}  // namespace atollrt
