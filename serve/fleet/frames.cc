// SPDX-License-Identifier: Apache-2.0
#include "serve/fleet/frames.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "serve/fleet/subjects.h"

namespace atollserve {
namespace {

using atollrt::Status;
using atollrt::StatusCode;
using std::chrono::steady_clock;

// Requests without a budget.
constexpr auto kLongestFrame = std::chrono::seconds(30);
constexpr int64_t kFlushMs = 10'000;
// Behind requests of frames, which somebody sees, come jobs.
constexpr uint32_t kFramePriority = 1'000'000;

}  // namespace

// One of the places.
class FrameService::Place {
 public:
  explicit Place(FrameService* service) : service_(service) {}
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place() {
    Free();
    const std::lock_guard lock(service_->mutex_);
    --service_->under_way_;
    service_->ended_.notify_all();
  }
  // Somebody else may have it.
  void Free() {
    if (!std::exchange(is_free_, true)) --service_->taken_;
  }

 private:
  FrameService* const service_;
  bool is_free_ = false;
};

// A request that has a place.
struct FrameService::Frame {
  std::unique_ptr<Place> place;
  MonotonicTime came;
  std::string model;
  std::string reply;
  // Copies of what came.
  std::string content_type, json_bytes, budget_us, priority, number;
  std::shared_ptr<const std::string> body;

  CallHeaders headers() const {
    return {.content_type = content_type,
            .json_bytes = json_bytes,
            .budget_us = budget_us,
            .priority = priority,
            .frame = number};
  }
};

FrameService::FrameService(const FleetConnection* connection, InferenceServer* inference,
                           std::string worker, int places)
    : connection_(connection),
      inference_(inference),
      worker_(std::move(worker)),
      places_(places),
      reader_(static_cast<size_t>(places)) {}

FrameService::~FrameService() {
  models_.clear();
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return under_way_ == 0; });
}

Status FrameService::Serve(const std::string& model) {
  Model made;
  made.endpoint.name = EncodeToken(model);
  made.endpoint.subject = InferSubject(model);
  made.endpoint.queue = kFleetQueue;
  const auto call = [this, model](natsMsg* message) { OnMessage(model, message); };
  {
    const std::lock_guard lock(mutex_);
    if (models_.contains(model)) return {};
    // Before messages come, so that they are counted.
    models_[model].endpoint = made.endpoint;
  }
  auto shared = Subscription::Start(connection_, made.endpoint.subject, kFleetQueue, call);
  if (!shared.ok()) return Stop(model), shared.status();
  auto own = Subscription::Start(connection_, InferSubject(model, worker_), "", call);
  if (!own.ok()) return Stop(model), own.status();
  const std::lock_guard lock(mutex_);
  models_[model].shared = *std::move(shared);
  models_[model].own = *std::move(own);
  return {};
}

void FrameService::Stop(const std::string& model) {
  Model removed;  // its subscriptions end without the lock, which their calls take
  {
    const std::lock_guard lock(mutex_);
    const auto found = models_.find(model);
    if (found == models_.end()) return;
    removed = std::move(found->second);
    models_.erase(found);
  }
}

void FrameService::Drain() {
  std::map<std::string, Model> removed;
  {
    const std::lock_guard lock(mutex_);
    removed.swap(models_);
  }
  for (auto& [name, model] : removed) {
    if (model.shared != nullptr) model.shared->Drain();
    if (model.own != nullptr) model.own->Drain();
  }
  // The servers have heard it, and send no more.
  if (connection_->connected()) connection_->Flush(kFlushMs);
  removed.clear();
  std::unique_lock lock(mutex_);
  ended_.wait_for(lock, kLongestFrame, [&] { return under_way_ == 0; });
}

FrameCounts FrameService::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

Latencies FrameService::latencies() const {
  const std::lock_guard lock(mutex_);
  return latencies_.At(steady_clock::now());
}

std::vector<ServiceEndpoint> FrameService::endpoints() const {
  const std::lock_guard lock(mutex_);
  std::vector<ServiceEndpoint> endpoints;
  for (const auto& [name, model] : models_) endpoints.push_back(model.endpoint);
  return endpoints;
}

