// SPDX-License-Identifier: Apache-2.0
//
// `atoll serve`, `atoll worker` and `atoll fleet` are programs of their own, atoll-serve and
// atoll-fleet, which need libraries that the command does without.
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

struct Program {
  const char* name;
  const char* build_folder;  // where it is made, from where the command is made
  const char* packages;      // without which it is not built
};
constexpr Program kServe = {"atoll-serve", "../../serve/program",
                            "libevent-dev, libhttp-parser-dev and libssl-dev are"};
constexpr Program kFleet = {"atoll-fleet", "../../serve/fleet", "libnats-dev is"};

// Beside the command, or, in a build tree, where it is made.
std::vector<std::string> PlacesOf(const Program& program) {
  std::error_code error;
  const fs::path command = fs::read_symlink("/proc/self/exe", error);
  if (error) return {};
  const fs::path folder = command.parent_path();
  return {(folder / program.name).string(),
          (folder / program.build_folder / program.name).string()};
}

void Become(const Program& program, const std::vector<std::string>& words) {
  std::vector<char*> arguments = {const_cast<char*>(program.name)};
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  for (const std::string& place : PlacesOf(program)) execv(place.c_str(), arguments.data());
  execvp(program.name, arguments.data());
  Fail(ExitCode::kFailure,
       "there is no {} beside this command or on PATH ({}): it is built where {} installed "
       "and ATOLL_SERVING of CMake is ON (./test.sh leaves it out, ./test.sh --all does not)",
       program.name, std::strerror(errno), program.packages);
}

// The words behind `name` are the program's, --help among them, behind those of `first`.
void AddProgram(CLI::App* app, const char* name, const Program& program,
                const std::vector<std::string>& first) {
  Command command(app, name);
  command.app()->set_help_flag();
  command.app()->allow_extras();
  command.app()->prefix_command();
  command.app()->callback([sub = command.app(), &program, first] {
    std::vector<std::string> words = first;
    for (const std::string& word : sub->remaining()) words.push_back(word);
    Become(program, words);
  });
}

}  // namespace

void AddServeCommand(CLI::App* app) { AddProgram(app, "serve", kServe, {}); }
void AddWorkerCommand(CLI::App* app) { AddProgram(app, "worker", kFleet, {"worker"}); }
void AddFleetCommand(CLI::App* app) { AddProgram(app, "fleet", kFleet, {}); }

}  // namespace atollcmd
