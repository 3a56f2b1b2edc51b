// SPDX-License-Identifier: Apache-2.0
//
// Files and streams in place of a camera: a directory of pictures, MJPEG and Y4M.
#include <dirent.h>
#include <strings.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "camera/picture/file_io.h"
#include "camera/sources/byte_stream.h"
#include "camera/sources/mjpeg.h"
#include "camera/sources/sources.h"

namespace atollrt {
namespace {

// "NAME, picture 17" in the memory of an earlier name.
void NameFrame(const std::string& stream, const char* what, uint64_t sequence, std::string* name) {
  char number[64];
  std::snprintf(number, sizeof(number), ", %s %llu", what,
                static_cast<unsigned long long>(sequence));
  name->assign(stream).append(number);
}

class PictureDirectory : public FrameSource {
 public:
  PictureDirectory(std::string directory, std::vector<std::string> names, bool loop)
      : directory_(std::move(directory)), names_(std::move(names)), loop_(loop) {}

  Result<bool> Next(Frame* frame) override {
    if (next_ == names_.size()) {
      if (!loop_) return false;
      next_ = 0;
    }
    frame->name = directory_ + "/" + names_[next_++];
    Status read = ReadFile(frame->name, &frame->bytes, {.regular_only = true});
    DescribeEncodedFrame(frame);
    frame->error = std::move(read);  // of this one; the next may be fine
    frame->sequence = sequence_++;
    return true;
  }

  std::string description() const override {
    return Format("%s: %zu pictures", directory_.c_str(), names_.size());
  }

 private:
  const std::string directory_;
  const std::vector<std::string> names_;
  const bool loop_;
  size_t next_ = 0;
  uint64_t sequence_ = 0;
};

bool HasPictureName(const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return false;
  constexpr const char* kEndings[] = {".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm"};
  return std::any_of(std::begin(kEndings), std::end(kEndings), [&](const char* ending) {
    return strcasecmp(name.c_str() + dot, ending) == 0;
  });
}

class MjpegStream : public FrameSource {
 public:
  // `begun` has been taken from the stream already.
  MjpegStream(std::unique_ptr<ByteStream> stream, std::span<const uint8_t> begun, bool loop)
      : stream_(std::move(stream)), loop_(loop) {
    splitter_.Append(begun);
  }

  Result<bool> Next(Frame* frame) override {
    while (true) {
      Result<bool> found = splitter_.Next(&frame->bytes);
      if (!found.ok()) return Status(found.status()).WithContext(stream_->name());
      if (*found) break;
      if (finished_) {
        if (pictures_ == 0) {
          return InvalidArgument("%s: contains no JPEG picture", stream_->name().c_str());
        }
        if (!loop_ || !stream_->Rewind()) return false;
        splitter_.Restart();
        finished_ = false;
        pictures_ = 0;
      }
      ATOLL_ASSIGN_OR_RETURN(const std::span<const uint8_t> bytes, stream_->Peek());
      if (stream_->stopped()) return false;
      splitter_.Append(bytes);
      stream_->Skip(bytes.size());
      finished_ = bytes.empty();
      if (finished_) splitter_.Finish();
    }
    ++pictures_;
    NameFrame(stream_->name(), "picture", sequence_, &frame->name);
    DescribeEncodedFrame(frame);
    if (live()) frame->capture_time_ns = SteadyNowNs();
    frame->sequence = sequence_++;
    return true;
  }

  bool live() const override { return stream_->live(); }
  std::string description() const override { return stream_->name() + ": MJPEG"; }

