// SPDX-License-Identifier: Apache-2.0
//
// A network camera that sends MJPEG over HTTP. Everything that may wait does so in slices or in a
// thread that nobody waits for: it ends when it is told to, whatever the camera does.
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "camera/sources/http_camera.h"
#include "camera/sources/mjpeg.h"
#include "camera/sources/sources.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/monotonic.h"

namespace atollrt {
namespace {

constexpr int kConnectTimeoutMs = 5000;  // for each: looking up, connecting, the head of an answer
constexpr int kFirstFrameTimeoutMs = 2 * kConnectTimeoutMs;
constexpr int kSilenceMs = 5000;  // that a stream may have in it
constexpr int kSliceMs = 50;
constexpr int kMaxRedirects = 5;

int64_t DeadlineNs(int timeout_ms) { return MonotonicNs() + int64_t{timeout_ms} * 1'000'000; }
Status Stopped() { return {StatusCode::kCancelled, "stopped"}; }
Status ConnectError(int error) {
  return DeviceLost("cannot connect: %s (is the camera on, and the port right?)",
                    std::strerror(error));
}

// The latest picture, handed from the thread that receives to the one that asks. One that nobody
// takes in time gives way.
struct Mailbox {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<uint8_t> picture;
  int64_t time_ns = 0;
  uint64_t number = 0;
  bool has_picture = false;
  int64_t lookup_until_ns = INT64_MAX;  // while the host's name is looked up
  Status end;                           // why nothing comes any more
  bool ended = false;
  std::atomic<bool> closing = false;  // nobody asks any more
};

// The receiving thread: from looking up the host to the end of the stream.
class Receiver {
 public:
  Receiver(CameraUrl url, std::shared_ptr<Mailbox> mailbox)
      : url_(std::move(url)), mailbox_(std::move(mailbox)) {}

  void Run() {
    Status end = Converse();
    const std::lock_guard lock(mailbox_->mutex);
    mailbox_->end = std::move(end);
    mailbox_->ended = true;
    mailbox_->changed.notify_all();
  }

 private:
  Status Converse() {
    for (int redirects = 0; redirects <= kMaxRedirects; ++redirects) {
      ATOLL_ASSIGN_OR_RETURN(const FileDescriptor socket, Connect());
      ATOLL_RETURN_IF_ERROR(Send(socket, FormatCameraRequest(url_)));
      CameraAnswer answer;
      ATOLL_RETURN_IF_ERROR(ReceiveAnswer(socket, &answer));
      if (!answer.redirects()) return DeviceLost("the stream ended");
      ATOLL_ASSIGN_OR_RETURN(url_, FollowRedirect(url_, answer.location()));
    }
    return InvalidArgument("the camera sends us on for more than %d times", kMaxRedirects);
  }

  // False if nobody asks any more: whoever closed may not have waited for this.
  bool SetLookupDeadline(int64_t until_ns) {
    const std::lock_guard lock(mailbox_->mutex);
    if (mailbox_->closing) return false;
    mailbox_->lookup_until_ns = until_ns;
    mailbox_->changed.notify_all();
    return true;
  }

  Result<FileDescriptor> Connect() {
    addrinfo hints = {};
    hints.ai_flags = AI_NUMERICSERV;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (!SetLookupDeadline(DeadlineNs(kConnectTimeoutMs))) return Stopped();
    const int error =
        getaddrinfo(url_.host.c_str(), std::to_string(url_.port).c_str(), &hints, &found);
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(error == 0 ? found : nullptr,
                                                                  &freeaddrinfo);
    if (!SetLookupDeadline(INT64_MAX)) return Stopped();
    if (error != 0) {
      return NotFound("there is no host '%s': %s; check the name, or give the camera's IP address",
                      url_.host.c_str(), gai_strerror(error));
    }
    Status status;
    for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
      FileDescriptor socket(
          ::socket(at->ai_family, at->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, at->ai_protocol));
      status = ConnectTo(*at, socket);
      if (status.ok()) return socket;
      if (mailbox_->closing) break;
    }
    return status;
  }

  Status ConnectTo(const addrinfo& at, const FileDescriptor& socket) {
    if (socket.get() < 0) return ConnectError(errno);
    if (connect(socket.get(), at.ai_addr, at.ai_addrlen) == 0) return Status();
    if (errno != EINPROGRESS && errno != EINTR) return ConnectError(errno);
    ATOLL_RETURN_IF_ERROR(WaitFor(socket, POLLOUT, DeadlineNs(kConnectTimeoutMs)));
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    return error == 0 ? Status() : ConnectError(error);
  }

  Status WaitFor(const FileDescriptor& socket, short events, int64_t deadline_ns) {
    while (!mailbox_->closing) {
      pollfd ready = {socket.get(), events, 0};
      const int count = poll(&ready, 1, kSliceMs);
      if (count > 0) return Status();
      if (count < 0 && errno != EINTR) return ConnectError(errno);
      if (MonotonicNs() >= deadline_ns) return Timeout("the camera does not answer");
    }
    return Stopped();
  }

  Status Send(const FileDescriptor& socket, std::string_view request) {
    const int64_t deadline_ns = DeadlineNs(kConnectTimeoutMs);
    while (!request.empty()) {
      ATOLL_RETURN_IF_ERROR(WaitFor(socket, POLLOUT, deadline_ns));
      const ssize_t sent = send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno != EINTR && errno != EAGAIN) return ConnectError(errno);
      request.remove_prefix(static_cast<size_t>(std::max<ssize_t>(sent, 0)));
    }
    return Status();
  }

