// SPDX-License-Identifier: Apache-2.0
//
// FrameClient: asks a fleet about frames, each of which is worth something for as long as its
// budget alone.
//
//   1. The first worker of the queue group that NATS chooses.
//   2. If that is busy, or nobody is there: of two workers with the model that the list of workers
//      has, chosen at random, the one with more free places, and again while there is budget.
//   3. After a request to the queue group has timed out, one of its workers hangs and NATS does not
//      know yet: for five seconds requests go to workers by name, and one that does not answer is
//      left alone for as long.
//
// The list of workers is what they say of themselves (worker_list.h). All functions are
// thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/status.h"
#include "serve/fleet/connection.h"
#include "serve/fleet/subscription.h"
#include "serve/fleet/worker_list.h"

namespace atollserve {

struct FrameRequest {
  std::string model;
  NatsHeaders headers;  // of the body: Content-Type, Inference-Header-Content-Length
  std::string_view body;
  std::chrono::microseconds budget{500'000};
  std::string number;  // of the frame, for people; ""
};

enum class FrameEnd {
  kAnswered,
  kLate,    // nobody answered, or had a place, within the budget
  kFailed,  // the answer is an error, or nobody has the model
};

struct FrameAnswer {
  FrameEnd end = FrameEnd::kFailed;
  std::string error;
  int code = 0;  // of the error, as HTTP has them
  std::string worker;
  std::string body;
  std::string json_bytes;  // Inference-Header-Content-Length
  int attempts = 0;
};

class FrameClient {
 public:
  // The connection outlives it.
  static atollrt::Result<std::unique_ptr<FrameClient>> Create(const FleetConnection* connection);

  // Returns within the budget, and a little more.
  FrameAnswer Infer(const FrameRequest& request);

  // Of workers that have the model now; waits for one no longer than that.
  std::vector<std::string> Workers(const std::string& model) const;

 private:
  using Clock = std::chrono::steady_clock;
  explicit FrameClient(const FleetConnection* connection) : connection_(connection) {}
  void OnWorker(natsMsg* message);
  std::string Choose(const std::string& model, const std::vector<std::string>& except);
  void LeaveAlone(const std::string& worker);
  // Because one of a queue group hangs.
  bool AsksByName() const;
  // `worker`, or with "" the queue group, once.
  atollrt::Result<natsStatus> Ask(const FrameRequest& request, const std::string& worker,
                                  std::chrono::microseconds left, NatsPtr<natsMsg>* reply) const;
  // False: it is busy, and another one may not be.
  static bool ReadReply(natsMsg* reply, FrameAnswer* answer);

  const FleetConnection* const connection_;
  mutable std::mutex mutex_;
  WorkerList workers_;
  Clock::time_point by_name_until_ = {};
  std::minstd_rand random_{std::random_device()()};
  std::unique_ptr<Subscription> subscription_;
};

}  // namespace atollserve
