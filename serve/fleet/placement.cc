// SPDX-License-Identifier: Apache-2.0
#include "serve/fleet/placement.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "serve/fleet/subjects.h"

namespace atollserve {
namespace {

using atollrt::NotFound;
using atollrt::Result;
using atollrt::Status;
using atollrt::StatusCode;

constexpr auto kLookEvery = std::chrono::seconds(5);
// After a hint: what it was about may not be there yet when it is heard.
constexpr auto kLookSoon = std::chrono::milliseconds(300);
constexpr int kLooksPerHint = 3;
constexpr size_t kMaxObjects = 10'000;

std::string Hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace

ModelKeeper::ModelKeeper(const FleetConnection* connection, const FleetStreams* streams,
                         InferenceServer* inference, ModelKeeperOptions options)
    : connection_(connection),
      streams_(streams),
      inference_(inference),
      options_(std::move(options)),
      store_(connection, kModelBucket),
      cache_(options_.cache, options_.cache_bytes) {
  const auto hint = [this](natsMsg*) {
    const std::lock_guard lock(mutex_);
    hints_ = kLooksPerHint;
    changed_.notify_all();
  };
  for (const std::string& subject :
       {KeySubject(kPlacementBucket, "*"), std::string("$O.") + kModelBucket + ".M.*"}) {
    auto made = Subscription::Start(connection_, subject, "", hint);
    // Without them it looks now and then.
    if (made.ok()) subscriptions_.push_back(*std::move(made));
  }
  thread_ = std::thread([this] { Run(); });
}

ModelKeeper::~ModelKeeper() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
  subscriptions_.clear();
}

std::map<std::string, std::string> ModelKeeper::digests() const {
  const std::lock_guard lock(mutex_);
  return digests_;
}

std::vector<std::string> ModelKeeper::problems() const {
  const std::lock_guard lock(mutex_);
  return problems_;
}

void ModelKeeper::Run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    lock.unlock();
    (void)Look();
    lock.lock();
    if (hints_ > 0) {
      --hints_;
      changed_.wait_for(lock, kLookSoon, [&] { return stop_; });
    } else {
      changed_.wait_for(lock, kLookEvery, [&] { return stop_ || hints_ > 0; });
    }
  }
}

Result<std::vector<PlacedModel>> ModelKeeper::Wanted() const {
  ATOLL_ASSIGN_OR_RETURN(const NatsPtr<kvStore> store, streams_->OpenBucket(kPlacementBucket));
  for (const char* key : {options_.worker.c_str(), kDefaultPlacement}) {
    NatsPtr<kvEntry> entry;
    const natsStatus status = kvStore_Get(NatsOut(&entry), store.get(), key);
    if (status == NATS_NOT_FOUND) continue;
    if (status != NATS_OK) return NatsStatus(status, "placement");
    auto placed = ParsePlacement({static_cast<const char*>(kvEntry_Value(entry.get())),
                                  static_cast<size_t>(kvEntry_ValueLen(entry.get()))});
    if (!placed.ok()) return std::move(placed).status().WithContext(key);
    return placed;
  }
  return std::vector<PlacedModel>();
}

Result<ObjectInfo> ModelKeeper::Find(const PlacedModel& model) const {
  if (model.version > 0) return store_.Info(ModelObjectName(model.name, model.version));
  ATOLL_ASSIGN_OR_RETURN(const std::vector<ObjectInfo> all, store_.List(kMaxObjects));
  const ObjectInfo* newest = nullptr;
  int64_t version = 0;
  for (const ObjectInfo& info : all) {
    const auto found = ParseModelObjectName(info.name);
    if (found && found->name == model.name && found->version > version) {
      newest = &info;
      version = found->version;
    }
  }
  if (newest == nullptr) {
    return NotFound("there is no model '%s' in the bucket %s; 'atoll fleet models put' stores one",
                    model.name.c_str(), kModelBucket);
  }
  return *newest;
}

