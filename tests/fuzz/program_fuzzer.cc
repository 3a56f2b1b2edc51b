// SPDX-License-Identifier: Apache-2.0
//
// A hostile host: records, programs, start messages, streams and control requests to the emulated
// device. It must not crash, every program ends or waits, a fault is reported once, and the array
// computed directly and stepped cell by cell does the same. The input is a sequence of actions;
// programs are made of instructions whose operands are biased to what passes the device's checks,
// with any word now and then. The device is small, so that no instruction takes long.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "atoll/check.h"
#include "driver/atoll1/protocol.h"
#include "driver/emulator/core.h"
#include "driver/isa/instruction.h"
#include "runtime/base/bytes.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/allocation_meter.h"

namespace atollrt::program_fuzzer {

namespace {

using Bytes = std::vector<uint8_t>;

constexpr uint32_t kMemoryBytes = 4096;
constexpr uint32_t kProgramSlots = 16;
constexpr uint32_t kBlock = 256;  // operands lie in blocks of this size, mostly
constexpr size_t kRecords = kBlock / kChannelRecordBytes;
constexpr uint64_t kCopyBytesMax = 1 << 20;

// The input, byte by byte; zeros behind its end.
class Input {
 public:
  explicit Input(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  uint8_t Byte() {
    if (bytes_.empty()) return 0;
    const uint8_t byte = bytes_[0];
    bytes_ = bytes_.subspan(1);
    return byte;
  }
  uint32_t Word() {
    uint32_t word = Byte();
    for (int shift = 8; shift < 32; shift += 8) word |= uint32_t{Byte()} << shift;
    return word;
  }
  std::span<const uint8_t> Take(size_t count) {
    const std::span<const uint8_t> taken = bytes_.first(std::min(count, bytes_.size()));
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }

 private:
  std::span<const uint8_t> bytes_;
};

// ---- Programs -----------------------------------------------------------------------------------

bool Contains(std::string_view name, std::string_view part) {
  return name.find(part) != std::string_view::npos;
}

uint32_t FlagsFrom(uint8_t byte, std::string_view allowed) {
  uint32_t flags = 0;
  for (const FlagInfo& flag : FlagTable()) {
    if (Contains(allowed, flag.name) && (byte & flag.bit) != 0) flags |= flag.bit;
  }
  if ((flags & kFlagSquare) != 0) flags |= kFlagSubtract;
  return flags;
}

// A value that suits an operand of this name.
uint32_t OperandFrom(uint8_t byte, const OperandInfo& operand, uint32_t flags) {
  const std::string_view name = operand.name();
  if (IsAddress(operand)) {
    const uint32_t segment = byte % 32 >= 16 ? kParameterSegment : 0;
    return segment | (byte % 16 * kBlock + byte / 64);
  }
  if (name == "flags") return FlagsFrom(byte, MeaningOf(operand));
  if (Contains(name, "zero_point") || name == "clamp_min" || name == "clamp_max") {
    const uint32_t unsigned_bytes =
        Contains(name, "weight") ? kFlagWeightsUnsigned : kFlagInputUnsigned;
    const bool is_unsigned = (flags & unsigned_bytes) != 0;
    if (name == "clamp_min") return is_unsigned ? byte / 4 : static_cast<uint32_t>(byte / 4 - 128);
    if (name == "clamp_max") return is_unsigned ? 255 - byte / 4 : 127 - byte / 4;
    return is_unsigned ? byte : static_cast<uint32_t>(static_cast<int8_t>(byte));
  }
  if (Contains(name, "multiplier")) return uint32_t{byte} << 23 | 0x2AAA;
  if (Contains(name, "exponent")) return static_cast<uint32_t>(byte % 24 - 16);
  if (name == "min_difference") return static_cast<uint32_t>(-int32_t{byte});
  if (Contains(name, "stride3")) return byte % 2;
  if (name.starts_with("stride") || name.starts_with("dilation")) return 1 + byte % 3;
  if (Contains(name, "stride")) return byte % 9 == 8 ? byte : byte % 8;
  if (name.starts_with("pad_")) return byte % 3;
  if (name.starts_with("kernel") || name == "groups") return 1 + byte % 3;
  if (name == "mode" || name == "cell_integer_bits") return byte % 3;
  if (name == "time_major") return byte % 2;
  if (name == "cell_clip" || name == "value") return byte;
  if (name == "left_shift") return byte % 23;
  if (name == "input_first" || name == "output_first") return byte % 3;
  if (name == "bytes" || name == "count" || name == "depth") return 1 + byte % 128;
  return 1 + byte % 4;  // sizes
}

// Keeps a run of the fuzzer short: repeated copies of few bytes have no other bound than 2^31.
void BoundCopy(Instruction* instruction) {
  auto* copy = std::get_if<CopyInstruction>(instruction);
  if (copy == nullptr) return;
  uint64_t total = copy->bytes;
  for (const CopyLoop& loop : LoopsOf(*copy)) total = SaturatingProduct({total, loop.count});
  if (total > kCopyBytesMax && total < UINT32_MAX) copy->count0 = 0;  // faults
}

// Most chained ADDs get operands that suit `before`; where the rest of them lie may be wrong still.
void Chain(const Instruction& before, Instruction* instruction) {
  auto* add = std::get_if<AddInstruction>(instruction);
  if (add == nullptr || (add->flags & kFlagChained) == 0 || add->left_shift % 8 == 7) return;
  const auto* conv = std::get_if<Conv2DInstruction>(&before);
  if (conv == nullptr) {
    add->flags &= ~kFlagChained;
    return;
  }
  add->count0 = add->count1 = add->count2 = 1;
  add->count3 = conv->batch * conv->output_h * conv->output_w * conv->output_c;
  add->input1_stride3 = add->input2_stride3 = 1;
  (add->left_shift % 2 == 0 ? add->input1_address : add->input2_address) = conv->output_address;
}

Instruction InstructionFrom(Input& input, const Instruction& before) {
  const std::span<const InstructionInfo> table = InstructionTable();
  const InstructionInfo& info = table[input.Byte() % table.size()];
  EncodedInstruction bytes{};
  StoreLittleEndian(bytes.data(), info.opcode);
  uint32_t flags = 0;
  for (size_t i = 0; i < info.operands.size(); ++i) {
    constexpr uint8_t kAnyWord = 0xFC;
    const uint8_t byte = input.Byte();
    const uint32_t word =
        byte >= kAnyWord ? input.Word() : OperandFrom(byte, info.operands[i], flags);
    if (std::string_view(info.operands[i].name()) == "flags") flags = word;
    StoreLittleEndian(&bytes[4 * (i + 1)], word);
  }
  Instruction instruction = *Decode(bytes);
  BoundCopy(&instruction);
  Chain(before, &instruction);
  return instruction;
}

void Append(Bytes& to, std::span<const uint8_t> bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

Bytes Record(RecordTag tag, std::span<const uint8_t> payload) {
  Bytes record;
  Append(record, EncodeRecordHeader({.payload_bytes = static_cast<uint32_t>(payload.size()),
                                     .tag = static_cast<uint8_t>(tag)}));
  Append(record, payload);
  return record;
}

Bytes ProgramRecord(uint32_t offset, std::span<const uint8_t> instructions) {
  Bytes payload;
  Append(payload, EncodeInstructionsPrefix(offset));
  Append(payload, instructions);
  return Record(RecordTag::kInstructions, payload);
}

// A block of channel records that pass the device's checks.
Bytes RecordsFrom(Input& input) {
  Bytes block(kBlock);
  for (size_t i = 0; i < kRecords; ++i) {
    uint8_t* record = &block[i * kChannelRecordBytes];
    StoreLittleEndian<int32_t>(record, static_cast<int8_t>(input.Byte()) * 16);
    StoreLittleEndian<uint32_t>(record + 4, uint32_t{input.Byte()} << 23);
    StoreLittleEndian<int32_t>(record + 8, -int32_t{input.Byte() % 16});
  }
  return block;
}

// ---- The device ---------------------------------------------------------------------------------

// One device in both faces. Every call goes to both, and both must answer alike.
class Device {
 public:
  Device() : direct_(Make(Face::kDirect)), stepped_(Make(Face::kStepped)) {}

  void Send(std::span<const uint8_t> bytes) {
    const size_t accepted = direct_->AcceptBulkOut(bytes);
    ATOLL_CHECK(stepped_->AcceptBulkOut(bytes) == accepted && accepted == bytes.size());
    sent_ += bytes.size();
  }

  void Control(const ControlSetup& setup, std::span<const uint8_t> data) {
    Bytes a(data.begin(), data.end()), b = a;
    const StatusCode code = direct_->Control(setup, a).code();
    ATOLL_CHECK(stepped_->Control(setup, b).code() == code);
    ATOLL_CHECK(a == b);
    if (status() != CoreStatus::kFaulted) faulted_ = false;  // it may have been a reset
  }

  // Runs until there is nothing to do, and takes everything that the device has to say.
  void Run() {
    // Each step ends an instruction or moves at least one byte of a stream.
    const size_t limit = kProgramSlots + 1 + sent_ + Core::kQueueLimit;
    for (Core* core : {direct_.get(), stepped_.get()}) {
      size_t steps = 0;
      while (core->Step()) ATOLL_CHECK(++steps <= limit);
    }
    Compare();
  }

  void Reset() {
    direct_->Reset();
    stepped_->Reset();
    faulted_ = false;
    Compare();
  }

  CoreStatus status() const { return direct_->status(); }
  FaultCode fault() { return static_cast<FaultCode>(Read32(*direct_, Register::kFaultCode)); }

 private:
  static std::unique_ptr<Core> Make(Face face) {
    DeviceProfile profile;
    profile.array_rows = 4;
    profile.array_columns = 4;
    profile.memory_bytes = kMemoryBytes;
    profile.program_memory_bytes = kProgramSlots * kInstructionBytes;
    auto core = Core::Create({.profile = profile, .face = face});
    ATOLL_CHECK(core.ok());
    return *std::move(core);
  }

  static uint32_t Read32(Core& core, Register address) {
    Bytes data(4);
    ATOLL_CHECK(core.Control(RegisterRequest(static_cast<uint32_t>(address), RegisterWidth::k32,
                                             RegisterAccess::kRead),
                             data)
                    .ok());
    return LoadLittleEndian<uint32_t>(data.data());
  }

  static Bytes TakeAll(ByteQueue& queue) {
    Bytes bytes(queue.size());
    queue.Take(bytes);
    return bytes;
  }

  void Compare() {
    ATOLL_CHECK(direct_->status() == stepped_->status());
    ATOLL_CHECK(TakeAll(direct_->outputs()) == TakeAll(stepped_->outputs()));
    const Bytes events = TakeAll(direct_->events());
    ATOLL_CHECK(events == TakeAll(stepped_->events()));
    const Bytes words = TakeAll(direct_->fault_words());
    ATOLL_CHECK(words == TakeAll(stepped_->fault_words()));
    for (const Register address : {Register::kStatus, Register::kFaultCode,
                                   Register::kFaultInstruction, Register::kFaultDetail}) {
      ATOLL_CHECK(Read32(*direct_, address) == Read32(*stepped_, address));
    }
    CheckFault(events, words);
  }

  // A fault is told once, in three places, and nothing is told of it otherwise.
  void CheckFault(const Bytes& events, const Bytes& words) {
    ATOLL_CHECK(Read32(*direct_, Register::kStatus) == static_cast<uint32_t>(status()));
    const bool is_faulted = status() == CoreStatus::kFaulted;
    const auto code = static_cast<FaultCode>(Read32(*direct_, Register::kFaultCode));
    ATOLL_CHECK(is_faulted == (code != FaultCode::kNone) && code <= FaultCode::kBadStream);
    ATOLL_CHECK(words.size() == (is_faulted && !faulted_ ? 4u : 0u));
    ATOLL_CHECK(events.size() % kEventBytes == 0);
    size_t faults = 0;
    for (size_t i = 0; i < events.size(); i += kEventBytes) {
      const auto event = DecodeEvent(std::span(events).subspan(i, kEventBytes));
      ATOLL_CHECK(event.ok());
      if (event->kind != EventKind::kFaulted) continue;
      ATOLL_CHECK(event->fault == code && words[0] == static_cast<uint8_t>(code));
      ++faults;
    }
    ATOLL_CHECK(faults == words.size() / 4);
    faulted_ = is_faulted;
  }

  std::unique_ptr<Core> direct_, stepped_;
  size_t sent_ = 0;
  bool faulted_ = false;
};

// ---- Actions ------------------------------------------------------------------------------------

// Memory becomes zeros, a block of it channel records, a block input; then instructions of the
// input; then all of memory goes out.
void RunProgram(Device& device, Input& input) {
  const uint32_t records = input.Byte() % (kMemoryBytes / kBlock) * kBlock;
  const uint32_t data = input.Byte() % (kMemoryBytes / kBlock) * kBlock;
  const uint32_t count = 1 + input.Byte() % 4;
  std::vector<Instruction> program = {
      FillInstruction{.bytes = kMemoryBytes},
      InputInstruction{.output_address = data, .bytes = kBlock},
      ParametersInstruction{.output_address = records, .bytes = kBlock}};
  Bytes parameters = RecordsFrom(input);
  Bytes inputs(kBlock);
  for (uint8_t& byte : inputs) byte = input.Byte();
  for (uint32_t i = 0; i < count; ++i) program.push_back(InstructionFrom(input, program.back()));
  program.push_back(OutputInstruction{.bytes = kMemoryBytes});
  program.push_back(EndInstruction{});
  Bytes encoded;
  for (const Instruction& instruction : program) Append(encoded, Encode(instruction));
  device.Send(ProgramRecord(0, encoded));
  device.Send(Record(RecordTag::kStart,
                     EncodeStart({.instruction_count = static_cast<uint32_t>(program.size())})));
  device.Send(Record(RecordTag::kInput, inputs));
  device.Send(Record(RecordTag::kParameters, parameters));
  device.Run();
  if (device.status() != CoreStatus::kIdle) device.Reset();
}

// Any bytes as a program. One whose first instruction does not decode must say so.
void RunRawProgram(Device& device, Input& input) {
  device.Reset();
  const uint32_t count = 1 + input.Byte() % 3;
  Bytes encoded(count * kInstructionBytes);
  for (size_t i = 0; i < encoded.size(); i += kInstructionBytes) {
    const auto slot = std::span(encoded).subspan(i).first<kInstructionBytes>();
    std::ranges::copy(input.Take(input.Byte() % (kInstructionBytes + 1)), slot.begin());
    auto instruction = Decode(slot);
    if (!instruction.ok()) continue;
    BoundCopy(&*instruction);
    std::ranges::copy(Encode(*instruction), slot.begin());
  }
  const bool malformed =
      FindMalformedWord(std::span(encoded).first<kInstructionBytes>()) < kInstructionWords;
  device.Send(ProgramRecord(0, encoded));
  device.Send(Record(RecordTag::kStart, EncodeStart({.instruction_count = count})));
  device.Run();
  ATOLL_CHECK(!malformed || device.fault() == FaultCode::kBadOpcode);
}

void SendStart(Device& device, Input& input) {
  const bool usual = input.Byte() % 2 == 0;
  StartMessage start{.program_offset = input.Byte() % kProgramSlots * uint32_t{kInstructionBytes},
                     .instruction_count = input.Byte() % kProgramSlots,
                     .parameter_base = input.Byte() % 16 * kBlock,
                     .activation_base = input.Byte() % 16 * kBlock,
                     .request_id = input.Byte()};
  if (!usual) {
    start.program_offset = input.Word();
    start.instruction_count = input.Word();
    start.parameter_base = input.Word();
    start.activation_base = input.Word();
  }
  device.Send(Record(RecordTag::kStart, EncodeStart(start)));
}

void Act(Device& device, Input& input) {
  switch (input.Byte() % 8) {
    case 0:
    case 1:
      return RunProgram(device, input);
    case 2:
      return RunRawProgram(device, input);
    case 3:
      return SendStart(device, input);
    case 4: {
      const RecordTag tag = input.Byte() % 2 == 0 ? RecordTag::kInput : RecordTag::kParameters;
      return device.Send(Record(tag, input.Take(input.Byte())));
    }
    case 5:
      return device.Send(input.Take(input.Byte()));
    case 6: {
      ControlSetup setup;
      setup.request_type = input.Byte();
      setup.request = input.Byte();
      setup.value = static_cast<uint16_t>(input.Byte() | input.Byte() << 8);
      setup.index = input.Byte();
      return device.Control(setup, input.Take(input.Byte() % 9));
    }
    case 7:
      return input.Byte() % 4 == 0 ? device.Reset() : device.Run();
  }
}

}  // namespace

ATOLL_FUZZ_TARGET(program) {
  constexpr int64_t kDeviceBytes = int64_t{16} << 20;
  const MemoryLimit limit(ProportionalBytes(size, kDeviceBytes));
  constexpr int kActionsMax = 16;
  Input input({data, size});
  Device device;
  for (int i = 0; i < kActionsMax && !input.empty(); ++i) Act(device, input);
  device.Run();
  return 0;
}

}  // namespace atollrt::program_fuzzer
