// SPDX-License-Identifier: Apache-2.0
//
// One thread and poll(). A connection is read until its request is complete, answered, and closed;
// the answer to a viewer of the stream has no end. Every state but waiting for a frame of the
// stream has a deadline.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "atoll/camera/web.h"
#include "atoll/check.h"
#include "camera/sources/http_text.h"
#include "camera/web/http.h"
#include "camera/web/newest_frame.h"
#include "camera/web/page_files.h"
#include "camera/web/status_text.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/monotonic.h"
#include "serve/access/listener.h"
#include "serve/access/tls.h"

namespace atollrt {
namespace {

using atollserve::Access;
using atollserve::Listener;
using atollserve::TlsStream;

constexpr int64_t kNever = INT64_MAX;
constexpr int64_t kNsPerMs = 1'000'000;
// How long a status is good for further requests.
constexpr int64_t kStatusAgeNs = 100 * kNsPerMs;
// After an answer: until the other side has closed, too. If we closed while bytes of its are
// unread, TCP would reset the connection, which may cost it the answer.
constexpr int64_t kLingerNs = 1000 * kNsPerMs;
// What a viewer may send that nobody asked it for.
constexpr size_t kMaxIgnoredBytes = 16384;
// In the kernel, of each viewer: enough for a fast one, and little that is old for a slow one.
constexpr int kSendBufferBytes = 256 << 10;
// After accept() found no descriptor or memory free.
constexpr int64_t kAcceptPauseNs = 100 * kNsPerMs;

// Each part of the stream ends with the boundary, so browsers show it without waiting for the next.
constexpr std::string_view kBoundary = "--atollframe\r\n";
constexpr std::string_view kPartEnd = "\r\n--atollframe\r\n";
constexpr std::string_view kStreamType = "multipart/x-mixed-replace; boundary=atollframe";
constexpr std::string_view kTextType = "text/plain; charset=utf-8";

struct PageFile {
  std::string_view path;
  std::string_view type;
  std::string_view text;
};
constexpr std::array<PageFile, 4> kPageFiles = {{
    {"/", "text/html; charset=utf-8", kIndexHtml},
    {"/icon.svg", "image/svg+xml", kIconSvg},
    {"/page.js", "text/javascript; charset=utf-8", kPageJs},
    {"/style.css", "text/css; charset=utf-8", kStyleCss},
}};

enum class State {
  kRequest,   // reading a request
  kSnapshot,  // waiting for the next frame, to answer with it
  kStream,    // a viewer: waiting for a frame, or taking one
  kAnswer,    // taking the only answer
  kLinger,    // answered; waiting for the other side to close
  kClosed,
};

// What a connection is taking: three pieces, one after the other.
struct Output {
  std::string head = {};  // owned: headers, text made for this answer
  std::string_view body = {};
  std::string_view tail = {};
  size_t sent = 0;  // of all three together

  size_t size() const { return head.size() + body.size() + tail.size(); }
  bool done() const { return sent == size(); }
};

struct Connection {
  FileDescriptor socket;
  std::unique_ptr<TlsStream> tls;  // null: none
  State state = State::kRequest;
  int64_t deadline_ns = kNever;
  std::string request;       // what has arrived of it
  std::string viewer;        // of the stream: the name that it gave itself
  size_t ignored_bytes = 0;  // that arrived after it
  Output output;
  const NewestFrame::Frame* frame = nullptr;  // that output.body is
  uint64_t seen = 0;                          // number of the last frame taken, or at the start
};

// Fills `pieces` with what is left of `output`; returns how many there are.
int Remainder(const Output& output, std::array<iovec, 3>* pieces) {
  int count = 0;
  size_t skip = output.sent;
  for (const std::string_view piece : {std::string_view(output.head), output.body, output.tail}) {
    const size_t skipped = std::min(skip, piece.size());
    skip -= skipped;
    if (skipped == piece.size()) continue;
    (*pieces)[count++] = {.iov_base = const_cast<char*>(piece.data()) + skipped,
                          .iov_len = piece.size() - skipped};
  }
  return count;
}

// What it was told to be called, and what this computer calls itself.
ServedHosts NamesOf(const Listener& listener, const StreamServerOptions& options) {
  std::vector<std::string> names = options.names;
  if (!listener.local) names.push_back(options.address);
  return atollserve::HostsOf(listener.address, listener.local, names);
}

bool IsHostName(const std::string& name) {
  return !name.empty() && name.size() <= 253 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_';
  });
}

