// SPDX-License-Identifier: Apache-2.0
#include "atoll/camera/frame_source.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "examples/camera/mjpeg.h"
#include "examples/camera/sources.h"
#include "examples/picture/file_io.h"

namespace atollrt {
namespace {

uint8_t Clamp8(int value) { return static_cast<uint8_t>(std::clamp(value, 0, 255)); }

// BT.601, 16..235 to full range, in 1/256: 298 = 256 * 255 / 219, 409 = 256 * 1.402 * 255 / 224,
// and so on.
void YuyvToRgb(const uint8_t* src, size_t pixel_pairs, uint8_t* dst) {
  for (size_t i = 0; i < pixel_pairs; ++i, src += 4, dst += 6) {
    const int u = src[1] - 128;
    const int v = src[3] - 128;
    const int red = 409 * v + 128;
    const int green = -100 * u - 208 * v + 128;
    const int blue = 516 * u + 128;
    for (int k = 0; k < 2; ++k) {
      const int y = 298 * (src[2 * k] - 16);
      dst[3 * k + 0] = Clamp8((y + red) >> 8);
      dst[3 * k + 1] = Clamp8((y + green) >> 8);
      dst[3 * k + 2] = Clamp8((y + blue) >> 8);
    }
  }
}

void YuyvToGray(const uint8_t* src, size_t pixel_pairs, uint8_t* dst) {
  for (size_t i = 0; i < 2 * pixel_pairs; ++i) {
    dst[i] = Clamp8((298 * (src[2 * i] - 16) + 128) >> 8);
  }
}

Status DecodeYuyv(const Frame& frame, const DecodeOptions& options, Image* image) {
  if (frame.width < 2 || frame.height < 1 || frame.width % 2 != 0) {
    return InvalidArgument("YUYV: size %d x %d", frame.width, frame.height);
  }
  const int64_t pixels = int64_t{frame.width} * frame.height;
  if (pixels > options.max_pixels) {
    return ResourceExhausted("YUYV: %d x %d is above the limit of %lld pixels", frame.width,
                             frame.height, static_cast<long long>(options.max_pixels));
  }
  if (frame.bytes.size() != static_cast<size_t>(pixels) * 2) {
    return InvalidArgument("YUYV: %d x %d takes %lld bytes, but %zu are present", frame.width,
                           frame.height, static_cast<long long>(pixels * 2), frame.bytes.size());
  }
  image->Reshape(frame.width, frame.height, options.channels);
  const auto convert = options.channels == 1 ? YuyvToGray : YuyvToRgb;
  convert(frame.bytes.data(), static_cast<size_t>(pixels) / 2, image->pixels.data());
  return Status();
}

}  // namespace

Status DecodeFrame(const Frame& frame, const DecodeOptions& options, Image* image) {
  if (frame.format == FrameFormat::kJpeg) return DecodeImageInto(frame.bytes, options, image);
  if (options.channels != 1 && options.channels != 3) {
    return InvalidArgument("cannot decode to %d channels, only to 1 or 3", options.channels);
  }
  return DecodeYuyv(frame, options, image);
}

void DescribeJpegFrame(Frame* frame) {
  const JpegSize size = ReadJpegSize(frame->bytes).value_or(JpegSize{0, 0});
  frame->format = FrameFormat::kJpeg;
  frame->width = size.width;
  frame->height = size.height;
  frame->capture_time_ns = 0;
  frame->label.reset();
  frame->crop = {};
}

Result<std::unique_ptr<FrameSource>> OpenFrameSource(const std::string& spec,
                                                     const FrameSourceOptions& options) {
  if (options.width < 1 || options.width > 16384 || options.height < 1 || options.height > 16384) {
    return InvalidArgument("camera size %d x %d is not within 1..16384", options.width,
                           options.height);
  }
  const std::string fashion = "fashion:";
  if (spec == "test") return OpenTestPattern(options);
  if (spec.compare(0, fashion.size(), fashion) == 0) {
    return OpenFashion(spec.substr(fashion.size()), options);
  }
  const std::string scenes = "scenes:";
  if (spec.compare(0, scenes.size(), scenes) == 0) {
    return OpenScenes(spec.substr(scenes.size()), options);
  }
  if (spec.compare(0, 10, "/dev/video") == 0) return OpenV4l2(spec, options);
  struct stat info;
  if (stat(spec.c_str(), &info) != 0) {
    const int error = errno;
    if (error != ENOENT) return FileError(spec, "open", error);
    return NotFound(
        "camera '%s': no such file; a camera is 'test', 'fashion:DIR', 'scenes:DIR', /dev/videoN, "
        "a directory of JPEGs or an MJPEG file",
        spec.c_str());
  }
  if (S_ISDIR(info.st_mode)) return OpenJpegDirectory(spec, options);
  return OpenMjpegFile(spec, options);
}

}  // namespace atollrt
