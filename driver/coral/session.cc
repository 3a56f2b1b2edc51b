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

using coral::Register32;
using coral::Register64;

constexpr std::chrono::milliseconds kAnswerPatience{1000};
constexpr std::chrono::milliseconds kPollPatience{1000};
// Registers may be written again; a link error or two need not end a session.
constexpr int kControlAttempts = 5;
// For large payloads, on top of kCoralPatience: a third of what USB 2 manages.
constexpr uint64_t kBytesPerMillisecond = 10'000;
constexpr int kInterruptsAtOnce =
    8;  // that CheckFaults takes before it believes in a broken device

struct RegisterField {
  uint32_t mask;
  int shift;
};
constexpr uint32_t Bits(int first, int last) { return (2u << last) - (1u << first); }

constexpr uint32_t kInactivePhyModes = Bits(8, 13);  // of PCIe and USB
constexpr RegisterField kGateMode{Bits(18, 19), 18};
constexpr uint32_t kGatedByHardware = 1, kNeverGated = 2;
constexpr RegisterField kPowerState{Bits(8, 9), 8};
constexpr uint32_t kRunning = 0, kAsleep = 2;
constexpr RegisterField kForceSleep{Bits(22, 23), 22};
constexpr uint32_t kForbidSleep = 2, kSleepNow = 3;
constexpr RegisterField kClocks{Bits(28, 31), 28};
constexpr uint32_t kMemoryTestStatus = Bits(16, 18), kMemoryTestMask = Bits(20, 22);
constexpr uint32_t kBootStatus = Bits(16, 17), kBootMask = Bits(18, 19);
constexpr uint32_t kThermalEnable = Bits(31, 31);
constexpr uint32_t kMonitorInterrupts = 3;

constexpr uint64_t kAllTiles = 0x7F;
constexpr uint64_t kSleepDelays = 0x1E02;  // wake 30, sleep 2
constexpr uint64_t kIdleAfterOne = 1;
constexpr uint64_t kInterruptEventsOnly = 0xF0;
constexpr uint64_t kPacketsOf1024 = 0x80, kPacketsOf256 = 0x20;  // in units of 8 bytes
constexpr uint64_t kRun = 1, kHalt = 2;

constexpr Register64 kCoreRunControls[] = {Register64::kScalarCore, Register64::kActivationPop,
                                           Register64::kParameterPop, Register64::kInfeed,
                                           Register64::kOutfeed};
constexpr Register64 kTileRunControls[] = {Register64::kTileOp,        Register64::kNarrowToWide,
                                           Register64::kWideToNarrow,  Register64::kMesh0,
                                           Register64::kMesh1,         Register64::kMesh2,
                                           Register64::kMesh3,         Register64::kRingConsumer0,
                                           Register64::kRingConsumer1, Register64::kRingProducer};

// Interrupt word on the interrupt endpoint.
constexpr uint32_t kFatalInterrupt = 1;
constexpr int kFirstTopLevelBit = 1;
enum TopLevel { kThermalShutdown = 0, kBusError = 1, kMemoryTest = 2, kThermalWarning = 3 };
constexpr uint32_t kShutdownRaised = Bits(30, 30), kShutdownClear = Bits(28, 28);
constexpr uint32_t kWarningRaised = Bits(31, 31), kWarningClear = Bits(29, 29);

constexpr const char* kErrorNames[] = {
    "page fault",
    "page fault in the extended table",
    "parity error in a register",
    "error answer to a write on the bus",
    "error answer to a read on the bus",
    "bad configuration of the instruction queue",
    "bad configuration of the input queue",
    "bad configuration of the parameter queue",
    "bad configuration of the output queue",
    "invalid descriptor in the instruction queue",
    "invalid descriptor in the input queue",
    "invalid descriptor in the parameter queue",
    "invalid descriptor in the output queue",
    "transfer of no bytes",
    "uncorrectable error in the page table",
};

uint32_t Get(RegisterField field, uint32_t word) { return (word & field.mask) >> field.shift; }
uint32_t With(RegisterField field, uint32_t value, uint32_t word) {
  return (word & ~field.mask) | value << field.shift;
}

uint32_t ClockBits(CoralPerformance performance) {
  switch (performance) {
    case CoralPerformance::kLow:
      return 0xF;
    case CoralPerformance::kMedium:
      return 0x6;
    case CoralPerformance::kHigh:
      return 0x5;
    default:
      return 0x0;
  }
}

