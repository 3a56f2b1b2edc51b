// SPDX-License-Identifier: Apache-2.0
//
// CoralSession: a conversation with one Coral whose firmware runs: its registers, and the stream of
// descriptors, outputs and events of runs (docs/coral.md). It knows neither executables nor
// requests; coral_chip.h puts those on top.
//
// Calls block until they are done or their deadline passes, then kTimeout; no transfer waits longer
// than kCoralPatience for a sign of life. Other errors are the transport's; a device that breaks
// the protocol gives kDeviceLost. After an error in the middle of a run the conversation is broken
// off in an unknown place: a reset of the transport and BringUp begin it again. One caller at a
// time.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "driver/coral/registers.h"
#include "driver/device/link_times.h"
#include "driver/usb/usb_transport.h"

namespace atollrt {

// Of a transfer that the device does not take or give. No inference takes a Coral that long.
inline constexpr std::chrono::milliseconds kCoralPatience{4000};

// Clock of the tensor core: 63, 125, 250, 500 MHz.
enum class CoralPerformance : uint8_t { kLow, kMedium, kHigh, kMax };
uint64_t CoralClockHz(CoralPerformance performance);

class CoralSession {
 public:
  // `name` is that of the device, for messages. `transport` must outlive the session.
  CoralSession(UsbTransport* transport, NowFunction now, std::string name);

  struct Settings {
    CoralPerformance performance = CoralPerformance::kMax;
    bool is_high_speed = false;  // the link is USB 2: smaller packets
  };
  // From whatever state the firmware is in to one that takes programs. Nothing is on the chip
  // afterwards. kUnsupported if it is another chip.
  Status BringUp(const Settings& settings, Deadline deadline);
  // Stops everything and puts the chip to sleep; goes on past what fails.
  void Close(Deadline deadline);

  // Sends all of `payload` under its header.
  Status Send(coral::Tag tag, std::span<const uint8_t> payload, Deadline deadline);
  // Receives exactly `output` from the stream of outputs.
  Status Receive(std::span<uint8_t> output, Deadline deadline);
  // Waits for the event of interrupt `number`, 0 to 3.
  Status AwaitInterrupt(uint32_t number, Deadline deadline);

  // Looks whether the device has raised one of its interrupts for faults, without waiting. Warnings
  // (heat) are logged and cleared; kDeviceLost, with what the device says, for a fatal one.
  Status CheckFaults(Deadline deadline);
  // What the error register says, even if no interrupt has come: "" if nothing.
  std::string DescribeError(Deadline deadline);

  // Everything on bulk OUT and bulk IN so far.
  uint64_t bytes_sent() const { return bytes_sent_; }
  uint64_t bytes_received() const { return bytes_received_; }
  // Of the transfers on these; the chip starts and stops it.
  LinkTimes& link_times() { return link_times_; }

 private:
  Deadline Sooner(Deadline deadline, std::chrono::milliseconds patience) const;
  Status Access(bool read, uint32_t address, std::span<uint8_t> data, Deadline deadline);
  Result<uint32_t> Read(coral::Register32 address, Deadline deadline);
  Result<uint64_t> Read(coral::Register64 address, Deadline deadline);
  Status Write(coral::Register32 address, uint32_t value, Deadline deadline);
  Status Write(coral::Register64 address, uint64_t value, Deadline deadline);
  Status Update(coral::Register32 address, uint32_t mask, uint32_t value, Deadline deadline);
  template <typename Register, typename Word>
  Status Await(Register address, Word mask, Word value, const char* what, Deadline deadline);

  Status Sleep(Deadline deadline);
  Status WakeUp(CoralPerformance performance, Deadline deadline);
  Status SelectAllTiles(Deadline deadline);
  Status SetRunControl(uint64_t value, Deadline deadline);
  Status EnableInterrupts(Deadline deadline);
  Status HandleTopLevel(int number, Deadline deadline);

  UsbTransport* const transport_;
  const NowFunction now_;
  const std::string name_;
  uint64_t bytes_sent_ = 0;
  uint64_t bytes_received_ = 0;
  LinkTimes link_times_;
};

}  // namespace atollrt
