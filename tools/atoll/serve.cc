// SPDX-License-Identifier: Apache-2.0
//
// `atoll serve` is the program atoll-serve, which needs libraries that the command does without.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "tools/atoll/exit_code.h"
#include "tools/atoll/subcommand.h"

namespace atollcmd {
namespace {

namespace fs = std::filesystem;
constexpr const char* kProgram = "atoll-serve";

// Beside the command, or, in a build tree, where it is made.
std::vector<std::string> Places() {
  std::error_code error;
  const fs::path command = fs::read_symlink("/proc/self/exe", error);
  if (error) return {};
  const fs::path folder = command.parent_path();
  return {(folder / kProgram).string(), (folder / "../../serve/program" / kProgram).string()};
}

void RunServe(const std::vector<std::string>& words) {
  std::vector<char*> arguments = {const_cast<char*>(kProgram)};
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  for (const std::string& place : Places()) execv(place.c_str(), arguments.data());
  execvp(kProgram, arguments.data());
  Fail(ExitCode::kFailure,
       "there is no {} beside this command or on PATH ({}): it is built where libevent-dev, "
       "libhttp-parser-dev and libssl-dev are installed",
       kProgram, std::strerror(errno));
}

}  // namespace

void AddServeCommand(CLI::App* app) {
  Command command(app, "serve");
  // Its options, --help among them, are its own.
  command.app()->set_help_flag();
  command.app()->allow_extras();
  command.app()->prefix_command();
  command.app()->callback([sub = command.app()] { RunServe(sub->remaining()); });
}

}  // namespace atollcmd
