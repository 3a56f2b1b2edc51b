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
#include <string_view>
#include <utility>
#include <vector>

#include "examples/camera/byte_stream.h"
#include "examples/camera/mjpeg.h"
#include "examples/camera/sources.h"
#include "examples/picture/file_io.h"

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
    ATOLL_RETURN_IF_ERROR(ReadFile(frame->name, &frame->bytes));
    DescribeJpegFrame(frame);
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

// Reads the stream through a window that holds at least one whole picture.
class MjpegStream : public FrameSource {
 public:
  MjpegStream(std::unique_ptr<ByteStream> stream, std::vector<uint8_t> begun, bool loop)
      : stream_(std::move(stream)), loop_(loop), window_(std::move(begun)) {}

  Result<bool> Next(Frame* frame) override {
    while (true) {
      const JpegExtent extent = FindJpeg(window_, stream_end_);
      if (extent.kind == JpegExtent::Kind::kFound) {
        const auto begin = window_.begin();
        frame->bytes.assign(begin + static_cast<ptrdiff_t>(extent.begin),
                            begin + static_cast<ptrdiff_t>(extent.end));
        window_.erase(begin, begin + static_cast<ptrdiff_t>(extent.end));
        NameFrame(stream_->name(), "picture", sequence_, &frame->name);
        DescribeJpegFrame(frame);
        if (live()) frame->capture_time_ns = SteadyNowNs();
        frame->sequence = sequence_++;
        return true;
      }
      window_.erase(window_.begin(), window_.begin() + static_cast<ptrdiff_t>(extent.begin));
      if (stream_end_ == StreamEnd::kMoreFollows) {
        ATOLL_RETURN_IF_ERROR(ReadMore());
        continue;
      }
      if (sequence_ == 0) {
        return InvalidArgument("%s: contains no JPEG picture", stream_->name().c_str());
      }
      if (!loop_ || !stream_->Rewind()) return false;
      window_.clear();
      stream_end_ = StreamEnd::kMoreFollows;
    }
  }

  bool live() const override { return stream_->live(); }
  std::string description() const override { return stream_->name() + ": MJPEG"; }

 private:
  Status ReadMore() {
    constexpr size_t kMinBytes = size_t{1} << 18;
    constexpr size_t kMaxWindow = size_t{1} << 26;
    if (window_.size() > kMaxWindow) {
      return InvalidArgument("%s: picture %llu has no end within %zu bytes",
                             stream_->name().c_str(), static_cast<unsigned long long>(sequence_),
                             window_.size());
    }
    // Doubling bounds the work of searching the same beginning again.
    ATOLL_ASSIGN_OR_RETURN(const bool more,
                           stream_->Read(std::max(window_.size(), kMinBytes), &window_));
    if (!more) stream_end_ = StreamEnd::kNothingFollows;
    return Status();
  }

  const std::unique_ptr<ByteStream> stream_;
  const bool loop_;
  std::vector<uint8_t> window_;
  StreamEnd stream_end_ = StreamEnd::kMoreFollows;
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
    bool good = true;
    if (field[0] == 'W') good = number(&header.width);
    if (field[0] == 'H') good = number(&header.height);
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
  return header;
}

class Y4mStream : public FrameSource {
 public:
  Y4mStream(std::unique_ptr<ByteStream> stream, std::vector<uint8_t> begun, bool loop)
      : stream_(std::move(stream)), loop_(loop), window_(std::move(begun)) {}

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
    if (!has_line && loop_ && sequence_ > 0 && stream_->Rewind()) {
      window_.clear();
      ATOLL_ASSIGN_OR_RETURN(has_line, ReadLine(&line));  // the header again
      if (has_line) {
        ATOLL_ASSIGN_OR_RETURN(has_line, ReadLine(&line));
      }
    }
    if (!has_line) return false;
    NameFrame(stream_->name(), "frame", sequence_, &frame->name);
    if (!std::string_view(line).starts_with(kY4mFrame)) {
      return InvalidArgument("%s: does not begin with FRAME", frame->name.c_str());
    }
    const size_t size = PlanesSize(header_.format, header_.width, header_.height);
    while (window_.size() < size) {
      ATOLL_ASSIGN_OR_RETURN(const bool more, stream_->Read(size - window_.size(), &window_));
      if (!more) break;  // what is missing fails this frame
    }
    const auto end = window_.begin() + static_cast<ptrdiff_t>(std::min(size, window_.size()));
    frame->bytes.assign(window_.begin(), end);
    window_.erase(window_.begin(), end);
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
  // Up to the next line end, which is left out. False at the end of the stream.
  Result<bool> ReadLine(std::string* line) {
    constexpr size_t kMaxLine = 256;
    while (true) {
      const auto end = std::find(window_.begin(), window_.end(), static_cast<uint8_t>('\n'));
      if (end != window_.end() && end - window_.begin() <= static_cast<ptrdiff_t>(kMaxLine)) {
        line->assign(window_.begin(), end);
        window_.erase(window_.begin(), end + 1);
        return true;
      }
      if (window_.size() > kMaxLine) {
        return InvalidArgument("%s: a line of Y4M has no end within %zu bytes",
                               stream_->name().c_str(), kMaxLine);
      }
      ATOLL_ASSIGN_OR_RETURN(const bool more, stream_->Read(kMaxLine, &window_));
      if (!more) return false;
    }
  }

  const std::unique_ptr<ByteStream> stream_;
  const bool loop_;
  std::vector<uint8_t> window_;
  Y4mHeader header_;
  uint64_t sequence_ = 0;
};

}  // namespace

Result<std::unique_ptr<FrameSource>> OpenPictureDirectory(const std::string& directory,
                                                          const FrameSourceOptions& options) {
  DIR* dir = opendir(directory.c_str());
  if (dir == nullptr) return FileError(directory, "open", errno);
  std::vector<std::string> names;
  while (const dirent* entry = readdir(dir)) {
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
  std::vector<uint8_t> begun;
  while (begun.size() < kY4mMagic.size()) {
    ATOLL_ASSIGN_OR_RETURN(const bool more, stream->Read(kY4mMagic.size() - begun.size(), &begun));
    if (!more) break;
  }
  if (std::equal(begun.begin(), begun.end(), kY4mMagic.begin(), kY4mMagic.end())) {
    auto source = std::make_unique<Y4mStream>(std::move(stream), std::move(begun), options.loop);
    ATOLL_RETURN_IF_ERROR(source->Start());
    return std::unique_ptr<FrameSource>(std::move(source));
  }
  return std::unique_ptr<FrameSource>(
      new MjpegStream(std::move(stream), std::move(begun), options.loop));
}

}  // namespace atollrt
