// SPDX-License-Identifier: Apache-2.0
#ifndef ATOLL_COMPAT_TFLITE_DELEGATE_DEVICE_H_
#define ATOLL_COMPAT_TFLITE_DELEGATE_DEVICE_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "atoll/delegate.h"

namespace atollcompat {

struct DeviceOptions {
  std::string device = "auto";  // docs/devices.md
  std::string performance;      // of a Coral; "": Atoll's default
  std::string on_device_loss;   // "": Atoll's default
  std::string faults;           // docs/faults.md; "": none
  int num_threads = 0;          // that the emulator computes with; 0: Atoll's default
};

// An opened device, and the models of what runs on it: shared by delegates and kernels of any
// number of interpreters and threads.
class Device {
 public:
  // Null, with why in `error`, if it cannot be opened.
  static std::shared_ptr<Device> Open(const DeviceOptions& options, std::string* error);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  AtollDelegate* handle() const { return handle_; }

  // The model of these bytes, which are copied. As long as one such model lives, all who ask get
  // it: what is compiled for its partitions is compiled once. Null, with why in `error`, if it
  // does not load.
  std::shared_ptr<AtollModel> ModelOf(std::span<const uint8_t> bytes, std::string* error);

 private:
  // Bytes are told apart by a hash with a secret key, so that they need not be kept.
  using Digest = std::array<uint64_t, 2>;
  struct Entry {
    std::mutex mutex;  // held while the model is made
    std::weak_ptr<AtollModel> model;
  };

  explicit Device(AtollDelegate* handle);
  Digest DigestOf(std::span<const uint8_t> bytes) const;

  AtollDelegate* const handle_;
  std::array<uint64_t, 4> key_;
  std::mutex mutex_;
  std::map<Digest, std::shared_ptr<Entry>> models_;
};

}  // namespace atollcompat

#endif  // ATOLL_COMPAT_TFLITE_DELEGATE_DEVICE_H_
