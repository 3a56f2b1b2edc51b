// SPDX-License-Identifier: Apache-2.0
//
// A connection to a broker of MQTT, kept up by a thread of its own: who sends never waits, whether
// the broker is away, refuses, or does not read. What it missed is told to it when it is back.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tools/atoll/mqtt_messages.h"

namespace atollcmd {

struct MqttOptions {
  MqttAddress address;
  std::string password;
  // PEM files for an address with TLS: who signs the broker's certificate ("": whom this system
  // trusts), and what the broker may ask of a client ("": nothing).
  std::string ca, certificate, key;
  MqttMessage online;   // whenever there is a connection
  MqttMessage offline;  // at the end, and what the broker says when the connection is lost
  // Asked for a message now and then; any thread, must not throw.
  std::function<MqttMessage()> stats;
  // A line for people, from the thread; must not throw.
  std::function<void(const std::string& line)> say;
};

class MqttConnection {
 public:
  // Returns at once. Throws CommandError if there is no MQTT in this build, or no memory.
  static std::unique_ptr<MqttConnection> Open(MqttOptions options);
  // Sends what is left and `offline`, for two seconds at most.
  virtual ~MqttConnection() = default;
  virtual void Send(MqttMessage message) = 0;
};

}  // namespace atollcmd
