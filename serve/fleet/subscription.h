// SPDX-License-Identifier: Apache-2.0
//
// Subscription: a function that is called with each message to a subject, one after the other, on a
// thread of the connection's, until the end of the subscription.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "atoll/status.h"
#include "serve/fleet/connection.h"

namespace atollserve {

class Subscription {
 public:
  // Must not block for long: others wait behind it.
  using OnMessage = std::function<void(natsMsg* message)>;
  // Messages and bytes that may wait for `on_message`; more are lost, and the connection says so.
  struct Pending {
    int messages = 65'536;
    int bytes = 64 << 20;
  };

  // `queue`: of several that are in the same one, each message goes to one; "": to all.
  static atollrt::Result<std::unique_ptr<Subscription>> Start(const FleetConnection* connection,
                                                              const std::string& subject,
                                                              const std::string& queue,
                                                              OnMessage on_message,
                                                              Pending pending);
  static atollrt::Result<std::unique_ptr<Subscription>> Start(const FleetConnection* connection,
                                                              const std::string& subject,
                                                              const std::string& queue,
                                                              OnMessage on_message) {
    return Start(connection, subject, queue, std::move(on_message), Pending());
  }
  // No call is under way when it returns. Not from within one.
  ~Subscription();

  // No more messages come; those that wait are still handed over, also if it ends, while there is a
  // server.
  void Drain();
  int64_t dropped() const;

 private:
  // What nats.c calls, which may be later than anybody expects.
  struct State {
    OnMessage on_message;
    std::mutex mutex;
    std::condition_variable completed;
    bool is_complete = false;
  };
  explicit Subscription(const FleetConnection* connection) : connection_(connection) {}

  const FleetConnection* const connection_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
  NatsPtr<natsSubscription> subscription_;
  bool draining_ = false;
};

}  // namespace atollserve
