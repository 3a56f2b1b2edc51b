// SPDX-License-Identifier: Apache-2.0
#include "serve/fleet/objects.h"

#include <algorithm>

#include "runtime/base/sha256.h"
#include "serve/fleet/subjects.h"

namespace atollserve {
namespace {

using atollrt::CorruptModel;
using atollrt::NotFound;
using atollrt::ResourceExhausted;
using atollrt::Result;
using atollrt::Status;
using atollrt::StatusCode;

constexpr size_t kChunkBytes = 128 << 10;
constexpr size_t kMaxNameBytes = 1000;

}  // namespace

std::string Sha256Bytes(std::string_view bytes) {
  const std::string hex = atollrt::Sha256Hex(bytes.data(), bytes.size());
  std::string digest;
  const auto value = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    digest += static_cast<char>(value(hex[i]) << 4 | value(hex[i + 1]));
  }
  return digest;
}

std::string ObjectStore::MetaSubject(const std::string& name) const {
  return "$O." + bucket_ + ".M." + Base64Url(name);
}

Result<ObjectInfo> ObjectStore::InfoAt(const std::string& subject) const {
  jsDirectGetMsgOptions wanted;
  jsDirectGetMsgOptions_Init(&wanted);
  wanted.LastBySubject = subject.c_str();
  NatsPtr<natsMsg> message;
  const natsStatus status = js_DirectGetMsg(NatsOut(&message), connection_->jetstream(),
                                            Stream().c_str(), nullptr, &wanted);
  if (status != NATS_OK) return NatsStatus(status, "what is known of an object");
  return ParseObject(BodyOf(message.get()));
}

Result<ObjectInfo> ObjectStore::Info(const std::string& name) const {
  ATOLL_ASSIGN_OR_RETURN(ObjectInfo info, InfoAt(MetaSubject(name)));
  if (info.deleted || info.name != name) {
    return NotFound("there is no object '%s'", name.c_str());
  }
  return info;
}

Status ObjectStore::Put(const std::string& name, std::string_view bytes,
                        const std::string& made_from, bool* is_new) const {
  if (name.empty() || name.size() > kMaxNameBytes) {
    return atollrt::InvalidArgument("the name of an object has %zu bytes; 1 to %zu", name.size(),
                                    kMaxNameBytes);
  }
  ObjectInfo info = {.name = name,
                     .nuid = MakeJobId(),
                     .size = bytes.size(),
                     .chunks = (bytes.size() + kChunkBytes - 1) / kChunkBytes,
                     .sha256 = Sha256Bytes(bytes),
                     .made_from = made_from,
                     .deleted = false};
  const Result<ObjectInfo> before = Info(name);
  *is_new = !before.ok() || before->sha256 != info.sha256 || before->size != info.size ||
            before->made_from != made_from;
  if (!*is_new) return {};
  const std::string chunks = ChunkSubject(info.nuid);
  const auto purge = [&](const std::string& subject) {
    jsOptions options;
    jsOptions_Init(&options);
    options.Stream.Purge.Subject = subject.c_str();
    (void)js_PurgeStream(connection_->jetstream(), Stream().c_str(), &options, nullptr);
  };
  jsErrCode error = static_cast<jsErrCode>(0);
  NatsPtr<jsPubAck> ack;
  for (size_t at = 0; at < bytes.size(); at += kChunkBytes) {
    const std::string_view chunk = bytes.substr(at, kChunkBytes);
    const natsStatus status =
        js_Publish(NatsOut(&ack), connection_->jetstream(), chunks.c_str(), chunk.data(),
                   static_cast<int>(chunk.size()), nullptr, &error);
    if (status != NATS_OK) {
      purge(chunks);
      return NatsStatus(status, "a chunk of object '" + name + "'", error);
    }
  }
  ATOLL_ASSIGN_OR_RETURN(const NatsPtr<natsMsg> meta,
                         MakeMessage(MetaSubject(name), nullptr, {{"Nats-Rollup", "sub"}},
                                     ObjectJson(bucket_, info, kChunkBytes)));
  const natsStatus status =
      js_PublishMsg(NatsOut(&ack), connection_->jetstream(), meta.get(), nullptr, &error);
  if (status != NATS_OK) {
    purge(chunks);
    return NatsStatus(status, "object '" + name + "'", error);
  }
  if (before.ok() && !before->nuid.empty()) purge(ChunkSubject(before->nuid));
  return {};
}

Result<std::string> ObjectStore::Get(const ObjectInfo& info, size_t max_bytes) const {
  if (info.size > max_bytes) {
    return ResourceExhausted("object '%s' has %llu bytes; at most %zu", info.name.c_str(),
                             static_cast<unsigned long long>(info.size), max_bytes);
  }
  const std::string subject = ChunkSubject(info.nuid);
  std::string bytes;
  uint64_t sequence = 1;
  while (bytes.size() < info.size) {
    jsDirectGetMsgOptions wanted;
    jsDirectGetMsgOptions_Init(&wanted);
    wanted.Sequence = sequence;
    wanted.NextBySubject = subject.c_str();
    NatsPtr<natsMsg> message;
    const natsStatus status = js_DirectGetMsg(NatsOut(&message), connection_->jetstream(),
                                              Stream().c_str(), nullptr, &wanted);
    if (status != NATS_OK) return NatsStatus(status, "a chunk of object '" + info.name + "'");
    const std::string_view chunk = BodyOf(message.get());
    const uint64_t at = natsMsg_GetSequence(message.get());
    if (chunk.empty() || chunk.size() > info.size - bytes.size() || at < sequence) {
      return CorruptModel("object '%s' has other chunks than its %llu bytes", info.name.c_str(),
                          static_cast<unsigned long long>(info.size));
    }
    bytes += chunk;
    sequence = at + 1;
  }
  if (Sha256Bytes(bytes) != info.sha256) {
    return CorruptModel("object '%s' is not what was stored: its SHA-256 is another one",
                        info.name.c_str());
  }
  return bytes;
}

Result<std::vector<ObjectInfo>> ObjectStore::List(size_t most) const {
  const std::string filter = "$O." + bucket_ + ".M.>";
  jsOptions options;
  jsOptions_Init(&options);
  options.Stream.Info.SubjectsFilter = filter.c_str();
  jsErrCode error = static_cast<jsErrCode>(0);
  NatsPtr<jsStreamInfo> stream;
  const natsStatus status = js_GetStreamInfo(NatsOut(&stream), connection_->jetstream(),
                                             Stream().c_str(), &options, &error);
  if (status != NATS_OK) return NatsStatus(status, "stream " + Stream(), error);
  std::vector<ObjectInfo> objects;
  const jsStreamStateSubjects* const subjects = stream->State.Subjects;
  const int count = subjects == nullptr ? 0 : subjects->Count;
  if (static_cast<size_t>(count) > most) {
    return ResourceExhausted("bucket %s has %d objects; at most %zu", bucket_.c_str(), count, most);
  }
  for (int i = 0; i < count; ++i) {
    auto info = InfoAt(subjects->List[i].Subject);
    if (info.ok() && !info->deleted) objects.push_back(*std::move(info));
  }
  std::sort(objects.begin(), objects.end(),
            [](const ObjectInfo& a, const ObjectInfo& b) { return a.name < b.name; });
  return objects;
}

}  // namespace atollserve
