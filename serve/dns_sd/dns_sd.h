// SPDX-License-Identifier: Apache-2.0
//
// DNS-SD, by Avahi's daemon: who shares a device in the local network. What others announce is
// hostile text.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "runtime/base/clock.h"

namespace atollserve {

inline constexpr char kServiceType[] = "_atoll._tcp";  // gRPC, with the device's description

struct AnnouncedService {
  std::string host;     // "pi4.local": letters, digits, dots, dashes
  std::string address;  // "192.168.1.7", "[fe80::1%eth0]": for whom the name says nothing
  uint16_t port = 0;
  std::string description;  // printable
};

// All that are there until `deadline`, each once, in order of their names; those that Avahi knows
// come at once, and it returns a moment after these. kUnsupported if this was built without Avahi,
// kNotFound if its daemon does not run.
atollrt::Result<std::vector<AnnouncedService>> Browse(atollrt::Deadline deadline);

// A service that is announced as long as this lives, again when the daemon was away.
class Announcement {
 public:
  // `name` is for people, and gets a number if another has it. Errors as Browse.
  static atollrt::Result<std::unique_ptr<Announcement>> Publish(const std::string& name,
                                                                uint16_t port,
                                                                const std::string& description);
  virtual ~Announcement() = default;
};

}  // namespace atollserve
