// SPDX-License-Identifier: Apache-2.0
#include "serve/fleet/streams.h"

#include "serve/fleet/subjects.h"

namespace atollserve {
namespace {

using atollrt::Result;
using atollrt::Status;
using atollrt::StatusCode;

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kHour = 3600 * kSecond;
constexpr int64_t kWorkAge = 24 * kHour;
constexpr int64_t kResultAge = 7 * 24 * kHour;
constexpr int64_t kDuplicateWindow = 120 * kSecond;
constexpr int64_t kMaxAckPending = 1000;
constexpr int64_t kWorkerAge = 10 * kSecond;

std::string ModelStreamName() { return std::string("OBJ_") + kModelBucket; }

// Without what comes there.
jsStreamConfig ModelBucketConfig(const char* name) {
  jsStreamConfig config;
  jsStreamConfig_Init(&config);
  config.Name = name;
  config.Description = "models";
  config.Discard = js_DiscardNew;
  config.AllowRollup = true;
  config.AllowDirect = true;
  return config;
}

}  // namespace

bool IsPassing(const Status& status) {
  return status.code() == StatusCode::kNotFound || status.code() == StatusCode::kTimeout;
}

Status FleetStreams::EnsureStream(jsStreamConfig* config) const {
  const std::string what = std::string("stream ") + config->Name;
  jsErrCode error = static_cast<jsErrCode>(0);
  NatsPtr<jsStreamInfo> info;
  natsStatus status =
      js_GetStreamInfo(NatsOut(&info), connection_->jetstream(), config->Name, nullptr, &error);
  if (status == NATS_OK) return {};
  if (error != JSStreamNotFoundErr) return NatsStatus(status, what, error);
  const bool chooses = options_.replicas == 0;
  config->Replicas = chooses ? 3 : options_.replicas;
  status = js_AddStream(NatsOut(&info), connection_->jetstream(), config, nullptr, &error);
  if (chooses && error == JSStreamReplicasNotSupportedErr) {
    config->Replicas = 1;
    error = static_cast<jsErrCode>(0);
    status = js_AddStream(NatsOut(&info), connection_->jetstream(), config, nullptr, &error);
  }
  // Somebody else was faster, with options of their own.
  if (error == JSStreamNameExistErr) return {};
  return NatsStatus(status, what, error);
}

Status FleetStreams::Ensure() const {
  // Of one subject.
  const auto stream_of = [](const char* name, const char* description, const char** subject) {
    jsStreamConfig config;
    jsStreamConfig_Init(&config);
    config.Name = name;
    config.Description = description;
    config.Subjects = subject;
    config.SubjectsLen = 1;
    return config;
  };
  const char* of_work = "atoll.work.>";
  jsStreamConfig work = stream_of(kWorkStream, "jobs that wait for a worker", &of_work);
  work.Retention = js_WorkQueuePolicy;
  work.Discard = js_DiscardNew;
  work.MaxBytes = options_.work_bytes;
  work.MaxAge = kWorkAge;
  work.Duplicates = kDuplicateWindow;
  work.AllowDirect = true;
  ATOLL_RETURN_IF_ERROR(EnsureStream(&work));
  const char* of_results = "atoll.result.*";
  jsStreamConfig results = stream_of(kResultStream, "one result for each job", &of_results);
  results.MaxBytes = options_.result_bytes;
  results.MaxAge = kResultAge;
  results.MaxMsgsPerSubject = 1;
  results.Discard = js_DiscardNew;
  results.DiscardNewPerSubject = true;
  results.AllowDirect = true;
  ATOLL_RETURN_IF_ERROR(EnsureStream(&results));
  const char* of_dead = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.ATOLL_WORK.>";
  jsStreamConfig dead =
      stream_of(kDeadStream, "jobs that were given to workers too often", &of_dead);
  dead.MaxAge = kResultAge;
  dead.MaxBytes = 64 << 20;
  ATOLL_RETURN_IF_ERROR(EnsureStream(&dead));
  // Buckets as the clients of NATS make them.
  const auto bucket = [&](const char* name, const char* description, jsStorageType storage,
                          int64_t age) {
    const std::string stream = std::string("KV_") + name;
    const std::string subject = KeySubject(name, ">");
    const char* of_bucket = subject.c_str();
    jsStreamConfig config = stream_of(stream.c_str(), description, &of_bucket);
    config.MaxMsgsPerSubject = 1;
    config.MaxBytes = 64 << 20;
    config.Discard = js_DiscardNew;
    config.Storage = storage;
    config.MaxAge = age;
    config.AllowRollup = true;
    config.DenyDelete = true;
    config.AllowDirect = true;
    config.Duplicates = std::min(kDuplicateWindow, age == 0 ? kDuplicateWindow : age);
    return EnsureStream(&config);
  };
  ATOLL_RETURN_IF_ERROR(bucket(kPlacementBucket, "which models workers have", js_FileStorage, 0));
  ATOLL_RETURN_IF_ERROR(
      bucket(kWorkerBucket, "what workers say of themselves", js_MemoryStorage, kWorkerAge));
  const std::string stream = ModelStreamName();
  jsStreamConfig models = ModelBucketConfig(stream.c_str());
  const std::string chunks = std::string("$O.") + kModelBucket + ".C.>";
  const std::string metas = std::string("$O.") + kModelBucket + ".M.>";
  const char* subjects[] = {chunks.c_str(), metas.c_str()};
  models.Subjects = subjects;
  models.SubjectsLen = 2;
  return EnsureStream(&models);
}

Result<NatsPtr<jsStreamInfo>> FleetStreams::ModelStream() const {
  NatsPtr<jsStreamInfo> info;
  jsErrCode error = static_cast<jsErrCode>(0);
  const natsStatus status = js_GetStreamInfo(NatsOut(&info), connection_->jetstream(),
                                             ModelStreamName().c_str(), nullptr, &error);
  if (status != NATS_OK && error != JSStreamNotFoundErr) {
    return NatsStatus(status, "stream " + ModelStreamName(), error);
  }
  return info;
}

Status FleetStreams::CheckHasOwnModels() const {
  ATOLL_ASSIGN_OR_RETURN(const NatsPtr<jsStreamInfo> info, ModelStream());
  if (info == nullptr || info->Config->Mirror == nullptr) return {};
  const jsExternalStream* const from = info->Config->Mirror->External;
  return atollrt::InvalidArgument(
      "the models here are a mirror of those of %s; store them there",
      from == nullptr || from->APIPrefix == nullptr ? "another stream" : from->APIPrefix);
}

Result<uint64_t> FleetStreams::LastModelSequence() const {
  ATOLL_ASSIGN_OR_RETURN(const NatsPtr<jsStreamInfo> info, ModelStream());
  return info == nullptr ? 0 : info->State.LastSeq;
}

Status FleetStreams::MirrorModels(const std::string& domain, bool anew) const {
  const std::string name = ModelStreamName(), api = "$JS." + domain + ".API";
  ATOLL_ASSIGN_OR_RETURN(const NatsPtr<jsStreamInfo> before, ModelStream());
  jsErrCode error = static_cast<jsErrCode>(0);
  if (before != nullptr) {
    const jsStreamSource* const mirror = before->Config->Mirror;
    const bool is_it = mirror != nullptr && mirror->External != nullptr &&
                       mirror->External->APIPrefix != nullptr && api == mirror->External->APIPrefix;
    if (is_it && !anew) return {};
    if (!is_it && (mirror != nullptr || before->State.Msgs > 0)) {
      return atollrt::InvalidArgument(
          "there are models here already, so that the bucket cannot become a mirror");
    }
    // A mirror that lacks something, or as workers make it where there is none.
    const natsStatus status =
        js_DeleteStream(connection_->jetstream(), name.c_str(), nullptr, &error);
    if (status != NATS_OK) return NatsStatus(status, "stream " + name, error);
  }
  jsExternalStream external = {.APIPrefix = api.c_str(), .DeliverPrefix = ""};
  jsStreamSource source = {};
  source.Name = name.c_str();
  source.External = &external;
  jsStreamConfig models = ModelBucketConfig(name.c_str());
  models.Mirror = &source;
  ATOLL_RETURN_IF_ERROR(EnsureStream(&models));
  ATOLL_ASSIGN_OR_RETURN(const NatsPtr<jsStreamInfo> after, ModelStream());
  if (after != nullptr && after->Config->Mirror != nullptr) return {};
  // A worker was faster.
  return atollrt::NotFound("the bucket was made again by somebody else");
}

Status FleetStreams::EnsureWithin(int64_t timeout_ms) const {
  return TryFor(std::chrono::milliseconds(timeout_ms), [&] { return Ensure(); });
}

Status FleetStreams::EnsureConsumers(const std::string& model) const {
  for (int priority = 0; priority < kPriorities; ++priority) {
    const std::string name = ConsumerName(model, priority);
    const std::string filter = WorkSubject(model, priority);
    jsConsumerConfig config;
    jsConsumerConfig_Init(&config);
    config.Durable = name.c_str();
    config.FilterSubject = filter.c_str();
    config.AckPolicy = js_AckExplicit;
    // Times to wait before the next attempt (BackOff) would be the times to wait for a word of a
    // job, too: those are in Nak instead.
    config.AckWait = options_.ack_wait_ms * 1'000'000;
    config.MaxDeliver = options_.max_deliver;
    config.MaxAckPending = kMaxAckPending;
    jsErrCode error = static_cast<jsErrCode>(0);
    NatsPtr<jsConsumerInfo> info;
    natsStatus status = js_GetConsumerInfo(NatsOut(&info), connection_->jetstream(), kWorkStream,
                                           name.c_str(), nullptr, &error);
    if (status == NATS_OK) continue;
    if (error == JSConsumerNotFoundErr) {
      status = js_AddConsumer(NatsOut(&info), connection_->jetstream(), kWorkStream, &config,
                              nullptr, &error);
    }
    if (status != NATS_OK && error != JSConsumerNameExistErr) {
      return NatsStatus(status, "consumer " + name, error);
    }
  }
  return {};
}

Status FleetStreams::EnsureDeadConsumer() const {
  jsConsumerConfig config;
  jsConsumerConfig_Init(&config);
  config.Durable = kDeadConsumer;
  config.AckPolicy = js_AckExplicit;
  config.AckWait = 30 * kSecond;
  jsErrCode error = static_cast<jsErrCode>(0);
  NatsPtr<jsConsumerInfo> info;
  const natsStatus status = js_AddConsumer(NatsOut(&info), connection_->jetstream(), kDeadStream,
                                           &config, nullptr, &error);
  return NatsStatus(status, "consumer of jobs that were given up", error);
}

atollrt::Result<NatsPtr<kvStore>> FleetStreams::OpenBucket(const char* name) const {
  NatsPtr<kvStore> store;
  ATOLL_RETURN_IF_ERROR(NatsStatus(js_KeyValue(NatsOut(&store), connection_->jetstream(), name),
                                   std::string("bucket ") + name));
  return store;
}

}  // namespace atollserve
