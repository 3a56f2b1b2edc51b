// SPDX-License-Identifier: Apache-2.0
#include "camera/picture/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <initializer_list>

namespace atollrt {

Status FileError(const std::string& path, const char* verb, int errno_value) {
  const auto is = [&](std::initializer_list<int> errors) {
    return std::find(errors.begin(), errors.end(), errno_value) != errors.end();
  };
  const StatusCode code = is({ENOENT, ENOTDIR})          ? StatusCode::kNotFound
                          : is({EACCES, EPERM})          ? StatusCode::kPermissionDenied
                          : is({EBUSY})                  ? StatusCode::kDeviceBusy
                          : is({ENODEV, ENXIO})          ? StatusCode::kDeviceLost
                          : is({ENOMEM, ENOSPC, EMFILE}) ? StatusCode::kResourceExhausted
                                                         : StatusCode::kInvalidArgument;
  return Status(code, Format("%s: cannot %s: %s", path.c_str(), verb, std::strerror(errno_value)));
}

Result<int> OpenRegularFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return FileError(path, "open", errno);
  struct stat info = {};
  if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) return fd;
  close(fd);
  return InvalidArgument("%s: %s, not a file of bytes", path.c_str(),
                         S_ISDIR(info.st_mode)    ? "a directory"
                         : S_ISFIFO(info.st_mode) ? "a pipe"
                                                  : "a device");
}

Status ReadFile(const std::string& path, std::vector<uint8_t>* bytes, const FileRules& rules) {
  constexpr size_t kMaxBytes = size_t{1} << 30;
  constexpr size_t kChunkBytes = size_t{1} << 16;
  std::FILE* file = nullptr;
  bytes->clear();
  if (rules.regular_only) {
    ATOLL_ASSIGN_OR_RETURN(const int fd, OpenRegularFile(path));
    file = fdopen(fd, "rb");
    if (file == nullptr) close(fd);
  } else {
    file = std::fopen(path.c_str(), "rbe");
  }
  if (file == nullptr) return FileError(path, "open", errno);
  // The size is not asked for beforehand: pipes have none.
  size_t size = 0;
  Status status;
  while (true) {
    bytes->resize(std::max(size + kChunkBytes, std::min(bytes->capacity(), 2 * size)));
    const size_t got = std::fread(bytes->data() + size, 1, bytes->size() - size, file);
    const bool is_first = size == 0;
    size += got;
    if (got == 0) {
      if (std::ferror(file)) status = FileError(path, "read", errno);
      break;
    }
    if (is_first && rules.wants_rest != nullptr && !rules.wants_rest({bytes->data(), size})) break;
    if (size > kMaxBytes) {
      status = ResourceExhausted("%s: larger than %zu bytes", path.c_str(), kMaxBytes);
      break;
    }
  }
  std::fclose(file);
  bytes->resize(size);
  return status;
}

}  // namespace atollrt
