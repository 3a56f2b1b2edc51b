// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/login.h"

namespace atollrt {

std::string WithoutLogin(std::string_view text) {
  const size_t scheme = text.find("://");
  const bool has_scheme = scheme != std::string_view::npos;
  const size_t begin = has_scheme ? scheme + 3 : 0;
  std::string_view rest = text.substr(begin);
  // A password with a slash in it makes no valid address, but is a password.
  const size_t at = rest.rfind('@');
  if (at != std::string_view::npos && (has_scheme || rest.find(':') < at)) {
    rest.remove_prefix(at + 1);
  }
  std::string name = std::string(text.substr(0, begin)) + std::string(rest);
  if (const size_t query = name.find('?'); has_scheme && query != std::string::npos) {
    name.replace(query, std::string::npos, "?...");
  }
  return name;
}

}  // namespace atollrt
