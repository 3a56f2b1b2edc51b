// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/output_files.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "tools/atoll/exit_code.h"

namespace atollcmd {
namespace {

// False, with errno, if not everything could be written.
bool WriteAll(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t written = write(fd, data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    data += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

// What open(2) would have given a new file; mkstemp makes files that only their owner can read.
mode_t NewFileMode() {
  const mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

}  // namespace

OutputFiles::OutputFiles(const std::string& directory, std::string option)
    : directory_(directory), option_(std::move(option)) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) Fail("create the directory", directory, error.value());
}

OutputFiles::~OutputFiles() {
  for (const File& file : files_) unlink(file.temporary_path.c_str());
}

void OutputFiles::Fail(const char* verb, const std::string& path, int error) const {
  throw CommandError(ExitCode::kFailure, fmt::format("cannot {} '{}': {}; choose another {}", verb,
                                                     path, std::strerror(error), option_));
}

void OutputFiles::Add(const std::string& name, const void* data, size_t size) {
  const std::string path = (std::filesystem::path(directory_) / name).string();
  std::string temporary_path = path + ".XXXXXX";
  const int fd = mkstemp(temporary_path.data());
  if (fd < 0) Fail("create", path, errno);
  files_.push_back({temporary_path, path});
  if (!WriteAll(fd, static_cast<const char*>(data), size)) {
    const int error = errno;
    close(fd);
    Fail("write", path, error);
  }
  const int mode_error = fchmod(fd, NewFileMode()) != 0 ? errno : 0;
  if (close(fd) != 0) Fail("write", path, errno);
  if (mode_error != 0) Fail("set the mode of", path, mode_error);
}

void OutputFiles::Commit() {
  for (size_t i = 0; i < files_.size(); ++i) {
    if (rename(files_[i].temporary_path.c_str(), files_[i].path.c_str()) != 0) {
      const int error = errno;
      for (size_t k = 0; k < i; ++k) unlink(files_[k].path.c_str());
      Fail("rename into", files_[i].path, error);
    }
  }
  files_.clear();
}

}  // namespace atollcmd
