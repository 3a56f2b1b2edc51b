// SPDX-License-Identifier: Apache-2.0
#include "tools/gadget/coral_function.h"

#include <algorithm>

#include "runtime/base/log.h"

namespace atollrt {
namespace {

constexpr uint8_t kClassOut = 0x21;
constexpr uint8_t kClassIn = 0xA1;
// DFU 1.1, section 3.
enum Request : uint8_t {
  kDetach = 0,
  kDownload = 1,
  kUpload = 2,
  kGetStatus = 3,
  kClearStatus = 4,
  kGetState = 5,
  kAbort = 6,
};

// Section 4.1.3: can download and upload, waits 100 ms at most for a reset, DFU 1.1.
constexpr uint8_t kFunctionalDescriptor[] = {9, 0x21, 0x03, 100, 0, 0x00, 0x01, 0x10, 0x01};
static_assert(CoralFunction::kTransferBytes == 0x0100);

}  // namespace

UsbId CoralFunction::id() const { return mode_ == Mode::kRom ? kCoralBootUsbId : kCoralUsbId; }

InterfaceDescription CoralFunction::Describe() const {
  if (mode_ == Mode::kRom) {
    return {
        .name = "DFU",
        .interface_class = 0xFE,
        .interface_subclass = 0x01,
        .interface_protocol = 0x02,
        .class_descriptor = {std::begin(kFunctionalDescriptor), std::end(kFunctionalDescriptor)}};
  }
  using Type = EndpointDescription::Type;
  return {.name = "application",
          .endpoints = {{0x01, Type::kBulk},
                        {0x02, Type::kBulk},
                        {0x03, Type::kBulk},
                        {0x81, Type::kBulk},
                        {0x82, Type::kBulk},
                        {0x83, Type::kInterrupt}}};
}

void CoralFunction::Disable() {
  if (leaves_at_reset_) leaves_ = true;
  state_ = State::kIdle;
  error_ = Error::kNone;
}

Status CoralFunction::Refuse(Error error, const char* what) {
  state_ = State::kError;
  error_ = error;
  return InvalidArgument("DFU: %s", what);
}

Status CoralFunction::ControlOut(const ControlSetup& setup, size_t length,
                                 const ReceiveData& receive) {
  if (setup.request_type != kClassOut) return InvalidArgument("not implemented");
  if (setup.request == kDetach && length == 0) {
    ATOLL_RETURN_IF_ERROR(receive({}));
    leaves_at_reset_ = leaves_at_reset_ || mode_ == Mode::kApplication;
    return {};
  }
  if (mode_ != Mode::kRom) return InvalidArgument("not implemented");
  if (setup.request == kDownload) return Download(setup, length, receive);
  const bool ends = setup.request == (state_ == State::kError ? kClearStatus : kAbort);
  if (!ends || length != 0) return Refuse(Error::kStalled, "no such request in this state");
  ATOLL_RETURN_IF_ERROR(receive({}));
  state_ = State::kIdle;
  error_ = Error::kNone;
  return {};
}

Status CoralFunction::Download(const ControlSetup& setup, size_t length,
                               const ReceiveData& receive) {
  if (state_ != State::kIdle && state_ != State::kDownload) {
    return Refuse(Error::kStalled, "a download in the wrong state");
  }
  if (length == 0) {
    if (state_ == State::kIdle || downloaded_bytes_ == 0) {
      return Refuse(Error::kNotDone, "the download ends before it has begun");
    }
    ATOLL_RETURN_IF_ERROR(receive({}));
    Log(LogSeverity::kInfo, "firmware of %zu bytes; a reset starts it", downloaded_bytes_);
    state_ = State::kIdle;
    leaves_at_reset_ = true;
    return {};
  }
  const size_t begin = size_t{setup.value} * kTransferBytes;
  if (length > kTransferBytes || begin + length > memory_.size()) {
    return Refuse(Error::kAddress, "a block beyond the end of the memory");
  }
  ATOLL_RETURN_IF_ERROR(receive(std::span(memory_).subspan(begin, length)));
  if (state_ == State::kIdle) downloaded_bytes_ = 0;
  downloaded_bytes_ += length;
  leaves_at_reset_ = false;
  state_ = State::kDownload;
  return {};
}

Result<size_t> CoralFunction::Upload(const ControlSetup& setup, std::span<uint8_t> data) {
  if ((state_ != State::kIdle && state_ != State::kUpload) || data.size() > kTransferBytes) {
    return Refuse(Error::kStalled, "an upload in the wrong state, or of too many bytes");
  }
  const size_t begin = std::min(size_t{setup.value} * kTransferBytes, memory_.size());
  const size_t count = std::min(data.size(), memory_.size() - begin);
  std::copy_n(memory_.begin() + static_cast<std::ptrdiff_t>(begin), count, data.begin());
  state_ = count < data.size() ? State::kIdle : State::kUpload;  // a short block ends it
  return count;
}

Result<size_t> CoralFunction::ControlIn(const ControlSetup& setup, std::span<uint8_t> data) {
  if (setup.request_type != kClassIn || mode_ != Mode::kRom) {
    return InvalidArgument("not implemented");
  }
  switch (setup.request) {
    case kUpload:
      return Upload(setup, data);
    case kGetStatus: {
      // Status, three bytes of milliseconds to wait, state, string.
      const uint8_t status[] = {static_cast<uint8_t>(error_), 0, 0, 0,
                                static_cast<uint8_t>(state_), 0};
      const size_t count = std::min(data.size(), std::size(status));
      std::copy_n(status, count, data.begin());
      return count;
    }
    case kGetState:
      if (data.empty()) return size_t{0};
      data[0] = static_cast<uint8_t>(state_);
      return size_t{1};
    default:
      return Refuse(Error::kStalled, "no such request");
  }
}

}  // namespace atollrt
