// SPDX-License-Identifier: Apache-2.0
//
// BrokerChip: a device that a broker shares among programs, as a Chip. What the broker runs for
// others it does not see; recovery above it connects to the broker again, loads its executables and
// repeats what was under way, as with any device that comes back.
//
// Buffers of requests that lie in memory of AllocateShared, registered, are the broker's as they
// are; others are copied into memory that both have, and back out of it.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "driver/broker/messages.h"
#include "driver/broker/socket.h"
#include "driver/device/chip.h"
#include "runtime/base/clock.h"

namespace atollrt {

// One connection. Thread-safe: whoever waits for an answer and finds nobody else reading, reads,
// and hands out what others wait for.
class BrokerLink {
 public:
  // Says hello. kNotFound if nobody is there, kUnsupported if there is no common protocol,
  // kPermissionDenied if the broker is another user's (not this one's, root's, nor
  // $ATOLL_BROKER_UID's).
  static Result<std::unique_ptr<BrokerLink>> Connect(const std::string& path,
                                                     const std::string& program, Deadline deadline);

  // As the broker says; `description` is its line.
  const DeviceInfo& info() const { return info_; }

  uint32_t NewRequest() { return ++last_request_; }
  // Nothing is sent over a link that was closed: kDeviceLost.
  Status Send(std::span<const uint8_t> message, int fd = -1);
  struct Answer {
    BrokerDone done;
    std::string sentence;
  };
  // One call for each request. kTimeout, kDeviceLost; errors of the request are in the answer.
  Result<Answer> Await(uint32_t request, Deadline deadline);
  void Close();
  // As the broker has said last, among answers.
  BrokerState state() const;

 private:
  BrokerLink(FileDescriptor socket, DeviceInfo info);
  void Take(const ReceivedMessage& message);

  const FileDescriptor socket_;
  const DeviceInfo info_;
  std::atomic<uint32_t> last_request_{0};
  mutable std::mutex mutex_;  // guards what follows; not held while reading
  std::condition_variable changed_;
  bool is_reading_ = false;
  Status lost_;
  BrokerState state_;
  std::map<uint32_t, Answer> answers_;
};

class BrokerChip final : public Chip {
 public:
  // `origin` has the name. Errors as BrokerLink::Connect.
  static Result<std::unique_ptr<Chip>> Open(const std::string& path, const DeviceOrigin& origin,
                                            Deadline deadline);
  ~BrokerChip() override;

  const DeviceInfo& info() const override { return info_; }
  Result<std::unique_ptr<PreparedExecutable>> Prepare(
      std::shared_ptr<const AnyExecutable> executable) const override;
  void Forget(const PreparedExecutable& prepared) override;
  // Whether the broker has it: what is on its device, it decides.
  bool IsResident(const PreparedExecutable& prepared) const override;
  uint64_t memory_used_bytes() const override { return 0; }
  Status Run(const Job& job, std::span<const Job> ahead, RequestReport* report) override;
  size_t jobs_in_flight_max() const override { return kJobsInFlightMax; }
  void Abandon() override;
  DeviceHealth health() const override;
  Status Recover() override;
  Status Reopen() override;

 private:
  struct Prepared;
  // A run that has begun, and memory that is kept for the next one.
  struct Flight {
    uint32_t request_id = 0;  // the queue's; 0: none
    uint32_t request = 0;     // the link's
    uint32_t arena = 0;       // that the broker knows of `memory`; 0: of none
    SharedMemory memory;
    size_t inputs_bytes = 0;
  };

  BrokerChip(std::string path, DeviceInfo info, std::shared_ptr<BrokerLink> link);
  std::shared_ptr<BrokerLink> link() const;
  Status Lost() const;
  Status LoadOn(BrokerLink* link, Prepared* prepared, Deadline deadline) const;
  Status Begin(BrokerLink* link, const Job& job);
  Flight* FlightOf(uint32_t request_id);
  void Drop();
  Status Connect(Deadline deadline);

  const std::string path_;
  const DeviceInfo info_;
  mutable std::mutex mutex_;                      // guards link_ and what Prepared has of it
  std::shared_ptr<BrokerLink> link_;              // nullptr: none
  std::array<Flight, kJobsInFlightMax> flights_;  // of the holder of the wire
};

}  // namespace atollrt