 private:
  const std::unique_ptr<ByteStream> stream_;
  const bool loop_;
  JpegSplitter splitter_;
  bool finished_ = false;
  uint64_t pictures_ = 0;  // since the beginning of the file
  uint64_t sequence_ = 0;
};

// ---- YUV4MPEG2
// -----------------------------------------------------------------------------------

constexpr std::string_view kY4mMagic = "YUV4MPEG2 ";
constexpr std::string_view kY4mFrame = "FRAME";

struct Y4mHeader {
  int width = 0;
  int height = 0;
  FrameFormat format = FrameFormat::kYuv420;
  bool full_range = false;
};

// The parameters of the stream's first line, without its end.
Result<Y4mHeader> ParseY4mHeader(const std::string& name, std::string_view line) {
  Y4mHeader header;
  std::string_view rest = line.substr(kY4mMagic.size());
  while (!rest.empty()) {
    const std::string_view field = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(rest.size(), field.size() + 1));
    if (field.empty()) continue;
    const std::string_view value = field.substr(1);
    const auto number = [&](int* out) {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), *out);
      return error == std::errc() && end == value.data() + value.size();
    };
    if ((field[0] == 'W' && !number(&header.width)) ||
        (field[0] == 'H' && !number(&header.height))) {
      return InvalidArgument("%s: Y4M with '%s', which is no width or height", name.c_str(),
                             std::string(field.substr(0, 40)).c_str());
    }
    bool good = true;
    if (field[0] == 'C') {
      if (value == "420" || value == "420jpeg" || value == "420mpeg2" || value == "420paldv") {
        header.format = FrameFormat::kYuv420;
      } else if (value == "422") {
        header.format = FrameFormat::kYuv422;
      } else if (value == "444") {
        header.format = FrameFormat::kYuv444;
      } else if (value == "mono") {
        header.format = FrameFormat::kYuv400;
      } else {
        good = false;
      }
    }
    if (field == "XCOLORRANGE=FULL") header.full_range = true;
    if (!good) {
      return Unsupported("%s: Y4M with '%s'; read are 8-bit 420, 422, 444 and mono", name.c_str(),
                         std::string(field.substr(0, 40)).c_str());
    }
  }
  constexpr int kMaxSide = 16384;
  if (header.width < 1 || header.width > kMaxSide || header.height < 1 ||
      header.height > kMaxSide) {
    return InvalidArgument("%s: Y4M of %d x %d; sides are 1 to %d", name.c_str(), header.width,
                           header.height, kMaxSide);
  }
  const int64_t pixels = int64_t{header.width} * header.height;
  if (pixels > kMaxFramePixels) {
    return ResourceExhausted("%s: Y4M of %d x %d is above the limit of %lld pixels", name.c_str(),
                             header.width, header.height, static_cast<long long>(kMaxFramePixels));
  }
  return header;
}

class Y4mStream : public FrameSource {
 public:
  Y4mStream(std::unique_ptr<ByteStream> stream, bool loop)
      : stream_(std::move(stream)), loop_(loop) {}

  // Reads the header, of which `line` has been taken from the stream already.
  Status Start(std::string line) {
    ATOLL_ASSIGN_OR_RETURN(const bool has_line, ReadLine(&line));
    if (!has_line) return InvalidArgument("%s: Y4M without a header", stream_->name().c_str());
    ATOLL_ASSIGN_OR_RETURN(header_, ParseY4mHeader(stream_->name(), line));
    return Status();
  }

  Result<bool> Next(Frame* frame) override {
    std::string line;
    ATOLL_ASSIGN_OR_RETURN(bool has_line, ReadLine(&line));
    if (!has_line && loop_ && sequence_ > 0 && !stream_->stopped() && stream_->Rewind()) {
      ATOLL_ASSIGN_OR_RETURN(has_line, ReadLine(&line));  // the header again
      line.clear();
      if (has_line) {
        ATOLL_ASSIGN_OR_RETURN(has_line, ReadLine(&line));
      }
    }
    if (!has_line) return false;
    NameFrame(stream_->name(), "frame", sequence_, &frame->name);
    if (!std::string_view(line).starts_with(kY4mFrame)) {
      return InvalidArgument("%s: does not begin with FRAME", frame->name.c_str());
    }
    // Memory grows as bytes arrive: the header alone is worth none.
    const size_t size = PlanesSize(header_.format, header_.width, header_.height);
    frame->bytes.clear();
    while (frame->bytes.size() < size) {
      ATOLL_ASSIGN_OR_RETURN(std::span<const uint8_t> bytes, stream_->Peek());
      if (stream_->stopped()) return false;
      if (bytes.empty()) break;  // what is missing fails this frame
      bytes = bytes.first(std::min(bytes.size(), size - frame->bytes.size()));
      frame->bytes.insert(frame->bytes.end(), bytes.begin(), bytes.end());
      stream_->Skip(bytes.size());
    }
    frame->format = header_.format;
    frame->full_range = header_.full_range;
    frame->width = header_.width;
    frame->height = header_.height;
    frame->capture_time_ns = live() ? SteadyNowNs() : 0;
    frame->label.reset();
    frame->crop = {};
    frame->sequence = sequence_++;
    return true;
  }

  bool live() const override { return stream_->live(); }
  std::string description() const override {
    return Format("%s: Y4M of %d x %d", stream_->name().c_str(), header_.width, header_.height);
  }

