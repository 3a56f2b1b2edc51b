// SPDX-License-Identifier: Apache-2.0
#include "camera/web/listen.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace atollrt {
namespace {

// In the kernel, of each viewer: enough for a fast one, and little that is old for a slow one.
constexpr int kSendBufferBytes = 256 << 10;
constexpr int kBacklog = 64;

Status ListenError(const std::string& where, int error) {
  const auto status = [&](StatusCode code, const char* hint) {
    return Status(code,
                  Format("cannot listen on %s: %s; %s", where.c_str(), std::strerror(error), hint));
  };
  switch (error) {
    case EADDRINUSE:
      return status(StatusCode::kDeviceBusy, "choose another port, or 0 for any that is free");
    case EACCES:
      return status(StatusCode::kPermissionDenied, "choose a port from 1024");
    case EADDRNOTAVAIL:
      return status(StatusCode::kNotFound,
                    "choose an address of this computer, 127.0.0.1 or 0.0.0.0");
    case EAFNOSUPPORT:
      return status(StatusCode::kNotFound, "choose an address of the other family, as 127.0.0.1");
    default:
      return status(StatusCode::kInternal, "choose another address or port");
  }
}

// What the socket is bound to.
Status Describe(int fd, Listener* listener) {
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  auto* const address = reinterpret_cast<sockaddr*>(&bound);
  if (getsockname(fd, address, &size) != 0 ||
      getnameinfo(address, size, host.data(), host.size(), port.data(), port.size(),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return InternalError("getsockname: %s", std::strerror(errno));
  }
  std::string& text = listener->address;
  text = host.data();
  text = text.substr(0, text.find('%'));  // without an interface
  listener->port = std::atoi(port.data());
  listener->loopback = text.starts_with("127.") || text == "::1" || text.starts_with("::ffff:127.");
  listener->any = text == "0.0.0.0" || text == "::";
  return {};
}

// 0, or errno.
int ListenOn(const addrinfo& at, FileDescriptor* socket) {
  *socket = FileDescriptor(
      ::socket(at.ai_family, at.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, at.ai_protocol));
  const int fd = socket->get();
  if (fd < 0) return errno;
  const int on = 1;
  // A server that was stopped a moment ago does not keep the port.
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes, sizeof(kSendBufferBytes));
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));  // accepted sockets inherit these
  if (bind(fd, at.ai_addr, at.ai_addrlen) != 0 || listen(fd, kBacklog) != 0) return errno;
  return 0;
}

}  // namespace

std::string Listener::Url() const {
  const bool v6 = address.find(':') != std::string::npos;
  std::string host = v6 ? "[" + address + "]" : address;
  if (any) host = v6 ? "[::1]" : "127.0.0.1";
  return "http://" + host + ":" + std::to_string(port) + "/";
}

Result<Listener> Listen(const std::string& address, int port) {
  if (port < 0 || port > 65535) {
    return InvalidArgument("port %d: ports are 0, for any that is free, to 65535", port);
  }
  std::string name = address;
  if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  if (name.empty()) {
    return InvalidArgument(
        "no address to listen on; give 127.0.0.1 for this computer alone, 0.0.0.0 for its network");
  }
  const std::string where =
      (name.find(':') == std::string::npos ? name : "[" + name + "]") + ":" + std::to_string(port);

  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found);
      error != 0) {
    return NotFound("cannot listen on %s: %s; give an address of this computer, as 127.0.0.1",
                    where.c_str(), gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, &freeaddrinfo);
  Listener listener;
  int error = EADDRNOTAVAIL;
  for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
    error = ListenOn(*at, &listener.socket);
    if (error != 0) continue;
    ATOLL_RETURN_IF_ERROR(Describe(listener.socket.get(), &listener));
    return listener;
  }
  return ListenError(where, error);
}

}  // namespace atollrt
