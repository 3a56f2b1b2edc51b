// SPDX-License-Identifier: Apache-2.0
//
// A recorded session with a device on a PcieBus (pcie_recording.h), played back without the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "driver/pcie/pcie_bus.h"

namespace atollrt {

struct PcieCall;
struct RecordedPcieSession;

// Answers as the recorded devices did, call by call, and compares what it is told, and what lies in
// the memory for the device, with what was recorded. A session that departs from its recording gets
// kInternal, with both in words, from then on. For sessions of one thread at a time.
//
// Waiting is a matter of time, and so not compared: reads of registers, time-outs, writes that
// repeat the last one, looks whether a function is there. What is recorded of these is passed over
// where the session does not do it; where it does and there is nothing recorded, the last answer
// holds, or a wait times out: after another one, and in front of looks at the device, for which the
// recorded session may have been late. Time-outs come long before their deadline.
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
