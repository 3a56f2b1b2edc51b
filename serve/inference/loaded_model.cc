// SPDX-License-Identifier: Apache-2.0
#include "serve/inference/loaded_model.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>

namespace atollserve {
namespace {

using atollrt::Format;
using atollrt::InvalidArgument;
using atollrt::Result;
using atollrt::Status;
using atollrt::StatusCode;
using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;

// The most of a name that an error repeats.
constexpr int kShownBytes = 100;

Status StatusOf(const atollpp::Status& status) {
  if (status) return {};
  return Status(static_cast<StatusCode>(status.code()), status.message());
}

int64_t NsSince(MonotonicTime start, MonotonicTime end) {
  return duration_cast<nanoseconds>(end - start).count();
}

std::string Shown(const std::string& name) {
  std::string shown = name.substr(0, kShownBytes);
  return shown.size() < name.size() ? shown + "..." : shown;
}

// Names that are there once each.
void MakeNamesUnique(const char* kind, std::vector<TensorInfo>* tensors) {
  std::set<std::string> names;
  for (size_t i = 0; i < tensors->size(); ++i) {
    std::string& name = (*tensors)[i].name;
    if (name.empty()) name = std::string(kind) + "_" + std::to_string(i);
    while (!names.insert(name).second) name += "_" + std::to_string(i);
  }
}

Result<TensorInfo> InfoOf(const atollpp::ConstTensor& tensor) {
  const auto type = DataTypeOf(tensor.type());
  if (!type) {
    return atollrt::Unsupported("tensor '%s' is of type %s, which is not served",
                                tensor.name().c_str(), AtollTypeName(tensor.type()));
  }
  TensorInfo info = {.name = tensor.name(), .type = *type, .shape = {}, .quantization = {}};
  for (const int32_t size : tensor.shape()) info.shape.push_back(size);
  if (*type == DataType::kInt8 || *type == DataType::kUint8 || *type == DataType::kInt16) {
    info.quantization = tensor.quantization();
  }
  return info;
}

}  // namespace

Result<std::shared_ptr<LoadedModel>> LoadedModel::Create(const LoadedModelOptions& options,
                                                         const ModelFile& file,
                                                         const ModelFiles& files,
                                                         const atollpp::Delegate& device) {
  const auto with_name = [&](const atollpp::Status& status) {
    return StatusOf(status).WithContext("model '" + options.name + "'");
  };
  AtollModelOptions model_options = ATOLL_MODEL_OPTIONS_INIT;
  model_options.copy_file = 1;  // whoever writes over the file does not end this process
  auto model = file.bytes != nullptr
                   ? atollpp::Model::FromBuffer(std::as_bytes(std::span(*file.bytes)))
                   : atollpp::Model::FromFile(file.path, model_options);
  if (!model) return with_name(model.status());

  const std::shared_ptr<LoadedModel> loaded(new LoadedModel);
  loaded->version_ = file.version;
  loaded->limits_ = options.limits;
  loaded->info_.name = options.name;
  loaded->info_.version = std::to_string(file.version);
  loaded->info_.instances = options.instances;
  loaded->has_state_ = model->HasOperator("VAR_HANDLE") || model->HasOperator("CALL_ONCE");
  for (int32_t i = 0; i < options.instances; ++i) {
    AtollInterpreterOptions interpreter_options = ATOLL_INTERPRETER_OPTIONS_INIT;
    interpreter_options.num_threads = options.threads;
    auto interpreter = atollpp::Interpreter::Create(*model, device, interpreter_options);
    if (!interpreter) return with_name(interpreter.status());
    loaded->instances_.push_back(std::make_unique<Instance>(std::move(*interpreter)));
  }
  const atollpp::Interpreter& first = loaded->instances_[0]->interpreter;
  for (int32_t i = 0; i < first.input_count(); ++i) {
    ATOLL_ASSIGN_OR_RETURN(
        TensorInfo info,
        InfoOf(atollpp::ConstTensor(AtollInterpreterGetInputTensor(first.get(), i))));
    loaded->info_.inputs.push_back(std::move(info));
  }
  for (int32_t i = 0; i < first.output_count(); ++i) {
    ATOLL_ASSIGN_OR_RETURN(TensorInfo info, InfoOf(first.output(i)));
    loaded->info_.outputs.push_back(std::move(info));
  }
  loaded->Describe(files);
  for (const auto& instance : loaded->instances_) {
    instance->thread =
        std::thread([self = loaded.get(), one = instance.get()] { self->Work(one); });
  }
  loaded->keeper_ = std::thread([self = loaded.get()] { self->Keep(); });
  return loaded;
}

void LoadedModel::Describe(const ModelFiles& files) {
  info_.labels = files.labels;
  info_.config = files.config;
  MakeNamesUnique("input", &info_.inputs);
  MakeNamesUnique("output", &info_.outputs);
  const atollpp::Interpreter& interpreter = instances_[0]->interpreter;
  info_.nodes = AtollInterpreterGetNodeCount(interpreter.get());
  for (int32_t i = 0; i < info_.nodes; ++i) {
    AtollNodeInfo node = {};
    if (AtollInterpreterGetNodeInfo(interpreter.get(), i, &node) == ATOLL_OK &&
        node.partition >= 0) {
      ++info_.device_nodes;
    }
  }
  info_.substitute = interpreter.substitute().value_or("");
  const int32_t tensors = AtollInterpreterGetTensorCount(interpreter.get());
  for (int32_t i = 0; i < tensors; ++i) {
    has_state_ =
        has_state_ || AtollTensorIsVariable(AtollInterpreterGetTensor(interpreter.get(), i)) != 0;
  }
  statistics_.name = info_.name;
  statistics_.version = info_.version;
}

LoadedModel::~LoadedModel() {
  Retire();
  Join();
}

void LoadedModel::Retire() {
  const std::lock_guard lock(mutex_);
  retired_ = true;
  work_.notify_all();
  keep_.notify_all();
}

void LoadedModel::Join() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(joined_, true)) return;
  }
  for (const auto& instance : instances_) {
    if (instance->thread.joinable()) instance->thread.join();
  }
  if (keeper_.joinable()) keeper_.join();
}

