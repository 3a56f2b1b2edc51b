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
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

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

constexpr size_t kZ85Characters = 40;
constexpr size_t kMostKeys = 1024;

// The keys of a file whose lines are bare or called `name`; lines of other names are left out.
Result<std::vector<CurveKey>> ReadKeys(const std::string& path, std::string_view name) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return NotFound("key file '%s' cannot be read", path.c_str());
  std::vector<CurveKey> keys;
  std::string line;
  int number = 0;
  while (std::getline(file, line)) {
    ++number;
    std::string_view text = line;
    while (!text.empty() && static_cast<unsigned char>(text.back()) <= ' ') text.remove_suffix(1);
    while (!text.empty() && static_cast<unsigned char>(text.front()) <= ' ') text.remove_prefix(1);
    if (text.empty() || (text.front() == '#' && text.size() != kZ85Characters)) continue;
    if (text == "metadata" || text == "curve") continue;  // of certificates
    if (const size_t quote = text.find('"'); quote != text.npos) {
      if (!text.starts_with(name)) continue;
      text = text.substr(quote + 1, text.rfind('"') - std::min(quote + 1, text.rfind('"')));
    } else if (text.size() != kZ85Characters) {
      return InvalidArgument("'%s': line %d has %zu characters and is no key, which has %zu",
                             path.c_str(), number, text.size(), kZ85Characters);
    }
    CurveKey key;
    if (text.size() != kZ85Characters ||
        zmq_z85_decode(key.data(), std::string(text).c_str()) == nullptr) {
      return InvalidArgument("'%s': line %d is no key as Z85 writes it", path.c_str(), number);
    }
    if (keys.size() == kMostKeys) {
      return InvalidArgument("'%s' has more than %zu keys", path.c_str(), kMostKeys);
    }
    keys.push_back(key);
  }
  return keys;
}

}  // namespace

Result<CurveKeys> ReadCurveKeys(const std::string& server_file, const std::string& clients_file) {
  ATOLL_ASSIGN_OR_RETURN(const std::vector<CurveKey> server, ReadKeys(server_file, "secret-key"));
  ATOLL_ASSIGN_OR_RETURN(const std::vector<CurveKey> clients, ReadKeys(clients_file, "public-key"));
  if (server.size() != 1) {
    return InvalidArgument("'%s' has %zu secret keys; one is the server's", server_file.c_str(),
                           server.size());
  }
  if (clients.empty()) {
    return InvalidArgument("'%s' has no public keys, so that nobody may come in",
                           clients_file.c_str());
  }
  return CurveKeys{server[0], {clients.begin(), clients.end()}};
}

Result<void*> BindGate(void* context) {
  void* const gate = zmq_socket(context, ZMQ_REP);
  if (gate == nullptr || zmq_bind(gate, "inproc://zeromq.zap.01") != 0) {
    Status status = BindError("inproc://zeromq.zap.01");
    if (gate != nullptr) zmq_close(gate);
    return status;
  }
  return gate;
}

bool AnswerAtGate(void* gate, const CurveKeys& keys) {
  // Version, number of the question, domain, address, identity, mechanism, the client's key.
  std::vector<std::string> parts;
  int more = 1;
  while (more != 0) {
    zmq_msg_t part;
    zmq_msg_init(&part);
    if (zmq_msg_recv(&part, gate, ZMQ_DONTWAIT) < 0) {
      zmq_msg_close(&part);
      return false;
    }
    parts.emplace_back(static_cast<const char*>(zmq_msg_data(&part)), zmq_msg_size(&part));
    more = zmq_msg_more(&part);
    zmq_msg_close(&part);
  }
  CurveKey key = {};
  const bool has_key = parts.size() == 7 && parts[5] == "CURVE" && parts[6].size() == key.size();
  if (has_key) std::memcpy(key.data(), parts[6].data(), key.size());
  const bool allowed = has_key && keys.clients.contains(key);
  const std::string answer[] = {"1.0",
                                parts.size() > 1 ? parts[1] : "",
                                allowed ? "200" : "400",
                                allowed ? "OK" : "this key is not known here",
                                "",
                                ""};
  for (size_t i = 0; i < std::size(answer); ++i) {
    zmq_send(gate, answer[i].data(), answer[i].size(),
             ZMQ_DONTWAIT | (i + 1 < std::size(answer) ? ZMQ_SNDMORE : 0));
  }
  return true;
}

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
                               uint64_t max_message_bytes, const CurveKeys* keys) {
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
  if (keys != nullptr && path.empty()) {
    set(ZMQ_CURVE_SERVER, 1);
    if (zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, keys->server.data(), keys->server.size()) !=
        0) {
      zmq_close(socket);
      return Unsupported("libzmq was built without CURVE; install one that has it");
    }
    zmq_setsockopt(socket, ZMQ_ZAP_DOMAIN, "atoll", 5);
  }
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
