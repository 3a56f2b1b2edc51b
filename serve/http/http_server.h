// SPDX-License-Identifier: Apache-2.0
//
// HttpServer: an event-driven server of HTTP/1.1 (RFC 9112), with TLS where it is given a
// certificate. One thread moves all bytes; requests are handed to a function that may answer later,
// from any thread.
//
//   auto listener = ListenAt("127.0.0.1:8000");
//   if (!listener.ok()) return listener.status();
//   auto server = HttpServer::Start(std::move(*listener), {}, [](HttpRequest request,
//                                                                HttpResponder responder) {
//     responder.Send({.status = 200, .content_type = "text/plain", .body = "hello\n"});
//   });
//
// libevent waits for sockets and timers and http_parser splits the bytes. (libevent's own evhttp
// was looked at: it reads 4 KiB at a time, has no deadline for a whole request, does not notice
// that a client goes while its request is being answered, and writes error pages of its own.)
//
// What arrives is hostile: heads, bodies, connections and the memory for all bodies have limits,
// and every state of a connection but waiting for the answer has a deadline, so that one who
// sends or takes a byte now and then is not waited for. Connections stay open for further requests
// and may send those before the answer (pipelining); answers come in their order. "Expect:
// 100-continue" is answered when the head is fine. Bodies may be chunked, but not compressed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "serve/access/listener.h"
#include "serve/access/tls.h"
#include "serve/http/http_message.h"
#include "serve/http/http_responder.h"

namespace atollserve {

// Called on the server's thread for each request; it must not block.
using HttpHandler = std::function<void(HttpRequest request, HttpResponder responder)>;

struct HttpLimits {
  size_t head_bytes = 16 << 10;  // of the first line and all headers; at most 64 KiB
  size_t body_bytes = 64 << 20;
  size_t buffered_bytes = 256 << 20;  // of all bodies that are being received, or answered
  size_t connections = 1000;
  std::chrono::milliseconds head_timeout{10'000};  // from the first byte, or the connection, on
  std::chrono::milliseconds idle_timeout{60'000};  // between requests
  // A body, and an answer, may take so long and a second more for each so many bytes.
  std::chrono::milliseconds transfer_timeout{10'000};
  size_t transfer_bytes_per_second = 64 << 10;
};

struct HttpServerOptions {
  HttpLimits limits;
  std::shared_ptr<const TlsContext> tls;  // null: none
  // Looks at each request when its head is there, before its body is read: who may not do what it
  // asks gets the answer, and its connection is closed. May lower the most bytes that its body may
  // have. On the server's thread; null: all may come.
  std::function<std::optional<HttpAnswer>(const HttpRequest& head, size_t* body_bytes)> admit;
  // What is sent when the server itself refuses a request; null: the sentence as text.
  std::function<HttpAnswer(int status, const std::string& sentence)> refusal;
};

struct HttpCounts {
  int64_t connections = 0;  // now
  int64_t accepted = 0;
  int64_t refused_connections = 0;  // there were too many
  int64_t requests = 0;             // handed to the handler
  int64_t refused_requests = 0;     // answered by the server itself, or by `admit`
  int64_t timeouts = 0;             // connections that were closed because they were too slow
};

class HttpServer {
 public:
  // Answers from now on. kInternal if the system has no means for another thread or descriptor.
  static atollrt::Result<std::unique_ptr<HttpServer>> Start(std::vector<Listener> listeners,
                                                            HttpServerOptions options,
                                                            HttpHandler handler);
  static atollrt::Result<std::unique_ptr<HttpServer>> Start(Listener listener,
                                                            HttpServerOptions options,
                                                            HttpHandler handler);
  // Closes all connections; OnGone of those that wait for an answer is called. Removes unix
  // sockets.
  virtual ~HttpServer() = default;

  // Takes no further connections and requests, answers what has come, and waits for that, not
  // longer than `timeout`. True if all was answered.
  virtual bool Drain(std::chrono::milliseconds timeout) = 0;

  virtual const std::vector<Listener>& listeners() const = 0;
  int port() const { return listeners()[0].port; }
  virtual HttpCounts counts() const = 0;
};

}  // namespace atollserve