class Server : public StreamServer {
 public:
  Server(StreamServerOptions options, Access access, Listener listener, FileDescriptor wake)
      : options_(std::move(options)),
        access_(std::move(access)),
        listener_(std::move(listener)),
        hosts_(NamesOf(listener_, options_)),
        wake_(std::move(wake)),
        thread_([this] { Run(); }) {}

  ~Server() override {
    stop_ = true;
    Wake();
    thread_.join();
  }

  int port() const override { return listener_.port; }
  std::string url() const override { return UrlOf(listener_, access_.tls != nullptr); }
  bool wants_frames() const override { return waiting_ > 0; }

  void Publish(std::span<const uint8_t> jpeg) override {
    if (jpeg.empty() || !wants_frames()) return;
    frames_.Put(jpeg);
    Wake();
  }

  ViewerCounts viewers() const override {
    return {.watching = watching_,
            .limit = options_.max_viewers,
            .served = served_,
            .refused = refused_,
            .dropped = dropped_,
            .frames_sent = frames_sent_,
            .frames_skipped = frames_skipped_,
            .bytes_sent = bytes_sent_};
  }

 private:
  void Wake() {
    const uint64_t one = 1;
    // Full only if 2^64 - 2 wake-ups are still unread.
    [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
  }

  void Run() {
    // Signals are for others; writing to a closed socket is an error like others.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    while (!stop_) {
      const int64_t before_ns = MonotonicNs();
      const bool accepts = before_ns >= accept_after_ns_ && MakeRoom();
      polled_.clear();
      polled_.push_back({.fd = wake_.get(), .events = POLLIN, .revents = 0});
      // poll() skips negative descriptors.
      polled_.push_back(
          {.fd = accepts ? listener_.socket.get() : -1, .events = POLLIN, .revents = 0});
      for (const auto& connection : connections_) {
        const bool reads = connection->tls != nullptr && connection->tls->reads_when_writable();
        const short writes = connection->output.done() && !reads ? 0 : POLLOUT;
        polled_.push_back({.fd = connection->socket.get(),
                           .events = static_cast<short>(POLLIN | writes),
                           .revents = 0});
      }
      // Of its errors, none is possible but EINTR and ENOMEM, both of which pass.
      if (poll(polled_.data(), polled_.size(), PollTimeoutMs(before_ns)) < 0) continue;

      if (polled_[0].revents != 0) {
        uint64_t count = 0;
        [[maybe_unused]] const ssize_t got = read(wake_.get(), &count, sizeof(count));
      }
      const int64_t now_ns = MonotonicNs();
      for (size_t i = 0; i < connections_.size(); ++i) {
        Connection* connection = connections_[i].get();
        const short events = polled_[i + 2].revents;
        const bool reads = connection->tls != nullptr && connection->tls->reads_when_writable();
        if ((events & (POLLIN | POLLHUP | POLLERR)) != 0 || (reads && events != 0)) {
          Read(connection);
        }
        if ((events & POLLOUT) != 0 && !connection->output.done()) Write(connection);
        OfferFrame(connection);
        if (now_ns >= connection->deadline_ns) Expire(connection);
      }
      if (polled_[1].revents != 0) Accept(now_ns);
      std::erase_if(connections_,
                    [](const auto& connection) { return connection->state == State::kClosed; });
    }
    for (const auto& connection : connections_) Close(connection.get());
    connections_.clear();
  }

