// SPDX-License-Identifier: Apache-2.0
//
// The two faces of the emulated device against each other: random instructions of every kind, with
// operands up to the limits of docs/isa.md §4, on arrays of every shape. They share no arithmetic,
// so all bytes of memory and the device's cycles are equal only if both are right. The cycles of
// the direct face are the closed forms of driver/isa/timing.h, those of the stepped one are
// counted. Each instruction runs in a program, and once more alone: programs hide some cycles
// behind others.
//
// ATOLL_STEPPED_ROUNDS sets the number of instructions.
#include "driver/emulator/stepped_machine.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "driver/emulator/check.h"
#include "driver/emulator/stepped_functions.h"
#include "driver/isa/memory_access.h"
#include "driver/isa/timing.h"
#include "tests/driver/emulator/emulated_program.h"
#include "tests/driver/emulator/random_scale.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

constexpr uint32_t kMemoryBytes = 16 << 10;

// ---- Operands -----------------------------------------------------------------------------------

uint32_t Size(Rng& rng, int64_t least, int64_t most) {
  return static_cast<uint32_t>(rng.Int(least, most));
}

// Mostly few, sometimes more than there are lanes.
uint32_t Channels(Rng& rng) { return Size(rng, 1, rng.OneIn(6) ? 140 : 12); }

uint32_t Flags(Rng& rng, std::initializer_list<uint32_t> flags) {
  uint32_t chosen = 0;
  for (const uint32_t flag : flags) {
    if (rng.OneIn(2)) chosen |= flag;
  }
  return chosen;
}

int32_t ZeroPoint(Rng& rng, bool is_unsigned) {
  const int32_t least = is_unsigned ? 0 : -128;
  return rng.OneIn(4) ? rng.Pick({least, least + 255}) : rng.Int32(least, least + 255);
}

template <typename T>
void Clamps(Rng& rng, T& i) {
  const int32_t least = (i.flags & kFlagInputUnsigned) != 0 ? 0 : -128;
  i.clamp_min = rng.OneIn(3) ? rng.Int32(least, least + 255) : least;
  i.clamp_max = rng.OneIn(3) ? rng.Int32(i.clamp_min, least + 255) : least + 255;
}

// A multiplier for numbers of about 2^bits, which makes bytes of most of them.
void Multiplier(Rng& rng, int32_t bits, int32_t& multiplier, int32_t& exponent) {
  multiplier = rng.OneIn(6) ? rng.Pick({0, 1, 1 << 30, INT32_MAX}) : rng.Int32(1 << 30, INT32_MAX);
  exponent = rng.OneIn(6)    ? rng.Pick({-31, -30, 0, 1, 31, 32, 33, 64, 127})
             : rng.OneIn(10) ? rng.Int32(-31, 127)
                             : rng.Int32(5 - bits, 8 - bits);
}

template <typename T>
void Filter(Rng& rng, T& i) {
  i.batch = Size(rng, 1, 2);
  for (uint32_t* size : {&i.input_h, &i.input_w, &i.output_h, &i.output_w}) *size = Size(rng, 1, 5);
  for (uint32_t* size : {&i.kernel_h, &i.kernel_w, &i.stride_h, &i.stride_w}) {
    *size = Size(rng, 1, 3);
  }
  if (rng.OneIn(10)) i.stride_h = 1u << 28;
  i.pad_top = rng.OneIn(20) ? 65535 : Size(rng, 0, 3);
  i.pad_left = Size(rng, 0, 3);
  i.flags = Flags(rng, {kFlagInputUnsigned, kFlagWeightsUnsigned, kFlagDouble});
  i.input_zero_point = ZeroPoint(rng, (i.flags & kFlagInputUnsigned) != 0);
  i.weight_zero_point = ZeroPoint(rng, (i.flags & kFlagWeightsUnsigned) != 0);
  i.output_zero_point = ZeroPoint(rng, (i.flags & kFlagInputUnsigned) != 0);
  Clamps(rng, i);
}

// Operands without addresses. Most are in range; those that are not are drawn again.
void Randomize(Rng& rng, Conv2DInstruction& i) {
  Filter(rng, i);
  i.dilation_h = Size(rng, 1, 3);
  i.dilation_w = Size(rng, 1, 3);
  i.groups = Size(rng, 1, 3);
  i.input_c = i.groups * Size(rng, 1, 12);
  i.output_c = i.groups * Size(rng, 1, 12);
}

