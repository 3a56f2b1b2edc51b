// SPDX-License-Identifier: Apache-2.0
#include "driver/emulator/core.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

// Addresses have 32 bits.
constexpr uint64_t kMemoryMax = uint64_t{1} << 31;

// Of an LSTM: for each gate, those of its two products.
constexpr uint32_t kLstmRecordsPerUnit = 2 * kLstmGates;

// The channel records that an instruction reads; none if `channels` is 0.
struct RecordsOperand {
  uint32_t address = 0, channels = 0, flags = 0;
};
RecordsOperand RecordsOf(const Instruction& instruction) {
  return std::visit(
      [](const auto& i) -> RecordsOperand {
        if constexpr (requires { i.output_c; }) {
          return {i.channel_address, i.output_c, i.flags};
        } else if constexpr (requires { i.channel_address; }) {
          return {i.channel_address, kLstmRecordsPerUnit * i.units, 0};
        }
        return {};
      },
      instruction);
}

ScheduleOptions MakeScheduleOptions(const DeviceProfile& profile) {
  return {.array = {profile.array_rows, profile.array_columns},
          .clock_hz = profile.clock_hz,
          .link_bytes_per_second = profile.link_bytes_per_second};
}

}  // namespace

Result<std::unique_ptr<Core>> Core::Create(const CoreOptions& options) {
  const DeviceProfile& profile = options.profile;
  if (profile.array_rows < 1 || profile.array_columns < 1 || profile.memory_bytes < 1 ||
      profile.memory_bytes > kMemoryMax || profile.program_memory_bytes < kInstructionBytes ||
      profile.program_memory_bytes > kMemoryMax) {
    return InvalidArgument(
        "device profile '%s': %ux%u cells, %llu bytes of memory, %llu of program memory",
        profile.name.c_str(), profile.array_rows, profile.array_columns,
        static_cast<unsigned long long>(profile.memory_bytes),
        static_cast<unsigned long long>(profile.program_memory_bytes));
  }
  if (options.threads < 1) return InvalidArgument("%d threads", options.threads);
  ATOLL_ASSIGN_OR_RETURN(OnChipMemory memory, OnChipMemory::Allocate(profile.memory_bytes));
  ATOLL_ASSIGN_OR_RETURN(OnChipMemory program,
                         OnChipMemory::Allocate(profile.program_memory_bytes));
  return std::unique_ptr<Core>(new Core(options, std::move(memory), std::move(program)));
}

Core::Core(const CoreOptions& options, OnChipMemory memory, OnChipMemory program)
    : options_(options),
      pool_(options.threads),
      memory_(std::move(memory)),
      program_(std::move(program)),
      host_{&memory_, &pool_, options.features, options.work_limits},
      direct_array_(&host_),
      vector_unit_(&host_),
      parser_(program_.size()),
      schedule_(MakeScheduleOptions(options.profile)) {
  if (options.face == Face::kStepped) {
    stepped_ = MakeSteppedMachine({.rows = options.profile.array_rows,
                                   .columns = options.profile.array_columns,
                                   .clock_hz = options.profile.clock_hz,
                                   .link_bytes_per_second = options.profile.link_bytes_per_second});
    ATOLL_CHECK(stepped_ != nullptr);
  }
  Reset();
}

Core::~Core() = default;

void Core::set_stop(const StopSignal& stop) {
  host_.stop = stop;
  if (stepped_ != nullptr) stepped_->set_stop(stop);
}

void Core::Reset() {
  memory_.Undefine();
  program_.Undefine();
  slots_.clear();
  parser_.Reset();
  for (ByteQueue* queue : {&inputs_, &parameters_, &outputs_, &events_, &fault_words_})
    queue->Clear();
  status_ = CoreStatus::kIdle;
  fault_ = {};
  fault_instruction_ = 0;
  cycles_ = 0;
  instructions_ = 0;
}

