// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string_view>
#include <utility>

#include "atoll/delegate.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/report.h"
#include "tools/atoll/subcommands.h"

namespace atollcmd {
namespace {

// The words of the recorded command line.
std::vector<std::string> ReadCommandLine(const std::string& path) {
  std::string text;
  const auto keep = [](const void* data, size_t size, void* user_data) {
    static_cast<std::string*>(user_data)->assign(static_cast<const char*>(data), size);
  };
  if (AtollReadRecordingNote(path.c_str(), keep, &text) != ATOLL_OK) {
    throw CommandError(
        ExitCode::kFailure,
        fmt::format("cannot replay: {}; give a file that --record wrote", AtollLastError()));
  }
  const Json words = Json::parse(text, nullptr, false);
  std::vector<std::string> command;
  for (const Json& word : words.is_array() ? words : Json::array()) {
    if (word.is_string()) command.push_back(word.get<std::string>());
  }
  if (command.empty() || command[0] == "replay") {
    throw CommandError(
        ExitCode::kUsage,
        fmt::format("'{}' does not say what was run when it was recorded; use --device replay:{} "
                    "with the same subcommand",
                    path, path));
  }
  return command;
}

// Takes an option and its value out of a command line.
void Remove(std::string_view option, std::vector<std::string>* words) {
  for (size_t i = 0; i < words->size();) {
    const std::string& word = (*words)[i];
    const bool is_alone = word == option;
    if (!is_alone && !word.starts_with(std::string(option) + "=")) {
      ++i;
      continue;
    }
    const auto at = words->begin() + static_cast<ptrdiff_t>(i);
    words->erase(at, at + (is_alone && i + 1 < words->size() ? 2 : 1));
  }
}

}  // namespace

void AddReplayCommand(CLI::App* app, std::function<void(const std::vector<std::string>&)> run) {
  auto path = std::make_shared<std::string>();
  auto extra = std::make_shared<std::vector<std::string>>();
  CLI::App* command = app->add_subcommand(
      "replay",
      "Run a recorded command again, with the recording in the place of the device: the device's "
      "answers are those of then, and what is sent to it must be, too.");
  command->add_option("FILE", *path, "what --record wrote")->required();
  command->add_option("OPTIONS", *extra, "behind --: added to the recorded command line");
  command->footer(
      "The recorded command line is run from the current directory, which must have the same "
      "files.\n"
      "\n"
      "Examples:\n"
      "  atoll replay session.pcapng\n"
      "  atoll replay session.pcapng -- --json");
  command->callback([path, extra, run = std::move(run)] {
    std::vector<std::string> words = ReadCommandLine(*path);
    std::string shown = "atoll";
    for (const std::string& word : words) shown += " " + word;
    fmt::print(stderr, "atoll: replaying '{}'\n", Printable(shown));
    for (const char* option : {"--device", "--faults", "--record", "--on-device-loss"}) {
      Remove(option, &words);
    }
    words.insert(words.end(), {"--device", "replay:" + *path});
    words.insert(words.end(), extra->begin(), extra->end());
    run(words);
  });
}

}  // namespace atollcmd
