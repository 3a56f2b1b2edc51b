// SPDX-License-Identifier: Apache-2.0
//
// FleetWorker: a device and models that a fleet uses: it answers frames (frames.h), does jobs
// (jobs.h), has the models that it shall have (placement.h), is a service that tools of NATS find
// (service.h), and says every two seconds, under its id in the bucket atoll_workers, what it has
// and does. Without JetStream on the servers it answers frames with the models that it was given.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "atoll/status.h"
#include "serve/fleet/connection.h"
#include "serve/fleet/frames.h"
#include "serve/fleet/jobs.h"
#include "serve/fleet/placement.h"
#include "serve/fleet/records.h"
#include "serve/fleet/service.h"
#include "serve/fleet/streams.h"
#include "serve/fleet/subscription.h"
#include "serve/inference/inference_server.h"

namespace atollserve {

struct FleetWorkerOptions {
  std::string id;  // IsWorkerId
  std::string device = "auto";
  std::string on_device_loss = "fallback";  // as of 'atoll run'
  int32_t threads = 0;
  std::vector<std::pair<std::string, std::string>> models;  // name, file
  int places = 0;  // requests at a time; 0: two for each device
  bool jobs = true;
  bool placement = true;
  std::string cache;
  uint64_t cache_bytes = uint64_t{4} << 30;
  InferenceLimits limits;
  StreamOptions streams;
};

class FleetWorker {
 public:
  // Works when it returns. Errors of the device, of options and of the given models. The connection
  // outlives it.
  static atollrt::Result<std::unique_ptr<FleetWorker>> Start(const FleetConnection* connection,
                                                             FleetWorkerOptions options);
  // Drained.
  ~FleetWorker();

  // Somebody has asked it to stop, by 'atoll fleet drain'.
  bool drain_requested() const;
  // What that calls, from a thread of the connection's.
  void OnDrainRequested(std::function<void()> call);
  // Takes nothing new, ends what it has, and is no longer in the list of workers.
  void Drain();

  WorkerRecord Record() const;
  const InferenceServer& inference() const { return *inference_; }

 private:
  FleetWorker(const FleetConnection* connection, FleetWorkerOptions options);
  // Of Start.
  atollrt::Status LoadModels(int devices, int places);
  void KeepModels();
  atollrt::Status Listen();

  void Serve(const std::string& model);
  void OnDrain(const natsMsg* message);
  void Tell();

  const FleetConnection* const connection_;
  const FleetWorkerOptions options_;
  const FleetStreams streams_;
  const MonotonicTime started_;
  std::unique_ptr<InferenceServer> inference_;
  std::vector<std::pair<std::string, std::string>> own_digests_;  // model, SHA-256
  std::unique_ptr<FrameService> frames_;
  std::unique_ptr<JobRunner> jobs_;
  std::unique_ptr<ModelKeeper> keeper_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<Subscription> drain_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool draining_ = false;
  bool drained_ = false;
  bool drain_requested_ = false;
  std::function<void()> on_drain_;
  std::thread teller_;
};

}  // namespace atollserve
