// SPDX-License-Identifier: Apache-2.0
//
// Chip: what differs between families of devices below the queue of requests (device.h): how
// executables get ready for the wire, what stays on the device, one run, and the way back after an
// error. A chip owns the transport to its device and is opened by whoever knows the family; its
// destruction takes leave of the device as far as that still answers, within seconds.
//
// Calls marked (wire) come one at a time, from whoever holds the wire; they block until they are
// done or their deadline passes. The others may come from any thread at any time.
//
// A run that fails leaves the device in doubt: nothing counts as resident afterwards, and Recover
// or Reopen comes before the next run.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "atoll/status.h"
#include "driver/device/device_info.h"
#include "driver/isa/executable.h"
#include "runtime/base/clock.h"
#include "runtime/base/host_memory.h"

namespace atollrt {

// Most jobs that any chip has under way.
inline constexpr size_t kJobsInFlightMax = 4;

// An executable ready for the wire. Each chip derives its own and is given back nothing else.
struct PreparedExecutable {
  virtual ~PreparedExecutable() = default;

  ExecutableId id = 0;  // the queue's
  std::shared_ptr<const AnyExecutable> executable;
  uint64_t macs = 0;           // of one run, as far as that is known
  uint32_t residency_set = 0;  // LoadOptions'
};

class Chip {
 public:
  virtual ~Chip() = default;

  virtual const DeviceInfo& info() const = 0;

  // Checks that `executable`, which is not nullptr, can run here. kUnsupported for another family
  // or ISA version, kResourceExhausted if it can never fit.
  virtual Result<std::unique_ptr<PreparedExecutable>> Prepare(
      std::shared_ptr<const AnyExecutable> executable) const = 0;
  // `prepared`, which no run uses, will not be used again.
  virtual void Forget(const PreparedExecutable& prepared) = 0;
  // Whether a run would have nothing to upload.
  virtual bool IsResident(const PreparedExecutable& prepared) const = 0;
  // On-chip memory that is taken at the moment.
  virtual uint64_t memory_used_bytes() const = 0;

  // One run; sizes of inputs and outputs are those of the executable's layers.
  struct Job {
    const PreparedExecutable* prepared = nullptr;
    uint32_t request_id = 0;  // not 0
    std::span<const std::span<const uint8_t>> inputs;
    std::span<const std::span<uint8_t>> outputs;
    Deadline deadline;
    int32_t priority = 0;  // the request's, for a chip that others use, too
  };
  // Uploads what is not resident, runs, receives the outputs. `report` is filled after errors, too.
  // kTimeout past the deadline, kCorruptModel if the device says that the program is malformed,
  // otherwise the transport's errors, or kDeviceLost if the device breaks the protocol. (wire)
  //
  // `ahead` are the jobs that will be run next, in this order. A chip that can have several under
  // way may begin them: their buffers then belong to it until the Run that names them (the same
  // request_id) has returned. Such a Run follows unless one fails: after an error, and so after
  // Recover, Reopen and destruction, nothing is under way any more.
  virtual Status Run(const Job& job, std::span<const Job> ahead, RequestReport* report) = 0;
  // How many it can have under way, that of Run included; kJobsInFlightMax at most.
  virtual size_t jobs_in_flight_max() const { return 1; }

  // Ends what is under way, for which no Run will come: in front of destruction, so that programs
  // may go first. (wire)
  virtual void Abandon() {}

  // Tells of memory in which buffers of later jobs will lie, as long as it is not taken back: a
  // chip that reaches host memory itself gets it ready once, instead of copying. An error says why
  // it will copy; nothing has to be taken back then. No job under way may use what is taken back.
  // The same memory may be told of several times, and is then taken back as often.
  virtual Status RegisterMemory(const HostMemory& memory) {
    (void)memory;
    return {};
  }
  virtual void UnregisterMemory(std::span<uint8_t> memory) { (void)memory; }

  // What went wrong below it, where others bring it back; of what its keeper counts: nothing.
  virtual DeviceHealth health() const { return {}; }

  // After a run that failed while the device stayed on the bus: makes it ready again with as little
  // as that takes. (wire)
  virtual Status Recover() = 0;
  // Makes it ready again from whatever state it is in, by a reset of the whole device. kDeviceLost
  // if another device answers then. (wire)
  virtual Status Reopen() = 0;
};

}  // namespace atollrt
