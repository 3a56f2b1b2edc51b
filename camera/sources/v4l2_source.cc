// SPDX-License-Identifier: Apache-2.0
//
// A V4L2 capture device with memory-mapped buffers. A frame is copied out of its buffer, which goes
// straight back to the driver, so that a slow consumer never starves the camera.
#include <fcntl.h>
#include <linux/videodev2.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "camera/picture/file_io.h"
#include "camera/sources/sources.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/monotonic.h"

namespace atollrt {
namespace {

constexpr uint32_t kBufferCount = 4;

class V4l2Source : public FrameSource {
 public:
  V4l2Source(std::string path, FileDescriptor device, const std::atomic<bool>* stop)
      : path_(std::move(path)), device_(std::move(device)), stop_(stop) {}
  ~V4l2Source() override {
    if (streaming_) {
      v4l2_buf_type type = V4L2_BUF_TYPE_VIDEO_CAPTURE;
      Ioctl(VIDIOC_STREAMOFF, &type);
    }
    for (const Mapping& mapping : mappings_) munmap(mapping.data, mapping.size);
  }

  Status Start(const FrameSourceOptions& options) {
    ATOLL_RETURN_IF_ERROR(CheckCapabilities());
    ATOLL_RETURN_IF_ERROR(ChooseFormat(options));
    RequestRate(options.fps);
    ATOLL_RETURN_IF_ERROR(MapBuffers());
    v4l2_buf_type type = V4L2_BUF_TYPE_VIDEO_CAPTURE;
    if (Ioctl(VIDIOC_STREAMON, &type) != 0) return Error("start streaming");
    streaming_ = true;
    return Status();
  }

  Result<bool> Next(Frame* frame) override {
    const int64_t deadline_ns = MonotonicNs() + int64_t{kFrameTimeoutMs} * 1'000'000;
    while (true) {
      ATOLL_ASSIGN_OR_RETURN(const bool readable, WaitUntilReadable(deadline_ns));
      if (!readable) return false;
      v4l2_buffer buffer = MakeBuffer(0);
      if (Ioctl(VIDIOC_DQBUF, &buffer) != 0) {
        if (errno == EAGAIN) continue;
        return Error("take a frame");
      }
      if (buffer.index >= mappings_.size()) {
        return DeviceLost("%s: the driver returned buffer %u of %zu", path_.c_str(), buffer.index,
                          mappings_.size());
      }
      // The driver marks frames that were damaged on the way; the next one will do.
      const bool damaged = (buffer.flags & V4L2_BUF_FLAG_ERROR) != 0 || buffer.bytesused == 0;
      if (!damaged) CopyFrame(buffer, frame);
      if (Ioctl(VIDIOC_QBUF, &buffer) != 0) return Error("return a buffer");
      if (!damaged) return true;
    }
  }

  bool live() const override { return true; }

  std::string description() const override {
    return Format("%s: %s of %u x %u", path_.c_str(), is_jpeg_ ? "MJPEG" : "YUYV", width_, height_);
  }

 private:
  struct Mapping {
    void* data;
    size_t size;
  };

  int Ioctl(unsigned long request, void* argument) const {
    int result;
    do {
      result = ioctl(device_.get(), request, argument);
    } while (result != 0 && errno == EINTR);
    return result;
  }

  // EIO is what drivers say when the camera stops answering.
  Status Error(const char* verb) const {
    return FileError(path_, verb, errno == EIO ? ENODEV : errno);
  }

  static v4l2_buffer MakeBuffer(uint32_t index) {
    v4l2_buffer buffer = {};
    buffer.type = V4L2_BUF_TYPE_VIDEO_CAPTURE;
    buffer.memory = V4L2_MEMORY_MMAP;
    buffer.index = index;
    return buffer;
  }

  Status CheckCapabilities() {
    v4l2_capability capability = {};
    if (Ioctl(VIDIOC_QUERYCAP, &capability) != 0) return Error("query (not a V4L2 device?)");
    const uint32_t caps = (capability.capabilities & V4L2_CAP_DEVICE_CAPS) != 0
                              ? capability.device_caps
                              : capability.capabilities;
    if ((caps & V4L2_CAP_VIDEO_CAPTURE) == 0 || (caps & V4L2_CAP_STREAMING) == 0) {
      return Unsupported("%s: not a streaming capture device (capabilities %08x)", path_.c_str(),
                         caps);
    }
    return Status();
  }

  // The driver changes what it cannot do, so the answer is what counts.
  Status ChooseFormat(const FrameSourceOptions& options) {
    for (const uint32_t pixel_format : {V4L2_PIX_FMT_MJPEG, V4L2_PIX_FMT_YUYV}) {
      v4l2_format format = {};
      format.type = V4L2_BUF_TYPE_VIDEO_CAPTURE;
      format.fmt.pix.width = static_cast<uint32_t>(options.width);
      format.fmt.pix.height = static_cast<uint32_t>(options.height);
      format.fmt.pix.pixelformat = pixel_format;
      format.fmt.pix.field = V4L2_FIELD_NONE;
      if (Ioctl(VIDIOC_S_FMT, &format) != 0) {
        if (errno == EINVAL) continue;
        return Error("set the picture format");
      }
      const uint32_t got = format.fmt.pix.pixelformat;
      is_jpeg_ = got == V4L2_PIX_FMT_MJPEG || got == V4L2_PIX_FMT_JPEG;
      if (!is_jpeg_ && got != V4L2_PIX_FMT_YUYV) continue;
      // Asked for MJPEG it may offer YUYV: that is the fallback already.
      width_ = format.fmt.pix.width;
      height_ = format.fmt.pix.height;
      row_bytes_ = std::max(format.fmt.pix.bytesperline, 2 * width_);
      if (width_ == 0 || height_ == 0 || width_ > kMaxFrameSide || height_ > kMaxFrameSide ||
          int64_t{width_} * height_ > kMaxFramePixels) {
        return Unsupported("%s: picture size %u x %u", path_.c_str(), width_, height_);
      }
      return Status();
    }
    return Unsupported("%s: has neither MJPEG nor YUYV", path_.c_str());
  }

