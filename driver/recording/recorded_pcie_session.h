// SPDX-License-Identifier: Apache-2.0
//
// What the recording of a session on PCIe says: calls of a bus and of its functions, each with its
// answer, and what changed meanwhile in the memory for the device. A RecordingPcieBus writes it, a
// ReplayPcieBus reads it; docs/recording.md has the format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/status.h"
#include "driver/pcie/pcie_bus.h"
#include "driver/recording/session_text.h"

namespace atollrt {

// A call of a bus or of a function.
struct PcieCall {
  enum class Kind { kRead, kWrite, kAwait, kPresent, kAllocate, kVectors, kReset, kOpen, kList };
  Kind kind = Kind::kRead;
  uint32_t bar = 0;             // of registers
  uint32_t bits = 0;            // likewise
  DmaDirection direction = {};  // kAllocate
  uint64_t place = 0;           // the offset of a register
  // What is written, the vectors that are waited for, how many there are, bytes of memory.
  uint64_t value = 0;
  std::string_view address = {};  // kOpen
  bool operator==(const PcieCall&) const = default;
};

using PcieKind = PcieCall::Kind;

PcieCall RegisterCall(PcieKind kind, uint32_t bar, uint64_t offset, uint32_t bits,
                      uint64_t value = 0);

// The line of a call up to its answer: "read 2 48 64".
std::string PcieWords(const PcieCall& call);
// For messages: "a read of register 48 of BAR 2, 64 bits".
std::string DescribePcie(const PcieCall& call);

// As %llu and %llx want it.
inline unsigned long long Wide(uint64_t number) { return number; }

// One call with its answer. Text is part of the recording.
struct PcieEvent {
  PcieCall call = {};
  StatusCode code = StatusCode::kOk;
  std::string_view message = {};
  uint64_t answer = 0;     // a register, vectors, the address of memory
  uint64_t number = 0;     // of memory
  size_t devices_end = 0;  // kList: those behind the ones of the event before
  size_t changes_end = 0;  // of memory, likewise: the host's before a write, else the device's

  Status status() const;
};

struct MemoryChange {
  uint64_t mapping = 0;
  uint64_t offset = 0;
  std::span<const uint8_t> bytes = {};
};

// What a file says, in order; all text and bytes are in `recording`.
struct RecordedPcieSession {
  // Takes hostile bytes. kInvalidArgument if they are no recording of PCIe.
  static Result<std::unique_ptr<const RecordedPcieSession>> Read(
      std::span<const uint8_t> recording);

  std::vector<uint8_t> recording;
  SessionNotes notes;
  std::vector<PcieEvent> events;
  std::vector<MemoryChange> changes;
  std::vector<PcieDeviceInfo> devices;

  // Where those of an event begin.
  size_t ChangesBegin(size_t event) const { return event == 0 ? 0 : events[event - 1].changes_end; }
  std::vector<PcieDeviceInfo> DevicesOf(size_t event) const;

 private:
  Status Add(std::span<const uint8_t> packet);
};

}  // namespace atollrt
