// SPDX-License-Identifier: Apache-2.0
//
// The streams, consumers and buckets of a fleet, which whoever needs them makes where they are
// missing: also after the servers have lost them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "atoll/status.h"
#include "serve/fleet/connection.h"

namespace atollserve {

// The same for all of a fleet: who comes first makes them so.
struct StreamOptions {
  int replicas = 0;                         // 0: 3, or 1 without a cluster
  int64_t work_bytes = int64_t{1} << 30;    // of jobs that wait; more are refused
  int64_t result_bytes = int64_t{4} << 30;  // of results
  int64_t ack_wait_ms = 30'000;             // a job that nobody has spoken of for so long is given
                                            // to somebody else
  int max_deliver = 5;                      // times that a job is given to somebody
};

class FleetStreams {
 public:
  FleetStreams(const FleetConnection* connection, StreamOptions options)
      : connection_(connection), options_(options) {}

  const StreamOptions& options() const { return options_; }

  // Once: what is there is left as it is. kNotFound and kTimeout while the servers have no leader,
  // or no JetStream; kResourceExhausted without room.
  atollrt::Status Ensure() const;
  // For jobs of all priorities. After Ensure.
  atollrt::Status EnsureConsumers(const std::string& model) const;
  // Of the jobs that were given up.
  atollrt::Status EnsureDeadConsumer() const;
  // The same until it succeeds or `timeout_ms` have passed.
  atollrt::Status EnsureWithin(int64_t timeout_ms) const;

  // Makes the bucket of models a mirror of that of another JetStream `domain`: what is stored there
  // comes here by itself, and stays here while the link is cut. In the place of one that has
  // nothing; kInvalidArgument of one that has models of its own. One that is a mirror already is
  // left as it is, or made `anew`.
  atollrt::Status MirrorModels(const std::string& domain, bool anew) const;
  // The sequence of the last message in the bucket of models.
  atollrt::Result<uint64_t> LastModelSequence() const;
  // kInvalidArgument, with where it is, if models are stored in another domain than this one.
  atollrt::Status CheckHasOwnModels() const;

  // A bucket of keys and values, or of models, which must be there.
  atollrt::Result<NatsPtr<kvStore>> OpenBucket(const char* name) const;

 private:
  atollrt::Status EnsureStream(jsStreamConfig* config) const;
  // The stream of the bucket of models; null: there is none.
  atollrt::Result<NatsPtr<jsStreamInfo>> ModelStream() const;

  const FleetConnection* const connection_;
  const StreamOptions options_;
};

inline constexpr const char* kDeadConsumer = "atoll_sweeper";

// Whether an error will go away by itself: no leader, no connection, an answer that did not come.
bool IsPassing(const atollrt::Status& status);

inline const atollrt::Status& StatusOf(const atollrt::Status& status) { return status; }
template <typename T>
const atollrt::Status& StatusOf(const atollrt::Result<T>& result) {
  return result.status();
}

// What `call` gives, a Status or a Result; again until it is none of these errors, or for so long.
template <typename Call>
auto TryFor(std::chrono::milliseconds time, const Call& call) {
  const auto until = std::chrono::steady_clock::now() + time;
  while (true) {
    auto given = call();
    const atollrt::Status& status = StatusOf(given);
    if (status.ok() || !IsPassing(status) || std::chrono::steady_clock::now() >= until) {
      return given;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
  }
}

}  // namespace atollserve
