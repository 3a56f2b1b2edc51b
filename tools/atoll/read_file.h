// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace atollcmd {

// All bytes of a file; throws CommandError (failure) if it cannot be read.
std::string ReadFile(const std::string& path);

}  // namespace atollcmd
