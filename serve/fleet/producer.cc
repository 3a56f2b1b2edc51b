// SPDX-License-Identifier: Apache-2.0
#include "serve/fleet/producer.h"

#include <algorithm>
#include <charconv>
#include <thread>
#include <utility>

#include "serve/fleet/infer_call.h"
#include "serve/fleet/subjects.h"
#include "serve/fleet/subscription.h"

namespace atollserve {
namespace {

using atollrt::Result;
using atollrt::Status;
using atollrt::StatusCode;
using std::chrono::milliseconds;

constexpr int kThreads = 4;
// Jobs that are written to the disk together.
constexpr size_t kSpoolJobs = 64;
constexpr size_t kSpoolBytes = 8 << 20;
constexpr auto kFirstPause = milliseconds(5);  // after somebody has said that there is a result
constexpr auto kLongestPause = milliseconds(2000);
constexpr auto kTryAgain = milliseconds(500);
constexpr int64_t kStreamsMs = 60'000;
constexpr int64_t kLookMs = 1000;

}  // namespace

Producer::Producer(const FleetConnection* connection, const FleetStreams* streams, Spool* spool,
                   ProducerOptions options)
    : connection_(connection), streams_(streams), spool_(spool), options_(std::move(options)) {}

void Producer::Stop() {
  const std::lock_guard lock(mutex_);
  stop_ = true;
  changed_.notify_all();
}

ProducerCounts Producer::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

Status Producer::Run(const NextInput& next, const OnResult& on_result, const OnSync& on_sync) {
  ATOLL_RETURN_IF_ERROR(
      streams_->EnsureWithin(std::min(kStreamsMs, options_.timeout_ms.value_or(kStreamsMs))));
  // Hints: what is not heard is looked for.
  ATOLL_ASSIGN_OR_RETURN(
      const std::unique_ptr<Subscription> hints,
      Subscription::Start(connection_, DoneSubject("*"), "", [this](natsMsg* message) {
        const std::string_view subject = SubjectOf(message);
        const std::lock_guard lock(mutex_);
        const auto found = jobs_.find(std::string(subject.substr(subject.rfind('.') + 1)));
        if (found == jobs_.end()) return;
        found->second.is_hinted = true;
        found->second.pause = kFirstPause;
        if (found->second.is_published) found->second.due = Clock::now();
        changed_.notify_one();
      }));
  const Clock::time_point start = Clock::now();
  {
    const std::lock_guard lock(mutex_);
    for (const SpoolJob& job : spool_->Waiting()) {
      // Its result may be there.
      jobs_[job.job] = {.is_published = true, .due = start, .publish_again = start};
      ++counts_.resumed;
    }
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] { Work(on_result, on_sync); });
  }
  bool has_more = true;
  Status status;
  while (has_more && status.ok()) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] {
        return stop_ || !failure_.ok() || jobs_.size() + kSpoolJobs <= options_.window;
      });
      if (stop_ || !failure_.ok()) break;
    }
    status = Fill(next, &has_more);
  }
  {
    std::unique_lock lock(mutex_);
    all_added_ = true;
    if (!status.ok() && failure_.ok()) failure_ = status;
    changed_.notify_all();
    const auto is_over = [&] { return stop_ || !failure_.ok() || jobs_.empty(); };
    if (options_.timeout_ms) {
      const auto until = start + milliseconds(*options_.timeout_ms);
      if (!changed_.wait_until(lock, until, is_over)) {
        failure_ =
            atollrt::Timeout("%zu jobs have no result after %lld s; they stay in the spool",
                             jobs_.size(), static_cast<long long>(*options_.timeout_ms / 1000));
      }
    } else {
      changed_.wait(lock, is_over);
    }
    if (stop_ && failure_.ok() && !jobs_.empty()) {
      failure_ = Status(StatusCode::kCancelled,
                        std::to_string(jobs_.size()) +
                            " jobs have no result yet; the same command goes on with them");
    }
    stop_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads) thread.join();
  const std::lock_guard one_at_a_time(hand_over_);
  const Status forgotten = Forget(on_sync);
  return failure_.ok() ? forgotten : failure_;
}

