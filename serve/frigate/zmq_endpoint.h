// SPDX-License-Identifier: Apache-2.0
//
// Where sockets of ZeroMQ listen: what an endpoint is, whether others than this computer reach it,
// and binding it without taking anybody's place.
#pragma once

#include <cstdint>
#include <string>

#include "atoll/status.h"

namespace atollrt {

// Whether an endpoint is one of this computer alone: ipc://PATH, or tcp://ADDRESS:PORT on
// localhost, 127.x.x.x or [::1]. kInvalidArgument for what is neither of both.
Result<bool> IsLocalEndpoint(const std::string& endpoint);

struct BoundSocket {
  void* socket = nullptr;  // a ROUTER, to be closed by whoever gets it
  std::string endpoint;    // with the port that was free for "tcp://127.0.0.1:*"
};

// Sockets of ipc:// are for this user and group. kDeviceBusy for one that is taken,
// kInvalidArgument for a path where there is something else than a socket, which libzmq would
// remove, and for what cannot be bound at all.
Result<BoundSocket> BindRouter(void* context, const std::string& endpoint,
                               uint64_t max_message_bytes);

}  // namespace atollrt
