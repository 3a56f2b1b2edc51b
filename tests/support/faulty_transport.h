// SPDX-License-Identifier: Apache-2.0
//
// FaultyTransport: another transport over a bad cable. From a seed, about once in `one_in` calls
// something goes wrong that UsbTransport's contract allows: a transfer is lost or sent in part and
// times out, a read is cut short or comes late, a request stalls, the device is unplugged. An
// unplugged device gives kDeviceLost until Reset, which may find it absent once more.
//
// No call waits for its deadline: the inner transport gets kPatience of real time, then `clock`
// moves to the deadline. Calls must come from one thread at a time; Cancel may come from any.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "driver/usb_transport.h"
#include "tests/support/fake_clock.h"
#include "tests/support/rng.h"

namespace atollrt {

class FaultyTransport : public UsbTransport {
 public:
  static constexpr std::chrono::milliseconds kPatience{20};

  FaultyTransport(std::unique_ptr<UsbTransport> inner, uint64_t seed, int one_in, FakeClock* clock);

  Status Control(const ControlSetup& setup, std::span<uint8_t> data, Deadline deadline) override;
  Status BulkOut(uint8_t endpoint, std::span<const uint8_t> data, Deadline deadline) override;
  Result<size_t> BulkIn(uint8_t endpoint, std::span<uint8_t> data, Deadline deadline) override;
  Result<size_t> InterruptIn(uint8_t endpoint, std::span<uint8_t> data, Deadline deadline) override;
  void Cancel() override { inner_->Cancel(); }
  Status Reset(Deadline deadline) override;

  int faults() const { return faults_; }  // that were injected so far

 private:
  bool FaultNow();
  Status Unplug();
  Status Late(Deadline deadline);
  Deadline InnerDeadline(Deadline deadline) const;
  Result<size_t> Read(uint8_t endpoint, std::span<uint8_t> data, Deadline deadline);

  std::unique_ptr<UsbTransport> inner_;
  Rng rng_;
  int one_in_;
  FakeClock* clock_;
  bool unplugged_ = false;
  std::array<std::vector<uint8_t>, 16> rest_;  // of reads that were cut short, by endpoint
  int faults_ = 0;
};

}  // namespace atollrt
