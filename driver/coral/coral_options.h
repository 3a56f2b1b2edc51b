// SPDX-License-Identifier: Apache-2.0
//
// How a Coral is opened, on whatever bus it is.
#pragma once

#include <cstdint>
#include <string>

#include "driver/device/device_info.h"
#include "driver/usb/usb_bus.h"
#include "runtime/base/clock.h"

namespace atollrt {

// Clock of the tensor core: 63, 125, 250, 500 MHz.
enum class CoralPerformance : uint8_t { kLow, kMedium, kHigh, kMax };
uint64_t CoralClockHz(CoralPerformance performance);

struct CoralOptions {
  std::string name = "usb";           // DeviceOrigin::name
  std::string path = {};              // of the port, for people; OpenCoral's is the device's
  UsbSpeed speed = UsbSpeed::kSuper;  // of the link on USB; likewise
  CoralPerformance performance = CoralPerformance::kMax;
  std::string firmware = {};  // a file, on USB; empty: where FindCoralFirmware looks
  NowFunction now = Clock::now;
};

// `link` says on what it is, for people.
DeviceInfo CoralDeviceInfo(const CoralOptions& options, const std::string& link,
                           uint64_t link_bytes_per_second);

}  // namespace atollrt