void Randomize(Rng& rng, DepthwiseConv2DInstruction& i) {
  Filter(rng, i);
  i.dilation_h = Size(rng, 1, 3);
  i.dilation_w = Size(rng, 1, 3);
  i.input_c = Channels(rng);
  i.output_c = i.input_c * Size(rng, 1, 3);
}

void Randomize(Rng& rng, TransposeConv2DInstruction& i) {
  Filter(rng, i);
  i.input_c = Size(rng, 1, 20);
  i.output_c = Size(rng, 1, 20);
}

void Randomize(Rng& rng, LstmInstruction& i) {
  i.batch = Size(rng, 1, 3);
  i.steps = Size(rng, 1, 4);
  i.inputs = Size(rng, 1, 12);
  i.units = Size(rng, 1, rng.OneIn(4) ? 18 : 6);
  i.time_major = Size(rng, 0, 1);
  i.cell_integer_bits = Size(rng, 0, 6);
  if (rng.OneIn(3)) i.cell_clip = Size(rng, 1, 32767);
  Multiplier(rng, 30, i.hidden_multiplier, i.hidden_exponent);
  i.hidden_zero_point = ZeroPoint(rng, false);
}

void Randomize(Rng& rng, Pool2DInstruction& i) {
  i.batch = Size(rng, 1, 2);
  for (uint32_t* size :
       {&i.input_h, &i.input_w, &i.output_h, &i.output_w, &i.kernel_h, &i.kernel_w}) {
    *size = Size(rng, 1, 4);
  }
  i.stride_h = Size(rng, 1, 3);
  i.stride_w = Size(rng, 1, 3);
  i.pad_top = Size(rng, 0, i.kernel_h - 1);
  i.pad_left = Size(rng, 0, i.kernel_w - 1);
  i.channels = Channels(rng);
  i.flags = Flags(rng, {kFlagInputUnsigned, kFlagAverage});
  Clamps(rng, i);
}

struct PairInput {
  uint32_t* strides[kPairLoops];
};

// An input of the output's layout, one that is repeated along some loops, or one of any strides.
template <typename T>
void Strides(Rng& rng, const T& i, const PairInput& input) {
  const uint32_t counts[] = {i.count0, i.count1, i.count2, i.count3};
  const int64_t kind = rng.Int(0, 2);
  uint32_t dense = 1;
  for (size_t k = kPairLoops; k-- > 0;) {
    uint32_t& stride = *input.strides[k];
    stride = dense;
    if (kind == 2) stride = k == 3 ? Size(rng, 0, 1) : Size(rng, 0, 40);
    if (kind == 1 && rng.OneIn(2)) {
      stride = 0;
    } else {
      dense *= counts[k];
    }
  }
}

template <PairInstruction T>
void Pair(Rng& rng, T& i) {
  i.count0 = Size(rng, 1, 3);
  i.count1 = Size(rng, 1, 3);
  i.count2 = Size(rng, 1, 4);
  i.count3 = Channels(rng);
  Strides(rng, i, {{&i.input1_stride0, &i.input1_stride1, &i.input1_stride2, &i.input1_stride3}});
  Strides(rng, i, {{&i.input2_stride0, &i.input2_stride1, &i.input2_stride2, &i.input2_stride3}});
  if constexpr (requires { i.output_zero_point; }) {
    const bool is_unsigned = (i.flags & kFlagInputUnsigned) != 0;
    i.input1_zero_point = ZeroPoint(rng, is_unsigned);
    i.input2_zero_point = ZeroPoint(rng, is_unsigned);
    i.output_zero_point = ZeroPoint(rng, is_unsigned);
    Clamps(rng, i);
  }
}

void Randomize(Rng& rng, AddInstruction& i) {
  i.flags = Flags(rng, {kFlagInputUnsigned, kFlagSubtract, kFlagSquare});
  i.left_shift = rng.OneIn(3) ? Size(rng, 0, 22) : 20;
  const int32_t bits = 8 + static_cast<int32_t>(i.left_shift);
  Multiplier(rng, 8, i.input1_multiplier, i.input1_exponent);
  Multiplier(rng, 8, i.input2_multiplier, i.input2_exponent);
  Multiplier(rng, bits, i.output_multiplier, i.output_exponent);
  Pair(rng, i);
}

