// SPDX-License-Identifier: Apache-2.0
#include "driver/emulator/pcie_endpoint.h"

#include <algorithm>
#include <array>
#include <bit>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "driver/atoll1/protocol.h"
#include "driver/emulator/ring_clock.h"
#include "driver/isa/instruction.h"
#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

constexpr uint64_t kRingAlignment = 64;
// Descriptors that a Step fetches at once.
constexpr uint32_t kFetched = 32;
// Programs whose times are remembered: more than stay on a device.
constexpr size_t kKnownPrograms = 256;

constexpr uint32_t Kinds(std::initializer_list<DescriptorKind> kinds) {
  uint32_t set = 0;
  for (const DescriptorKind kind : kinds) set |= 1u << static_cast<uint32_t>(kind);
  return set;
}

RingVector VectorOf(DescriptorKind kind) {
  switch (kind) {
    case DescriptorKind::kOutput:
      return RingVector::kIn;
    case DescriptorKind::kEvent:
      return RingVector::kEvent;
    case DescriptorKind::kInstructions:
    case DescriptorKind::kInput:
    case DescriptorKind::kParameters:
    case DescriptorKind::kStart:
      break;
  }
  return RingVector::kOut;
}

}  // namespace

// All numbers of descriptors are mod 2^32. Those from head_ to fetched_ are in entries_, at their
// place in the ring; those up to tail_ are still in host memory alone.
class PcieEndpoint::Ring {
 public:
  Ring(std::unique_ptr<Core> core, PcieUpstream* upstream)
      : core_(std::move(core)), upstream_(*upstream), inputs_(*this), parameters_(*this) {
    inputs_.sequence.kinds = Kinds({DescriptorKind::kInput});
    parameters_.sequence.kinds = Kinds({DescriptorKind::kParameters});
    core_->set_streams({&inputs_, &parameters_, &outputs_});
    SwitchOff();
  }

  uint32_t Read(uint64_t offset);
  void Write(uint64_t offset, uint32_t value);
  bool Step();
  void Reset();    // by CONTROL
  void PowerOn();  // or FLR

  Core& core() { return *core_; }
  void set_first_number(uint32_t number) {
    first_number_ = number;
    SwitchOff();
  }

 private:
  struct Entry {
    Descriptor descriptor;
    uint64_t rung = 0;   // by the clock
    uint32_t moved = 0;  // of its bytes
    bool is_done = false;
  };
  // Descriptors of some kinds, which are served in their order.
  struct Sequence {
    uint32_t kinds = 0;  // a bit for each
    uint32_t next = 0;   // the first that is not done, or one before it
  };
  struct Source final : ByteSource {
    explicit Source(Ring& owner) : ring(owner) {}
    size_t available() override { return ring.Waiting(sequence); }
    size_t Take(std::span<uint8_t> destination) override {
      return ring.TakeFrom(sequence, destination);
    }
    Ring& ring;
    Sequence sequence;
  };
  struct Sink final : ByteSink {
    explicit Sink(Ring& owner) : ring(owner) {}
    size_t room() override;
    size_t Append(std::span<const uint8_t> bytes) override;
    Ring& ring;
  };

  bool is_on() const { return status_ == RingStatus::kOn; }
  Entry& At(uint32_t number) { return entries_[number & (entries_.size() - 1)]; }

  uint32_t ReadCore(uint32_t address);
  void SwitchOn();
  void SwitchOff();
  void TakeDoorbell(uint32_t tail);
  void Stop(RingStatus status, uint32_t number, uint64_t address);

  // The first descriptor of `sequence` that is not done; nullptr if none is known. Those without
  // bytes are done here.
  Entry* Front(Sequence& sequence);
  void FinishFront(Sequence& sequence);
  size_t Waiting(Sequence& sequence);
  size_t TakeFrom(Sequence& sequence, std::span<uint8_t> destination);

  // Each does a piece of work; false if there is none.
  bool Fetch();
  bool ServeCommands();
  bool RunCore();
  bool ServeReturns();

