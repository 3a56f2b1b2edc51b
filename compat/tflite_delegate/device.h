// SPDX-License-Identifier: Apache-2.0
#ifndef ATOLL_COMPAT_TFLITE_DELEGATE_DEVICE_H_
#define ATOLL_COMPAT_TFLITE_DELEGATE_DEVICE_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "atoll/delegate.h"

namespace atollcompat {

struct DeviceOptions {
  std::string device = "auto";  // docs/devices.md
  std::string performance;      // of a Coral; "": Atoll's default
  std::string on_device_loss;   // "": Atoll's default
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

  // The model of these bytes, which interpreters with the same partition share.
  std::shared_ptr<AtollModel> ModelOf(const std::string& bytes, std::string* error);

 private:
  explicit Device(AtollDelegate* handle) : handle_(handle) {}

  AtollDelegate* handle_;
  std::mutex mutex_;
  std::multimap<size_t, std::pair<std::string, std::weak_ptr<AtollModel>>> models_;  // by hash
};

}  // namespace atollcompat

#endif  // ATOLL_COMPAT_TFLITE_DELEGATE_DEVICE_H_
