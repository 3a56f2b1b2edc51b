// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/read_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "tools/atoll/exit_code.h"

namespace atollcmd {

constexpr size_t kBytesMax = size_t{1} << 31;
constexpr size_t kStreamBytesMax = size_t{1} << 26;  // of what may have no end: a pipe, a device

std::string ReadFile(const std::string& path) {
  const auto fail = [&](const char* reason) {
    throw CommandError(ExitCode::kFailure,
                       fmt::format("cannot read '{}': {}; {}", path, reason, AdviseReading(errno)));
  };
  const auto close = [](std::FILE* file) { std::fclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(path.c_str(), "rb"), close);
  if (!file) fail(std::strerror(errno));
  std::error_code no_type;
  const size_t bytes_max =
      std::filesystem::is_regular_file(path, no_type) ? kBytesMax : kStreamBytesMax;
  std::string bytes;
  std::string piece(size_t{1} << 16, '\0');
  while (const size_t count = std::fread(piece.data(), 1, piece.size(), file.get())) {
    bytes.append(piece, 0, count);
    if (bytes.size() > bytes_max) {
      fail(fmt::format("it has more than {} MiB", bytes_max >> 20).c_str());
    }
  }
  if (std::ferror(file.get())) fail(std::strerror(errno));
  return bytes;
}

void CheckFile(std::string_view option, const std::string& path, std::string_view what) {
  const auto fail = [&](const char* reason) {
    throw CommandError(
        ExitCode::kFailure,
        fmt::format("cannot read {} '{}': {}; give the path of {}", option, path, reason, what));
  };
  if (access(path.c_str(), R_OK) != 0) fail(std::strerror(errno));
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) fail("it is a folder");
}

}  // namespace atollcmd