void Randomize(Rng& rng, MultiplyInstruction& i) {
  i.flags = Flags(rng, {kFlagInputUnsigned});
  Multiplier(rng, 14, i.output_multiplier, i.output_exponent);
  Pair(rng, i);
}

void Randomize(Rng& rng, MaximumInstruction& i) {
  i.flags = Flags(rng, {kFlagInputUnsigned});
  Pair(rng, i);
}

void Randomize(Rng& rng, MinimumInstruction& i) {
  i.flags = Flags(rng, {kFlagInputUnsigned});
  Pair(rng, i);
}

void Randomize(Rng& rng, PreluInstruction& i) {
  i.flags = Flags(rng, {kFlagInputUnsigned});
  Multiplier(rng, 8, i.positive_multiplier, i.positive_exponent);
  Multiplier(rng, 14, i.negative_multiplier, i.negative_exponent);
  Pair(rng, i);
}

template <typename T>
void Reduction(Rng& rng, T& i) {
  for (uint32_t* size : {&i.kept0, &i.reduced0, &i.kept1, &i.reduced1, &i.kept2, &i.reduced2}) {
    *size = rng.OneIn(2) ? 1 : Size(rng, 1, 4);
  }
  if (rng.OneIn(3)) i.kept2 = Channels(rng);
  if (rng.OneIn(3)) i.reduced2 = Channels(rng);
  i.flags = Flags(rng, {kFlagInputUnsigned});
}

void Randomize(Rng& rng, ReduceSumInstruction& i) {
  Reduction(rng, i);
  i.input_zero_point = ZeroPoint(rng, (i.flags & kFlagInputUnsigned) != 0);
  i.output_zero_point = ZeroPoint(rng, (i.flags & kFlagInputUnsigned) != 0);
  Multiplier(rng, 11, i.multiplier, i.exponent);
  Clamps(rng, i);
}

void Randomize(Rng& rng, ReduceMaxInstruction& i) { Reduction(rng, i); }

void Randomize(Rng& rng, ReduceMinInstruction& i) { Reduction(rng, i); }

void Randomize(Rng& rng, TableInstruction& i) { i.count = Size(rng, 1, 300); }

void Randomize(Rng& rng, CopyInstruction& i) {
  i.bytes = Size(rng, 1, rng.OneIn(3) ? 200 : 20);
  for (uint32_t* count : {&i.count0, &i.count1, &i.count2, &i.count3, &i.count4}) {
    *count = rng.OneIn(2) ? 1 : Size(rng, 1, 4);
  }
  for (uint32_t* stride : {&i.input_stride0, &i.input_stride1, &i.input_stride2, &i.input_stride3,
                           &i.input_stride4, &i.output_stride0, &i.output_stride1,
                           &i.output_stride2, &i.output_stride3, &i.output_stride4}) {
    *stride = rng.OneIn(5) ? 0 : Size(rng, 0, rng.OneIn(3) ? 300 : 30);
  }
}

void Randomize(Rng& rng, FillInstruction& i) {
  i.bytes = Size(rng, 1, 400);
  i.value = Size(rng, 0, 255);
}

void Randomize(Rng& rng, SoftmaxInstruction& i) {
  i.rows = Size(rng, 1, 3);
  // Sums of 512 and more, of elements that are alike, are a case of their own.
  i.depth = rng.OneIn(8) ? Size(rng, 1, 4000) : rng.OneIn(4) ? Size(rng, 200, 600) : Channels(rng);
  i.flags = Flags(rng, {kFlagInputUnsigned});
  Multiplier(rng, -17, i.multiplier, i.exponent);
  i.min_difference = rng.OneIn(6)   ? rng.Pick({0, -1, -255, -256, INT32_MIN})
                     : rng.OneIn(2) ? rng.Int32(-255, 0)
                                    : rng.Int32(-20, 0);
}

void Randomize(Rng& rng, L2NormalizationInstruction& i) {
  i.rows = Size(rng, 1, 4);
  i.depth = rng.OneIn(8) ? Size(rng, 1, 3000) : Channels(rng);
  i.flags = Flags(rng, {kFlagInputUnsigned});
  i.input_zero_point = ZeroPoint(rng, (i.flags & kFlagInputUnsigned) != 0);
}

