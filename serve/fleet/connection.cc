// SPDX-License-Identifier: Apache-2.0
#include "serve/fleet/connection.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "serve/access/access.h"
#include "serve/fleet/discovery.h"

namespace atollserve {
namespace {

using atollrt::InvalidArgument;
using atollrt::Result;
using atollrt::Status;
using atollrt::StatusCode;
using std::chrono::steady_clock;

constexpr const char* kTokenVariable = "ATOLL_NATS_TOKEN";
// A server that has not answered two of them has gone. One with a slow disk, as an SD card is, may
// say nothing for seconds.
constexpr int64_t kPingMs = 5000;
constexpr int64_t kDialMs = 2000;
constexpr int64_t kReconnectMs = 250;
constexpr int64_t kRequestMs = 5000;  // of JetStream's answers
// Of what a server gives to be signed, libnats 3.4 signs about one in 150 wrongly: those that are
// refused are tried again, with another one.
constexpr int kSignatures = 3;

Status CheckOptions(const ConnectionOptions& options, bool has_token, bool* all_local) {
  if (options.servers.empty()) return InvalidArgument("give a server: --nats nats://HOST:4222");
  if (options.nkey.empty() != options.nkey_seed.empty()) {
    return InvalidArgument("--nkey, a public key, and --nkey-seed, a file, go together");
  }
  if (options.tls_cert.empty() != options.tls_key.empty()) {
    return InvalidArgument("--tls-cert and --tls-key go together");
  }
  const bool credential = has_token || !options.credentials.empty() || !options.nkey.empty() ||
                          !options.tls_cert.empty();
  *all_local = true;
  for (const std::string& server : options.servers) {
    ATOLL_ASSIGN_OR_RETURN(const ServerAddress address, ParseServerAddress(server));
    const bool tls = address.tls || !options.tls_ca.empty();
    ATOLL_RETURN_IF_ERROR(
        CheckServer({.where = server, .local = address.local, .tls = tls, .credential = credential},
                    options.insecure));
    *all_local = *all_local && address.local;
  }
  return {};
}

natsStatus SetServers(const ConnectionOptions& options, bool all_local, natsOptions* to) {
  std::vector<const char*> servers;
  bool tls = !options.tls_ca.empty() || !options.tls_cert.empty();
  for (const std::string& server : options.servers) {
    servers.push_back(server.c_str());
    tls = tls || server.starts_with("tls:");
  }
  natsStatus status = natsOptions_SetServers(to, servers.data(), static_cast<int>(servers.size()));
  if (status == NATS_OK && tls) status = natsOptions_SetSecure(to, true);
  // Others of a cluster may be elsewhere, where a connection that is open to whoever is on this
  // computer may not go.
  if (status == NATS_OK && all_local && !tls) {
    status = natsOptions_SetIgnoreDiscoveredServers(to, true);
  }
  return status;
}

// Certificates, and who this is.
Status LoadFiles(const ConnectionOptions& options, natsOptions* to) {
  const auto load = [&](const std::string& file, const char* what, auto function,
                        auto... arguments) -> Status {
    if (file.empty()) return {};
    return NatsStatus(function(to, arguments...), std::string(what) + " '" + file + "'");
  };
  ATOLL_RETURN_IF_ERROR(load(options.tls_ca, "file of --tls-ca",
                             natsOptions_LoadCATrustedCertificates, options.tls_ca.c_str()));
  ATOLL_RETURN_IF_ERROR(load(options.tls_cert, "file of --tls-cert",
                             natsOptions_LoadCertificatesChain, options.tls_cert.c_str(),
                             options.tls_key.c_str()));
  ATOLL_RETURN_IF_ERROR(load(options.tls_host, "name of --tls-host",
                             natsOptions_SetExpectedHostname, options.tls_host.c_str()));
  ATOLL_RETURN_IF_ERROR(load(options.credentials, "file of --credentials",
                             natsOptions_SetUserCredentialsFromFiles, options.credentials.c_str(),
                             nullptr));
  return load(options.nkey_seed, "file of --nkey-seed", natsOptions_SetNKeyFromSeed,
              options.nkey.c_str(), options.nkey_seed.c_str());
}

}  // namespace

Result<ServerAddress> ParseServerAddress(std::string_view address) {
  ServerAddress parsed;
  const std::string shown(address.substr(0, 100));
  const size_t scheme = address.find("://");
  const std::string_view kind = address.substr(0, std::min(scheme, address.size()));
  if (scheme == std::string_view::npos || (kind != "nats" && kind != "tls")) {
    return InvalidArgument("'%s' is no server: those are nats://HOST:PORT and tls://HOST:PORT",
                           shown.c_str());
  }
  parsed.tls = kind == "tls";
  std::string_view rest = address.substr(scheme + 3);
  if (rest.find('@') != std::string_view::npos) {
    // Not repeated: there is a secret in it.
    return InvalidArgument(
        "the address of a server has a name or password in it, which everybody on this computer "
        "can read; use --credentials, --nkey-seed, --token-file or ATOLL_NATS_TOKEN");
  }
  const size_t colon = rest.rfind(':');
  const size_t bracket = rest.find(']');
  const bool has_port =
      colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket);
  parsed.host = rest.substr(0, has_port ? colon : rest.size());
  const std::string_view port = has_port ? rest.substr(colon + 1) : std::string_view("4222");
  if (parsed.host.empty() || port.empty() || port.size() > 5 ||
      !std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; }) ||
      parsed.host.find_first_of(" /,") != std::string::npos) {
    return InvalidArgument("'%s' is no server: those are nats://HOST:PORT and tls://HOST:PORT",
                           shown.c_str());
  }
  // As a name it means what the computer's own files say it means, which is this computer.
  parsed.local = parsed.host == "localhost" || parsed.host == "127.0.0.1" || parsed.host == "[::1]";
  return parsed;
}

