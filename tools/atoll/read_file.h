// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace atollcmd {

// All bytes of a file, of 2 GiB at most, or of a pipe, of 64 MiB; throws CommandError (failure) if
// it cannot be read.
std::string ReadFile(const std::string& path);

// Throws CommandError (failure) if a file that `option` names is none or cannot be read; `what`
// should be there.
void CheckFile(std::string_view option, const std::string& path, std::string_view what);

}  // namespace atollcmd
