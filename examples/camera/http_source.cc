// SPDX-License-Identifier: Apache-2.0
//
// A network camera that sends MJPEG over HTTP. The only file that includes cpp-httplib, and so the
// only one with exceptions; none leaves it.
#include <httplib.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "examples/camera/mjpeg.h"
#include "examples/camera/sources.h"

namespace atollrt {
namespace {

constexpr int kFrameTimeoutMs = 2000;
constexpr int kConnectTimeoutMs = 5000;
constexpr size_t kMaxWindow = size_t{1} << 26;

struct Url {
  std::string host;
  int port = 80;
  std::string path = "/";
  std::string user;
  std::string password;
};

// "http://user:password@host:port/path", all but the host optional.
Result<Url> ParseUrl(const std::string& text) {
  Url url;
  std::string_view rest = std::string_view(text).substr(std::string_view("http://").size());
  const size_t slash = rest.find('/');
  if (slash != std::string_view::npos) url.path = rest.substr(slash);
  rest = rest.substr(0, slash);
  if (const size_t at = rest.rfind('@'); at != std::string_view::npos) {
    const std::string_view login = rest.substr(0, at);
    const size_t colon = login.find(':');
    url.user = login.substr(0, colon);
    if (colon != std::string_view::npos) url.password = login.substr(colon + 1);
    rest.remove_prefix(at + 1);
  }
  const size_t colon = rest.rfind(':');
  const bool has_port = colon != std::string_view::npos && rest.find(']', colon) == rest.npos;
  if (has_port) {
    const std::string port(rest.substr(colon + 1));
    const bool is_number = !port.empty() && port.size() <= 5 &&
                           port.find_first_not_of("0123456789") == std::string::npos;
    url.port = is_number ? std::stoi(port) : 0;
    rest = rest.substr(0, colon);
  }
  if (rest.size() > 2 && rest.front() == '[' && rest.back() == ']') {
    rest = rest.substr(1, rest.size() - 2);  // IPv6
  }
  url.host = rest;
  if (url.host.empty() || url.port < 1 || url.port > 65535) {
    return InvalidArgument("camera '%s': an address is http://HOST[:PORT]/PATH", text.c_str());
  }
  return url;
}

// A thread receives; Next takes its latest picture. One that nobody takes in time gives way.
class HttpSource : public FrameSource {
 public:
  HttpSource(std::string name, Url url, const std::atomic<bool>* stop)
      : name_(std::move(name)), stop_(stop), client_(url.host, url.port), path_(url.path) {
    client_.set_connection_timeout(std::chrono::milliseconds(kConnectTimeoutMs));
    client_.set_read_timeout(std::chrono::milliseconds(kConnectTimeoutMs));
    client_.set_follow_location(true);
    if (!url.user.empty()) client_.set_basic_auth(url.user, url.password);
  }
  ~HttpSource() override {
    closing_ = true;
    client_.stop();
    if (thread_.joinable()) thread_.join();
  }

  // Waits for the first picture, so that a wrong address is told at once.
  Status Start() {
    thread_ = std::thread([this] { Receive(); });
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(2 * kConnectTimeoutMs),
                      [&] { return has_picture_ || ended_ || Stopping(); });
    if (has_picture_) return Status();
    if (!end_.ok()) return end_;
    return Timeout("%s: no picture for %d ms", name_.c_str(), 2 * kConnectTimeoutMs);
  }

  Result<bool> Next(Frame* frame) override {
    std::unique_lock lock(mutex_);
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(kFrameTimeoutMs);
    while (!has_picture_ && !ended_) {
      if (Stopping()) return false;
      if (std::chrono::steady_clock::now() >= deadline) {
        return Timeout("%s: no frame for %d ms", name_.c_str(), kFrameTimeoutMs);
      }
      changed_.wait_for(lock, std::chrono::milliseconds(100));
    }
    if (!has_picture_) return end_.ok() ? DeviceLost("%s: the stream ended", name_.c_str()) : end_;
    std::swap(frame->bytes, picture_);
    has_picture_ = false;
    DescribeJpegFrame(frame);
    frame->name = name_;
    frame->capture_time_ns = picture_time_ns_;
    frame->sequence = picture_number_;
    return true;
  }

  bool live() const override { return true; }
  std::string description() const override { return name_ + ": MJPEG over HTTP"; }

 private:
  bool Stopping() const { return stop_ != nullptr && stop_->load(); }

  void Receive() {
    std::vector<uint8_t> window;
    Status end;
    try {
      const auto on_response = [&](const httplib::Response& response) {
        if (response.status != 200) {
          end = InvalidArgument("%s: the camera answers with HTTP status %d", name_.c_str(),
                                response.status);
        }
        return response.status == 200;
      };
      const auto on_bytes = [&](const char* data, size_t size) {
        window.insert(window.end(), data, data + size);
        return Take(&window, &end) && !closing_;
      };
      const httplib::Result result = client_.Get(path_.c_str(), on_response, on_bytes);
      if (end.ok()) {
        end = DeviceLost("%s: %s", name_.c_str(),
                         result ? "the stream ended" : httplib::to_string(result.error()).c_str());
      }
    } catch (const std::exception& error) {
      end = InternalError("%s: %s", name_.c_str(), error.what());
    }
    const std::lock_guard lock(mutex_);
    end_ = std::move(end);
    ended_ = true;
    changed_.notify_all();
  }

  // All pictures that are complete; the latest one stays. False, with a reason, when one is too
  // large.
  bool Take(std::vector<uint8_t>* window, Status* end) {
    while (true) {
      const JpegExtent extent = FindJpeg(*window, StreamEnd::kMoreFollows);
      const auto begin = window->begin();
      if (extent.kind != JpegExtent::Kind::kFound) {
        window->erase(begin, begin + static_cast<ptrdiff_t>(extent.begin));
        if (window->size() <= kMaxWindow) return true;
        *end = InvalidArgument("%s: a picture has no end within %zu bytes", name_.c_str(),
                               window->size());
        return false;
      }
      {
        const std::lock_guard lock(mutex_);
        picture_.assign(begin + static_cast<ptrdiff_t>(extent.begin),
                        begin + static_cast<ptrdiff_t>(extent.end));
        picture_time_ns_ = SteadyNowNs();
        picture_number_ = count_++;
        has_picture_ = true;
        changed_.notify_all();
      }
      window->erase(begin, begin + static_cast<ptrdiff_t>(extent.end));
    }
  }

  const std::string name_;
  const std::atomic<bool>* const stop_;
  httplib::Client client_;
  const std::string path_;
  std::atomic<bool> closing_ = false;
  std::thread thread_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<uint8_t> picture_;
  int64_t picture_time_ns_ = 0;
  uint64_t picture_number_ = 0;
  uint64_t count_ = 0;
  bool has_picture_ = false;
  bool ended_ = false;
  Status end_;
};

}  // namespace

Result<std::unique_ptr<FrameSource>> OpenHttp(const std::string& url,
                                              const FrameSourceOptions& options) {
  ATOLL_ASSIGN_OR_RETURN(Url parsed, ParseUrl(url));
  // A password is nobody's business in reports.
  std::string name = url;
  if (const size_t at = url.rfind('@', url.find('/', 7)); at != std::string::npos) {
    name = "http://" + url.substr(at + 1);
  }
  auto source = std::make_unique<HttpSource>(std::move(name), std::move(parsed), options.stop);
  ATOLL_RETURN_IF_ERROR(source->Start());
  return std::unique_ptr<FrameSource>(std::move(source));
}

}  // namespace atollrt
