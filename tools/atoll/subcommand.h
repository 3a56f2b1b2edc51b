// SPDX-License-Identifier: Apache-2.0
//
// How a subcommand is declared: its options, what is printed with --help (help.txt), and the
// function that runs it, which throws CommandError when it fails.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace atollcmd {

// The whole command: what main() gets and returns.
int RunCommand(int argc, char** argv);
// Another command line within it, without "atoll".
void RunWords(std::vector<std::string> words);

// A subcommand, or what several of them share.
class Command {
 public:
  // `name` is that of the section in help.txt; its last word is that of the subcommand.
  Command(CLI::App* parent, const std::string& name);

  // An option, or a positional if `option` has no dashes. Its value before is the default, and is
  // shown with --help unless it is empty.
  template <typename T>
  CLI::Option* Add(const std::string& option, T& value) {
    CLI::Option* const added = app_->add_option(option, value, HelpOn(option));
    if constexpr (requires { value.has_value(); }) return added;
    if constexpr (requires { value.empty(); }) {
      if (value.empty()) return added;
    }
    return added->capture_default_str();
  }
  // May be given several times, each time with one value.
  template <typename T>
  CLI::Option* AddRepeatable(const std::string& option, T& values) {
    return Add(option, values)->allow_extra_args(false);
  }
  void Flag(const std::string& option, bool& value) {
    app_->add_flag(option, value, HelpOn(option));
  }
  CLI::App* app() { return app_; }

 private:
  std::string HelpOn(const std::string& option) const;

  const std::string name_;
  CLI::App* const app_;
};

// With options of its own, which `run` gets unless one of its own subcommands is on the command
// line.
template <typename Options>
class Subcommand : public Command {
 public:
  Subcommand(CLI::App* parent, const std::string& name, void (*run)(const Options&))
      : Command(parent, name) {
    this->app()->callback([run, options = options_, app = this->app()] {
      if (app->get_subcommands().empty()) run(*options);
    });
  }
  Options* options() { return options_.get(); }
  Options* operator->() { return options_.get(); }

 private:
  const std::shared_ptr<Options> options_ = std::make_shared<Options>();
};

// Text of the command's own in help.txt: "atoll", "pictures".
std::string HelpText(std::string_view section);

// ---- Values of options -------------------------------------------------------------------------

// A decimal number that is all of `text`.
template <typename T>
std::optional<T> ParseNumber(std::string_view text) {
  T number = {};
  const char* const end = text.data() + text.size();
  const auto [number_end, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || number_end != end) return std::nullopt;
  return number;
}

// "1x2x3" at 'x'.
std::vector<std::string> Split(std::string_view text, char separator);

// 0 to 2^64 - 1 in decimal; CLI11 alone takes -1 and larger numbers, too.
CLI::Validator WholeNumber();
// What a score may be held against.
CLI::Validator Score();
CLI::Validator NonzeroNumber();
// Accepts numbers, but neither infinities nor NaN.
CLI::Validator FiniteNumber();

// ---- The subcommands ---------------------------------------------------------------------------

void AddBrokerCommand(CLI::App* app);
void AddDevicesCommand(CLI::App* app);
void AddInspectCommand(CLI::App* app);
void AddCompileCommand(CLI::App* app);
void AddDisasmCommand(CLI::App* app);
void AddAsmCommand(CLI::App* app);
void AddRunCommand(CLI::App* app);
void AddVerifyCommand(CLI::App* app);
void AddClassifyCommand(CLI::App* app);
void AddDetectCommand(CLI::App* app);
void AddSegmentCommand(CLI::App* app);
void AddPoseCommand(CLI::App* app);
void AddCameraCommand(CLI::App* app);
void AddBenchmarkCommand(CLI::App* app);
void AddProfileCommand(CLI::App* app);
void AddResidencyCommand(CLI::App* app);
void AddQuantizeCommand(CLI::App* app);
void AddImportCommand(CLI::App* app);
void AddEvaluateCommand(CLI::App* app);
void AddReplayCommand(CLI::App* app);
void AddServeCommand(CLI::App* app);
void AddWorkerCommand(CLI::App* app);
void AddFleetCommand(CLI::App* app);
void AddTopCommand(CLI::App* app);
void AddDoctorCommand(CLI::App* app);

}  // namespace atollcmd
