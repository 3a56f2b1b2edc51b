// SPDX-License-Identifier: Apache-2.0
//
// AtollFunction: an Atoll-1 at the device's end of the cable. What the host sends becomes calls of
// the UsbTransport of a device on another bus, which is emulated, with or without faults; what the
// calls bring goes to the host. A thread per endpoint makes them:
//
//   host ── 01 ──> read ──> BulkOut ──┐
//   host <─ 81 ── write <── BulkIn  ──┤
//   host <─ 82 ── write <── BulkIn  ──┼── UsbTransport
//   host <─ 83 ── write <── InterruptIn
//   host <─ ep0 ────────── Control  ──┘
//
// A reset of the bus, of the core (CONTROL), or of the configuration first stops all four and drops
// what they hold, so that nothing of before comes after it. When the transport says kDeviceLost,
// its device has been unplugged, and so is the gadget until Replug. Nothing that a host does can
// end it.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "driver/atoll1/protocol.h"
#include "driver/atoll1/record_parser.h"
#include "driver/usb/usb_bus.h"
#include "driver/usb/usb_transport.h"
#include "tools/gadget/function.h"

namespace atollrt {

// How much to ask the host for. A read ends when it is full or with a short packet, so one that
// asks for more than the host is going to send would wait for ever with what it has. Within a
// record the host owes its rest; otherwise only a packet can be asked for (docs/protocol.md §3).
class RecordReads {
 public:
  // A multiple of packet_bytes, at most limit, which is one, too.
  size_t Next(size_t packet_bytes, size_t limit) const;
  // What came.
  void Took(std::span<const uint8_t> bytes);

 private:
  RecordParser parser_{UINT64_MAX};  // whatever fits into the device's memory
  bool lost_ = false;                // after what is no record
};

// Stops a fixed number of threads that work in steps. Between steps each passes the gate; while it
// is shut, none of them is inside of a step. Thread-safe.
class Gate {
 public:
  // Shut, for so many threads.
  explicit Gate(int threads) : threads_(threads) {}

  // By each of the threads, between steps: waits while the gate is shut or held. False: end.
  bool Pass() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock,
                  [&] { return state_ == State::kEnded || (state_ == State::kOpen && !held_); });
    --waiting_;
    return state_ != State::kEnded;
  }
  // By the threads, inside of a step: whether to cut it short.
  bool open() const {
    const std::lock_guard lock(mutex_);
    return state_ == State::kOpen;
  }

  void Open() {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kShut) state_ = State::kOpen;
    changed_.notify_all();
  }
  // Lets nobody begin a step, without waiting for the steps in progress.
  void BeginToShut() {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kOpen) state_ = State::kShut;
  }
  // Returns when all threads wait. Until then it calls `interrupt` again and again: a thread may
  // have been about to block when it was called first.
  template <typename Interrupt>
  void Shut(const Interrupt& interrupt) {
    std::unique_lock lock(mutex_);
    if (state_ == State::kOpen) state_ = State::kShut;
    while (waiting_ < threads_) {
      interrupt();
      changed_.wait_for(lock, std::chrono::milliseconds(1));
    }
  }
  // Makes Pass false for all who wait, or come later.
  void End() {
    const std::lock_guard lock(mutex_);
    state_ = State::kEnded;
    changed_.notify_all();
  }

  // While somebody holds the gate, no new steps begin.
  void Hold(bool hold) {
    const std::lock_guard lock(mutex_);
    held_ = hold;
    changed_.notify_all();
  }

 private:
  enum class State { kShut, kOpen, kEnded };

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  const int threads_;
  int waiting_ = 0;
  State state_ = State::kShut;
  bool held_ = false;
};

class AtollFunction final : public Function {
 public:
  // Serves the first device of `bus`, an Atoll-1, which nobody else uses. Errors of the bus, and
  // kNotFound if it is empty.
  static Result<std::unique_ptr<AtollFunction>> Create(std::shared_ptr<UsbBus> bus);
  ~AtollFunction() override;

  InterfaceDescription Describe() const override;
  void Enable(std::span<EndpointFile> endpoints) override;
  void Disable() override;
  Result<size_t> ControlIn(const ControlSetup& setup, std::span<uint8_t> data) override;
  Status ControlOut(const ControlSetup& setup, size_t length, const ReceiveData& receive) override;
  void GiveUp() override { transport_->Cancel(); }
  Wish wish() override;
  int attention_fd() const override { return attention_.get(); }

  // After a wish for kReplug: an error while the device is away.
  Status Replug();

 private:
  AtollFunction(std::shared_ptr<UsbBus> bus, FileDescriptor attention);

  Status Open();

  // Each returns when the gate ends.
  void ServeRecords();
  void ServeInput(size_t index);
  // Sends what the transport has, up to the end of the transfer.
  void SendTransfer(size_t index, EndpointFile* file, std::span<uint8_t> buffer);
  Result<size_t> Take(uint8_t endpoint, std::span<uint8_t> buffer, Deadline deadline);
  // A call for an endpoint failed, by what the host did or by what the device did: a fault on the
  // way loses bytes, stalls the endpoint or unplugs the device.
  void HostFailed(size_t index, const Status& status);
  void DeviceFailed(size_t index, EndpointFile* file, const Status& status);
  void Lose(const Status& reason);

  void Begin();
  // Stops the threads and resets the device, unless that is its state already.
  void Quiesce();

  const std::shared_ptr<UsbBus> bus_;
  const FileDescriptor attention_;  // eventfd
  std::atomic<bool> lost_{false};
  Gate gate_;
  // Set while the gate is shut.
  std::unique_ptr<UsbTransport> transport_;
  std::span<EndpointFile> endpoints_;
  RecordReads record_reads_;
  bool used_ = false;  // the gate was opened since the transport was reset
  std::array<std::thread, 4> threads_;
};

}  // namespace atollrt
