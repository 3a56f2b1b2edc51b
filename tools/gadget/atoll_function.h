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
#include <memory>
#include <span>
#include <thread>

#include "driver/atoll1/protocol.h"
#include "driver/usb/usb_bus.h"
#include "driver/usb/usb_transport.h"
#include "tools/gadget/function.h"
#include "tools/gadget/gate.h"

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
  std::array<uint8_t, kRecordHeaderBytes> header_{};
  size_t header_bytes_ = 0;
  uint64_t owed_ = 0;  // bytes of the payload
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
