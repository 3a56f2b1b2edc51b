// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/read_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "tools/atoll/exit_code.h"

namespace atollcmd {

std::string ReadFile(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream bytes;
  // An empty file inserts nothing, which is no failure.
  const bool is_open = stream.is_open();
  const bool is_empty = is_open && stream.peek() == std::ifstream::traits_type::eof();
  if (!is_open || stream.bad() || (!is_empty && !(bytes << stream.rdbuf()))) {
    throw CommandError(ExitCode::kFailure, fmt::format("cannot read '{}': {}; check the path", path,
                                                       std::strerror(errno)));
  }
  return bytes.str();
}

}  // namespace atollcmd