Status Producer::Fill(const NextInput& next, bool* has_more) {
  std::vector<SpoolJob> jobs;
  std::vector<std::string> bodies;
  size_t bytes = 0;
  while (jobs.size() < kSpoolJobs && bytes < kSpoolBytes) {
    auto input = next();
    if (!input) {
      *has_more = false;
      break;
    }
    if (!input->ok()) return std::move(*input).status();
    if (spool_->HasName((*input)->name)) continue;
    bytes += (*input)->body.size();
    jobs.push_back({.job = MakeJobId(),
                    .name = std::move((*input)->name),
                    .model = options_.model,
                    .priority = options_.priority,
                    .headers = std::move((*input)->headers),
                    .bytes = (*input)->body.size()});
    bodies.push_back(std::move((*input)->body));
  }
  if (jobs.empty()) return {};
  ATOLL_RETURN_IF_ERROR(spool_->Add(jobs, bodies));
  const Clock::time_point now = Clock::now();
  const std::lock_guard lock(mutex_);
  for (const SpoolJob& job : jobs) jobs_[job.job] = {.due = now, .publish_again = now};
  counts_.added += static_cast<int64_t>(jobs.size());
  changed_.notify_all();
  return {};
}

void Producer::Work(const OnResult& on_result, const OnSync& on_sync) {
  std::unique_lock lock(mutex_);
  while (!stop_ && failure_.ok()) {
    const Clock::time_point now = Clock::now();
    Clock::time_point next = now + kTryAgain;
    auto found = jobs_.end();
    for (auto one = jobs_.begin(); one != jobs_.end(); ++one) {
      if (one->second.is_busy || one->second.due >= next) continue;
      next = one->second.due;
      found = one;
    }
    if (found == jobs_.end() || next > now) {
      changed_.wait_until(lock, next);
      continue;
    }
    const std::string id = found->first;
    Job& job = found->second;  // stays where it is while it is busy
    job.is_busy = true;
    const bool publishes = !job.is_published;
    lock.unlock();
    if (publishes) {
      bool is_final = false;
      const Status status = Publish(id, &is_final);
      if (is_final) {
        JobResult result;
        auto spooled = spool_->Find(id);
        if (spooled.ok()) result.job = *std::move(spooled);
        result.error = status.message();
        result.code = HttpStatusOf(status.code());
        HandOver(result, on_result, on_sync);
        lock.lock();
        continue;
      }
      lock.lock();
      const Clock::time_point then = Clock::now();
      job.is_busy = false;
      if (status.ok()) {
        ++counts_.published;
        job.is_published = true;
        job.publish_again = then + milliseconds(options_.publish_again_ms);
        job.pause = job.is_hinted ? kFirstPause : kLongestPause;
        job.due = std::min(then + job.pause, job.publish_again);
      } else {
        job.due = then + kTryAgain;
        if (last_problem_ != status.message()) {
          last_problem_ = status.message();
          connection_->Say(last_problem_ + "; trying again");
        }
      }
      continue;
    }
    auto result = Look(id);
    if (result.ok() && *result) {
      HandOver(**result, on_result, on_sync);
      lock.lock();
      continue;
    }
    lock.lock();
    const Clock::time_point then = Clock::now();
    job.is_busy = false;
    if (then >= job.publish_again) {
      // Also if nobody could be asked: a second result is refused.
      job.is_published = false;
      job.is_hinted = false;
      job.due = then;
    } else if (!result.ok()) {
      job.due = std::min(then + kTryAgain, job.publish_again);
    } else {
      job.due = std::min(then + job.pause, job.publish_again);
      job.pause = std::min(job.pause * 2, kLongestPause);
    }
  }
}

