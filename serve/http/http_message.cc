// SPDX-License-Identifier: Apache-2.0
#include "serve/http/http_message.h"

#include <algorithm>

#include "serve/access/http_answer.h"

namespace atollserve {

using atollrt::Format;
using atollrt::InvalidArgument;
using atollrt::Status;

namespace {

// RFC 9110, section 5.6.2; of a name in small letters.
bool IsToken(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (LowerOf(c) >= 'a' && LowerOf(c) <= 'f') return LowerOf(c) - 'a' + 10;
  return -1;
}

void JoinRepeated(HttpHeaders* headers) {
  HttpHeaders joined;
  for (auto& [name, value] : *headers) {
    const auto found =
        std::find_if(joined.begin(), joined.end(),
                     [&, &key = name](const auto& header) { return header.first == key; });
    if (found == joined.end()) {
      joined.emplace_back(std::move(name), std::move(value));
    } else {
      found->second += ", " + value;
    }
  }
  *headers = std::move(joined);
}

}  // namespace

bool EqualsIgnoringCase(std::string_view text, std::string_view lower) {
  return text.size() == lower.size() && std::equal(text.begin(), text.end(), lower.begin(),
                                                   [](char a, char b) { return LowerOf(a) == b; });
}

std::optional<std::string> DecodePercent(std::string_view text) {
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? HexValue(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? HexValue(text[i + 2]) : -1;
    if (high < 0 || low < 0) return std::nullopt;
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return decoded;
}

std::string_view HttpRequest::Header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

Status CompleteHead(bool is_1_0, HttpRequest* request) {
  if (!request->path.starts_with('/')) {
    return InvalidArgument("The target of a request is a path that begins with \"/\".");
  }
  // http_parser lets spaces and bytes beyond ASCII pass, depending on how it was built.
  if (!std::all_of(request->path.begin(), request->path.end(),
                   [](char c) { return c > ' ' && c < 0x7f; })) {
    return InvalidArgument("The path has characters that do not belong there; write %%XX instead.");
  }
  if (!std::all_of(request->headers.begin(), request->headers.end(),
                   [](const auto& header) { return IsToken(header.first); })) {
    return InvalidArgument("A header is a name, a colon and a value.");
  }
  const size_t mark =
      std::min({request->path.find('?'), request->path.find('#'), request->path.size()});
  if (mark < request->path.size() && request->path[mark] == '?') {
    request->query = request->path.substr(mark + 1);
  }
  request->path.resize(mark);
  const auto hosts = std::count_if(request->headers.begin(), request->headers.end(),
                                   [](const auto& header) { return header.first == "host"; });
  if (hosts > 1 || (hosts == 0 && !is_1_0)) {
    return InvalidArgument("A request has one Host header, not %td.", hosts);
  }
  JoinRepeated(&request->headers);
  return {};
}

std::string FormatHead(const HttpAnswer& answer, bool keep_alive) {
  std::string text =
      BeginHttpAnswer(answer.status) + Format("Content-Length: %zu\r\n", answer.body.size());
  if (!answer.content_type.empty()) text += "Content-Type: " + answer.content_type + "\r\n";
  for (const auto& [name, value] : answer.headers) text += name + ": " + value + "\r\n";
  text += keep_alive ? "Connection: keep-alive\r\n" : "Connection: close\r\n";
  text += "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\r\n";
  return text;
}

}  // namespace atollserve
