// SPDX-License-Identifier: Apache-2.0
//
// MetricsServer: a worker's counts at http://ADDRESS/metrics, for Prometheus. Who may read them is
// the rule of every server here (serve/access/access.h): on loopback addresses whoever is there,
// elsewhere by TLS and a token or a certificate.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "atoll/status.h"
#include "serve/access/access.h"
#include "serve/fleet/records.h"

namespace atollserve {

struct MetricsOptions {
  std::string listen;  // "127.0.0.1:9464", ":9464" (the same), "unix:/run/atoll/metrics.sock"
  AccessOptions access;
};

class MetricsServer {
 public:
  // Answers from now on, with what `text` gives, which is called on a thread of its own and does
  // not block. Errors of OpenAccess, ListenAt and CheckListener; kUnsupported where atoll-fleet was
  // built without a server of HTTP.
  static atollrt::Result<std::unique_ptr<MetricsServer>> Start(MetricsOptions options,
                                                               std::function<std::string()> text);
  // Closes what is open.
  virtual ~MetricsServer() = default;
  // "http://127.0.0.1:9464/metrics"
  virtual std::string url() const = 0;
};

// What a worker says of itself in the text format of Prometheus, beside what is said of its models
// (PrometheusText). `connected`: to the servers of NATS.
std::string WorkerPrometheusText(const WorkerRecord& record, bool connected);

}  // namespace atollserve