// A band of rows of images that may be much larger. row_of(n, m, index, mode): the first and the
// last input row that an output row needs.
template <typename T, typename RowsOf>
void ResizeBand(Rng& rng, T& i, const RowsOf& rows_of) {
  i.batch = Size(rng, 1, 2);
  i.channels = Channels(rng);
  for (uint32_t* size : {&i.input_h, &i.input_w, &i.output_h, &i.output_w}) *size = Size(rng, 1, 7);
  if (rng.OneIn(8)) i.input_h = Size(rng, 1, INT32_MAX);
  if (rng.OneIn(8)) i.output_h = Size(rng, 1, INT32_MAX);
  i.mode = Size(rng, 0, 2);
  i.output_rows = Size(rng, 1, std::min(i.output_h, 7u));
  i.output_first = Size(rng, 0, i.output_h - i.output_rows);
  const int64_t first = rows_of(i.output_first)[0];
  const int64_t last = rows_of(int64_t{i.output_first} + i.output_rows - 1)[1];
  i.input_first = static_cast<uint32_t>(std::max<int64_t>(first - rng.Int(0, 2), 0));
  const int64_t end = std::min<int64_t>(last + 1 + rng.Int(0, 2), i.input_h);
  i.input_rows = static_cast<uint32_t>(end - i.input_first);
}

void Randomize(Rng& rng, ResizeBilinearInstruction& i) {
  i.flags = Flags(rng, {kFlagInputUnsigned});
  const auto axis = (i.flags & kFlagInputUnsigned) != 0 ? stepped::RealAxis : stepped::IntegerAxis;
  ResizeBand(rng, i, [&](int64_t row) { return axis(i.input_h, i.output_h, row, i.mode).cells; });
}

void Randomize(Rng& rng, ResizeNearestNeighborInstruction& i) {
  ResizeBand(rng, i, [&](int64_t row) {
    const int64_t cell = stepped::NearestCell(i.input_h, i.output_h, row, i.mode);
    return std::array<int64_t, 2>{cell, cell};
  });
}

template <typename T>
Instruction Random(Rng& rng) {
  T i;
  Randomize(rng, i);
  return i;
}

// Everything but what moves the memory's contents in and out.
constexpr Instruction (*kRandom[])(Rng&) = {
    Random<AddInstruction>,
    Random<Conv2DInstruction>,
    Random<CopyInstruction>,
    Random<DepthwiseConv2DInstruction>,
    Random<FillInstruction>,
    Random<L2NormalizationInstruction>,
    Random<LstmInstruction>,
    Random<MaximumInstruction>,
    Random<MinimumInstruction>,
    Random<MultiplyInstruction>,
    Random<Pool2DInstruction>,
    Random<PreluInstruction>,
    Random<ReduceMaxInstruction>,
    Random<ReduceMinInstruction>,
    Random<ReduceSumInstruction>,
    Random<ResizeBilinearInstruction>,
    Random<ResizeNearestNeighborInstruction>,
    Random<SoftmaxInstruction>,
    Random<TableInstruction>,
    Random<TransposeConv2DInstruction>,
};

// ---- Memory -------------------------------------------------------------------------------------

// The parameter segment begins at 0, so that all of the memory can be addressed in it.
struct Placed {
  Instruction instruction;
  Segments segments;
};

// Gives the operands addresses in either segment, in any order, with or without gaps; sometimes the
// output lies on an input that allows it. False if they need more memory than there is.
bool Place(Rng& rng, Placed& placed) {
  const MemoryAccesses accesses = AccessesOf(placed.instruction);
  std::vector<const MemoryAccess*> order;
  for (const MemoryAccess& access : accesses) {
    order.insert(order.begin() + rng.Int(0, static_cast<int64_t>(order.size())), &access);
  }
  std::map<const MemoryAccess*, uint64_t> addresses;
  const uint64_t activation_base = static_cast<uint64_t>(rng.Int(0, 600));
  uint64_t end = 0;
  for (const MemoryAccess* access : order) {
    if (rng.OneIn(2)) end += static_cast<uint64_t>(rng.Int(0, 5));
    addresses[access] = end;
    if (access->bytes > kMemoryBytes - end) return false;
    end += access->bytes;
  }
  const MemoryAccess& output = *(accesses.end() - 1);
  for (const MemoryAccess& access : accesses) {
    if (access.kind == MemoryAccess::Kind::kReadInPlace && rng.OneIn(3)) {
      addresses[&access] = addresses[&output];
    }
  }
  placed.segments.activation_base = static_cast<uint32_t>(activation_base);
  EncodedInstruction bytes = Encode(placed.instruction);
  for (const auto& [access, address] : addresses) {
    const bool is_activation = address >= activation_base && rng.OneIn(2);
    StoreLittleEndian(&bytes[access->word * size_t{4}],
                      is_activation ? static_cast<uint32_t>(address - activation_base)
                                    : static_cast<uint32_t>(address) | kParameterSegment);
  }
  placed.instruction = *Decode(bytes);
  return true;
}

