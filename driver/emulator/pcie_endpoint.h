// SPDX-License-Identifier: Apache-2.0
//
// PcieEndpoint: one emulated Atoll-1 as a PCI function, as docs/protocol.md §6 describes it. It is
// passive, as Core is: the host reads and writes its registers, Step lets it do the next piece of
// work, and what it wants of the host it asks of a PcieUpstream. So it runs inside of the host's
// process (EmulatedPcie) or in another one, behind a bus that is not ours.
//
// What belongs to whoever plugs it in: the configuration space (ids in driver/pcie/pcie_bus.h) with
// memory access, bus mastering and FLR (Reset), the MSI-X table of kRingVectors vectors with its
// masks, and so whether PcieUpstream reaches memory.
//
// Everything that comes from the host is hostile: registers, descriptors and programs. Memory use
// is bounded by the profile and kRingEntriesMax, the work of a Step by kTransferBytes and one
// instruction. In a steady state the direct face allocates nothing.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "atoll/status.h"
#include "driver/atoll1/ring.h"
#include "driver/emulator/core.h"
#include "driver/emulator/stop_signal.h"

namespace atollrt {

// What a function reaches of its host. Calls come from within PcieEndpoint::Step.
class PcieUpstream {
 public:
  // Copies between host memory at a bus address, which may be any number, and the device's memory,
  // which is never empty. False if not all of it may be reached so: then `*fault` is the first such
  // address, and what was copied is not defined.
  virtual bool ReadMemory(uint64_t address, std::span<uint8_t> destination, uint64_t* fault) = 0;
  virtual bool WriteMemory(uint64_t address, std::span<const uint8_t> source, uint64_t* fault) = 0;
  // Vectors are those of RingVector. The host must see all memory written before.
  virtual void RaiseInterrupt(uint32_t vector) = 0;

 protected:
  ~PcieUpstream() = default;
};

class PcieEndpoint {
 public:
  // Most bytes that a Step moves at once.
  static constexpr size_t kTransferBytes = size_t{1} << 20;

  // Errors as Core::Create. `upstream` is borrowed.
  static Result<std::unique_ptr<PcieEndpoint>> Create(const CoreOptions& options,
                                                      PcieUpstream* upstream);
  ~PcieEndpoint();

  // An access of 32 bits to kRegisterBar. Any offset may be asked for; one that is not a multiple
  // of 4 is no register. Two reads in a row make a 64-bit register, the lower half first: it holds
  // the upper one.
  uint32_t Read32(uint64_t offset);
  void Write32(uint64_t offset, uint32_t value);

  // Does the next piece of work: descriptors fetched, a transfer, an instruction. False if there is
  // none before a register is written.
  bool Step();

  // Lets a Step in progress end early; then Reset must be the next call.
  void set_stop(const StopSignal& stop);

  // Power-on state, by FLR or by power.
  void Reset();

  // For tests: descriptors and events count from here when the ring is switched on, instead of 0.
  void set_first_number(uint32_t number);

 private:
  class Ring;

  explicit PcieEndpoint(std::unique_ptr<Ring> ring);

  std::unique_ptr<Ring> ring_;
};

}  // namespace atollrt
