// SPDX-License-Identifier: Apache-2.0
//
// Where a broker listens, and that it is the only one there.
#pragma once

#include <string>

#include "atoll/status.h"
#include "runtime/base/file_descriptor.h"

namespace atollrt {

struct BrokerEndpoint {
  FileDescriptor listener;  // does not block
  FileDescriptor lock;      // held while its owner is the broker of the path; of systemd's: none
  std::string path;

  // Listens at `path` ("": DefaultBrokerPath()), in the place of a broker that died; or at the
  // socket that systemd hands over ($LISTEN_FDS), wherever that is. kDeviceBusy, with its process,
  // if another broker is there; otherwise the errors of ListenAt.
  static Result<BrokerEndpoint> Open(const std::string& path);
};

}  // namespace atollrt