Status Core::Control(const ControlSetup& setup, std::span<uint8_t> data) {
  ATOLL_ASSIGN_OR_RETURN(const DecodedRegisterRequest request, DecodeRegisterRequest(setup));
  const size_t width = request.width == RegisterWidth::k32 ? 4 : 8;
  if (data.size() != width) {
    return InvalidArgument("register %04X: %zu bytes for a request of %zu", request.address,
                           data.size(), width);
  }
  if (request.access == RegisterAccess::kRead) return ReadRegister(request, data);
  if (request.address != static_cast<uint32_t>(Register::kControl) ||
      request.width != RegisterWidth::k32) {
    return InvalidArgument("register %04X cannot be written", request.address);
  }
  const uint32_t value = LoadLittleEndian<uint32_t>(data.data());
  if (value != kControlReset) return InvalidArgument("CONTROL has no value %u", value);
  Reset();
  return Status();
}

Status Core::ReadRegister(const DecodedRegisterRequest& request, std::span<uint8_t> data) const {
  const DeviceProfile& profile = options_.profile;
  const std::pair<Register, uint64_t> values[] = {
      {Register::kId, kDeviceId},
      {Register::kIsa, kIsaVersion},
      {Register::kArrayRows, profile.array_rows},
      {Register::kArrayColumns, profile.array_columns},
      {Register::kClockKhz, profile.clock_hz / 1000},
      {Register::kMemoryBytes, profile.memory_bytes},
      {Register::kProgramBytes, profile.program_memory_bytes},
      {Register::kLinkKbps, profile.link_bytes_per_second / 1000},
      {Register::kStatus, static_cast<uint32_t>(status_)},
      {Register::kFaultCode, static_cast<uint32_t>(fault_.code)},
      {Register::kFaultInstruction, fault_instruction_},
      {Register::kFaultDetail, fault_.detail},
      {Register::kCycles, cycles_},
      {Register::kInstructions, instructions_}};
  const auto read = std::find_if(std::begin(values), std::end(values), [&](const auto& entry) {
    return static_cast<uint32_t>(entry.first) == request.address;
  });
  if (read == std::end(values)) {
    return InvalidArgument("register %04X cannot be read", request.address);
  }
  const bool is_wide = read->first == Register::kCycles || read->first == Register::kInstructions;
  if (is_wide != (request.width == RegisterWidth::k64)) {
    return InvalidArgument("register %04X has another width", request.address);
  }
  std::memcpy(data.data(), &read->second, data.size());
  return Status();
}

size_t Core::AcceptBulkOut(std::span<const uint8_t> bytes) {
  // A faulted device ignores what it is sent.
  if (status_ == CoreStatus::kFaulted) return bytes.size();
  // A byte of a record queues at most itself.
  const size_t room = kQueueLimit - inputs_.size() - parameters_.size();
  const size_t accepted = std::min(room, bytes.size());
  std::span<const uint8_t> rest = bytes.first(accepted);
  for (;;) {
    const RecordParser::Piece piece = parser_.Next(rest);
    switch (piece.event) {
      case RecordParser::Event::kNeedBytes:
        return accepted;
      case RecordParser::Event::kProgramBytes:
        std::copy(piece.payload.begin(), piece.payload.end(),
                  ProgramMemory(piece.program_offset, piece.payload.size()).begin());
        break;
      case RecordParser::Event::kInput:
        inputs_.Append(piece.payload);
        break;
      case RecordParser::Event::kParameters:
        parameters_.Append(piece.payload);
        break;
      case RecordParser::Event::kStart:
        Start(piece.start);
        break;
      case RecordParser::Event::kBadRecord:
        RaiseFault({FaultCode::kBadStream, piece.tag});
        break;
    }
    if (status_ == CoreStatus::kFaulted) return bytes.size();
  }
}

// A write may have changed the rest of the running program: from now on its time is computed.
void Core::ComputeTime() {
  if (status_ != CoreStatus::kRunning || !known_cycles_) return;
  known_cycles_.reset();
  for (size_t i = first_slot(); i < first_slot() + next_; ++i) {
    schedule_.Add(slots_[i]->instruction, slots_[i]->execution_cycles);
  }
}