// Valid channel records where the instruction reads some.
void WriteRecords(Rng& rng, const Placed& placed, Bytes& memory) {
  std::visit(
      [&](const auto& i) {
        if constexpr (requires { i.channel_address; }) {
          uint32_t count = 0, flags = 0;
          if constexpr (requires { i.output_c; }) {
            count = i.output_c;
            flags = i.flags;
          } else {
            count = 8 * i.units;
          }
          for (uint32_t c = 0; c < count; ++c) {
            uint8_t* record =
                &memory[placed.segments.Resolve(i.channel_address) + c * kChannelRecordBytes];
            int32_t multiplier = 0, exponent = 0;
            Multiplier(rng, 17, multiplier, exponent);
            const bool is_double = (flags & kFlagDouble) != 0;
            StoreLittleEndian<int32_t>(
                record, rng.OneIn(8) ? rng.Int32(INT32_MIN, INT32_MAX) : rng.Int32(-20000, 20000));
            StoreLittleEndian<int32_t>(record + 4, is_double ? 0 : multiplier);
            StoreLittleEndian<int64_t>(record + 8, static_cast<uint32_t>(exponent));
            if (is_double) StoreLittleEndian(record + 8, RandomScale(rng));
          }
        }
      },
      placed.instruction);
}

// ---- The test -----------------------------------------------------------------------------------

// Draws until an instruction is valid; records of channels are part of `memory`.
Placed RandomInstruction(Rng& rng, size_t kind, Bytes& memory) {
  for (;;) {
    Placed placed{.instruction = kRandom[kind](rng), .segments = {}};
    if (!Place(rng, placed)) continue;
    if (CheckInstruction(placed.instruction, placed.segments, kMemoryBytes).code !=
        FaultCode::kNone) {
      continue;
    }
    memory = RandomBytes(rng, kMemoryBytes);
    // Elements close to each other and at the ends of their range.
    if (rng.OneIn(6)) {
      const uint8_t mask = rng.Pick<uint8_t>({0x80, 0x81, 0x03, 0x00});
      for (uint8_t& byte : memory) byte &= mask;
    }
    WriteRecords(rng, placed, memory);
    return placed;
  }
}

// The instruction on a memory of that content; the outputs are the content afterwards.
RunResult RunOn(Core& core, const Placed& placed, const Bytes& memory, uint32_t split) {
  return RunProgram(
      core,
      {ParametersInstruction{.output_address = kParameterSegment, .bytes = split},
       InputInstruction{.output_address = kParameterSegment | split, .bytes = kMemoryBytes - split},
       placed.instruction,
       OutputInstruction{.input_address = kParameterSegment, .bytes = kMemoryBytes}},
      {.inputs = Bytes(memory.begin() + split, memory.end()),
       .parameters = Bytes(memory.begin(), memory.begin() + split),
       .segments = placed.segments});
}

struct Faces {
  explicit Faces(Rng& rng) {
    DeviceProfile profile = SmallProfile();
    profile.memory_bytes = kMemoryBytes;
    const bool is_default = rng.OneIn(8);
    if (!is_default) {
      profile.array_rows = Size(rng, 1, 8);
      profile.array_columns = Size(rng, 1, 8);
    }
    array = {profile.array_rows, profile.array_columns};
    name = std::to_string(array.rows) + "x" + std::to_string(array.columns);
    machine = MakeSteppedMachine({.rows = array.rows, .columns = array.columns});
    direct = MakeCore({.profile = profile, .features = *DetectCpuFeatures()});
    stepped = MakeCore({.profile = profile, .face = Face::kStepped});
    // Of a few pixels, or a few lines.
    const uint64_t slice = Size(rng, 1, rng.OneIn(2) ? 50 : 2000);
    sliced = MakeCore({.profile = profile,
                       .features = *DetectCpuFeatures(),
                       .work_limits = {.long_filter = 0,
                                       .long_narrow_filter = 0,
                                       .filter_slice = slice,
                                       .plain_slice = slice,
                                       .lstm_slice = slice,
                                       .pool_slice = slice}});
  }

