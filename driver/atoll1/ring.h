// SPDX-License-Identifier: Apache-2.0
//
// What an Atoll-1 on PCIe has beside the registers of protocol.h: the registers of its ring, the
// descriptors in it, and the events that it writes (docs/protocol.md §6). Encoding and decoding
// only; both ends use it. Pure functions, thread-safe; decoders take hostile bytes.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "atoll/status.h"
#include "driver/atoll1/protocol.h"

namespace atollrt {

inline constexpr uint32_t kRegisterBar = 0;  // registers of protocol.h and of the ring
inline constexpr uint64_t kRegisterBarBytes = 4096;

// Registers of kRegisterBar, 32 bits each; the enumerator's value is the offset.
enum class RingRegister : uint32_t {
  kRingLow = 0x0200,
  kRingHigh = 0x0204,
  kRingEntries = 0x0208,
  kRingControl = 0x020C,
  kRingStatus = 0x0210,
  kRingTail = 0x0214,
  kRingHead = 0x0218,
  kStopDescriptor = 0x021C,
  kStopAddressLow = 0x0220,
  kStopAddressHigh = 0x0224,
};
inline constexpr uint32_t kRingOff = 0;
inline constexpr uint32_t kRingOn = 1;
enum class RingStatus : uint32_t {
  kOff = 0,
  kOn = 1,
  kProgramFault = 2,   // stopped: the core is faulted
  kDmaFault = 3,       // stopped: the host's memory did not answer at STOP_ADDRESS
  kBadDescriptor = 4,  // stopped at STOP_DESCRIPTOR
};
inline constexpr uint32_t kRingEntriesMin = 8;
inline constexpr uint32_t kRingEntriesMax = 4096;

// MSI-X vectors.
enum class RingVector : uint32_t { kOut = 0, kIn = 1, kEvent = 2, kFault = 3 };
inline constexpr uint32_t kRingVectors = 4;

inline constexpr size_t kDescriptorBytes = 32;
enum class DescriptorKind : uint8_t {
  kInstructions = 0,
  kInput = 1,
  kParameters = 2,
  kOutput = 3,
  kStart = 8,
  kEvent = 9,
};
struct Descriptor {
  DescriptorKind kind = DescriptorKind::kEvent;
  bool interrupts = false;      // raises the vector of its direction when it is done
  uint32_t bytes = 0;           // but for kStart
  uint64_t address = 0;         // in host memory; but for kStart
  uint32_t program_offset = 0;  // of kInstructions
  StartMessage start = {};      // of kStart
  bool operator==(const Descriptor&) const = default;
};
std::array<uint8_t, kDescriptorBytes> EncodeDescriptor(const Descriptor& descriptor);
Result<Descriptor> DecodeDescriptor(std::span<const uint8_t, kDescriptorBytes> bytes);

inline constexpr size_t kRingEventBytes = 32;
inline constexpr size_t kRingEventSequence = 24;  // where RingEvent::sequence lies
struct RingEvent {
  Event event;
  uint64_t clock = 0;     // of the device in cycles since its reset, when it was done
  uint32_t sequence = 0;  // of events since the ring was switched on; 1 is the first
  bool operator==(const RingEvent&) const = default;
};
std::array<uint8_t, kRingEventBytes> EncodeRingEvent(const RingEvent& event);
// The bytes of one, 8-byte aligned, that the device may be writing: each word whole.
std::array<uint8_t, kRingEventBytes> LoadRingEvent(std::span<const uint8_t, kRingEventBytes> place);
// kInvalidArgument unless it is one, and its check is right.
Result<RingEvent> DecodeRingEvent(std::span<const uint8_t, kRingEventBytes> bytes);

}  // namespace atollrt
