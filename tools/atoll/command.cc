// SPDX-License-Identifier: Apache-2.0
//
// The `atoll` command. Results go to stdout, everything else to stderr; a failure is one sentence
// there and an exit code (exit_code.h).
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "atoll/runtime.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/files.h"
#include "tools/atoll/report.h"
#include "tools/atoll/subcommand.h"

namespace atollcmd {
namespace {

constexpr void (*kSubcommands[])(CLI::App*) = {
    AddDevicesCommand,   AddInspectCommand, AddCompileCommand,   AddDisasmCommand,
    AddAsmCommand,       AddRunCommand,     AddVerifyCommand,    AddClassifyCommand,
    AddDetectCommand,    AddSegmentCommand, AddPoseCommand,      AddCameraCommand,
    AddBenchmarkCommand, AddProfileCommand, AddResidencyCommand, AddReplayCommand,
    AddTopCommand,       AddDoctorCommand,  AddQuantizeCommand,  AddImportCommand,
    AddEvaluateCommand,  AddBrokerCommand,  AddServeCommand,     AddWorkerCommand,
    AddFleetCommand};

int Say(ExitCode code, std::string sentence) {
  while (!sentence.empty() && (sentence.back() == '.' || sentence.back() == '\n')) {
    sentence.pop_back();
  }
  fmt::print(stderr, "atoll: {}.\n", Printable(sentence));
  return static_cast<int>(code);
}

// Keeps files from getting the numbers of streams with which the command was not started: results
// for stdout would end up in them. Reading stdin and writing the others fails, as it should.
void OccupyStandardStreams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
  }
}

void LogToStderr(AtollLogSeverity severity, const char* message, void*) {
  if (severity >= ATOLL_LOG_WARNING) fmt::print(stderr, "atoll: note: {}\n", Printable(message));
}

void SetUp(CLI::App* app) {
  app->require_subcommand(1);
  app->set_version_flag("--version", fmt::format("atoll {}", AtollVersion()));
  app->footer(HelpText("atoll"));
  for (const auto add : kSubcommands) add(app);
}

}  // namespace

void RunWords(std::vector<std::string> words) {
  SetCommandLine(words);
  CLI::App app("", "atoll");
  SetUp(&app);
  std::reverse(words.begin(), words.end());  // as CLI11 wants them
  try {
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    Fail(ExitCode::kUsage, "the recorded command line: {}", error.what());
  }
}

int RunCommand(int argc, char** argv) {
  OccupyStandardStreams();
  AtollSetLogCallback(LogToStderr, nullptr);
  SetCommandLine(std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
  CLI::App app(
      "Runs TensorFlow Lite models: quantized ones on an Edge-TPU-style coprocessor, real or "
      "emulated, all others on the CPU.",
      "atoll");
  SetUp(&app);
  try {
    app.parse(argc, argv);  // also runs the subcommand
    return static_cast<int>(ExitCode::kOk);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    std::string scope = "atoll";
    for (const CLI::App* subcommand : app.get_subcommands()) scope += " " + subcommand->get_name();
    std::string what = error.what();
    if (app.get_subcommands().empty() && argc > 1 && argv[1][0] != '-') {
      what = fmt::format("there is no subcommand '{}'", argv[1]);
    }
    return Say(ExitCode::kUsage, fmt::format("{}; see '{} --help'", what, scope));
  } catch (const CommandError& error) {
    return Say(error.code(), error.what());
  } catch (const std::filesystem::filesystem_error& error) {
    return Say(ExitCode::kFailure, fmt::format("cannot use '{}': {}; choose another name",
                                               error.path1().string(), error.code().message()));
  } catch (const std::bad_alloc&) {
    return Say(ExitCode::kFailure, "out of memory; close other programs or use a smaller model");
  } catch (const std::exception& error) {
    return Say(ExitCode::kFailure, fmt::format("unexpected failure: {}", error.what()));
  }
}

}  // namespace atollcmd
