// SPDX-License-Identifier: Apache-2.0
#include "serve/fleet/subscription.h"

#include <utility>

namespace atollserve {

using atollrt::Result;

namespace {
constexpr int64_t kDrainMs = 10'000;
}

Result<std::unique_ptr<Subscription>> Subscription::Start(const FleetConnection* connection,
                                                          const std::string& subject,
                                                          const std::string& queue,
                                                          OnMessage on_message, Pending pending) {
  std::unique_ptr<Subscription> made(new Subscription(connection));
  made->state_->on_message = std::move(on_message);
  const auto call = [](natsConnection*, natsSubscription*, natsMsg* message, void* state) {
    const NatsPtr<natsMsg> owner(message);
    if (message != nullptr) static_cast<State*>(state)->on_message(message);
  };
  natsStatus status =
      queue.empty()
          ? natsConnection_Subscribe(NatsOut(&made->subscription_), connection->get(),
                                     subject.c_str(), call, made->state_.get())
          : natsConnection_QueueSubscribe(NatsOut(&made->subscription_), connection->get(),
                                          subject.c_str(), queue.c_str(), call, made->state_.get());
  if (status != NATS_OK) {
    return NatsStatus(status, "subscription to '" + subject + "'");
  }
  // Called when the last message has been handed over, and never again.
  auto* const kept = new std::shared_ptr<State>(made->state_);
  status = natsSubscription_SetOnCompleteCB(
      made->subscription_.get(),
      [](void* closure) {
        const std::unique_ptr<std::shared_ptr<State>> state(
            static_cast<std::shared_ptr<State>*>(closure));
        const std::lock_guard lock((*state)->mutex);
        (*state)->is_complete = true;
        (*state)->completed.notify_all();
      },
      kept);
  if (status != NATS_OK) {
    delete kept;
    made->state_->is_complete = true;
  } else {
    status = natsSubscription_SetPendingLimits(made->subscription_.get(), pending.messages,
                                               pending.bytes);
  }
  if (status != NATS_OK) return NatsStatus(status, "subscription to '" + subject + "'");
  return made;
}

Subscription::~Subscription() {
  if (subscription_ == nullptr) return;
  if (!draining_) (void)natsSubscription_Unsubscribe(subscription_.get());
  std::unique_lock lock(state_->mutex);
  state_->completed.wait(lock, [&] { return state_->is_complete; });
}

void Subscription::Drain() {
  // Who has sent what waits has gone with the server.
  if (!connection_->connected()) return;
  // If the server goes now, it ends as late as that.
  draining_ = natsSubscription_DrainTimeout(subscription_.get(), kDrainMs) == NATS_OK;
}

int64_t Subscription::dropped() const {
  int64_t dropped = 0;
  (void)natsSubscription_GetDropped(subscription_.get(), &dropped);
  return dropped;
}

}  // namespace atollserve
