// SPDX-License-Identifier: Apache-2.0
//
// Forms as browsers and clients post them (multipart/form-data, RFC 7578), and base64 (RFC 4648).
// Pure functions on bytes, which are hostile.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/status.h"

namespace atollrt {

inline constexpr size_t kMaxFormParts = 32;
inline constexpr size_t kMaxPartHeadBytes = 4096;

// Views into the body that it was parsed from.
struct FormPart {
  std::string_view name;
  std::string_view file_name;  // "": it is not a file
  std::string_view value;
};

// The parts of a form, in their order. `content_type` is that of the request, with the boundary.
// kUnsupported for another kind of body, kInvalidArgument for one that is damaged, ends before its
// last boundary or has more or larger heads than the limits above.
Result<std::vector<FormPart>> ParseForm(std::string_view content_type, std::string_view body);

// The first part of this name; nullptr: there is none.
const FormPart* FindPart(const std::vector<FormPart>& parts, std::string_view name);

// With or without padding; kInvalidArgument for other characters, with the place of the first one.
Result<std::vector<uint8_t>> DecodeBase64(std::string_view text);

}  // namespace atollrt
