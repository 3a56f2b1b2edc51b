// SPDX-License-Identifier: Apache-2.0
//
// FrameService: a worker's side of frames with deadlines. It listens, for each model, to the
// subject that all workers with that model share as a queue group, and to one of its own, and
// answers at once what it has no place for (503) or what is too late (504): nothing waits here, and
// nothing is computed that nobody wants any more.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "serve/fleet/connection.h"
#include "serve/fleet/infer_call.h"
#include "serve/fleet/records.h"
#include "serve/fleet/service.h"
#include "serve/fleet/subscription.h"
#include "serve/inference/inference_server.h"
#include "serve/oip/worker.h"

namespace atollserve {

class FrameService {
 public:
  // `places`: requests that it has at a time. Connection and server outlive it.
  FrameService(const FleetConnection* connection, InferenceServer* inference, std::string worker,
               int places);
  // Answers what it has.
  ~FrameService();

  // From now on, until Stop.
  atollrt::Status Serve(const std::string& model);
  void Stop(const std::string& model);
  // No new ones; those that have come are answered.
  void Drain();

  int places() const { return places_; }
  int free() const { return places_ - taken_; }
  FrameCounts counts() const;
  Latencies latencies() const;
  std::vector<ServiceEndpoint> endpoints() const;

 private:
  struct Model {
    ServiceEndpoint endpoint;
    std::unique_ptr<Subscription> shared, own;
  };
  class Place;
  struct Frame;
  void OnMessage(const std::string& model, natsMsg* message);
  void Read(const std::shared_ptr<Frame>& frame);
  void Answer(Frame* frame, InferReply reply);
  void Count(const Frame& frame, const InferReply& reply);

  const FleetConnection* const connection_;
  InferenceServer* const inference_;
  const std::string worker_;
  const int places_;
  std::atomic<int> taken_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  int under_way_ = 0;
  FrameCounts counts_;
  LatencyWindow latencies_;
  std::map<std::string, Model> models_;
  Worker reader_;  // of pictures and long texts
};

}  // namespace atollserve