std::span<uint8_t> Core::ProgramMemory(uint32_t offset, size_t size_bytes) {
  ComputeTime();
  const size_t end = DivideRoundingUp(offset + size_bytes, kInstructionBytes);
  for (size_t i = offset / kInstructionBytes; i < std::min(end, slots_.size()); ++i) {
    slots_[i].reset();
  }
  return {program_.WriteAt(offset, size_bytes), size_bytes};
}

ScheduleSummary Core::Summarize(uint64_t bytes_ahead) const {
  if (stepped_ != nullptr) {  // which has a clock of its own
    const SteppedTimes times = stepped_->ProgramTimes(bytes_ahead);
    return {.total = times.total,
            .link_out = times.link_out,  // with streamed parameters
            .link_in = times.link_in,
            .computed = times.computed,
            .delivered = times.delivered};
  }
  ScheduleOptions options = MakeScheduleOptions(options_.profile);
  options.bytes_ahead = bytes_ahead;
  Schedule schedule(options);
  for (size_t i = first_slot(); i < first_slot() + next_; ++i) {
    schedule.Add(slots_[i]->instruction, slots_[i]->execution_cycles);
  }
  return schedule.summary();
}

void Core::Start(const StartMessage& start) {
  if (status_ == CoreStatus::kRunning) {
    RaiseFault({FaultCode::kBadStream, static_cast<uint32_t>(RecordTag::kStart)});
    return;
  }
  status_ = CoreStatus::kRunning;
  start_ = start;
  next_ = 0;
  transferred_ = 0;
  sent_ = 0;
  stepped_cycles_ = 0;
  started_at_write_ = program_.now();
  known_cycles_.reset();
  schedule_ = Schedule(MakeScheduleOptions(options_.profile));
  if (stepped_ != nullptr) stepped_->StartProgram();
  const uint64_t first = first_slot();
  if (start.program_offset % kInstructionBytes != 0 || start.instruction_count == 0 ||
      first + start.instruction_count > program_.size() / kInstructionBytes) {
    RaiseFault({FaultCode::kBadProgram, 0});
    return;
  }
  slots_.resize(std::max<size_t>(slots_.size(), first + start.instruction_count));
  const Slot* const slot = slots_[first].get();
  if (options_.timekeeping == Timekeeping::kNever && stepped_ == nullptr) {
    known_cycles_ = 0;
  } else if (slot != nullptr && slot->program_length == start.instruction_count &&
             slot->program_writes == program_.now()) {
    known_cycles_ = slot->program_cycles;
  }
}

void Core::RaiseFault(Fault fault) {
  // Without a running program, request and instruction read 0.
  const bool running = status_ == CoreStatus::kRunning;
  status_ = CoreStatus::kFaulted;
  fault_ = fault;
  fault_instruction_ = running ? next_ : 0;
  const uint8_t word[4] = {static_cast<uint8_t>(fault.code)};
  fault_words_.Append(word);
  events_.Append(EncodeEvent({.kind = EventKind::kFaulted,
                              .fault = fault.code,
                              .request_id = running ? start_.request_id : 0,
                              .detail = fault_instruction_}));
}

bool Core::Step() {
  if (status_ != CoreStatus::kRunning) return false;
  const Slot* slot = Fetch();
  if (slot == nullptr) return true;
  if (const Slot* chained = ChainedBehind(*slot); chained != nullptr) {
    direct_array_.RunChained(slot->instruction, *ChainedAdd(chained->instruction),
                             *slot->checked_for);
    Advance(*slot);
    Advance(*chained);
    return true;
  }
  const Progress progress = Run(*slot);
  if (progress == Progress::kDone) Advance(*slot);
  return progress != Progress::kNone;
}