void FrameService::OnMessage(const std::string& model, natsMsg* message) {
  const std::string_view reply = ReplySubjectOf(message);
  if (reply.empty()) return;  // nobody waits for the answer
  auto frame = std::make_shared<Frame>();
  frame->came = steady_clock::now();
  frame->model = model;
  frame->reply = reply;
  frame->number = HeaderOf(message, kFrameHeader).substr(0, 100);
  {
    const std::lock_guard lock(mutex_);
    if (taken_ < places_) {
      ++taken_;
      ++under_way_;
      frame->place = std::make_unique<Place>(this);
    }
  }
  if (frame->place == nullptr) {
    return Answer(frame.get(),
                  ErrorReply(atollrt::ResourceExhausted(
                                 "worker %s is busy with %d requests, as many as it takes",
                                 worker_.c_str(), places_),
                             std::chrono::milliseconds(1)));
  }
  frame->content_type = HeaderOf(message, kTypeHeader);
  frame->json_bytes = HeaderOf(message, kLengthHeader);
  frame->budget_us = HeaderOf(message, kBudgetHeader);
  frame->priority = HeaderOf(message, kPriorityHeader);
  frame->body = std::make_shared<const std::string>(BodyOf(message));
  if (IsShortCall(frame->headers(), frame->body->size())) return Read(frame);
  // There is room: it holds as many as there are places.
  if (!reader_.Add([this, frame] { Read(frame); })) Read(frame);
}

void FrameService::Read(const std::shared_ptr<Frame>& frame) {
  const auto model = inference_->Info(frame->model, "");
  if (!model.ok()) return Answer(frame.get(), ErrorReply(model.status()));
  const auto budget_us = ParseBudget(frame->budget_us);
  if (!budget_us.ok()) return Answer(frame.get(), ErrorReply(budget_us.status()));
  if (*budget_us && steady_clock::now() >= frame->came + std::chrono::microseconds(**budget_us)) {
    return Answer(frame.get(), ErrorReply(atollrt::Timeout(
                                   "the budget of %llu us was spent before the device could start",
                                   static_cast<unsigned long long>(**budget_us))));
  }
  auto read = ReadCall(frame->headers(), frame->body, **model, frame->came);
  if (!read.ok()) return Answer(frame.get(), ErrorReply(read.status()));
  const auto call = std::make_shared<InferCall>(*std::move(read));
  InferRequest request = std::move(call->request);
  request.client = "frame";
  if (!request.deadline) request.deadline = frame->came + kLongestFrame;
  request.priority =
      std::min(request.priority == 0 ? kFramePriority : request.priority, kFramePriority);
  inference_->Infer(std::move(request),
                    [this, frame, call, info = *model](const InferOutcome& outcome) {
                      Answer(frame.get(), ReplyOf(call->body, *info, outcome));
                    });
}

void FrameService::Answer(Frame* frame, InferReply reply) {
  const int64_t room = connection_->max_body();
  if (reply.error.empty() && static_cast<int64_t>(reply.body.size()) > room) {
    reply = ErrorReply(atollrt::InvalidArgument(
        "the answer has %zu bytes, of which a message of this NATS takes %lld (max_payload)",
        reply.body.size(), static_cast<long long>(room)));
  }
  NatsHeaders headers = std::move(reply.headers);
  headers.emplace_back(kWorkerHeader, worker_);
  if (!frame->number.empty()) headers.emplace_back(kFrameHeader, frame->number);
  // Whoever reads the answer may ask at once how many there were, or send the next request.
  Count(*frame, reply);
  if (frame->place != nullptr) frame->place->Free();
  (void)connection_->Publish(frame->reply, headers, reply.body);
}

void FrameService::Count(const Frame& frame, const InferReply& reply) {
  const auto now = steady_clock::now();
  const int64_t ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now - frame.came).count();
  const std::lock_guard lock(mutex_);
  int64_t* count = &counts_.failed;
  if (reply.error.empty()) {
    count = &counts_.answered;
    latencies_.Add(now, ns / 1000);
  }
  if (reply.code == HttpStatusOf(StatusCode::kResourceExhausted)) count = &counts_.busy;
  if (reply.code == HttpStatusOf(StatusCode::kTimeout)) count = &counts_.late;
  ++*count;
  const auto found = models_.find(frame.model);
  if (found == models_.end()) return;
  ServiceEndpoint& endpoint = found->second.endpoint;
  ++endpoint.requests;
  endpoint.processing_ns += ns;
  if (!reply.error.empty()) {
    ++endpoint.errors;
    endpoint.last_error = std::to_string(reply.code) + ": " + reply.error;
  }
}

}  // namespace atollserve
