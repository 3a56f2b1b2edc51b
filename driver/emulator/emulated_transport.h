// SPDX-License-Identifier: Apache-2.0
//
// EmulatedTransport: a USB cable whose far end is a Core. The emulated device has no thread of its
// own. It computes inside the host's calls: while the host reads (a bulk or interrupt IN endpoint
// or a register), and while it writes if the device's queues are full. Between instructions it
// looks at the caller's deadline; a call may therefore be late by the host's time for one
// instruction. Cancel and Reset do not wait for that: a long instruction is given up.
//
// A read that finds nothing waits until its deadline, like a real device that has nothing to send:
// another thread may send what is missing. Thread-safe as UsbTransport demands; calls take turns.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "atoll/status.h"
#include "driver/emulator/core.h"
#include "driver/usb/usb_bus.h"
#include "driver/usb/usb_transport.h"

namespace atollrt {

class EmulatedTransport final : public UsbTransport {
 public:
  // Errors as Core::Create.
  static Result<std::unique_ptr<EmulatedTransport>> Create(const CoreOptions& options);

  Status Control(const ControlSetup& setup, std::span<uint8_t> data, Deadline deadline) override;
  Status BulkOut(uint8_t endpoint, std::span<const uint8_t> data, Deadline deadline) override;
  Result<size_t> BulkIn(uint8_t endpoint, std::span<uint8_t> data, Deadline deadline) override;
  Result<size_t> InterruptIn(uint8_t endpoint, std::span<uint8_t> data, Deadline deadline) override;
  void Cancel() override;
  Status Reset(Deadline deadline) override;

  // The device; for tests, while no call is in progress.
  Core& core() { return *core_; }

 private:
  explicit EmulatedTransport(std::unique_ptr<Core> core) : core_(std::move(core)) {
    core_->set_stop(StopSignal(&interrupters_));
  }

  // Runs one instruction, or as much of it as there is to do; false if there was nothing.
  bool Step();

  // One call's way through the mutex, the deadline and Cancel.
  class Call;

  // Runs the device until `enough()`, or it has nothing to do, or `call` must end.
  template <typename Enough>
  void RunCore(const Call& call, const Enough& enough);
  // Runs the device until `queue`, one of the core's, has enough to fill `data`, and takes what it
  // has; waits if that is nothing.
  Result<size_t> Receive(ByteQueue& queue, std::span<uint8_t> data, Deadline deadline);

  // The answer to calls that find nothing until their deadline, again and again while a program is
  // slow: made once, so that they allocate nothing.
  const Status nothing_came_ = Timeout("nothing came");
  std::mutex mutex_;
  std::condition_variable activity_;        // bytes moved, Cancel or Reset
  std::unique_ptr<Core> core_;              // guarded by mutex_
  bool cancelled_ = false;                  // guarded by mutex_
  std::atomic<uint64_t> interruptions_{0};  // Cancels and Resets so far; read between instructions
  // Of these, those that wait for the mutex. They leave only with it, so whoever has it and sees
  // none has not been disturbed.
  std::atomic<int> interrupters_{0};
};

// A UsbBus into which emulated devices are plugged for good. Each Open powers the device up anew.
class EmulatedBus final : public UsbBus {
 public:
  // Ports "0-1", "0-2", ... with one device each.
  explicit EmulatedBus(std::vector<CoreOptions> devices) : devices_(std::move(devices)) {}

  Result<std::vector<UsbDeviceInfo>> List() override;
  // Errors as Core::Create, too.
  Result<std::unique_ptr<UsbTransport>> Open(const UsbDeviceInfo& device,
                                             uint8_t interface_number) override;
  uint64_t generation() override { return 0; }
  bool WaitForChange(uint64_t seen, Deadline deadline) override;

 private:
  const std::vector<CoreOptions> devices_;
};

}  // namespace atollrt
