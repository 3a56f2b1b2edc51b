// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/output_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>

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

[[noreturn]] void Fail(const char* verb, const std::string& path, int error,
                       std::string_view option) {
  throw CommandError(ExitCode::kFailure, fmt::format("cannot {} '{}': {}; choose another {}", verb,
                                                     path, std::strerror(error), option));
}

// In small letters: ".jpg".
std::string ExtensionOf(const std::string& path) {
  std::string extension = std::filesystem::path(path).extension().string();
  for (char& c : extension) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return extension;
}

bool IsOneOf(const std::string& extension, const std::vector<std::string>& extensions) {
  return std::find(extensions.begin(), extensions.end(), extension) != extensions.end();
}

// NAME.jpg for the picture photos/NAME.png, or NAME-2.jpg if that name is taken.
std::string NameFor(const std::string& picture, const std::string& extension,
                    std::set<std::string>* taken) {
  const std::string stem = std::filesystem::path(picture).stem().string();
  std::string name = stem + extension;
  for (int number = 2; !taken->insert(name).second; ++number) {
    name = fmt::format("{}-{}{}", stem, number, extension);
  }
  return name;
}

// Whether a file of this name would take the place of a device, a pipe or a socket.
bool IsSpecial(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_other(path, error);
}

// False, with errno, if not everything could be written.
bool WriteInto(const std::string& path, const std::string& data) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
  if (fd < 0) return false;
  const bool written = WriteAll(fd, data.data(), data.size());
  const int error = errno;
  if (close(fd) != 0 && written) return false;
  errno = error;
  return written;
}

}  // namespace

OutputFiles::~OutputFiles() {
  for (const File& file : files_) {
    if (!file.temporary_path.empty()) unlink(file.temporary_path.c_str());
  }
}

void OutputFiles::Add(std::string_view option, const std::string& name, const void* data,
                      size_t size) {
  if (IsSpecial(name)) {
    files_.push_back({std::string(option), "", name, {static_cast<const char*>(data), size}});
    return;
  }
  std::error_code no_target;
  const std::filesystem::path target = std::filesystem::canonical(name, no_target);
  const std::string path = no_target ? name : target.string();
  if (const auto directory = std::filesystem::path(path).parent_path(); !directory.empty()) {
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    if (error) Fail("create the directory", directory.string(), error.value(), option);
  }
  std::string temporary_path = path + ".XXXXXX";
  const int fd = mkstemp(temporary_path.data());
  if (fd < 0) Fail("create", path, errno, option);
  files_.push_back({std::string(option), temporary_path, path, {}});
  if (!WriteAll(fd, static_cast<const char*>(data), size)) {
    const int error = errno;
    close(fd);
    Fail("write", path, error, option);
  }
  const int mode_error = fchmod(fd, NewFileMode()) != 0 ? errno : 0;
  if (close(fd) != 0) Fail("write", path, errno, option);
  if (mode_error != 0) Fail("set the mode of", path, mode_error, option);
}

void OutputFiles::Commit() {
  for (const File& file : files_) {
    if (file.temporary_path.empty() && !WriteInto(file.path, file.data)) {
      Fail("write", file.path, errno, file.option);
    }
  }
  std::erase_if(files_, [](const File& file) { return file.temporary_path.empty(); });
  for (size_t i = 0; i < files_.size(); ++i) {
    if (rename(files_[i].temporary_path.c_str(), files_[i].path.c_str()) != 0) {
      const int error = errno;
      for (size_t k = 0; k < i; ++k) unlink(files_[k].path.c_str());
      Fail("rename into", files_[i].path, error, files_[i].option);
    }
  }
  files_.clear();
}

std::vector<std::string> PlanOutputs(std::string_view option, const std::string& output,
                                     const std::vector<std::string>& extensions,
                                     const std::vector<std::string>& pictures) {
  static const std::vector<std::string> other_pictures = {
      ".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"};
  const std::filesystem::path path(output);
  const std::string extension = ExtensionOf(output);
  std::vector<std::string> planned;
  if (IsOneOf(extension, extensions) && !std::filesystem::is_directory(path)) {
    if (pictures.size() > 1) {
      throw CommandError(ExitCode::kUsage,
                         fmt::format("{} '{}' is one file, but there are {} pictures; give a "
                                     "directory",
                                     option, output, pictures.size()));
    }
    planned.push_back(output);
  } else if (IsOneOf(extension, other_pictures) && !std::filesystem::is_directory(path)) {
    throw CommandError(
        ExitCode::kUsage,
        fmt::format("{} '{}' would have to be a {}; give a file name that ends in {}, or a "
                    "directory",
                    option, output, extension.substr(1), fmt::join(extensions, " or ")));
  } else {
    std::set<std::string> taken;
    for (const std::string& picture : pictures) {
      planned.push_back((path / NameFor(picture, extensions.front(), &taken)).string());
    }
  }
  for (const std::string& file : planned) {
    for (const std::string& picture : pictures) {
      std::error_code error;
      if (std::filesystem::equivalent(file, picture, error) && !error) {
        throw CommandError(ExitCode::kUsage,
                           fmt::format("{} '{}' would overwrite the picture '{}'; choose another "
                                       "{}",
                                       option, output, picture, option));
      }
    }
  }
  return planned;
}

}  // namespace atollcmd
