// SPDX-License-Identifier: Apache-2.0
//
// A session with a device on a PcieBus, recorded in a file (pcie_replay.h plays it back).
//
// A device on PCIe reads and writes host memory when it likes. So that a session can be repeated, a
// recorded function has memory of its own for the device: what the host wrote is copied there
// before each write to a register, and what the device wrote comes back after each read of one and
// after each wait for interrupts. Both are found by comparing, and recorded. Memory of callers is
// not mapped: a recording must not depend on where a program has its buffers.
//
// The file is pcapng with the text records of session_text.h (docs/recording.md has the format).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "driver/pcie/pcie_bus.h"
#include "driver/recording/pcapng.h"

namespace atollrt {

// Passes everything on to `inner` and writes it down. Errors of the disk are logged at the end.
// Thread-safe; calls are recorded in the order in which they end.
class RecordingPcieBus final : public PcieBus,
                               public std::enable_shared_from_this<RecordingPcieBus> {
 public:
  // kInvalidArgument if the file cannot be made.
  static Result<std::shared_ptr<RecordingPcieBus>> Create(std::shared_ptr<PcieBus> inner,
                                                          const std::string& path);
  ~RecordingPcieBus() override;

  // What the session says of itself: a key without spaces, a value without line breaks.
  void Note(const std::string& key, const std::string& value);

  Result<std::vector<PcieDeviceInfo>> List() override;
  Result<std::unique_ptr<PcieFunction>> Open(const PcieDeviceInfo& device) override;
  uint64_t generation() override { return inner_->generation(); }
  bool WaitForChange(uint64_t seen, Deadline deadline) override {
    return inner_->WaitForChange(seen, deadline);
  }

 private:
  class Function;
  class Mapping;
  RecordingPcieBus(std::shared_ptr<PcieBus> inner, PcapngWriter writer)
      : inner_(std::move(inner)), writer_(std::move(writer)) {}
  void Write(const std::string& text, std::span<const uint8_t> bytes = {});

  const std::shared_ptr<PcieBus> inner_;
  std::mutex mutex_;  // guards what follows
  PcapngWriter writer_;
  uint64_t mappings_ = 0;  // so far
};

}  // namespace atollrt
