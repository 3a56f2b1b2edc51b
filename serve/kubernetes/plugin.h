// SPDX-License-Identifier: Apache-2.0
//
// DevicePlugin: offers devices to a kubelet, by its device plugin interface v1beta1
// (device_plugin.proto). It listens at a socket in the kubelet's folder, registers itself there,
// and again whenever the kubelet has been restarted, which removes all sockets of the folder.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "serve/kubernetes/places.h"

namespace atollserve {

struct DevicePluginOptions {
  std::string folder = "/var/lib/kubelet/device-plugins";  // at most 80 bytes
  std::string socket_name = "atoll.sock";
  std::string resource = "atoll.dev/edgetpu";
  int shares = 10;
  Preference preference = Preference::kSpread;
  // What there is now; asked once a second, on one thread.
  std::function<std::vector<OfferedDevice>()> look;
  // A line for people: that it is registered, or why not.
  std::function<void(const std::string& line)> say;
};

class DevicePlugin {
 public:
  // kInvalidArgument if the options make no sense.
  static atollrt::Result<std::unique_ptr<DevicePlugin>> Create(DevicePluginOptions options);
  virtual ~DevicePlugin() = default;

  // Serves until Stop. Waits for a kubelet that is not there. The error of the folder if that
  // cannot be watched.
  virtual atollrt::Status Run() = 0;
  // From any thread, and from a signal's handler.
  virtual void Stop() = 0;
};

}  // namespace atollserve
