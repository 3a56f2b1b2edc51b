// SPDX-License-Identifier: Apache-2.0
//
// Where a server listens: "127.0.0.1:8000", "[::1]:8000", "localhost:0" (0: any port that is free)
// or "unix:/run/atoll/serve.sock".
#pragma once

#include <string>
#include <string_view>

#include "atoll/status.h"
#include "runtime/base/file_descriptor.h"

namespace atollserve {

struct Listener {
  atollrt::FileDescriptor socket;  // listens; does not block
  std::string name;                // as others would write it: "127.0.0.1:8000", "unix:/run/x.sock"
  std::string address;             // numeric, without brackets; of a unix socket its path
  int port = 0;                    // 0 of a unix socket
  bool is_unix = false;
  bool local = false;  // reached from this computer alone: a loopback address or a unix socket
  bool any = false;    // all addresses of this computer
};

// Listens. A unix socket that is there already is replaced if nobody listens on it; its folder
// decides who may come in, and it is 0660. kInvalidArgument for what is no address, kNotFound for
// one that is not this computer's, kDeviceBusy if it is taken, kPermissionDenied.
atollrt::Result<Listener> ListenAt(std::string_view where);

// "http://127.0.0.1:8000/", for a browser on this computer; of a unix socket its name.
std::string UrlOf(const Listener& listener, bool tls);

}  // namespace atollserve
