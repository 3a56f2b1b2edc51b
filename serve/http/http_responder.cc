// SPDX-License-Identifier: Apache-2.0
#include "serve/http/http_responder.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>

#include "runtime/base/file_descriptor.h"

namespace atollserve {

using atollrt::FileDescriptor;
using atollrt::InternalError;
using atollrt::Status;

struct HttpOutbox::Queue {
  void Wake() const {
    const uint64_t one = 1;
    // Full only if 2^64 - 2 wake-ups are still unread.
    [[maybe_unused]] const ssize_t written = write(wake.get(), &one, sizeof(one));
  }
  void Put(Item item) {
    bool first = false;
    {
      const std::lock_guard lock(mutex);
      first = items.empty();
      items.push_back(std::move(item));
    }
    if (first) Wake();
  }

  FileDescriptor wake;
  std::mutex mutex;
  std::vector<Item> items;
};

struct HttpResponder::Exchange {
  ~Exchange() {
    if (!answered) {
      Put({.status = 500,
           .content_type = "text/plain; charset=utf-8",
           .body = "The server has no answer.\n"});
    }
  }
  void Put(HttpAnswer answer) const {
    queue->Put({.connection = connection, .exchange = number, .answer = std::move(answer)});
  }

  uint64_t connection = 0;
  uint64_t number = 0;
  std::shared_ptr<HttpOutbox::Queue> queue;
  std::mutex mutex;
  bool answered = false;
  bool gone = false;
  std::function<void()> on_gone;
};

void HttpResponder::Send(HttpAnswer answer) const {
  {
    const std::lock_guard lock(exchange_->mutex);
    if (exchange_->answered) return;
    exchange_->answered = true;
    if (exchange_->gone) return;
  }
  exchange_->Put(std::move(answer));
}

bool HttpResponder::gone() const {
  const std::lock_guard lock(exchange_->mutex);
  return exchange_->gone;
}

void HttpResponder::OnGone(std::function<void()> callback) const {
  {
    const std::lock_guard lock(exchange_->mutex);
    if (exchange_->answered) return;
    if (!exchange_->gone) {
      exchange_->on_gone = std::move(callback);
      return;
    }
  }
  callback();
}

HttpOutbox::HttpOutbox() : queue_(std::make_shared<Queue>()) {}

Status HttpOutbox::Open() {
  queue_->wake = FileDescriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (queue_->wake.get() >= 0) return {};
  return InternalError("no descriptor for a server's events: %s", std::strerror(errno));
}

int HttpOutbox::descriptor() const { return queue_->wake.get(); }

void HttpOutbox::Wake() const { queue_->Wake(); }

void HttpOutbox::ClearWake() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(queue_->wake.get(), &count, sizeof(count));
}

HttpResponder HttpOutbox::Expect(uint64_t connection, uint64_t exchange, Waiting* waiting) const {
  auto one = std::make_shared<HttpResponder::Exchange>();
  one->connection = connection;
  one->number = exchange;
  one->queue = queue_;
  *waiting = one;
  return HttpResponder(std::move(one));
}

void HttpOutbox::Leave(const Waiting& waiting) {
  const auto exchange = waiting.lock();
  if (exchange == nullptr) return;
  std::function<void()> on_gone;
  {
    const std::lock_guard lock(exchange->mutex);
    exchange->gone = true;
    if (!exchange->answered) on_gone = std::move(exchange->on_gone);
    exchange->on_gone = nullptr;
  }
  if (on_gone) on_gone();
}

std::vector<HttpOutbox::Item> HttpOutbox::Take() {
  std::vector<Item> items;
  const std::lock_guard lock(queue_->mutex);
  items.swap(queue_->items);
  return items;
}

}  // namespace atollserve