 private:
  // Appends what is left of a line, without its end. False at the end of the stream.
  Result<bool> ReadLine(std::string* line) {
    constexpr size_t kMaxLine = 256;
    while (true) {
      ATOLL_ASSIGN_OR_RETURN(const std::span<const uint8_t> bytes, stream_->Peek());
      if (bytes.empty()) return false;
      const auto end = std::find(bytes.begin(), bytes.end(), static_cast<uint8_t>('\n'));
      const auto size = static_cast<size_t>(end - bytes.begin());
      if (line->size() + size > kMaxLine) {
        return InvalidArgument("%s: a line of Y4M has no end within %zu bytes",
                               stream_->name().c_str(), kMaxLine);
      }
      line->append(bytes.begin(), end);
      stream_->Skip(end == bytes.end() ? size : size + 1);
      if (end != bytes.end()) return true;
    }
  }

  const std::unique_ptr<ByteStream> stream_;
  const bool loop_;
  Y4mHeader header_;
  uint64_t sequence_ = 0;
};

// By its first bytes, for which it waits; null when it was stopped before.
Result<std::unique_ptr<FrameSource>> Identify(std::unique_ptr<ByteStream> stream, bool loop) {
  std::string begun;
  while (begun.size() < kY4mMagic.size()) {
    ATOLL_ASSIGN_OR_RETURN(const std::span<const uint8_t> bytes, stream->Peek());
    if (stream->stopped()) return std::unique_ptr<FrameSource>();
    if (bytes.empty()) break;
    const size_t size = std::min(bytes.size(), kY4mMagic.size() - begun.size());
    begun.append(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
    stream->Skip(size);
  }
  if (begun == kY4mMagic) {
    auto source = std::make_unique<Y4mStream>(std::move(stream), loop);
    ATOLL_RETURN_IF_ERROR(source->Start(std::move(begun)));
    return std::unique_ptr<FrameSource>(std::move(source));
  }
  const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(begun.data()),
                                       begun.size());
  return std::unique_ptr<FrameSource>(new MjpegStream(std::move(stream), bytes, loop));
}

// What comes in its own time, if at all: what it is shows with the first frame.
class LiveStream : public FrameSource {
 public:
  explicit LiveStream(std::unique_ptr<ByteStream> stream)
      : description_(stream->name() + ": MJPEG or Y4M"), stream_(std::move(stream)) {}

  Result<bool> Next(Frame* frame) override {
    if (stream_ != nullptr) {
      ATOLL_ASSIGN_OR_RETURN(identified_, Identify(std::move(stream_), false));
    }
    return identified_ == nullptr ? Result<bool>(false) : identified_->Next(frame);
  }
  bool live() const override { return true; }
  std::string description() const override { return description_; }

 private:
  const std::string description_;
  std::unique_ptr<ByteStream> stream_;  // until it is identified
  std::unique_ptr<FrameSource> identified_;
};

}  // namespace

Result<std::unique_ptr<FrameSource>> OpenPictureDirectory(const std::string& directory,
                                                          const FrameSourceOptions& options) {
  DIR* dir = opendir(directory.c_str());
  if (dir == nullptr) return FileError(directory, "open", errno);
  std::vector<std::string> names;
  while (const dirent* entry = readdir(dir)) {
    if (options.stop != nullptr && options.stop->load()) {
      closedir(dir);
      return Status(StatusCode::kCancelled, directory + ": stopped");
    }
    if (HasPictureName(entry->d_name)) names.emplace_back(entry->d_name);
  }
  closedir(dir);
  if (names.empty()) {
    return NotFound("%s: contains no file named .jpg, .jpeg, .png, .bmp, .ppm or .pgm",
                    directory.c_str());
  }
  std::sort(names.begin(), names.end());
  return std::unique_ptr<FrameSource>(
      new PictureDirectory(directory, std::move(names), options.loop));
}

Result<std::unique_ptr<FrameSource>> OpenStream(const std::string& path,
                                                const FrameSourceOptions& options) {
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<ByteStream> stream, ByteStream::Open(path, options.stop));
  if (stream->live()) return std::unique_ptr<FrameSource>(new LiveStream(std::move(stream)));
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<FrameSource> source,
                         Identify(std::move(stream), options.loop));
  if (source == nullptr) return Status(StatusCode::kCancelled, path + ": stopped");
  return source;
}

}  // namespace atollrt
