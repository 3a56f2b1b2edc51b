// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/mqtt.h"

#include <fmt/format.h>
#include <mosquitto.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "tools/atoll/exit_code.h"

namespace atollcmd {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kKeepAliveSeconds = 15;
constexpr seconds kAnswerTime{10};  // of a broker, to a connection
constexpr seconds kStatsInterval{5};
constexpr seconds kEndTime{2};
constexpr milliseconds kFirstDelay{250};  // after a failure; twice as long after each further one
constexpr seconds kLastDelay{15};

class Connection : public MqttConnection {
 public:
  explicit Connection(MqttOptions options)
      : options_(std::move(options)),
        where_(fmt::format("{}:{}", options_.address.host, options_.address.port)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    static std::once_flag initialized;
    std::call_once(initialized, [] { mosquitto_lib_init(); });
    client_ = mosquitto_new(nullptr, /*clean_session=*/true, this);
    if (client_ == nullptr || wake_ < 0) {
      Fail(ExitCode::kFailure, "no memory or file descriptor is left for MQTT");
    }
    mosquitto_connect_callback_set(client_, [](mosquitto*, void* self, int code) {
      static_cast<Connection*>(self)->OnConnect(code);
    });
    mosquitto_disconnect_callback_set(client_, [](mosquitto*, void* self, int) {
      static_cast<Connection*>(self)->connected_ = false;
    });
    const std::string& will = options_.offline.payload;
    int status =
        mosquitto_will_set(client_, options_.offline.topic.c_str(), static_cast<int>(will.size()),
                           will.data(), 0, options_.offline.retained);
    if (status == MOSQ_ERR_SUCCESS && !options_.address.user.empty()) {
      status = mosquitto_username_pw_set(
          client_, options_.address.user.c_str(),
          options_.password.empty() ? nullptr : options_.password.c_str());
    }
    if (status == MOSQ_ERR_SUCCESS && options_.address.tls) status = SetTls();
    if (status != MOSQ_ERR_SUCCESS) {
      mosquitto_destroy(client_);
      close(wake_);
      Fail(ExitCode::kUsage, "--mqtt: {}", mosquitto_strerror(status));
    }
    thread_ = std::thread([this] { Run(); });
  }

