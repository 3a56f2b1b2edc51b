// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "atoll/status.h"
#include "runtime/base/file_descriptor.h"

namespace atollrt {

struct Listener {
  FileDescriptor socket;  // listens; neither it nor what it accepts blocks
  std::string address;    // numeric, without brackets: "127.0.0.1", "::1"
  int port = 0;
  bool loopback = false;
  bool any = false;  // all addresses of this computer

  // Of the root of the server, for a browser on this computer.
  std::string Url() const;
};

// A TCP socket that listens on `address`, numeric (IPv6 with or without brackets) or a name, and
// `port`, 0 to 65535. Errors as for StreamServer::Start.
Result<Listener> Listen(const std::string& address, int port);

}  // namespace atollrt
