// SPDX-License-Identifier: Apache-2.0
//
// The part of HTTP/1.1 (RFC 9112) that StreamServer speaks: GET and HEAD without bodies, one
// request per connection. Pure functions on bytes; the bytes of a request are hostile.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/access/access.h"

namespace atollrt {

// Which names a server answers to is one rule for all that listens.
using atollserve::IsServedHost;
using atollserve::ServedHosts;

// A request longer than this, up to the empty line that ends it, is refused.
inline constexpr size_t kMaxRequestBytes = 8192;
inline constexpr size_t kMaxRequestLineBytes = 2048;

struct HttpRequest {
  bool head = false;  // HEAD, rather than GET
  std::string path;   // of the target, as it was sent: without "?" and what follows, not decoded
  std::string query;  // what follows "?", not decoded
  std::string host;   // of the Host header; "" without one, which HTTP/1.0 allows
  // What browsers say about the page that asks: headers of these names, "" without them. Those that
  // are there more than once are none that a browser sends, and no value that anybody expects.
  std::string origin;
  std::string fetch_site;  // Sec-Fetch-Site
  std::string fetch_mode;
  std::string fetch_dest;
  std::string authorization;  // of who asks; "" without
};

// What a request gets instead of what it asks for.
struct HttpRefusal {
  int status = 0;
  std::string sentence;
};

enum class ParseState { kIncomplete, kComplete, kRefused };

// Looks at what has arrived of a request so far. kComplete fills `request`, kRefused `refusal`;
// kIncomplete is never the answer to kMaxRequestBytes bytes or more.
ParseState ParseRequest(std::string_view bytes, HttpRequest* request, HttpRefusal* refusal);

// The value of `name` in a query such as "n=3&viewer=a1", not decoded; "" if it is not there.
std::string_view QueryValue(std::string_view query, std::string_view name);

// Whether a browser asks on behalf of a page from elsewhere, other than by following a link to
// here. `scheme` is that of the server: "http".
bool IsForeign(const HttpRequest& request, std::string_view scheme);

struct HttpHead {
  int status = 200;
  std::string_view content_type = {};
  std::optional<uint64_t> content_length = {};  // none: until the connection ends
  std::string_view more = {};                   // further headers, each with its CRLF
};

// Everything up to and including the empty line, with the headers that all answers have: what
// keeps browsers from guessing types, loading things from elsewhere, framing and caching.
std::string FormatHead(const HttpHead& head);

}  // namespace atollrt
