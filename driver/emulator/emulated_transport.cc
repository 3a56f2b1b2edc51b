// SPDX-License-Identifier: Apache-2.0
#include "driver/emulator/emulated_transport.h"

#include "driver/protocol.h"

namespace atollrt {
namespace {

Status NoSuchEndpoint(uint8_t endpoint) {
  return InvalidArgument("the device has no endpoint %02X of this kind", endpoint);
}

}  // namespace

class EmulatedTransport::Call {
 public:
  Call(EmulatedTransport& transport, Deadline deadline)
      : transport_(transport),
        deadline_(deadline),
        interruptions_(transport.interruptions_.load()),
        lock_(transport.mutex_) {}

  bool interrupted() const {
    return transport_.cancelled_ || transport_.interruptions_.load() != interruptions_;
  }
  bool late() const { return Clock::now() >= deadline_; }
  void Wait() { transport_.activity_.wait_until(lock_, deadline_); }

 private:
  EmulatedTransport& transport_;
  const Deadline deadline_;
  const uint64_t interruptions_;  // when the call began
  std::unique_lock<std::mutex> lock_;
};

Result<std::unique_ptr<EmulatedTransport>> EmulatedTransport::Create(const CoreOptions& options) {
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<Core> core, Core::Create(options));
  return std::unique_ptr<EmulatedTransport>(new EmulatedTransport(std::move(core)));
}

template <typename Enough>
void EmulatedTransport::RunCore(const Call& call, const Enough& enough) {
  while (!enough() && !call.interrupted() && core_->Step()) {
    if (call.late()) break;
  }
}

template <typename Read, typename Enough>
Result<size_t> EmulatedTransport::WaitFor(Deadline deadline, const Read& read,
                                          const Enough& enough) {
  Call call(*this, deadline);
  for (;;) {
    RunCore(call, enough);
    if (call.interrupted()) return Status(StatusCode::kCancelled, "transfer cancelled");
    if (const size_t count = read(); count > 0) {
      activity_.notify_all();  // there is room in the queue again
      return count;
    }
    if (call.late()) return Timeout("the device has sent nothing");
    call.Wait();
  }
}

Status EmulatedTransport::Control(const ControlSetup& setup, std::span<uint8_t> data,
                                  Deadline deadline) {
  Call call(*this, deadline);
  if (call.interrupted()) return Status(StatusCode::kCancelled, "control request cancelled");
  const bool reads = (setup.request_type & 0x80) != 0;
  if (reads) RunCore(call, [] { return false; });
  const Status status = core_->Control(setup, data);
  activity_.notify_all();
  return status;
}

Status EmulatedTransport::BulkOut(uint8_t endpoint, std::span<const uint8_t> data,
                                  Deadline deadline) {
  if (endpoint != kRecordEndpoint) return NoSuchEndpoint(endpoint);
  Call call(*this, deadline);
  for (;;) {
    if (call.interrupted()) return Status(StatusCode::kCancelled, "transfer cancelled");
    const size_t accepted = core_->AcceptBulkOut(data);
    data = data.subspan(accepted);
    if (accepted > 0) activity_.notify_all();
    if (data.empty()) return Status();
    // The queues are full: the program must take from them before more fits.
    if (call.late()) return Timeout("the device takes no more data");
    if (!core_->Step()) call.Wait();
  }
}

Result<size_t> EmulatedTransport::BulkIn(uint8_t endpoint, std::span<uint8_t> data,
                                         Deadline deadline) {
  if (endpoint == kOutputEndpoint) {
    if (data.empty()) return size_t{0};
    return WaitFor(
        deadline, [&] { return core_->ReadOutput(data); },
        [&] { return core_->output_bytes() >= data.size(); });
  }
  if (endpoint == kEventEndpoint) {
    if (data.size() < kEventBytes) {
      return InvalidArgument("an event has %zu bytes, the buffer %zu", kEventBytes, data.size());
    }
    return WaitFor(
        deadline, [&] { return core_->ReadEvents(data); },
        [&] { return core_->status() != CoreStatus::kRunning; });
  }
  return NoSuchEndpoint(endpoint);
}

Result<size_t> EmulatedTransport::InterruptIn(uint8_t endpoint, std::span<uint8_t> data,
                                              Deadline deadline) {
  if (endpoint != kFaultEndpoint) return NoSuchEndpoint(endpoint);
  if (data.size() < 4) return InvalidArgument("the fault word has 4 bytes, not %zu", data.size());
  return WaitFor(
      deadline, [&] { return core_->ReadFault(data); }, [] { return false; });
}

void EmulatedTransport::Cancel() {
  ++interruptions_;  // seen between instructions, by whoever holds the mutex
  const std::lock_guard<std::mutex> lock(mutex_);
  cancelled_ = true;
  activity_.notify_all();
}

Status EmulatedTransport::Reset(Deadline) {
  ++interruptions_;
  const std::lock_guard<std::mutex> lock(mutex_);
  ++interruptions_;  // and by calls that began in the meantime
  cancelled_ = false;
  core_->Reset();
  activity_.notify_all();
  return Status();
}

}  // namespace atollrt