Status LoadedModel::CheckInput(const TensorInfo& info, const InputTensor& input,
                               bool real_values) const {
  const char* const model = info_.name.c_str();
  const DataType expected = info.seen_type(real_values);
  if (input.type != expected) {
    return InvalidArgument("input '%s' of model '%s' is %s, not %s", info.name.c_str(), model,
                           DataTypeName(expected), DataTypeName(input.type));
  }
  if (input.shape != info.shape) {
    return InvalidArgument(
        "input '%s' of model '%s' has shape %s, not %s", info.name.c_str(), model,
        ShapeText(info.shape).c_str(),
        input.shape.size() > 8 ? "one of more dimensions" : ShapeText(input.shape).c_str());
  }
  const size_t bytes = info.elements() * DataTypeBytes(expected);
  if (input.bytes.size() != bytes) {
    return InvalidArgument("input '%s' of model '%s' has %zu bytes, not %zu", info.name.c_str(),
                           model, bytes, input.bytes.size());
  }
  return {};
}

Status LoadedModel::Check(Job* job) const {
  const InferRequest& request = job->request;
  const char* const model = info_.name.c_str();
  job->input_order.assign(info_.inputs.size(), SIZE_MAX);
  for (size_t given = 0; given < request.inputs.size(); ++given) {
    const InputTensor& input = request.inputs[given];
    const auto found =
        input.name.empty() && info_.inputs.size() == 1
            ? info_.inputs.begin()
            : std::find_if(info_.inputs.begin(), info_.inputs.end(),
                           [&](const TensorInfo& info) { return info.name == input.name; });
    if (found == info_.inputs.end()) {
      return InvalidArgument("model '%s' has no input '%s'; its first one is '%s'", model,
                             Shown(input.name).c_str(),
                             info_.inputs.empty() ? "" : info_.inputs[0].name.c_str());
    }
    size_t& order = job->input_order[static_cast<size_t>(found - info_.inputs.begin())];
    if (order != SIZE_MAX) {
      return InvalidArgument("input '%s' of model '%s' is there twice", found->name.c_str(), model);
    }
    order = given;
    ATOLL_RETURN_IF_ERROR(CheckInput(*found, input, request.real_values));
  }
  for (size_t i = 0; i < info_.inputs.size(); ++i) {
    if (job->input_order[i] == SIZE_MAX) {
      return InvalidArgument(
          "input '%s' of model '%s' is missing: it has %zu inputs, the request %zu",
          info_.inputs[i].name.c_str(), model, info_.inputs.size(), request.inputs.size());
    }
  }
  if (request.outputs.empty()) {
    for (size_t i = 0; i < info_.outputs.size(); ++i) job->outputs.push_back(i);
  }
  std::vector<bool> asked(info_.outputs.size());
  for (const std::string& name : request.outputs) {
    const auto found = std::find_if(info_.outputs.begin(), info_.outputs.end(),
                                    [&](const TensorInfo& info) { return info.name == name; });
    const size_t index = static_cast<size_t>(found - info_.outputs.begin());
    if (found == info_.outputs.end() || asked[index]) {
      return InvalidArgument("model '%s' has no %soutput '%s'; its first one is '%s'", model,
                             found == info_.outputs.end() ? "" : "second ", Shown(name).c_str(),
                             info_.outputs.empty() ? "" : info_.outputs[0].name.c_str());
    }
    asked[index] = true;
    job->outputs.push_back(index);
  }
  return {};
}

