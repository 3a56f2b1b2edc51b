// SPDX-License-Identifier: Apache-2.0
//
// LibusbTransport: an opened device by way of libusb. A call cuts its data into transfers, keeps
// several of them in flight and waits; the context's thread says when one is over. Deadlines are
// kept by the waiting thread: it cancels what is in flight and waits for the cancellation, so a
// call leaves nothing behind and no byte that a read received is lost.
//
// Each endpoint has a ring of a few transfers with buffers of their own (memory of the device,
// where libusb gives it: the kernel then copies nothing). They grow when a call first needs more
// and are used again; a call allocates nothing after that.
#pragma once

#include <libusb.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "atoll/status.h"
#include "driver/usb/usb_transport.h"

namespace atollrt {

// One of libusb's error codes as words: "LIBUSB_ERROR_IO, Input/Output Error".
std::string LibusbErrorText(int code);

class LibusbTransport final : public UsbTransport {
 public:
  // Takes over `handle`, of which the interface has been claimed. `context` handles libusb's events
  // for as long as somebody has it. `path` is for messages.
  LibusbTransport(std::shared_ptr<void> context, libusb_device_handle* handle,
                  uint8_t interface_number, std::string path);
  // No call may be in progress. Takes a few seconds at most, whatever the device does.
  ~LibusbTransport() override;

  Status Control(const ControlSetup& setup, std::span<uint8_t> data, Deadline deadline) override;
  Status BulkOut(uint8_t endpoint, std::span<const uint8_t> data, Deadline deadline) override;
  Result<size_t> BulkIn(uint8_t endpoint, std::span<uint8_t> data, Deadline deadline) override;
  Result<size_t> InterruptIn(uint8_t endpoint, std::span<uint8_t> data, Deadline deadline) override;
  void Cancel() override;
  // The kernel takes as long for it as it takes: about half a second.
  Status Reset(Deadline deadline) override;

 private:
  struct Transfer;
  struct Pipe;
  class Call;
  using Lock = std::unique_lock<std::mutex>;

  // With the mutex held. Those that take the lock release it while they wait or copy.
  uint8_t AddressOf(uint8_t endpoint) const;
  Result<Pipe*> FindPipe(uint8_t endpoint, uint8_t type);
  Status Submit(Pipe* pipe, size_t bytes, std::span<const uint8_t> out, Lock& lock);
  Status WaitForFront(const Pipe& pipe, Deadline deadline, Lock& lock);
  Status Drain(Pipe* pipe, Lock& lock);
  Status TakeError(Pipe* pipe, Lock& lock);
  bool TakeBytes(Pipe* pipe, std::span<uint8_t> data, size_t* filled);
  Status Explain(const Pipe& pipe, const Transfer& transfer) const;
  Result<size_t> Read(uint8_t endpoint, uint8_t type, std::span<uint8_t> data, Deadline deadline);
  void CancelTransfers();

  bool Grow(Transfer* transfer, size_t bytes);
  void FreeBuffer(Transfer* transfer);
  static void LIBUSB_CALL OnEnd(libusb_transfer* usb);

  const std::shared_ptr<void> context_;
  libusb_device_handle* const handle_;
  const uint8_t interface_number_;
  const std::string path_;

  std::mutex mutex_;
  std::condition_variable changed_;              // a transfer or a call has ended, or Cancel
  Status broken_;                                // why no call can succeed any more
  bool cancelled_ = false;                       // since Cancel, until Reset
  int calls_ = 0;                                // in progress
  std::array<std::unique_ptr<Pipe>, 32> pipes_;  // by endpoint number, and 16 more if IN

  std::mutex reset_mutex_;  // one Reset at a time
};

}  // namespace atollrt
