// SPDX-License-Identifier: Apache-2.0
//
// FakeCoral: as much of a Coral USB accelerator as a host can tell from how it answers
// (docs/coral.md), behind a UsbTransport. It computes nothing: `on_payload` decides what it sends.
// FakeCoralBus is a bus with one of them, which needs firmware first if it is asked to.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "driver/usb/usb_bus.h"
#include "tests/support/fake_clock.h"

namespace atollrt {

// What outlives its transports.
struct FakeCoralState {
  std::map<uint32_t, uint64_t> registers{
      {0x1a000, 0x0219089a}, {0x1a30c, 0x000f1959}, {0x1a314, 0x00110000}, {0x1a318, 0x00050004},
      {0x1a0d4, 0x00000001}, {0x1a704, 0x0070007f}, {0x1a33c, 0x000c003f}};
  struct Sent {
    uint8_t tag = 0;
    std::vector<uint8_t> payload;
    bool operator==(const Sent&) const = default;
  };
  std::vector<Sent> sent;
  std::vector<uint8_t> output;  // on its way to the host
  std::deque<std::vector<uint8_t>> events;
  std::deque<std::vector<uint8_t>> interrupts;
  size_t packet_bytes = SIZE_MAX;  // a read gets so much at most
  std::function<void(FakeCoralState&, const Sent&)> on_payload;
  std::function<Status(uint8_t endpoint)> before;  // of each bulk call; nullptr: nothing happens
  std::function<Status(const ControlSetup&)> before_control;
  bool is_gone = false;
  int resets = 0;
  std::vector<uint32_t> written;  // registers, in order

  void Event(uint8_t tag) {
    std::vector<uint8_t> event(16);
    event[12] = tag;
    events.push_back(std::move(event));
  }
};

class FakeCoral final : public UsbTransport {
 public:
  // A call that has to wait moves `clock` to its deadline.
  FakeCoral(std::shared_ptr<FakeCoralState> state, FakeClock* clock)
      : state_(std::move(state)), clock_(clock) {}

  Status Control(const ControlSetup& setup, std::span<uint8_t> data, Deadline deadline) override;
  Status BulkOut(uint8_t endpoint, std::span<const uint8_t> data, Deadline deadline) override;
  Result<size_t> BulkIn(uint8_t endpoint, std::span<uint8_t> data, Deadline deadline) override;
  Result<size_t> InterruptIn(uint8_t endpoint, std::span<uint8_t> data, Deadline deadline) override;
  void Cancel() override { cancelled_ = true; }
  Status Reset(Deadline deadline) override;

 private:
  Status Begin() const;

  const std::shared_ptr<FakeCoralState> state_;
  FakeClock* const clock_;
  bool cancelled_ = false;
  FakeCoralState::Sent receiving_;
  size_t missing_ = 0;  // of the payload of receiving_
};

// What waits for firmware.
struct FakeRom {
  std::vector<uint8_t> image;  // that it has taken
  uint8_t state = 2;           // of DFU
  uint8_t status = 0;
  uint16_t next_block = 0;
  int interface_number = 0;
  uint16_t block_bytes = 256;
  int poll_ms = 0;     // that it asks for after each block
  int busy_polls = 0;  // how often it answers that it is busy, after each block
  int busy = 0;
  int bad_reads = 0;               // so many read-backs are wrong
  int fails_at_block = -1;         // with status 3, once
  int failed_boots = 0;            // so many resets leave it as it is
  bool comes_back_as_rom = false;  // with another address
  std::string comes_back_at;       // another port; empty: the same
  int away_ms = 200;
  int downloads = 0;
  bool has_image = false;
};

class FakeCoralBus final : public UsbBus {
 public:
  FakeCoralBus(FakeClock* clock, bool has_firmware) : clock_(clock) {
    devices.push_back({.id = has_firmware ? kCoralUsbId : kCoralBootUsbId,
                       .path = "2-3",
                       .address = 7,
                       .speed = UsbSpeed::kSuper});
  }

  Result<std::vector<UsbDeviceInfo>> List() override;
  Result<std::unique_ptr<UsbTransport>> Open(const UsbDeviceInfo& device,
                                             uint8_t interface_number) override;
  uint64_t generation() override { return generation_; }
  bool WaitForChange(uint64_t seen, Deadline deadline) override;

  std::vector<UsbDeviceInfo> devices;
  std::shared_ptr<FakeCoralState> coral = std::make_shared<FakeCoralState>();
  FakeRom rom;
  int denials = 0;  // so many Opens are refused
  std::vector<int> waits_ms;

 private:
  friend class FakeRomTransport;
  void Leave();

  FakeClock* const clock_;
  uint64_t generation_ = 0;
  int address_ = 7;
  bool is_away_ = false;
  Deadline back_at_;
};

}  // namespace atollrt
