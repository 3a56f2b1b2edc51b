// SPDX-License-Identifier: Apache-2.0
//
// Registers of a Coral, and its endpoints on USB, as far as a host needs them (docs/coral.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
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
  kThermalSensor = 0x1A0D0,
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
  // On PCIe, of whoever takes the place of the kernel's modules.
  kExtendedTable = 0x46008,  // how many entries of the page table are simple
  kInstructionVector = 0x46018,
  kInputVector = 0x46020,
  kParameterVector = 0x46028,
  kOutputVector = 0x46030,
  kScalarVectors = 0x46038,
  kTopLevelVectors = 0x46040,
  kFatalVector = 0x46048,
  kPageTableReady = 0x46078,
  kVectorTableReady = 0x46080,
  // On PCIe, of every driver.
  kQueueControl = 0x48568,
  kQueueStatus = 0x48570,
  kDescriptorBytes = 0x48578,
  kQueueBase = 0x48590,
  kQueueStatusBlock = 0x48598,
  kQueueSize = 0x485A0,
  kQueueTail = 0x485A8,
  kQueueInterruptControl = 0x485C0,
  kQueueInterruptStatus = 0x485C8,
  kScalarInterruptControl = 0x486A0,
  kScalarInterruptStatus = 0x486A8,
  kFatalInterruptControl = 0x486C0,
  kFatalInterruptStatus = 0x486C8,
  kScalarInterruptCounts = 0x486D0,
  kDmaPause = 0x486D8,
  kDmaPaused = 0x486E0,
  kStatusBlockUpdate = 0x486E8,
  kHibError = 0x486F0,
  kHibFirstError = 0x48700,
  kPageFaultAddress = 0x48738,
  kTileConfig = 0x48788,
  kDmaBurstLimit = 0x487A8,
  kIdle = 0x4A000,
  kOutfeedChunk = 0x4C058,
  kFatalControl = 0x4C060,
  kFatalStatus = 0x4C068,
  kTopLevelControl0 = 0x4C070,  // control and status of each of four, 16 bytes apart
  kTopLevelStatus0 = 0x4C078,
  kEventMask = 0x4C148,
  kMultiEndpoint = 0x4C160,
  kPageTable = 0x50000,  // the first entry
};
// What a register holds.
template <typename Register>
using Word = std::conditional_t<std::is_same_v<Register, Register32>, uint32_t, uint64_t>;

inline constexpr uint32_t kTopLevelStride = 0x10;
inline constexpr uint32_t kTopLevelCount = 4;

// A part of a register.
struct RegisterField {
  uint32_t mask;
  int shift;
};
constexpr uint32_t Bits(int first, int last) { return (2u << last) - (1u << first); }
constexpr uint32_t Get(RegisterField field, uint32_t word) {
  return (word & field.mask) >> field.shift;
}
constexpr uint32_t With(RegisterField field, uint32_t value, uint32_t word) {
  return (word & ~field.mask) | value << field.shift;
}

// Fields of kGates and kPower.
inline constexpr RegisterField kResetMode{Bits(2, 3), 2};
inline constexpr RegisterField kGateMode{Bits(18, 19), 18};
inline constexpr RegisterField kInReset{Bits(4, 4), 4};
inline constexpr RegisterField kMemoryOff{Bits(6, 6), 6};
inline constexpr RegisterField kPowerState{Bits(8, 9), 8};
inline constexpr RegisterField kForceMemoryOff{Bits(14, 15), 14};
inline constexpr RegisterField kForceSleep{Bits(22, 23), 22};
inline constexpr RegisterField kPowerStates{Bits(26, 27), 26};  // that it may go to by itself
inline constexpr RegisterField kCoreClock{Bits(28, 29), 28};
inline constexpr RegisterField kClocks{Bits(28, 31), 28};  // that of the core and others

// Units of the core and of its tiles that are started and halted by writing kRun and kHalt, in this
// order; those of the tiles once all tiles are selected.
inline constexpr uint64_t kRun = 1, kHalt = 2;
inline constexpr Register64 kCoreRunControls[] = {
    Register64::kScalarCore, Register64::kActivationPop, Register64::kParameterPop,
    Register64::kInfeed, Register64::kOutfeed};
inline constexpr Register64 kTileRunControls[] = {
    Register64::kTileOp,      Register64::kNarrowToWide,  Register64::kWideToNarrow,
    Register64::kMesh0,       Register64::kMesh1,         Register64::kMesh2,
    Register64::kMesh3,       Register64::kRingConsumer0, Register64::kRingConsumer1,
    Register64::kRingProducer};
inline constexpr uint64_t kAllTiles = 0x7F;

// What the bits of kHibError mean: "page fault".
std::string DescribeHibError(uint64_t bits);
inline constexpr uint64_t kPageFaults = 3;  // of them
// What the device does that raises top-level interrupt `number`, 0 to kTopLevelCount - 1: "is hot".
const char* TopLevelMeaning(uint32_t number);

}  // namespace atollrt::coral