  bool IsWhole(const Descriptor& descriptor) const;
  bool StoreInstructions(Entry& entry);
  bool WriteEvent(Entry& entry);
  ProgramTimes TimesOfProgram();

  const std::unique_ptr<Core> core_;
  PcieUpstream& upstream_;

  // Registers.
  uint32_t first_number_ = 0;
  uint32_t address_low_ = 0, address_high_ = 0, entry_count_ = 0;
  RingStatus status_ = RingStatus::kOff;
  uint32_t tail_ = 0, head_ = 0;
  uint32_t stop_descriptor_ = 0;
  uint64_t stop_address_ = 0;
  uint64_t wide_register_ = 0;  // the last that was read in two halves

  // While the ring is on.
  uint64_t address_ = 0;
  std::vector<Entry> entries_;
  uint32_t fetched_ = 0;
  Sequence commands_{.kinds = Kinds({DescriptorKind::kInstructions, DescriptorKind::kStart})};
  Source inputs_, parameters_;
  Sink outputs_{*this};
  Sequence returns_{.kinds = Kinds({DescriptorKind::kOutput, DescriptorKind::kEvent})};

  // The program started last.
  uint32_t start_number_ = 0;  // of its descriptor
  StartMessage start_;
  uint64_t rung_ = 0;           // the last doorbell for it and what it has taken
  std::optional<Event> ended_;  // how, if that is not written yet
  uint32_t sequence_ = 0;       // of its event

  RingClock clock_;
  struct KnownProgram {
    uint32_t offset, count;
    ProgramTimes times;
  };
  std::vector<KnownProgram> known_programs_;  // in program memory as it is
};

size_t PcieEndpoint::Ring::Sink::room() {
  const Entry* const entry = ring.Front(ring.returns_);
  return entry != nullptr && entry->descriptor.kind == DescriptorKind::kOutput
             ? ring.Waiting(ring.returns_)
             : 0;
}

size_t PcieEndpoint::Ring::Sink::Append(std::span<const uint8_t> bytes) {
  Entry& entry = *ring.Front(ring.returns_);
  uint64_t fault = 0;
  if (!ring.upstream_.WriteMemory(entry.descriptor.address + entry.moved, bytes, &fault)) {
    ring.Stop(RingStatus::kDmaFault, ring.returns_.next, fault);
    return 0;
  }
  entry.moved += static_cast<uint32_t>(bytes.size());
  if (entry.moved == entry.descriptor.bytes) ring.FinishFront(ring.returns_);
  return bytes.size();
}

uint32_t PcieEndpoint::Ring::ReadCore(uint32_t address) {
  const auto read = [this](uint32_t at, RegisterWidth width) -> uint64_t {
    std::array<uint8_t, 8> bytes{};
    const size_t count = width == RegisterWidth::k32 ? 4 : 8;
    const Status status = core_->Control(RegisterRequest(at, width, RegisterAccess::kRead),
                                         std::span(bytes).first(count));
    return status.ok() ? LoadLittleEndian<uint64_t>(bytes.data()) : 0;
  };
  switch (static_cast<Register>(address & ~7u)) {
    case Register::kCycles:
    case Register::kInstructions:
      if ((address & 4) != 0) return static_cast<uint32_t>(wide_register_ >> 32);
      wide_register_ = read(address, RegisterWidth::k64);
      return static_cast<uint32_t>(wide_register_);
    default:
      return static_cast<uint32_t>(read(address, RegisterWidth::k32));
  }
}

uint32_t PcieEndpoint::Ring::Read(uint64_t offset) {
  if (offset >= kRegisterBarBytes || offset % 4 != 0) return 0;
  switch (static_cast<RingRegister>(offset)) {
    case RingRegister::kRingLow:
      return address_low_;
    case RingRegister::kRingHigh:
      return address_high_;
    case RingRegister::kRingEntries:
      return entry_count_;
    case RingRegister::kRingControl:
      return 0;
    case RingRegister::kRingStatus:
      return static_cast<uint32_t>(status_);
    case RingRegister::kRingTail:
      return tail_;
    case RingRegister::kRingHead:
      return head_;
    case RingRegister::kStopDescriptor:
      return stop_descriptor_;
    case RingRegister::kStopAddressLow:
      return static_cast<uint32_t>(stop_address_);
    case RingRegister::kStopAddressHigh:
      return static_cast<uint32_t>(stop_address_ >> 32);
  }
  return ReadCore(static_cast<uint32_t>(offset));
}