Status Producer::Publish(const std::string& id, bool* is_final) {
  *is_final = false;
  ATOLL_ASSIGN_OR_RETURN(const SpoolJob job, spool_->Find(id));
  ATOLL_ASSIGN_OR_RETURN(const std::string body, spool_->Body(id));
  NatsHeaders headers;
  for (const auto& [name, value] : job.headers) headers.emplace_back(name.c_str(), value);
  ATOLL_ASSIGN_OR_RETURN(const NatsPtr<natsMsg> message,
                         MakeMessage(WorkSubject(job.model, job.priority), nullptr, headers, body));
  jsPubOptions options;
  jsPubOptions_Init(&options);
  options.MsgId = id.c_str();
  options.ExpectStream = kWorkStream;
  jsErrCode error = static_cast<jsErrCode>(0);
  NatsPtr<jsPubAck> ack;
  const natsStatus status =
      js_PublishMsg(NatsOut(&ack), connection_->jetstream(), message.get(), &options, &error);
  *is_final = status == NATS_MAX_PAYLOAD || error == JSStreamMessageExceedsMaximumErr;
  if (error == JSStreamNotFoundErr || status == NATS_NO_RESPONDERS) {
    // No leader yet; or somebody has removed it.
    (void)streams_->Ensure();
  }
  return NatsStatus(status, "job '" + job.name + "'", error);
}

Result<std::optional<JobResult>> Producer::Look(const std::string& id) const {
  const std::string subject = ResultSubject(id);
  jsDirectGetMsgOptions wanted;
  jsDirectGetMsgOptions_Init(&wanted);
  wanted.LastBySubject = subject.c_str();
  jsOptions soon;
  jsOptions_Init(&soon);
  soon.Wait = kLookMs;
  NatsPtr<natsMsg> message;
  natsStatus status =
      js_DirectGetMsg(NatsOut(&message), connection_->jetstream(), kResultStream, &soon, &wanted);
  if (status != NATS_OK && status != NATS_NOT_FOUND) {
    // Any replica may be asked, also one that has lost its stream and will not answer. The leader
    // will.
    jsErrCode error = static_cast<jsErrCode>(0);
    status = js_GetLastMsg(NatsOut(&message), connection_->jetstream(), kResultStream,
                           subject.c_str(), &soon, &error);
    if (error == JSNoMessageFoundErr) status = NATS_NOT_FOUND;
  }
  if (status == NATS_NOT_FOUND) return std::optional<JobResult>();
  if (status != NATS_OK) return NatsStatus(status, "result of job " + id);
  JobResult result;
  ATOLL_ASSIGN_OR_RETURN(result.job, spool_->Find(id));
  result.worker = HeaderOf(message.get(), kWorkerHeader);
  result.json_bytes = HeaderOf(message.get(), kLengthHeader);
  result.body = BodyOf(message.get());
  const std::string_view code = HeaderOf(message.get(), kErrorCodeHeader);
  if (!code.empty()) {
    result.code = 500;
    (void)std::from_chars(code.data(), code.data() + code.size(), result.code);
    result.error = HeaderOf(message.get(), kErrorHeader);
    if (result.error.empty()) result.error = "it failed";
  }
  return std::optional<JobResult>(std::move(result));
}

Status Producer::Forget(const OnSync& on_sync) {
  if (handed_over_.empty()) return {};
  ATOLL_RETURN_IF_ERROR(on_sync());
  for (const std::string& job : handed_over_) ATOLL_RETURN_IF_ERROR(spool_->Done(job));
  handed_over_.clear();
  return {};
}

void Producer::HandOver(const JobResult& result, const OnResult& on_result, const OnSync& on_sync) {
  const std::lock_guard one_at_a_time(hand_over_);
  Status status = on_result(result);
  if (status.ok()) {
    handed_over_.push_back(result.job.job);
    if (handed_over_.size() >= kSpoolJobs) status = Forget(on_sync);
  }
  const std::lock_guard lock(mutex_);
  if (!status.ok()) {
    if (failure_.ok()) failure_ = status;
  } else {
    ++(result.error.empty() ? counts_.done : counts_.failed);
    jobs_.erase(result.job.job);
  }
  changed_.notify_all();
}

}  // namespace atollserve
