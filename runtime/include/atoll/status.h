// SPDX-License-Identifier: Apache-2.0
//
// Status and Result<T>: how every fallible function in Atoll reports what went wrong.
//
// A Status is one code for programs and one English sentence for people; the sentence names the
// thing and the numbers ("tensor 17 'conv1/w': scale[3] is 0"). Success carries no allocation.
// Values of these types are ordinary: copy, move and return them. Copies share the sentence, so
// that to return what has been said before allocates nothing, either; each is used by one thread at
// a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "atoll/check.h"

namespace atollrt {

enum class StatusCode {
  kOk = 0,
  kInvalidArgument,    // the caller's mistake; retrying cannot help
  kCorruptModel,       // the bytes are not a valid .tflite or executable
  kUnsupported,        // valid, but not implemented here (op, type, version)
  kNotFound,           // no such file, device or name
  kPermissionDenied,   // it exists, but this user may not open it
  kDeviceBusy,         // another process or request holds it
  kDeviceLost,         // unplugged or reset under us; reopen
  kTimeout,            // the deadline passed
  kResourceExhausted,  // memory of the host or of the device
  kCancelled,          // the caller asked for it
  kInternal,           // a bug in this library
};

// The code's name as it appears in logs: "kNotFound" -> "not found".
const char* StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  // `code` must not be kOk; success is Status().
  Status(StatusCode code, std::string message);
  Status(const Status& other) : error_(Share(other.error_.get())) {}
  Status& operator=(const Status& other) {
    error_.reset(Share(other.error_.get()));
    return *this;
  }
  Status(Status&&) = default;
  Status& operator=(Status&&) = default;

  bool ok() const { return error_ == nullptr; }
  StatusCode code() const { return error_ ? error_->code : StatusCode::kOk; }
  // Empty for success. Valid while this Status lives.
  const std::string& message() const;

  // The same error with "`context`: " in front of its message; success stays success.
  Status WithContext(const std::string& context) &&;

 private:
  struct Error {
    StatusCode code;
    std::string message;
    std::atomic<int32_t> owners = 1;
  };
  static Error* Share(Error* error);
  struct Release {
    void operator()(Error* error) const;  // not inline: thousands of places destroy a Status
  };
  std::unique_ptr<Error, Release> error_;
};

// A T or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : has_value_(true) { new (&storage_.value) T(std::move(value)); }
  Result(Status status) : status_(std::move(status)), has_value_(false) {
    ATOLL_CHECK(!status_.ok());
  }
  Result(Result&& other) noexcept
      : status_(std::move(other.status_)), has_value_(other.has_value_) {
    if (has_value_) new (&storage_.value) T(std::move(other.storage_.value));
  }
  Result& operator=(Result&& other) noexcept {
    if (this != &other) {
      this->~Result();
      new (this) Result(std::move(other));
    }
    return *this;
  }
  ~Result() {
    if (has_value_) storage_.value.~T();
  }

  bool ok() const { return has_value_; }
  const Status& status() const& { return status_; }
  Status&& status() && { return std::move(status_); }
  StatusCode code() const { return status_.code(); }

  // The value; calling these on an error is a bug in the caller.
  T& operator*() & { return Checked(); }
  const T& operator*() const& { return const_cast<Result*>(this)->Checked(); }
  T&& operator*() && { return std::move(Checked()); }
  T* operator->() { return &Checked(); }
  const T* operator->() const { return &const_cast<Result*>(this)->Checked(); }

 private:
  T& Checked() {
    ATOLL_CHECK(has_value_);
    return storage_.value;
  }
  union Storage {
    Storage() {}
    ~Storage() {}
    T value;
  };
  Status status_;
  bool has_value_;
  Storage storage_;
};

#define ATOLL_RETURN_IF_ERROR(expression)                                                          \
  do {                                                                                             \
    if (::atollrt::Status atoll_status_ = (expression); !atoll_status_.ok()) return atoll_status_; \
  } while (false)

#define ATOLL_CONCAT_INNER(a, b) a##b
#define ATOLL_CONCAT(a, b) ATOLL_CONCAT_INNER(a, b)
#define ATOLL_ASSIGN_OR_RETURN(declaration, expression)               \
  auto ATOLL_CONCAT(atoll_result_, __LINE__) = (expression);          \
  if (!ATOLL_CONCAT(atoll_result_, __LINE__).ok())                    \
    return std::move(ATOLL_CONCAT(atoll_result_, __LINE__)).status(); \
  declaration = *std::move(ATOLL_CONCAT(atoll_result_, __LINE__))

// printf into a std::string, for messages.
[[gnu::format(printf, 1, 2)]] std::string Format(const char* format, ...);

// Shorthands that read as sentences at the call: return InvalidArgument("axis %d ...", axis);
[[gnu::format(printf, 1, 2)]] Status InvalidArgument(const char* format, ...);
[[gnu::format(printf, 1, 2)]] Status CorruptModel(const char* format, ...);
[[gnu::format(printf, 1, 2)]] Status Unsupported(const char* format, ...);
[[gnu::format(printf, 1, 2)]] Status NotFound(const char* format, ...);
[[gnu::format(printf, 1, 2)]] Status DeviceLost(const char* format, ...);
[[gnu::format(printf, 1, 2)]] Status Timeout(const char* format, ...);
[[gnu::format(printf, 1, 2)]] Status ResourceExhausted(const char* format, ...);
[[gnu::format(printf, 1, 2)]] Status InternalError(const char* format, ...);

}  // namespace atollrt