void PcieEndpoint::Ring::Write(uint64_t offset, uint32_t value) {
  switch (static_cast<RingRegister>(offset)) {
    case RingRegister::kRingLow:
      address_low_ = value;
      return;
    case RingRegister::kRingHigh:
      address_high_ = value;
      return;
    case RingRegister::kRingEntries:
      entry_count_ = value;
      return;
    case RingRegister::kRingControl:
      if (value == kRingOn) SwitchOn();
      if (value == kRingOff) SwitchOff();
      return;
    case RingRegister::kRingTail:
      TakeDoorbell(value);
      return;
    default:
      break;
  }
  if (offset == static_cast<uint64_t>(Register::kControl) && value == kControlReset) Reset();
}

void PcieEndpoint::Ring::SwitchOn() {
  if (status_ != RingStatus::kOff || core_->status() != CoreStatus::kIdle) return;
  address_ = uint64_t{address_high_} << 32 | address_low_;
  status_ = RingStatus::kOn;
  if (address_ % kRingAlignment != 0 || !std::has_single_bit(entry_count_) ||
      entry_count_ < kRingEntriesMin || entry_count_ > kRingEntriesMax) {
    Stop(RingStatus::kBadDescriptor, first_number_, 0);
    return;
  }
  entries_.assign(entry_count_, Entry());
}

void PcieEndpoint::Ring::SwitchOff() {
  status_ = RingStatus::kOff;
  tail_ = head_ = fetched_ = sequence_ = first_number_;
  for (Sequence* sequence : {&commands_, &inputs_.sequence, &parameters_.sequence, &returns_}) {
    sequence->next = first_number_;
  }
  stop_descriptor_ = 0;
  stop_address_ = 0;
  ended_.reset();
}

void PcieEndpoint::Ring::Reset() {
  core_->Reset();
  SwitchOff();
  clock_ = {};
  known_programs_.clear();
}

void PcieEndpoint::Ring::PowerOn() {
  Reset();
  address_low_ = address_high_ = entry_count_ = 0;
  wide_register_ = 0;
}

void PcieEndpoint::Ring::TakeDoorbell(uint32_t tail) {
  if (!is_on()) return;
  if (tail - head_ > entries_.size()) {
    Stop(RingStatus::kBadDescriptor, tail_, 0);
    return;
  }
  if (tail - head_ <= tail_ - head_) return;  // rung before
  for (; tail_ != tail; ++tail_) At(tail_).rung = clock_.now();
}

void PcieEndpoint::Ring::Stop(RingStatus status, uint32_t number, uint64_t address) {
  status_ = status;
  stop_descriptor_ = number;
  stop_address_ = address;
  upstream_.RaiseInterrupt(static_cast<uint32_t>(RingVector::kFault));
}

PcieEndpoint::Ring::Entry* PcieEndpoint::Ring::Front(Sequence& sequence) {
  for (;;) {
    // Others have gone past all that it has left behind.
    if (fetched_ - sequence.next > fetched_ - head_) sequence.next = head_;
    if (sequence.next == fetched_) return nullptr;
    Entry& entry = At(sequence.next);
    const Descriptor& descriptor = entry.descriptor;
    const bool is_ours = (sequence.kinds >> static_cast<uint32_t>(descriptor.kind) & 1) != 0;
    if (!is_ours || entry.is_done) {
      ++sequence.next;
    } else if (descriptor.kind != DescriptorKind::kStart && descriptor.bytes == 0) {
      FinishFront(sequence);
    } else {
      return &entry;
    }
  }
}

