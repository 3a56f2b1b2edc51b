// SPDX-License-Identifier: Apache-2.0
//
// A directory of JPEGs and a file of JPEGs in place of a camera.
#include <dirent.h>
#include <strings.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>
#include <vector>

#include "examples/camera/mjpeg.h"
#include "examples/camera/sources.h"
#include "examples/picture/file_io.h"

namespace atollrt {
namespace {

class JpegDirectory : public FrameSource {
 public:
  JpegDirectory(std::string directory, std::vector<std::string> names, bool loop)
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
    return Format("%s: %zu JPEG files", directory_.c_str(), names_.size());
  }

 private:
  const std::string directory_;
  const std::vector<std::string> names_;
  const bool loop_;
  size_t next_ = 0;
  uint64_t sequence_ = 0;
};

bool HasJpegName(const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return false;
  const char* extension = name.c_str() + dot;
  return strcasecmp(extension, ".jpg") == 0 || strcasecmp(extension, ".jpeg") == 0;
}

// Reads the file through a window that holds at least one whole picture.
class MjpegFile : public FrameSource {
 public:
  MjpegFile(std::string path, std::FILE* file, bool loop)
      : path_(std::move(path)), file_(file), loop_(loop) {}
  ~MjpegFile() override { std::fclose(file_); }

  Result<bool> Next(Frame* frame) override {
    while (true) {
      const JpegExtent extent = FindJpeg(window_, stream_end_);
      if (extent.kind == JpegExtent::Kind::kFound) {
        const auto begin = window_.begin();
        frame->bytes.assign(begin + static_cast<ptrdiff_t>(extent.begin),
                            begin + static_cast<ptrdiff_t>(extent.end));
        window_.erase(begin, begin + static_cast<ptrdiff_t>(extent.end));
        frame->name =
            Format("%s, picture %llu", path_.c_str(), static_cast<unsigned long long>(sequence_));
        DescribeJpegFrame(frame);
        frame->sequence = sequence_++;
        return true;
      }
      window_.erase(window_.begin(), window_.begin() + static_cast<ptrdiff_t>(extent.begin));
      if (stream_end_ == StreamEnd::kMoreFollows) {
        ATOLL_RETURN_IF_ERROR(ReadMore());
        continue;
      }
      if (sequence_ == 0) return InvalidArgument("%s: contains no JPEG picture", path_.c_str());
      if (!loop_) return false;
      std::rewind(file_);
      window_.clear();
      stream_end_ = StreamEnd::kMoreFollows;
    }
  }

  std::string description() const override { return path_ + ": MJPEG"; }

 private:
  Status ReadMore() {
    constexpr size_t kMinBytes = size_t{1} << 18;
    constexpr size_t kMaxWindow = size_t{1} << 26;
    if (window_.size() > kMaxWindow) {
      return InvalidArgument("%s: picture %llu has no end within %zu bytes", path_.c_str(),
                             static_cast<unsigned long long>(sequence_), window_.size());
    }
    // Doubling bounds the work of searching the same beginning again.
    const size_t old_size = window_.size();
    window_.resize(old_size + std::max(old_size, kMinBytes));
    const size_t got = std::fread(window_.data() + old_size, 1, window_.size() - old_size, file_);
    window_.resize(old_size + got);
    if (std::ferror(file_)) return FileError(path_, "read", errno);
    if (std::feof(file_)) stream_end_ = StreamEnd::kNothingFollows;
    return Status();
  }

  const std::string path_;
  std::FILE* const file_;
  const bool loop_;
  std::vector<uint8_t> window_;
  StreamEnd stream_end_ = StreamEnd::kMoreFollows;
  uint64_t sequence_ = 0;
};

}  // namespace

Result<std::unique_ptr<FrameSource>> OpenJpegDirectory(const std::string& directory,
                                                       const FrameSourceOptions& options) {
  DIR* dir = opendir(directory.c_str());
  if (dir == nullptr) return FileError(directory, "open", errno);
  std::vector<std::string> names;
  while (const dirent* entry = readdir(dir)) {
    if (HasJpegName(entry->d_name)) names.emplace_back(entry->d_name);
  }
  closedir(dir);
  if (names.empty()) {
    return NotFound("%s: contains no .jpg or .jpeg file", directory.c_str());
  }
  std::sort(names.begin(), names.end());
  return std::unique_ptr<FrameSource>(new JpegDirectory(directory, std::move(names), options.loop));
}

Result<std::unique_ptr<FrameSource>> OpenMjpegFile(const std::string& path,
                                                   const FrameSourceOptions& options) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return FileError(path, "open", errno);
  return std::unique_ptr<FrameSource>(new MjpegFile(path, file, options.loop));
}

}  // namespace atollrt
