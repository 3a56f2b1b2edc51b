// SPDX-License-Identifier: Apache-2.0
#include "camera/web/http.h"

#include <algorithm>
#include <utility>

#include "atoll/status.h"
#include "camera/sources/http_text.h"
#include "serve/access/http_answer.h"

namespace atollrt {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
// RFC 9110, section 5.6.2.
bool IsToken(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

// The first line of `bytes` without its end, LF or CRLF, and takes it off; null if none is
// complete.
std::optional<std::string_view> TakeLine(std::string_view* bytes) {
  const size_t end = bytes->find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  std::string_view line = bytes->substr(0, end);
  bytes->remove_prefix(end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

ParseState Refuse(HttpRefusal* refusal, int status, std::string sentence) {
  *refusal = {.status = status, .sentence = std::move(sentence)};
  return ParseState::kRefused;
}

// "GET /path?query HTTP/1.1". True if it is fine.
bool ParseRequestLine(std::string_view line, HttpRequest* request, bool* needs_host,
                      HttpRefusal* refusal) {
  const auto refuse = [&](int status, const char* sentence) {
    *refusal = {.status = status, .sentence = sentence};
    return false;
  };
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) {
    return refuse(400, "The first line of a request is a method, a path and a version.");
  }
  const std::string_view method = line.substr(0, first), version = line.substr(last + 1);
  std::string_view target = line.substr(first + 1, last - first - 1);
  if (!IsToken(method) || !IsPlain(target)) {
    return refuse(400, "The method or the path has characters that do not belong there.");
  }
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    return refuse(505, "This server speaks HTTP/1.1 and HTTP/1.0.");
  }
  if (method != "GET" && method != "HEAD") {
    return refuse(405, "This server answers GET and HEAD only.");
  }
  if (!target.starts_with('/')) {
    return refuse(400, "The target of a request is a path that begins with \"/\".");
  }
  request->head = method == "HEAD";
  const size_t mark = std::min(target.find('?'), target.size());
  request->path = std::string(target.substr(0, mark));
  request->query = std::string(target.substr(std::min(mark + 1, target.size())));
  *needs_host = version == "HTTP/1.1";
  return true;
}

}  // namespace

ParseState ParseRequest(std::string_view bytes, HttpRequest* request, HttpRefusal* refusal) {
  std::string_view rest = bytes.substr(0, kMaxRequestBytes);
  const bool all_there = rest.size() == kMaxRequestBytes;
  // RFC 9112, section 2.2: an empty line before the request is ignored.
  if (rest.starts_with("\r\n")) rest.remove_prefix(2);

  const std::optional<std::string_view> first = TakeLine(&rest);
  if ((first ? first->size() : rest.size()) > kMaxRequestLineBytes) {
    return Refuse(
        refusal, 414,
        Format("The first line of a request has at most %zu bytes.", kMaxRequestLineBytes));
  }
  if (!first) return ParseState::kIncomplete;
  *request = {};
  bool needs_host = false;
  if (!ParseRequestLine(*first, request, &needs_host, refusal)) return ParseState::kRefused;

  const std::pair<const char*, std::string*> told[] = {{"origin", &request->origin},
                                                       {"sec-fetch-site", &request->fetch_site},
                                                       {"sec-fetch-mode", &request->fetch_mode},
                                                       {"sec-fetch-dest", &request->fetch_dest},
                                                       {"authorization", &request->authorization}};
  int hosts = 0;
  while (true) {
    const std::optional<std::string_view> line = TakeLine(&rest);
    if (!line && all_there) {
      return Refuse(refusal, 431,
                    Format("A request with its headers has at most %zu bytes.", kMaxRequestBytes));
    }
    if (!line) return ParseState::kIncomplete;
    if (line->empty()) break;
    const size_t colon = line->find(':');
    if (colon == std::string_view::npos || !IsToken(line->substr(0, colon))) {
      return Refuse(refusal, 400, "A header is a name, a colon and a value.");
    }
    const std::string name = Lowercase(line->substr(0, colon));
    const std::string_view value = Trim(line->substr(colon + 1));
    if (name == "host") {
      ++hosts;
      if (value.empty() || !IsPlain(value)) {
        return Refuse(refusal, 400, "The Host header names no host.");
      }
      request->host = std::string(value);
    } else if (name == "transfer-encoding" || (name == "content-length" && value != "0")) {
      return Refuse(refusal, 413, "Requests to this server have no body.");
    }
    for (const auto& [header, field] : told) {
      if (name != header) continue;
      if (!field->empty()) *field += ",";
      *field += value;
    }
  }
  if (hosts > 1 || (needs_host && hosts == 0)) {
    return Refuse(refusal, 400, Format("A request has one Host header, not %d.", hosts));
  }
  return ParseState::kComplete;
}

std::string_view QueryValue(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    const size_t equals = pair.find('=');
    if (equals != std::string_view::npos && pair.substr(0, equals) == name) {
      return pair.substr(equals + 1);
    }
    query.remove_prefix(std::min(pair.size() + 1, query.size()));
  }
  return {};
}

bool IsForeign(const HttpRequest& request, std::string_view scheme) {
  return atollserve::IsForeign({.host = request.host,
                                .origin = request.origin,
                                .fetch_site = request.fetch_site,
                                .fetch_mode = request.fetch_mode,
                                .fetch_dest = request.fetch_dest},
                               scheme);
}

std::string FormatHead(const HttpHead& head) {
  std::string text = atollserve::BeginHttpAnswer(head.status) +
                     Format("Connection: close\r\nContent-Type: %.*s\r\n",
                            static_cast<int>(head.content_type.size()), head.content_type.data());
  if (head.content_length) {
    text += "Content-Length: " + std::to_string(*head.content_length) + "\r\n";
  }
  text += head.more;
  text +=
      "Cache-Control: no-store\r\n"
      "Content-Security-Policy: default-src 'self'; base-uri 'none'; form-action 'none'; "
      "frame-ancestors 'none'\r\n"
      "Cross-Origin-Resource-Policy: same-origin\r\n"
      "Referrer-Policy: no-referrer\r\n"
      "X-Content-Type-Options: nosniff\r\n"
      "\r\n";
  return text;
}

}  // namespace atollrt