void PcieEndpoint::Ring::FinishFront(Sequence& sequence) {
  Entry& entry = At(sequence.next++);
  entry.is_done = true;
  while (head_ != fetched_ && At(head_).is_done) ++head_;
  if (entry.descriptor.interrupts) {
    upstream_.RaiseInterrupt(static_cast<uint32_t>(VectorOf(entry.descriptor.kind)));
  }
}

size_t PcieEndpoint::Ring::Waiting(Sequence& sequence) {
  const Entry* const entry = is_on() ? Front(sequence) : nullptr;
  return entry != nullptr ? std::min<size_t>(entry->descriptor.bytes - entry->moved, kTransferBytes)
                          : 0;
}

size_t PcieEndpoint::Ring::TakeFrom(Sequence& sequence, std::span<uint8_t> destination) {
  Entry& entry = *Front(sequence);
  uint64_t fault = 0;
  if (!upstream_.ReadMemory(entry.descriptor.address + entry.moved, destination, &fault)) {
    Stop(RingStatus::kDmaFault, sequence.next, fault);
    return 0;
  }
  rung_ = std::max(rung_, entry.rung);
  entry.moved += static_cast<uint32_t>(destination.size());
  if (entry.moved == entry.descriptor.bytes) FinishFront(sequence);
  return destination.size();
}

bool PcieEndpoint::Ring::Step() {
  bool has_worked = false;
  const auto serve = [&](bool (Ring::*part)()) {
    if (is_on() && (this->*part)()) has_worked = true;
  };
  serve(&Ring::Fetch);
  serve(&Ring::ServeCommands);
  serve(&Ring::RunCore);
  serve(&Ring::ServeReturns);
  // Those without bytes are done, whether or not a program asks for them.
  for (Sequence* sequence : {&inputs_.sequence, &parameters_.sequence, &returns_}) Front(*sequence);
  return has_worked;
}

bool PcieEndpoint::Ring::Fetch() {
  const auto size = static_cast<uint32_t>(entries_.size());
  const uint32_t place = fetched_ & (size - 1);
  const uint32_t count = std::min({tail_ - fetched_, size - place, kFetched});
  if (count == 0) return false;
  std::array<uint8_t, kFetched * kDescriptorBytes> bytes;
  uint64_t fault = 0;
  if (!upstream_.ReadMemory(address_ + place * kDescriptorBytes,
                            std::span(bytes).first(count * kDescriptorBytes), &fault)) {
    Stop(RingStatus::kDmaFault, fetched_, fault);
    return true;
  }
  for (uint32_t i = 0; i < count; ++i) {
    const Result<Descriptor> descriptor = DecodeDescriptor(
        std::span<const uint8_t, kDescriptorBytes>(&bytes[i * kDescriptorBytes], kDescriptorBytes));
    if (!descriptor.ok() || !IsWhole(*descriptor)) {
      Stop(RingStatus::kBadDescriptor, fetched_, 0);
      return true;
    }
    Entry& entry = At(fetched_++);
    entry = {.descriptor = *descriptor, .rung = entry.rung};
  }
  return true;
}

// Whether instructions, if it has some, are whole ones in program memory.
bool PcieEndpoint::Ring::IsWhole(const Descriptor& descriptor) const {
  if (descriptor.kind != DescriptorKind::kInstructions) return true;
  return descriptor.program_offset % kInstructionBytes == 0 &&
         descriptor.bytes % kInstructionBytes == 0 &&
         uint64_t{descriptor.program_offset} + descriptor.bytes <=
             core_->profile().program_memory_bytes;
}

bool PcieEndpoint::Ring::ServeCommands() {
  if (core_->status() != CoreStatus::kIdle || ended_) return false;
  Entry* const entry = Front(commands_);
  if (entry == nullptr) return false;
  if (entry->descriptor.kind == DescriptorKind::kInstructions) return StoreInstructions(*entry);
  start_number_ = commands_.next;
  start_ = entry->descriptor.start;
  rung_ = entry->rung;
  core_->Start(start_);
  FinishFront(commands_);
  return true;
}