  int PollTimeoutMs(int64_t now_ns) const {
    int64_t next_ns = accept_after_ns_ > now_ns ? accept_after_ns_ : kNever;
    for (const auto& one : connections_) next_ns = std::min(next_ns, one->deadline_ns);
    if (next_ns == kNever) return -1;
    // Rounded up, so that the deadline has passed then.
    const int64_t ms = (std::max<int64_t>(next_ns - now_ns, 0) + kNsPerMs - 1) / kNsPerMs;
    return static_cast<int>(std::min<int64_t>(ms, INT_MAX));
  }

  // Whether there is a place for one more connection. If all are taken, the oldest that has not
  // even sent its request, or has its answer, gives way: idle ones cannot keep others out.
  bool MakeRoom() {
    const size_t limit = static_cast<size_t>(options_.max_viewers) + options_.max_requests;
    if (connections_.size() < limit) return true;
    const auto idle = std::find_if(connections_.begin(), connections_.end(), [](const auto& one) {
      return one->state == State::kRequest || one->state == State::kLinger;
    });
    if (idle == connections_.end()) return false;
    Close(idle->get());
    connections_.erase(idle);
    return true;
  }

  // One at a time, since each may have to make room.
  void Accept(int64_t now_ns) {
    const int fd = accept4(listener_.socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      // Other errors are about one connection that has gone meanwhile.
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        accept_after_ns_ = now_ns + kAcceptPauseNs;
      }
      return;
    }
    auto connection = std::make_unique<Connection>();
    connection->socket = FileDescriptor(fd);
    if (access_.tls != nullptr) {
      connection->tls = access_.tls->Accept(fd);
      if (connection->tls == nullptr) return;
    }
    connection->deadline_ns = now_ns + options_.request_timeout_ms * kNsPerMs;
    connections_.push_back(std::move(connection));
  }

  // ---- Requests ----

  void Read(Connection* connection) {
    if (connection->state == State::kClosed) return;
    // TLS may have more than the socket tells of: of a request, a few pieces at most.
    do {
      std::array<char, 4096> bytes;
      const ssize_t got = Receive(connection, bytes);
      if (got == 0) return;
      // An end where the request has been read may be that of a half-closed connection, but
      // browsers close whole ones.
      if (got < 0) return Close(connection);
      Take(connection, {bytes.data(), static_cast<size_t>(got)});
    } while (connection->tls != nullptr && connection->tls->has_pending());
  }

  // Bytes that have come; 0: none for now; -1: the other side has closed, or it is broken.
  static ssize_t Receive(Connection* connection, std::span<char> bytes) {
    if (connection->tls != nullptr) return connection->tls->Read(bytes);
    const ssize_t got = recv(connection->socket.get(), bytes.data(), bytes.size(), 0);
    if (got > 0) return got;
    return got < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
  }

  void Take(Connection* connection, std::string_view bytes) {
    if (connection->state == State::kClosed) return;
    if (connection->state != State::kRequest) {
      connection->ignored_bytes += bytes.size();
      const bool lingers = connection->state == State::kLinger;  // for as long as the deadline
      if (!lingers && connection->ignored_bytes > kMaxIgnoredBytes) Close(connection);
      return;
    }
    connection->request += bytes;
    HttpRequest request;
    HttpRefusal refusal;
    switch (ParseRequest(connection->request, &request, &refusal)) {
      case ParseState::kIncomplete:
        return;
      case ParseState::kRefused:
        return Refuse(connection, request, refusal.status, refusal.sentence);
      case ParseState::kComplete:
        std::string().swap(connection->request);
        return Answer(connection, request);
    }
  }

  void Answer(Connection* connection, const HttpRequest& request) {
    if (!request.host.empty() && !IsServedHost(request.host, hosts_)) {
      return Refuse(
          connection, request, 421,
          listener_.local
              ? "This server is for this computer alone; ask for " + url() + "."
              : "This server does not know itself by this name; ask for its address, or tell it "
                "the name (--serve-name).");
    }
    if (IsForeign(request, access_.tls != nullptr ? "https" : "http")) {
      return Refuse(connection, request, 403,
                    "Pages from elsewhere cannot have anything from here.");
    }
    const std::string& token = access_.rule.token;
    if (!token.empty() && !atollserve::HasToken(request.authorization, token) &&
        (connection->tls == nullptr || connection->tls->Certificate().empty())) {
      return Refuse(connection, request, 401,
                    "This needs the server's token: as the password, whatever the name is, or as "
                    "Authorization: Bearer TOKEN.");
    }
    for (const PageFile& file : kPageFiles) {
      if (request.path == file.path) {
        return SendAnswer(connection, {.content_type = file.type}, request, std::string(file.text));
      }
    }
    if (request.path == "/stream.mjpg") return AnswerStream(connection, request);
    if (request.path == "/snapshot.jpg") return AnswerSnapshot(connection, request);
    if (request.path == "/api/status") {
      return SendAnswer(connection, {.content_type = "application/json"}, request,
                        StatusJson(CurrentStatus(), viewers(), Watches(request)) + "\n");
    }
    if (request.path == "/metrics") {
      return SendAnswer(connection, {.content_type = "text/plain; version=0.0.4; charset=utf-8"},
                        request, StatusMetrics(CurrentStatus(), viewers()));
    }
    Refuse(connection, request, 404,
           "There is nothing here; there are /, /stream.mjpg, /snapshot.jpg, /api/status and "
           "/metrics.");
  }

  void AnswerStream(Connection* connection, const HttpRequest& request) {
    if (request.head) {
      return SendAnswer(connection, {.content_type = kStreamType}, request, {});
    }
    if (watching_ >= options_.max_viewers) {
      ++refused_;
      return Refuse(connection, request, 503,
                    Format("%d viewers watch already, and no more may; try again later.",
                           options_.max_viewers));
    }
    ++served_;
    ++watching_;
    connection->state = State::kStream;
    connection->viewer = QueryValue(request.query, "viewer");
    connection->seen = frames_.number();
    ++waiting_;
    StartOutput(connection,
                {.head = FormatHead({.content_type = kStreamType}) + std::string(kBoundary)});
  }

  void AnswerSnapshot(Connection* connection, const HttpRequest& request) {
    if (request.head) {
      return SendAnswer(connection, {.content_type = "image/jpeg"}, request, {});
    }
    // They may take long, and must leave places for what is answered at once.
    const auto snapshots =
        std::count_if(connections_.begin(), connections_.end(), [](const auto& one) {
          return one->state == State::kSnapshot ||
                 (one->state == State::kAnswer && one->frame != nullptr);
        });
    if (snapshots >= std::max(1, options_.max_requests / 2)) {
      return Refuse(connection, request, 503,
                    Format("%td snapshots are under way already; try again later.", snapshots));
    }
    connection->state = State::kSnapshot;
    connection->seen = frames_.number();
    connection->deadline_ns = MonotonicNs() + options_.snapshot_timeout_ms * kNsPerMs;
    ++waiting_;
  }

  // Headers and, unless the request is HEAD, the text.
  void SendAnswer(Connection* connection, HttpHead head, const HttpRequest& request,
                  const std::string& text) {
    if (!text.empty()) head.content_length = text.size();
    Output output{.head = FormatHead(head)};
    if (!request.head) output.head += text;
    connection->state = State::kAnswer;
    StartOutput(connection, std::move(output));
  }

  void Refuse(Connection* connection, const HttpRequest& request, int status,
              const std::string& sentence) {
    const char* more = status == 401   ? "WWW-Authenticate: Basic realm=\"Atoll\"\r\n"
                       : status == 405 ? "Allow: GET, HEAD\r\n"
                       : status == 503 ? "Retry-After: 5\r\n"
                                       : "";
    SendAnswer(connection, {.status = status, .content_type = kTextType, .more = more}, request,
               sentence + "\n");
  }

  const PipelineStatus& CurrentStatus() {
    if (const int64_t now_ns = MonotonicNs(); now_ns - status_ns_ >= kStatusAgeNs) {
      status_ = options_.status();
      status_ns_ = now_ns;
    }
    return status_;
  }

  // Whether the viewer that a request names watches the stream; none if it names none.
  std::optional<bool> Watches(const HttpRequest& request) const {
    const std::string_view viewer = QueryValue(request.query, "viewer");
    if (viewer.empty()) return std::nullopt;
    return std::any_of(connections_.begin(), connections_.end(), [&](const auto& connection) {
      return connection->state == State::kStream && connection->viewer == viewer;
    });
  }

  // ---- Answers ----

  // Gives a connection that waits for a frame the newest one, if it has not seen it.
  void OfferFrame(Connection* connection) {
    const bool streams = connection->state == State::kStream && connection->output.done();
    if (!streams && connection->state != State::kSnapshot) return;
    const NewestFrame::Frame* frame = frames_.TakeIfNewerThan(connection->seen);
    if (frame == nullptr) return;
    connection->frame = frame;
    HttpHead head{.content_type = "image/jpeg", .content_length = frame->jpeg.size()};
    Output output{.body = {reinterpret_cast<const char*>(frame->jpeg.data()), frame->jpeg.size()}};
    if (streams) {
      frames_skipped_ += frame->number - connection->seen - 1;
      output.head =
          Format("Content-Type: image/jpeg\r\nContent-Length: %zu\r\n\r\n", frame->jpeg.size());
      output.tail = kPartEnd;
    } else {
      --waiting_;
      connection->state = State::kAnswer;
      output.head = FormatHead(head);
    }
    connection->seen = frame->number;
    StartOutput(connection, std::move(output));
  }

  void StartOutput(Connection* connection, Output output) {
    connection->output = std::move(output);
    connection->deadline_ns = MonotonicNs() + options_.write_timeout_ms * kNsPerMs;
    Write(connection);
  }

  // Bytes taken; 0: none for now; -1: it is broken.
  static ssize_t SendSome(Connection* connection) {
    std::array<iovec, 3> pieces;
    const int count = Remainder(connection->output, &pieces);
    if (connection->tls != nullptr) {
      return connection->tls->Write(
          {static_cast<const char*>(pieces[0].iov_base), pieces[0].iov_len});
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = static_cast<size_t>(count);
    while (true) {
      const ssize_t sent = sendmsg(connection->socket.get(), &message, MSG_NOSIGNAL);
      if (sent >= 0) return sent;
      if (errno != EINTR) return errno == EAGAIN ? 0 : -1;
    }
  }

  void Write(Connection* connection) {
    if (connection->state == State::kClosed) return;
    Output* output = &connection->output;
    while (!output->done()) {
      const ssize_t sent = SendSome(connection);
      if (sent == 0) return;
      if (sent < 0) return Close(connection);
      output->sent += static_cast<size_t>(sent);
      if (connection->state == State::kStream) bytes_sent_ += static_cast<uint64_t>(sent);
    }
    Finished(connection);
  }

  // All of the output is on its way.
  void Finished(Connection* connection) {
    if (connection->frame != nullptr) {
      frames_.GiveBack(std::exchange(connection->frame, nullptr));
      if (connection->state == State::kStream) ++frames_sent_;
    }
    connection->output = {};
    if (connection->state == State::kStream) {
      connection->deadline_ns = kNever;
      return;
    }
    if (connection->tls != nullptr) connection->tls->Close();
    shutdown(connection->socket.get(), SHUT_WR);
    connection->state = State::kLinger;
    connection->deadline_ns = MonotonicNs() + kLingerNs;
  }

  void Expire(Connection* connection) {
    switch (connection->state) {
      case State::kRequest:
        return Refuse(connection, {}, 408,
                      Format("A request must be complete %d ms after the connection is.",
                             options_.request_timeout_ms));
      case State::kSnapshot:
        --waiting_;
        return Refuse(connection, {}, 503,
                      Format("No frame came within %d ms; /api/status says whether the pipeline "
                             "runs.",
                             options_.snapshot_timeout_ms));
      case State::kStream:
        ++dropped_;
        return Close(connection);
      case State::kAnswer:
      case State::kLinger:
        return Close(connection);
      case State::kClosed:
        return;
    }
  }

  void Close(Connection* connection) {
    if (connection->state == State::kClosed) return;
    if (connection->state == State::kStream) --watching_;
    if (connection->state == State::kStream || connection->state == State::kSnapshot) --waiting_;
    if (connection->frame != nullptr) frames_.GiveBack(std::exchange(connection->frame, nullptr));
    connection->output = {};
    connection->tls.reset();
    connection->socket = FileDescriptor();
    connection->state = State::kClosed;
    connection->deadline_ns = kNever;
  }

  const StreamServerOptions options_;
  const Access access_;
  const Listener listener_;
  const ServedHosts hosts_;
  const FileDescriptor wake_;
  NewestFrame frames_;

  std::atomic<bool> stop_ = false;
  std::atomic<int> waiting_ = 0;  // viewers, and snapshots that wait
  std::atomic<int> watching_ = 0;
  std::atomic<uint64_t> served_ = 0, refused_ = 0, dropped_ = 0;
  std::atomic<uint64_t> frames_sent_ = 0, frames_skipped_ = 0, bytes_sent_ = 0;

  // Of the thread alone.
  std::vector<std::unique_ptr<Connection>> connections_;  // the oldest first
  std::vector<pollfd> polled_;
  PipelineStatus status_;
  int64_t status_ns_ = -kStatusAgeNs;
  int64_t accept_after_ns_ = 0;

  std::thread thread_;  // the last member: it uses all others
};

}  // namespace

