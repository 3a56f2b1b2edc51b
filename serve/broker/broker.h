// SPDX-License-Identifier: Apache-2.0
//
// Broker: one device for many programs (docs/broker.md). It owns the device and a Unix socket;
// programs open it as the device "broker" (driver/broker).
//
// One thread, that of Run, takes messages; as many workers as the device has requests under way,
// and one more, submit them and wait; one loads executables, which may take long, one after the
// other, and one tidies up. Whose turn it is: of the clients with the most urgent request the one
// that has had the least time of the device, divided by its weight. A client that comes back after
// a rest does not catch up on what it did not use.
//
// Nothing that a client does touches another one: it is checked and charged when it comes, and a
// client that breaks the protocol or does not read its answers is disconnected. A request whose
// client is gone ends on the device, into memory that stays until then.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "driver/broker/messages.h"
#include "driver/broker/socket.h"
#include "driver/device/device.h"
#include "runtime/base/file_descriptor.h"

namespace atollrt {

// What a client may do.
struct BrokerShare {
  double weight = 1;         // of its time on the device, more than 0
  int32_t priority_max = 0;  // requests of more are taken for this
  size_t requests = 32;      // at a time
  size_t executables = 16;
  size_t arenas = 64;
  uint64_t bytes = uint64_t{256} << 20;  // of arenas and of executables
  bool may_reset = false;                // the device, for all
};

struct BrokerLimits {
  size_t clients = 256;
  size_t clients_of_user = 32;
};

// `name` is what the client says of itself.
using BrokerShares = std::function<BrokerShare(const Peer& peer, const std::string& name)>;

struct BrokerOptions {
  std::string path;  // of the socket; "": DefaultBrokerPath()
  BrokerLimits limits;
  BrokerShares share_of;  // nullptr: all have BrokerShare()
  // For what is under way when it shall stop.
  std::chrono::milliseconds drain_timeout{10'000};
};

class Broker {
 public:
  // Listens at the path, or at the socket that systemd hands over ($LISTEN_FDS). kDeviceBusy, with
  // its process, if another broker is there; otherwise the errors of ListenAt.
  static Result<std::unique_ptr<Broker>> Create(std::unique_ptr<Device> device,
                                                BrokerOptions options);
  // No call may be in progress.
  ~Broker();

  const std::string& path() const;
  const DeviceInfo& device() const;
  std::vector<BrokerClientRow> clients() const;
  size_t executables() const;  // that the device has, each once

  // From now on, for clients that are there, too: what they have beyond it they keep.
  void SetShares(BrokerShares share_of);

  // Serves until Stop, and then what is under way; once. The error of the system if it cannot.
  Status Run();
  // From any thread, and from a signal's handler.
  void Stop();

 private:
  class Impl;
  explicit Broker(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace atollrt
