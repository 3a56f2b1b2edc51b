// SPDX-License-Identifier: Apache-2.0
//
// CoralSession: a Coral whose firmware runs, as its registers show it (docs/coral.md): from
// whatever state it is in to one that takes programs, back to sleep, and what is wrong with it.
// Runs are coral_chip.h's.
//
// Calls block until they are done or their deadline passes, then kTimeout. Other errors are the
// link's. After an error in the middle of a run the conversation is broken off in an unknown place:
// a reset of the transport and BringUp begin it again. One caller at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "atoll/status.h"
#include "driver/coral/coral_options.h"
#include "driver/coral/registers.h"
#include "driver/coral/usb_link.h"

namespace atollrt {

class CoralSession {
 public:
  // `name` is that of the device, for messages. `link` must outlive the session.
  CoralSession(CoralUsbLink* link, NowFunction now, std::string name);

  struct Settings {
    CoralPerformance performance = CoralPerformance::kMax;
    bool is_high_speed = false;  // the link is USB 2: smaller packets
  };
  // Nothing is on the chip afterwards. kUnsupported if it is another chip.
  Status BringUp(const Settings& settings, Deadline deadline);
  // Stops everything and puts the chip to sleep; goes on past what fails.
  void Close(Deadline deadline);

  // Looks whether the device has raised one of its interrupts for faults, without waiting. Warnings
  // (heat) are logged and cleared; kDeviceLost, with what the device says, for a fatal one.
  Status CheckFaults(Deadline deadline);
  // What the error register says, even if no interrupt has come: "" if nothing.
  std::string DescribeError(Deadline deadline);

 private:
  // Takes how a step went; whether to go on with the next.
  using GoOn = std::function<bool(const Status&)>;

  Status Update(coral::Register32 address, uint32_t mask, uint32_t value, Deadline deadline);
  template <typename Register>
  Status Await(Register address, coral::Word<Register> mask, coral::Word<Register> value,
               const char* what, Deadline deadline);

  Status Sleep(Deadline deadline);
  Status WakeUp(CoralPerformance performance, Deadline deadline);
  Status SelectAllTiles(Deadline deadline);
  Status SetRunControl(uint64_t value, Deadline deadline);
  bool SetInterrupts(bool on, Deadline deadline, const GoOn& go_on);
  Status HandleTopLevel(uint32_t number, Deadline deadline);

  CoralUsbLink* const link_;
  const NowFunction now_;
  const std::string name_;
};

}  // namespace atollrt
