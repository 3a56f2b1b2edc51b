// SPDX-License-Identifier: Apache-2.0
#include "driver/coral/session.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "runtime/base/bytes.h"
#include "runtime/base/log.h"

namespace atollrt {
namespace {

using coral::Bits;
using coral::DescribeHibError;
using coral::Get;
using coral::kClocks;
using coral::kForceSleep;
using coral::kGateMode;
using coral::kPowerState;
using coral::Register32;
using coral::Register64;
using coral::With;

constexpr std::chrono::milliseconds kPollPatience{1000};
constexpr int kInterruptsAtOnce = 8;  // that CheckFaults takes: more come from a broken device

constexpr uint32_t kInactivePhyModes = Bits(8, 13);  // of PCIe and USB
constexpr uint32_t kGatedByHardware = 1, kNeverGated = 2;
constexpr uint32_t kRunning = 0, kAsleep = 2;
constexpr uint32_t kForbidSleep = 2, kSleepNow = 3;
constexpr uint32_t kMemoryTestStatus = Bits(16, 18), kMemoryTestMask = Bits(20, 22);
constexpr uint32_t kBootStatus = Bits(16, 17), kBootMask = Bits(18, 19);
constexpr uint32_t kThermalEnable = Bits(31, 31);

// What makes interrupts of faults, in the order in which it is turned on, and off: bits of a
// register and their values. All bits: it is written without having been read.
constexpr uint32_t kAllBits = ~0u;
struct InterruptSwitch {
  Register32 address;
  uint32_t on_mask, on_value;
  uint32_t off_mask, off_value;
};
constexpr InterruptSwitch kInterruptSwitches[] = {
    {Register32::kTemperatureWarning, kThermalEnable, kThermalEnable, kThermalEnable, 0},
    {Register32::kMemoryTest, kMemoryTestStatus | kMemoryTestMask, 0, kMemoryTestMask,
     kMemoryTestMask},
    {Register32::kBootFailures, kBootStatus | kBootMask, 0, kBootMask, kBootMask},
    {Register32::kSlaveMonitor, kAllBits, 1, kAllBits, 0},
    {Register32::kMasterMonitor, kAllBits, 1, kAllBits, 0},
    {Register32::kSlaveMask, kAllBits, 3, kAllBits, 0},
    {Register32::kMasterMask, kAllBits, 3, kAllBits, 0},
    {Register32::kTemperatureShutdown, kThermalEnable, kThermalEnable, kThermalEnable, 0},
};

constexpr uint64_t kSleepDelays = 0x1E02;  // wake 30, sleep 2
constexpr uint64_t kIdleAfterOne = 1;
constexpr uint64_t kInterruptEventsOnly = 0xF0;
constexpr uint64_t kPacketsOf1024 = 0x80, kPacketsOf256 = 0x20;  // in units of 8 bytes

// Interrupt word on the interrupt endpoint.
constexpr uint32_t kFatalInterrupt = 1;
constexpr int kFirstTopLevelBit = 1;
enum TopLevel : uint32_t { kThermalShutdown, kBusError, kMemoryTest, kThermalWarning };
constexpr uint32_t kShutdownRaised = Bits(30, 30), kShutdownClear = Bits(28, 28);
constexpr uint32_t kWarningRaised = Bits(31, 31), kWarningClear = Bits(29, 29);

// Control or status of one of the four interrupts beside the fatal one.
Register64 TopLevelRegister(Register64 first, uint32_t number) {
  return static_cast<Register64>(static_cast<uint32_t>(first) + number * coral::kTopLevelStride);
}

// Of kClocks, by CoralPerformance.
constexpr uint32_t kClockSettings[] = {0xF, 0x6, 0x5, 0x0};

// Anything else may go better the next time. A device that is gone says so at once, every time.
bool IsFinal(const Status& status) { return status.code() == StatusCode::kCancelled; }

}  // namespace

CoralSession::CoralSession(CoralUsbLink* link, NowFunction now, std::string name)
    : link_(link), now_(std::move(now)), name_(std::move(name)) {}

Status CoralSession::Update(Register32 address, uint32_t mask, uint32_t value, Deadline deadline) {
  uint32_t word = 0;
  if (mask != kAllBits) {
    ATOLL_ASSIGN_OR_RETURN(word, link_->Read(address, deadline));
  }
  return link_->Write(address, (word & ~mask) | value, deadline);
}

template <typename Register>
Status CoralSession::Await(Register address, coral::Word<Register> mask,
                           coral::Word<Register> value, const char* what, Deadline deadline) {
  deadline = std::min(deadline, now_() + kPollPatience);
  for (;;) {
    ATOLL_ASSIGN_OR_RETURN(const auto word, link_->Read(address, deadline));
    if ((word & mask) == value) return {};
    if (now_() >= deadline) {
      return Timeout("the chip does not %s: register %05x has %llx, should have %llx (of %llx)",
                     what, static_cast<uint32_t>(address), static_cast<unsigned long long>(word),
                     static_cast<unsigned long long>(value), static_cast<unsigned long long>(mask));
    }
  }
}

// From power-on to programs, and back.

Status CoralSession::Sleep(Deadline deadline) {
  ATOLL_ASSIGN_OR_RETURN(const uint32_t power, link_->Read(Register32::kPower, deadline));
  if (Get(kForceSleep, power) == kSleepNow) return {};
  ATOLL_RETURN_IF_ERROR(
      link_->Write(Register32::kPower, With(kForceSleep, kSleepNow, power), deadline));
  ATOLL_RETURN_IF_ERROR(Await(Register32::kPower, kPowerState.mask, kAsleep << kPowerState.shift,
                              "go to sleep", deadline));
  constexpr uint32_t kClearAll = 0xF;
  ATOLL_RETURN_IF_ERROR(link_->Write(Register32::kBulkCredits, kClearAll, deadline));
  return link_->Write(Register32::kBulkCredits, 0, deadline);
}

Status CoralSession::WakeUp(CoralPerformance performance, Deadline deadline) {
  ATOLL_ASSIGN_OR_RETURN(uint32_t power, link_->Read(Register32::kPower, deadline));
  power = With(kForceSleep, kForbidSleep,
               With(kClocks, kClockSettings[static_cast<size_t>(performance)], power));
  ATOLL_RETURN_IF_ERROR(link_->Write(Register32::kPower, power, deadline));
  ATOLL_RETURN_IF_ERROR(Await(Register32::kPower, kPowerState.mask, kRunning << kPowerState.shift,
                              "wake up", deadline));
  return Await(Register64::kScalarCore, ~uint64_t{0}, uint64_t{0}, "reset its core", deadline);
}

// Writes to tiles go to all of them. It must be read back: later writes may be faster.
Status CoralSession::SelectAllTiles(Deadline deadline) {
  ATOLL_RETURN_IF_ERROR(link_->Write(Register64::kTileConfig, coral::kAllTiles, deadline));
  return Await(Register64::kTileConfig, ~uint64_t{0}, coral::kAllTiles, "select its tiles",
               deadline);
}

// Goes on past errors; the first one.
Status CoralSession::SetRunControl(uint64_t value, Deadline deadline) {
  Status first;
  const auto keep = [&first](Status status) {
    if (first.ok()) first = std::move(status);
    return !IsFinal(first);
  };
  for (const Register64 unit : coral::kCoreRunControls) {
    if (!keep(link_->Write(unit, value, deadline))) return first;
  }
  if (!keep(SelectAllTiles(deadline))) return first;
  for (const Register64 unit : coral::kTileRunControls) {
    if (!keep(link_->Write(unit, value, deadline))) return first;
  }
  return first;
}

bool CoralSession::SetInterrupts(bool on, Deadline deadline, const GoOn& go_on) {
  const uint64_t control = on ? 1 : 0;
  if (on && !go_on(link_->Write(Register64::kFatalControl, control, deadline))) return false;
  for (uint32_t i = 0; i < coral::kTopLevelCount; ++i) {
    const Register64 address = TopLevelRegister(Register64::kTopLevelControl0, i);
    if (!go_on(link_->Write(address, control, deadline))) return false;
  }
  for (const InterruptSwitch& one : kInterruptSwitches) {
    if (!go_on(Update(one.address, on ? one.on_mask : one.off_mask,
                      on ? one.on_value : one.off_value, deadline))) {
      return false;
    }
  }
  return on || go_on(link_->Write(Register64::kFatalControl, control, deadline));
}

Status CoralSession::BringUp(const Settings& settings, Deadline deadline) {
  ATOLL_ASSIGN_OR_RETURN(const uint32_t chip, link_->Read(Register32::kChip, deadline));
  if ((chip & 0x7FFF) != coral::kChipId) {
    return Unsupported("the chip says that it is %04x; a Coral is %04x", chip & 0x7FFF,
                       coral::kChipId);
  }
  ATOLL_RETURN_IF_ERROR(Update(Register32::kPhyModes, kInactivePhyModes, 0, deadline));
  ATOLL_ASSIGN_OR_RETURN(const uint32_t gates, link_->Read(Register32::kGates, deadline));
  if (Get(kGateMode, gates) == kGatedByHardware) {  // not through its reset
    ATOLL_RETURN_IF_ERROR(
        Update(Register32::kGates, kGateMode.mask, kNeverGated << kGateMode.shift, deadline));
  }
  ATOLL_RETURN_IF_ERROR(Sleep(deadline));
  ATOLL_RETURN_IF_ERROR(WakeUp(settings.performance, deadline));
  ATOLL_RETURN_IF_ERROR(link_->Write(Register64::kIdle, kIdleAfterOne, deadline));
  ATOLL_RETURN_IF_ERROR(SelectAllTiles(deadline));
  ATOLL_RETURN_IF_ERROR(link_->Write(Register64::kDeepSleep, kSleepDelays, deadline));
  ATOLL_RETURN_IF_ERROR(
      Update(Register32::kGates, kGateMode.mask, kGatedByHardware << kGateMode.shift, deadline));
  ATOLL_RETURN_IF_ERROR(link_->Write(Register64::kEventMask, kInterruptEventsOnly, deadline));
  ATOLL_RETURN_IF_ERROR(link_->Write(Register64::kMultiEndpoint, 0, deadline));
  ATOLL_RETURN_IF_ERROR(link_->Write(Register64::kOutfeedChunk,
                                     settings.is_high_speed ? kPacketsOf256 : kPacketsOf1024,
                                     deadline));
  ATOLL_RETURN_IF_ERROR(SetRunControl(coral::kRun, deadline));
  Status status;
  SetInterrupts(true, deadline, [&status](const Status& step) {
    status = step;
    return status.ok();
  });
  return status;
}

void CoralSession::Close(Deadline deadline) {
  Status first;
  const auto go_on = [&](const Status& status) {
    if (first.ok()) first = status;
    return !IsFinal(status) && now_() < deadline;
  };
  if (SetInterrupts(false, deadline, go_on) && go_on(SetRunControl(coral::kHalt, deadline))) {
    go_on(Sleep(deadline));
  }
  if (!first.ok()) {
    Log(LogSeverity::kWarning, "device %s: closing was not complete: %s", name_.c_str(),
        first.message().c_str());
  }
}

// Faults.

Status CoralSession::CheckFaults(Deadline deadline) {
  for (int i = 0; i < kInterruptsAtOnce; ++i) {
    ATOLL_ASSIGN_OR_RETURN(const std::optional<uint32_t> faults, link_->TakeFaults());
    if (!faults.has_value()) return {};
    for (uint32_t number = 0; number < coral::kTopLevelCount; ++number) {
      if (*faults >> (kFirstTopLevelBit + number) & 1) {
        ATOLL_RETURN_IF_ERROR(HandleTopLevel(number, deadline));
      }
    }
    if ((*faults & kFatalInterrupt) == 0) continue;
    const std::string error = DescribeError(deadline);
    if (!error.empty()) return DeviceLost("%s", error.c_str());
    ATOLL_RETURN_IF_ERROR(link_->Write(Register64::kFatalStatus, 0, deadline));
  }
  return {};
}

std::string CoralSession::DescribeError(Deadline deadline) {
  const Result<uint64_t> error = link_->Read(Register64::kHibError, deadline);
  if (!error.ok() || *error == 0) return "";
  const Result<uint64_t> first = link_->Read(Register64::kHibFirstError, deadline);
  return Format("the chip reports %s (error register %llx, first error %llx)",
                DescribeHibError(*error).c_str(), static_cast<unsigned long long>(*error),
                static_cast<unsigned long long>(first.ok() ? *first : 0));
}

Status CoralSession::HandleTopLevel(uint32_t number, Deadline deadline) {
  Log(LogSeverity::kWarning, "device %s %s", name_.c_str(), coral::TopLevelMeaning(number));
  switch (number) {
    case kThermalShutdown:
    case kThermalWarning: {
      const bool is_shutdown = number == kThermalShutdown;
      const uint32_t clear = is_shutdown ? kShutdownClear : kWarningClear;
      ATOLL_ASSIGN_OR_RETURN(const uint32_t word, link_->Read(Register32::kTemperature, deadline));
      const bool raised = (word & (is_shutdown ? kShutdownRaised : kWarningRaised)) != 0;
      ATOLL_RETURN_IF_ERROR(
          link_->Write(Register32::kTemperature, (word & ~clear) | (raised ? clear : 0), deadline));
      break;
    }
    case kBusError: {
      constexpr std::pair<Register32, Register32> kFlagsAndMonitors[] = {
          {Register32::kSlaveWriteError, Register32::kSlaveMonitor},
          {Register32::kSlaveReadError, Register32::kSlaveMonitor},
          {Register32::kMasterWriteError, Register32::kMasterMonitor},
          {Register32::kMasterReadError, Register32::kMasterMonitor}};
      for (const auto& [flag, monitor] : kFlagsAndMonitors) {
        ATOLL_ASSIGN_OR_RETURN(const uint32_t error, link_->Read(flag, deadline));
        if (error != 1) continue;
        ATOLL_RETURN_IF_ERROR(link_->Write(monitor, 0, deadline));
        ATOLL_RETURN_IF_ERROR(link_->Write(monitor, 1, deadline));
      }
      break;
    }
    default:  // kMemoryTest; what it says is cleared by writing it back
      ATOLL_RETURN_IF_ERROR(Update(Register32::kMemoryTest, 0, 0, deadline));
      ATOLL_RETURN_IF_ERROR(Update(Register32::kBootFailures, 0, 0, deadline));
      break;
  }
  return link_->Write(TopLevelRegister(Register64::kTopLevelStatus0, number), 0, deadline);
}

}  // namespace atollrt
