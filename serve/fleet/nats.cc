// SPDX-License-Identifier: Apache-2.0
#include "serve/fleet/nats.h"

#include <algorithm>

namespace atollserve {
namespace {

using atollrt::Status;
using atollrt::StatusCode;

StatusCode CodeOf(natsStatus status, jsErrCode error) {
  switch (error) {
    case JSInsufficientResourcesErr:
    case JSStorageResourcesExceededErr:
    case JSMemoryResourcesExceededErr:
    case JSAccountResourcesExceededErr:
    case JSStreamStoreFailedErr:
    case JSClusterNoPeersErr:
      return StatusCode::kResourceExhausted;
    case JSStreamNotFoundErr:
    case JSConsumerNotFoundErr:
    case JSNoMessageFoundErr:
    case JSClusterNotAvailErr:
    case JSNotEnabledErr:
    case JSNotEnabledForAccountErr:
      return StatusCode::kNotFound;
    default:
      break;
  }
  switch (status) {
    case NATS_TIMEOUT:
      return StatusCode::kTimeout;
    case NATS_CONNECTION_AUTH_FAILED:
    case NATS_NOT_PERMITTED:
    case NATS_SECURE_CONNECTION_REQUIRED:
    case NATS_SSL_ERROR:
      return StatusCode::kPermissionDenied;
    case NATS_INVALID_ARG:
    case NATS_INVALID_SUBJECT:
    case NATS_MAX_PAYLOAD:
    case NATS_ADDRESS_MISSING:
      return StatusCode::kInvalidArgument;
    case NATS_NO_MEMORY:
    case NATS_SLOW_CONSUMER:
    case NATS_INSUFFICIENT_BUFFER:
      return StatusCode::kResourceExhausted;
    default:
      return StatusCode::kNotFound;
  }
}

}  // namespace

Status NatsStatus(natsStatus status, std::string_view what, jsErrCode error) {
  if (status == NATS_OK) return {};
  std::string sentence(what);
  sentence += ": ";
  natsStatus last = NATS_OK;
  const char* const more = nats_GetLastError(&last);
  if (more != nullptr && last == status && *more != '\0') {
    sentence += more;
  } else {
    sentence += natsStatus_GetText(status);
  }
  return Status(CodeOf(status, error), std::move(sentence));
}

atollrt::Result<NatsPtr<natsMsg>> MakeMessage(const std::string& subject, const char* reply,
                                              const NatsHeaders& headers, std::string_view body) {
  if (body.size() > INT32_MAX) {
    return atollrt::InvalidArgument("a message of %zu bytes is longer than any that NATS takes",
                                    body.size());
  }
  NatsPtr<natsMsg> message;
  natsStatus status = natsMsg_Create(NatsOut(&message), subject.c_str(), reply, body.data(),
                                     static_cast<int>(body.size()));
  for (const auto& [name, value] : headers) {
    if (status != NATS_OK) break;
    std::string clean = value;
    std::replace_if(
        clean.begin(), clean.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; },
        ' ');
    status = natsMsgHeader_Set(message.get(), name, clean.c_str());
  }
  if (status != NATS_OK) return NatsStatus(status, "message to '" + subject + "'");
  return message;
}

std::string_view HeaderOf(natsMsg* message, const char* name) {
  const char* value = nullptr;
  if (natsMsgHeader_Get(message, name, &value) != NATS_OK || value == nullptr) return {};
  return value;
}

std::string_view BodyOf(const natsMsg* message) {
  const int size = natsMsg_GetDataLength(message);
  if (size <= 0) return {};
  return {natsMsg_GetData(message), static_cast<size_t>(size)};
}

std::string_view SubjectOf(const natsMsg* message) {
  const char* const subject = natsMsg_GetSubject(message);
  return subject == nullptr ? std::string_view() : subject;
}

std::string_view ReplySubjectOf(const natsMsg* message) {
  const char* const reply = natsMsg_GetReply(message);
  return reply == nullptr ? std::string_view() : reply;
}

}  // namespace atollserve