// Past an instruction that has run.
void Core::Advance(const Slot& slot) {
  // END has been added already: its event holds the sum.
  if (status_ == CoreStatus::kRunning) {
    if (stepped_ != nullptr) {
      stepped_->AddToProgram(slot.instruction, stepped_cycles_);
    } else if (!known_cycles_) {
      schedule_.Add(slot.instruction, slot.execution_cycles);
    }
  }
  ++instructions_;
  ++next_;
  transferred_ = 0;
  stepped_cycles_ = 0;
}

// The instruction behind `slot`, the next one, if it is a valid ADD with CHAINED, which the direct
// face runs together with it; else nullptr. A fault is that of the ADD when its turn comes.
const Core::Slot* Core::ChainedBehind(const Slot& slot) {
  if (stepped_ != nullptr || !std::holds_alternative<Conv2DInstruction>(slot.instruction) ||
      next_ + 1 >= start_.instruction_count) {
    return nullptr;
  }
  Fault fault;
  const Slot* behind = Decoded(next_ + 1, &fault);
  return behind != nullptr && ChainedAdd(behind->instruction) != nullptr ? behind : nullptr;
}

const Core::Slot* Core::Fetch() {
  if (next_ >= start_.instruction_count) {
    RaiseFault({FaultCode::kBadProgram, 0});
    return nullptr;
  }
  Fault fault;
  Slot* slot = Decoded(next_, &fault);
  if (slot != nullptr) fault = CheckRecords(*slot);
  if (fault.code == FaultCode::kNone) return slot;
  RaiseFault(fault);
  return nullptr;
}

// Instruction `number` of the program, checked but for its channel records; nullptr with a fault.
// The one before it has been decoded, unless it was overwritten since.
Core::Slot* Core::Decoded(uint32_t number, Fault* fault) {
  const size_t index = first_slot() + number;
  std::unique_ptr<Slot>& slot = slots_[index];
  if (slot == nullptr) {
    const std::span<const uint8_t, kInstructionBytes> bytes(
        program_.ReadAt(index * kInstructionBytes, kInstructionBytes), kInstructionBytes);
    if (const size_t word = FindMalformedWord(bytes); word < kInstructionWords) {
      *fault = {FaultCode::kBadOpcode, static_cast<uint32_t>(word)};
      return nullptr;
    }
    slot = std::make_unique<Slot>();
    slot->instruction = *Decode(bytes);
  }
  const Slot* const before = number > 0 ? slots_[index - 1].get() : nullptr;
  *fault =
      CheckChain(before != nullptr ? &before->instruction : nullptr, slot->instruction, segments());
  if (fault->code != FaultCode::kNone) return nullptr;
  if (slot->checked_for != segments()) {
    *fault = CheckInstruction(slot->instruction, segments(), memory_.size());
    if (fault->code != FaultCode::kNone) return nullptr;
    slot->checked_for = segments();
    slot->records_checked = 0;
    const ArraySize array{options_.profile.array_rows, options_.profile.array_columns};
    slot->execution_cycles = ExecutionCycles(slot->instruction, array);
  }
  return slot.get();
}

Fault Core::CheckRecords(Slot& slot) {
  const RecordsOperand records = RecordsOf(slot.instruction);
  if (records.channels == 0) return {};
  const uint64_t address = slot.checked_for->Resolve(records.address);
  const uint64_t bytes = uint64_t{records.channels} * kChannelRecordBytes;
  if (slot.records_checked != 0 && !memory_.ChangedSince(slot.records_checked, address, bytes)) {
    return {};
  }
  const Fault fault = CheckChannelRecords({memory_.ReadAt(address, bytes), bytes}, records.flags);
  slot.records_checked = fault.code == FaultCode::kNone ? memory_.now() : 0;
  return fault;
}

void Core::RunStepped(const Slot& slot) {
  const Segments& segments = *slot.checked_for;
  for (const MemoryAccess& access : AccessesOf(slot.instruction)) {
    if (access.kind == MemoryAccess::Kind::kWrite ||
        access.kind == MemoryAccess::Kind::kReadWrite) {
      memory_.WriteAt(segments.Resolve(access.address), access.bytes);
    }
  }
  stepped_cycles_ = stepped_->Run(slot.instruction, segments, memory_.bytes());
}