  ArraySize array;
  std::string name;
  std::unique_ptr<SteppedMachine> machine;
  std::unique_ptr<Core> direct, stepped;
  std::unique_ptr<Core> sliced;  // direct, with all instructions in slices
};

// Which bits of `flags` were 1, and which were 0.
struct SeenFlags {
  uint32_t ones = 0;
  uint32_t zeros = 0;
};

int Rounds() {
  const char* text = std::getenv("ATOLL_STEPPED_ROUNDS");
  return text != nullptr ? std::atoi(text) : 1000;
}

TEST(SteppedMachine, EqualsTheDirectFaceInBytesAndCycles) {
  Rng rng(TestSeed(0xA7013));
  const int rounds = Rounds();
  std::map<std::string, int> seen = {
      {"END", rounds}, {"INPUT", rounds}, {"OUTPUT", rounds}, {"PARAMETERS", rounds}};
  std::map<std::string, SeenFlags> seen_flags;
  std::optional<Faces> faces;
  for (int round = 0; round < rounds; ++round) {
    if (round % 50 == 0) faces.emplace(rng);
    Bytes memory;
    const Placed placed =
        RandomInstruction(rng, static_cast<size_t>(round) % std::size(kRandom), memory);
    SCOPED_TRACE("round " + std::to_string(round) + ", " + faces->name +
                 " array: " + Disassemble(placed.instruction));
    const uint32_t split = Size(rng, 1, kMemoryBytes - 1);
    const RunResult direct = RunOn(*faces->direct, placed, memory, split);
    const RunResult stepped = RunOn(*faces->stepped, placed, memory, split);
    ASSERT_EQ(direct.event.kind, EventKind::kCompleted) << FaultCodeName(direct.event.fault);
    ASSERT_EQ(stepped.event.kind, EventKind::kCompleted) << FaultCodeName(stepped.event.fault);
    const auto [at, other] =
        std::mismatch(direct.outputs.begin(), direct.outputs.end(), stepped.outputs.begin());
    ASSERT_TRUE(at == direct.outputs.end())
        << "byte " << at - direct.outputs.begin() << ": " << int{*at} << " on the direct face, "
        << int{*other} << " on the stepped one";
    ASSERT_EQ(direct.event.detail, stepped.event.detail) << "cycles of the program";
    const RunResult sliced = RunOn(*faces->sliced, placed, memory, split);
    ASSERT_EQ(sliced.outputs, direct.outputs) << "in slices";
    ASSERT_EQ(sliced.event, direct.event) << "in slices";
    ASSERT_EQ(faces->machine->Run(placed.instruction, placed.segments, memory),
              ExecutionCycles(placed.instruction, faces->array));
    ASSERT_EQ(memory, stepped.outputs);

    const std::string mnemonic = Mnemonic(placed.instruction);
    ++seen[mnemonic];
    std::visit(
        [&](const auto& i) {
          if constexpr (requires { i.flags; }) {
            seen_flags[mnemonic].ones |= i.flags;
            seen_flags[mnemonic].zeros |= ~i.flags;
          }
        },
        placed.instruction);
  }
  for (const InstructionInfo& info : InstructionTable()) {
    EXPECT_GE(seen[info.mnemonic], rounds / static_cast<int>(std::size(kRandom))) << info.mnemonic;
  }
  const uint32_t filter = kFlagInputUnsigned | kFlagWeightsUnsigned | kFlagDouble;
  for (const auto& [mnemonic, flags] : seen_flags) {
    uint32_t all = kFlagInputUnsigned;
    if (mnemonic.ends_with("CONV_2D")) all = filter;
    if (mnemonic == "ADD") all |= kFlagSubtract | kFlagSquare;
    if (mnemonic == "POOL_2D") all |= kFlagAverage;
    EXPECT_EQ(flags.ones, all) << mnemonic;
    EXPECT_EQ(flags.zeros & all, all) << mnemonic;
  }
}

// What a program of those two did to a memory, whose content is `memory` before.
RunResult RunPair(Core& core, const Placed& conv, const AddInstruction& add, const Bytes& memory) {
  return RunProgram(
      core,
      {ParametersInstruction{.output_address = kParameterSegment, .bytes = kMemoryBytes},
       conv.instruction, add,
       OutputInstruction{.input_address = kParameterSegment, .bytes = kMemoryBytes}},
      {.inputs = {}, .parameters = memory, .segments = conv.segments});
}

