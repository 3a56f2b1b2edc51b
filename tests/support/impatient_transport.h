// SPDX-License-Identifier: Apache-2.0
//
// ImpatientTransport: an EmulatedTransport as a host sees it on which everything takes long: calls
// come back in the middle of programs, at places that a seed chooses and not a clock. Transfers
// that would fail if they were cut short are not.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "driver/usb/usb_transport.h"
#include "tests/support/rng.h"

namespace atollrt {

class ImpatientTransport final : public UsbTransport {
 public:
  ImpatientTransport(std::unique_ptr<UsbTransport> transport, std::atomic<bool>* impatient)
      : transport_(std::move(transport)), impatient_(*impatient), rng_(1) {}

  Status Control(const ControlSetup& setup, std::span<uint8_t> data, Deadline deadline) override {
    return transport_->Control(setup, data, Cut(deadline));
  }
  Status BulkOut(uint8_t endpoint, std::span<const uint8_t> data, Deadline deadline) override {
    return transport_->BulkOut(endpoint, data, deadline);
  }
  Result<size_t> BulkIn(uint8_t endpoint, std::span<uint8_t> data, Deadline deadline) override {
    return transport_->BulkIn(endpoint, data, Cut(deadline));
  }
  Result<size_t> InterruptIn(uint8_t endpoint, std::span<uint8_t> data,
                             Deadline deadline) override {
    return transport_->InterruptIn(endpoint, data, Cut(deadline));
  }
  void Cancel() override { transport_->Cancel(); }
  Status Reset(Deadline deadline) override { return transport_->Reset(deadline); }

 private:
  // A deadline that has passed lets the emulated device take one step.
  Deadline Cut(Deadline deadline) {
    return impatient_ && !rng_.OneIn(4) ? Deadline::min() : deadline;
  }

  const std::unique_ptr<UsbTransport> transport_;
  const std::atomic<bool>& impatient_;
  Rng rng_;
};

}  // namespace atollrt
