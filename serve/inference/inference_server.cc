// SPDX-License-Identifier: Apache-2.0
#include "serve/inference/inference_server.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <thread>
#include <utility>

#include "atoll/atoll.hpp"
#include "runtime/base/sha256.h"
#include "serve/inference/loaded_model.h"
#include "serve/inference/model_files.h"

namespace atollserve {
namespace {

using atollrt::Format;
using atollrt::NotFound;
using atollrt::Result;
using atollrt::Status;
using atollrt::StatusCode;

std::string Shown(std::string_view name) { return std::string(name.substr(0, 100)); }

// In the words that clients of Triton look for.
Status UnknownModel(std::string_view name) {
  return NotFound("Request for unknown model: there is no model '%s'", Shown(name).c_str());
}

bool IsExecutable(std::string_view name) { return name.starts_with(kExecutablePrefix); }

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// What other programs must know to compile for the device.
std::shared_ptr<const ModelInfo> DescribeDevice(const AtollDelegate* delegate,
                                                const AtollDeviceInfo& device) {
  AtollDeviceDetails details = {};
  (void)AtollDelegateGetDeviceDetails(delegate, &details);
  ModelInfo info;
  info.name = kDeviceModel;
  info.version = "1";
  info.versions = {"1"};
  const auto number = [](long long value) { return std::to_string(value); };
  info.properties = {{"name", device.name},
                     {"description", device.description},
                     {"family", details.family},
                     {"array_rows", number(device.array_rows)},
                     {"array_columns", number(device.array_columns)},
                     {"isa_version", number(details.isa_version)},
                     {"memory_bytes", number(device.memory_bytes)},
                     {"program_memory_bytes", number(details.program_memory_bytes)},
                     {"clock_hz", number(device.clock_hz)},
                     {"link_bytes_per_second", number(device.link_bytes_per_second)},
                     {"request_timeout_min_ms", number(details.request_timeout_min_ms)},
                     {"host_ns", number(static_cast<long long>(details.host_seconds * 1e9))},
                     {"emulated", number(AtollDelegateIsEmulated(delegate) != 0)}};
  return std::make_shared<const ModelInfo>(std::move(info));
}

class Server : public InferenceServer {
 public:
  Server(InferenceServerOptions options, atollpp::Delegate delegate, AtollDeviceInfo info)
      : options_(std::move(options)),
        delegate_(std::move(delegate)),
        device_(info),
        device_model_(options_.share_device ? DescribeDevice(delegate_.get(), device_) : nullptr),
        reaper_([this] { Reap(); }) {}

  ~Server() override {
    std::map<std::string, Model, std::less<>> models;
    {
      const std::unique_lock lock(mutex_);
      draining_ = true;
      models.swap(models_);
    }
    for (auto& [name, model] : models) Retire(model.versions, /*cancels=*/true);
    {
      const std::lock_guard lock(reaper_mutex_);
      stop_ = true;
      // Those that were replaced before, too.
      for (const auto& loaded : dying_) loaded->CancelAll();
    }
    reaper_wakes_.notify_all();
    reaper_.join();
  }

  Status LoadAll() {
    std::vector<std::string> names;
    if (!options_.model_folder.empty()) {
      ATOLL_ASSIGN_OR_RETURN(names, ListModels(options_.model_folder));
    }
    for (const auto& [name, path] : options_.models) {
      (void)LoadFiles(name, SingleModel(name, path));
    }
    for (const std::string& name : names) {
      (void)LoadFiles(name, FindModel(options_.model_folder, name, {}, options_.limits));
    }
    return {};
  }

