// SPDX-License-Identifier: Apache-2.0
//
// JobRunner: a worker's side of jobs that must not get lost. It takes as many from the queue as it
// has places, says of each, while it has it, that it still has it, computes, stores the result
// under the condition that there is none yet, and then acknowledges. Whatever ends this in between
// makes somebody compute again, and their result be refused: that counts as done.
//
//   a malformed job             its result is the error
//   the device is lost          back into the queue, for later; nothing is taken until it is back
//   given out for the last time  its result is the error
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "atoll/status.h"
#include "serve/fleet/connection.h"
#include "serve/fleet/infer_call.h"
#include "serve/fleet/records.h"
#include "serve/fleet/streams.h"
#include "serve/inference/inference_server.h"

namespace atollserve {

// Stores the result of a job, unless it has one: then `*was_there`. kInvalidArgument: too large;
// errors of the servers. Says to whoever waits that it is stored.
atollrt::Status StoreResult(const FleetConnection& connection, const std::string& job,
                            const InferReply& reply, const std::string& worker, bool* was_there);

class JobRunner {
 public:
  // `places`: jobs that it has at a time. What it gets outlives it.
  JobRunner(const FleetConnection* connection, const FleetStreams* streams,
            InferenceServer* inference, std::string worker, int places);
  // Drained.
  ~JobRunner();

  void Serve(const std::string& model);
  void Stop(const std::string& model);
  // Takes no more, ends those that it computes, gives the others back.
  void Drain();

  JobCounts counts() const;
  bool device_lost() const;

 private:
  struct Job;
  struct Fetcher;
  void Fetch(Fetcher* fetcher);
  bool FetchOnce(Fetcher* fetcher);
  bool MayFetch(const Fetcher& fetcher) const;
  void Run();
  void Process(const std::shared_ptr<Job>& job);
  InferOutcome Infer(InferRequest request);
  void Finish(const std::shared_ptr<Job>& job, const InferReply& reply);
  void Return(const std::shared_ptr<Job>& job, const atollrt::Status& why, int64_t delay_ms);
  void Release(const std::shared_ptr<Job>& job);
  void Beat();

  const FleetConnection* const connection_;
  const FleetStreams* const streams_;
  InferenceServer* const inference_;
  const std::string worker_;
  const int places_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;  // takes no more
  bool end_ = false;   // has none, and gets none
  std::deque<std::shared_ptr<Job>> queue_;
  std::set<std::shared_ptr<Job>> held_;  // queued and running
  std::map<std::string, std::vector<std::unique_ptr<Fetcher>>> fetchers_;
  MonotonicTime device_away_until_ = {};
  bool device_lost_ = false;
  JobCounts counts_;
  std::vector<std::thread> threads_;
};

}  // namespace atollserve
