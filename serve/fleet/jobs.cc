// SPDX-License-Identifier: Apache-2.0
#include "serve/fleet/jobs.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "serve/fleet/subjects.h"

namespace atollserve {
namespace {

using atollrt::Status;
using atollrt::StatusCode;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kFetchNowMs = 2000;   // until an answer of what is there must have come
constexpr int64_t kFetchWaitMs = 5000;  // for something to be there
constexpr auto kRetry = milliseconds(500);
constexpr auto kDeviceRetry = std::chrono::seconds(5);
// Until the next attempt, by how often a job was given out.
constexpr int64_t kReturnMs[] = {1000, 5000, 30'000};
// Behind those of frames.
constexpr uint32_t kJobPriority = 2'000'000;
// A result is tried to be stored for so long while the servers have no leader.
constexpr auto kStoreFor = std::chrono::seconds(60);

}  // namespace

Status StoreResult(const FleetConnection& connection, const std::string& job,
                   const InferReply& reply, const std::string& worker, bool* was_there) {
  *was_there = false;
  const int64_t room = connection.max_body();
  if (static_cast<int64_t>(reply.body.size()) > room) {
    return atollrt::InvalidArgument(
        "the result has %zu bytes, of which a message of this NATS takes %lld (max_payload)",
        reply.body.size(), static_cast<long long>(room));
  }
  NatsHeaders headers = reply.headers;
  headers.emplace_back(kWorkerHeader, worker);
  ATOLL_ASSIGN_OR_RETURN(const NatsPtr<natsMsg> message,
                         MakeMessage(ResultSubject(job), nullptr, headers, reply.body));
  jsPubOptions options;
  jsPubOptions_Init(&options);
  options.ExpectNoMessage = true;
  options.ExpectStream = kResultStream;
  jsErrCode error = static_cast<jsErrCode>(0);
  NatsPtr<jsPubAck> ack;
  const natsStatus status =
      js_PublishMsg(NatsOut(&ack), connection.jetstream(), message.get(), &options, &error);
  *was_there = error == JSStreamWrongLastSequenceErr;
  if (status != NATS_OK && !*was_there) {
    return NatsStatus(status, "result of job " + job, error);
  }
  (void)connection.Publish(DoneSubject(job), {}, "");
  return {};
}

// A job that this worker has been given.
struct JobRunner::Job {
  // Messages of a subscription are acknowledged through it.
  std::shared_ptr<natsSubscription> source;
  NatsPtr<natsMsg> message;
  std::string model;
  int priority = 0;
  uint64_t delivered = 1;  // so many times, this one among them
};

// Takes jobs of one model and priority.
struct JobRunner::Fetcher {
  std::string model;
  int priority = 0;
  std::shared_ptr<natsSubscription> subscription;
  bool stop = false;
  // More are there than there was room for, or it has not looked yet.
  bool has_more = true;
  std::thread thread;
};

JobRunner::JobRunner(const FleetConnection* connection, const FleetStreams* streams,
                     InferenceServer* inference, std::string worker, int places)
    : connection_(connection),
      streams_(streams),
      inference_(inference),
      worker_(std::move(worker)),
      places_(places) {
  for (int i = 0; i < places_; ++i) threads_.emplace_back([this] { Run(); });
  threads_.emplace_back([this] { Beat(); });
}

JobRunner::~JobRunner() {
  Drain();
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void JobRunner::Serve(const std::string& model) {
  const std::lock_guard lock(mutex_);
  if (stop_ || fetchers_.contains(model)) return;
  std::vector<std::unique_ptr<Fetcher>>& made = fetchers_[model];
  for (int priority = 0; priority < kPriorities; ++priority) {
    made.push_back(std::make_unique<Fetcher>());
    Fetcher* const fetcher = made.back().get();
    fetcher->model = model;
    fetcher->priority = priority;
    fetcher->thread = std::thread([this, fetcher] { Fetch(fetcher); });
  }
}

void JobRunner::Stop(const std::string& model) {
  std::vector<std::unique_ptr<Fetcher>> removed;
  {
    const std::lock_guard lock(mutex_);
    const auto found = fetchers_.find(model);
    if (found == fetchers_.end()) return;
    removed = std::move(found->second);
    fetchers_.erase(found);
    for (const auto& fetcher : removed) {
      fetcher->stop = true;
      // Ends its wait.
      if (fetcher->subscription != nullptr) {
        (void)natsSubscription_Unsubscribe(fetcher->subscription.get());
      }
    }
    changed_.notify_all();
  }
  for (const auto& fetcher : removed) fetcher->thread.join();
}

void JobRunner::Drain() {
  std::vector<std::string> models;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    for (const auto& [name, fetchers] : fetchers_) models.push_back(name);
    changed_.notify_all();
  }
  for (const std::string& model : models) Stop(model);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return held_.empty(); });
}

JobCounts JobRunner::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

bool JobRunner::device_lost() const {
  const std::lock_guard lock(mutex_);
  return device_lost_;
}

// ---- Taking
// --------------------------------------------------------------------------------------