  CancelFunction Infer(InferRequest request, InferCallback done) override {
    CancelFunction cancel = [] {};
    Status failure;
    // One that is retired between the two has a successor, or there is no such model any more.
    while (true) {
      if (draining_) {
        failure = Status(StatusCode::kResourceExhausted, "the server is about to end");
        break;
      }
      auto loaded = Find(request.model, request.version);
      if (!loaded.ok()) {
        failure = std::move(loaded).status();
        break;
      }
      if ((*loaded)->Submit(&request, &done, &cancel)) return cancel;
    }
    InferOutcome outcome = {.status = std::move(failure),
                            .model = request.model,
                            .version = request.version,
                            .outputs = {},
                            .times = {},
                            .device_cycles = 0,
                            .retry_after = {}};
    if (outcome.status.code() == StatusCode::kResourceExhausted) {
      outcome.retry_after = std::chrono::milliseconds(1000);
    }
    done(std::move(outcome));
    return cancel;
  }

  bool ready() const override {
    const std::shared_lock lock(mutex_);
    return !draining_ && std::all_of(models_.begin(), models_.end(), [](const auto& model) {
      return model.second.state == ModelState::kReady;
    });
  }
  bool ModelReady(std::string_view model, std::string_view version) const override {
    if (device_model_ != nullptr && model == kDeviceModel) return !draining_;
    return !draining_ && Find(model, version).ok();
  }

  Result<std::shared_ptr<const ModelInfo>> Info(std::string_view model,
                                                std::string_view version) const override {
    if (device_model_ != nullptr && model == kDeviceModel) return device_model_;
    ATOLL_ASSIGN_OR_RETURN(const std::shared_ptr<LoadedModel> loaded, Find(model, version));
    return loaded->info();
  }

  Result<std::vector<ModelStatistics>> Statistics(std::string_view model,
                                                  std::string_view version) const override {
    std::vector<ModelStatistics> all;
    if (!version.empty()) {
      ATOLL_ASSIGN_OR_RETURN(const std::shared_ptr<LoadedModel> loaded, Find(model, version));
      all.push_back(loaded->statistics());
      return all;
    }
    const std::shared_lock lock(mutex_);
    for (const auto& [name, one] : models_) {
      if (!model.empty() && name != model) continue;
      for (const auto& [number, loaded] : one.versions) all.push_back(loaded->statistics());
    }
    if (!model.empty() && all.empty()) {
      return UnknownModel(model);
    }
    return all;
  }

  std::vector<ModelEntry> Index() const override {
    std::vector<ModelEntry> index;
    std::set<std::string> others;
    if (!options_.model_folder.empty()) {
      if (auto names = ListModels(options_.model_folder); names.ok()) {
        others.insert(names->begin(), names->end());
      }
    }
    const std::shared_lock lock(mutex_);
    for (const auto& [name, model] : models_) {
      others.erase(name);
      for (const auto& [number, loaded] : model.versions) {
        index.push_back({.name = name,
                         .version = std::to_string(number),
                         .state = ModelState::kReady,
                         .reason = ""});
      }
      if (model.versions.empty()) {
        index.push_back(
            {.name = name, .version = "", .state = model.state, .reason = model.reason});
      }
    }
    for (const std::string& name : others) {
      const auto unloaded = unloaded_.find(name);
      index.push_back({.name = name,
                       .version = "",
                       .state = ModelState::kUnavailable,
                       .reason = unloaded != unloaded_.end() ? "unloaded" : "not loaded"});
    }
    return index;
  }

  std::vector<ActiveRequest> Active() const override {
    std::vector<ActiveRequest> active;
    const std::shared_lock lock(mutex_);
    for (const auto& [name, model] : models_) {
      for (const auto& [number, loaded] : model.versions) loaded->AddActive(&active);
    }
    return active;
  }

  Status MayLoad(std::string_view model) const override {
    if (!IsExecutable(model)) return CheckControl();
    if (options_.share_device) return {};
    return Status(StatusCode::kPermissionDenied,
                  "this server does not share its device; that needs --share-device");
  }

