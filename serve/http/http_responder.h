// SPDX-License-Identifier: Apache-2.0
//
// How an answer comes from a handler, in any thread, to the thread of the server: HttpResponder is
// the handler's end, HttpOutbox the server's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "atoll/status.h"
#include "serve/http/http_message.h"

namespace atollserve {

// The one answer to a request. Copies are the same; when the last one goes and nothing was sent,
// the client gets 500. Any thread, also when the server has gone.
class HttpResponder {
 public:
  // The first answer counts.
  void Send(HttpAnswer answer) const;
  // The client has closed its connection: nobody will read the answer.
  bool gone() const;
  // `callback` is called once, on the server's thread, when the client goes before it has been
  // answered, or at once if it has gone. It must not block; one for each request.
  void OnGone(std::function<void()> callback) const;

 private:
  friend class HttpOutbox;
  struct Exchange;
  explicit HttpResponder(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}

  std::shared_ptr<Exchange> exchange_;
};

// Where answers wait for the server's thread, which is the only one here but for Wake. What
// responders need of it stays as long as there are any.
class HttpOutbox {
 public:
  // A request that a handler has. Keeps nothing; empty: there is none.
  using Waiting = std::weak_ptr<HttpResponder::Exchange>;
  struct Item {
    uint64_t connection = 0;
    uint64_t exchange = 0;
    HttpAnswer answer;
  };

  HttpOutbox();
  // kInternal if there is no descriptor left. Before anything else.
  atollrt::Status Open();

  // Readable after Wake, and when an answer has come to an empty outbox, until ClearWake.
  int descriptor() const;
  void Wake() const;
  void ClearWake();

  // For a request: the numbers are those of the Item with its answer.
  HttpResponder Expect(uint64_t connection, uint64_t exchange, Waiting* waiting) const;
  // The client has gone: calls the function of OnGone, unless it has been answered.
  static void Leave(const Waiting& waiting);
  // What has come so far, in this order.
  std::vector<Item> Take();

 private:
  friend struct HttpResponder::Exchange;
  struct Queue;
  std::shared_ptr<Queue> queue_;
};

}  // namespace atollserve