void FleetConnection::OnDisconnected(natsConnection*, void* self) {
  const auto* const me = static_cast<FleetConnection*>(self);
  if (!me->closing_) me->say_("the server has gone; looking for it and its others");
}

void FleetConnection::OnClosed(natsConnection*, void* self) {
  auto* const me = static_cast<FleetConnection*>(self);
  if (!me->closing_) me->say_("the servers do not let this user in again; the connection is over");
  const std::lock_guard lock(me->mutex_);
  me->is_closed_ = true;
  me->closed_changed_.notify_all();
}

void FleetConnection::OnReconnected(natsConnection* connection, void* self) {
  char url[256] = "";
  (void)natsConnection_GetConnectedUrl(connection, url, sizeof(url));
  static_cast<FleetConnection*>(self)->say_(std::string("connected to ") + url + " again");
}

void FleetConnection::OnError(natsConnection* connection, natsSubscription* subscription,
                              natsStatus status, void* self) {
  auto* const me = static_cast<FleetConnection*>(self);
  const char* text = nullptr;
  (void)natsConnection_GetLastError(connection, &text);
  std::string sentence = "NATS: ";
  sentence += text != nullptr && *text != '\0' && status != NATS_SLOW_CONSUMER
                  ? text
                  : natsStatus_GetText(status);
  if (status == NATS_SLOW_CONSUMER && subscription != nullptr) {
    const char* const subject = natsSubscription_GetSubject(subscription);
    sentence += std::string("; messages to ") + (subject == nullptr ? "?" : subject) + " were lost";
  }
  {
    const std::lock_guard lock(me->mutex_);
    if (sentence == me->last_error_) return;
    me->last_error_ = sentence;
  }
  me->say_(sentence);
}

Result<std::unique_ptr<FleetConnection>> FleetConnection::Connect(ConnectionOptions options,
                                                                  SayFunction say) {
  ATOLL_ASSIGN_OR_RETURN(const std::string token, ReadToken(options.token_file, kTokenVariable));
  if (AreToBeFound(options.servers)) {
    ATOLL_ASSIGN_OR_RETURN(options.servers, FindServers(options));
    for (const std::string& server : options.servers) say("found " + server);
  }
  bool all_local = false;
  ATOLL_RETURN_IF_ERROR(CheckOptions(options, !token.empty(), &all_local));
  std::unique_ptr<FleetConnection> made(new FleetConnection(std::move(say)));
  NatsPtr<natsOptions> wanted;
  ATOLL_RETURN_IF_ERROR(NatsStatus(natsOptions_Create(NatsOut(&wanted)), "options"));
  natsStatus status = SetServers(options, all_local, wanted.get());
  if (status == NATS_OK) status = made->SetBehaviour(options, wanted.get());
  if (status == NATS_OK && !token.empty()) {
    status = natsOptions_SetToken(wanted.get(), token.c_str());
  }
  ATOLL_RETURN_IF_ERROR(NatsStatus(status, "options of the connection"));
  ATOLL_RETURN_IF_ERROR(LoadFiles(options, wanted.get()));
  ATOLL_RETURN_IF_ERROR(made->ConnectWithin(options, wanted.get()));
  jsOptions js;
  jsOptions_Init(&js);
  js.Wait = kRequestMs;
  if (!options.domain.empty()) js.Domain = options.domain.c_str();
  ATOLL_RETURN_IF_ERROR(NatsStatus(
      natsConnection_JetStream(NatsOut(&made->jetstream_), made->get(), &js), "JetStream"));
  return made;
}

