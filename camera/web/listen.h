// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <string>
#include <utility>

#include "atoll/status.h"

namespace atollrt {

// A file descriptor with an owner.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

struct Listener {
  Descriptor socket;    // listens; neither it nor what it accepts blocks
  std::string address;  // numeric, without brackets: "127.0.0.1", "::1"
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
