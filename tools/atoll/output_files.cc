// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/output_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>

#include "tools/atoll/exit_code.h"
#include "tools/atoll/output_path.h"

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

[[noreturn]] void Fail(const char* verb, const std::string& path, int error,
                       std::string_view option) {
  throw CommandError(ExitCode::kFailure,
                     fmt::format("cannot {} '{}': {}; {}", verb, path, std::strerror(error),
                                 AdviseWriting(option, error)));
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

// Standard output and its like, by any of their names: what they are may be a file that somebody
// else is writing to, too, so it is neither opened again nor replaced.
std::optional<int> DescriptorOf(const std::string& name) {
  if (name == "-" || name == "/dev/stdout") return STDOUT_FILENO;
  if (name == "/dev/stderr") return STDERR_FILENO;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    int fd = -1;
    const char* const end = name.data() + name.size();
    if (!name.starts_with(folder)) continue;
    const auto [number_end, error] = std::from_chars(name.data() + folder.size(), end, fd);
    if (error == std::errc() && number_end == end && fd >= 0) return fd;
  }
  return {};
}

// Of a descriptor for writing into what `name` is; -1 with errno. The kernel follows links, and
// refuses those that it does not trust.
int OpenInto(const std::string& name) {
  if (const std::optional<int> fd = DescriptorOf(name)) {
    return fcntl(*fd, F_DUPFD_CLOEXEC, 0);
  }
  return open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666);
}

// Whether there is something of this name that a file must not take the place of.
bool IsWrittenInto(const std::string& name) {
  if (DescriptorOf(name)) return true;
  struct stat info = {};
  return lstat(name.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

// False, with errno, if not everything could be written.
bool WriteInto(const std::string& path, const std::string& data) {
  if (DescriptorOf(path)) std::fflush(nullptr);  // what was printed comes first
  const int fd = OpenInto(path);
  if (fd < 0) return false;
  const bool written = WriteAll(fd, data.data(), data.size());
  const int error = errno;
  if (close(fd) != 0 && written) return false;
  errno = error;
  return written;
}

// A new file beside `path`, with the mode that any new file gets, or that of the file which it is
// to replace. -1 with errno.
int CreateBeside(const std::string& path, std::string* temporary_path) {
  static std::atomic<unsigned> count = 0;
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    *temporary_path = fmt::format("{}.{}-{}.part", path, getpid(), count++);
    const int fd = open(temporary_path->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno == EEXIST) continue;
    struct stat old = {};
    // Without the right to give it that mode it has the usual one, which is no failure.
    if (fd >= 0 && lstat(path.c_str(), &old) == 0 && S_ISREG(old.st_mode)) {
      [[maybe_unused]] const int ignored = fchmod(fd, old.st_mode & 0777);
    }
    return fd;
  }
  return -1;
}

}  // namespace

OutputFiles::~OutputFiles() {
  for (const File& file : files_) {
    if (!file.temporary_path.empty()) unlink(file.temporary_path.c_str());
  }
}

void OutputFiles::Add(std::string_view option, const std::string& name, const void* data,
                      size_t size) {
  if (IsWrittenInto(name)) {
    files_.push_back({std::string(option), "", name, {static_cast<const char*>(data), size}});
    return;
  }
  if (const auto directory = std::filesystem::path(name).parent_path(); !directory.empty()) {
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    if (error) Fail("create the directory", directory.string(), error.value(), option);
  }
  std::string temporary_path;
  const int fd = CreateBeside(name, &temporary_path);
  if (fd < 0) Fail("create", name, errno, option);
  files_.push_back({std::string(option), temporary_path, name, {}});
  const bool written = WriteAll(fd, static_cast<const char*>(data), size);
  const int error = errno;
  if (close(fd) != 0 && written) Fail("write", name, errno, option);
  if (!written) Fail("write", name, error, option);
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

std::FILE* OpenOutput(std::string_view option, const std::string& name) {
  CheckNamedOnce(option, name);
  const int fd = OpenInto(name);
  std::FILE* const file = fd < 0 ? nullptr : fdopen(fd, "w");
  if (file != nullptr) return file;
  const int error = errno;
  if (fd >= 0) close(fd);
  Fail("create", name, error, option);
}

bool IsStandardOutput(const std::string& name) { return DescriptorOf(name) == STDOUT_FILENO; }

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
  if (planned.size() == 1) CheckNamedOnce(option, planned[0]);
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