Result<std::string> ModelKeeper::FetchFile(const ObjectInfo& info) const {
  const std::string digest = Hex(info.sha256);
  if (info.size <= options_.limits.model_bytes) {
    if (auto bytes = cache_.Find(digest, info.size)) return *std::move(bytes);
  }
  ATOLL_ASSIGN_OR_RETURN(std::string bytes, store_.Get(info, options_.limits.model_bytes));
  cache_.Keep(digest, bytes);
  return bytes;
}

Status ModelKeeper::LoadFile(const PlacedModel& model, const ObjectInfo& info) {
  ATOLL_ASSIGN_OR_RETURN(std::string bytes, FetchFile(info));
  ModelUpload upload;
  upload.files[std::to_string(model.version) + "/model.tflite"] = std::move(bytes);
  return inference_->Load(model.name, std::move(upload));
}

Result<bool> ModelKeeper::LoadCompiled(const PlacedModel& model, const ObjectInfo& original) {
  if (options_.form.empty()) return false;
  const auto info = store_.Info(CompiledObjectName(model.name, model.version, options_.form));
  if (info.status().code() == StatusCode::kNotFound) return false;
  if (!info.ok()) return info.status();
  if (info->made_from != original.sha256) {
    return atollrt::InvalidArgument("it was made from another file than the model's");
  }
  ATOLL_RETURN_IF_ERROR(LoadFile(model, *info));
  return true;
}

Status ModelKeeper::Load(const PlacedModel& model) {
  if (options_.others.contains(model.name)) {
    return atollrt::InvalidArgument("model '%s' is one of the worker's own (--model)",
                                    model.name.c_str());
  }
  ATOLL_ASSIGN_OR_RETURN(const ObjectInfo info, Find(model));
  // Another version of the same bytes is another model to those who ask.
  const std::string digest = Hex(info.sha256);
  const int64_t version = ParseModelObjectName(info.name)->version;
  const auto loaded = inference_->Info(model.name, "");
  {
    const std::lock_guard lock(mutex_);
    const auto found = digests_.find(model.name);
    if (found != digests_.end() && found->second == digest && loaded.ok() &&
        (*loaded)->version == std::to_string(version)) {
      return {};
    }
  }
  const PlacedModel numbered = {.name = model.name, .version = version};
  const Result<bool> compiled = LoadCompiled(numbered, info);
  const bool is_compiled = compiled.ok() && *compiled;
  if (!is_compiled) ATOLL_RETURN_IF_ERROR(LoadFile(numbered, info));
  {
    const std::lock_guard lock(mutex_);
    digests_[model.name] = digest;
  }
  std::string sentence =
      "model '" + model.name + "', version " + std::to_string(version) + ", is loaded";
  if (is_compiled) sentence += ", compiled for " + options_.form;
  if (!compiled.ok()) {
    sentence +=
        "; what was compiled for " + options_.form + " is not used: " + compiled.status().message();
  }
  connection_->Say(sentence);
  options_.serving(model.name);
  return {};
}

bool ModelKeeper::Look() {
  const auto wanted = Wanted();
  if (!wanted.ok()) {
    if (IsPassing(wanted.status())) {
      // The bucket may be missing.
      (void)streams_->Ensure();
    } else {
      const std::lock_guard lock(mutex_);
      problems_ = {wanted.status().message()};
    }
    return false;
  }
  std::vector<std::string> gone;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& one : digests_) {
      const std::string& name = one.first;
      const bool stays = std::any_of((*wanted).begin(), (*wanted).end(),
                                     [&](const PlacedModel& model) { return model.name == name; });
      if (!stays) gone.push_back(name);
    }
  }
  for (const std::string& name : gone) {
    options_.stopping(name);
    (void)inference_->Unload(name);
    connection_->Say("model '" + name + "' is unloaded");
    const std::lock_guard lock(mutex_);
    digests_.erase(name);
  }
  std::vector<std::string> problems;
  for (const PlacedModel& model : *wanted) {
    const Status status = Load(model);
    if (!status.ok()) problems.push_back(model.name + ": " + status.message());
  }
  const std::lock_guard lock(mutex_);
  if (problems != problems_) {
    for (const std::string& problem : problems) connection_->Say(problem);
  }
  problems_ = std::move(problems);
  return true;
}

}  // namespace atollserve
