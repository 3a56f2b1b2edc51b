// SPDX-License-Identifier: Apache-2.0
//
// A shaky device with one executable on it, and what it should answer.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "driver/faults/fault_plan.h"
#include "tests/support/shaky_device.h"
#include "tests/support/test_executables.h"

namespace atollrt {

inline FaultPlan Script(std::string_view text) {
  auto plan = ParseFaultScript(text);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? *std::move(plan) : FaultPlan();
}

// Adds 1 to each of four bytes.
template <typename Link>
class OneDeviceOn {
 public:
  using Shaky = ShakyDeviceOn<Link>;
  explicit OneDeviceOn(
      std::string_view script, OnDeviceLoss on_loss = OnDeviceLoss::kFallback,
      const std::function<void(Shaky*)>& set_up = [](Shaky*) {}) {
    shaky.plan = Script(script);
    shaky.on_loss = on_loss;
    set_up(&shaky);
    device = shaky.Open();
    const auto loaded = device->Load(
        std::make_shared<Executable>(MakeTableExecutable({.name = "one", .offset = 1})));
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    id = *loaded;
  }

  Status Run() {
    output.assign(4, 0xEE);
    const auto request = device->Submit({.executable = id,
                                         .inputs = {input},
                                         .outputs = {output},
                                         .timeout = std::chrono::milliseconds(500)});
    if (!request.ok()) return request.status();
    return device->Wait(*request, &report);
  }
  void ExpectRight() {
    const Status status = Run();
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(output, (std::vector<uint8_t>{2, 3, 4, 5}));
  }

  Shaky shaky;
  std::unique_ptr<Device> device;
  ExecutableId id = 0;
  const std::vector<uint8_t> input = {1, 2, 3, 4};
  std::vector<uint8_t> output;
  RequestReport report;
};

using OneDevice = OneDeviceOn<ShakyUsb>;
using OnePcieDevice = OneDeviceOn<ShakyPcie>;

}  // namespace atollrt
