// SPDX-License-Identifier: Apache-2.0
//
// HttpRequestParser: from the bytes of a connection to requests, one after the other, within
// limits. It knows neither sockets nor time. What arrives is hostile: heads, headers, bodies and
// the memory for the bodies of all connections have a most, and whatever is too much, or is no
// HTTP/1.1 (RFC 9112), ends in the answer that the client gets instead.
//
// http_parser splits the bytes.
#pragma once

#include <http_parser.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "serve/http/http_message.h"

namespace atollserve {

// The memory for bodies of all connections of a thread.
struct HttpBodyMemory {
  size_t most_bytes = 0;
  size_t bytes = 0;
};

class HttpRequestParser {
 public:
  struct Limits {
    size_t head_bytes = 0;  // of the first line and all headers, trailers too
    size_t body_bytes = 0;
  };

  // Whose request it is. Called inside of Parse, which it must not call.
  class Client {
   public:
    virtual ~Client() = default;
    // The head is there, but for its peer, which this adds. Whoever may not ask for that gets the
    // answer; `body_bytes`, the most bytes of its body, may become less.
    virtual std::optional<HttpAnswer> OnHead(HttpRequest* head, size_t* body_bytes) = 0;
    // A body will follow. `waits`: the client may wait for "100 Continue" before it sends it.
    virtual void OnBody(bool waits) = 0;
    // The answer to what is refused here.
    virtual HttpAnswer Refusal(int status, const std::string& sentence) const = 0;
  };

  enum class Progress {
    kIncomplete,
    kComplete,  // Take has the request
    kRefused,   // TakeRefusal has the answer; nothing further of this client is to be parsed
  };

  // All of them outlive this.
  HttpRequestParser(const Limits& limits, HttpBodyMemory* memory, Client* client);
  ~HttpRequestParser() { Drop(); }
  HttpRequestParser(const HttpRequestParser&) = delete;
  HttpRequestParser& operator=(const HttpRequestParser&) = delete;

  // For the first request, and for the next one after each kComplete.
  void Begin();
  // `parsed`: so many of the bytes belong to this request; with kComplete, the rest to the next.
  Progress Parse(std::string_view bytes, size_t* parsed);

  // The body's memory counts until Begin or Drop.
  HttpRequest Take() { return std::move(request_); }
  HttpAnswer TakeRefusal() { return *std::move(refusal_); }
  // Forgets the request, which may be incomplete, and gives its memory back.
  void Drop();

  bool is_head() const { return request_.method == "HEAD"; }  // not after Take
  size_t body_bytes() const { return request_.body.size(); }  // that have come
  // Whether the client can send another request on the connection.
  bool keep_alive() const { return keep_alive_; }

 private:
  static const http_parser_settings kSettings;

  int Refuse(int status, const std::string& sentence);
  int CountHead(size_t bytes);
  int OnUrl(std::string_view text);
  int OnHeaderName(std::string_view text);
  int OnHeaderValue(std::string_view text);
  int OnHead();
  int OnBody(std::string_view bytes);

  const Limits& limits_;
  HttpBodyMemory& memory_;
  Client& client_;

  http_parser parser_ = {};
  HttpRequest request_;
  size_t head_bytes_ = 0;
  bool in_value_ = false;   // of the last header, or trailer
  bool head_done_ = false;  // what follows are trailers
  size_t body_limit_ = 0;
  size_t counted_bytes_ = 0;  // of the body, in memory_
  bool complete_ = false;
  bool keep_alive_ = false;
  std::optional<HttpAnswer> refusal_;
};

}  // namespace atollserve
