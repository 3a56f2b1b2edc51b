// SPDX-License-Identifier: Apache-2.0
//
// CoralFunction: how a Coral USB Accelerator boots, as far as its host can see. It appears as a ROM
// that takes firmware by DFU (USB Device Class Specification for Device Firmware Upgrade 1.1). The
// reset of the bus that follows a complete download makes it appear as the application, and a
// DETACH followed by a reset as the ROM again.
//
// The application has the endpoints of a Coral and nothing behind them: its instruction set is not
// public, so there is nothing to emulate. It refuses all register requests and takes no data.
#pragma once

#include <cstdint>
#include <vector>

#include "driver/usb/usb_bus.h"
#include "tools/gadget/function.h"

namespace atollrt {

class CoralFunction final : public Function {
 public:
  enum class Mode { kRom, kApplication };
  static constexpr uint16_t kTransferBytes = 256;
  static constexpr size_t kMemoryBytes = 32 * 1024;

  explicit CoralFunction(Mode mode) : mode_(mode), memory_(kMemoryBytes) {}

  UsbId id() const;

  InterfaceDescription Describe() const override;
  void Enable(std::span<EndpointFile>) override {}
  void Disable() override;
  Result<size_t> ControlIn(const ControlSetup& setup, std::span<uint8_t> data) override;
  Status ControlOut(const ControlSetup& setup, size_t length, const ReceiveData& receive) override;
  // kEnd: the other mode is next.
  Wish wish() override { return leaves_ ? Wish::kEnd : Wish::kServe; }

 private:
  // States of DFU 1.1, section 6.1.2, that it can be in between requests, and their status.
  enum class State : uint8_t { kIdle = 2, kDownload = 5, kUpload = 9, kError = 10 };
  enum class Error : uint8_t { kNone = 0, kAddress = 8, kNotDone = 9, kStalled = 15 };

  Status Download(const ControlSetup& setup, size_t length, const ReceiveData& receive);
  Result<size_t> Upload(const ControlSetup& setup, std::span<uint8_t> data);
  Status Refuse(Error error, const char* what);

  const Mode mode_;
  std::vector<uint8_t> memory_;
  size_t downloaded_bytes_ = 0;
  State state_ = State::kIdle;
  Error error_ = Error::kNone;
  bool leaves_at_reset_ = false;
  bool leaves_ = false;
};

}  // namespace atollrt
