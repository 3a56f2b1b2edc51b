// SPDX-License-Identifier: Apache-2.0
//
// BrokerStore: what clients have brought to the broker's device and somebody still uses:
// executables, each once, whoever loaded the same bytes, and memory. What nobody uses any more is
// taken away by whoever calls Tidy.
//
// All of it is guarded by the broker's mutex, also where it ends. Functions that take its Lock give
// it up while they read files and wait for the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "driver/broker/socket.h"
#include "driver/device/device.h"
#include "serve/broker/client.h"

namespace atollrt {

class BrokerStore {
 public:
  using Lock = std::unique_lock<std::mutex>;

  // `device` and this must outlive what is brought.
  explicit BrokerStore(Device* device) : device_(*device) {}

  size_t executables() const;  // that the device has

  // The executable of `bytes` in `file`, its stored form or its package: hostile, and checked in
  // full. Loaded as `name` unless the device has the same bytes. One call at a time.
  Result<std::shared_ptr<const BrokerLoaded>> Load(int file, uint64_t bytes, std::string name,
                                                   uint32_t residency_set, Lock* lock);
  std::shared_ptr<const BrokerClientArena> Add(SharedMemory memory, BrokerChargePtr charge);

  // Whether the device is to be told of what came, or is not used any more; and telling it.
  bool HasToTidy() const;
  void Tidy(Lock* lock);

 private:
  Device& device_;
  BrokerLeavings leavings_;
  std::vector<std::weak_ptr<const BrokerClientArena>> new_arenas_;
  std::vector<std::weak_ptr<const BrokerLoaded>> loaded_;
};

}  // namespace atollrt
