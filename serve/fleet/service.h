// SPDX-License-Identifier: Apache-2.0
//
// Service: a worker to whom any tool of NATS can talk: it answers $SRV.PING, INFO and STATS, alone
// and with a name and an id behind them, as services of NATS do (ADR-32 of nats-io).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "serve/fleet/connection.h"

namespace atollserve {

struct ServiceEndpoint {
  std::string name;
  std::string subject;
  std::string queue;
  int64_t requests = 0;
  int64_t errors = 0;
  std::string last_error;
  int64_t processing_ns = 0;  // of all requests
};

struct ServiceOptions {
  std::string name;     // letters, digits, '-' and '_'
  std::string id;       // one token
  std::string version;  // of three numbers
  std::string description;
  // What there is now; from a thread of the connection's.
  std::function<std::vector<ServiceEndpoint>()> endpoints;
};

class Service {
 public:
  // Answers when it returns, until its end. The connection outlives it.
  static atollrt::Result<std::unique_ptr<Service>> Start(const FleetConnection* connection,
                                                         ServiceOptions options);
  virtual ~Service() = default;
};

}  // namespace atollserve
