// SPDX-License-Identifier: Apache-2.0
//
// Producer: gives jobs to a fleet and has exactly one result of each, whatever dies in between.
//
// A job is in the spool first, then published, and leaves the spool when its result has been handed
// over; neither what the servers acknowledge nor that they recognize what they have seen before is
// relied on. One without a result after a while is published again: it may be computed twice, but
// has one result, because there can be only one message at the subject of a result.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "serve/fleet/connection.h"
#include "serve/fleet/spool.h"
#include "serve/fleet/streams.h"

namespace atollserve {

struct JobInput {
  std::string name;  // unique among those of the spool
  std::map<std::string, std::string> headers;
  std::string body;
};

struct JobResult {
  SpoolJob job;
  std::string error;  // "": it went well
  int code = 0;       // of the error, as HTTP has them
  std::string worker;
  std::string body;
  std::string json_bytes;  // Inference-Header-Content-Length
};

struct ProducerOptions {
  std::string model;
  int priority = 1;
  size_t window = 512;                     // jobs that have no result yet, at most
  int64_t publish_again_ms = 90'000;       // without a result
  std::optional<int64_t> timeout_ms = {};  // for all
};

struct ProducerCounts {
  int64_t added = 0;    // to the spool, now
  int64_t resumed = 0;  // were in it
  int64_t done = 0;
  int64_t failed = 0;     // their result is an error
  int64_t published = 0;  // each time counted
};

class Producer {
 public:
  // nullopt: there are no more.
  using NextInput = std::function<std::optional<atollrt::Result<JobInput>>()>;
  // Called once for each job, one after the other, perhaps again if the process dies before it has
  // returned. Its error ends everything.
  using OnResult = std::function<atollrt::Status(const JobResult& result)>;
  // What OnResult was called with is safe when it returns. Only then the spool forgets it.
  using OnSync = std::function<atollrt::Status()>;

  // What it gets outlives it.
  Producer(const FleetConnection* connection, const FleetStreams* streams, Spool* spool,
           ProducerOptions options);

  // What waits in the spool, and what `next` gives, until all have results. kCancelled after Stop
  // and kTimeout leave the rest in the spool; errors of the functions and the spool.
  atollrt::Status Run(const NextInput& next, const OnResult& on_result, const OnSync& on_sync);
  // From any thread.
  void Stop();

  ProducerCounts counts() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Job {
    bool is_published = false;  // since it was last to be
    bool is_busy = false;       // a thread has it
    bool is_hinted = false;     // somebody says that it has a result
    Clock::time_point due;
    Clock::time_point publish_again;
    std::chrono::milliseconds pause{0};  // until it is looked for again
  };
  atollrt::Status Fill(const NextInput& next, bool* has_more);
  void Work(const OnResult& on_result, const OnSync& on_sync);
  // Both without the lock.
  atollrt::Status Publish(const std::string& id, bool* is_final);
  atollrt::Result<std::optional<JobResult>> Look(const std::string& id) const;
  void HandOver(const JobResult& result, const OnResult& on_result, const OnSync& on_sync);
  // With hand_over_.
  atollrt::Status Forget(const OnSync& on_sync);

  const FleetConnection* const connection_;
  const FleetStreams* const streams_;
  Spool* const spool_;
  const ProducerOptions options_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Job> jobs_;
  bool all_added_ = false;
  bool stop_ = false;
  atollrt::Status failure_;
  std::string last_problem_;
  ProducerCounts counts_;
  std::mutex hand_over_;                  // for what follows
  std::vector<std::string> handed_over_;  // and still in the spool
};

}  // namespace atollserve