  ~Connection() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
      end_ = Clock::now() + kEndTime;
      outbox_.Put(options_.offline);
    }
    eventfd_write(wake_, 1);
    thread_.join();
    mosquitto_destroy(client_);
    close(wake_);
  }

  void Send(MqttMessage message) override {
    {
      const std::lock_guard lock(mutex_);
      outbox_.Put(std::move(message));
    }
    eventfd_write(wake_, 1);
  }

 private:
  // The certificate must be for the host's name.
  int SetTls() {
    const auto file = [](const std::string& path) { return path.empty() ? nullptr : path.c_str(); };
    // A key with a passphrase would ask for it on the terminal.
    const auto no_passphrase = [](char*, int, int, void*) { return 0; };
    if (options_.ca.empty()) {
      const int status = mosquitto_int_option(client_, MOSQ_OPT_TLS_USE_OS_CERTS, 1);
      if (status != MOSQ_ERR_SUCCESS) return status;
    }
    // Without a file of our own, the folder that OpenSSL knows.
    const char* const folder = options_.ca.empty() ? "/etc/ssl/certs" : nullptr;
    return mosquitto_tls_set(client_, file(options_.ca), folder, file(options_.certificate),
                             file(options_.key), no_passphrase);
  }

  void OnConnect(int code) {
    if (code != 0) {
      Complain(mosquitto_connack_string(code));
      return;
    }
    connected_ = true;
    delay_ = kFirstDelay;
    complained_ = false;
    options_.say(fmt::format("results go to the MQTT broker at {}, below {}/", where_,
                             options_.address.prefix));
    const std::lock_guard lock(mutex_);
    outbox_.TakeAllAgain();
    if (!ending_) outbox_.Put(options_.online);
  }

  std::string WhatIsWrong(int status) const {
    if (status == MOSQ_ERR_ERRNO) return std::strerror(errno);
    if (status == MOSQ_ERR_TLS) {
      return fmt::format(
          "TLS failed: its certificate must be for '{}' and signed by whom {}, and it may ask for "
          "one of ours (--mqtt-cert)",
          options_.address.host, options_.ca.empty() ? "this system trusts" : "--mqtt-ca has");
    }
    return mosquitto_strerror(status);
  }

  // Once for each time that it is away.
  void Complain(std::string why) {
    while (why.ends_with('.')) why.pop_back();
    if (!std::exchange(complained_, true)) {
      options_.say(
          fmt::format("the MQTT broker at {} is not there: {}; frames go on, and it is tried again",
                      where_, why));
    }
  }

  bool Ending() {
    const std::lock_guard lock(mutex_);
    if (!ending_) return false;
    // A first answer of the broker may still come.
    return Clock::now() >= end_ || (connected_ ? Flushed() : complained_);
  }
  bool Flushed() const { return outbox_.empty() && !mosquitto_want_write(client_); }

  void Connect() {
    const int status = mosquitto_connect_async(client_, options_.address.host.c_str(),
                                               options_.address.port, kKeepAliveSeconds);
    if (status != MOSQ_ERR_SUCCESS) {
      Complain(WhatIsWrong(status));
    }
    deadline_ = Clock::now() + kAnswerTime;
    next_attempt_ = Clock::now() + delay_;
    delay_ = std::min<milliseconds>(2 * delay_, kLastDelay);
  }

  // As much as the socket takes.
  void Publish() {
    while (connected_ && !mosquitto_want_write(client_)) {
      std::optional<MqttMessage> message;
      {
        const std::lock_guard lock(mutex_);
        message = outbox_.Take();
      }
      if (!message) return;
      mosquitto_publish(client_, nullptr, message->topic.c_str(),
                        static_cast<int>(message->payload.size()), message->payload.data(), 0,
                        message->retained);
    }
  }

  void Run() {
    while (!Ending()) {
      const Clock::time_point now = Clock::now();
      int socket = mosquitto_socket(client_);
      if (!connected_ && socket >= 0 && now >= deadline_) {
        Complain("it does not answer");
        next_attempt_ = now;
        socket = -1;  // connecting again closes it
      }
      if (socket < 0) {
        connected_ = false;
        if (now >= next_attempt_) Connect();
        socket = mosquitto_socket(client_);
      }
      if (connected_ && now >= next_stats_) {
        next_stats_ = now + kStatsInterval;
        MqttMessage stats = options_.stats();
        const std::lock_guard lock(mutex_);
        outbox_.Put(std::move(stats));
      }
      Publish();
      Wait(mosquitto_socket(client_));
    }
    if (connected_) mosquitto_disconnect(client_);
  }

  // For the broker, messages to send, or time; and what the broker has to say.
  void Wait(int socket) {
    pollfd waits[2] = {{wake_, POLLIN, 0}, {socket, POLLIN, 0}};
    // Until its answer has come, writability is how a connection shows that it is there.
    if (mosquitto_want_write(client_)) waits[1].events |= POLLOUT;
    poll(waits, socket < 0 ? 1 : 2, 200);
    eventfd_t wakes = 0;
    eventfd_read(wake_, &wakes);
    if (socket < 0) return;
    int status = MOSQ_ERR_SUCCESS;
    if ((waits[1].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
      status = mosquitto_loop_read(client_, 1);
    }
    if (status == MOSQ_ERR_SUCCESS && (waits[1].revents & POLLOUT) != 0) {
      status = mosquitto_loop_write(client_, 1);
    }
    if (status == MOSQ_ERR_SUCCESS) status = mosquitto_loop_misc(client_);
    if (status != MOSQ_ERR_SUCCESS) {
      connected_ = false;
      next_attempt_ = Clock::now() + delay_;
      Complain(WhatIsWrong(status));
    }
  }

  const MqttOptions options_;
  const std::string where_;
  const int wake_;
  mosquitto* client_ = nullptr;

  // Of the thread.
  bool connected_ = false;
  bool complained_ = false;
  milliseconds delay_ = kFirstDelay;
  Clock::time_point next_attempt_;
  Clock::time_point deadline_;
  Clock::time_point next_stats_;

  std::mutex mutex_;  // for what follows
  MqttOutbox outbox_;
  bool ending_ = false;
  Clock::time_point end_;

  std::thread thread_;
};

}  // namespace

std::unique_ptr<MqttConnection> MqttConnection::Open(MqttOptions options) {
  return std::make_unique<Connection>(std::move(options));
}

}  // namespace atollcmd
