// SPDX-License-Identifier: Apache-2.0
//
// What libatoll takes from the module libatoll-grpc (serve/network), which it loads when a device
// of another computer is asked for: gRPC is large, and few need it.
//
// Both are made of one tree, and what passes between them are its classes; a module of another
// version is refused. It is never unloaded, as gRPC's threads are there from then on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "driver/device/chip.h"
#include "driver/device/device_info.h"
#include "runtime/base/clock.h"

namespace atollrt {

// An `atoll serve` that lets others use its device.
struct NetworkHost {
  std::string address;      // "pi4.local:8001"
  std::string description;  // as it announces itself; may be ""
};

struct NetworkModule {
  // What it was made for: a change of this header, or of a header that it includes, is a new one.
  int interface = 0;
  const char* version = "";  // the library's
  // `address` is HOST:PORT. Tries until `deadline`. kNotFound if nobody answers there,
  // kPermissionDenied with what it takes, kUnsupported if that server does not share its device,
  // kInvalidArgument if the files that environment variables name cannot be used (docs/serving.md).
  Result<std::unique_ptr<Chip>> (*open)(const std::string& address, const DeviceOrigin& origin,
                                        Deadline deadline) = nullptr;
  // The computers that announce themselves in the local network until `deadline`. kUnsupported if
  // it was built without Avahi, kNotFound if Avahi's daemon does not run.
  Result<std::vector<NetworkHost>> (*browse)(Deadline deadline) = nullptr;
};
inline constexpr int kNetworkInterface = 1;
// The module's one function.
inline constexpr char kNetworkModuleSymbol[] = "AtollNetworkModule";
using NetworkModuleFunction = const NetworkModule* (*)();

// Loads it, once. kNotFound, with the package to install, or kUnsupported for another version.
Result<const NetworkModule*> LoadNetworkModule();

}  // namespace atollrt
