// SPDX-License-Identifier: Apache-2.0
//
// FleetConnection: a connection to the servers of a fleet, which comes back for as long as it
// lives, and the JetStream behind it.
//
// Who may connect where is the rule of serve/access: a server on this computer as it is, any other
// one by TLS and with a credential, unless somebody says --insecure. Secrets come from files and
// the environment, never from a command line or an address.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/status.h"
#include "serve/fleet/nats.h"

namespace atollserve {

struct ConnectionOptions {
  // Or tls://HOST:PORT. One without a host, "tls://", is to be found (discovery.h).
  std::vector<std::string> servers = {"nats://127.0.0.1:4222"};
  std::string name;         // of this program, for people
  std::string token_file;   // else the environment variable ATOLL_NATS_TOKEN
  std::string credentials;  // file with a JWT and its seed
  std::string nkey;         // public key (U...), and
  std::string nkey_seed;    // the file with its seed
  std::string tls_ca;       // PEM files
  std::string tls_cert;
  std::string tls_key;
  std::string tls_host;  // the name in the servers' certificates, if it is none of their addresses
  std::string inbox_prefix;  // of answers, where a user may not listen to _INBOX.>
  std::string domain;        // of JetStream; "": that of the server
  bool insecure = false;
  bool pooled = false;  // all subscriptions share a few threads
  int64_t connect_timeout_ms = 10'000;
};

// Sentences for people, from any thread.
using SayFunction = std::function<void(const std::string& sentence)>;

class FleetConnection {
 public:
  // kInvalidArgument: addresses, files; kPermissionDenied: the rule, or the server's; kNotFound: no
  // server within the timeout; errors of FindServers. `say` gets which were found, and what happens
  // later: servers that go and come, what this user may not do.
  static atollrt::Result<std::unique_ptr<FleetConnection>> Connect(ConnectionOptions options,
                                                                   SayFunction say);
  ~FleetConnection();

  natsConnection* get() const { return connection_.get(); }
  jsCtx* jetstream() const { return jetstream_.get(); }
  // Of a message's body, beside its headers.
  int64_t max_body() const { return natsConnection_GetMaxPayload(connection_.get()) - 4096; }
  bool connected() const {
    return natsConnection_Status(connection_.get()) == NATS_CONN_STATUS_CONNECTED;
  }
  void Say(const std::string& sentence) const { say_(sentence); }

  // To whoever listens, and whoever does not.
  atollrt::Status Publish(const std::string& subject, const NatsHeaders& headers,
                          std::string_view body) const;
  // kNotFound: nobody is there who would answer; kTimeout.
  atollrt::Result<NatsPtr<natsMsg>> Request(const std::string& subject, const NatsHeaders& headers,
                                            std::string_view body, int64_t timeout_ms) const;
  // What has been published has been sent.
  void Flush(int64_t timeout_ms) const;

 private:
  explicit FleetConnection(SayFunction say) : say_(std::move(say)) {}
  // Of Connect.
  natsStatus SetBehaviour(const ConnectionOptions& options, natsOptions* to);
  atollrt::Status ConnectWithin(const ConnectionOptions& options, natsOptions* wanted);
  static void OnDisconnected(natsConnection* connection, void* self);
  static void OnClosed(natsConnection* connection, void* self);
  static void OnReconnected(natsConnection* connection, void* self);
  static void OnError(natsConnection* connection, natsSubscription* subscription, natsStatus status,
                      void* self);

  const SayFunction say_;
  std::atomic<bool> closing_ = false;
  std::mutex mutex_;
  std::condition_variable closed_changed_;
  bool is_closed_ = false;  // its last callback has been called
  std::string last_error_;  // that was said
  NatsPtr<natsConnection> connection_;
  NatsPtr<jsCtx> jetstream_;
};

// Whether `address`, "nats://HOST:PORT" or "tls://HOST:PORT", is one, and what it says.
struct ServerAddress {
  std::string host;
  bool tls = false;
  bool local = false;  // of this computer
};
atollrt::Result<ServerAddress> ParseServerAddress(std::string_view address);

}  // namespace atollserve
