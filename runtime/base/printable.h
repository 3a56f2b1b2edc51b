// SPDX-License-Identifier: Apache-2.0
//
// Text of others (a tensor's name, a label, what a server answers) on a terminal. Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace atollrt {

// UTF-8 made fit for one line: control characters, which terminals obey, become '?'. Those are
// U+0000 to U+001F, U+007F and U+0080 to U+009F.
std::string Printable(std::string_view text);

}  // namespace atollrt
