// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/command_line.h"

#include <utility>

namespace atollcmd {
namespace {

std::vector<std::string>& Words() {
  static std::vector<std::string> words;
  return words;
}

}  // namespace

const std::vector<std::string>& CommandLine() { return Words(); }
void SetCommandLine(std::vector<std::string> words) { Words() = std::move(words); }

}  // namespace atollcmd
