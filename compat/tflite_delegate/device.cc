// SPDX-License-Identifier: Apache-2.0
#include "compat/tflite_delegate/device.h"

#include <functional>

namespace atollcompat {

std::shared_ptr<Device> Device::Open(const DeviceOptions& options, std::string* error) {
  AtollDelegateOptions wanted = ATOLL_DELEGATE_OPTIONS_INIT;
  wanted.device = options.device.c_str();
  if (!options.performance.empty()) wanted.performance = options.performance.c_str();
  if (!options.on_device_loss.empty()) wanted.on_device_loss = options.on_device_loss.c_str();
  AtollDelegate* handle = nullptr;
  if (AtollDelegateCreate(&wanted, &handle) != ATOLL_OK) {
    *error = AtollLastError();
    return nullptr;
  }
  return std::shared_ptr<Device>(new Device(handle));
}

Device::~Device() { AtollDelegateDelete(handle_); }

std::shared_ptr<AtollModel> Device::ModelOf(const std::string& bytes, std::string* error) {
  const std::lock_guard lock(mutex_);
  std::erase_if(models_, [](const auto& entry) { return entry.second.second.expired(); });
  const size_t hash = std::hash<std::string>()(bytes);
  for (auto [entry, end] = models_.equal_range(hash); entry != end; ++entry) {
    const auto& [known, known_model] = entry->second;
    if (known != bytes) continue;
    // Its last user may have gone this moment.
    if (std::shared_ptr<AtollModel> model = known_model.lock()) return model;
  }
  AtollModel* made = nullptr;
  if (AtollModelCreateFromBuffer(bytes.data(), bytes.size(), &made) != ATOLL_OK) {
    *error = AtollLastError();
    return nullptr;
  }
  std::shared_ptr<AtollModel> model(made, AtollModelDelete);
  models_.emplace(hash, std::make_pair(bytes, model));
  return model;
}

}  // namespace atollcompat