natsStatus FleetConnection::SetBehaviour(const ConnectionOptions& options, natsOptions* to) {
  natsStatus status = NATS_OK;
  const auto set = [&](bool wants, auto function, auto... arguments) {
    if (wants && status == NATS_OK) status = function(to, arguments...);
  };
  void* const self = this;
  set(true, natsOptions_SetName, options.name.c_str());
  set(true, natsOptions_SetTimeout, kDialMs);
  set(true, natsOptions_SetPingInterval, kPingMs);
  set(true, natsOptions_SetMaxPingsOut, 2);
  set(true, natsOptions_SetMaxReconnect, -1);
  set(true, natsOptions_SetReconnectWait, kReconnectMs);
  set(true, natsOptions_SetReconnectJitter, kReconnectMs, kReconnectMs);
  set(true, natsOptions_SetSendAsap, true);
  set(true, natsOptions_SetFailRequestsOnDisconnect, true);
  set(true, natsOptions_SetDisconnectedCB, OnDisconnected, self);
  set(true, natsOptions_SetClosedCB, OnClosed, self);
  set(true, natsOptions_SetReconnectedCB, OnReconnected, self);
  set(true, natsOptions_SetErrorHandler, OnError, self);
  set(options.pooled, natsOptions_UseGlobalMessageDelivery, true);
  set(!options.inbox_prefix.empty(), natsOptions_SetCustomInboxPrefix,
      options.inbox_prefix.c_str());
  return status;
}

Status FleetConnection::ConnectWithin(const ConnectionOptions& options, natsOptions* wanted) {
  const auto until = steady_clock::now() + std::chrono::milliseconds(options.connect_timeout_ms);
  int signatures = options.credentials.empty() && options.nkey_seed.empty() ? 0 : kSignatures;
  while (true) {
    const natsStatus status = natsConnection_Connect(NatsOut(&connection_), wanted);
    if (status == NATS_OK) return {};
    Status failure = NatsStatus(status, "no connection to " + options.servers[0]);
    if (failure.code() == StatusCode::kPermissionDenied && --signatures > 0) continue;
    if (failure.code() == StatusCode::kPermissionDenied ||
        failure.code() == StatusCode::kInvalidArgument || steady_clock::now() >= until) {
      return failure;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(kReconnectMs));
  }
}

FleetConnection::~FleetConnection() {
  closing_ = true;
  jetstream_.reset();
  if (connection_ != nullptr) {
    natsConnection_Close(connection_.get());
    // Callbacks come from a thread of their own, this one last.
    std::unique_lock lock(mutex_);
    closed_changed_.wait(lock, [&] { return is_closed_; });
  }
}

Status FleetConnection::Publish(const std::string& subject, const NatsHeaders& headers,
                                std::string_view body) const {
  ATOLL_ASSIGN_OR_RETURN(const NatsPtr<natsMsg> message,
                         MakeMessage(subject, nullptr, headers, body));
  return NatsStatus(natsConnection_PublishMsg(get(), message.get()),
                    "message to '" + subject + "'");
}

Result<NatsPtr<natsMsg>> FleetConnection::Request(const std::string& subject,
                                                  const NatsHeaders& headers, std::string_view body,
                                                  int64_t timeout_ms) const {
  ATOLL_ASSIGN_OR_RETURN(const NatsPtr<natsMsg> message,
                         MakeMessage(subject, nullptr, headers, body));
  NatsPtr<natsMsg> answer;
  const natsStatus status =
      natsConnection_RequestMsg(NatsOut(&answer), get(), message.get(), timeout_ms);
  if (status != NATS_OK) return NatsStatus(status, "request to '" + subject + "'");
  return answer;
}

void FleetConnection::Flush(int64_t timeout_ms) const {
  (void)natsConnection_FlushTimeout(get(), timeout_ms);
}

}  // namespace atollserve
