// SPDX-License-Identifier: Apache-2.0
#include "driver/device.h"

namespace atollrt {

const char* DeviceStateName(DeviceState state) {
  switch (state) {
    case DeviceState::kReady:
      return "Ready";
    case DeviceState::kRecovering:
      return "Recovering";
    case DeviceState::kFallback:
      return "Fallback";
    case DeviceState::kLost:
      break;
  }
  return "Lost";
}

}  // namespace atollrt
