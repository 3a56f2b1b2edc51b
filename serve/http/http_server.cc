// SPDX-License-Identifier: Apache-2.0
#include "serve/http/http_server.h"

#include <arpa/inet.h>
#include <event2/event.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "atoll/check.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/monotonic.h"
#include "serve/http/request_parser.h"

namespace atollserve {

using atollrt::FileDescriptor;
using atollrt::Format;
using atollrt::InternalError;
using atollrt::MonotonicNs;
using atollrt::Result;
using atollrt::Status;

namespace {

constexpr int64_t kNsPerMs = 1'000'000;
constexpr int64_t kNsPerSecond = 1'000'000'000;
constexpr size_t kScratchBytes = 256 << 10;
// What a client may send while its request is being answered.
constexpr size_t kPendingBytes = 64 << 10;
// After a refusal: until the other side has closed, too. If we closed while bytes of its are
// unread, TCP would reset the connection, which may cost it the answer. After the last bytes, and
// at most.
constexpr int64_t kLingerNs = 5 * kNsPerSecond;
constexpr int64_t kLingerMaxNs = 30 * kNsPerSecond;
// After accept() found no descriptor or memory free.
constexpr timeval kAcceptPause = {.tv_sec = 0, .tv_usec = 100'000};
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

int64_t Ns(std::chrono::milliseconds time) { return time.count() * kNsPerMs; }

enum class State {
  kIdle,       // nothing of a request has come
  kHead,       // a part of the head has
  kBody,       // the head has been looked at
  kAnswering,  // the handler has it
  kWriting,    // the client takes the answer
  kLinger,     // answered for the last time; waiting for the other side to close
  kClosed,
};

class Server;

struct DeleteEvent {
  void operator()(event* one) const { event_free(one); }
};
struct DeleteBase {
  void operator()(event_base* base) const { event_base_free(base); }
};
using Event = std::unique_ptr<event, DeleteEvent>;

struct Connection : HttpRequestParser::Client {
  explicit Connection(Server* its_server);
  std::optional<HttpAnswer> OnHead(HttpRequest* head, size_t* body_bytes) override;
  void OnBody(bool waits) override;
  HttpAnswer Refusal(int status, const std::string& sentence) const override;

  Server* const server;
  uint64_t id = 0;
  FileDescriptor socket;
  std::unique_ptr<TlsStream> tls;
  Event readable, writable, timer;

  State state = State::kIdle;
  HttpPeer peer;
  HttpRequestParser parser;
  bool keep_alive = false;
  bool is_head = false;  // its answer is sent without body
  std::string pending;   // arrived after the request that is being answered

  uint64_t exchange_number = 0;
  HttpOutbox::Waiting waiting;  // the request that the handler has

  std::string out_head, out_body;  // on their way to the client
  size_t out_sent = 0;
  int64_t transfer_start_ns = 0;  // of a body, of an answer, of the wait for the other side
  int64_t idle_since_ns = 0;

  size_t out_size() const { return out_head.size() + out_body.size(); }
};

class Server : public HttpServer {
 public:
  Server(std::vector<Listener> listeners, HttpServerOptions options, HttpHandler handler)
      : listeners_(std::move(listeners)),
        options_(std::move(options)),
        handler_(std::move(handler)),
        request_limits_{.head_bytes = std::min<size_t>(options_.limits.head_bytes, 64 << 10),
                        .body_bytes = options_.limits.body_bytes},
        body_memory_{.most_bytes = options_.limits.buffered_bytes, .bytes = 0} {}

  ~Server() override {
    if (thread_.joinable()) {
      stop_ = true;
      outbox_.Wake();
      thread_.join();
    }
    for (const Listener& listener : listeners_) {
      if (listener.is_unix && listener.socket.get() >= 0) unlink(listener.address.c_str());
    }
  }

  Status Begin() {
    ATOLL_RETURN_IF_ERROR(outbox_.Open());
    base_.reset(event_base_new());
    if (base_ == nullptr) {
      return InternalError("no descriptor for a server's events: %s", std::strerror(errno));
    }
    wake_.reset(event_new(
        base_.get(), outbox_.descriptor(), EV_READ | EV_PERSIST,
        [](evutil_socket_t, short, void* self) { static_cast<Server*>(self)->OnWake(); }, this));
    accept_again_.reset(event_new(
        base_.get(), -1, 0,
        [](evutil_socket_t, short, void* self) { static_cast<Server*>(self)->ListenOrNot(true); },
        this));
    event_add(wake_.get(), nullptr);
    for (Listener& listener : listeners_) {
      auto at = std::make_unique<Accepting>(Accepting{this, &listener, nullptr});
      at->event.reset(event_new(
          base_.get(), listener.socket.get(), EV_READ | EV_PERSIST,
          [](evutil_socket_t, short, void* one) {
            auto* accepting = static_cast<Accepting*>(one);
            accepting->server->Accept(*accepting->listener);
          },
          at.get()));
      event_add(at->event.get(), nullptr);
      accepting_.push_back(std::move(at));
    }
    thread_ = std::thread([this] { Run(); });
    return {};
  }

  bool Drain(std::chrono::milliseconds timeout) override {
    drain_ = true;
    outbox_.Wake();
    std::unique_lock lock(drained_mutex_);
    return drained_.wait_for(lock, timeout, [&] { return is_drained_; });
  }

  const std::vector<Listener>& listeners() const override { return listeners_; }
  HttpCounts counts() const override {
    return {.connections = open_,
            .accepted = accepted_,
            .refused_connections = refused_connections_,
            .requests = requests_,
            .refused_requests = refused_requests_,
            .timeouts = timeouts_};
  }

 private:
  friend struct Connection;
  struct Accepting {
    Server* server;
    Listener* listener;
    Event event;
  };

  const HttpLimits& limits() const { return options_.limits; }

  void Run() {
    // Signals are for others; writing to a closed socket is an error like others.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    event_base_dispatch(base_.get());
    std::vector<Connection*> open;
    for (const auto& [id, connection] : connections_) open.push_back(connection.get());
    for (Connection* connection : open) Close(connection);
    connections_.clear();
    graves_.clear();
  }

  void OnWake() {
    outbox_.ClearWake();
    if (stop_) {
      event_base_loopbreak(base_.get());
      return;
    }
    if (drain_ && !draining_) {
      draining_ = true;
      for (const auto& at : accepting_) {
        event_del(at->event.get());
        at->listener->socket = FileDescriptor();
        if (at->listener->is_unix) unlink(at->listener->address.c_str());
      }
      event_del(accept_again_.get());
      std::vector<Connection*> idle;
      for (const auto& [id, one] : connections_) {
        if (one->state == State::kIdle) idle.push_back(one.get());
      }
      for (Connection* connection : idle) Close(connection);
    }
    DeliverAll();
    graves_.clear();
    if (draining_ && connections_.empty()) {
      const std::lock_guard lock(drained_mutex_);
      is_drained_ = true;
      drained_.notify_all();
    }
  }

  // Answers of handlers. One that answers at once, to a request that had been waiting behind
  // another one, adds to them.
  void DeliverAll() {
    while (true) {
      std::vector<HttpOutbox::Item> items = outbox_.Take();
      if (items.empty()) return;
      for (HttpOutbox::Item& item : items) {
        const auto found = connections_.find(item.connection);
        if (found == connections_.end()) continue;
        Connection* const connection = found->second.get();
        if (connection->state != State::kAnswering ||
            connection->exchange_number != item.exchange) {
          continue;
        }
        connection->waiting.reset();
        Answer(connection, std::move(item.answer));
      }
    }
  }

  // ---- Connections ----

  void ListenOrNot(bool listens) {
    if (draining_) return;
    for (const auto& at : accepting_) {
      if (listens) {
        event_add(at->event.get(), nullptr);
      } else {
        event_del(at->event.get());
      }
    }
    if (!listens) event_add(accept_again_.get(), &kAcceptPause);
  }

  void Accept(const Listener& listener) {
    for (int i = 0; i < 16; ++i) {
      sockaddr_storage address{};
      socklen_t size = sizeof(address);
      FileDescriptor socket(accept4(listener.socket.get(), reinterpret_cast<sockaddr*>(&address),
                                    &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (socket.get() < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
          ListenOrNot(false);
        }
        return;
      }
      ++accepted_;
      if (connections_.size() >= limits().connections && !CloseOldestIdle()) {
        ++refused_connections_;
        RefuseConnection(socket.get());
        continue;
      }
      Open(std::move(socket), listener, address);
    }
  }

  // True if there was one.
  bool CloseOldestIdle() {
    Connection* oldest = nullptr;
    for (const auto& [id, one] : connections_) {
      if (one->state == State::kIdle &&
          (oldest == nullptr || one->idle_since_ns < oldest->idle_since_ns)) {
        oldest = one.get();
      }
    }
    if (oldest == nullptr) return false;
    Close(oldest);
    return true;
  }

  // Once, without waiting; a client of TLS takes it for a failure of the connection, which it is.
  void RefuseConnection(int socket) {
    HttpAnswer answer =
        Refusal(503, Format("There are %zu connections, as many as may be.", limits().connections));
    answer.headers.emplace_back("Retry-After", "1");
    const std::string text = options_.tls == nullptr ? FormatHead(answer, false) + answer.body : "";
    [[maybe_unused]] const ssize_t sent = send(socket, text.data(), text.size(), MSG_NOSIGNAL);
    shutdown(socket, SHUT_WR);
  }

  void Open(FileDescriptor socket, const Listener& listener, const sockaddr_storage& address) {
    auto owned = std::make_unique<Connection>(this);
    Connection* const connection = owned.get();
    connection->id = ++last_id_;
    connection->socket = std::move(socket);
    connection->peer.listener = static_cast<size_t>(&listener - listeners_.data());
    connection->peer.local = listener.local;
    DescribePeer(connection->socket.get(), address, &connection->peer);
    if (options_.tls != nullptr && !listener.is_unix) {
      connection->tls = options_.tls->Accept(connection->socket.get());
      if (connection->tls == nullptr) return;
      connection->peer.tls = true;
    }
    const auto on_io = [](evutil_socket_t, short what, void* one) {
      auto* self = static_cast<Connection*>(one);
      const bool reads = self->tls != nullptr && self->tls->reads_when_writable();
      if ((what & EV_READ) != 0 || reads) self->server->Read(self);
      if (self->state == State::kWriting && (what & EV_WRITE) != 0) self->server->Write(self);
    };
    const int fd = connection->socket.get();
    connection->readable.reset(event_new(base_.get(), fd, EV_READ | EV_PERSIST, on_io, connection));
    connection->writable.reset(event_new(base_.get(), fd, EV_WRITE, on_io, connection));
    connection->timer.reset(event_new(
        base_.get(), -1, 0,
        [](evutil_socket_t, short, void* one) {
          auto* self = static_cast<Connection*>(one);
          self->server->Expire(self);
        },
        connection));
    if (!connection->readable || !connection->writable || !connection->timer) return;
    event_add(connection->readable.get(), nullptr);
    BeginRequest(connection);
    SetDeadline(connection, limits().head_timeout);
    connections_.emplace(connection->id, std::move(owned));
    open_ = static_cast<int64_t>(connections_.size());
    Read(connection);  // most send at once
  }

  static void DescribePeer(int fd, const sockaddr_storage& address, HttpPeer* peer) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (address.ss_family == AF_INET) {
      const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
      inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
      peer->port = ntohs(v4.sin_port);
    } else if (address.ss_family == AF_INET6) {
      const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
      inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
      peer->port = ntohs(v6.sin6_port);
    } else {
      std::strcpy(text.data(), "unix");
      ucred credentials{};
      socklen_t size = sizeof(credentials);
      if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0) {
        peer->uid = credentials.uid;
      }
    }
    peer->address = text.data();
  }

  // Takes it away from its client and the handler. Its memory goes when nobody is inside it.
  void Close(Connection* connection) {
    if (connection->state == State::kClosed) return;
    connection->state = State::kClosed;
    connection->readable.reset();
    connection->writable.reset();
    connection->timer.reset();
    if (connection->tls != nullptr) connection->tls->Close();
    connection->tls.reset();
    connection->socket = FileDescriptor();
    connection->parser.Drop();
    HttpOutbox::Leave(connection->waiting);
    const auto found = connections_.find(connection->id);
    if (found != connections_.end()) {
      if (graves_.empty() || draining_) outbox_.Wake();
      graves_.push_back(std::move(found->second));
      connections_.erase(found);
      open_ = static_cast<int64_t>(connections_.size());
    }
  }

  // ---- Time ----

  void SetDeadline(Connection* connection, std::chrono::milliseconds timeout) {
    SetTimer(connection, Ns(timeout));
  }
  static void SetTimer(Connection* connection, int64_t ns) {
    const timeval time = {.tv_sec = ns / kNsPerSecond, .tv_usec = ns % kNsPerSecond / 1000};
    event_add(connection->timer.get(), &time);
  }
  // Until the bytes that have been moved should have taken so long.
  int64_t TransferLeftNs(const Connection& connection, size_t bytes) const {
    const double allowed_ns =
        static_cast<double>(Ns(limits().transfer_timeout)) +
        static_cast<double>(bytes) /
            static_cast<double>(std::max<size_t>(limits().transfer_bytes_per_second, 1)) *
            static_cast<double>(kNsPerSecond);
    return connection.transfer_start_ns + static_cast<int64_t>(allowed_ns) - MonotonicNs();
  }
  void Expire(Connection* connection) {
    switch (connection->state) {
      case State::kIdle:
      case State::kLinger:
        Close(connection);
        return;
      case State::kHead:
        ++timeouts_;
        Refuse(connection,
               Refusal(408, Format("The head of the request did not come within %lld ms.",
                                   static_cast<long long>(limits().head_timeout.count()))));
        return;
      case State::kBody: {
        const int64_t left_ns = TransferLeftNs(*connection, connection->parser.body_bytes());
        if (left_ns > 0) return SetTimer(connection, left_ns);
        ++timeouts_;
        Refuse(connection, Refusal(408, Format("The body of the request comes too slowly: %zu "
                                               "bytes so far.",
                                               connection->parser.body_bytes())));
        return;
      }
      case State::kWriting: {
        const int64_t left_ns = TransferLeftNs(*connection, connection->out_sent);
        if (left_ns > 0) return SetTimer(connection, left_ns);
        ++timeouts_;
        Close(connection);
        return;
      }
      case State::kAnswering:
      case State::kClosed:
        return;
    }
  }

  // ---- Bytes in ----

  // Bytes that have come; 0: none for now; -1: the other side has closed, or it is broken.
  ssize_t Receive(Connection* connection) {
    if (connection->tls == nullptr) {
      const ssize_t got = recv(connection->socket.get(), scratch_.data(), scratch_.size(), 0);
      if (got > 0) return got;
      return got < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
    }
    const ssize_t got = connection->tls->Read(scratch_);
    if (connection->tls->reads_when_writable()) event_add(connection->writable.get(), nullptr);
    return got;
  }

  void Read(Connection* connection) {
    // Not without end: others have their turn. TLS may have more than the socket says, though.
    for (int i = 0; connection->state != State::kClosed; ++i) {
      const bool has_pending = connection->tls != nullptr && connection->tls->has_pending();
      if (i >= 4 && !has_pending) return;
      const bool waits =
          connection->state == State::kAnswering || connection->state == State::kWriting;
      if (waits && connection->pending.size() >= kPendingBytes) {
        event_del(connection->readable.get());  // until it has been answered
        return;
      }
      if (!waits && connection->state != State::kLinger && !connection->pending.empty()) {
        const std::string earlier = std::move(connection->pending);
        connection->pending.clear();
        Parse(connection, earlier);
        continue;
      }
      const ssize_t got = Receive(connection);
      if (got == 0) return;
      if (got < 0 && connection->state == State::kWriting) {
        // It may still take its answer.
        connection->keep_alive = false;
        event_del(connection->readable.get());
        return;
      }
      if (got < 0) return Close(connection);
      const std::string_view bytes(scratch_.data(), static_cast<size_t>(got));
      if (waits) {
        connection->pending += bytes;
      } else if (connection->state == State::kLinger) {
        LingerOn(connection);
      } else {
        Parse(connection, bytes);
      }
      if (connection->tls == nullptr && bytes.size() < scratch_.size()) return;
    }
  }

  void BeginRequest(Connection* connection) {
    connection->state = State::kIdle;
    connection->idle_since_ns = MonotonicNs();
    connection->parser.Begin();
  }

  // Keeps in `pending` what belongs to the next request.
  void Parse(Connection* connection, std::string_view bytes) {
    if (connection->state == State::kIdle) {
      connection->state = State::kHead;
      SetDeadline(connection, limits().head_timeout);
    }
    size_t parsed = 0;
    switch (connection->parser.Parse(bytes, &parsed)) {
      case HttpRequestParser::Progress::kIncomplete:
        return;
      case HttpRequestParser::Progress::kComplete:
        connection->pending = bytes.substr(parsed);
        return Handle(connection);
      case HttpRequestParser::Progress::kRefused:
        return Refuse(connection, connection->parser.TakeRefusal());
    }
  }

  std::optional<HttpAnswer> Admit(Connection* connection, HttpRequest* head,
                                  size_t* body_bytes) const {
    DescribeCertificate(connection);
    head->peer = connection->peer;
    if (!options_.admit) return std::nullopt;
    return options_.admit(*head, body_bytes);
  }

  void BeginBody(Connection* connection, bool waits) {
    connection->state = State::kBody;
    connection->transfer_start_ns = MonotonicNs();
    SetDeadline(connection, limits().transfer_timeout);
    if (waits) SendContinue(connection);
  }

  // Nothing else is under way on the connection, so it fits into the socket's buffer; if it does
  // not, clients send the body after a second.
  static void SendContinue(Connection* connection) {
    if (connection->tls != nullptr) {
      connection->tls->Write(kContinue);
    } else {
      [[maybe_unused]] const ssize_t sent =
          send(connection->socket.get(), kContinue.data(), kContinue.size(), MSG_NOSIGNAL);
    }
  }

  static void DescribeCertificate(Connection* connection) {
    if (connection->tls == nullptr || !connection->peer.certificate.empty()) return;
    connection->peer.certificate = connection->tls->Certificate();
  }

  void Handle(Connection* connection) {
    ++requests_;
    connection->state = State::kAnswering;
    event_del(connection->timer.get());
    connection->keep_alive = connection->parser.keep_alive();
    connection->is_head = connection->parser.is_head();
    handler_(connection->parser.Take(),
             outbox_.Expect(connection->id, ++connection->exchange_number, &connection->waiting));
  }

  // ---- Bytes out ----

  HttpAnswer Refusal(int status, const std::string& sentence) const {
    if (options_.refusal) return options_.refusal(status, sentence);
    return {.status = status,
            .content_type = "text/plain; charset=utf-8",
            .body = sentence + "\n",
            .headers = {}};
  }

  // An answer in the place of the handler's, and the last one: what else comes is not looked at.
  void Refuse(Connection* connection, HttpAnswer answer) {
    ++refused_requests_;
    connection->keep_alive = false;
    connection->pending.clear();
    connection->is_head = connection->parser.is_head();
    Answer(connection, std::move(answer));
  }

  void Answer(Connection* connection, HttpAnswer answer) {
    if (draining_) connection->keep_alive = false;
    connection->state = State::kWriting;
    connection->out_head = FormatHead(answer, connection->keep_alive);
    connection->out_body = std::move(answer.body);
    if (connection->is_head) connection->out_body.clear();
    connection->out_sent = 0;
    connection->transfer_start_ns = MonotonicNs();
    SetDeadline(connection, limits().transfer_timeout);
    Write(connection);
  }

  // Bytes taken; 0: none for now; -1: it is broken.
  ssize_t SendSome(Connection* connection) {
    const std::string& head = connection->out_head;
    const std::string& body = connection->out_body;
    const size_t sent = connection->out_sent;
    const size_t body_sent = sent > head.size() ? sent - head.size() : 0;
    if (connection->tls != nullptr) {
      const std::string_view piece = sent < head.size() ? std::string_view(head).substr(sent)
                                                        : std::string_view(body).substr(body_sent);
      return connection->tls->Write(piece);
    }
    std::array<iovec, 2> pieces{};
    size_t count = 0;
    if (sent < head.size()) {
      pieces[count++] = {.iov_base = const_cast<char*>(head.data()) + sent,
                         .iov_len = head.size() - sent};
    }
    if (body_sent < body.size()) {
      pieces[count++] = {.iov_base = const_cast<char*>(body.data()) + body_sent,
                         .iov_len = body.size() - body_sent};
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    const ssize_t wrote = sendmsg(connection->socket.get(), &message, MSG_NOSIGNAL);
    if (wrote >= 0) return wrote;
    return errno == EAGAIN || errno == EINTR ? 0 : -1;
  }

  void Write(Connection* connection) {
    while (connection->out_sent < connection->out_size()) {
      const ssize_t wrote = SendSome(connection);
      if (wrote < 0) return Close(connection);
      if (wrote == 0) {
        event_add(connection->writable.get(), nullptr);
        return;
      }
      connection->out_sent += static_cast<size_t>(wrote);
    }
    FinishAnswer(connection);
  }

  void FinishAnswer(Connection* connection) {
    connection->out_head.clear();
    connection->out_body = std::string();
    if (!connection->keep_alive || draining_) {
      if (connection->tls == nullptr) {
        shutdown(connection->socket.get(), SHUT_WR);
      } else {
        connection->tls->Close();
      }
      connection->state = State::kLinger;
      connection->pending = std::string();
      BeginLinger(connection);
      return;
    }
    BeginRequest(connection);
    SetDeadline(connection, limits().idle_timeout);
    event_add(connection->readable.get(), nullptr);
    // What has come meanwhile: parsed on the next round, so that a client that sends thousands of
    // requests at once does not keep others waiting, nor fills the stack.
    if (!connection->pending.empty() ||
        (connection->tls != nullptr && connection->tls->has_pending())) {
      event_active(connection->readable.get(), EV_READ, 1);
    }
  }

  void BeginLinger(Connection* connection) {
    connection->parser.Drop();
    event_add(connection->readable.get(), nullptr);
    connection->transfer_start_ns = MonotonicNs();
    LingerOn(connection);
  }
  static void LingerOn(Connection* connection) {
    const int64_t left_ns = connection->transfer_start_ns + kLingerMaxNs - MonotonicNs();
    SetTimer(connection, std::clamp<int64_t>(left_ns, 0, kLingerNs));
  }

  std::vector<Listener> listeners_;
  HttpServerOptions options_;
  const HttpHandler handler_;
  HttpOutbox outbox_;
  const HttpRequestParser::Limits request_limits_;
  HttpBodyMemory body_memory_;
  std::unique_ptr<event_base, DeleteBase> base_;
  Event wake_, accept_again_;
  std::vector<std::unique_ptr<Accepting>> accepting_;
  std::unordered_map<uint64_t, std::unique_ptr<Connection>> connections_;
  std::vector<std::unique_ptr<Connection>> graves_;
  std::array<char, kScratchBytes> scratch_;
  uint64_t last_id_ = 0;
  bool draining_ = false;
  std::atomic<bool> stop_ = false, drain_ = false;
  std::atomic<int64_t> open_ = 0, accepted_ = 0, refused_connections_ = 0, requests_ = 0,
                       refused_requests_ = 0, timeouts_ = 0;
  std::mutex drained_mutex_;
  std::condition_variable drained_;
  bool is_drained_ = false;
  std::thread thread_;
};

Connection::Connection(Server* its_server)
    : server(its_server), parser(server->request_limits_, &server->body_memory_, this) {}

std::optional<HttpAnswer> Connection::OnHead(HttpRequest* head, size_t* body_bytes) {
  return server->Admit(this, head, body_bytes);
}

void Connection::OnBody(bool waits) { server->BeginBody(this, waits); }

HttpAnswer Connection::Refusal(int status, const std::string& sentence) const {
  return server->Refusal(status, sentence);
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::Start(std::vector<Listener> listeners,
                                                      HttpServerOptions options,
                                                      HttpHandler handler) {
  ATOLL_CHECK(!listeners.empty());
  auto server =
      std::make_unique<Server>(std::move(listeners), std::move(options), std::move(handler));
  ATOLL_RETURN_IF_ERROR(server->Begin());
  return std::unique_ptr<HttpServer>(std::move(server));
}

Result<std::unique_ptr<HttpServer>> HttpServer::Start(Listener listener, HttpServerOptions options,
                                                      HttpHandler handler) {
  std::vector<Listener> listeners;
  listeners.push_back(std::move(listener));
  return Start(std::move(listeners), std::move(options), std::move(handler));
}

}  // namespace atollserve