  // Until the answer ends, or what is to be had of it: one that redirects has nothing but its head.
  Status ReceiveAnswer(const FileDescriptor& socket, CameraAnswer* answer) {
    std::array<uint8_t, size_t{1} << 16> bytes;
    std::vector<uint8_t> body;
    JpegSplitter splitter;
    bool checked = false;
    int64_t deadline_ns = DeadlineNs(kConnectTimeoutMs);  // of the head, however it trickles in
    while (!answer->ended()) {
      ATOLL_RETURN_IF_ERROR(WaitFor(socket, POLLIN, deadline_ns));
      const ssize_t got = recv(socket.get(), bytes.data(), bytes.size(), 0);
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (got < 0) return DeviceLost("the connection broke: %s", std::strerror(errno));
      if (got == 0) break;
      body.clear();
      ATOLL_RETURN_IF_ERROR(answer->Receive({bytes.data(), static_cast<size_t>(got)}, &body));
      if (!answer->has_head()) continue;
      if (answer->redirects()) return Status();
      if (!checked) ATOLL_RETURN_IF_ERROR(answer->Check(!url_.login.empty()));
      checked = true;
      deadline_ns = DeadlineNs(kSilenceMs);
      ATOLL_RETURN_IF_ERROR(Deliver(body, &splitter));
    }
    if (answer->has_head()) return Status();
    return DeviceLost("the camera closed the connection without an answer");
  }

  // The latest of all pictures that are complete.
  Status Deliver(const std::vector<uint8_t>& body, JpegSplitter* splitter) {
    splitter->Append(body);
    const uint64_t before = count_;
    while (true) {
      ATOLL_ASSIGN_OR_RETURN(const bool found, splitter->Next(&latest_));
      if (!found) break;
      ++count_;
    }
    if (count_ == before) return Status();
    const std::lock_guard lock(mailbox_->mutex);
    std::swap(mailbox_->picture, latest_);
    mailbox_->time_ns = MonotonicNs();
    mailbox_->number = count_ - 1;
    mailbox_->has_picture = true;
    mailbox_->changed.notify_all();
    return Status();
  }

  CameraUrl url_;
  const std::shared_ptr<Mailbox> mailbox_;
  std::vector<uint8_t> latest_;
  uint64_t count_ = 0;
};

class HttpSource : public FrameSource {
 public:
  // Nobody waits for the thread while the C library looks up a name, for as long as it likes: it
  // cannot be told to stop. From everything else it is back within a slice.
  HttpSource(CameraUrl url, const std::atomic<bool>* stop)
      : name_(url.Name()), host_(url.host), stop_(stop) {
    std::thread([receiver = Receiver(std::move(url), mailbox_)]() mutable {
      receiver.Run();
    }).detach();
  }
  // The connection is closed then, so that a camera with room for one can be opened again.
  ~HttpSource() override {
    std::unique_lock lock(mailbox_->mutex);
    mailbox_->closing = true;
    mailbox_->changed.wait(
        lock, [this] { return mailbox_->ended || mailbox_->lookup_until_ns != INT64_MAX; });
  }

  // Waits for the first picture, so that a wrong address is told at once.
  Status Start() {
    std::unique_lock lock(mailbox_->mutex);
    return Await("picture", kFirstFrameTimeoutMs, &lock);
  }

  Result<bool> Next(Frame* frame) override {
    std::unique_lock lock(mailbox_->mutex);
    Status status = Await("frame", kFrameTimeoutMs, &lock);
    if (status.code() == StatusCode::kCancelled) return false;
    ATOLL_RETURN_IF_ERROR(status);
    std::swap(frame->bytes, mailbox_->picture);
    mailbox_->has_picture = false;
    DescribeEncodedFrame(frame);
    frame->name = name_;
    frame->capture_time_ns = mailbox_->time_ns;
    frame->sequence = mailbox_->number;
    return true;
  }

  bool live() const override { return true; }
  std::string description() const override { return name_ + ": MJPEG over HTTP"; }

 private:
  // Until there is a picture. kCancelled after *stop.
  Status Await(const char* what, int timeout_ms, std::unique_lock<std::mutex>* lock) {
    const int64_t deadline_ns = DeadlineNs(timeout_ms);
    Status status;
    while (!mailbox_->has_picture && status.ok()) {
      const int64_t now_ns = MonotonicNs();
      if (stop_ != nullptr && stop_->load()) {
        status = Stopped();
      } else if (mailbox_->ended) {
        status = mailbox_->end;
      } else if (now_ns >= mailbox_->lookup_until_ns) {
        status = Timeout("no address of '%s' within %d ms", host_.c_str(), kConnectTimeoutMs);
      } else if (now_ns >= deadline_ns) {
        status = Timeout("no %s for %d ms", what, timeout_ms);
      } else {
        mailbox_->changed.wait_for(*lock, std::chrono::milliseconds(kSliceMs));
      }
    }
    return std::move(status).WithContext(name_);
  }

  const std::string name_;
  const std::string host_;
  const std::atomic<bool>* const stop_;
  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
};

}  // namespace

OpenedSource OpenHttp(const std::string& url, const FrameSourceOptions& options) {
  ATOLL_ASSIGN_OR_RETURN(CameraUrl parsed, ParseCameraUrl(url));
  auto source = std::make_unique<HttpSource>(std::move(parsed), options.stop);
  ATOLL_RETURN_IF_ERROR(source->Start());
  return std::unique_ptr<FrameSource>(std::move(source));
}

}  // namespace atollrt