int64_t LoadedModel::ExpectedWaitNs(size_t ahead) const {
  return average_ns_ * static_cast<int64_t>(ahead) / static_cast<int64_t>(instances_.size());
}

bool LoadedModel::Submit(InferRequest* request, InferCallback* done, CancelFunction* cancel) {
  auto job = std::make_shared<Job>();
  const MonotonicTime now = steady_clock::now();
  Status refusal;
  std::optional<milliseconds> retry_after;
  Key key;
  {
    const std::lock_guard lock(mutex_);
    if (retired_) return false;
    job->request = std::move(*request);
    job->done = std::move(*done);
    job->came = now;
    job->wait_until = now + limits_.longest_wait;
    const auto& deadline = job->request.deadline;
    if (deadline) job->wait_until = std::min(job->wait_until, *deadline);
    const uint32_t priority = job->request.priority == 0 ? UINT32_MAX : job->request.priority;
    key = {priority, ++last_number_};
    refusal = Check(job.get());
    if (refusal.ok()) {
      size_t running = 0;
      for (const auto& instance : instances_) running += instance->busy ? 1 : 0;
      const size_t before =
          static_cast<size_t>(std::distance(queue_.begin(), queue_.lower_bound(key)));
      const size_t ahead = running < instances_.size() ? before : before + running;
      const int64_t wait_ns = ExpectedWaitNs(ahead);
      const int64_t left_ns = NsSince(now, job->wait_until);
      if (deadline && left_ns <= 0) {
        refusal = Status(StatusCode::kTimeout, "the deadline had passed when the request came");
      } else if (queue_.size() >= limits_.queue) {
        refusal = Status(StatusCode::kResourceExhausted,
                         Format("%zu requests wait for model '%s', as many as may; try again later",
                                queue_.size(), info_.name.c_str()));
      } else if (wait_ns > 0 && wait_ns + (deadline ? average_ns_ : 0) > left_ns) {
        refusal =
            Status(StatusCode::kResourceExhausted,
                   Format("model '%s' is busy: the request would take about %.1f ms and has %.1f",
                          info_.name.c_str(), static_cast<double>(wait_ns + average_ns_) / 1e6,
                          static_cast<double>(left_ns) / 1e6));
      }
      if (refusal.code() == StatusCode::kResourceExhausted) {
        const int64_t all_ns = ExpectedWaitNs(queue_.size() + running);
        retry_after = milliseconds(std::max<int64_t>(all_ns / 1'000'000, 1));
      }
    }
    if (refusal.ok()) {
      queue_.emplace(key, job);
      work_.notify_one();
      // Mostly later than that of one before, for which it wakes anyway.
      if (job->wait_until < keeper_wakes_) keep_.notify_one();
    } else {
      Count(refusal.code() == StatusCode::kResourceExhausted ? End::kRefused
            : refusal.code() == StatusCode::kTimeout         ? End::kExpired
                                                             : End::kFailed,
            nullptr, now);
    }
  }
  if (!refusal.ok()) {
    *cancel = [] {};
    job->done({.status = std::move(refusal),
               .model = info_.name,
               .version = info_.version,
               .outputs = {},
               .times = {},
               .device_cycles = 0,
               .retry_after = retry_after});
    return true;
  }
  *cancel = [weak = weak_from_this(), key] {
    if (const auto self = weak.lock()) self->Cancel(key);
  };
  return true;
}

