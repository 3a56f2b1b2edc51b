// SPDX-License-Identifier: Apache-2.0
#include "serve/broker/endpoint.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "driver/broker/socket.h"

namespace atollrt {
namespace {

constexpr int kSystemdSocket = 3;

// The socket that systemd listens at for this process, or none.
Result<FileDescriptor> SystemdSocket() {
  const auto number = [](const char* name) {
    const char* const text = getenv(name);
    long value = -1;
    if (text != nullptr) std::from_chars(text, text + std::strlen(text), value);
    return value;
  };
  if (number("LISTEN_PID") != getpid() || number("LISTEN_FDS") < 1) return FileDescriptor();
  const auto option = [](int name) {
    int value = 0;
    socklen_t bytes = sizeof(value);
    return getsockopt(kSystemdSocket, SOL_SOCKET, name, &value, &bytes) == 0 ? value : -1;
  };
  if (number("LISTEN_FDS") != 1 || option(SO_DOMAIN) != AF_UNIX ||
      option(SO_TYPE) != SOCK_SEQPACKET || option(SO_ACCEPTCONN) != 1) {
    return InvalidArgument(
        "what $LISTEN_FDS hands over is not the one socket that a broker needs; write "
        "ListenSequentialPacket=PATH in its .socket unit, once");
  }
  fcntl(kSystemdSocket, F_SETFD, FD_CLOEXEC);
  return FileDescriptor(kSystemdSocket);
}

std::string PathOf(int socket) {
  sockaddr_un address = {};
  socklen_t bytes = sizeof(address);
  constexpr size_t kBegin = offsetof(sockaddr_un, sun_path);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &bytes) != 0 || bytes <= kBegin) {
    return "";
  }
  return {address.sun_path,
          strnlen(address.sun_path, std::min(bytes - kBegin, sizeof(address.sun_path)))};
}

// kDeviceBusy if another process has it.
Result<FileDescriptor> LockAt(const std::string& socket_path) {
  const std::string path = socket_path + ".lock";
  if (const size_t slash = path.rfind('/'); slash != path.npos && slash > 0) {
    mkdir(path.substr(0, slash).c_str(), 0750);  // if it is not there; what fails, open says
  }
  FileDescriptor lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (lock.get() < 0) {
    return Status(errno == EACCES ? StatusCode::kPermissionDenied : StatusCode::kNotFound,
                  Format("broker's lock '%s': %s", path.c_str(), strerror(errno)));
  }
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    std::array<char, 16> owner = {};
    (void)!pread(lock.get(), owner.data(), owner.size() - 1, 0);
    return Status(StatusCode::kDeviceBusy,
                  Format("process %s is the broker at '%s' already; stop it, or choose another "
                         "--socket",
                         owner.data(), socket_path.c_str()));
  }
  const std::string process = Format("%d", getpid());
  (void)!ftruncate(lock.get(), 0);
  (void)!pwrite(lock.get(), process.data(), process.size(), 0);
  return lock;
}

}  // namespace

Result<BrokerEndpoint> BrokerEndpoint::Open(const std::string& path) {
  BrokerEndpoint endpoint;
  endpoint.path = path.empty() ? DefaultBrokerPath() : path;
  ATOLL_ASSIGN_OR_RETURN(endpoint.listener, SystemdSocket());
  if (endpoint.listener.get() >= 0) {
    endpoint.path = PathOf(endpoint.listener.get());
  } else {
    // Who has the lock is the broker; a socket that is there without is a dead one's.
    ATOLL_ASSIGN_OR_RETURN(endpoint.lock, LockAt(endpoint.path));
    ATOLL_ASSIGN_OR_RETURN(endpoint.listener, ListenAt(endpoint.path));
  }
  fcntl(endpoint.listener.get(), F_SETFL, fcntl(endpoint.listener.get(), F_GETFL) | O_NONBLOCK);
  return endpoint;
}

}  // namespace atollrt
