// SPDX-License-Identifier: Apache-2.0
#include "serve/fleet/fleet_worker.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <fstream>
#include <iterator>
#include <set>

#include "atoll/runtime.h"
#include "runtime/base/sha256.h"
#include "serve/fleet/compiled_forms.h"
#include "serve/fleet/subjects.h"

namespace atollserve {
namespace {

using atollrt::InvalidArgument;
using atollrt::Result;
using atollrt::Status;
using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr auto kTellEvery = std::chrono::seconds(2);
constexpr auto kDrainFor = std::chrono::seconds(30);
constexpr int kPlacesPerDevice = 2;

std::string FileDigest(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  return atollrt::Sha256Hex(bytes.data(), bytes.size());
}

// "0.1.0" of "0.1.0-dev"
std::string SemanticVersion() {
  const std::string version = AtollVersion();
  return version.substr(0, version.find_first_not_of("0123456789."));
}

}  // namespace

FleetWorker::FleetWorker(const FleetConnection* connection, FleetWorkerOptions options)
    : connection_(connection),
      options_(std::move(options)),
      streams_(connection, options_.streams),
      started_(steady_clock::now()) {}

Result<std::unique_ptr<FleetWorker>> FleetWorker::Start(const FleetConnection* connection,
                                                        FleetWorkerOptions options) {
  if (!IsWorkerId(options.id)) {
    return InvalidArgument("a worker's id is 1 to 64 letters, digits, '-' and '_', but not '%s'",
                           options.id.substr(0, 100).c_str());
  }
  for (const auto& [name, path] : options.models) {
    if (!IsFleetModelName(name)) {
      return InvalidArgument("'%s' is no name of a model for a fleet", name.substr(0, 100).c_str());
    }
  }
  std::unique_ptr<FleetWorker> worker(new FleetWorker(connection, std::move(options)));
  const FleetWorkerOptions& has = worker->options_;
  const int devices = 1 + static_cast<int>(std::count(has.device.begin(), has.device.end(), ','));
  const int places = has.places > 0 ? has.places : kPlacesPerDevice * devices;
  ATOLL_RETURN_IF_ERROR(worker->LoadModels(devices, places));
  worker->frames_ =
      std::make_unique<FrameService>(connection, worker->inference_.get(), has.id, places);
  if (has.jobs) {
    worker->jobs_ = std::make_unique<JobRunner>(connection, &worker->streams_,
                                                worker->inference_.get(), has.id, places);
  }
  for (const auto& [name, path] : has.models) worker->Serve(name);
  if (has.placement) worker->KeepModels();
  ATOLL_RETURN_IF_ERROR(worker->Listen());
  worker->teller_ = std::thread([self = worker.get()] { self->Tell(); });
  return worker;
}

Status FleetWorker::LoadModels(int devices, int places) {
  InferenceServerOptions server;
  server.device = options_.device;
  server.on_device_loss = options_.on_device_loss;
  server.threads = options_.threads;
  server.instances = devices;
  server.models = options_.models;
  server.control = ModelControl::kExplicit;
  server.limits = options_.limits;
  server.limits.queue = std::max<size_t>(server.limits.queue, static_cast<size_t>(places) * 2);
  ATOLL_ASSIGN_OR_RETURN(inference_, InferenceServer::Create(std::move(server)));
  for (const ModelEntry& entry : inference_->Index()) {
    if (entry.state != ModelState::kReady) {
      return Status(atollrt::StatusCode::kCorruptModel, entry.name + ": " + entry.reason);
    }
  }
  for (const auto& [name, path] : options_.models) {
    own_digests_.emplace_back(name, FileDigest(path));
  }
  return {};
}

void FleetWorker::KeepModels() {
  ModelKeeperOptions keeper;
  keeper.worker = options_.id;
  keeper.form = FormOf(inference_->device(), inference_->device_details());
  keeper.cache = options_.cache;
  keeper.cache_bytes = options_.cache_bytes;
  keeper.limits = options_.limits;
  for (const auto& [name, path] : options_.models) keeper.others.insert(name);
  keeper.serving = [this](const std::string& model) { Serve(model); };
  keeper.stopping = [this](const std::string& model) {
    frames_->Stop(model);
    if (jobs_ != nullptr) jobs_->Stop(model);
  };
  keeper_ =
      std::make_unique<ModelKeeper>(connection_, &streams_, inference_.get(), std::move(keeper));
}

Status FleetWorker::Listen() {
  ATOLL_ASSIGN_OR_RETURN(
      service_,
      Service::Start(connection_, {.name = "atoll",
                                   .id = options_.id,
                                   .version = SemanticVersion(),
                                   .description = inference_->device().description,
                                   .endpoints = [this] { return frames_->endpoints(); }}));
  ATOLL_ASSIGN_OR_RETURN(drain_,
                         Subscription::Start(connection_, DrainSubject(options_.id), "",
                                             [this](natsMsg* message) { OnDrain(message); }));
  return {};
}

void FleetWorker::OnDrain(const natsMsg* message) {
  const std::string_view reply = ReplySubjectOf(message);
  if (!reply.empty()) {
    (void)connection_->Publish(std::string(reply), {}, "{\"draining\":true}");
  }
  std::function<void()> call;
  {
    const std::lock_guard lock(mutex_);
    drain_requested_ = true;
    call = on_drain_;
  }
  if (call) call();
}

FleetWorker::~FleetWorker() {
  Drain();
  drain_.reset();
  {
    const std::lock_guard lock(mutex_);
    drained_ = true;
    changed_.notify_all();
  }
  if (teller_.joinable()) teller_.join();
}

bool FleetWorker::drain_requested() const {
  const std::lock_guard lock(mutex_);
  return drain_requested_;
}

void FleetWorker::OnDrainRequested(std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  on_drain_ = std::move(call);
}

void FleetWorker::Serve(const std::string& model) {
  if (const Status status = frames_->Serve(model); !status.ok()) {
    connection_->Say(status.message());
  }
  if (jobs_ != nullptr) jobs_->Serve(model);
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void FleetWorker::Drain() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(draining_, true)) return;
    changed_.notify_all();
  }
  keeper_.reset();
  if (frames_ != nullptr) frames_->Drain();
  if (jobs_ != nullptr) jobs_->Drain();
  if (inference_ != nullptr) (void)inference_->Drain(duration_cast<milliseconds>(kDrainFor));
  {
    const std::lock_guard lock(mutex_);
    drained_ = true;
    changed_.notify_all();
  }
  if (teller_.joinable()) teller_.join();
  service_.reset();
}

