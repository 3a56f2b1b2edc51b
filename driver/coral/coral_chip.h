// SPDX-License-Identifier: Apache-2.0
//
// CoralChip: a Coral USB accelerator whose firmware runs, behind a UsbTransport, as a Chip. It
// follows the lists of transfers of CoralExecutables to the letter: one transfer after the other,
// so nothing is ever sent while an output is outstanding.
//
// Parameters stay on the chip between runs. Executables of one token share it; a run of another
// token evicts them all. They count as being there once the chip has said so, and no longer after
// any error.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "driver/coral/executable.h"
#include "driver/coral/session.h"
#include "driver/device/chip.h"
#include "driver/usb/usb_bus.h"

namespace atollrt {

struct CoralOptions {
  std::string name = "usb";           // DeviceOrigin::name
  std::string path = {};              // of the port, for people; OpenCoral's is the device's
  UsbSpeed speed = UsbSpeed::kSuper;  // of the link; likewise
  CoralPerformance performance = CoralPerformance::kMax;
  std::string firmware = {};  // a file; empty: where FindCoralFirmware looks
  NowFunction now = Clock::now;
};

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
  void Forget(const PreparedExecutable& prepared) override;
  bool IsResident(const PreparedExecutable& prepared) const override;
  uint64_t memory_used_bytes() const override;
  Status Run(const Job& job, RequestReport* report) override;
  Status Recover() override { return Reopen(); }
  Status Reopen() override;

 private:
  struct Prepared;

  CoralChip(std::unique_ptr<UsbTransport> transport, CoralOptions options);

  bool UseCache(const Prepared& prepared);
  void ForgetAll();
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

  mutable std::mutex mutex_;  // guards what follows; never held during a transfer
  uint64_t token_ = 0;        // of what is cached
  std::vector<const Prepared*> cached_;
};

}  // namespace atollrt
