// SPDX-License-Identifier: Apache-2.0
#include "serve/fleet/frame_client.h"

#include <algorithm>
#include <charconv>
#include <thread>
#include <utility>

#include "serve/fleet/infer_call.h"
#include "serve/fleet/subjects.h"

namespace atollserve {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr auto kLeaveAlone = std::chrono::seconds(5);
constexpr const char* kNobodyAnswered = "nobody answered within the budget";
// Between attempts when all that were tried were busy.
constexpr auto kPause = milliseconds(2);

}  // namespace

atollrt::Result<std::unique_ptr<FrameClient>> FrameClient::Create(
    const FleetConnection* connection) {
  std::unique_ptr<FrameClient> made(new FrameClient(connection));
  FrameClient* const self = made.get();
  ATOLL_ASSIGN_OR_RETURN(
      made->subscription_,
      Subscription::Start(connection, KeySubject(kWorkerBucket, "*"), "",
                          [self](natsMsg* message) { self->OnWorker(message); }));
  return made;
}

void FrameClient::OnWorker(natsMsg* message) {
  const std::string_view subject = SubjectOf(message);
  const std::string id(subject.substr(subject.rfind('.') + 1));
  const std::lock_guard lock(mutex_);
  workers_.Hear(id, BodyOf(message), Clock::now());
}

std::vector<std::string> FrameClient::Workers(const std::string& model) const {
  const std::lock_guard lock(mutex_);
  return workers_.With(model, Clock::now());
}

std::string FrameClient::Choose(const std::string& model, const std::vector<std::string>& except) {
  std::vector<std::string> workers = Workers(model);
  std::erase_if(workers, [&](const std::string& id) {
    return std::find(except.begin(), except.end(), id) != except.end();
  });
  if (workers.empty()) return "";
  const std::lock_guard lock(mutex_);
  std::shuffle(workers.begin(), workers.end(), random_);
  if (workers.size() > 2) workers.resize(2);
  // What it had free when it said so, less what it was sent since.
  return *std::max_element(workers.begin(), workers.end(),
                           [&](const std::string& a, const std::string& b) {
                             return workers_.Free(a) < workers_.Free(b);
                           });
}

void FrameClient::LeaveAlone(const std::string& worker) {
  const std::lock_guard lock(mutex_);
  const Clock::time_point until = Clock::now() + kLeaveAlone;
  by_name_until_ = until;
  workers_.LeaveAlone(worker, until);
}

FrameAnswer FrameClient::Infer(const FrameRequest& request) {
  const Clock::time_point until = Clock::now() + request.budget;
  FrameAnswer answer;
  std::vector<std::string> tried;
  bool by_name = AsksByName();
  while (true) {
    const auto left = std::chrono::duration_cast<microseconds>(until - Clock::now());
    if (left.count() <= 0) {
      answer.end = FrameEnd::kLate;
      if (answer.error.empty()) answer.error = kNobodyAnswered;
      return answer;
    }
    const std::string worker = by_name ? Choose(request.model, tried) : "";
    if (by_name && worker.empty() && !tried.empty()) {
      // All have been tried: once more from the start.
      std::this_thread::sleep_for(std::min<microseconds>(kPause, left));
      tried.clear();
      continue;
    }
    NatsPtr<natsMsg> reply;
    ++answer.attempts;
    const auto status = Ask(request, worker, left, &reply);
    if (!status.ok()) {
      answer.error = status.status().message();
      return answer;
    }
    switch (*status) {
      case NATS_OK:
        if (ReadReply(reply.get(), &answer)) return answer;
        tried.push_back(answer.worker);
        by_name = true;
        break;
      case NATS_NO_RESPONDERS:
        if (!worker.empty()) {
          answer.error = "worker " + worker + " has gone";
          LeaveAlone(worker);
          break;
        }
        answer.error = "no worker has model '" + request.model + "'";
        // Whoever is on the list may still be there.
        if (by_name || Workers(request.model).empty()) return answer;
        by_name = true;
        break;
      case NATS_TIMEOUT:
        LeaveAlone(worker);
        answer.end = FrameEnd::kLate;
        answer.error = kNobodyAnswered;
        answer.worker = worker;
        return answer;
      default:
        answer.error = NatsStatus(*status, "request").message();
        return answer;
    }
  }
}

bool FrameClient::AsksByName() const {
  const std::lock_guard lock(mutex_);
  return Clock::now() < by_name_until_;
}

atollrt::Result<natsStatus> FrameClient::Ask(const FrameRequest& request, const std::string& worker,
                                             microseconds left, NatsPtr<natsMsg>* reply) const {
  NatsHeaders headers = request.headers;
  headers.emplace_back(kBudgetHeader, std::to_string(left.count()));
  if (!request.number.empty()) headers.emplace_back(kFrameHeader, request.number);
  const std::string subject =
      worker.empty() ? InferSubject(request.model) : InferSubject(request.model, worker);
  ATOLL_ASSIGN_OR_RETURN(const NatsPtr<natsMsg> message,
                         MakeMessage(subject, nullptr, headers, request.body));
  // Whole milliseconds; the worker knows the rest.
  const int64_t timeout_ms = std::max<int64_t>((left.count() + 999) / 1000, 1);
  return natsConnection_RequestMsg(NatsOut(reply), connection_->get(), message.get(), timeout_ms);
}

bool FrameClient::ReadReply(natsMsg* reply, FrameAnswer* answer) {
  answer->worker = HeaderOf(reply, kWorkerHeader);
  const std::string_view code = HeaderOf(reply, kErrorCodeHeader);
  if (code.empty()) {
    answer->end = FrameEnd::kAnswered;
    answer->error.clear();
    answer->body = BodyOf(reply);
    answer->json_bytes = HeaderOf(reply, kLengthHeader);
    return true;
  }
  answer->code = 500;
  (void)std::from_chars(code.data(), code.data() + code.size(), answer->code);
  answer->error = HeaderOf(reply, kErrorHeader);
  if (answer->code == 504) answer->end = FrameEnd::kLate;
  return answer->code != 503;
}

}  // namespace atollserve
