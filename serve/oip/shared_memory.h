// SPDX-License-Identifier: Apache-2.0
//
// SharedMemory: POSIX shared memory of clients on this computer, in which they put inputs and find
// outputs (Triton's system_shared_memory). Bytes are copied in and out by read and write, never
// mapped, as a client can truncate it at any time. What others own is not opened; nevertheless a
// client names any segment of the server's user, which is why it is off unless it is asked for. The
// way without copies is the broker (docs/broker.md). Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "runtime/base/file_descriptor.h"
#include "serve/oip/infer_body.h"

namespace atollserve {

struct SharedRegion {
  std::string name;
  std::string key;  // of shm_open: "/name"
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

class SharedMemory {
 public:
  // kInvalidArgument for names and sizes, kNotFound, kPermissionDenied for what another user owns,
  // kDeviceBusy if the name is taken, kResourceExhausted.
  atollrt::Status Register(SharedRegion region);
  // kNotFound.
  atollrt::Status Unregister(const std::string& name);
  void UnregisterAll();
  std::vector<SharedRegion> regions() const;

  // Puts a copy of a range into `input` if `model` has one of its name, of that many bytes, with
  // `real_values` as in InferRequest; what else is wrong with an input InferenceServer says.
  // kNotFound, kInvalidArgument if the range has other bytes, is not inside its region or the
  // client has truncated that.
  atollrt::Status ReadInput(const RegionRange& range, const ModelInfo& model, bool real_values,
                            InputTensor* input) const;
  // Writes at the range's beginning, if it has room for all.
  atollrt::Status Write(const RegionRange& range, std::span<const uint8_t> bytes) const;

 private:
  struct Open {
    SharedRegion region;
    atollrt::FileDescriptor file;
  };
  atollrt::Result<std::shared_ptr<const Open>> Find(const RegionRange& range) const;
  atollrt::Result<std::string> Read(const RegionRange& range) const;

  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Open>> regions_;
};

}  // namespace atollserve
