// SPDX-License-Identifier: Apache-2.0
//
// Registers and endpoints of a Coral USB accelerator, as far as a host on USB needs them
// (docs/coral.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace atollrt::coral {

inline constexpr uint16_t kChipId = 0x089A;  // low 15 bits of kChip

inline constexpr uint8_t kOutEndpoint = 0x01;
inline constexpr uint8_t kOutputEndpoint = 0x81;
inline constexpr uint8_t kEventEndpoint = 0x82;
inline constexpr uint8_t kInterruptEndpoint = 0x83;

// What follows a header on kOutEndpoint, or an event is about.
enum class Tag : uint8_t { kInstructions = 0, kInput = 1, kParameters = 2, kInterrupt0 = 4 };
inline constexpr size_t kHeaderBytes = 8;
inline constexpr size_t kEventBytes = 16;
inline constexpr size_t kEventTagByte = 12;  // of an event; low four bits
inline constexpr size_t kInterruptBytes = 4;

// 32 bits wide.
enum class Register32 : uint32_t {
  kBulkCredits = 0x1907C,
  kChip = 0x1A000,
  kTemperatureWarning = 0x1A0D4,
  kTemperatureShutdown = 0x1A0D8,
  kTemperature = 0x1A0DC,
  kPhyModes = 0x1A30C,
  kGates = 0x1A314,
  kPower = 0x1A318,
  kBootFailures = 0x1A33C,
  kSlaveMonitor = 0x1A500,
  kSlaveWriteError = 0x1A540,
  kSlaveReadError = 0x1A544,
  kSlaveMask = 0x1A558,
  kMasterMonitor = 0x1A600,
  kMasterWriteError = 0x1A640,
  kMasterReadError = 0x1A644,
  kMasterMask = 0x1A658,
  kMemoryTest = 0x1A704,
};

// 64 bits wide.
enum class Register64 : uint32_t {
  kDeepSleep = 0x40020,
  kTileOp = 0x400C0,
  kWideToNarrow = 0x40110,
  kNarrowToWide = 0x40150,
  kRingConsumer0 = 0x40190,
  kRingConsumer1 = 0x401D0,
  kRingProducer = 0x40210,
  kMesh0 = 0x40250,
  kMesh1 = 0x40298,
  kMesh2 = 0x402E0,
  kMesh3 = 0x40328,
  kScalarCore = 0x44018,
  kActivationPop = 0x44158,
  kParameterPop = 0x44198,
  kInfeed = 0x441D8,
  kOutfeed = 0x44218,
  kHibError = 0x486F0,
  kHibFirstError = 0x48700,
  kTileConfig = 0x48788,
  kIdle = 0x4A000,
  kOutfeedChunk = 0x4C058,
  kFatalControl = 0x4C060,
  kFatalStatus = 0x4C068,
  kTopLevelControl0 = 0x4C070,  // control and status of each of four, 16 bytes apart
  kTopLevelStatus0 = 0x4C078,
  kEventMask = 0x4C148,
  kMultiEndpoint = 0x4C160,
};
// What a register holds.
template <typename Register>
using Word = std::conditional_t<std::is_same_v<Register, Register32>, uint32_t, uint64_t>;

inline constexpr uint32_t kTopLevelStride = 0x10;
inline constexpr uint32_t kTopLevelCount = 4;

}  // namespace atollrt::coral
