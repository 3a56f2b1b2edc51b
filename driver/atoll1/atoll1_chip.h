// SPDX-License-Identifier: Apache-2.0
//
// Atoll1Chip: an Atoll-1 behind an Atoll1Session as a Chip. It cannot tell what its link is, nor
// what the far end of that is.
//
// Any run that does not end with a completion event leaves the device in doubt, so Recover resets
// the core (if that fails: the whole device) and everything counts as no longer resident.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "driver/atoll1/atoll1_session.h"
#include "driver/device/chip.h"
#include "driver/device/residency.h"
#include "driver/usb/usb_transport.h"

namespace atollrt {

class Atoll1Chip final : public Chip {
 public:
  // Identifies and resets the device. kUnsupported if it is no Atoll-1 of this ISA version, or the
  // link's error, both with the name.
  static Result<std::unique_ptr<Chip>> Open(std::unique_ptr<Atoll1Session> session,
                                            const DeviceOrigin& origin, NowFunction now);
  // Over USB.
  static Result<std::unique_ptr<Chip>> Open(std::unique_ptr<UsbTransport> transport,
                                            const DeviceOrigin& origin,
                                            NowFunction now = Clock::now);

  const DeviceInfo& info() const override { return info_; }
  Result<std::unique_ptr<PreparedExecutable>> Prepare(
      std::shared_ptr<const AnyExecutable> executable) const override;
  void Forget(const PreparedExecutable& prepared) override;
  bool IsResident(const PreparedExecutable& prepared) const override;
  uint64_t memory_used_bytes() const override;
  Status Run(const Job& job, std::span<const Job> ahead, RequestReport* report) override;
  size_t jobs_in_flight_max() const override { return session_->jobs_in_flight_max(); }
  void Abandon() override;
  Status RegisterMemory(const HostMemory& memory) override {
    return session_->RegisterMemory(memory.bytes);
  }
  void UnregisterMemory(std::span<uint8_t> memory) override { session_->UnregisterMemory(memory); }
  Status Recover() override;
  Status Reopen() override;

 private:
  struct Prepared;

  Atoll1Chip(std::unique_ptr<Atoll1Session> session, NowFunction now, DeviceInfo info);

  Placement Place(const Prepared& prepared, bool* upload);
  void ForgetAll();
  Status Begin(const Job& job);
  Result<Atoll1Session::End> Finish(uint32_t request_id, const Executable& executable,
                                    std::span<const std::span<uint8_t>> outputs, Deadline deadline);

  const DeviceInfo info_;
  const NowFunction now_;
  const std::unique_ptr<Atoll1Session> session_;  // but for memory, of the holder of the wire
  // Likewise: the jobs that have begun, the oldest first.
  struct Begun {
    uint32_t request_id = 0;
    uint64_t parameter_bytes = 0;
  };
  std::vector<Begun> begun_;

  mutable std::mutex mutex_;  // guards what follows; never held during a transfer
  Residency residency_;
  std::vector<const Prepared*> residents_;
};

}  // namespace atollrt
