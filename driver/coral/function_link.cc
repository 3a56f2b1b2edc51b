// SPDX-License-Identifier: Apache-2.0
#include "driver/coral/function_link.h"

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

#include "atoll/check.h"
#include "runtime/base/bytes.h"
#include "runtime/base/log.h"

namespace atollrt {
namespace {

using coral::Bits;
using coral::Get;
using coral::Register32;
using coral::Register64;
using coral::RegisterField;
using coral::With;

constexpr uint32_t kBar = 2;
constexpr uint64_t kValid = 1;  // of a page table's entry

// A chip that follows does so at once; Google's modules wait for up to 12 s.
constexpr std::chrono::milliseconds kResetPatience{2000};
constexpr std::chrono::milliseconds kFunctionResetTimeout{2000};
constexpr std::chrono::microseconds kResetPollPause{50};
constexpr std::chrono::milliseconds kPowerDownTimeout{2000};

// Of kResetMode, kGateMode, kForceMemoryOff and kPowerStates.
constexpr uint32_t kResetOn = 1, kResetOff = 2;
constexpr uint32_t kGateOn = 1, kByHardware = 0;
constexpr uint32_t kMemoryDown = 3;
constexpr uint32_t kMayBeInactive = 2;
constexpr uint64_t kIdleCounter = uint64_t{1} << 32;  // of kIdle

// Of kThermalSensor to kTemperature.
constexpr RegisterField kSensorClock{Bits(7, 7), 7};
constexpr RegisterField kSensorPower{Bits(0, 2), 0};
constexpr RegisterField kSensorOn{Bits(0, 0), 0};
constexpr RegisterField kReading{Bits(16, 25), 16};  // and thresholds
constexpr RegisterField kAlarm{Bits(31, 31), 31};
constexpr std::chrono::microseconds kSensorPause{100};
constexpr uint32_t kHottest = 265;  // 100 degrees
// From 85, 90 and 95 degrees on the clock is a half, a quarter and an eighth of the highest.
constexpr uint32_t kThrottleReadings[] = {325, 305, 285};
constexpr std::chrono::milliseconds kLookInterval{5000};

// Whose interrupts have which vector.
constexpr std::pair<Register64, uint64_t> kVectors[] = {
    {Register64::kInstructionVector, 0},
    {Register64::kInputVector, 1},
    {Register64::kParameterVector, 2},
    {Register64::kOutputVector, 3},
    {Register64::kScalarVectors, 4 | 5 << 7 | 6 << 14 | 7 << 21},
    {Register64::kTopLevelVectors, 8 | 9 << 7 | 10 << 14 | 11 << 21},
    {Register64::kFatalVector, kCoralFatalVector},
};

// Of kClocks on PCIe: the other clocks are the same at all levels.
constexpr uint32_t kOtherClocks = 8;
uint32_t CoreClock(CoralPerformance performance) { return 3 - static_cast<uint32_t>(performance); }

template <typename Word>
Status Gone(Word word) {
  if (word != static_cast<Word>(~Word{0})) return {};
  return DeviceLost("its registers read as ones: it is no longer on the bus");
}

}  // namespace

class CoralFunctionLink::Memory final : public CoralMemory {
 public:
  Memory(CoralFunctionLink* link, std::unique_ptr<DmaMapping> mapping, uint64_t base)
      : CoralMemory(mapping->bytes(), base + mapping->iova() % kCoralPageBytes),
        link_(link),
        mapping_(std::move(mapping)) {}
  ~Memory() override {
    const std::lock_guard lock(link_->mutex_);
    std::erase(link_->mapped_, this);
    // A chip that does not take this is caught by the IOMMU.
    if (link_->has_table_) (void)link_->SetPages(*this, false).ok();
    link_->space_.Give(CoralPageOf(address()), pages());
  }

  uint64_t iova() const { return mapping_->iova(); }
  uint64_t pages() const { return CoralPagesOf(mapping_->iova(), bytes().size()); }

