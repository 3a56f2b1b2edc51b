// SPDX-License-Identifier: Apache-2.0
#include "serve/fleet/sweeper.h"

#include <string>

#include "serve/fleet/infer_call.h"
#include "serve/fleet/jobs.h"
#include "serve/fleet/subjects.h"
#include "serve/inference/json_text.h"

namespace atollserve {
namespace {

using atollrt::Status;

constexpr int kBatch = 100;
// Messages of the queue that are looked at in a pass.
constexpr int kLooks = 10'000;
constexpr int64_t kFetchNs = 2'000'000'000;
// A job that is older than so many times the wait for a word of it has been dealt with.
constexpr int64_t kOldAckWaits = 10;
constexpr const char* kSweeperName = "sweeper";

// Of a message of the queue that the server gave up; 0 if it is none.
uint64_t SequenceOf(std::string_view advisory) {
  const auto json = ParseJson(advisory);
  if (!json.ok()) return 0;
  const auto* const sequence = FindMember(*json, "stream_seq");
  return sequence != nullptr && sequence->is_number_unsigned() ? sequence->get<uint64_t>() : 0;
}

}  // namespace

Status Sweeper::Sweep(SweepCounts* counts) {
  ATOLL_RETURN_IF_ERROR(streams_->Ensure());
  ATOLL_RETURN_IF_ERROR(streams_->EnsureDeadConsumer());
  ATOLL_RETURN_IF_ERROR(GiveUp(counts));
  return TakeOut(counts);
}

Status Sweeper::GiveUp(SweepCounts* counts) const {
  jsSubOptions options;
  jsSubOptions_Init(&options);
  options.Stream = kDeadStream;
  options.Consumer = kDeadConsumer;
  NatsPtr<natsSubscription> subscription;
  jsErrCode error = static_cast<jsErrCode>(0);
  ATOLL_RETURN_IF_ERROR(
      NatsStatus(js_PullSubscribe(NatsOut(&subscription), connection_->jetstream(),
                                  "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.ATOLL_WORK.>",
                                  kDeadConsumer, nullptr, &options, &error),
                 "jobs that were given up", error));
  while (true) {
    jsFetchRequest request;
    jsFetchRequest_Init(&request);
    request.Batch = kBatch;
    request.Expires = kFetchNs;
    request.NoWait = true;
    natsMsgList list = {};
    const natsStatus status = natsSubscription_FetchRequest(&list, subscription.get(), &request);
    if (status == NATS_NOT_FOUND || status == NATS_TIMEOUT) return {};
    if (status != NATS_OK) return NatsStatus(status, "jobs that were given up");
    Status failure;
    for (int i = 0; i < list.Count && failure.ok(); ++i) {
      natsMsg* const advisory = list.Msgs[i];
      const uint64_t sequence = SequenceOf(BodyOf(advisory));
      NatsPtr<natsMsg> job;
      if (sequence > 0 && js_GetMsg(NatsOut(&job), connection_->jetstream(), kWorkStream, sequence,
                                    nullptr, &error) == NATS_OK) {
        const std::string id(HeaderOf(job.get(), "Nats-Msg-Id"));
        bool was_there = false;
        if (IsJobId(id)) {
          failure =
              StoreResult(*connection_, id,
                          ErrorReply(Status(atollrt::StatusCode::kInternal,
                                            "the job was given to " +
                                                std::to_string(streams_->options().max_deliver) +
                                                " workers, none of which ended it")),
                          kSweeperName, &was_there);
        }
        if (!failure.ok()) break;
        (void)js_DeleteMsg(connection_->jetstream(), kWorkStream, sequence, nullptr, &error);
        if (!was_there) ++counts->given_up;
      }
      (void)natsMsg_Ack(advisory, nullptr);
    }
    natsMsgList_Destroy(&list);
    ATOLL_RETURN_IF_ERROR(failure);
  }
}

Status Sweeper::TakeOut(SweepCounts* counts) {
  const int64_t old_ns = kOldAckWaits * streams_->options().ack_wait_ms * 1'000'000;
  for (int i = 0; i < kLooks; ++i) {
    jsDirectGetMsgOptions wanted;
    jsDirectGetMsgOptions_Init(&wanted);
    wanted.Sequence = next_;
    wanted.NextBySubject = "atoll.work.>";
    NatsPtr<natsMsg> job;
    natsStatus status =
        js_DirectGetMsg(NatsOut(&job), connection_->jetstream(), kWorkStream, nullptr, &wanted);
    if (status == NATS_NOT_FOUND) {
      next_ = 1;
      return {};
    }
    if (status != NATS_OK) return NatsStatus(status, "the queue");
    const uint64_t sequence = natsMsg_GetSequence(job.get());
    // Those behind it are younger.
    if (nats_NowInNanoSeconds() - natsMsg_GetTime(job.get()) < old_ns) {
      next_ = 1;
      return {};
    }
    next_ = sequence + 1;
    const std::string id(HeaderOf(job.get(), "Nats-Msg-Id"));
    if (!IsJobId(id)) continue;
    const std::string subject = ResultSubject(id);
    jsDirectGetMsgOptions_Init(&wanted);
    wanted.LastBySubject = subject.c_str();
    NatsPtr<natsMsg> result;
    status = js_DirectGetMsg(NatsOut(&result), connection_->jetstream(), kResultStream, nullptr,
                             &wanted);
    if (status == NATS_NOT_FOUND) continue;
    if (status != NATS_OK) return NatsStatus(status, subject);
    jsErrCode error = static_cast<jsErrCode>(0);
    if (js_DeleteMsg(connection_->jetstream(), kWorkStream, sequence, nullptr, &error) == NATS_OK) {
      ++counts->left_over;
    }
  }
  return {};
}

}  // namespace atollserve
