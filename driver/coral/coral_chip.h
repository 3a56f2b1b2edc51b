// SPDX-License-Identifier: Apache-2.0
//
// CoralChip: a Coral USB accelerator whose firmware runs, behind a UsbTransport, as a Chip. It
// follows the lists of transfers of CoralExecutables to the letter: one transfer after the other,
// so nothing is ever sent while an output is outstanding.
//
// Parameters count as being on the chip (parameter_cache.h) once it has said so, and no longer
// after any error.
#pragma once

#include <memory>
#include <string>

#include "driver/coral/coral_options.h"
#include "driver/coral/executable.h"
#include "driver/coral/parameter_cache.h"
#include "driver/coral/session.h"
#include "driver/device/chip.h"
#include "driver/usb/usb_bus.h"

namespace atollrt {

// `device` is a Coral (IsCoral). Gives it its firmware if it has none, opens it and brings it up.
// A device that has just come back may be out of bounds for a moment, until the system has set its
// permissions: that is waited for. Errors of FindCoralFirmware, DownloadCoralFirmware, UsbBus::Open
// and CoralChip::Open.
Result<std::unique_ptr<Chip>> OpenCoral(UsbBus* bus, const UsbDeviceInfo& device,
                                        const CoralOptions& options);

class CoralChip final : public Chip {
 public:
  // Brings the chip up; one that does not follow gets a reset of its port and another chance.
  // kUnsupported if it is no Coral, kTimeout if it does not follow, or the transport's error.
  static Result<std::unique_ptr<Chip>> Open(std::unique_ptr<UsbTransport> transport,
                                            CoralOptions options);
  // Halts the chip and puts it to sleep.
  ~CoralChip() override;

  const DeviceInfo& info() const override { return info_; }
  Result<std::unique_ptr<PreparedExecutable>> Prepare(
      std::shared_ptr<const AnyExecutable> executable) const override;
  void Forget(const PreparedExecutable& prepared) override { cache_.Forget(prepared); }
  bool IsResident(const PreparedExecutable& prepared) const override {
    return cache_.IsResident(prepared);
  }
  uint64_t memory_used_bytes() const override { return cache_.used_bytes(); }
  Status Run(const Job& job, std::span<const Job> ahead, RequestReport* report) override;
  Status Recover() override { return Reopen(); }
  Status Reopen() override;

 private:
  struct Prepared;

  CoralChip(std::unique_ptr<UsbTransport> transport, CoralOptions options);

  Status Transfer(const CoralTransfer& transfer, const CoralProgram& program,
                  const Prepared& prepared, const Job& job);
  Status RunProgram(const CoralProgram& program, const Prepared& prepared, const Job& job);
  Status RunBoth(const Prepared& prepared, const Job& job, RequestReport* report);
  Status Explain(Status status);

  const DeviceInfo info_;
  const NowFunction now_;
  const CoralSession::Settings settings_;
  const std::unique_ptr<UsbTransport> transport_;
  // These belong to the holder of the wire.
  CoralUsbLink link_;
  CoralSession session_;
  bool is_up_ = false;  // for all that is known, it would notice being closed

  CoralParameterCache cache_;
};

}  // namespace atollrt