bool JobRunner::MayFetch(const Fetcher& fetcher) const {
  if (static_cast<int>(held_.size()) >= places_ || steady_clock::now() < device_away_until_) {
    return false;
  }
  // While more urgent ones are there, places are theirs.
  for (const auto& [model, others] : fetchers_) {
    for (const auto& other : others) {
      if (other->priority < fetcher.priority && other->has_more) return false;
    }
  }
  return true;
}

void JobRunner::Fetch(Fetcher* fetcher) {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      while (!fetcher->stop && !MayFetch(*fetcher)) changed_.wait_for(lock, kRetry);
      if (fetcher->stop) return;
    }
    if (FetchOnce(fetcher)) continue;
    // No leader, no connection, or somebody has removed the stream.
    std::unique_lock lock(mutex_);
    fetcher->has_more = false;
    fetcher->subscription = nullptr;
    changed_.wait_for(lock, kRetry, [&] { return fetcher->stop; });
  }
}

bool JobRunner::FetchOnce(Fetcher* fetcher) {
  std::shared_ptr<natsSubscription> source;
  int room = 1;
  {
    const std::lock_guard lock(mutex_);
    source = fetcher->subscription;
    room = std::max(places_ - static_cast<int>(held_.size()), 1);
    // A device that was away is asked with one.
    if (device_lost_) room = 1;
  }
  if (source == nullptr) {
    if (!streams_->Ensure().ok() || !streams_->EnsureConsumers(fetcher->model).ok()) return false;
    const std::string name = ConsumerName(fetcher->model, fetcher->priority);
    const std::string subject = WorkSubject(fetcher->model, fetcher->priority);
    jsSubOptions options;
    jsSubOptions_Init(&options);
    options.Stream = kWorkStream;
    options.Consumer = name.c_str();
    NatsPtr<natsSubscription> made;
    if (js_PullSubscribe(NatsOut(&made), connection_->jetstream(), subject.c_str(), name.c_str(),
                         nullptr, &options, nullptr) != NATS_OK) {
      return false;
    }
    source = std::shared_ptr<natsSubscription>(made.release(), NatsRelease());
    const std::lock_guard lock(mutex_);
    if (fetcher->stop) return true;
    fetcher->subscription = source;
  }
  const auto fetch = [&](natsMsgList* list, bool waits) {
    jsFetchRequest request;
    jsFetchRequest_Init(&request);
    request.Batch = waits ? 1 : room;
    request.Expires = (waits ? kFetchWaitMs : kFetchNowMs) * kMillisecond;
    request.NoWait = !waits;
    if (waits) request.Heartbeat = kFetchWaitMs * kMillisecond / 5;
    return natsSubscription_FetchRequest(list, source.get(), &request);
  };
  natsMsgList list = {};
  natsStatus status = fetch(&list, /*waits=*/false);
  const bool is_full = status == NATS_OK && list.Count >= room;
  {
    const std::lock_guard lock(mutex_);
    if (fetcher->has_more != is_full) {
      fetcher->has_more = is_full;
      changed_.notify_all();
    }
  }
  if (status == NATS_NOT_FOUND) status = fetch(&list, /*waits=*/true);
  if (status != NATS_OK) {
    natsMsgList_Destroy(&list);
    return status == NATS_TIMEOUT || status == NATS_NOT_FOUND;
  }
  for (int i = 0; i < list.Count; ++i) {
    auto job = std::make_shared<Job>();
    job->source = source;
    job->message.reset(std::exchange(list.Msgs[i], nullptr));
    job->model = fetcher->model;
    job->priority = fetcher->priority;
    NatsPtr<jsMsgMetaData> meta;
    if (natsMsg_GetMetaData(NatsOut(&meta), job->message.get()) == NATS_OK) {
      job->delivered = meta->NumDelivered;
    }
    const std::lock_guard lock(mutex_);
    held_.insert(job);
    queue_.push_back(std::move(job));
    changed_.notify_all();
  }
  natsMsgList_Destroy(&list);
  return true;
}

// ---- Doing
// ---------------------------------------------------------------------------------------

void JobRunner::Run() {
  while (true) {
    std::shared_ptr<Job> job;
    bool gives_back = false;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return end_ || !queue_.empty(); });
      if (queue_.empty()) return;
      job = std::move(queue_.front());
      queue_.pop_front();
      gives_back = stop_;
    }
    if (!gives_back) {
      Process(job);
      continue;
    }
    Release(job);
    (void)natsMsg_Nak(job->message.get(), nullptr);
    const std::lock_guard lock(mutex_);
    ++counts_.returned;
  }
}

InferOutcome JobRunner::Infer(InferRequest request) {
  struct Wait {
    std::mutex mutex;
    std::condition_variable ended;
    bool is_over = false;
    InferOutcome outcome;
  };
  const auto wait = std::make_shared<Wait>();
  inference_->Infer(std::move(request), [wait](InferOutcome outcome) {
    const std::lock_guard lock(wait->mutex);
    wait->outcome = std::move(outcome);
    wait->is_over = true;
    wait->ended.notify_all();
  });
  std::unique_lock lock(wait->mutex);
  wait->ended.wait(lock, [&] { return wait->is_over; });
  return std::move(wait->outcome);
}