WorkerRecord FleetWorker::Record() const {
  WorkerRecord record;
  record.worker = options_.id;
  std::array<char, HOST_NAME_MAX + 1> host = {};
  (void)gethostname(host.data(), host.size() - 1);
  record.host = host.data();
  record.pid = getpid();
  record.version = AtollVersion();
  const AtollDeviceInfo device = inference_->device();
  record.device = device.name;
  record.device_description = device.description;
  record.device_emulated = inference_->device_emulated();
  record.device_losses = inference_->device_health().losses;
  record.device_lost = jobs_ != nullptr && jobs_->device_lost();
  record.up_ms = duration_cast<milliseconds>(steady_clock::now() - started_).count();
  record.places = frames_->places();
  record.free = frames_->free();
  record.frames = frames_->counts();
  record.latencies = frames_->latencies();
  if (jobs_ != nullptr) record.jobs = jobs_->counts();
  std::map<std::string, std::string> digests(own_digests_.begin(), own_digests_.end());
  {
    const std::lock_guard lock(mutex_);
    record.draining = draining_;
    if (!draining_ && keeper_ != nullptr) {
      digests.merge(keeper_->digests());
      record.problems = keeper_->problems();
    }
  }
  for (const ModelEntry& entry : inference_->Index()) {
    const auto info = inference_->Info(entry.name, "");
    if (!info.ok()) continue;
    record.models.push_back({.name = entry.name,
                             .version = (*info)->version,
                             .sha256 = digests[entry.name],
                             .inputs = (*info)->inputs,
                             .outputs = (*info)->outputs});
  }
  return record;
}

// Until it is drained; then it is taken from the list.
void FleetWorker::Tell() {
  const std::string subject = KeySubject(kWorkerBucket, options_.id);
  std::unique_lock lock(mutex_);
  while (!drained_) {
    lock.unlock();
    (void)connection_->Publish(subject, {}, WorkerJson(Record()));
    lock.lock();
    if (!drained_) changed_.wait_for(lock, kTellEvery);
  }
  lock.unlock();
  (void)connection_->Publish(subject, {{"KV-Operation", "DEL"}}, "");
  connection_->Flush(2000);
}

}  // namespace atollserve
