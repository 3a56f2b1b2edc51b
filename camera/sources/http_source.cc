// SPDX-License-Identifier: Apache-2.0
//
// A network camera that sends MJPEG over HTTP. Everything that may wait, down to looking up its
// name, waits in slices, so that it ends when it is told to, whatever the camera does.
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "camera/sources/http_camera.h"
#include "camera/sources/mjpeg.h"
#include "camera/sources/sources.h"

namespace atollrt {
namespace {

constexpr int kConnectTimeoutMs = 5000;  // for each: looking up, connecting, the head of an answer
constexpr int kFirstFrameTimeoutMs = 2 * kConnectTimeoutMs;
constexpr int kSilenceMs = 5000;  // that a stream may have in it
constexpr int kSliceMs = 50;
constexpr int kMaxRedirects = 5;

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

// The addresses of a name. The C library waits for name servers as long as it likes, and cannot be
// told to stop: a thread of its own does that, which nobody waits for if it takes too long.
struct Lookup {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  int error = 0;
  addrinfo* found = nullptr;

  ~Lookup() {
    if (found != nullptr) freeaddrinfo(found);
  }
};

std::shared_ptr<Lookup> StartLookup(const CameraUrl& url) {
  auto lookup = std::make_shared<Lookup>();
  std::thread([lookup, host = url.host, port = std::to_string(url.port)] {
    addrinfo hints = {};
    hints.ai_flags = AI_NUMERICSERV;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
    const std::lock_guard lock(lookup->mutex);
    lookup->error = error;
    lookup->found = error == 0 ? found : nullptr;
    lookup->done = true;
    lookup->changed.notify_all();
  }).detach();
  return lookup;
}

// A thread receives; Next takes its latest picture. One that nobody takes in time gives way.
class HttpSource : public FrameSource {
 public:
  HttpSource(CameraUrl url, const std::atomic<bool>* stop)
      : url_(std::move(url)), name_(url_.Name()), stop_(stop) {}
  ~HttpSource() override {
    closing_ = true;
    if (thread_.joinable()) thread_.join();
  }

  // Waits for the first picture, so that a wrong address is told at once.
  Status Start() {
    thread_ = std::thread([this] { Receive(); });
    std::unique_lock lock(mutex_);
    const int64_t deadline_ns = DeadlineNs(kFirstFrameTimeoutMs);
    while (!has_picture_ && !ended_) {
      if (Stopping()) return Stopped().WithContext(name_);
      if (SteadyNowNs() >= deadline_ns) {
        return Timeout("%s: no picture for %d ms", name_.c_str(), kFirstFrameTimeoutMs);
      }
      changed_.wait_for(lock, std::chrono::milliseconds(kSliceMs));
    }
    return has_picture_ ? Status() : end_;
  }

  Result<bool> Next(Frame* frame) override {
    std::unique_lock lock(mutex_);
    const int64_t deadline_ns = DeadlineNs(kFrameTimeoutMs);
    while (!has_picture_ && !ended_) {
      if (Stopping()) return false;
      if (SteadyNowNs() >= deadline_ns) {
        return Timeout("%s: no frame for %d ms", name_.c_str(), kFrameTimeoutMs);
      }
      changed_.wait_for(lock, std::chrono::milliseconds(kSliceMs));
    }
    if (!has_picture_) {
      if (Stopping()) return false;
      return end_;
    }
    std::swap(frame->bytes, picture_);
    has_picture_ = false;
    DescribeEncodedFrame(frame);
    frame->name = name_;
    frame->capture_time_ns = picture_time_ns_;
    frame->sequence = picture_number_;
    return true;
  }

  bool live() const override { return true; }
  std::string description() const override { return name_ + ": MJPEG over HTTP"; }

 private:
  static int64_t DeadlineNs(int timeout_ms) {
    return SteadyNowNs() + int64_t{timeout_ms} * 1'000'000;
  }
  bool Stopping() const { return closing_.load() || (stop_ != nullptr && stop_->load()); }
  static Status Stopped() { return {StatusCode::kCancelled, "stopped"}; }

  void Receive() {
    Status end = Converse().WithContext(name_);
    const std::lock_guard lock(mutex_);
    end_ = std::move(end);
    ended_ = true;
    changed_.notify_all();
  }

  // From looking up the host to the end of the stream; why it ended.
  Status Converse() {
    CameraUrl url = url_;
    for (int redirects = 0; redirects <= kMaxRedirects; ++redirects) {
      ATOLL_ASSIGN_OR_RETURN(const Socket socket, Connect(url));
      ATOLL_RETURN_IF_ERROR(Send(socket, FormatCameraRequest(url)));
      CameraAnswer answer;
      ATOLL_RETURN_IF_ERROR(ReceiveAnswer(socket, &answer));
      if (!answer.redirects()) return DeviceLost("the stream ended");
      ATOLL_ASSIGN_OR_RETURN(url, FollowRedirect(url, answer.location()));
    }
    return InvalidArgument("the camera sends us on for more than %d times", kMaxRedirects);
  }