  Status Load(const std::string& model, ModelUpload upload) override {
    ATOLL_RETURN_IF_ERROR(MayLoad(model));
    if (IsExecutable(model)) return LoadExecutable(model, std::move(upload));
    if (!IsModelName(model) || model == kDeviceModel) {
      return atollrt::InvalidArgument("this is no name of a model");
    }
    const auto single =
        std::find_if(options_.models.begin(), options_.models.end(),
                     [&](const auto& one) { return one.first == model && upload.files.empty(); });
    Status status = single != options_.models.end()
                        ? LoadFiles(model, SingleModel(model, single->second))
                        : LoadFiles(model, FindModel(options_.model_folder, model,
                                                     std::move(upload), options_.limits));
    if (status.ok()) return status;
    return std::move(status).WithContext("failed to load '" + model + "'");
  }

  Status Unload(const std::string& model) override {
    // Others may use it, too; it makes room when that is needed.
    if (options_.share_device && IsExecutable(model)) return {};
    ATOLL_RETURN_IF_ERROR(CheckControl());
    Versions versions;
    {
      const std::unique_lock lock(mutex_);
      const auto found = models_.find(model);
      if (found == models_.end()) {
        return NotFound("Request for unknown model: there is no model '%s' to unload",
                        Shown(model).c_str());
      }
      versions = std::move(found->second.versions);
      models_.erase(found);
      // Others are forgotten: clients may make up any number of names.
      if (HasFolder(options_.model_folder, model)) unloaded_.insert(model);
    }
    Retire(versions, /*cancels=*/false);
    return {};
  }

  ModelControl control() const override { return options_.control; }
  AtollDeviceInfo device() const override { return device_; }
  AtollDeviceDetails device_details() const override {
    AtollDeviceDetails details = {};
    details.family = "";
    if (delegate_.get() != nullptr) {
      (void)AtollDelegateGetDeviceDetails(delegate_.get(), &details);
    }
    return details;
  }
  AtollDeviceHealth device_health() const override {
    AtollDeviceHealth health = {};
    if (delegate_.get() != nullptr) (void)AtollDelegateGetDeviceHealth(delegate_.get(), &health);
    return health;
  }
  bool device_emulated() const override { return AtollDelegateIsEmulated(delegate_.get()) != 0; }

  bool Drain(std::chrono::milliseconds timeout) override {
    draining_ = true;
    const MonotonicTime until = std::chrono::steady_clock::now() + timeout;
    std::vector<std::shared_ptr<LoadedModel>> all;
    {
      const std::shared_lock lock(mutex_);
      for (const auto& [name, model] : models_) {
        for (const auto& [number, loaded] : model.versions) all.push_back(loaded);
      }
    }
    {
      const std::lock_guard lock(reaper_mutex_);
      all.insert(all.end(), dying_.begin(), dying_.end());
    }
    bool idle = true;
    for (const auto& loaded : all) idle = loaded->WaitIdle(until) && idle;
    return idle;
  }

 private:
  using Versions = std::map<int64_t, std::shared_ptr<LoadedModel>>;
  struct Model {
    Versions versions;
    ModelState state = ModelState::kLoading;
    std::string reason;
    int64_t loaded_ms = 0;
  };

  // Does nothing if it is there.
  Status LoadExecutable(const std::string& name, ModelUpload upload) {
    if (Find(name, "").ok()) return {};
    const auto file = upload.files.find("1/model.tflite");
    if (file == upload.files.end() || upload.files.size() != 1) {
      return atollrt::InvalidArgument("an executable comes as the one file 1/model.tflite");
    }
    const std::string digest = atollrt::Sha256Hex(file->second.data(), file->second.size());
    if (name.substr(kExecutablePrefix.size()) != digest) {
      return atollrt::InvalidArgument("the file's SHA-256 is %s, not what its name '%s' says",
                                      digest.c_str(), Shown(name).c_str());
    }
    upload.config.reset();
    Status status = LoadFiles(name, FindModel("", name, std::move(upload), options_.limits));
    if (status.ok()) return status;
    return std::move(status).WithContext("failed to load an executable");
  }

