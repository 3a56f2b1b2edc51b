// SPDX-License-Identifier: Apache-2.0
//
// The page for browsers: its files, which are part of the program.
#pragma once

#include <string_view>

namespace atollserve {

struct PageFile {
  std::string_view path;  // where it is asked for
  const char* type;       // its Content-Type
  std::string_view text;
};

// Null if there is none at this path.
const PageFile* FindPage(std::string_view path);

}  // namespace atollserve
