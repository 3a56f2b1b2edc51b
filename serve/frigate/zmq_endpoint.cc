// SPDX-License-Identifier: Apache-2.0
#include "serve/frigate/zmq_endpoint.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <zmq.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

#include "runtime/base/file_descriptor.h"

namespace atollrt {
namespace {

constexpr std::string_view kIpc = "ipc://";
constexpr std::string_view kTcp = "tcp://";

struct TcpEndpoint {
  std::string address;  // without brackets
  std::string port;
};

std::optional<TcpEndpoint> ParseTcp(std::string_view endpoint) {
  if (!endpoint.starts_with(kTcp)) return std::nullopt;
  endpoint.remove_prefix(kTcp.size());
  const size_t colon = endpoint.rfind(':');
  if (colon == endpoint.npos || colon == 0) return std::nullopt;
  TcpEndpoint parsed{std::string(endpoint.substr(0, colon)),
                     std::string(endpoint.substr(colon + 1))};
  const bool digits = !parsed.port.empty() && parsed.port.size() <= 5 &&
                      std::all_of(parsed.port.begin(), parsed.port.end(),
                                  [](char c) { return c >= '0' && c <= '9'; });
  if (parsed.port != "*" && (!digits || std::stoul(parsed.port) > 65535)) return std::nullopt;
  if (parsed.address.size() > 2 && parsed.address.front() == '[' && parsed.address.back() == ']') {
    parsed.address = parsed.address.substr(1, parsed.address.size() - 2);
  }
  if (parsed.address.find_first_of("[];,@/") != std::string::npos) return std::nullopt;
  return parsed;
}

bool IsLoopback(const std::string& address) {
  if (address == "localhost") return true;
  in_addr v4 = {};
  if (inet_pton(AF_INET, address.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6 = {};
  if (inet_pton(AF_INET6, address.c_str(), &v6) != 1) return false;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

// What libzmq binds: it knows no names of hosts.
std::string AddressToBind(const std::string& endpoint) {
  const std::optional<TcpEndpoint> tcp = ParseTcp(endpoint);
  if (!tcp || tcp->address != "localhost") return endpoint;
  return std::string(kTcp) + "127.0.0.1:" + tcp->port;
}

// libzmq removes whatever is at the path of a socket that it binds.
Status CheckSocketPath(const std::string& path) {
  if (path.front() == '@') return Status();  // abstract: no file
  struct stat information = {};
  if (lstat(path.c_str(), &information) != 0) return Status();
  if (!S_ISSOCK(information.st_mode)) {
    return InvalidArgument("'%s' is no socket; it stays as it is, so choose another path",
                           path.c_str());
  }
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return Status();  // libzmq says so
  std::memcpy(address.sun_path, path.data(), path.size());
  const FileDescriptor probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
    return Status(StatusCode::kDeviceBusy,
                  "another program listens at '" + path + "'; choose another endpoint, or stop it");
  }
  return Status();
}

Status BindError(const std::string& endpoint) {
  const int error = zmq_errno();
  const StatusCode code = error == EADDRINUSE                 ? StatusCode::kDeviceBusy
                          : error == EACCES || error == EPERM ? StatusCode::kPermissionDenied
                                                              : StatusCode::kInvalidArgument;
  return Status(code, Format("cannot listen at '%s': %s; choose another endpoint", endpoint.c_str(),
                             zmq_strerror(error)));
}

}  // namespace

Result<bool> IsLocalEndpoint(const std::string& endpoint) {
  if (endpoint.starts_with(kIpc) && endpoint.size() > kIpc.size() &&
      endpoint.find('*') == std::string::npos) {
    return true;
  }
  if (const std::optional<TcpEndpoint> tcp = ParseTcp(endpoint)) return IsLoopback(tcp->address);
  return InvalidArgument(
      "'%s' is no endpoint; ipc:///run/atoll/frigate and tcp://127.0.0.1:5555 are",
      endpoint.c_str());
}

Result<BoundSocket> BindRouter(void* context, const std::string& endpoint,
                               uint64_t max_message_bytes) {
  const std::string path =
      endpoint.starts_with(kIpc) ? endpoint.substr(kIpc.size()) : std::string();
  if (!path.empty()) ATOLL_RETURN_IF_ERROR(CheckSocketPath(path));
  void* const socket = zmq_socket(context, ZMQ_ROUTER);
  if (socket == nullptr) return BindError(endpoint);
  const auto set = [&](int option, int value) {
    zmq_setsockopt(socket, option, &value, sizeof(value));
  };
  set(ZMQ_LINGER, 0);
  set(ZMQ_IPV6, endpoint.find('[') != std::string::npos ? 1 : 0);
  set(ZMQ_RCVHWM, 4);  // messages, for each client
  set(ZMQ_TCP_KEEPALIVE, 1);
  const auto most = static_cast<int64_t>(max_message_bytes);
  zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &most, sizeof(most));
  if (zmq_bind(socket, AddressToBind(endpoint).c_str()) != 0) {
    Status status = BindError(endpoint);
    zmq_close(socket);
    return status;
  }
  char bound[512] = {};
  size_t size = sizeof(bound) - 1;
  zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, bound, &size);
  // For this user and group.
  if (!path.empty() && path.front() != '@') chmod(path.c_str(), 0660);
  return BoundSocket{socket, bound};
}

}  // namespace atollrt