  Result<Socket> Connect(const CameraUrl& url) {
    const std::shared_ptr<Lookup> lookup = StartLookup(url);
    std::unique_lock lock(lookup->mutex);
    const int64_t deadline_ns = DeadlineNs(kConnectTimeoutMs);
    while (!lookup->done) {
      if (Stopping()) return Stopped();
      if (SteadyNowNs() >= deadline_ns) {
        return Timeout("no address of '%s' within %d ms", url.host.c_str(), kConnectTimeoutMs);
      }
      lookup->changed.wait_for(lock, std::chrono::milliseconds(kSliceMs));
    }
    if (lookup->error != 0) {
      return NotFound("there is no host '%s': %s; check its name, or give its number",
                      url.host.c_str(), gai_strerror(lookup->error));
    }
    Status status;
    for (const addrinfo* at = lookup->found; at != nullptr; at = at->ai_next) {
      Socket socket;
      status = ConnectTo(*at, &socket);
      if (status.ok()) return socket;
      if (Stopping()) break;
    }
    return status;
  }

  Status ConnectTo(const addrinfo& at, Socket* socket) {
    *socket = Socket(
        ::socket(at.ai_family, at.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, at.ai_protocol));
    if (socket->fd() < 0) return ConnectError(errno);
    if (connect(socket->fd(), at.ai_addr, at.ai_addrlen) == 0) return Status();
    if (errno != EINPROGRESS && errno != EINTR) return ConnectError(errno);
    ATOLL_RETURN_IF_ERROR(WaitFor(*socket, POLLOUT, DeadlineNs(kConnectTimeoutMs)));
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(socket->fd(), SOL_SOCKET, SO_ERROR, &error, &size);
    return error == 0 ? Status() : ConnectError(error);
  }

  static Status ConnectError(int error) {
    return DeviceLost("cannot connect: %s (is the camera on, and the port right?)",
                      std::strerror(error));
  }

  Status WaitFor(const Socket& socket, short events, int64_t deadline_ns) {
    while (true) {
      if (Stopping()) return Stopped();
      pollfd ready = {socket.fd(), events, 0};
      const int count = poll(&ready, 1, kSliceMs);
      if (count > 0) return Status();
      if (count < 0 && errno != EINTR) return ConnectError(errno);
      if (SteadyNowNs() >= deadline_ns) return Timeout("the camera does not answer");
    }
  }

  Status Send(const Socket& socket, std::string_view request) {
    const int64_t deadline_ns = DeadlineNs(kConnectTimeoutMs);
    while (!request.empty()) {
      ATOLL_RETURN_IF_ERROR(WaitFor(socket, POLLOUT, deadline_ns));
      const ssize_t sent = send(socket.fd(), request.data(), request.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno != EINTR && errno != EAGAIN) return ConnectError(errno);
      request.remove_prefix(static_cast<size_t>(std::max<ssize_t>(sent, 0)));
    }
    return Status();
  }

  // Until the answer ends, or what is to be had of it: one that redirects has nothing but its head.
  Status ReceiveAnswer(const Socket& socket, CameraAnswer* answer) {
    std::array<uint8_t, size_t{1} << 16> bytes;
    std::vector<uint8_t> body;
    JpegSplitter splitter;
    bool checked = false;
    int64_t deadline_ns = DeadlineNs(kConnectTimeoutMs);  // of the head, however it trickles in
    while (!answer->ended()) {
      ATOLL_RETURN_IF_ERROR(WaitFor(socket, POLLIN, deadline_ns));
      const ssize_t got = recv(socket.fd(), bytes.data(), bytes.size(), 0);
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (got < 0) return DeviceLost("the connection broke: %s", std::strerror(errno));
      if (got == 0) break;
      body.clear();
      ATOLL_RETURN_IF_ERROR(answer->Receive({bytes.data(), static_cast<size_t>(got)}, &body));
      if (!answer->has_head()) continue;
      if (answer->redirects()) return Status();
      if (!checked) ATOLL_RETURN_IF_ERROR(answer->Check());
      checked = true;
      deadline_ns = DeadlineNs(kSilenceMs);
      ATOLL_RETURN_IF_ERROR(Take(body, &splitter));
    }
    if (answer->has_head()) return Status();
    return DeviceLost("the camera closed the connection without an answer");
  }

  // All pictures that are complete; the latest one stays.
  Status Take(const std::vector<uint8_t>& body, JpegSplitter* splitter) {
    splitter->Append(body);
    uint64_t count = 0;
    while (true) {
      ATOLL_ASSIGN_OR_RETURN(const bool found, splitter->Next(&latest_));
      if (!found) break;
      ++count;
    }
    if (count == 0) return Status();
    const std::lock_guard lock(mutex_);
    std::swap(picture_, latest_);
    picture_time_ns_ = SteadyNowNs();
    count_ += count;
    picture_number_ = count_ - 1;
    has_picture_ = true;
    changed_.notify_all();
    return Status();
  }

  const CameraUrl url_;
  const std::string name_;
  const std::atomic<bool>* const stop_;
  std::atomic<bool> closing_ = false;
  std::thread thread_;

  std::vector<uint8_t> latest_;  // of the thread
  uint64_t count_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<uint8_t> picture_;
  int64_t picture_time_ns_ = 0;
  uint64_t picture_number_ = 0;
  bool has_picture_ = false;
  bool ended_ = false;
  Status end_;
};

}  // namespace

Result<std::unique_ptr<FrameSource>> OpenHttp(const std::string& url,
                                              const FrameSourceOptions& options) {
  ATOLL_ASSIGN_OR_RETURN(CameraUrl parsed, ParseCameraUrl(url));
  auto source = std::make_unique<HttpSource>(std::move(parsed), options.stop);
  ATOLL_RETURN_IF_ERROR(source->Start());
  return std::unique_ptr<FrameSource>(std::move(source));
}

}  // namespace atollrt
