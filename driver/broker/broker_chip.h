// SPDX-License-Identifier: Apache-2.0
//
// BrokerChip: a device that a broker shares among programs, as a Chip. What the broker runs for
// others it does not see; recovery above it connects to the broker again, loads its executables and
// repeats what was under way, as with any device that comes back.
//
// Buffers of requests that lie in registered memory that others can map (HostMemory) are lent to
// the broker as they are; others are copied into memory that both have, and back out of it. What is
// lent to a broker that does not answer is replaced by other memory, at the same place, before
// anybody uses it again: it may still be written. What cannot be replaced has inputs lent alone.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "driver/broker/messages.h"
#include "driver/broker/socket.h"
#include "driver/device/chip.h"
#include "runtime/base/clock.h"
#include "runtime/base/host_memory.h"

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

  // The number of a request that will be awaited.
  uint32_t NewRequest();
  // Nothing is sent over a link that was closed: kDeviceLost.
  Status Send(std::span<const uint8_t> message, int fd = -1);
  struct Answer {
    BrokerDone done;
    std::vector<uint8_t> tail;
  };
  // One call for each request, after which its answer is forgotten. kTimeout, kDeviceLost; errors
  // of the request are in the answer.
  Result<Answer> Await(uint32_t request, Deadline deadline);
  void Close();
  // Sends a message that is answered at once; its errors, and the answer's.
  Result<Answer> Ask(std::span<const uint8_t> message, uint32_t request, Deadline deadline,
                     int fd = -1);
  // All whom the broker lets this one know of.
  Result<std::vector<BrokerClientRow>> Clients(Deadline deadline);
  // kPermissionDenied unless this one may.
  Status ResetDevice(Deadline deadline);
  // As the broker has said last, among answers.
  BrokerState state() const;

 private:
  BrokerLink(FileDescriptor socket, DeviceInfo info);
  Result<Answer> AwaitLocked(uint32_t request, Deadline deadline,
                             std::unique_lock<std::mutex>* lock);
  void Take(const ReceivedMessage& message);

  const FileDescriptor socket_;
  const DeviceInfo info_;
  mutable std::mutex mutex_;  // guards what follows; not held while reading
  uint32_t last_request_ = 0;
  std::set<uint32_t> awaited_;
  std::condition_variable changed_;
  bool is_reading_ = false;
  Status lost_;
  BrokerState state_;
  std::map<uint32_t, Answer> answers_;  // to awaited_ alone
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
  Status RegisterMemory(const HostMemory& memory) override;
  void UnregisterMemory(std::span<uint8_t> memory) override;
  Status Recover() override;
  Status Reopen() override;

 private:
  struct Prepared;
  // Memory that is registered, and can be lent.
  struct Lent {
    HostMemory memory;
    int registrations = 1;
    uint32_t arena = 0;              // that the broker knows of it
    std::weak_ptr<BrokerLink> link;  // the one behind this
    bool is_refused = false;         // there
  };
  // A run that has begun, and memory that is kept for the next one.
  struct Flight {
    uint32_t request_id = 0;  // the queue's; 0: none
    uint32_t request = 0;     // the link's
    uint32_t arena = 0;       // that the broker knows of `memory`; 0: of none
    SharedMemory memory;
    struct Copied {  // from `offset` in `memory`, once it is over
      size_t offset;
      std::span<uint8_t> output;
    };
    std::vector<Copied> outputs;
    size_t bytes_copied = 0;
    std::vector<Lent*> lent;  // which stay while it is under way
  };

  BrokerChip(std::string path, DeviceInfo info, std::shared_ptr<BrokerLink> link);
  std::shared_ptr<BrokerLink> link() const;
  Status Lost() const;
  Status LoadOn(BrokerLink* link, Prepared* prepared, Deadline deadline) const;
  Status SendArena(BrokerLink* link, uint32_t id, int fd, size_t bytes) const;
  Status LendAll(BrokerLink* link, const Job& job);
  void PlaceLent(std::span<const uint8_t> bytes, bool is_output, BrokerBuffer* buffer,
                 Flight* flight) const;
  void PlaceLent(const Job& job, std::vector<BrokerBuffer>* buffers, Flight* flight) const;
  Status Begin(BrokerLink* link, const Job& job);
  Flight* FlightOf(uint32_t request_id);
  void Drop();
  Status Connect(Deadline deadline);

  const std::string path_;
  const DeviceInfo info_;
  mutable std::mutex mutex_;          // guards link_, what Prepared has of it, and lent_
  std::shared_ptr<BrokerLink> link_;  // nullptr: none
  std::vector<std::unique_ptr<Lent>> lent_;
  uint32_t last_arena_ = kJobsInFlightMax;        // behind those of flights
  std::array<Flight, kJobsInFlightMax> flights_;  // of the holder of the wire
};

}  // namespace atollrt