void JobRunner::Process(const std::shared_ptr<Job>& job) {
  natsMsg* const message = job->message.get();
  if (!IsJobId(HeaderOf(message, "Nats-Msg-Id"))) {
    // Nobody could be told.
    Release(job);
    (void)natsMsg_Term(message, nullptr);
    connection_->Say("a job without an id of 22 characters (Nats-Msg-Id) was thrown away");
    const std::lock_guard lock(mutex_);
    ++counts_.failed;
    return;
  }
  const auto model = inference_->Info(job->model, "");
  if (!model.ok()) return Return(job, model.status(), kReturnMs[0]);
  const CallHeaders headers = {.content_type = HeaderOf(message, kTypeHeader),
                               .json_bytes = HeaderOf(message, kLengthHeader),
                               .budget_us = {},
                               .priority = {},
                               .frame = {}};
  auto call = ReadCall(headers, std::make_shared<const std::string>(BodyOf(message)), **model,
                       steady_clock::now());
  if (!call.ok()) return Finish(job, ErrorReply(call.status()));
  InferRequest request = std::move(call->request);
  request.deadline.reset();  // they have all the time that there is
  request.priority = kJobPriority + static_cast<uint32_t>(job->priority);
  request.client = "job";
  const InferOutcome outcome = Infer(std::move(request));
  const StatusCode code = outcome.status.code();
  const bool is_device = code == StatusCode::kDeviceLost || code == StatusCode::kDeviceBusy;
  {
    const std::lock_guard lock(mutex_);
    if (is_device) {
      device_lost_ = true;
      device_away_until_ = steady_clock::now() + kDeviceRetry;
    } else if (outcome.status.ok()) {
      device_lost_ = false;
      device_away_until_ = {};
    }
    changed_.notify_all();
  }
  const size_t attempt =
      std::min<size_t>(std::max<uint64_t>(job->delivered, 1) - 1, std::size(kReturnMs) - 1);
  switch (code) {
    case StatusCode::kOk:
    case StatusCode::kInvalidArgument:
    case StatusCode::kUnsupported:
    case StatusCode::kCorruptModel:
      return Finish(job, ReplyOf(call->body, **model, outcome));
    default:
      return Return(job, outcome.status, kReturnMs[attempt]);
  }
}

void JobRunner::Finish(const std::shared_ptr<Job>& job, const InferReply& reply) {
  natsMsg* const message = job->message.get();
  const std::string id(HeaderOf(message, "Nats-Msg-Id"));
  const auto until = steady_clock::now() + kStoreFor;
  InferReply stored = reply;
  bool was_there = false;
  Status status;
  while (true) {
    status = StoreResult(*connection_, id, stored, worker_, &was_there);
    if (status.ok()) break;
    if (status.code() == StatusCode::kInvalidArgument && stored.error.empty()) {
      stored = ErrorReply(status);
      continue;
    }
    if (!IsPassing(status) || steady_clock::now() >= until) break;
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kRetry, [&] { return stop_; });
    if (stop_) break;
  }
  Release(job);
  if (!status.ok()) {
    connection_->Say(status.message());
    (void)natsMsg_NakWithDelay(message, kReturnMs[1], nullptr);
    const std::lock_guard lock(mutex_);
    ++counts_.returned;
    return;
  }
  // If this does not get there, the job comes again, and its result is there.
  if (stored.error.empty()) {
    (void)natsMsg_AckSync(message, nullptr, nullptr);
  } else {
    (void)natsMsg_Term(message, nullptr);
  }
  const std::lock_guard lock(mutex_);
  ++(was_there ? counts_.repeated : stored.error.empty() ? counts_.done : counts_.failed);
}

void JobRunner::Return(const std::shared_ptr<Job>& job, const Status& why, int64_t delay_ms) {
  if (job->delivered >= static_cast<uint64_t>(streams_->options().max_deliver)) {
    return Finish(job, ErrorReply(why));
  }
  Release(job);
  (void)natsMsg_NakWithDelay(job->message.get(), delay_ms, nullptr);
  const std::lock_guard lock(mutex_);
  ++counts_.returned;
}

void JobRunner::Release(const std::shared_ptr<Job>& job) {
  const std::lock_guard lock(mutex_);
  held_.erase(job);
  changed_.notify_all();
}

void JobRunner::Beat() {
  const auto interval = milliseconds(std::max<int64_t>(streams_->options().ack_wait_ms / 3, 1));
  auto next = steady_clock::now() + interval;
  std::unique_lock lock(mutex_);
  while (!end_) {
    if (changed_.wait_until(lock, next) == std::cv_status::no_timeout) continue;
    next = steady_clock::now() + interval;
    for (const std::shared_ptr<Job>& job : held_) {
      (void)natsMsg_InProgress(job->message.get(), nullptr);
    }
  }
}

}  // namespace atollserve