  // Makes room for one more of its kind; with the mutex held. What is taken out is in `out`, and
  // ends with the requests that it has.
  Status MakeRoom(const std::string& name, Versions* out) {
    const bool is_executable = IsExecutable(name);
    size_t there = 0;
    auto oldest = models_.end();
    int64_t oldest_ms = 0;
    for (auto one = models_.begin(); one != models_.end(); ++one) {
      if (IsExecutable(one->first) != is_executable) continue;
      ++there;
      if (!is_executable || one->second.versions.empty()) continue;
      const ModelStatistics statistics = one->second.versions.rbegin()->second->statistics();
      const int64_t used_ms = std::max(one->second.loaded_ms, statistics.last_inference_ms);
      if (oldest == models_.end() || used_ms < oldest_ms) {
        oldest = one;
        oldest_ms = used_ms;
      }
    }
    const size_t most = is_executable ? options_.limits.executables : options_.limits.models;
    if (there < most) return {};
    if (oldest != models_.end()) {
      *out = std::move(oldest->second.versions);
      models_.erase(oldest);
      return {};
    }
    return Status(StatusCode::kResourceExhausted,
                  Format("%zu models are loaded, as many as may be; unload one", there));
  }

  Status CheckControl() const {
    if (options_.control == ModelControl::kExplicit) return {};
    return Status(
        StatusCode::kPermissionDenied,
        "clients cannot load and unload models here; that needs --model-control explicit");
  }

  Result<std::shared_ptr<LoadedModel>> Find(std::string_view model,
                                            std::string_view version) const {
    const std::shared_lock lock(mutex_);
    const auto found = models_.find(model);
    if (found == models_.end()) return UnknownModel(model);
    if (found->second.versions.empty()) {
      return NotFound(
          "model '%s' is not served: %s", Shown(model).c_str(),
          found->second.reason.empty() ? "it is being loaded" : found->second.reason.c_str());
    }
    const Versions& versions = found->second.versions;
    if (version.empty()) return versions.rbegin()->second;
    const auto number = ParseVersion(version);
    const auto at = number ? versions.find(*number) : versions.end();
    if (at == versions.end()) {
      return NotFound("model '%s' has no version '%s'; its newest one is %lld",
                      Shown(model).c_str(), Shown(version).c_str(),
                      static_cast<long long>(versions.rbegin()->first));
    }
    return at->second;
  }

  // Makes all versions, then puts them in the place of those that there are.
  Status LoadFiles(const std::string& name, const Result<ModelFiles>& files) {
    const std::lock_guard loading(load_mutex_);
    Status status = files.status();
    Versions oldest;
    {
      const std::unique_lock lock(mutex_);
      const auto found = models_.find(name);
      if (found != models_.end() && IsExecutable(name)) return {};  // somebody was faster
      if (status.ok() && found == models_.end()) {
        ATOLL_RETURN_IF_ERROR(MakeRoom(name, &oldest));
      }
      // A name that nobody knows leaves nothing behind.
      if (status.code() == StatusCode::kNotFound && found == models_.end() &&
          options_.control == ModelControl::kExplicit) {
        return status;
      }
      if (found == models_.end()) models_.emplace(name, Model());
    }
    Retire(oldest, /*cancels=*/false);
    Versions versions;
    for (size_t i = 0; status.ok() && i < files->versions.size(); ++i) {
      auto loaded = LoadedModel::Create({.name = name,
                                         .threads = options_.threads,
                                         .instances = options_.instances,
                                         .limits = options_.limits},
                                        files->versions[i], *files, delegate_);
      if (loaded.ok()) {
        versions.emplace(files->versions[i].version, *std::move(loaded));
      } else {
        status = std::move(loaded).status();
      }
    }
    std::vector<std::string> numbers;
    for (const auto& [number, loaded] : versions) numbers.push_back(std::to_string(number));
    for (const auto& [number, loaded] : versions) loaded->SetVersions(numbers);
    {
      const std::unique_lock lock(mutex_);
      Model& model = models_[name];
      if (status.ok()) {
        model.versions.swap(versions);
        model.state = ModelState::kReady;
        model.loaded_ms = NowMs();
        model.reason.clear();
        unloaded_.erase(name);
      } else if (model.versions.empty()) {
        model.state = ModelState::kUnavailable;
        model.reason = status.message();
        // Not to be found by clients, so that these cannot fill the index with names.
        const bool is_of_clients =
            options_.control == ModelControl::kExplicit || IsExecutable(name);
        if (is_of_clients && started_) models_.erase(name);
      }
    }
    Retire(versions, /*cancels=*/false);
    return status;
  }

