// SPDX-License-Identifier: Apache-2.0
#include "examples/picture/file_io.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace atollrt {

Status FileError(const std::string& path, const char* verb, int errno_value) {
  StatusCode code = StatusCode::kInvalidArgument;
  switch (errno_value) {
    case ENOENT:
    case ENOTDIR:
      code = StatusCode::kNotFound;
      break;
    case EACCES:
    case EPERM:
      code = StatusCode::kPermissionDenied;
      break;
    case EBUSY:
      code = StatusCode::kDeviceBusy;
      break;
    case ENODEV:
    case ENXIO:
      code = StatusCode::kDeviceLost;
      break;
    case ENOMEM:
    case ENOSPC:
    case EMFILE:
      code = StatusCode::kResourceExhausted;
      break;
    default:
      break;
  }
  return Status(code, Format("%s: cannot %s: %s", path.c_str(), verb, std::strerror(errno_value)));
}

Status ReadFile(const std::string& path, std::vector<uint8_t>* bytes) {
  constexpr size_t kMaxBytes = size_t{1} << 30;
  constexpr size_t kChunkBytes = size_t{1} << 16;
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return FileError(path, "open", errno);
  // The size is not asked for beforehand: pipes have none.
  size_t size = 0;
  Status status;
  while (true) {
    bytes->resize(std::max(size + kChunkBytes, std::min(bytes->capacity(), 2 * size)));
    const size_t got = std::fread(bytes->data() + size, 1, bytes->size() - size, file);
    size += got;
    if (got == 0) {
      if (std::ferror(file)) status = FileError(path, "read", errno);
      break;
    }
    if (size > kMaxBytes) {
      status = ResourceExhausted("%s: larger than %zu bytes", path.c_str(), kMaxBytes);
      break;
    }
  }
  std::fclose(file);
  bytes->resize(size);
  return status;
}

Status WriteFile(const std::string& path, std::span<const uint8_t> bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return FileError(path, "create", errno);
  Status status;
  if (!bytes.empty() && std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size()) {
    status = FileError(path, "write", errno);
  }
  if (std::fclose(file) != 0 && status.ok()) status = FileError(path, "write", errno);
  return status;
}

}  // namespace atollrt