void LoadedModel::Fail(Job* job, Status status) {
  job->done({.status = std::move(status),
             .model = info_.name,
             .version = info_.version,
             .outputs = {},
             .times = {},
             .device_cycles = 0,
             .retry_after = {}});
  job->done = nullptr;
}

void LoadedModel::Cancel(Key key) {
  std::shared_ptr<Job> waiting;
  {
    const std::lock_guard lock(mutex_);
    const auto found = queue_.find(key);
    if (found != queue_.end()) {
      waiting = std::move(found->second);
      queue_.erase(found);
      Count(End::kCancelled, nullptr, waiting->came);
      idle_.notify_all();
    } else {
      for (const auto& instance : instances_) {
        if (!instance->busy || instance->key != key) continue;
        instance->cancelled = true;
        (void)instance->interpreter.Cancel();
      }
    }
  }
  if (waiting) Fail(waiting.get(), Status(StatusCode::kCancelled, "the request was cancelled"));
}

void LoadedModel::CancelAll() {
  std::map<Key, std::shared_ptr<Job>> waiting;
  {
    const std::lock_guard lock(mutex_);
    waiting.swap(queue_);
    for (const auto& [key, job] : waiting) Count(End::kCancelled, nullptr, job->came);
    for (const auto& instance : instances_) {
      if (!instance->busy) continue;
      instance->cancelled = true;
      (void)instance->interpreter.Cancel();
    }
    idle_.notify_all();
  }
  for (const auto& [key, job] : waiting) {
    Fail(job.get(), Status(StatusCode::kCancelled, "the server ends"));
  }
}

bool LoadedModel::WaitIdle(MonotonicTime until) {
  std::unique_lock lock(mutex_);
  return idle_.wait_until(lock, until, [&] {
    return queue_.empty() && std::none_of(instances_.begin(), instances_.end(),
                                          [](const auto& one) { return one->busy; });
  });
}

void LoadedModel::Work(Instance* instance) {
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [&] { return retired_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const auto first = queue_.begin();
    instance->key = first->first;
    instance->job = std::move(first->second);
    queue_.erase(first);
    instance->cancelled = false;
    instance->expired = false;
    instance->busy = true;
    const std::shared_ptr<Job> job = instance->job;
    lock.unlock();

    const MonotonicTime start = steady_clock::now();
    InferOutcome outcome = Run(instance, job.get());
    const MonotonicTime end = steady_clock::now();
    lock.lock();
    End how = End::kSuccess;
    if (outcome.status.ok()) {
      const int64_t took_ns = NsSince(start, end);
      average_ns_ = average_ns_ == 0 ? took_ns : average_ns_ + (took_ns - average_ns_) / 8;
      if (job->request.deadline && end > *job->request.deadline) instance->expired = true;
    }
    if (instance->expired) {
      how = End::kExpired;
      outcome.status =
          Status(StatusCode::kTimeout,
                 Format("the deadline passed while model '%s' ran, after %.1f ms",
                        info_.name.c_str(), static_cast<double>(NsSince(job->came, end)) / 1e6));
    } else if (outcome.status.code() == StatusCode::kCancelled) {
      how = End::kCancelled;
    } else if (!outcome.status.ok()) {
      how = End::kFailed;
    }
    Count(how, &outcome, job->came);
    lock.unlock();
    job->done(std::move(outcome));
    job->done = nullptr;  // what it holds goes now
    lock.lock();
    instance->busy = false;
    instance->job.reset();
    idle_.notify_all();
    if (retired_) keep_.notify_one();
  }
}

