// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/printable.h"

#include <cstddef>

namespace atollrt {

std::string Printable(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    // U+0080 to U+009F have two bytes.
    const bool is_second_set = byte == 0xc2 && next >= 0x80 && next <= 0x9f;
    clean += byte < ' ' || byte == 0x7f || is_second_set ? '?' : text[i];
    if (is_second_set) ++i;
  }
  return clean;
}

}  // namespace atollrt
