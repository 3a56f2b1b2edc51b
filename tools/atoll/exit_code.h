// SPDX-License-Identifier: Apache-2.0
//
// How a subcommand fails: it throws a CommandError, which main() turns into one sentence on stderr
// and the exit code. ExitCodeOf is the one place where the library's codes become exit codes.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "atoll/runtime.h"

namespace atollcmd {

// Part of the command's interface (`atoll --help`).
enum class ExitCode {
  kOk = 0,
  kFailure = 1,         // anything else: a file that cannot be read or written, a bad picture
  kUsage = 2,           // the command line, or files on it that do not fit the model
  kNoDevice = 3,        // no such device, or it cannot be opened
  kBadModel = 4,        // the model is invalid, unsupported, or of a kind the subcommand cannot use
  kDeviceLost = 5,      // the device went away or no longer answers
  kVerifyMismatch = 6,  // results differ from what they should be
  kWorse = 7,           // a comparison found more than was allowed
  kInterrupted = 130,   // by Ctrl-C or SIGTERM, before the work was done; what was done is reported
};

// What the command was doing when the library refused; the same status means different things to
// the user of a model file, a device and a running inference.
enum class Activity { kLoadingModel, kOpeningDevice, kPreparing, kRunning };

ExitCode ExitCodeOf(AtollStatus status, Activity activity);

class CommandError : public std::runtime_error {
 public:
  // `sentence` has no "atoll: " in front and no full stop; it names the thing, the numbers and the
  // next step.
  CommandError(ExitCode code, const std::string& sentence)
      : std::runtime_error(sentence), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

template <typename... T>
[[noreturn]] void Fail(ExitCode code, fmt::format_string<T...> sentence, T&&... values) {
  throw CommandError(code, fmt::format(sentence, std::forward<T>(values)...));
}

// What to do about a file that could not be read, by errno.
const char* AdviseReading(int error);

// Throws unless `status` is ATOLL_OK: `context` (which may be empty), then the library's own words,
// then `next_step`, or what can usually be done if that is empty.
void ThrowIfError(AtollStatus status, Activity activity, const std::string& context,
                  const std::string& next_step = "");

}  // namespace atollcmd
