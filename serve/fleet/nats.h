// SPDX-License-Identifier: Apache-2.0
//
// Things of nats.c with owners, its errors as Status, and messages with their headers.
#pragma once

#include <nats/nats.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atoll/status.h"

namespace atollserve {

struct NatsRelease {
  void operator()(natsMsg* message) const { natsMsg_Destroy(message); }
  void operator()(natsOptions* options) const { natsOptions_Destroy(options); }
  void operator()(natsConnection* connection) const { natsConnection_Destroy(connection); }
  void operator()(natsSubscription* subscription) const { natsSubscription_Destroy(subscription); }
  void operator()(jsCtx* context) const { jsCtx_Destroy(context); }
  void operator()(jsStreamInfo* info) const { jsStreamInfo_Destroy(info); }
  void operator()(jsConsumerInfo* info) const { jsConsumerInfo_Destroy(info); }
  void operator()(jsPubAck* ack) const { jsPubAck_Destroy(ack); }
  void operator()(jsMsgMetaData* data) const { jsMsgMetaData_Destroy(data); }
  void operator()(kvStore* store) const { kvStore_Destroy(store); }
  void operator()(kvEntry* entry) const { kvEntry_Destroy(entry); }
};
template <typename T>
using NatsPtr = std::unique_ptr<T, NatsRelease>;

// For the parameter through which a function of nats.c gives something: NatsOut(&pointer). The
// pointer has it when the whole expression has ended.
template <typename T>
class NatsOut {
 public:
  explicit NatsOut(NatsPtr<T>* owner) : owner_(owner) {}
  NatsOut(const NatsOut&) = delete;
  NatsOut& operator=(const NatsOut&) = delete;
  ~NatsOut() { owner_->reset(made_); }
  operator T**() { return &made_; }

 private:
  NatsPtr<T>* const owner_;
  T* made_ = nullptr;
};

// "`what`: Timeout", with what JetStream says if `error` is one of its codes. kNotFound: no server,
// or nobody there who would answer; kTimeout; kPermissionDenied; kInvalidArgument for what cannot
// be sent; kResourceExhausted: there is no room for it.
atollrt::Status NatsStatus(natsStatus status, std::string_view what,
                           jsErrCode error = static_cast<jsErrCode>(0));

// Headers of a message that is sent. Control characters in values become spaces.
using NatsHeaders = std::vector<std::pair<const char*, std::string>>;

atollrt::Result<NatsPtr<natsMsg>> MakeMessage(const std::string& subject, const char* reply,
                                              const NatsHeaders& headers, std::string_view body);

// "" without it. As long as the message.
std::string_view HeaderOf(natsMsg* message, const char* name);
std::string_view BodyOf(const natsMsg* message);
std::string_view SubjectOf(const natsMsg* message);
std::string_view ReplySubjectOf(const natsMsg* message);  // "": nobody waits for an answer

}  // namespace atollserve