// An ADD behind a CONV_2D, wherever operands and results lie: chained, if it may be, it leaves the
// same bytes as by itself, sooner, on both faces; if it may not be, both say so when its turn
// comes.
TEST(SteppedMachine, AChainedAddIsAnInstructionOfItsOwn) {
  Rng rng(TestSeed(0xADD));
  std::optional<Faces> faces;
  int chained = 0, sooner = 0, refused = 0, second = 0, in_place = 0;
  for (int round = 0; round < TestCount(600); ++round) {
    if (round % 50 == 0) faces.emplace(rng);
    Bytes memory;
    const Placed conv = RandomInstruction(rng, 1, memory);
    const auto& c = std::get<Conv2DInstruction>(conv.instruction);
    AddInstruction add;
    Randomize(rng, add);
    add.count0 = add.count1 = add.count2 = 1;
    add.count3 = c.batch * c.output_h * c.output_w * c.output_c;
    add.input1_stride3 = add.input2_stride3 = 1;
    if (rng.OneIn(10)) add.count3 += 1;
    if (rng.OneIn(4)) {
      add.count1 = c.batch * c.output_h;
      add.count3 = c.output_w * c.output_c;
      add.input1_stride1 = add.input2_stride1 = add.count3;
    }
    const auto address = [&] {
      return rng.OneIn(3) ? rng.Pick({c.output_address, c.input_address, c.weight_address,
                                      c.channel_address})
                          : kParameterSegment | Size(rng, 0, kMemoryBytes);
    };
    add.input1_address = rng.OneIn(3) ? address() : c.output_address;
    add.input2_address = rng.OneIn(3) ? c.output_address : address();
    add.output_address =
        rng.OneIn(2) ? rng.Pick({add.input1_address, add.input2_address}) : address();
    if (CheckInstruction(add, conv.segments, kMemoryBytes).code != FaultCode::kNone) continue;
    SCOPED_TRACE("round " + std::to_string(round) + ", " + faces->name +
                 " array: " + Disassemble(conv.instruction) + "; " + Disassemble(add));
    const RunResult apart = RunPair(*faces->stepped, conv, add, memory);
    ASSERT_EQ(apart.event.kind, EventKind::kCompleted) << FaultCodeName(apart.event.fault);
    const RunResult apart_direct = RunPair(*faces->direct, conv, add, memory);
    ASSERT_EQ(apart_direct.outputs, apart.outputs);
    ASSERT_EQ(apart_direct.event, apart.event);

    add.flags |= kFlagChained;
    for (Core* core : {faces->sliced.get(), faces->stepped.get(), faces->direct.get()}) {
      ASSERT_TRUE(ResetByRegister(*core).ok());
      const RunResult result = RunPair(*core, conv, add, memory);
      if (MayChain(conv.instruction, add, conv.segments)) {
        ASSERT_EQ(result.event.kind, EventKind::kCompleted) << FaultCodeName(result.event.fault);
        ASSERT_EQ(result.outputs, apart.outputs);
        ASSERT_LE(result.event.detail, apart.event.detail);
        sooner += result.event.detail < apart.event.detail;
      } else {
        ASSERT_EQ(result.event.kind, EventKind::kFaulted);
        ASSERT_EQ(result.event.detail, 2u) << "the ADD";
        ASSERT_EQ(ReadFault(*core), (Fault{FaultCode::kBadOperand, 16})) << "its flags";
        ASSERT_EQ(ReadRegister(*core, Register::kInstructions, RegisterWidth::k64), 2u);
        ASSERT_TRUE(ResetByRegister(*core).ok());
      }
    }
    if (!MayChain(conv.instruction, add, conv.segments)) {
      ++refused;
      continue;
    }
    ASSERT_EQ(ReadRegister(*faces->direct, Register::kCycles, RegisterWidth::k64),
              ReadRegister(*faces->stepped, Register::kCycles, RegisterWidth::k64));
    ++chained;
    second += add.input2_address == c.output_address;
    in_place +=
        add.output_address == add.input1_address || add.output_address == add.input2_address;
  }
  for (const int seen : {chained, sooner, refused, second, in_place}) {
    EXPECT_GT(seen, TestCount(600) / 40);
  }
}

}  // namespace
}  // namespace atollrt
