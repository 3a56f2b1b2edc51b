// SPDX-License-Identifier: Apache-2.0
//
// Atoll1Chip: an Atoll-1 behind a UsbTransport as a Chip. It cannot tell what the far end of the
// transport is.
//
// Any run that does not end with a completion event leaves the device in doubt, so Recover resets
// the core (if that fails: the USB port) and everything counts as no longer resident.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "driver/atoll1/protocol_session.h"
#include "driver/device/chip.h"
#include "driver/device/residency.h"

namespace atollrt {

class Atoll1Chip final : public Chip {
 public:
  // Identifies and resets the device. kUnsupported if it is no Atoll-1 of this ISA version, or the
  // transport's error, both with the name.
  static Result<std::unique_ptr<Chip>> Open(std::unique_ptr<UsbTransport> transport,
                                            const DeviceOrigin& origin,
                                            NowFunction now = Clock::now);

  const DeviceInfo& info() const override { return info_; }
  Result<std::unique_ptr<PreparedExecutable>> Prepare(
      std::shared_ptr<const AnyExecutable> executable) const override;
  void Forget(const PreparedExecutable& prepared) override;
  bool IsResident(const PreparedExecutable& prepared) const override;
  uint64_t memory_used_bytes() const override;
  Status Run(const Job& job, RequestReport* report) override;
  Status Recover() override;
  Status Reopen() override;

 private:
  struct Prepared;

  Atoll1Chip(std::unique_ptr<UsbTransport> transport, NowFunction now, DeviceInfo info);

  Placement Place(const Prepared& prepared, bool* upload);
  void ForgetAll();
  Status Upload(const Prepared& prepared, const Placement& placement, Deadline deadline);
  Result<uint64_t> RunProgram(const Executable& executable, const std::vector<Instruction>& program,
                              const ProtocolSession::Job& job, Deadline deadline);

  const DeviceInfo info_;
  const NowFunction now_;
  const std::unique_ptr<UsbTransport> transport_;
  ProtocolSession session_;  // belongs to the holder of the wire

  mutable std::mutex mutex_;  // guards what follows; never held during a transfer
  Residency residency_;
  std::vector<const Prepared*> residents_;
};

}  // namespace atollrt