Core::Progress Core::Run(const Slot& slot) {
  return std::visit(
      [&](const auto& i) {
        using T = std::decay_t<decltype(i)>;
        if constexpr (std::is_same_v<T, EndInstruction>) {
          return Complete();
        } else if constexpr (std::is_same_v<T, InputInstruction>) {
          return Receive(*streams_.inputs, i.output_address, i.bytes);
        } else if constexpr (std::is_same_v<T, ParametersInstruction>) {
          return Receive(*streams_.parameters, i.output_address, i.bytes);
        } else if constexpr (std::is_same_v<T, OutputInstruction>) {
          return Send(i.input_address, i.bytes);
        } else if constexpr (!std::is_same_v<T, std::monostate>) {
          if (stepped_ != nullptr) {
            RunStepped(slot);
          } else if constexpr (requires { i.weight_address; }) {
            direct_array_.Run(slot.instruction, *slot.checked_for);
          } else {
            vector_unit_.Run(slot.instruction, *slot.checked_for);
          }
        }
        return Progress::kDone;
      },
      slot.instruction);
}

size_t Core::TransferSize(uint32_t bytes, size_t available) {
  const size_t missing = bytes - transferred_;
  if (stepped_ == nullptr) return std::min(missing, available);
  constexpr size_t kBlock = SteppedMachine::kBlockBytes;
  const size_t of_block = std::min(missing, kBlock - transferred_ % kBlock);
  if (available >= of_block) ++stepped_cycles_;
  return std::min(of_block, available);
}

Core::Progress Core::Receive(ByteSource& stream, uint32_t output_address, uint32_t bytes) {
  size_t count = TransferSize(bytes, stream.available());
  if (count == 0) return Progress::kNone;
  const uint64_t address = segments().Resolve(output_address) + transferred_;
  count = stream.Take({memory_.WriteAt(address, count), count});
  if (count == 0) return Progress::kNone;
  transferred_ += static_cast<uint32_t>(count);
  return transferred_ == bytes ? Progress::kDone : Progress::kSome;
}

Core::Progress Core::Send(uint32_t input_address, uint32_t bytes) {
  size_t count = TransferSize(bytes, streams_.outputs->room());
  if (count == 0) return Progress::kNone;
  const uint64_t address = segments().Resolve(input_address) + transferred_;
  count = streams_.outputs->Append({memory_.ReadAt(address, count), count});
  if (count == 0) return Progress::kNone;
  sent_ += count;
  transferred_ += static_cast<uint32_t>(count);
  return transferred_ == bytes ? Progress::kDone : Progress::kSome;
}

Core::Progress Core::Complete() {
  if (events_.size() >= kEventLimit * kEventBytes) return Progress::kNone;
  uint64_t cycles = 0;
  if (stepped_ != nullptr) {
    stepped_->AddToProgram(EndInstruction{}, 0);
    cycles = stepped_->ProgramTimes(0).total;
  } else if (known_cycles_) {
    cycles = *known_cycles_;
  } else {
    schedule_.Add(EndInstruction{});
    cycles = schedule_.summary().total;
    // Not of a program that has changed meanwhile.
    if (started_at_write_ == program_.now() && options_.timekeeping == Timekeeping::kOnce) {
      Slot& first = *slots_[first_slot()];
      first.program_length = start_.instruction_count;
      first.program_writes = program_.now();
      first.program_cycles = cycles;
    }
  }
  cycles_ += cycles;
  // How much of it has been taken already depends on the host; next time, all may have to wait.
  if (streams_.outputs == &outputs_) outputs_.Reserve(std::min(sent_, kQueueLimit));
  events_.Append(EncodeEvent(
      {.kind = EventKind::kCompleted, .request_id = start_.request_id, .detail = cycles}));
  status_ = CoreStatus::kIdle;
  return Progress::kDone;
}

}  // namespace atollrt
