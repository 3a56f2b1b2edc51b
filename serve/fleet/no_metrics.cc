// SPDX-License-Identifier: Apache-2.0
//
// In the place of metrics.cc where libevent, http_parser or OpenSSL were not there.
#include "serve/fleet/metrics.h"

namespace atollserve {

atollrt::Result<std::unique_ptr<MetricsServer>> MetricsServer::Start(MetricsOptions,
                                                                     std::function<std::string()>) {
  return atollrt::Unsupported(
      "--metrics needs a server of HTTP, which this atoll-fleet was built without; install "
      "libevent-dev, libhttp-parser-dev and libssl-dev and build it again");
}

}  // namespace atollserve