bool PcieEndpoint::Ring::StoreInstructions(Entry& entry) {
  const Descriptor& descriptor = entry.descriptor;
  const size_t count = std::min<size_t>(descriptor.bytes - entry.moved, kTransferBytes);
  known_programs_.clear();
  uint64_t fault = 0;
  if (!upstream_.ReadMemory(descriptor.address + entry.moved,
                            core_->ProgramMemory(descriptor.program_offset + entry.moved, count),
                            &fault)) {
    Stop(RingStatus::kDmaFault, commands_.next, fault);
    return true;
  }
  entry.moved += static_cast<uint32_t>(count);
  if (entry.moved == descriptor.bytes) {
    clock_.WaitForCore();
    FinishFront(commands_);
  }
  return true;
}

bool PcieEndpoint::Ring::RunCore() {
  const bool has_worked = core_->Step();
  std::array<uint8_t, kEventBytes> event;
  if (core_->events().Take(event) == event.size()) {
    core_->fault_words().Clear();  // those that ask read the register
    ended_ = *DecodeEvent(event);
    return true;
  }
  return has_worked || !is_on();
}

bool PcieEndpoint::Ring::ServeReturns() {
  if (!ended_) return false;
  const bool has_failed = ended_->kind == EventKind::kFaulted;
  Entry* entry = Front(returns_);
  if (has_failed) {
    for (; entry != nullptr && entry->descriptor.kind != DescriptorKind::kEvent;
         entry = Front(returns_)) {
      ++returns_.next;
    }
    if (entry == nullptr) {
      if (fetched_ == tail_) Stop(RingStatus::kProgramFault, start_number_, 0);
      return true;
    }
  }
  if (entry == nullptr || entry->descriptor.kind != DescriptorKind::kEvent) return false;
  if (WriteEvent(*entry) && has_failed) Stop(RingStatus::kProgramFault, start_number_, 0);
  return true;
}

bool PcieEndpoint::Ring::WriteEvent(Entry& entry) {
  if (ended_->kind == EventKind::kCompleted) clock_.Complete(TimesOfProgram(), rung_);
  const auto bytes =
      EncodeRingEvent({.event = *ended_, .clock = clock_.now(), .sequence = ++sequence_});
  ended_.reset();
  uint64_t fault = 0;
  if (!upstream_.WriteMemory(entry.descriptor.address, bytes, &fault)) {
    Stop(RingStatus::kDmaFault, returns_.next, fault);
    return false;
  }
  FinishFront(returns_);
  return true;
}

// Of the program that has completed.
ProgramTimes PcieEndpoint::Ring::TimesOfProgram() {
  if (ended_->detail == 0) return {};  // nobody keeps the time
  for (const KnownProgram& program : known_programs_) {
    if (program.offset == start_.program_offset && program.count == start_.instruction_count) {
      return program.times;
    }
  }
  if (known_programs_.size() == kKnownPrograms) known_programs_.clear();
  const ProgramTimes times =
      MakeProgramTimes(core_->Summarize(0), core_->Summarize(kStreamMemoryBytes));
  known_programs_.push_back({start_.program_offset, start_.instruction_count, times});
  return times;
}

PcieEndpoint::PcieEndpoint(std::unique_ptr<Ring> ring) : ring_(std::move(ring)) {}
PcieEndpoint::~PcieEndpoint() = default;

Result<std::unique_ptr<PcieEndpoint>> PcieEndpoint::Create(const CoreOptions& options,
                                                           PcieUpstream* upstream) {
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<Core> core, Core::Create(options));
  return std::unique_ptr<PcieEndpoint>(
      new PcieEndpoint(std::make_unique<Ring>(std::move(core), upstream)));
}

uint32_t PcieEndpoint::Read32(uint64_t offset) { return ring_->Read(offset); }
void PcieEndpoint::Write32(uint64_t offset, uint32_t value) { ring_->Write(offset, value); }
bool PcieEndpoint::Step() { return ring_->Step(); }
void PcieEndpoint::set_stop(const StopSignal& stop) { ring_->core().set_stop(stop); }
void PcieEndpoint::Reset() { ring_->PowerOn(); }
void PcieEndpoint::set_first_number(uint32_t number) { ring_->set_first_number(number); }

}  // namespace atollrt
