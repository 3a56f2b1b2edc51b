// SPDX-License-Identifier: Apache-2.0
#include "atoll/status.h"

#include <cstdarg>
#include <cstdio>
#include <iterator>
#include <utility>

namespace atollrt {
namespace {

std::string FormatV(const char* format, va_list args) {
  va_list measure;
  va_copy(measure, args);
  const int length = std::vsnprintf(nullptr, 0, format, measure);
  va_end(measure);
  if (length <= 0) return {};
  std::string text(static_cast<size_t>(length), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, args);
  return text;
}

}  // namespace

const char* StatusCodeName(StatusCode code) {
  constexpr const char* kNames[] = {
      "ok",        "invalid argument",   "corrupt model", "unsupported",
      "not found", "permission denied",  "device busy",   "device lost",
      "timeout",   "resource exhausted", "cancelled",     "internal error"};
  const auto index = static_cast<size_t>(code);
  return index < std::size(kNames) ? kNames[index] : "unknown";
}

Status::Status(StatusCode code, std::string message)
    : error_(new Error{.code = code, .message = std::move(message)}) {
  ATOLL_CHECK(code != StatusCode::kOk);
}

Status::Error* Status::Share(Error* error) {
  if (error != nullptr) error->owners.fetch_add(1, std::memory_order_relaxed);
  return error;
}

void Status::Release::operator()(Error* error) const {
  if (error->owners.fetch_sub(1, std::memory_order_acq_rel) == 1) delete error;
}

const std::string& Status::message() const {
  static const std::string* const kNoMessage = new std::string;
  return error_ ? error_->message : *kNoMessage;
}

Status Status::WithContext(const std::string& context) && {
  if (ok()) return {};
  return Status(error_->code, context + ": " + error_->message);
}

std::string Format(const char* format, ...) {
  va_list args;
  va_start(args, format);
  std::string text = FormatV(format, args);
  va_end(args);
  return text;
}

#define ATOLL_DEFINE_ERROR(name, code)          \
  Status name(const char* format, ...) {        \
    va_list args;                               \
    va_start(args, format);                     \
    Status status(code, FormatV(format, args)); \
    va_end(args);                               \
    return status;                              \
  }
ATOLL_DEFINE_ERROR(InvalidArgument, StatusCode::kInvalidArgument)
ATOLL_DEFINE_ERROR(CorruptModel, StatusCode::kCorruptModel)
ATOLL_DEFINE_ERROR(Unsupported, StatusCode::kUnsupported)
ATOLL_DEFINE_ERROR(NotFound, StatusCode::kNotFound)
ATOLL_DEFINE_ERROR(DeviceLost, StatusCode::kDeviceLost)
ATOLL_DEFINE_ERROR(Timeout, StatusCode::kTimeout)
ATOLL_DEFINE_ERROR(ResourceExhausted, StatusCode::kResourceExhausted)
ATOLL_DEFINE_ERROR(InternalError, StatusCode::kInternal)
#undef ATOLL_DEFINE_ERROR

}  // namespace atollrt
