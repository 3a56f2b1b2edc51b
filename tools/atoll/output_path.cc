// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/output_path.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "tools/atoll/command_line.h"
#include "tools/atoll/exit_code.h"

namespace atollcmd {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void Refuse(const std::string& sentence, ExitCode code = ExitCode::kFailure) {
  throw CommandError(code, sentence);
}

void CheckParent(std::string_view option, const std::string& path, const fs::path& parent) {
  if (parent.empty()) return;
  std::error_code error;
  const fs::file_status status = fs::status(parent, error);
  if (status.type() == fs::file_type::not_found) {
    Refuse(fmt::format("{} '{}': there is no folder '{}'; make it or choose another {}", option,
                       path, parent.string(), option));
  }
  if (error) {
    Refuse(fmt::format("{} '{}': {}; choose another {}", option, path, error.message(), option));
  }
  if (!fs::is_directory(status)) {
    Refuse(fmt::format("{} '{}': '{}' is no folder; choose another {}", option, path,
                       parent.string(), option));
  }
}

// What is there; throws if nobody can tell, as of a name that is too long.
fs::file_type TypeOf(std::string_view option, const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (error && status.type() != fs::file_type::not_found) {
    Refuse(fmt::format("{} '{}': {}; choose another {}", option, path, error.message(), option));
  }
  return status.type();
}

// Before there is work that would be lost.
void CheckWritable(std::string_view option, const std::string& path, const fs::path& parent) {
  std::error_code error;
  if (fs::exists(path, error) || access(parent.empty() ? "." : parent.c_str(), W_OK) == 0) return;
  Refuse(fmt::format("{} '{}': {}; {}", option, path, std::strerror(errno),
                     AdviseWriting(option, errno)));
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
  int names = 0;
  for (const std::string& word : CommandLine()) {
    bool names_it = is_same(word);
    for (const char separator : {'=', ':'}) {
      const size_t at = word.find(separator);
      names_it |= at != word.npos && is_same(word.substr(at + 1));
    }
    names += names_it ? 1 : 0;
  }
  if (names < 2) return;
  Refuse(fmt::format("{} '{}' would overwrite a file that the command line names once more; choose "
                     "another {}",
                     option, path, option),
         ExitCode::kUsage);
}

void CheckOutputFile(std::string_view option, const std::string& path) {
  if (path.empty())
    Refuse(fmt::format("{} has no name; give the name of a file", option), ExitCode::kUsage);
  CheckParent(option, path, fs::path(path).parent_path());
  if (!fs::path(path).has_filename() || TypeOf(option, path) == fs::file_type::directory) {
    Refuse(fmt::format("{} '{}' is a folder; give the name of a file", option, path),
           ExitCode::kUsage);
  }
  CheckNamedOnce(option, path);
  CheckWritable(option, path, fs::path(path).parent_path());
}

void CheckParentOf(std::string_view option, const std::string& path) {
  CheckParent(option, path, fs::path(path).parent_path());
  TypeOf(option, path);
  CheckWritable(option, path, fs::path(path).parent_path());
}

void CheckOutputFolder(std::string_view option, const std::string& path) {
  if (path.empty())
    Refuse(fmt::format("{} has no name; give the name of a folder", option), ExitCode::kUsage);
  fs::path folder(path);
  if (!folder.has_filename()) folder = folder.parent_path();  // "annotated/"
  CheckParent(option, path, folder.parent_path());
  const fs::file_type type = TypeOf(option, path);
  if (type != fs::file_type::not_found && type != fs::file_type::directory) {
    Refuse(fmt::format("{} '{}' is a file; give the name of a folder", option, path));
  }
  CheckWritable(option, path, folder.parent_path());
}

}  // namespace atollcmd
