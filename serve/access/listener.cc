// SPDX-License-Identifier: Apache-2.0
#include "serve/access/listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace atollserve {
namespace {

using atollrt::FileDescriptor;
using atollrt::InternalError;
using atollrt::InvalidArgument;
using atollrt::NotFound;
using atollrt::Result;
using atollrt::Status;
using atollrt::StatusCode;

constexpr int kBacklog = 512;
constexpr std::string_view kUnix = "unix:";

Status ListenError(const std::string& where, int error) {
  const auto status = [&](StatusCode code, const char* hint) {
    return Status(code, atollrt::Format("cannot listen on %s: %s; %s", where.c_str(),
                                        std::strerror(error), hint));
  };
  switch (error) {
    case EADDRINUSE:
      return status(StatusCode::kDeviceBusy, "choose another one; port 0 is any that is free");
    case EACCES:
    case EPERM:
      return status(StatusCode::kPermissionDenied, "choose a port from 1024, or another folder");
    case EADDRNOTAVAIL:
    case ENOENT:
      return status(StatusCode::kNotFound, "choose an address of this computer, as 127.0.0.1:8000");
    case EAFNOSUPPORT:
      return status(StatusCode::kNotFound, "choose an address of the other family, as 127.0.0.1");
    default:
      return status(StatusCode::kInternal, "choose another address or port");
  }
}

Result<Listener> ListenAtPath(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = std::string(kUnix) + path;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return InvalidArgument("'%s': the path of a unix socket has 1 to %zu bytes", name.c_str(),
                           sizeof(address.sun_path) - 1);
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  Listener listener;
  listener.socket =
      FileDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (listener.socket.get() < 0) return ListenError(name, errno);
  struct stat there {};
  if (lstat(path.c_str(), &there) == 0 && S_ISSOCK(there.st_mode)) {
    const FileDescriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(probe.get(), generic, sizeof(address)) != 0 && errno == ECONNREFUSED) {
      unlink(path.c_str());  // left by one that was killed
    }
  }
  if (bind(listener.socket.get(), generic, sizeof(address)) != 0) return ListenError(name, errno);
  chmod(path.c_str(), 0660);
  if (listen(listener.socket.get(), kBacklog) != 0) return ListenError(name, errno);
  listener.name = name;
  listener.address = path;
  listener.is_unix = true;
  listener.local = true;
  return listener;
}

// What the socket is bound to.
Status Describe(Listener* listener) {
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  auto* const address = reinterpret_cast<sockaddr*>(&bound);
  if (getsockname(listener->socket.get(), address, &size) != 0 ||
      getnameinfo(address, size, host.data(), host.size(), port.data(), port.size(),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return InternalError("getsockname: %s", std::strerror(errno));
  }
  std::string& text = listener->address;
  text = host.data();
  text = text.substr(0, text.find('%'));  // without an interface
  listener->port = std::atoi(port.data());
  listener->local = text.starts_with("127.") || text == "::1" || text.starts_with("::ffff:127.");
  listener->any = text == "0.0.0.0" || text == "::";
  const bool v6 = text.find(':') != std::string::npos;
  listener->name = (v6 ? "[" + text + "]" : text) + ":" + port.data();
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
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));  // accepted sockets inherit it
  if (bind(fd, at.ai_addr, at.ai_addrlen) != 0 || listen(fd, kBacklog) != 0) return errno;
  return 0;
}

}  // namespace

Result<Listener> ListenAt(std::string_view where) {
  if (where.starts_with(kUnix)) return ListenAtPath(std::string(where.substr(kUnix.size())));
  const std::string text(where);
  const size_t colon = where.rfind(':');
  std::string host(where.substr(0, colon));
  const bool v6 = host.starts_with('[') && host.ends_with(']');
  if (v6) host = host.substr(1, host.size() - 2);
  const std::string_view digits =
      colon == std::string_view::npos ? std::string_view() : where.substr(colon + 1);
  int port = -1;
  const auto [end, error_code] =
      std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (digits.empty() || host.empty() || error_code != std::errc() ||
      end != digits.data() + digits.size() || port < 0 || port > 65535 ||
      (!v6 && host.find(':') != std::string::npos)) {
    return InvalidArgument(
        "'%s' is nothing to listen on; give ADDRESS:PORT, as 127.0.0.1:8000 or [::1]:8000, with a "
        "port of 0 to 65535, or unix:PATH",
        text.c_str());
  }
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
      error != 0) {
    return NotFound("cannot listen on %s: %s; give an address of this computer, as 127.0.0.1:8000",
                    text.c_str(), gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, &freeaddrinfo);
  Listener listener;
  int error = EADDRNOTAVAIL;
  for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
    error = ListenOn(*at, &listener.socket);
    if (error != 0) continue;
    ATOLL_RETURN_IF_ERROR(Describe(&listener));
    return listener;
  }
  return ListenError(text, error);
}

std::string UrlOf(const Listener& listener, bool tls) {
  if (listener.is_unix) return listener.name;
  const bool v6 = listener.address.find(':') != std::string::npos;
  std::string host = v6 ? "[" + listener.address + "]" : listener.address;
  if (listener.any) host = v6 ? "[::1]" : "127.0.0.1";
  return (tls ? "https://" : "http://") + host + ":" + std::to_string(listener.port) + "/";
}

}  // namespace atollserve
