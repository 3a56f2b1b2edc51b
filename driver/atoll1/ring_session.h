// SPDX-License-Identifier: Apache-2.0
//
// RingSession: an Atoll1Session on PCIe (docs/protocol.md §6): a ring of descriptors in host
// memory, several runs under way. Buffers within registered memory and pinned bytes are given to
// the device by their address; all others are copied through memory of the session's, which is kept
// for the next run.
//
// It trusts neither the device nor what lies between: interrupts that are lost, late or without a
// cause, doorbells that are lost or repeated, events that are damaged, a ring that stops, a device
// that is gone.
//
// The device must not write into memory that was given back, whatever happens: Quiesce switches the
// ring off and waits until that is done; if that does not come, it resets the function, and if that
// fails, takes everything from the device: all mappings and the function itself. Then there is no
// way back but to open the device anew.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "driver/atoll1/atoll1_session.h"
#include "driver/atoll1/ring.h"
#include "driver/device/chip.h"
#include "driver/pcie/pcie_function.h"

namespace atollrt {

// An Atoll-1 on PCIe as a Chip. Resets the function first, if it can be reset. Errors as
// Atoll1Chip::Open.
Result<std::unique_ptr<Chip>> OpenAtoll1OnPcie(std::unique_ptr<PcieFunction> function,
                                               const DeviceOrigin& origin,
                                               NowFunction now = Clock::now);

class RingSession final : public Atoll1Session {
 public:
  // `name` is the device's, for what is logged.
  RingSession(std::unique_ptr<PcieFunction> function, std::string name, NowFunction now);
  ~RingSession() override;

  // Switches the ring off, and on again.
  Status ResetCore(Deadline deadline) override;
  // FLR. A function that knows none is left as ResetCore leaves it.
  Status ResetDevice(Deadline deadline) override;
  size_t jobs_in_flight_max() const override { return kJobsInFlightMax; }
  Status Begin(const Job& job, Deadline deadline) override;
  Result<End> Finish(uint32_t request_id, std::span<const std::span<uint8_t>> outputs,
                     Deadline deadline) override;
  Status Quiesce() override;

  // What the system does not pin is copied; the first time, the log says so. A function that takes
  // no memory of others has it all copied, without an error.
  Status RegisterMemory(std::span<uint8_t> memory) override;
  void UnregisterMemory(std::span<uint8_t> memory) override;
  bool Pin(std::span<const uint8_t> constant) override;
  void Unpin(std::span<const uint8_t> constant) override;

 private:
  // Memory that the device reaches.
  struct Region {
    std::span<const uint8_t> bytes;  // as the program knows it
    bool is_constant = false;
    std::unique_ptr<DmaMapping> mapping;  // of it, or of a copy if it is constant
  };
  // A run that has begun. They are kept for the memory that they have.
  struct Flight {
    uint32_t request_id = 0;
    uint32_t sequence = 0;    // of its event
    uint32_t descriptor = 0;  // number of its event's
    uint64_t bytes_out = 0, bytes_in = 0, bytes_copied = 0;
    std::unique_ptr<DmaMapping> copies;  // of what is not registered
    struct Output {
      std::span<uint8_t> bytes;
      const uint8_t* copy = nullptr;
    };
    std::vector<Output> outputs;  // that were copied
  };
  // A descriptor that is being put together, and the memory that it is about.
  struct Transfer {
    Descriptor descriptor;
    uint8_t* bytes = nullptr;  // descriptor.bytes of them
  };
  // Each of the jobs may have a caching program in front of it.
  static constexpr size_t kFlights = 2 * kJobsInFlightMax;

  Result<uint32_t> Read32(Register address, Deadline deadline) override;
  Result<uint32_t> Read(uint64_t address);
  Result<uint32_t> Read(RingRegister address) { return Read(static_cast<uint64_t>(address)); }
  Status Write(uint64_t address, uint32_t value);
  Status Write(RingRegister address, uint32_t value) {
    return Write(static_cast<uint64_t>(address), value);
  }
  Status Gone() const;
  Status SwitchOn(Deadline deadline);
  Status SwitchOff();
  Status AwaitStatus(RingStatus wanted, Deadline deadline);
  void TakeEverything();
  void MapAnew();
  std::unique_ptr<DmaMapping> MapRegion(std::span<const uint8_t> bytes, bool is_constant,
                                        Status* status = nullptr);

  void AddTransfer(DescriptorKind kind, std::span<const uint8_t> bytes);
  bool Locate(Transfer* transfer);
  Status MakeRoomForCopies(size_t bytes, Flight* flight);
  Flight& flight(size_t index) { return flights_[(first_flight_ + index) % kFlights]; }
  std::span<uint8_t, kRingEventBytes> EventOf(const Flight& flight) const;

  Result<Event> AwaitEvent(const Flight& flight, Deadline deadline, uint64_t* clock);
  enum class Look { kWhole, kNotYet };
  Look LookAtEvent(const Flight& flight, RingEvent* event) const;
  Result<Look> Inspect(const Flight& flight, RingEvent* event);
  Status StopReason(RingStatus status);

  const std::string name_;
  const NowFunction now_;

  // Guards the regions, and changes of the function against those who map memory.
  std::mutex mutex_;
  std::unique_ptr<PcieFunction> function_;  // nullptr once everything was taken from the device
  std::vector<Region> regions_;
  bool told_of_copies_ = false;

  bool has_interrupts_ = false;
  bool is_on_ = false;
  bool has_lost_memory_ = false;  // the device met with an address that did not answer
  std::unique_ptr<DmaMapping> ring_, events_;
  uint32_t tail_ = 0;      // descriptors written since the ring is on
  uint32_t done_ = 0;      // of them, those whose place may be used again
  uint32_t sequence_ = 0;  // of events
  std::array<Flight, kFlights> flights_;
  size_t first_flight_ = 0, flight_count_ = 0;
  std::vector<Transfer> transfers_;  // of Begin
};

}  // namespace atollrt