std::string DescribeHibError(uint64_t bits) {
  std::string text;
  for (size_t i = 0; i < std::size(kErrorNames); ++i) {
    if (bits >> i & 1) text += (text.empty() ? "" : ", ") + std::string(kErrorNames[i]);
  }
  return text.empty() ? "unknown error" : text;
}

// Anything else may go better the next time. A device that is gone says so at once, every time.
bool IsFinal(const Status& status) { return status.code() == StatusCode::kCancelled; }

}  // namespace

uint64_t CoralClockHz(CoralPerformance performance) {
  switch (performance) {
    case CoralPerformance::kLow:
      return 62'500'000;
    case CoralPerformance::kMedium:
      return 125'000'000;
    case CoralPerformance::kHigh:
      return 250'000'000;
    default:
      return 500'000'000;
  }
}

CoralSession::CoralSession(UsbTransport* transport, NowFunction now, std::string name)
    : transport_(transport), now_(std::move(now)), name_(std::move(name)) {}

Deadline CoralSession::Sooner(Deadline deadline, std::chrono::milliseconds patience) const {
  return std::min(deadline, now_() + patience);
}

// Registers.

Status CoralSession::Access(bool read, uint32_t address, std::span<uint8_t> data,
                            Deadline deadline) {
  constexpr uint8_t kVendorRead = 0xC0, kVendorWrite = 0x40;
  const ControlSetup setup{.request_type = read ? kVendorRead : kVendorWrite,
                           .request = static_cast<uint8_t>(data.size() == sizeof(uint32_t)),
                           .value = static_cast<uint16_t>(address),
                           .index = static_cast<uint16_t>(address >> 16)};
  Status status;
  for (int attempt = 0; attempt < kControlAttempts; ++attempt) {
    status = transport_->Control(setup, data, Sooner(deadline, kAnswerPatience));
    if (status.ok() || IsFinal(status) || now_() >= deadline) break;
  }
  return std::move(status).WithContext(
      Format("%s register %05x", read ? "reading" : "writing", address));
}

Result<uint32_t> CoralSession::Read(Register32 address, Deadline deadline) {
  std::array<uint8_t, sizeof(uint32_t)> data{};
  ATOLL_RETURN_IF_ERROR(Access(true, static_cast<uint32_t>(address), data, deadline));
  return LoadLittleEndian<uint32_t>(data.data());
}

Result<uint64_t> CoralSession::Read(Register64 address, Deadline deadline) {
  std::array<uint8_t, sizeof(uint64_t)> data{};
  ATOLL_RETURN_IF_ERROR(Access(true, static_cast<uint32_t>(address), data, deadline));
  return LoadLittleEndian<uint64_t>(data.data());
}

Status CoralSession::Write(Register32 address, uint32_t value, Deadline deadline) {
  std::array<uint8_t, sizeof(uint32_t)> data{};
  StoreLittleEndian(data.data(), value);
  return Access(false, static_cast<uint32_t>(address), data, deadline);
}

Status CoralSession::Write(Register64 address, uint64_t value, Deadline deadline) {
  std::array<uint8_t, sizeof(uint64_t)> data{};
  StoreLittleEndian(data.data(), value);
  return Access(false, static_cast<uint32_t>(address), data, deadline);
}

Status CoralSession::Update(Register32 address, uint32_t mask, uint32_t value, Deadline deadline) {
  ATOLL_ASSIGN_OR_RETURN(const uint32_t word, Read(address, deadline));
  return Write(address, (word & ~mask) | value, deadline);
}

