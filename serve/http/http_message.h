// SPDX-License-Identifier: Apache-2.0
//
// Requests and answers of HTTP/1.1 (RFC 9110, RFC 9112) as a handler sees them, and what of their
// heads needs no connection: what a request's has to hold to, and how an answer's is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atoll/status.h"

namespace atollserve {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// Who is at the other end.
struct HttpPeer {
  std::string address;               // numeric; "unix"
  int port = 0;                      // 0: a unix socket
  std::optional<uint32_t> uid = {};  // of a unix socket: whose process it is
  size_t listener = 0;               // among HttpServer::listeners(), where it came in
  bool local = false;                // which is a loopback address or a unix socket
  bool tls = false;
  // The subject of the client's certificate, which the client CA has signed; "": there is none.
  std::string certificate = {};
};

struct HttpRequest {
  std::string method;   // "GET"
  std::string path;     // begins with '/'; not decoded, without '?' and what follows
  std::string query;    // what follows '?', not decoded
  HttpHeaders headers;  // names in small letters, each once: what came several times has commas
  std::string body;
  HttpPeer peer;

  // The value of a header, its name in small letters; "" if it is not there.
  std::string_view Header(std::string_view name) const;
};

struct HttpAnswer {
  int status = 200;
  std::string content_type = "application/json";  // "": no such header
  std::string body = {};
  HttpHeaders headers = {};  // further ones, as they shall be sent; no CR or LF in them
};

// What a head has to hold to beyond what a parser finds. `request` has its method, the target as
// its path, and the headers as they came, names in small letters; it gets its query, and each
// header once. kInvalidArgument, with the sentence for the client. `is_1_0`: of HTTP/1.0, which
// needs no Host.
atollrt::Status CompleteHead(bool is_1_0, HttpRequest* request);

// The first line and the headers of an answer, with the empty line at their end.
std::string FormatHead(const HttpAnswer& answer, bool keep_alive);

// Whether `text` is `lower`, which has no capital letters.
bool EqualsIgnoringCase(std::string_view text, std::string_view lower);

// As an ASCII letter in small; other bytes as they are.
inline char LowerOf(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// What `text` stands for when %XX are decoded; nullopt if one is broken.
std::optional<std::string> DecodePercent(std::string_view text);

}  // namespace atollserve
