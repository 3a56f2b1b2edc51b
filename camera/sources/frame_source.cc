// SPDX-License-Identifier: Apache-2.0
#include "atoll/camera/frame_source.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "camera/picture/file_io.h"
#include "camera/sources/http_text.h"
#include "camera/sources/mjpeg.h"
#include "camera/sources/sources.h"
#include "runtime/base/login.h"

namespace atollrt {
namespace {

// ITU-R BT.601 video levels to full range, in 1/256: 298 = 256 * 255 / 219, 291 = 256 * 255 / 224.
struct Levels {
  int offset;
  int factor;
  int center;
};
constexpr Levels kLumaLevels = {16, 298, 0};
constexpr Levels kColorLevels = {128, 291, 128};

// Every `step`th of the bytes.
void Expand(const uint8_t* src, size_t step, const Levels& levels, bool full_range, int count,
            uint8_t* dst) {
  if (full_range) {
    for (int i = 0; i < count; ++i) dst[i] = src[static_cast<size_t>(i) * step];
    return;
  }
  for (int i = 0; i < count; ++i) {
    const int value =
        ((levels.factor * (src[static_cast<size_t>(i) * step] - levels.offset) + 128) >> 8) +
        levels.center;
    dst[i] = static_cast<uint8_t>(std::clamp(value, 0, 255));
  }
}

// How a format subsamples its colour.
struct Subsampling {
  int shift_x;
  int shift_y;
};
Subsampling SubsamplingOf(FrameFormat format) {
  const bool both = format == FrameFormat::kYuv420;
  return {both || format == FrameFormat::kYuv422 || format == FrameFormat::kYuyv, both};
}

Status DecodeUncompressed(const Frame& frame, const DecodeOptions& options, PlanarImage* picture) {
  const bool is_yuyv = frame.format == FrameFormat::kYuyv;
  if (frame.width < 1 || frame.height < 1 || (is_yuyv && frame.width % 2 != 0)) {
    return InvalidArgument("uncompressed frame: size %d x %d", frame.width, frame.height);
  }
  const int64_t pixels = int64_t{frame.width} * frame.height;
  if (pixels > options.max_pixels) {
    return ResourceExhausted("uncompressed frame: %d x %d is above the limit of %lld pixels",
                             frame.width, frame.height, static_cast<long long>(options.max_pixels));
  }
  const size_t size = PlanesSize(frame.format, frame.width, frame.height);
  if (frame.bytes.size() != size) {
    return InvalidArgument("uncompressed frame: %d x %d takes %zu bytes, but %zu are present",
                           frame.width, frame.height, size, frame.bytes.size());
  }
  const bool has_color = options.channels == 3 && frame.format != FrameFormat::kYuv400;
  if (has_color) {
    const Subsampling subsampling = SubsamplingOf(frame.format);
    picture->ReshapeColor(frame.width, frame.height, subsampling.shift_x, subsampling.shift_y);
  } else {
    picture->ReshapeGray(frame.width, frame.height);
  }
  const uint8_t* bytes = frame.bytes.data();
  if (is_yuyv) {
    for (int y = 0; y < frame.height; ++y, bytes += size_t{2} * picture->y.width) {
      Expand(bytes, 2, kLumaLevels, frame.full_range, frame.width, picture->y.row(y));
      if (!has_color) continue;
      Expand(bytes + 1, 4, kColorLevels, frame.full_range, frame.width / 2, picture->cb.row(y));
      Expand(bytes + 3, 4, kColorLevels, frame.full_range, frame.width / 2, picture->cr.row(y));
    }
    return Status();
  }
  const auto copy = [&](const Levels& levels, Plane* plane) {
    for (int y = 0; y < plane->height; ++y, bytes += plane->width) {
      Expand(bytes, 1, levels, frame.full_range, plane->width, plane->row(y));
    }
  };
  copy(kLumaLevels, &picture->y);
  if (has_color) {
    copy(kColorLevels, &picture->cb);
    copy(kColorLevels, &picture->cr);
  }
  return Status();
}

}  // namespace

size_t PlanesSize(FrameFormat format, int width, int height) {
  const size_t luma = static_cast<size_t>(width) * static_cast<size_t>(height);
  if (format == FrameFormat::kYuv400) return luma;
  const Subsampling subsampling = SubsamplingOf(format);
  const int color_width = (width + subsampling.shift_x) >> subsampling.shift_x;
  const int color_height = (height + subsampling.shift_y) >> subsampling.shift_y;
  return luma + 2 * static_cast<size_t>(color_width) * static_cast<size_t>(color_height);
}

Status DecodeFrame(const Frame& frame, const DecodeOptions& options, PlanarImage* picture) {
  if (options.channels != 1 && options.channels != 3) {
    return InvalidArgument("cannot decode to %d channels, only to 1 or 3", options.channels);
  }
  ATOLL_RETURN_IF_ERROR(frame.error);
  if (frame.format == FrameFormat::kEncoded) {
    return DecodePlanes(frame.bytes, options, picture);
  }
  return DecodeUncompressed(frame, options, picture);
}

void DescribeRawFrame(FrameFormat format, int width, int height, bool full_range, Frame* frame) {
  frame->format = format;
  frame->full_range = full_range;
  frame->width = width;
  frame->height = height;
  frame->capture_time_ns = 0;
  frame->label.reset();
  frame->crop = {};
  frame->error = Status();
}

void DescribeEncodedFrame(Frame* frame) {
  const std::optional<ImageSize> jpeg = ReadJpegSize(frame->bytes);
  const ImageSize size = jpeg ? *jpeg : ReadBitmapSize(frame->bytes);
  DescribeRawFrame(FrameFormat::kEncoded, size.width, size.height, true, frame);
}

namespace {

// The part of "fashion:DIR" that follows the colon, or null.
const char* After(const char* prefix, const std::string& spec) {
  return spec.starts_with(prefix) ? spec.c_str() + std::strlen(prefix) : nullptr;
}

// "http", in small letters, of an address; "" for what is none.
std::string SchemeOf(const std::string& spec) {
  const size_t end = spec.find("://");
  return end == std::string::npos ? "" : Lowercase(spec.substr(0, end));
}

bool IsVideoDevice(const struct stat& info) {
  constexpr unsigned kVideo4Linux = 81;
  return S_ISCHR(info.st_mode) && major(info.st_rdev) == kVideo4Linux;
}

}  // namespace

std::string SourceName(const std::string& spec) {
  return spec == "-" ? "standard input" : WithoutLogin(spec);
}

Result<std::unique_ptr<FrameSource>> OpenFrameSource(const std::string& spec,
                                                     const FrameSourceOptions& options) {
  if (options.width < 1 || options.width > kMaxFrameSide || options.height < 1 ||
      options.height > kMaxFrameSide || int64_t{options.width} * options.height > kMaxFramePixels) {
    return InvalidArgument("camera size %d x %d is not within 1..%d, or above %lld pixels",
                           options.width, options.height, kMaxFrameSide,
                           static_cast<long long>(kMaxFramePixels));
  }
  if (spec == "test") return OpenTestPattern(options);
  if (const char* directory = After("fashion:", spec)) return OpenFashion(directory, options);
  if (const char* directory = After("scenes:", spec)) return OpenScenes(directory, options);
  if (spec.starts_with("/dev/video")) return OpenV4l2(spec, options);
  if (const std::string scheme = SchemeOf(spec); scheme == "http") {
    return OpenHttp(spec, options);
  } else if (!scheme.empty()) {
    return Unsupported(
        "camera '%s': of addresses only http:// is read; what ffmpeg reads comes as 'ffmpeg -i "
        "ADDRESS -f mjpeg - | atoll camera MODEL --source -'",
        WithoutLogin(spec).c_str());
  }
  if (spec == "-") return OpenStream(spec, options);
  struct stat info;
  if (stat(spec.c_str(), &info) != 0) {
    const int error = errno;
    if (error != ENOENT) return FileError(WithoutLogin(spec), "open", error);
    return NotFound(
        "camera '%s': no such file; a camera is 'test', 'fashion:DIR', 'scenes:DIR', /dev/videoN, "
        "http://..., a directory of pictures, an MJPEG or Y4M file or '-' for the standard input",
        WithoutLogin(spec).c_str());
  }
  if (S_ISDIR(info.st_mode)) return OpenPictureDirectory(spec, options);
  if (IsVideoDevice(info)) return OpenV4l2(spec, options);  // by another name
  return OpenStream(spec, options);
}

}  // namespace atollrt
