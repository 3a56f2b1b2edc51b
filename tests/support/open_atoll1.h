// SPDX-License-Identifier: Apache-2.0
//
// An Atoll-1 at the end of any transport, as a device that nobody knows how to open again.
#pragma once

#include <memory>
#include <utility>

#include "driver/atoll1/atoll1_chip.h"
#include "driver/device/device.h"

namespace atollrt {

inline Result<std::unique_ptr<Device>> OpenAtoll1(std::unique_ptr<UsbTransport> transport,
                                                  const DeviceOrigin& origin,
                                                  NowFunction now = Clock::now) {
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<Chip> chip,
                         Atoll1Chip::Open(std::move(transport), origin, now));
  return std::make_unique<Device>(std::move(chip), ChipKeeper::Options{.now = std::move(now)});
}

}  // namespace atollrt
