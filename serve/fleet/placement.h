// SPDX-License-Identifier: Apache-2.0
//
// ModelKeeper: has the models that a worker shall have: what the key of its id, or else the key
// `default`, of the bucket atoll_placement names, of the versions that the bucket atoll_models has.
// A model whose file has the same SHA-256 as the one that is loaded is not fetched; one that was
// fetched before comes from a folder, if there is one. Where the bucket has the model compiled for
// the worker's device, that is what it loads, unless something is wrong with it. What is fetched is
// hostile: it is checked as what clients upload to a server, with the same limits.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "atoll/status.h"
#include "serve/fleet/connection.h"
#include "serve/fleet/model_cache.h"
#include "serve/fleet/objects.h"
#include "serve/fleet/records.h"
#include "serve/fleet/streams.h"
#include "serve/fleet/subscription.h"
#include "serve/inference/inference_server.h"

namespace atollserve {

struct ModelKeeperOptions {
  std::string worker;
  std::string form;              // of its device (compiled_forms.h); ""
  std::string cache;             // folder of a ModelCache; "": none
  uint64_t cache_bytes = 0;      // that it has at most
  std::set<std::string> others;  // models that are none of its business
  InferenceLimits limits;
  // From its thread: a model can be asked for now; it will not be there any more.
  std::function<void(const std::string&model)> serving, stopping;
};

class ModelKeeper {
 public:
  // Looks from now on. What it gets outlives it.
  ModelKeeper(const FleetConnection* connection, const FleetStreams* streams,
              InferenceServer* inference, ModelKeeperOptions options);
  ~ModelKeeper();

  // In hexadecimal, of the models that it has loaded.
  std::map<std::string, std::string> digests() const;
  // Sentences on models that should be there and are not.
  std::vector<std::string> problems() const;

 private:
  void Run();
  // False if it could not be found out what there should be.
  bool Look();
  atollrt::Result<std::vector<PlacedModel>> Wanted() const;
  atollrt::Result<ObjectInfo> Find(const PlacedModel& model) const;
  atollrt::Status Load(const PlacedModel& model);
  // `model` has the version that it stands for. False: there is no form for the device.
  atollrt::Result<bool> LoadCompiled(const PlacedModel& model, const ObjectInfo& original);
  atollrt::Status LoadFile(const PlacedModel& model, const ObjectInfo& info);
  atollrt::Result<std::string> FetchFile(const ObjectInfo& info) const;

  const FleetConnection* const connection_;
  const FleetStreams* const streams_;
  InferenceServer* const inference_;
  const ModelKeeperOptions options_;
  const ObjectStore store_;
  const ModelCache cache_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  int hints_ = 0;  // looks that are worthwhile soon
  std::map<std::string, std::string> digests_;
  std::vector<std::string> problems_;
  std::vector<std::unique_ptr<Subscription>> subscriptions_;
  std::thread thread_;
};

}  // namespace atollserve
