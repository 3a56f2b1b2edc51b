// SPDX-License-Identifier: Apache-2.0
//
// Files and streams in place of a camera: a directory of pictures, MJPEG and Y4M.
#include <dirent.h>
#include <strings.h>

#include <algorithm>
#include <charconv>
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
#include "runtime/base/monotonic.h"

namespace atollrt {
namespace {

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
  MjpegStream(std::unique_ptr<ByteStream> stream, bool loop)
      : stream_(std::move(stream)), loop_(loop) {}

  Result<bool> Next(Frame* frame) override {
    while (true) {
      Result<bool> found = splitter_.Next(&frame->bytes);
      if (!found.ok()) return Status(found.status()).WithContext(stream_->name());
      if (*found) break;
      if (finished_) {
        if (pictures_ == 0) {
          if (is_empty_) {
            return InvalidArgument("%s: there is nothing in it", stream_->name().c_str());
          }
          return InvalidArgument("%s: contains no JPEG picture", stream_->name().c_str());
        }
        if (!loop_ || !stream_->Rewind()) return false;
        splitter_.Restart();
        finished_ = false;
        pictures_ = 0;
        is_empty_ = true;
      }
      ATOLL_ASSIGN_OR_RETURN(const std::span<const uint8_t> bytes, stream_->Peek());
      if (stream_->stopped()) return false;
      splitter_.Append(bytes);
      stream_->Skip(bytes.size());
      finished_ = bytes.empty();
      if (!finished_) is_empty_ = false;
      if (finished_) splitter_.Finish();
    }
    ++pictures_;
    frame->name = stream_->name() + ", picture " + std::to_string(sequence_);
    DescribeEncodedFrame(frame);
    if (live()) frame->capture_time_ns = MonotonicNs();
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
  // Since the beginning of the file.
  bool is_empty_ = true;
  uint64_t pictures_ = 0;
  uint64_t sequence_ = 0;
};

// --- YUV4MPEG2 -----------------------------------------------------------------------------------

constexpr std::string_view kY4mMagic = "YUV4MPEG2 ";
constexpr std::string_view kY4mFrame = "FRAME";
constexpr std::pair<std::string_view, FrameFormat> kY4mFormats[] = {
    {"420", FrameFormat::kYuv420},      {"420jpeg", FrameFormat::kYuv420},
    {"420mpeg2", FrameFormat::kYuv420}, {"420paldv", FrameFormat::kYuv420},
    {"422", FrameFormat::kYuv422},      {"444", FrameFormat::kYuv444},
    {"mono", FrameFormat::kYuv400}};

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
    if (field == "XCOLORRANGE=FULL") header.full_range = true;
    if (field[0] != 'C') continue;
    const auto known = std::find_if(std::begin(kY4mFormats), std::end(kY4mFormats),
                                    [&](const auto& format) { return format.first == value; });
    if (known == std::end(kY4mFormats)) {
      return Unsupported("%s: Y4M with '%s'; read are 8-bit 420, 422, 444 and mono", name.c_str(),
                         std::string(field.substr(0, 40)).c_str());
    }
    header.format = known->second;
  }
  if (header.width < 1 || header.width > kMaxFrameSide || header.height < 1 ||
      header.height > kMaxFrameSide) {
    return InvalidArgument("%s: Y4M of %d x %d; sides are 1 to %d", name.c_str(), header.width,
                           header.height, kMaxFrameSide);
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

  // Reads the header.
  Status Start() {
    std::string line;
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
      if (has_line) {
        ATOLL_ASSIGN_OR_RETURN(has_line, ReadLine(&line));
      }
    }
    if (!has_line) return false;
    frame->name = stream_->name() + ", frame " + std::to_string(sequence_);
    if (!std::string_view(line).starts_with(kY4mFrame)) {
      return InvalidArgument("%s: does not begin with FRAME", frame->name.c_str());
    }
    // Memory grows as bytes arrive: the header alone is worth none.
    const size_t size = PlanesSize(header_.format, header_.width, header_.height);
    frame->bytes.clear();
    ATOLL_RETURN_IF_ERROR(stream_->TakeUpTo(size, &frame->bytes));
    if (stream_->stopped() && frame->bytes.size() < size) return false;
    DescribeRawFrame(header_.format, header_.width, header_.height, header_.full_range, frame);
    if (live()) frame->capture_time_ns = MonotonicNs();
    frame->sequence = sequence_++;
    return true;
  }

  bool live() const override { return stream_->live(); }
  std::string description() const override {
    return Format("%s: Y4M of %d x %d", stream_->name().c_str(), header_.width, header_.height);
  }

 private:
  // A line without its end. False at the end of the stream.
  Result<bool> ReadLine(std::string* line) {
    constexpr size_t kMaxLine = 256;
    for (size_t least = 1;; ++least) {
      ATOLL_ASSIGN_OR_RETURN(const std::span<const uint8_t> bytes, stream_->Peek(least));
      if (bytes.size() < least) return false;
      const auto end = std::find(bytes.begin(), bytes.end(), static_cast<uint8_t>('\n'));
      line->assign(bytes.begin(), end);
      if (line->size() > kMaxLine) {
        return InvalidArgument("%s: a line of Y4M has no end within %zu bytes",
                               stream_->name().c_str(), kMaxLine);
      }
      if (end != bytes.end()) {
        stream_->Skip(line->size() + 1);
        return true;
      }
      least = bytes.size();
    }
  }

  const std::unique_ptr<ByteStream> stream_;
  const bool loop_;
  Y4mHeader header_;
  uint64_t sequence_ = 0;
};

// By its first bytes, for which it waits; null when it was stopped before.
OpenedSource Identify(std::unique_ptr<ByteStream> stream, bool loop) {
  ATOLL_ASSIGN_OR_RETURN(const std::span<const uint8_t> bytes, stream->Peek(kY4mMagic.size()));
  if (stream->stopped()) return std::unique_ptr<FrameSource>();
  if (bytes.size() < kY4mMagic.size() ||
      !std::equal(kY4mMagic.begin(), kY4mMagic.end(), bytes.begin())) {
    return std::unique_ptr<FrameSource>(new MjpegStream(std::move(stream), loop));
  }
  auto source = std::make_unique<Y4mStream>(std::move(stream), loop);
  ATOLL_RETURN_IF_ERROR(source->Start());
  return std::unique_ptr<FrameSource>(std::move(source));
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

OpenedSource OpenPictureDirectory(const std::string& directory, const FrameSourceOptions& options) {
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

OpenedSource OpenStream(const std::string& path, const FrameSourceOptions& options) {
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<ByteStream> stream, ByteStream::Open(path, options.stop));
  if (stream->live()) return std::unique_ptr<FrameSource>(new LiveStream(std::move(stream)));
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<FrameSource> source,
                         Identify(std::move(stream), options.loop));
  if (source == nullptr) return Status(StatusCode::kCancelled, path + ": stopped");
  return source;
}

}  // namespace atollrt
