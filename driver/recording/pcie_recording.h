// SPDX-License-Identifier: Apache-2.0
//
// A session with a device on a PcieBus, recorded in a file, and played back without the device.
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
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "driver/pcie/pcie_bus.h"
#include "driver/recording/pcapng.h"

namespace atollrt {

struct PcieCall;
struct RecordedPcieSession;

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

// Answers as the recorded devices did, call by call, and compares what it is told, and what lies in
// the memory for the device, with what was recorded. A session that departs from its recording gets
// kInternal, with both in words, from then on. For sessions of one thread at a time.
//
// Waiting is a matter of time, and so not compared: reads of registers, time-outs, writes that
// repeat the last one, looks whether a function is there. What is recorded of these is passed over
// where the session does not do it; where it does and there is nothing recorded, the last answer
// holds, or one time-out follows the other. Time-outs come long before their deadline.
class ReplayPcieBus final : public PcieBus, public std::enable_shared_from_this<ReplayPcieBus> {
 public:
  // Takes hostile bytes. kInvalidArgument if they are no recording of PCIe.
  static Result<std::shared_ptr<ReplayPcieBus>> Create(std::span<const uint8_t> recording);
  ~ReplayPcieBus() override;

  // Empty if there is none of that key.
  std::string Note(const std::string& key) const;
  // What was there when the session began.
  Result<std::vector<PcieDeviceInfo>> FirstDevices() const;
  // Says where the session went another way than its recording; ok if it has not.
  Status departure() const;
  // Calls so far, and of the recording.
  size_t replayed() const;
  size_t calls() const;

  Result<std::vector<PcieDeviceInfo>> List() override;
  Result<std::unique_ptr<PcieFunction>> Open(const PcieDeviceInfo& device) override;
  uint64_t generation() override { return 0; }
  bool WaitForChange(uint64_t seen, Deadline deadline) override;

 private:
  struct Answer;
  class Function;
  class Mapping;
  explicit ReplayPcieBus(std::unique_ptr<const RecordedPcieSession> session);

  Result<Answer> Next(const PcieCall& wanted);
  // All with the mutex held:
  Status Depart(const std::string& how);
  Status Pass(size_t event);
  Status CompareMemory(const PcieCall& wanted) const;

  const std::unique_ptr<const RecordedPcieSession> session_;
  mutable std::mutex mutex_;  // guards what follows
  size_t next_ = 0;
  size_t last_list_ = SIZE_MAX;
  std::map<std::pair<uint32_t, uint64_t>, size_t> last_reads_;  // by BAR and offset
  size_t last_presence_ = SIZE_MAX;
  size_t last_write_ = SIZE_MAX;
  bool timed_out_ = false;  // the last wait
  std::map<uint64_t, Mapping*> mappings_;
  Status departure_;
};

}  // namespace atollrt