// Ends what has waited, or runs, for too long.
void LoadedModel::Keep() {
  std::unique_lock lock(mutex_);
  while (true) {
    std::optional<MonotonicTime> next;
    const MonotonicTime now = steady_clock::now();
    std::vector<std::shared_ptr<Job>> expired;
    for (auto at = queue_.begin(); at != queue_.end();) {
      if (at->second->wait_until <= now) {
        expired.push_back(std::move(at->second));
        at = queue_.erase(at);
        continue;
      }
      if (!next || at->second->wait_until < *next) next = at->second->wait_until;
      ++at;
    }
    bool busy = false;
    for (const auto& instance : instances_) {
      busy = busy || instance->busy;
      if (!instance->busy || !instance->job->request.deadline || instance->expired) continue;
      const MonotonicTime deadline = *instance->job->request.deadline;
      if (deadline <= now) {
        instance->expired = true;
        (void)instance->interpreter.Cancel();
      } else if (!next || deadline < *next) {
        next = deadline;
      }
    }
    if (!expired.empty()) {
      for (const auto& job : expired) Count(End::kExpired, nullptr, job->came);
      idle_.notify_all();
      lock.unlock();
      for (const auto& job : expired) {
        const double waited_ms = static_cast<double>(NsSince(job->came, now)) / 1e6;
        const bool has_deadline = job->request.deadline && *job->request.deadline <= now;
        Fail(job.get(),
             Status(has_deadline ? StatusCode::kTimeout : StatusCode::kResourceExhausted,
                    Format("the request has waited for model '%s' for %.1f ms, as long as it may",
                           info_.name.c_str(), waited_ms)));
      }
      expired.clear();
      lock.lock();
      continue;
    }
    if (retired_ && queue_.empty() && !busy) return;
    keeper_wakes_ = next.value_or(MonotonicTime::max());
    if (next) {
      keep_.wait_until(lock, *next);
    } else {
      keep_.wait(lock);
    }
  }
}

InferOutcome LoadedModel::Run(Instance* instance, Job* job) {
  atollpp::Interpreter& interpreter = instance->interpreter;
  InferOutcome outcome = {.status = {},
                          .model = info_.name,
                          .version = info_.version,
                          .outputs = {},
                          .times = {},
                          .device_cycles = 0,
                          .retry_after = {}};
  const auto stopped = [&] {
    const std::lock_guard lock(mutex_);
    return instance->cancelled || instance->expired;
  };
  const InferRequest& request = job->request;
  const MonotonicTime start = steady_clock::now();
  for (size_t i = 0; i < info_.inputs.size(); ++i) {
    const TensorInfo& info = info_.inputs[i];
    const InputTensor& input = request.inputs[job->input_order[i]];
    AtollTensor* const tensor = interpreter.input(static_cast<int32_t>(i)).get();
    auto* const data = static_cast<uint8_t*>(AtollTensorData(tensor));
    if (AtollTensorByteSize(tensor) != info.bytes() || (data == nullptr && info.bytes() > 0)) {
      outcome.status = atollrt::InternalError("input '%s' of model '%s' has no memory",
                                              info.name.c_str(), info_.name.c_str());
      return outcome;
    }
    if (request.real_values && info.quantized()) {
      QuantizeTensor(info, input.bytes, {data, info.bytes()});
    } else if (info.bytes() > 0) {
      std::memcpy(data, input.bytes.data(), info.bytes());
    }
  }
  // Nothing of a request is left for the next.
  if (has_state_) outcome.status = StatusOf(interpreter.ResetVariableTensors());
  const MonotonicTime invoked = steady_clock::now();
  if (outcome.status.ok()) {
    outcome.status = stopped() ? Status(StatusCode::kCancelled, "the request was cancelled")
                               : StatusOf(interpreter.Invoke());
  }
  if (!outcome.status.ok()) {
    outcome.status = std::move(outcome.status).WithContext("model '" + info_.name + "'");
    return outcome;
  }
  const MonotonicTime computed = steady_clock::now();
  for (const size_t index : job->outputs) {
    const TensorInfo& info = info_.outputs[index];
    const AtollTensor* const tensor = interpreter.output(static_cast<int32_t>(index)).get();
    const auto* const data = static_cast<const uint8_t*>(AtollTensorConstData(tensor));
    if (AtollTensorByteSize(tensor) != info.bytes() || (data == nullptr && info.bytes() > 0)) {
      outcome.status =
          atollrt::Unsupported("output '%s' of model '%s' has another size than before",
                               info.name.c_str(), info_.name.c_str());
      return outcome;
    }
    OutputTensor& output = outcome.outputs.emplace_back();
    output.name = info.name;
    output.type = info.seen_type(request.real_values);
    output.shape = info.shape;
    if (request.real_values && info.quantized()) {
      output.bytes.resize(info.elements() * sizeof(float));
      DequantizeTensor(info, {data, info.bytes()},
                       {reinterpret_cast<uint8_t*>(output.bytes.data()), output.bytes.size()});
    } else if (info.bytes() > 0) {
      output.bytes.assign(reinterpret_cast<const char*>(data), info.bytes());
    }
  }
  AtollInvokeInfo invoke = {};
  (void)AtollInterpreterGetInvokeInfo(interpreter.get(), &invoke);
  outcome.device_cycles = invoke.device_cycles;
  outcome.times.queue_ns = NsSince(job->came, start) + invoke.queue_ns;
  outcome.times.input_ns = NsSince(start, invoked) + invoke.link_out_ns;
  outcome.times.infer_ns = std::max<int64_t>(
      NsSince(invoked, computed) - invoke.queue_ns - invoke.link_out_ns - invoke.link_in_ns, 0);
  outcome.times.output_ns = NsSince(computed, steady_clock::now()) + invoke.link_in_ns;
  return outcome;
}