  // A wish: many drivers have only one rate.
  void RequestRate(double fps) {
    if (!(fps > 0) || fps > 1000) return;
    v4l2_streamparm parameters = {};
    parameters.type = V4L2_BUF_TYPE_VIDEO_CAPTURE;
    parameters.parm.capture.timeperframe.numerator = 1000;
    parameters.parm.capture.timeperframe.denominator =
        static_cast<uint32_t>(std::max(1L, std::lround(fps * 1000)));
    Ioctl(VIDIOC_S_PARM, &parameters);
  }

  Status MapBuffers() {
    v4l2_requestbuffers request = {};
    request.count = kBufferCount;
    request.type = V4L2_BUF_TYPE_VIDEO_CAPTURE;
    request.memory = V4L2_MEMORY_MMAP;
    if (Ioctl(VIDIOC_REQBUFS, &request) != 0) return Error("request buffers");
    if (request.count < 2) {
      return ResourceExhausted("%s: got %u capture buffers, at least 2 are needed", path_.c_str(),
                               request.count);
    }
    for (uint32_t i = 0; i < request.count; ++i) {
      v4l2_buffer buffer = MakeBuffer(i);
      if (Ioctl(VIDIOC_QUERYBUF, &buffer) != 0) return Error("query a buffer");
      void* data = mmap(nullptr, buffer.length, PROT_READ | PROT_WRITE, MAP_SHARED, device_.get(),
                        static_cast<off_t>(buffer.m.offset));
      if (data == MAP_FAILED) return Error("map a buffer");
      mappings_.push_back({data, buffer.length});
      if (Ioctl(VIDIOC_QBUF, &buffer) != 0) return Error("queue a buffer");
    }
    return Status();
  }

  // False when it was stopped.
  Result<bool> WaitUntilReadable(int64_t deadline_ns) {
    constexpr int64_t kPollMs = 100;
    while (true) {
      if (stop_ != nullptr && stop_->load()) return false;
      const int64_t left_ms = (deadline_ns - MonotonicNs()) / 1'000'000;
      if (left_ms <= 0) {
        return Timeout("%s: no frame for %d ms", path_.c_str(), kFrameTimeoutMs);
      }
      pollfd ready = {device_.get(), POLLIN, 0};
      const int result = poll(&ready, 1, static_cast<int>(std::min(left_ms, kPollMs)));
      if (result < 0 && errno != EINTR) return Error("wait for a frame");
      if (result <= 0) continue;
      if ((ready.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) {
        return DeviceLost("%s: the camera was disconnected", path_.c_str());
      }
      return true;
    }
  }

  void CopyFrame(const v4l2_buffer& buffer, Frame* frame) {
    const Mapping& mapping = mappings_[buffer.index];
    const auto* data = static_cast<const uint8_t*>(mapping.data);
    const size_t size = std::min<size_t>(buffer.bytesused, mapping.size);
    if (is_jpeg_) {
      frame->bytes.assign(data, data + size);
      DescribeEncodedFrame(frame);
    } else {
      CopyYuyv(data, size, frame);
    }
    const bool monotonic =
        (buffer.flags & V4L2_BUF_FLAG_TIMESTAMP_MASK) == V4L2_BUF_FLAG_TIMESTAMP_MONOTONIC;
    frame->capture_time_ns =
        monotonic ? int64_t{buffer.timestamp.tv_sec} * 1'000'000'000 +
                        int64_t{buffer.timestamp.tv_usec} * 1000  // steady_clock's clock, on Linux
                  : MonotonicNs();
    frame->sequence = buffer.sequence;
    frame->name = path_;
  }

  // A frame that is too short keeps its short size, which DecodeFrame then reports.
  void CopyYuyv(const uint8_t* data, size_t size, Frame* frame) {
    const size_t dense = size_t{2} * width_;
    const size_t rows =
        size < dense ? 0 : std::min<size_t>(height_, (size - dense) / row_bytes_ + 1);
    frame->bytes.resize(dense * rows);
    for (size_t y = 0; y < rows; ++y) {
      std::memcpy(frame->bytes.data() + dense * y, data + row_bytes_ * y, dense);
    }
    DescribeRawFrame(FrameFormat::kYuyv, static_cast<int>(width_), static_cast<int>(height_), false,
                     frame);
  }

  const std::string path_;
  const FileDescriptor device_;
  const std::atomic<bool>* const stop_;
  std::vector<Mapping> mappings_;
  bool streaming_ = false;
  bool is_jpeg_ = false;
  uint32_t width_ = 0;
  uint32_t height_ = 0;
  uint32_t row_bytes_ = 0;  // YUYV only
};

}  // namespace

OpenedSource OpenV4l2(const std::string& path, const FrameSourceOptions& options) {
  FileDescriptor device(open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (device.get() < 0) {
    const int error = errno;
    const Status status = FileError(path, "open", error);
    return Status(status.code(), status.message() + "; " + CameraHint(path, error, ListCameras()));
  }
  auto source = std::make_unique<V4l2Source>(path, std::move(device), options.stop);
  ATOLL_RETURN_IF_ERROR(source->Start(options));
  return std::unique_ptr<FrameSource>(std::move(source));
}

}  // namespace atollrt
