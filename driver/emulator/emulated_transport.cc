// SPDX-License-Identifier: Apache-2.0
#include "driver/emulator/emulated_transport.h"

#include <thread>

#include "driver/atoll1/protocol.h"
#include "driver/usb/usb_bus.h"

namespace atollrt {
namespace {

Status NoSuchEndpoint(uint8_t endpoint) {
  return InvalidArgument("the device has no endpoint %02X of this kind", endpoint);
}

Status Cancelled() { return Status(StatusCode::kCancelled, "the transfer was cancelled"); }

}  // namespace

class EmulatedTransport::Call {
 public:
  Call(EmulatedTransport& transport, Deadline deadline)
      : transport_(transport),
        deadline_(deadline),
        interruptions_(transport.interruptions_.load()),
        lock_(transport.mutex_) {}

  bool interrupted() const {
    return transport_.cancelled_ || transport_.interrupters_.load() != 0 ||
           transport_.interruptions_.load() != interruptions_;
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

// An instruction that somebody has interrupted may be half done: nothing but Reset is left to do.
bool EmulatedTransport::Step() {
  const bool stepped = core_->Step();
  if (interrupters_.load() != 0) cancelled_ = true;
  return stepped;
}

template <typename Enough>
void EmulatedTransport::RunCore(const Call& call, const Enough& enough) {
  while (!enough() && !call.interrupted() && Step()) {
    if (call.late()) break;
  }
}

Result<size_t> EmulatedTransport::Receive(ByteQueue& queue, std::span<uint8_t> data,
                                          Deadline deadline) {
  Call call(*this, deadline);
  for (;;) {
    RunCore(call, [&] { return queue.size() >= data.size(); });
    if (call.interrupted()) return Cancelled();
    if (queue.size() > 0 || data.empty()) {
      activity_.notify_all();  // there is room in the queue again
      return queue.Take(data);
    }
    if (call.late()) return nothing_came_;
    call.Wait();
  }
}

Status EmulatedTransport::Control(const ControlSetup& setup, std::span<uint8_t> data,
                                  Deadline deadline) {
  Call call(*this, deadline);
  const bool reads = (setup.request_type & 0x80) != 0;
  if (reads) RunCore(call, [] { return false; });
  if (call.interrupted()) return Cancelled();
  Status status = core_->Control(setup, data);
  activity_.notify_all();
  return status;
}

Status EmulatedTransport::BulkOut(uint8_t endpoint, std::span<const uint8_t> data,
                                  Deadline deadline) {
  if (endpoint != kRecordEndpoint) return NoSuchEndpoint(endpoint);
  Call call(*this, deadline);
  for (;;) {
    if (call.interrupted()) return Cancelled();
    const size_t accepted = core_->AcceptBulkOut(data);
    data = data.subspan(accepted);
    if (accepted > 0) activity_.notify_all();
    if (data.empty()) return Status();
    // The queues are full: the program must take from them before more fits.
    if (call.late()) return Timeout("the device takes no more data");
    if (!Step()) call.Wait();
  }
}

Result<size_t> EmulatedTransport::BulkIn(uint8_t endpoint, std::span<uint8_t> data,
                                         Deadline deadline) {
  if (endpoint == kOutputEndpoint) return Receive(core_->outputs(), data, deadline);
  if (endpoint == kEventEndpoint) return Receive(core_->events(), data, deadline);
  return NoSuchEndpoint(endpoint);
}

Result<size_t> EmulatedTransport::InterruptIn(uint8_t endpoint, std::span<uint8_t> data,
                                              Deadline deadline) {
  if (endpoint == kFaultEndpoint) return Receive(core_->fault_words(), data, deadline);
  return NoSuchEndpoint(endpoint);
}

void EmulatedTransport::Cancel() {
  ++interruptions_;  // seen between instructions, by whoever holds the mutex
  ++interrupters_;   // and within long ones
  const std::lock_guard<std::mutex> lock(mutex_);
  --interrupters_;
  cancelled_ = true;
  activity_.notify_all();
}

Status EmulatedTransport::Reset(Deadline) {
  ++interruptions_;
  ++interrupters_;
  const std::lock_guard<std::mutex> lock(mutex_);
  --interrupters_;
  ++interruptions_;  // and by calls that began in the meantime
  cancelled_ = false;
  core_->Reset();
  activity_.notify_all();
  return Status();
}

Result<std::vector<UsbDeviceInfo>> EmulatedBus::List() {
  std::vector<UsbDeviceInfo> list;
  for (size_t i = 0; i < devices_.size(); ++i) {
    list.push_back({.id = kAtollUsbId,
                    .path = Format("0-%zu", i + 1),
                    .address = static_cast<int>(i) + 1,
                    .speed = UsbSpeed::kSuper});
  }
  return list;
}

Result<std::unique_ptr<UsbTransport>> EmulatedBus::Open(const UsbDeviceInfo& device,
                                                        uint8_t interface_number) {
  const auto index = static_cast<size_t>(device.address) - 1;
  if (index >= devices_.size()) return DeviceLost("no device at port %s", device.path.c_str());
  if (interface_number != 0) {
    return InvalidArgument("the device has no interface %u", interface_number);
  }
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<EmulatedTransport> transport,
                         EmulatedTransport::Create(devices_[index]));
  return std::unique_ptr<UsbTransport>(std::move(transport));
}

bool EmulatedBus::WaitForChange(uint64_t seen, Deadline deadline) {
  if (seen != 0) return true;
  std::this_thread::sleep_until(deadline);
  return false;
}

}  // namespace atollrt