void LoadedModel::Count(End end, const InferOutcome* outcome, MonotonicTime came) {
  const int64_t ns = NsSince(came, steady_clock::now());
  if (end != End::kSuccess) {
    ++statistics_.fail.count;
    statistics_.fail.ns += ns;
    statistics_.refused += end == End::kRefused ? 1 : 0;
    statistics_.expired += end == End::kExpired ? 1 : 0;
    statistics_.cancelled += end == End::kCancelled ? 1 : 0;
    return;
  }
  const auto add = [](CountAndTime* sum, int64_t more_ns) {
    ++sum->count;
    sum->ns += more_ns;
  };
  add(&statistics_.success, ns);
  add(&statistics_.queue, outcome->times.queue_ns);
  add(&statistics_.input, outcome->times.input_ns);
  add(&statistics_.infer, outcome->times.infer_ns);
  add(&statistics_.output, outcome->times.output_ns);
  ++statistics_.inference_count;
  ++statistics_.execution_count;
  statistics_.device_cycles += outcome->device_cycles;
  statistics_.last_inference_ms =
      duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  size_t bucket = 0;
  while (bucket + 1 < kLatencyBucketCount &&
         static_cast<double>(ns) > kLatencyBuckets[bucket] * 1e9) {
    ++bucket;
  }
  ++statistics_.latency[bucket];
}

ModelStatistics LoadedModel::statistics() const {
  const std::lock_guard lock(mutex_);
  ModelStatistics now = statistics_;
  now.waiting = static_cast<int32_t>(queue_.size());
  for (const auto& instance : instances_) now.running += instance->busy ? 1 : 0;
  now.expected_wait_ns = ExpectedWaitNs(queue_.size() + static_cast<size_t>(now.running));
  return now;
}

void LoadedModel::AddActive(std::vector<ActiveRequest>* active) const {
  const std::lock_guard lock(mutex_);
  const MonotonicTime now = steady_clock::now();
  const auto add = [&](const Job& job, bool running) {
    active->push_back({.model = info_.name,
                       .version = info_.version,
                       .client = job.request.client,
                       .priority = job.request.priority,
                       .running = running,
                       .since_ns = NsSince(job.came, now)});
  };
  for (const auto& instance : instances_) {
    if (instance->busy) add(*instance->job, true);
  }
  for (const auto& [key, job] : queue_) add(*job, false);
}

}  // namespace atollserve