Result<std::unique_ptr<StreamServer>> StreamServer::Start(StreamServerOptions options) {
  const struct {
    const char* name;
    int value, most;
  } bounds[] = {{"max_viewers", options.max_viewers, 1024},
                {"max_requests", options.max_requests, 1024},
                {"request_timeout_ms", options.request_timeout_ms, 3'600'000},
                {"write_timeout_ms", options.write_timeout_ms, 3'600'000},
                {"snapshot_timeout_ms", options.snapshot_timeout_ms, 3'600'000}};
  for (const auto& bound : bounds) {
    if (bound.value < 1 || bound.value > bound.most) {
      return InvalidArgument("%s is %d, must be 1 to %d", bound.name, bound.value, bound.most);
    }
  }
  for (const std::string& name : options.names) {
    if (!IsHostName(name)) {
      return InvalidArgument("'%s' is not the name of a host, as camera.example", name.c_str());
    }
  }
  if (!options.status) return InvalidArgument("the server needs a function that gives the status");
  if (options.port < 0 || options.port > 65535) {
    return InvalidArgument("port %d: ports are 0, for any that is free, to 65535", options.port);
  }
  if (options.address.empty()) {
    return InvalidArgument(
        "no address to listen on; give 127.0.0.1 for this computer alone, 0.0.0.0 for its network");
  }
  ATOLL_ASSIGN_OR_RETURN(
      Access access, atollserve::OpenAccess({.token_file = options.access.token_file,
                                             .token_variable = options.access.token_variable,
                                             .tls = {.certificate = options.access.tls_certificate,
                                                     .key = options.access.tls_key,
                                                     .client_ca = options.access.client_ca},
                                             .insecure = options.access.insecure,
                                             .names = options.names}));
  const bool bare_v6 =
      options.address.find(':') != std::string::npos && !options.address.starts_with('[');
  const std::string host = bare_v6 ? "[" + options.address + "]" : options.address;
  ATOLL_ASSIGN_OR_RETURN(Listener listener,
                         atollserve::ListenAt(host + ":" + std::to_string(options.port)));
  ATOLL_RETURN_IF_ERROR(atollserve::CheckListener(
      {.where = listener.name, .local = listener.local, .tls = access.tls != nullptr},
      access.rule));
  // What it accepts inherits that.
  setsockopt(listener.socket.get(), SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes,
             sizeof(kSendBufferBytes));
  FileDescriptor wake(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (wake.get() < 0) return ResourceExhausted("eventfd: %s", std::strerror(errno));
  return std::unique_ptr<StreamServer>(
      new Server(std::move(options), std::move(access), std::move(listener), std::move(wake)));
}

}  // namespace atollrt
