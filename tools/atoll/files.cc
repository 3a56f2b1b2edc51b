// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "tools/atoll/exit_code.h"
#include "tools/atoll/subcommand.h"

namespace atollcmd {
namespace {

namespace fs = std::filesystem;

std::vector<std::string>& Words() {
  static std::vector<std::string> words;
  return words;
}

}  // namespace

const std::vector<std::string>& CommandLine() { return Words(); }
void SetCommandLine(std::vector<std::string> words) { Words() = std::move(words); }

// ---- Reading -----------------------------------------------------------------------------------

std::string ReadBeginning(
    const std::string& path, size_t bytes_max,
    const std::function<void(const char* verb, const std::string& why)>& fail) {
  const auto fail_with = [&](const char* verb, int error) {
    fail(verb, fmt::format("{}; {}", std::strerror(error), AdviseReading(error)));
  };
  const auto close = [](std::FILE* file) { std::fclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(path.c_str(), "rb"), close);
  if (!file) fail_with("open", errno);
  std::string bytes;
  struct stat about = {};
  if (fstat(fileno(file.get()), &about) == 0 && S_ISREG(about.st_mode)) {
    bytes.reserve(std::min(static_cast<size_t>(about.st_size), bytes_max));  // exactly, if it stays
  }
  std::string piece(size_t{1} << 16, '\0');
  while (bytes.size() < bytes_max) {
    const size_t count =
        std::fread(piece.data(), 1, std::min(piece.size(), bytes_max - bytes.size()), file.get());
    if (count == 0) break;
    bytes.append(piece, 0, count);
  }
  if (std::ferror(file.get())) fail_with("read", errno);
  return bytes;
}

std::string ReadFile(const std::string& path) {
  constexpr size_t kBytesMax = size_t{1} << 31;
  constexpr size_t kStreamBytesMax = size_t{1} << 26;  // of what may have no end: a pipe, a device
  const auto fail = [&](const char*, const std::string& why) {
    Fail(ExitCode::kFailure, "cannot read '{}': {}", path, why);
  };
  std::error_code no_type;
  const size_t bytes_max = fs::is_regular_file(path, no_type) ? kBytesMax : kStreamBytesMax;
  std::string bytes = ReadBeginning(path, bytes_max + 1, fail);
  if (bytes.size() > bytes_max) {
    fail("", fmt::format("it has more than {} MiB; check the path", bytes_max >> 20));
  }
  return bytes;
}

void AppendBytes(const void* data, size_t size, void* string) {
  static_cast<std::string*>(string)->append(static_cast<const char*>(data), size);
}

void CheckFile(std::string_view option, const std::string& path, std::string_view what) {
  const auto fail = [&](const char* reason) {
    Fail(ExitCode::kFailure, "cannot read {} '{}': {}; give the path of {}", option, path, reason,
         what);
  };
  if (access(path.c_str(), R_OK) != 0) fail(std::strerror(errno));
  std::error_code error;
  if (fs::is_directory(path, error)) fail("it is a folder");
}

// ---- Writing -----------------------------------------------------------------------------------

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

[[noreturn]] void CannotWrite(const char* verb, const std::string& path, int error,
                              std::string_view option) {
  Fail(ExitCode::kFailure, "cannot {} '{}': {}; {}", verb, path, std::strerror(error),
       AdviseWriting(option, error));
}

// In small letters: ".jpg".
std::string ExtensionOf(const std::string& path) {
  std::string extension = fs::path(path).extension().string();
  for (char& c : extension) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return extension;
}

bool IsOneOf(const std::string& extension, const std::vector<std::string>& extensions) {
  return std::find(extensions.begin(), extensions.end(), extension) != extensions.end();
}

// NAME.jpg for the picture photos/NAME.png, or NAME-2.jpg if that name is taken.
std::string NameFor(const std::string& picture, const std::string& extension,
                    std::set<std::string>* taken) {
  const std::string stem = fs::path(picture).stem().string();
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
    if (!name.starts_with(folder)) continue;
    const std::optional<int> fd = ParseNumber<int>(std::string_view(name).substr(folder.size()));
    if (fd && *fd >= 0) return fd;
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

// Throws unless something could be made in the folder `parent` of `path`, before there is work that
// would be lost; gives what is there already.
fs::file_type CheckPlace(std::string_view option, const std::string& path, fs::path parent) {
  const auto refuse = [&](const std::string& why) {
    Fail(ExitCode::kFailure, "{} '{}': {}", option, path, why);
  };
  if (parent.empty()) parent = ".";
  std::error_code error;
  const fs::file_status folder = fs::status(parent, error);
  if (folder.type() == fs::file_type::not_found) {
    refuse(fmt::format("there is no folder '{}'; make it or choose another {}", parent.string(),
                       option));
  }
  if (error) refuse(fmt::format("{}; choose another {}", error.message(), option));
  if (!fs::is_directory(folder)) {
    refuse(fmt::format("'{}' is no folder; choose another {}", parent.string(), option));
  }
  const fs::file_type type = fs::status(path, error).type();
  const bool is_free = type == fs::file_type::not_found;
  // Of a name that is too long, for example, nobody can tell.
  if (error && !is_free) refuse(fmt::format("{}; choose another {}", error.message(), option));
  if (is_free && !IsWrittenInto(path) && access(parent.c_str(), W_OK) != 0) {
    refuse(fmt::format("{}; {}", std::strerror(errno), AdviseWriting(option, errno)));
  }
  return type;
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

std::string AdviseWriting(std::string_view option, int error) {
  const bool is_forbidden = error == EACCES || error == EPERM || error == EROFS;
  return fmt::format("choose another {}{}", option,
                     is_forbidden ? ", in a folder that this user may write to" : "");
}

void CheckNamedOnce(std::string_view option, const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return;
  const auto is_same = [&path](const std::string& other) {
    std::error_code ignored;
    return fs::equivalent(path, other, ignored);
  };
  // "--labels=FILE", "replay:FILE"
  const auto names_it = [&](const std::string& word) {
    const size_t equals = word.find('=');
    const size_t colon = word.find(':');
    return is_same(word) || (equals != word.npos && is_same(word.substr(equals + 1))) ||
           (colon != word.npos && is_same(word.substr(colon + 1)));
  };
  if (std::count_if(CommandLine().begin(), CommandLine().end(), names_it) < 2) return;
  Fail(ExitCode::kUsage,
       "{} '{}' would overwrite a file that the command line names once more; choose another {}",
       option, path, option);
}

void CheckOutputFile(std::string_view option, const std::string& path) {
  if (path.empty()) Fail(ExitCode::kUsage, "{} has no name; give the name of a file", option);
  const fs::file_type type = CheckPlace(option, path, fs::path(path).parent_path());
  if (!fs::path(path).has_filename() || type == fs::file_type::directory) {
    Fail(ExitCode::kUsage, "{} '{}' is a folder; give the name of a file", option, path);
  }
  CheckNamedOnce(option, path);
}

void CheckParentOf(std::string_view option, const std::string& path) {
  CheckPlace(option, path, fs::path(path).parent_path());
}

void CheckOutputFolder(std::string_view option, const std::string& path) {
  if (path.empty()) Fail(ExitCode::kUsage, "{} has no name; give the name of a folder", option);
  fs::path folder(path);
  if (!folder.has_filename()) folder = folder.parent_path();  // "annotated/"
  const fs::file_type type = CheckPlace(option, path, folder.parent_path());
  if (type != fs::file_type::not_found && type != fs::file_type::directory) {
    Fail(ExitCode::kFailure, "{} '{}' is a file; give the name of a folder", option, path);
  }
}

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
  if (const auto directory = fs::path(name).parent_path(); !directory.empty()) {
    std::error_code error;
    fs::create_directories(directory, error);
    if (error) CannotWrite("create the directory", directory.string(), error.value(), option);
  }
  std::string temporary_path;
  const int fd = CreateBeside(name, &temporary_path);
  if (fd < 0) CannotWrite("create", name, errno, option);
  files_.push_back({std::string(option), temporary_path, name, {}});
  const bool written = WriteAll(fd, static_cast<const char*>(data), size);
  const int error = errno;
  if (close(fd) != 0 && written) CannotWrite("write", name, errno, option);
  if (!written) CannotWrite("write", name, error, option);
}

void OutputFiles::Commit() {
  for (const File& file : files_) {
    if (file.temporary_path.empty() && !WriteInto(file.path, file.data)) {
      CannotWrite("write", file.path, errno, file.option);
    }
  }
  std::erase_if(files_, [](const File& file) { return file.temporary_path.empty(); });
  for (size_t i = 0; i < files_.size(); ++i) {
    if (rename(files_[i].temporary_path.c_str(), files_[i].path.c_str()) != 0) {
      const int error = errno;
      for (size_t k = 0; k < i; ++k) unlink(files_[k].path.c_str());
      CannotWrite("rename into", files_[i].path, error, files_[i].option);
    }
  }
  files_.clear();
}

void WriteOutput(std::string_view option, const std::string& name, std::string_view bytes) {
  OutputFiles files;
  files.Add(option, name, bytes.data(), bytes.size());
  files.Commit();
}

std::FILE* OpenOutput(std::string_view option, const std::string& name) {
  CheckNamedOnce(option, name);
  const int fd = OpenInto(name);
  std::FILE* const file = fd < 0 ? nullptr : fdopen(fd, "w");
  if (file != nullptr) return file;
  const int error = errno;
  if (fd >= 0) close(fd);
  CannotWrite("create", name, error, option);
}

bool IsStandardOutput(const std::string& name) { return DescriptorOf(name) == STDOUT_FILENO; }

std::vector<std::string> PlanOutputs(std::string_view option, const std::string& output,
                                     const std::vector<std::string>& extensions,
                                     const std::vector<std::string>& pictures) {
  static const std::vector<std::string> other_pictures = {
      ".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"};
  const fs::path path(output);
  const std::string extension = ExtensionOf(output);
  std::vector<std::string> planned;
  if (IsOneOf(extension, extensions) && !fs::is_directory(path)) {
    if (pictures.size() > 1) {
      Fail(ExitCode::kUsage, "{} '{}' is one file, but there are {} pictures; give a directory",
           option, output, pictures.size());
    }
    planned.push_back(output);
  } else if (IsOneOf(extension, other_pictures) && !fs::is_directory(path)) {
    Fail(ExitCode::kUsage,
         "{} '{}' would have to be a {}; give a file name that ends in {}, or a directory", option,
         output, extension.substr(1), fmt::join(extensions, " or "));
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
      if (fs::equivalent(file, picture, error) && !error) {
        Fail(ExitCode::kUsage, "{} '{}' would overwrite the picture '{}'; choose another {}",
             option, output, picture, option);
      }
    }
  }
  return planned;
}

}  // namespace atollcmd
