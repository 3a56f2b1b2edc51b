// SPDX-License-Identifier: Apache-2.0
#include "serve/frigate/multipart.h"

#include <algorithm>

namespace atollrt {
namespace {

bool IsBlank(char c) { return c == ' ' || c == '\t'; }

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && IsBlank(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsBlank(text.back())) text.remove_suffix(1);
  return text;
}

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool SameIgnoringCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return Lower(x) == Lower(y); });
}

// A header's value such as `form-data; name="image"; filename=a.jpg`: what comes first, and what a
// parameter says. A quoted one ends at the next quote; backslashes are bytes like others, as in
// the forms of browsers.
struct HeaderValue {
  std::string_view kind;
  std::string_view rest;

  explicit HeaderValue(std::string_view value) {
    const size_t end = std::min(value.find(';'), value.size());
    kind = Trimmed(value.substr(0, end));
    rest = value.substr(end);
  }
  // "": it is not there.
  std::string_view Parameter(std::string_view name) const {
    std::string_view left = rest;
    while (!left.empty()) {
      left.remove_prefix(1);  // the semicolon
      const size_t equals = left.find('=');
      if (equals == left.npos) return {};
      const std::string_view key = Trimmed(left.substr(0, equals));
      left.remove_prefix(equals + 1);
      while (!left.empty() && IsBlank(left.front())) left.remove_prefix(1);
      std::string_view value;
      if (left.starts_with('"')) {
        const size_t quote = left.find('"', 1);
        if (quote == left.npos) return {};
        value = left.substr(1, quote - 1);
        left.remove_prefix(quote + 1);
        left.remove_prefix(std::min(left.find(';'), left.size()));
      } else {
        const size_t end = std::min(left.find(';'), left.size());
        value = Trimmed(left.substr(0, end));
        left.remove_prefix(end);
      }
      if (SameIgnoringCase(key, name)) return value;
    }
    return {};
  }
};

// The head of a part, without the empty line.
Result<FormPart> ParsePartHead(std::string_view head) {
  FormPart part;
  bool has_name = false;
  while (!head.empty()) {
    const size_t end = std::min(head.find("\r\n"), head.size());
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(std::min(end + 2, head.size()));
    const size_t colon = line.find(':');
    if (colon == line.npos) {
      return InvalidArgument("a line of a part's head in the form has no colon");
    }
    if (!SameIgnoringCase(line.substr(0, colon), "Content-Disposition")) continue;
    const HeaderValue value(line.substr(colon + 1));
    part.name = value.Parameter("name");
    part.file_name = value.Parameter("filename");
    has_name = SameIgnoringCase(value.kind, "form-data") && !part.name.empty();
  }
  if (!has_name) return InvalidArgument("a part of the form has no name");
  return part;
}

}  // namespace

Result<std::vector<FormPart>> ParseForm(std::string_view content_type, std::string_view body) {
  const HeaderValue type(content_type);
  if (!SameIgnoringCase(type.kind, "multipart/form-data")) {
    return Unsupported("the request is no form; post multipart/form-data with a file 'image'");
  }
  const std::string_view boundary = type.Parameter("boundary");
  if (boundary.empty() || boundary.size() > 70) {
    return InvalidArgument("the form's boundary has %zu characters rather than 1 to 70",
                           boundary.size());
  }
  // Every delimiter but a first one at the very beginning has a line break of its own before it.
  const std::string delimiter = "\r\n--" + std::string(boundary);
  std::vector<FormPart> parts;
  const auto cut_off = [&] {
    return InvalidArgument("the form ends in its part %zu, without its boundary", parts.size());
  };
  if (body.starts_with(std::string_view(delimiter).substr(2))) {
    body.remove_prefix(delimiter.size() - 2);
  } else {
    const size_t first = body.find(delimiter);  // after a preamble
    if (first == body.npos) return cut_off();
    body.remove_prefix(first + delimiter.size());
  }
  while (!body.starts_with("--")) {
    if (parts.size() == kMaxFormParts) {
      return InvalidArgument("the form has more than %zu parts", kMaxFormParts);
    }
    while (!body.empty() && IsBlank(body.front())) body.remove_prefix(1);
    if (!body.starts_with("\r\n")) return cut_off();
    // The empty line is the next one, or comes after some headers.
    const size_t head_end = body.substr(0, kMaxPartHeadBytes).find("\r\n\r\n");
    if (head_end == body.npos) {
      return InvalidArgument("the head of part %zu of the form is not at most %zu bytes",
                             parts.size(), kMaxPartHeadBytes);
    }
    ATOLL_ASSIGN_OR_RETURN(FormPart part,
                           ParsePartHead(head_end < 2 ? "" : body.substr(2, head_end - 2)));
    body.remove_prefix(head_end + 4);
    // What is empty ends at once: the break before its delimiter is that after its head.
    const size_t end = body.find(delimiter);
    if (end == body.npos) return cut_off();
    part.value = body.substr(0, end);
    body.remove_prefix(end + delimiter.size());
    parts.push_back(part);
  }
  return parts;
}

const FormPart* FindPart(const std::vector<FormPart>& parts, std::string_view name) {
  const auto found = std::find_if(parts.begin(), parts.end(),
                                  [&](const FormPart& part) { return part.name == name; });
  return found == parts.end() ? nullptr : &*found;
}

Result<std::vector<uint8_t>> DecodeBase64(std::string_view text) {
  for (int padding = 0; padding < 2 && text.ends_with('='); ++padding) text.remove_suffix(1);
  if (text.size() % 4 == 1) return InvalidArgument("base64 of %zu characters", text.size());
  std::vector<uint8_t> bytes;
  bytes.reserve(text.size() * 3 / 4);
  uint32_t bits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    int value = -1;
    if (c >= 'A' && c <= 'Z') value = c - 'A';
    if (c >= 'a' && c <= 'z') value = c - 'a' + 26;
    if (c >= '0' && c <= '9') value = c - '0' + 52;
    if (c == '+' || c == '-') value = 62;
    if (c == '/' || c == '_') value = 63;
    if (value < 0) return InvalidArgument("character %zu is none of base64's", i);
    bits = bits << 6 | static_cast<uint32_t>(value);
    switch (i % 4) {
      case 1:
        bytes.push_back(static_cast<uint8_t>(bits >> 4));
        break;
      case 2:
        bytes.push_back(static_cast<uint8_t>(bits >> 2));
        break;
      case 3:
        bytes.push_back(static_cast<uint8_t>(bits));
        break;
      default:
        break;
    }
  }
  return bytes;
}

}  // namespace atollrt