  void Retire(const Versions& versions, bool cancels) {
    if (versions.empty()) return;
    for (const auto& [number, loaded] : versions) {
      loaded->Retire();
      if (cancels) loaded->CancelAll();
    }
    const std::lock_guard lock(reaper_mutex_);
    for (const auto& [number, loaded] : versions) dying_.push_back(loaded);
    reaper_wakes_.notify_all();
  }

  // Waits for models that have been retired, one after the other, so that nobody else has to.
  void Reap() {
    std::unique_lock lock(reaper_mutex_);
    while (true) {
      reaper_wakes_.wait(lock, [&] { return stop_ || !dying_.empty(); });
      if (dying_.empty()) return;
      const std::shared_ptr<LoadedModel> loaded = dying_.front();
      lock.unlock();
      loaded->Join();
      lock.lock();
      dying_.pop_front();
    }
  }

  const InferenceServerOptions options_;
  const atollpp::Delegate delegate_;
  const AtollDeviceInfo device_;
  const std::shared_ptr<const ModelInfo> device_model_;  // nullptr: it is not shared
  std::atomic<bool> draining_ = false;

  std::mutex load_mutex_;  // one model is loaded at a time
  mutable std::shared_mutex mutex_;
  std::map<std::string, Model, std::less<>> models_;
  std::set<std::string> unloaded_;  // of the folder

  std::mutex reaper_mutex_;
  std::condition_variable reaper_wakes_;
  std::deque<std::shared_ptr<LoadedModel>> dying_;
  bool stop_ = false;
  std::thread reaper_;

 public:
  std::atomic<bool> started_ = false;  // all models of the start have been tried
};

}  // namespace

int HttpStatusOf(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return 200;
    case StatusCode::kInvalidArgument:
    case StatusCode::kCorruptModel:
    case StatusCode::kCancelled:
      return 400;
    case StatusCode::kUnsupported:
      return 501;
    case StatusCode::kNotFound:
      return 404;
    case StatusCode::kPermissionDenied:
      return 403;
    case StatusCode::kDeviceBusy:
    case StatusCode::kDeviceLost:
    case StatusCode::kResourceExhausted:
      return 503;
    case StatusCode::kTimeout:
      return 504;
    case StatusCode::kInternal:
      return 500;
  }
  return 500;
}

const char* ModelStateName(ModelState state) {
  switch (state) {
    case ModelState::kUnavailable:
      return "UNAVAILABLE";
    case ModelState::kLoading:
      return "LOADING";
    case ModelState::kReady:
      return "READY";
    case ModelState::kUnloading:
      return "UNLOADING";
  }
  return "UNAVAILABLE";
}

Result<std::unique_ptr<InferenceServer>> InferenceServer::Create(InferenceServerOptions options) {
  options.instances = std::clamp(options.instances, 1, 256);
  AtollDelegateOptions device = ATOLL_DELEGATE_OPTIONS_INIT;
  device.device = options.device.c_str();
  device.num_threads = options.threads;
  device.on_device_loss = options.on_device_loss.c_str();
  auto delegate = atollpp::Delegate::Open(device);
  if (!delegate) {
    return Status(static_cast<StatusCode>(delegate.code()), delegate.message());
  }
  const auto info = delegate->info();
  if (!info) return Status(static_cast<StatusCode>(info.code()), info.message());
  auto server = std::make_unique<Server>(std::move(options), *delegate, *info);
  ATOLL_RETURN_IF_ERROR(server->LoadAll());
  server->started_ = true;
  return std::unique_ptr<InferenceServer>(std::move(server));
}

}  // namespace atollserve
