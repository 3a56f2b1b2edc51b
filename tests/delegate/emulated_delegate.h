// SPDX-License-Identifier: Apache-2.0
//
// A delegate to an emulated device of any memory.
#pragma once

#include <cstdint>
#include <memory>

#include "delegate/delegate.h"
#include "tests/support/emulated_device.h"

namespace atollrt {

inline std::unique_ptr<DeviceDelegate> DelegateWith(uint64_t memory_bytes) {
  return std::make_unique<DeviceDelegate>(EmulatedDevice{.memory_bytes = memory_bytes}.Open());
}

}  // namespace atollrt