template <typename Register, typename Word>
Status CoralSession::Await(Register address, Word mask, Word value, const char* what,
                           Deadline deadline) {
  deadline = Sooner(deadline, kPollPatience);
  for (;;) {
    ATOLL_ASSIGN_OR_RETURN(const Word word, Read(address, deadline));
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
  ATOLL_ASSIGN_OR_RETURN(const uint32_t power, Read(Register32::kPower, deadline));
  if (Get(kForceSleep, power) == kSleepNow) return {};
  ATOLL_RETURN_IF_ERROR(Write(Register32::kPower, With(kForceSleep, kSleepNow, power), deadline));
  ATOLL_RETURN_IF_ERROR(Await(Register32::kPower, kPowerState.mask, kAsleep << kPowerState.shift,
                              "go to sleep", deadline));
  constexpr uint32_t kClearAll = 0xF;
  ATOLL_RETURN_IF_ERROR(Write(Register32::kBulkCredits, kClearAll, deadline));
  return Write(Register32::kBulkCredits, 0, deadline);
}

Status CoralSession::WakeUp(CoralPerformance performance, Deadline deadline) {
  ATOLL_ASSIGN_OR_RETURN(uint32_t power, Read(Register32::kPower, deadline));
  power = With(kForceSleep, kForbidSleep, With(kClocks, ClockBits(performance), power));
  ATOLL_RETURN_IF_ERROR(Write(Register32::kPower, power, deadline));
  ATOLL_RETURN_IF_ERROR(Await(Register32::kPower, kPowerState.mask, kRunning << kPowerState.shift,
                              "wake up", deadline));
  return Await(Register64::kScalarCore, ~uint64_t{0}, uint64_t{0}, "reset its core", deadline);
}

// Writes to tiles go to all of them. It must be read back: later writes may be faster.
Status CoralSession::SelectAllTiles(Deadline deadline) {
  ATOLL_RETURN_IF_ERROR(Write(Register64::kTileConfig, kAllTiles, deadline));
  return Await(Register64::kTileConfig, ~uint64_t{0}, kAllTiles, "select its tiles", deadline);
}

Status CoralSession::SetRunControl(uint64_t value, Deadline deadline) {
  Status first;
  const auto keep = [&first](Status status) {
    if (first.ok()) first = std::move(status);
    return first.ok() || !IsFinal(first);
  };
  for (const Register64 unit : kCoreRunControls) {
    if (!keep(Write(unit, value, deadline))) return first;
  }
  if (!keep(SelectAllTiles(deadline))) return first;
  for (const Register64 unit : kTileRunControls) {
    if (!keep(Write(unit, value, deadline))) return first;
  }
  return first;
}

Status CoralSession::EnableInterrupts(Deadline deadline) {
  ATOLL_RETURN_IF_ERROR(Write(Register64::kFatalControl, 1, deadline));
  for (uint32_t i = 0; i < coral::kTopLevelCount; ++i) {
    const auto control = static_cast<Register64>(
        static_cast<uint32_t>(Register64::kTopLevelControl0) + i * coral::kTopLevelStride);
    ATOLL_RETURN_IF_ERROR(Write(control, 1, deadline));
  }
  ATOLL_RETURN_IF_ERROR(
      Update(Register32::kTemperatureWarning, kThermalEnable, kThermalEnable, deadline));
  ATOLL_RETURN_IF_ERROR(
      Update(Register32::kMemoryTest, kMemoryTestStatus | kMemoryTestMask, 0, deadline));
  ATOLL_RETURN_IF_ERROR(Update(Register32::kBootFailures, kBootStatus | kBootMask, 0, deadline));
  ATOLL_RETURN_IF_ERROR(Write(Register32::kSlaveMonitor, 1, deadline));
  ATOLL_RETURN_IF_ERROR(Write(Register32::kMasterMonitor, 1, deadline));
  ATOLL_RETURN_IF_ERROR(Write(Register32::kSlaveMask, kMonitorInterrupts, deadline));
  ATOLL_RETURN_IF_ERROR(Write(Register32::kMasterMask, kMonitorInterrupts, deadline));
  return Update(Register32::kTemperatureShutdown, kThermalEnable, kThermalEnable, deadline);
}

Status CoralSession::BringUp(const Settings& settings, Deadline deadline) {
  ATOLL_ASSIGN_OR_RETURN(const uint32_t chip, Read(Register32::kChip, deadline));
  if ((chip & 0x7FFF) != coral::kChipId) {
    return Unsupported("the chip says that it is %04x; a Coral is %04x", chip & 0x7FFF,
                       coral::kChipId);
  }
  ATOLL_RETURN_IF_ERROR(Update(Register32::kPhyModes, kInactivePhyModes, 0, deadline));
  ATOLL_ASSIGN_OR_RETURN(const uint32_t gates, Read(Register32::kGates, deadline));
  if (Get(kGateMode, gates) == kGatedByHardware) {  // not through its reset
    ATOLL_RETURN_IF_ERROR(
        Update(Register32::kGates, kGateMode.mask, kNeverGated << kGateMode.shift, deadline));
  }
  ATOLL_RETURN_IF_ERROR(Sleep(deadline));
  ATOLL_RETURN_IF_ERROR(WakeUp(settings.performance, deadline));
  ATOLL_RETURN_IF_ERROR(Write(Register64::kIdle, kIdleAfterOne, deadline));
  ATOLL_RETURN_IF_ERROR(SelectAllTiles(deadline));
  ATOLL_RETURN_IF_ERROR(Write(Register64::kDeepSleep, kSleepDelays, deadline));
  ATOLL_RETURN_IF_ERROR(
      Update(Register32::kGates, kGateMode.mask, kGatedByHardware << kGateMode.shift, deadline));
  ATOLL_RETURN_IF_ERROR(Write(Register64::kEventMask, kInterruptEventsOnly, deadline));
  ATOLL_RETURN_IF_ERROR(Write(Register64::kMultiEndpoint, 0, deadline));
  ATOLL_RETURN_IF_ERROR(Write(Register64::kOutfeedChunk,
                              settings.is_high_speed ? kPacketsOf256 : kPacketsOf1024, deadline));
  ATOLL_RETURN_IF_ERROR(SetRunControl(kRun, deadline));
  return EnableInterrupts(deadline);
}

void CoralSession::Close(Deadline deadline) {
  Status first;
  const auto go_on = [&](const Status& status) {
    if (first.ok()) first = status;
    return !IsFinal(status) && now_() < deadline;
  };
  const auto close = [&] {
    for (uint32_t i = 0; i < coral::kTopLevelCount; ++i) {
      const auto control = static_cast<Register64>(
          static_cast<uint32_t>(Register64::kTopLevelControl0) + i * coral::kTopLevelStride);
      if (!go_on(Write(control, 0, deadline))) return;
    }
    const bool alive =
        go_on(Update(Register32::kTemperatureWarning, kThermalEnable, 0, deadline)) &&
        go_on(Update(Register32::kMemoryTest, kMemoryTestMask, kMemoryTestMask, deadline)) &&
        go_on(Update(Register32::kBootFailures, kBootMask, kBootMask, deadline)) &&
        go_on(Write(Register32::kSlaveMonitor, 0, deadline)) &&
        go_on(Write(Register32::kMasterMonitor, 0, deadline)) &&
        go_on(Write(Register32::kSlaveMask, 0, deadline)) &&
        go_on(Write(Register32::kMasterMask, 0, deadline)) &&
        go_on(Update(Register32::kTemperatureShutdown, kThermalEnable, 0, deadline)) &&
        go_on(Write(Register64::kFatalControl, 0, deadline)) &&
        go_on(SetRunControl(kHalt, deadline));
    if (alive) go_on(Sleep(deadline));
  };
  close();
  if (!first.ok()) {
    Log(LogSeverity::kWarning, "device %s: closing was not complete: %s", name_.c_str(),
        first.message().c_str());
  }
}

// Runs.

Status CoralSession::Send(coral::Tag tag, std::span<const uint8_t> payload, Deadline deadline) {
  std::array<uint8_t, coral::kHeaderBytes> header{};
  StoreLittleEndian(header.data(), static_cast<uint32_t>(payload.size()));
  header[sizeof(uint32_t)] = static_cast<uint8_t>(tag);
  const std::chrono::milliseconds transfer_time(payload.size() / kBytesPerMillisecond);
  ATOLL_RETURN_IF_ERROR(
      transport_->BulkOut(coral::kOutEndpoint, header, Sooner(deadline, kCoralPatience)));
  bytes_sent_ += header.size();
  ATOLL_RETURN_IF_ERROR(transport_->BulkOut(coral::kOutEndpoint, payload,
                                            Sooner(deadline, kCoralPatience + transfer_time)));
  bytes_sent_ += payload.size();
  link_times_.Sent();
  return {};
}

Status CoralSession::Receive(std::span<uint8_t> output, Deadline deadline) {
  while (!output.empty()) {
    ATOLL_ASSIGN_OR_RETURN(
        const size_t received,
        transport_->BulkIn(coral::kOutputEndpoint, output, Sooner(deadline, kCoralPatience)));
    bytes_received_ += received;
    link_times_.Received();
    output = output.subspan(received);
    if (!output.empty() && now_() >= deadline) {
      return Timeout("%zu bytes of an output are missing", output.size());
    }
  }
  return {};
}

Status CoralSession::AwaitInterrupt(uint32_t number, Deadline deadline) {
  std::array<uint8_t, coral::kEventBytes> event{};
  ATOLL_ASSIGN_OR_RETURN(const size_t size, transport_->BulkIn(coral::kEventEndpoint, event,
                                                               Sooner(deadline, kCoralPatience)));
  bytes_received_ += size;
  link_times_.Received();
  if (size != event.size()) {
    return DeviceLost("the device sent an event of %zu bytes, must be %zu", size, event.size());
  }
  const uint32_t tag = event[coral::kEventTagByte] & 0xFu;
  const uint32_t wanted = static_cast<uint32_t>(coral::Tag::kInterrupt0) + number;
  if (tag != wanted) {
    return DeviceLost("the device sent an event with tag %u where %u was due", tag, wanted);
  }
  return {};
}

// Faults.

Status CoralSession::CheckFaults(Deadline deadline) {
  for (int i = 0; i < kInterruptsAtOnce; ++i) {
    std::array<uint8_t, coral::kInterruptBytes> bytes{};
    const Result<size_t> size = transport_->InterruptIn(coral::kInterruptEndpoint, bytes, now_());
    if (!size.ok()) return IsFinal(size.status()) ? size.status() : Status();
    bytes_received_ += *size;
    if (*size != bytes.size()) return {};
    const auto word = LoadLittleEndian<uint32_t>(bytes.data());
    for (int number = 0; number < coral::kTopLevelCount; ++number) {
      if (word >> (kFirstTopLevelBit + number) & 1) {
        ATOLL_RETURN_IF_ERROR(HandleTopLevel(number, deadline));
      }
    }
    if ((word & kFatalInterrupt) == 0) continue;
    const std::string error = DescribeError(deadline);
    if (!error.empty()) return DeviceLost("%s", error.c_str());
    ATOLL_RETURN_IF_ERROR(Write(Register64::kFatalStatus, 0, deadline));
  }
  return {};
}

std::string CoralSession::DescribeError(Deadline deadline) {
  const Result<uint64_t> error = Read(Register64::kHibError, deadline);
  if (!error.ok() || *error == 0) return "";
  const Result<uint64_t> first = Read(Register64::kHibFirstError, deadline);
  return Format("the chip reports %s (error register %llx, first error %llx)",
                DescribeHibError(*error).c_str(), static_cast<unsigned long long>(*error),
                static_cast<unsigned long long>(first.ok() ? *first : 0));
}

Status CoralSession::HandleTopLevel(int number, Deadline deadline) {
  constexpr const char* kNames[] = {"is too hot and shuts down", "reports an error on its bus",
                                    "reports a failed test of its memory or clocks", "is hot"};
  Log(LogSeverity::kWarning, "device %s %s", name_.c_str(), kNames[number]);
  switch (number) {
    case kThermalShutdown:
    case kThermalWarning: {
      const bool is_shutdown = number == kThermalShutdown;
      const uint32_t clear = is_shutdown ? kShutdownClear : kWarningClear;
      ATOLL_ASSIGN_OR_RETURN(const uint32_t word, Read(Register32::kTemperature, deadline));
      const bool raised = (word & (is_shutdown ? kShutdownRaised : kWarningRaised)) != 0;
      ATOLL_RETURN_IF_ERROR(
          Write(Register32::kTemperature, (word & ~clear) | (raised ? clear : 0), deadline));
      break;
    }
    case kBusError: {
      constexpr std::pair<Register32, Register32> kFlagsAndMonitors[] = {
          {Register32::kSlaveWriteError, Register32::kSlaveMonitor},
          {Register32::kSlaveReadError, Register32::kSlaveMonitor},
          {Register32::kMasterWriteError, Register32::kMasterMonitor},
          {Register32::kMasterReadError, Register32::kMasterMonitor}};
      for (const auto& [flag, monitor] : kFlagsAndMonitors) {
        ATOLL_ASSIGN_OR_RETURN(const uint32_t error, Read(flag, deadline));
        if (error != 1) continue;
        ATOLL_RETURN_IF_ERROR(Write(monitor, 0, deadline));
        ATOLL_RETURN_IF_ERROR(Write(monitor, 1, deadline));
      }
      break;
    }
    default:  // kMemoryTest; what it says is cleared by writing it back
      ATOLL_RETURN_IF_ERROR(Update(Register32::kMemoryTest, 0, 0, deadline));
      ATOLL_RETURN_IF_ERROR(Update(Register32::kBootFailures, 0, 0, deadline));
      break;
  }
  const auto status =
      static_cast<Register64>(static_cast<uint32_t>(Register64::kTopLevelStatus0) +
                              static_cast<uint32_t>(number) * coral::kTopLevelStride);
  return Write(status, 0, deadline);
}

}  // namespace atollrt
