// SPDX-License-Identifier: Apache-2.0
//
// A session with a device on a UsbBus, recorded in a file, and played back without the device.
//
// The file is pcapng. Each call of a transport is a transfer as Linux's usbmon shows it, submitted
// and completed, so that Wireshark can be used; what USB itself does not show (what was plugged in,
// opening, resets, the words of errors) is text on a second interface. docs/recording.md has the
// format.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "driver/recording/pcapng.h"
#include "driver/usb/usb_bus.h"

namespace atollrt {

struct UsbCall;
struct RecordedSession;

// Passes everything on to `inner` and writes it down. Errors of the disk are logged at the end.
// Thread-safe; calls are recorded in the order in which they end.
class RecordingBus final : public UsbBus, public std::enable_shared_from_this<RecordingBus> {
 public:
  // kInvalidArgument if the file cannot be made.
  static Result<std::shared_ptr<RecordingBus>> Create(std::shared_ptr<UsbBus> inner,
                                                      const std::string& path);
  ~RecordingBus() override;

  // What the session says of itself: a key without spaces, a value without line breaks.
  void Note(const std::string& key, const std::string& value);

  Result<std::vector<UsbDeviceInfo>> List() override;
  Result<std::unique_ptr<UsbTransport>> Open(const UsbDeviceInfo& device,
                                             uint8_t interface_number) override;
  uint64_t generation() override { return inner_->generation(); }
  bool WaitForChange(uint64_t seen, Deadline deadline) override {
    return inner_->WaitForChange(seen, deadline);
  }

 private:
  class Transport;
  RecordingBus(std::shared_ptr<UsbBus> inner, PcapngWriter writer)
      : inner_(std::move(inner)), writer_(std::move(writer)) {}
  void WriteText(const std::string& text);
  void WriteTextLocked(const std::string& text);
  void WriteTransfer(const UsbCall& call, uint8_t device, uint64_t begin_ns,
                     std::span<const uint8_t> moved, const Status& status);

  const std::shared_ptr<UsbBus> inner_;
  std::mutex mutex_;  // guards what follows
  PcapngWriter writer_;
  uint64_t last_id_ = 0;
  int devices_ = 0;
};

// Answers as the recorded devices did, call by call, and compares what it is sent with what they
// were sent. A session that departs from its recording gets kInternal, with both in words, from
// then on. Time-outs come at once. For sessions of one thread at a time.
class ReplayBus final : public UsbBus, public std::enable_shared_from_this<ReplayBus> {
 public:
  // Takes hostile bytes. kInvalidArgument if they are no recording.
  static Result<std::shared_ptr<ReplayBus>> Create(std::span<const uint8_t> recording);
  ~ReplayBus() override;

  // Empty if there is none of that key.
  std::string Note(const std::string& key) const;
  // What was plugged in when the session began.
  Result<std::vector<UsbDeviceInfo>> FirstDevices() const;
  // Says where the session went another way than its recording; ok if it has not.
  Status departure() const;
  // Transfers so far, and of the recording.
  size_t replayed() const;
  size_t transfers() const;

  Result<std::vector<UsbDeviceInfo>> List() override;
  Result<std::unique_ptr<UsbTransport>> Open(const UsbDeviceInfo& device,
                                             uint8_t interface_number) override;
  uint64_t generation() override { return 0; }
  bool WaitForChange(uint64_t seen, Deadline deadline) override;

 private:
  struct Answer;
  class Transport;
  explicit ReplayBus(std::unique_ptr<const RecordedSession> session);
  Result<Answer> Next(const UsbCall& wanted, std::span<const uint8_t> sent);
  Status Depart(const std::string& how);

  const std::unique_ptr<const RecordedSession> session_;
  mutable std::mutex mutex_;  // guards what follows
  size_t next_ = 0;
  size_t last_list_ = SIZE_MAX;  // where the bus was looked at
  size_t replayed_ = 0;
  Status departure_;
};

}  // namespace atollrt
