// SPDX-License-Identifier: Apache-2.0
//
// DNS-SD, by Avahi's daemon: who shares a device in the local network, and where the servers of a
// fleet are. What others announce is hostile text, and anybody may announce anything.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "runtime/base/clock.h"

namespace atollserve {

inline constexpr char kDeviceService[] = "_atoll._tcp";  // gRPC, with the device's description
inline constexpr char kNatsService[] = "_nats._tcp";

struct AnnouncedService {
  // HOST:PORT. The host is a name of letters, digits, dots, dashes ("pi4.local"), or its address
  // ("192.168.1.7", "[fe80::1%eth0]") where the name says nothing to this computer.
  std::string where;
  std::string description;  // printable
};

// All of a type that are there until `deadline`, each once, in order of their names; those that
// Avahi knows come at once, and it returns a moment after these. kUnsupported if this was built
// without Avahi, kNotFound if its daemon does not run.
atollrt::Result<std::vector<AnnouncedService>> Browse(const char* type, atollrt::Deadline deadline);

// A device that is announced as long as this lives, again when the daemon was away.
class Announcement {
 public:
  // `name` is for people, and gets a number if another has it. Errors as Browse.
  static atollrt::Result<std::unique_ptr<Announcement>> Publish(const std::string& name,
                                                                uint16_t port,
                                                                const std::string& description);
  virtual ~Announcement() = default;
};

}  // namespace atollserve
