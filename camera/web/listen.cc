// SPDX-License-Identifier: Apache-2.0
#include "camera/web/listen.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
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
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    return InternalError("getsockname: %s", std::strerror(errno));
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (bound.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(bound);
    listener->port = ntohs(v4.sin_port);
    listener->loopback = ntohl(v4.sin_addr.s_addr) >> 24 == 127;
    listener->any = v4.sin_addr.s_addr == htonl(INADDR_ANY);
    inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
  } else {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(bound);
    listener->port = ntohs(v6.sin6_port);
    listener->loopback = IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) ||
                         (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) && v6.sin6_addr.s6_addr[12] == 127);
    listener->any = IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr);
    inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
  }
  listener->address = text.data();
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