 private:
  CoralFunctionLink* const link_;
  const std::unique_ptr<DmaMapping> mapping_;
};

CoralFunctionLink::CoralFunctionLink(std::unique_ptr<PcieFunction> function,
                                     CoralPerformance performance, NowFunction now,
                                     std::string name)
    : function_(std::move(function)),
      performance_(performance),
      now_(std::move(now)),
      name_(std::move(name)) {}

CoralFunctionLink::~CoralFunctionLink() {
  ATOLL_CHECK(mapped_.empty());
  const Status status = EnterReset(now_() + kPowerDownTimeout);
  if (!status.ok()) {
    Log(LogSeverity::kWarning, "device %s: it could not be put into reset: %s", name_.c_str(),
        status.message().c_str());
  }
}

// Registers.

Result<uint32_t> CoralFunctionLink::Read(Register32 address) {
  ATOLL_ASSIGN_OR_RETURN(const uint32_t word,
                         function_->Read32(kBar, static_cast<uint32_t>(address)));
  ATOLL_RETURN_IF_ERROR(Gone(word));
  return word;
}

Status CoralFunctionLink::Write(Register32 address, uint32_t value) {
  return function_->Write32(kBar, static_cast<uint32_t>(address), value);
}

Status CoralFunctionLink::Update(Register32 address, RegisterField field, uint32_t value) {
  ATOLL_ASSIGN_OR_RETURN(const uint32_t word, Read(address));
  return Write(address, With(field, value, word));
}

Result<uint64_t> CoralFunctionLink::Read(Register64 address) {
  ATOLL_ASSIGN_OR_RETURN(const uint64_t word,
                         function_->Read64(kBar, static_cast<uint32_t>(address)));
  ATOLL_RETURN_IF_ERROR(Gone(word));
  return word;
}

Status CoralFunctionLink::Write(Register64 address, uint64_t value) {
  return function_->Write64(kBar, static_cast<uint32_t>(address), value);
}

// Until `done`, a Result<bool>, is true.
template <typename Done>
Status CoralFunctionLink::Await(const char* what, Deadline deadline, const Done& done) {
  deadline = std::min(deadline, now_() + kResetPatience);
  for (;;) {
    ATOLL_ASSIGN_OR_RETURN(const bool is_done, done());
    if (is_done) return {};
    if (now_() >= deadline) return Timeout("the chip does not %s", what);
    std::this_thread::sleep_for(kResetPollPause);
  }
}

Status CoralFunctionLink::AwaitPower(RegisterField field, uint32_t value, const char* what,
                                     Deadline deadline) {
  return Await(what, deadline, [&]() -> Result<bool> {
    ATOLL_ASSIGN_OR_RETURN(const uint32_t power, Read(Register32::kPower));
    return Get(field, power) == value;
  });
}

// Reset.

// Nothing but kPower and kGates may be touched in reset: the clocks of the rest are off.
Status CoralFunctionLink::EnterReset(Deadline deadline) {
  {
    const std::lock_guard lock(mutex_);
    has_table_ = false;
  }
  ATOLL_ASSIGN_OR_RETURN(const uint32_t power, Read(Register32::kPower));
  if (Get(coral::kInReset, power) != 0) return {};
  ATOLL_ASSIGN_OR_RETURN(const uint64_t idle, Read(Register64::kIdle));
  ATOLL_RETURN_IF_ERROR(Write(Register64::kIdle, idle & ~kIdleCounter));
  ATOLL_RETURN_IF_ERROR(Write(Register64::kDmaPause, 1));
  ATOLL_RETURN_IF_ERROR(Await("end its transfers", deadline, [this]() -> Result<bool> {
    ATOLL_ASSIGN_OR_RETURN(const uint64_t paused, Read(Register64::kDmaPaused));
    return (paused & 1) != 0;
  }));
  ATOLL_RETURN_IF_ERROR(Update(Register32::kGates, coral::kResetMode, kResetOn));
  ATOLL_RETURN_IF_ERROR(Update(Register32::kGates, coral::kGateMode, kGateOn));
  ATOLL_RETURN_IF_ERROR(Update(Register32::kPower, coral::kForceMemoryOff, kMemoryDown));
  return AwaitPower(coral::kMemoryOff, 1, "switch its memory off", deadline);
}

Status CoralFunctionLink::LeaveReset(Deadline deadline) {
  ATOLL_RETURN_IF_ERROR(Update(Register32::kPower, coral::kForceMemoryOff, kByHardware));
  ATOLL_RETURN_IF_ERROR(Update(Register32::kGates, coral::kGateMode, kByHardware));
  ATOLL_RETURN_IF_ERROR(Update(Register32::kGates, coral::kResetMode, kResetOff));
  ATOLL_RETURN_IF_ERROR(AwaitPower(coral::kMemoryOff, 0, "switch its memory on", deadline));
  ATOLL_RETURN_IF_ERROR(AwaitPower(coral::kInReset, 0, "leave its reset", deadline));
  return Update(Register32::kPower, coral::kPowerStates, kMayBeInactive);
}

Status CoralFunctionLink::SetThresholds() {
  ATOLL_RETURN_IF_ERROR(Update(Register32::kTemperatureWarning, kReading, kHottest));
  ATOLL_RETURN_IF_ERROR(Update(Register32::kTemperatureShutdown, kReading, kHottest));
  return Update(Register32::kTemperatureShutdown, kAlarm, 1);
}

Status CoralFunctionLink::StartSensor() {
  ATOLL_RETURN_IF_ERROR(Update(Register32::kThermalSensor, kSensorClock, 1));
  ATOLL_RETURN_IF_ERROR(Update(Register32::kTemperatureShutdown, kSensorPower, 7));
  std::this_thread::sleep_for(kSensorPause);
  return Update(Register32::kTemperature, kSensorOn, 1);
}

Status CoralFunctionLink::StartOnce(Deadline deadline) {
  ATOLL_ASSIGN_OR_RETURN(const uint32_t chip, Read(Register32::kChip));
  if ((chip & 0x7FFF) != coral::kChipId) {
    return Unsupported("the chip says that it is %04x; a Coral is %04x", chip & 0x7FFF,
                       coral::kChipId);
  }
  ATOLL_RETURN_IF_ERROR(SetThresholds());
  ATOLL_RETURN_IF_ERROR(EnterReset(deadline));
  ATOLL_RETURN_IF_ERROR(LeaveReset(deadline));
  for (const Register64 ready : {Register64::kPageTableReady, Register64::kVectorTableReady}) {
    ATOLL_RETURN_IF_ERROR(Await("get its tables ready", deadline, [&]() -> Result<bool> {
      ATOLL_ASSIGN_OR_RETURN(const uint64_t word, Read(ready));
      return word != 0;
    }));
  }
  ATOLL_RETURN_IF_ERROR(StartSensor());
  next_look_ = now_() + kLookInterval;
  clock_ = CoreClock(performance_);
  ATOLL_RETURN_IF_ERROR(Update(Register32::kPower, coral::kClocks, kOtherClocks | clock_));
  ATOLL_RETURN_IF_ERROR(WritePageTable());
  for (const auto& [address, vectors] : kVectors) {
    ATOLL_RETURN_IF_ERROR(Write(address, vectors));
  }
  // The table of MSI-X may have been cleared with the rest: it is written again.
  ATOLL_RETURN_IF_ERROR(function_->EnableInterrupts(0));
  return function_->EnableInterrupts(kCoralVectors);
}

Status CoralFunctionLink::Start(Deadline deadline) {
  Status status = StartOnce(deadline);
  if (status.code() != StatusCode::kTimeout) return status;
  Log(LogSeverity::kWarning, "device %s: reset of the PCIe function after: %s", name_.c_str(),
      status.message().c_str());
  if (!function_->Reset(now_() + kFunctionResetTimeout).ok()) return status;
  return StartOnce(deadline);
}

Status CoralFunctionLink::Stop(Deadline deadline) {
  {
    const std::lock_guard lock(mutex_);
    has_table_ = false;
  }
  const Status status = function_->Reset(deadline);
  return status.ok() ? status : EnterReset(deadline);
}

// Memory.

// With the mutex held. `address` is that of a page.
Status CoralFunctionLink::SetPage(uint64_t address, uint64_t entry) {
  const auto set_entry = [this](uint64_t index, uint64_t value) {
    return function_->Write64(kBar, static_cast<uint32_t>(Register64::kPageTable) + 8 * index,
                              value);
  };
  if ((address & kCoralExtended) == 0) return set_entry(address / kCoralPageBytes, entry);
  const uint64_t page = (address & ~kCoralExtended) / kCoralPageBytes;
  std::unique_ptr<DmaMapping>& table = tables_[page / kCoralTableEntries];
  if (table == nullptr) {
    ATOLL_ASSIGN_OR_RETURN(table, function_->Allocate(kCoralPageBytes, DmaDirection::kToDevice));
    ATOLL_RETURN_IF_ERROR(
        set_entry(kCoralSimpleEntries + page / kCoralTableEntries, table->iova() | kValid));
  }
  StoreLittleEndian(table->bytes().data() + 8 * (page % kCoralTableEntries), entry);
  return {};
}

// With the mutex held.
Status CoralFunctionLink::SetPages(const Memory& memory, bool valid) {
  for (uint64_t page = 0; page < memory.pages(); ++page) {
    const uint64_t offset = page * kCoralPageBytes;
    const uint64_t entry = valid ? (CoralPageOf(memory.iova()) + offset) | kValid : 0;
    ATOLL_RETURN_IF_ERROR(SetPage(CoralPageOf(memory.address()) + offset, entry));
  }
  return {};
}

// All of it, in memory that is mapped anew, after a reset: nothing is known of what the chip keeps.
Status CoralFunctionLink::WritePageTable() {
  const std::lock_guard lock(mutex_);
  tables_.clear();
  queue_ = nullptr;
  ATOLL_ASSIGN_OR_RETURN(queue_, function_->Allocate(kCoralQueueBytes, DmaDirection::kBoth));
  ATOLL_RETURN_IF_ERROR(Write(Register64::kExtendedTable, kCoralSimpleEntries));
  const uint64_t queue_page = kCoralQueueAddress / kCoralPageBytes;
  for (uint64_t i = 0; i < kCoralPageEntries; ++i) {
    const bool is_queue = i - queue_page < kCoralQueueBytes / kCoralPageBytes;
    const uint64_t entry =
        is_queue ? (queue_->iova() + (i - queue_page) * kCoralPageBytes) | kValid : 0;
    ATOLL_RETURN_IF_ERROR(
        function_->Write64(kBar, static_cast<uint32_t>(Register64::kPageTable) + 8 * i, entry));
  }
  for (const Memory* const memory : mapped_) {
    ATOLL_RETURN_IF_ERROR(SetPages(*memory, true));
  }
  has_table_ = true;
  return {};
}

CoralPcieLink::QueueMemory CoralFunctionLink::queue_memory() const {
  return {queue_->bytes(), kCoralQueueAddress};
}

Result<std::unique_ptr<CoralMemory>> CoralFunctionLink::Adopt(std::unique_ptr<DmaMapping> mapping) {
  std::unique_ptr<Memory> memory;
  Status status;
  {
    const std::lock_guard lock(mutex_);
    ATOLL_ASSIGN_OR_RETURN(const uint64_t base,
                           space_.Take(CoralPagesOf(mapping->iova(), mapping->bytes().size())));
    memory = std::make_unique<Memory>(this, std::move(mapping), base);
    mapped_.push_back(memory.get());
    // Without a table it gets there with the next one.
    if (has_table_) status = SetPages(*memory, true);
  }
  if (!status.ok()) return status;
  return std::unique_ptr<CoralMemory>(std::move(memory));
}

Result<std::unique_ptr<CoralMemory>> CoralFunctionLink::Allocate(uint64_t bytes,
                                                                 DmaDirection direction) {
  ATOLL_ASSIGN_OR_RETURN(auto mapping, function_->Allocate(bytes, direction));
  return Adopt(std::move(mapping));
}

Result<std::unique_ptr<CoralMemory>> CoralFunctionLink::Map(std::span<uint8_t> memory,
                                                            DmaDirection direction) {
  if (!function_->maps_callers_memory()) return Unsupported("everything is copied here");
  ATOLL_ASSIGN_OR_RETURN(auto mapping, function_->Map(memory, direction));
  return Adopt(std::move(mapping));
}

bool CoralFunctionLink::IsMapped(uint64_t address) {
  const std::lock_guard lock(mutex_);
  return std::any_of(mapped_.begin(), mapped_.end(), [address](const Memory* memory) {
    return CoralPageOf(address) - CoralPageOf(memory->address()) <
           memory->pages() * kCoralPageBytes;
  });
}

// Interrupts and heat.

Result<uint64_t> CoralFunctionLink::AwaitInterrupts(uint64_t vectors, Deadline deadline) {
  return function_->AwaitInterrupts(vectors, deadline);
}

Status CoralFunctionLink::WatchTemperature() {
  const Deadline now = now_();
  if (now < next_look_) return {};
  next_look_ = now + kLookInterval;
  ATOLL_ASSIGN_OR_RETURN(const uint32_t word, Read(Register32::kTemperature));
  const uint32_t reading = Get(kReading, word);
  const auto wanted = static_cast<uint32_t>(
      std::count_if(std::begin(kThrottleReadings), std::end(kThrottleReadings),
                    [reading](uint32_t threshold) { return reading <= threshold; }));
  const uint32_t clock = std::max(wanted, CoreClock(performance_));
  if (clock == clock_) return {};
  Log(LogSeverity::kWarning, "device %s: %d degrees Celsius, clock %d MHz", name_.c_str(),
      CoralTemperatureMc(reading) / 1000, static_cast<int>(500u >> clock));
  clock_ = clock;
  return Update(Register32::kPower, coral::kCoreClock, clock);
}

}  // namespace atollrt
