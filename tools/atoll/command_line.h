// SPDX-License-Identifier: Apache-2.0
//
// The words that the command was started with, less its name: recordings keep them.
#pragma once

#include <string>
#include <vector>

namespace atollcmd {

// Set once, by main.
const std::vector<std::string>& CommandLine();
void SetCommandLine(std::vector<std::string> words);

}  // namespace atollcmd
