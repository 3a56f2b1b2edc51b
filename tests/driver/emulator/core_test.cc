// SPDX-License-Identifier: Apache-2.0
#include "driver/emulator/core.h"

#include <unistd.h>

#include <fstream>

#include "tests/driver/emulator/emulated_program.h"
#include "tests/support/allocation_meter.h"
#include "tests/support/assembled.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

constexpr uint32_t kDense = 64;  // inputs and outputs of the layer below

// A layer of 64 to 64 channels; weights at the parameter segment, records behind them.
Conv2DInstruction DenseLayer() {
  return {.input_address = 0,
          .weight_address = kParameterSegment,
          .channel_address = kParameterSegment | (kDense * kDense),
          .output_address = 0x100,
          .batch = 1,
          .input_h = 1,
          .input_w = 1,
          .input_c = kDense,
          .output_h = 1,
          .output_w = 1,
          .output_c = kDense,
          .kernel_h = 1,
          .kernel_w = 1,
          .stride_h = 1,
          .stride_w = 1,
          .dilation_h = 1,
          .dilation_w = 1,
          .groups = 1,
          .clamp_min = -128,
          .clamp_max = 127};
}
constexpr uint32_t kDenseParameters = kDense * kDense + kDense * kChannelRecordBytes;

// Weights all `weight`, multipliers 1/2 (q = 2^30, e = 0).
Bytes DenseParameters(int8_t weight) {
  Bytes bytes(kDenseParameters, static_cast<uint8_t>(weight));
  for (uint32_t c = 0; c < kDense; ++c) {
    uint8_t* record = &bytes[kDense * kDense + c * kChannelRecordBytes];
    std::fill_n(record, kChannelRecordBytes, uint8_t{0});
    StoreLittleEndian<int32_t>(record + 4, 1 << 30);
  }
  return bytes;
}

const std::vector<Instruction>& CachingProgram() {
  static const std::vector<Instruction> program = {
      ParametersInstruction{.output_address = kParameterSegment, .bytes = kDenseParameters},
      EndInstruction{}};
  return program;
}
const std::vector<Instruction>& InferenceProgram() {
  static const std::vector<Instruction> program = {
      InputInstruction{.bytes = kDense}, DenseLayer(),
      OutputInstruction{.input_address = 0x100, .bytes = kDense}, EndInstruction{}};
  return program;
}
constexpr uint32_t kParameterBase = 0x8000;
constexpr StartMessage kStartCaching{
    .program_offset = 0, .instruction_count = 2, .parameter_base = kParameterBase, .request_id = 1};
constexpr StartMessage kStartInference{.program_offset = 2 * kInstructionBytes,
                                       .instruction_count = 4,
                                       .parameter_base = kParameterBase,
                                       .request_id = 2};

void RunToEvent(Core& core, EventKind kind = EventKind::kCompleted) {
  while (core.Step()) {
  }
  const Bytes event = TakeAll(core.events());
  ASSERT_EQ(event.size(), kEventBytes);
  EXPECT_EQ(DecodeEvent(event)->kind, kind);
}

void LoadDense(Core& core, int8_t weight) {
  Send(core, ProgramRecord(CachingProgram()));
  Send(core, ProgramRecord(InferenceProgram(), 2 * kInstructionBytes));
  Send(core, StartRecord(kStartCaching));
  Send(core, Record(RecordTag::kParameters, DenseParameters(weight)));
  RunToEvent(core);
}

Bytes InferDense(Core& core, uint8_t value) {
  Send(core, StartRecord(kStartInference));
  Send(core, Record(RecordTag::kInput, Bytes(kDense, value)));
  RunToEvent(core);
  return TakeAll(core.outputs());
}

// Takes a byte, fills so many, and ends.
std::vector<Instruction> FillingProgram(uint32_t bytes) {
  return {InputInstruction{.bytes = 1}, FillInstruction{.output_address = 0x100, .bytes = bytes},
          EndInstruction{}};
}
constexpr StartMessage kStartFilling{.program_offset = 0, .instruction_count = 3, .request_id = 3};

void RunToCycles(Core& core, uint64_t wanted) {
  while (core.Step()) {
  }
  const Bytes event = TakeAll(core.events());
  ASSERT_EQ(event.size(), kEventBytes);
  EXPECT_EQ(DecodeEvent(event)->kind, EventKind::kCompleted);
  EXPECT_EQ(DecodeEvent(event)->detail, wanted);
}

TEST(Core, KeepsTimeOnceInEachRunOrNever) {
  const DeviceProfile profile = *FindDeviceProfile("");
  const uint64_t cycles =
      SummarizeProgram(FillingProgram(64), {.array = {64, 64},
                                            .clock_hz = profile.clock_hz,
                                            .link_bytes_per_second = profile.link_bytes_per_second})
          .total;
  for (const Timekeeping timekeeping :
       {Timekeeping::kOnce, Timekeeping::kEachRun, Timekeeping::kNever}) {
    const auto core = MakeCore({.profile = SmallProfile(), .timekeeping = timekeeping});
    Send(*core, ProgramRecord(FillingProgram(64)));
    for (int i = 0; i < 2; ++i) {
      Send(*core, StartRecord(kStartFilling));
      Send(*core, Record(RecordTag::kInput, Bytes(1)));
      RunToCycles(*core, timekeeping == Timekeeping::kNever ? 0 : cycles);
    }
  }
}

// The device's time of a program is worked out once and holds as long as program memory does.
TEST(Core, TellsTheTimeOfProgramsThatRunAgainOrChange) {
  constexpr uint32_t kFew = 64, kMany = 1 << 14;
  const ScheduleOptions options{
      .array = {64, 64},
      .clock_hz = FindDeviceProfile("")->clock_hz,
      .link_bytes_per_second = FindDeviceProfile("")->link_bytes_per_second};
  const uint64_t few = SummarizeProgram(FillingProgram(kFew), options).total;
  const uint64_t many = SummarizeProgram(FillingProgram(kMany), options).total;
  ASSERT_NE(few, many);
  const auto core = MakeCore();
  const auto write = [&](uint32_t bytes) { Send(*core, ProgramRecord(FillingProgram(bytes))); };
  const auto start = [&] { Send(*core, StartRecord(kStartFilling)); };
  const auto finish = [&](uint64_t wanted) {
    Send(*core, Record(RecordTag::kInput, Bytes(1)));
    RunToCycles(*core, wanted);
  };
  write(kFew);
  for (int i = 0; i < 3; ++i) {
    start();
    finish(few);
  }
  write(kMany);
  for (int i = 0; i < 2; ++i) {
    start();
    finish(many);
  }
  // While it runs, ahead of what has run and at its beginning; and as it is then.
  start();
  EXPECT_FALSE(core->Step());
  Send(*core,
       ProgramRecord({FillInstruction{.output_address = 0x100, .bytes = kFew}}, kInstructionBytes));
  finish(few);
  start();
  finish(few);
  start();
  Send(*core, Record(RecordTag::kInput, Bytes(1)));
  EXPECT_TRUE(core->Step());
  write(kMany);
  RunToCycles(*core, many);
  start();
  finish(many);
  // A part of it is another program.
  Send(*core, ProgramRecord({EndInstruction{}}, kInstructionBytes));
  start();
  finish(SummarizeProgram(std::vector<Instruction>{InputInstruction{.bytes = 1}, EndInstruction{}},
                          options)
             .total);
}

TEST(Core, AnswersRegistersAsTheProfileSays) {
  const auto core = MakeCore({.profile = *FindDeviceProfile("32x32")});
  const auto read32 = [&](Register address) {
    return ReadRegister(*core, address, RegisterWidth::k32);
  };
  EXPECT_EQ(read32(Register::kId), kDeviceId);
  EXPECT_EQ(read32(Register::kIsa), 1u);
  EXPECT_EQ(read32(Register::kArrayRows), 32u);
  EXPECT_EQ(read32(Register::kArrayColumns), 32u);
  EXPECT_EQ(read32(Register::kClockKhz), 500000u);
  EXPECT_EQ(read32(Register::kMemoryBytes), 8u << 20);
  EXPECT_EQ(read32(Register::kProgramBytes), 1u << 20);
  EXPECT_EQ(read32(Register::kLinkKbps), 455000u);
  EXPECT_EQ(read32(Register::kStatus), 0u);
  EXPECT_EQ(read32(Register::kFaultCode), 0u);
}

TEST(Core, StallsOnEveryRequestThatNoRegisterAnswers) {
  const auto core = MakeCore();
  const auto control = [&](uint32_t address, RegisterWidth width, RegisterAccess access,
                           Bytes data) {
    return core->Control(RegisterRequest(address, width, access), data).code();
  };
  constexpr auto kStall = StatusCode::kInvalidArgument;
  const Bytes four(4), eight(8);
  using enum RegisterWidth;
  using enum RegisterAccess;
  EXPECT_EQ(control(0x0034, k32, kRead, four), kStall);   // no register
  EXPECT_EQ(control(0x10000, k32, kRead, four), kStall);  // above 16 bits
  EXPECT_EQ(control(0x0000, k64, kRead, eight), kStall);  // wrong width
  EXPECT_EQ(control(0x0100, k32, kRead, four), kStall);
  EXPECT_EQ(control(0x0000, k32, kRead, eight), kStall);  // wrong length
  EXPECT_EQ(control(0x0000, k32, kWrite, four), kStall);  // read-only
  EXPECT_EQ(control(0x0020, k32, kRead, four), kStall);   // write-only
  EXPECT_EQ(control(0x0020, k32, kWrite, four), kStall);  // 0 is no command
  EXPECT_EQ(core->Control({.request_type = 0x80, .request = 1}, {}).code(), kStall);
  EXPECT_TRUE(ResetByRegister(*core).ok());
}

TEST(Core, RefusesImpossibleProfiles) {
  CoreOptions options{.profile = SmallProfile()};
  options.profile.array_rows = 0;
  EXPECT_EQ(Core::Create(options).code(), StatusCode::kInvalidArgument);
  options.profile = SmallProfile();
  options.profile.memory_bytes = uint64_t{1} << 33;
  EXPECT_EQ(Core::Create(options).code(), StatusCode::kInvalidArgument);
  options = {.profile = SmallProfile(), .threads = 0};
  EXPECT_EQ(Core::Create(options).code(), StatusCode::kInvalidArgument);
}

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t all = 0, resident = 0;
  statm >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// A device says how much memory it has, and the one that stands in for it has as much.
TEST(Core, TakesNoMemoryForWhatNobodyWrites) {
  CoreOptions options{.profile = SmallProfile()};
  options.profile.memory_bytes = uint64_t{1} << 31;
  options.profile.program_memory_bytes = uint64_t{1} << 31;
  const int64_t before = ResidentBytes();
  auto core = Core::Create(options);
  ASSERT_TRUE(core.ok()) << core.status().message();
  EXPECT_LT(ResidentBytes() - before, int64_t{256} << 20);
  EXPECT_TRUE(ResetByRegister(**core).ok());
  EXPECT_LT(ResidentBytes() - before, int64_t{256} << 20);
}

TEST(Core, WaitsForEachStreamAndTakesItInPieces) {
  const auto core = MakeCore();
  const std::vector<Instruction> program = {InputInstruction{.bytes = 4},
                                            ParametersInstruction{.output_address = 4, .bytes = 1},
                                            OutputInstruction{.bytes = 5}, EndInstruction{}};
  Send(*core, ProgramRecord(program));
  EXPECT_FALSE(core->Step());
  Send(*core, StartRecord({.instruction_count = 4}));
  EXPECT_FALSE(core->Step());
  EXPECT_EQ(core->status(), CoreStatus::kRunning);
  Send(*core, Record(RecordTag::kInput, Bytes{1, 2, 3}));
  EXPECT_TRUE(core->Step());
  EXPECT_FALSE(core->Step());
  EXPECT_EQ(ReadRegister(*core, Register::kInstructions, RegisterWidth::k64), 0u);
  Send(*core, Record(RecordTag::kInput, Bytes{4}));
  EXPECT_TRUE(core->Step());
  EXPECT_FALSE(core->Step());
  Send(*core, Record(RecordTag::kParameters, Bytes{5}));
  RunToEvent(*core);
  EXPECT_EQ(TakeAll(core->outputs()), (Bytes{1, 2, 3, 4, 5}));
  EXPECT_EQ(core->status(), CoreStatus::kIdle);
}

TEST(Core, TakesStreamsSentBeforeTheStart) {
  const auto core = MakeCore();
  Send(*core, Record(RecordTag::kInput, Bytes{1, 2}));
  Send(*core, ProgramRecord(
                  {InputInstruction{.bytes = 2}, OutputInstruction{.bytes = 2}, EndInstruction{}}));
  Send(*core, StartRecord({.instruction_count = 3}));
  RunToEvent(*core);
  EXPECT_EQ(TakeAll(core->outputs()), (Bytes{1, 2}));
}

TEST(Core, CountsCyclesAndInstructions) {
  const auto core = MakeCore({.profile = *FindDeviceProfile("")});
  LoadDense(*core, 1);
  // The link brings 455 bytes in 500 cycles.
  const uint64_t caching = DivideRoundingUp(kDenseParameters * 500u, 455u);
  EXPECT_EQ(ReadRegister(*core, Register::kCycles, RegisterWidth::k64), caching);
  InferDense(*core, 1);
  // CONV_2D is issued as the second instruction: first weights, one tile with M = 1, max(1, 64) +
  // 126. OUTPUT takes 1, 64 bytes on the link 71.
  const uint64_t inference = 2 * 64 + 64 + (64 + 126) + 1 + 71;
  EXPECT_EQ(ReadRegister(*core, Register::kCycles, RegisterWidth::k64), caching + inference);
  EXPECT_EQ(ReadRegister(*core, Register::kInstructions, RegisterWidth::k64), 6u);
  ASSERT_TRUE(ResetByRegister(*core).ok());
  EXPECT_EQ(ReadRegister(*core, Register::kCycles, RegisterWidth::k64), 0u);
  EXPECT_EQ(ReadRegister(*core, Register::kInstructions, RegisterWidth::k64), 0u);
}

TEST(Core, PacksWeightsAgainOnlyWhenTheyChange) {
  const auto core = MakeCore();
  LoadDense(*core, 1);
  // 64 · x · w, halved.
  EXPECT_EQ(InferDense(*core, 3), Bytes(kDense, 96));
  EXPECT_EQ(InferDense(*core, 2), Bytes(kDense, 64));
  EXPECT_EQ(core->direct_array().packings(), 1u);
  LoadDense(*core, -1);
  EXPECT_EQ(InferDense(*core, 3), Bytes(kDense, static_cast<uint8_t>(-96)));
  EXPECT_EQ(InferDense(*core, 1), Bytes(kDense, static_cast<uint8_t>(-32)));
  EXPECT_EQ(core->direct_array().packings(), 2u);
}

TEST(Core, KnowsWeightsThatCameBack) {
  const auto core = MakeCore();
  const Bytes right(kDense, 96);
  for (int i = 0; i < 4; ++i) {
    LoadDense(*core, 1);
    EXPECT_EQ(InferDense(*core, 3), right);
    // Whoever is overwritten once may be so again: from then on the bytes are kept to compare.
    EXPECT_EQ(core->direct_array().packings(), i == 0 ? 1u : 2u);
  }
  // Others in between that nobody used.
  LoadDense(*core, -1);
  LoadDense(*core, 1);
  EXPECT_EQ(InferDense(*core, 3), right);
  EXPECT_EQ(core->direct_array().packings(), 2u);
  LoadDense(*core, 2);
  EXPECT_EQ(InferDense(*core, 3), Bytes(kDense, 127));
  EXPECT_EQ(core->direct_array().packings(), 3u);
}

TEST(Core, PacksWeightsAgainWhenAnInstructionWritesThem) {
  const auto core = MakeCore();
  LoadDense(*core, 1);
  EXPECT_EQ(InferDense(*core, 2), Bytes(kDense, 64));
  // One weight of channel 5 becomes 11, one multiplier 0.
  RunProgram(*core,
             {FillInstruction{.output_address = 5 * kDense + 9, .bytes = 1, .value = 11},
              FillInstruction{.output_address = kDense * kDense + 7 * kChannelRecordBytes + 4,
                              .bytes = 4,
                              .value = 0}},
             {.segments = {.activation_base = kParameterBase}});
  Send(*core, ProgramRecord(InferenceProgram(), 2 * kInstructionBytes));
  Bytes expected(kDense, 64);
  expected[5] = 74;
  expected[7] = 0;
  EXPECT_EQ(InferDense(*core, 2), expected);
}

TEST(Core, KeepsWeightsApartByWhereTheSegmentsAre) {
  const auto core = MakeCore();
  LoadDense(*core, 1);
  EXPECT_EQ(InferDense(*core, 1), Bytes(kDense, 32));
  StartMessage elsewhere = kStartCaching;
  elsewhere.parameter_base = 0x4000;
  Send(*core, StartRecord(elsewhere));
  Send(*core, Record(RecordTag::kParameters, DenseParameters(2)));
  RunToEvent(*core);
  StartMessage inference = kStartInference;
  inference.parameter_base = 0x4000;
  Send(*core, StartRecord(inference));
  Send(*core, Record(RecordTag::kInput, Bytes(kDense, 1)));
  RunToEvent(*core);
  EXPECT_EQ(TakeAll(core->outputs()), Bytes(kDense, 64));
  EXPECT_EQ(InferDense(*core, 1), Bytes(kDense, 32));
  EXPECT_EQ(core->direct_array().packings(), 2u);
}

TEST(Core, ChecksChannelRecordsAnewWhenTheyChange) {
  const auto core = MakeCore();
  LoadDense(*core, 1);
  InferDense(*core, 1);
  Bytes parameters = DenseParameters(1);
  parameters[kDense * kDense + 9 * kChannelRecordBytes + 15] = 1;
  Send(*core, StartRecord(kStartCaching));
  Send(*core, Record(RecordTag::kParameters, parameters));
  RunToEvent(*core);
  Send(*core, StartRecord(kStartInference));
  Send(*core, Record(RecordTag::kInput, Bytes(kDense, 1)));
  RunToEvent(*core, EventKind::kFaulted);
  EXPECT_EQ(ReadFault(*core), (Fault{FaultCode::kBadOperand, 9}));
  EXPECT_EQ(ReadRegister(*core, Register::kFaultInstruction, RegisterWidth::k32), 1u);
}

TEST(Core, RunsTheNewProgramAfterItWasOverwritten) {
  const auto core = MakeCore();
  for (uint32_t value = 0; value < 3; ++value) {
    const RunResult result = RunProgram(
        *core, {FillInstruction{.bytes = 1, .value = value}, OutputInstruction{.bytes = 1}});
    EXPECT_EQ(result.outputs, Bytes{static_cast<uint8_t>(value)});
  }
}

TEST(Core, AllocatesNothingInSteadyInference) {
  const auto core = MakeCore();
  LoadDense(*core, 1);
  Bytes request = StartRecord(kStartInference);
  Append(request, Record(RecordTag::kInput, Bytes(kDense, 1)));
  Bytes outputs(kDense), event(kEventBytes);
  const AllocationMeter meter;
  int64_t before = 0;
  for (int round = 0; round < 20; ++round) {
    if (round == 5) before = meter.count();
    core->AcceptBulkOut(request);
    while (core->Step()) {
    }
    core->outputs().Take(outputs);
    core->events().Take(event);
  }
  EXPECT_EQ(meter.count() - before, 0);
  EXPECT_EQ(outputs, Bytes(kDense, 32));
}

TEST(Core, AllocatesNothingForARecurrentLayerInSteadyInference) {
  const auto core = MakeCore();
  const LstmInstruction lstm = Assembled<LstmInstruction>(
      "weight_address=act+4096, channel_address=act+8192, hidden_address=act+12288, "
      "cell_address=act+12544, output_address=act+12800, batch=1, steps=3, inputs=5, units=7");
  Send(*core, ProgramRecord({FillInstruction{.bytes = 0x4000}, lstm, EndInstruction{}}));
  const Bytes start = StartRecord({.instruction_count = 3});
  Bytes event(kEventBytes);
  const AllocationMeter meter;
  int64_t before = 0;
  for (int round = 0; round < 20; ++round) {
    if (round == 5) before = meter.count();
    core->AcceptBulkOut(start);
    while (core->Step()) {
    }
    core->events().Take(event);
    EXPECT_EQ(DecodeEvent(event)->kind, EventKind::kCompleted);
  }
  EXPECT_EQ(meter.count() - before, 0);
}

struct ProgramFault {
  const char* name;
  std::vector<Instruction> program;
  StartMessage start;
  Fault fault;
  uint32_t instruction;
};

TEST(Core, ReportsFaultsOfPrograms) {
  const FillInstruction fill{.bytes = 1};
  const uint32_t program_bytes = 64 * kInstructionBytes;
  const ProgramFault cases[] = {
      {"no instructions", {fill}, {.instruction_count = 0}, {FaultCode::kBadProgram, 0}, 0},
      {"offset inside an instruction",
       {fill},
       {.program_offset = 4, .instruction_count = 1},
       {FaultCode::kBadProgram, 0},
       0},
      {"offset beyond memory",
       {fill},
       {.program_offset = program_bytes, .instruction_count = 1},
       {FaultCode::kBadProgram, 0},
       0},
      {"length beyond memory",
       {fill},
       {.program_offset = 128, .instruction_count = 64},
       {FaultCode::kBadProgram, 0},
       0},
      {"length that wraps",
       {fill},
       {.program_offset = 128, .instruction_count = 0xFFFFFFFF},
       {FaultCode::kBadProgram, 0},
       0},
      {"no END", {fill, fill}, {.instruction_count = 2}, {FaultCode::kBadProgram, 0}, 2},
      {"never written", {fill}, {.instruction_count = 2}, {FaultCode::kBadOpcode, 0}, 1},
      {"bad operand",
       {fill, FillInstruction{}},
       {.instruction_count = 2},
       {FaultCode::kBadOperand, 2},
       1},
      {"bad address",
       {FillInstruction{.output_address = 0x7FFFFFFF, .bytes = 1}},
       {.instruction_count = 1},
       {FaultCode::kBadAddress, 1},
       0},
      {"overlap",
       {Assembled<CopyInstruction>("bytes=1, count0=1, count1=1, count2=1, count3=1, count4=1")},
       {.instruction_count = 1},
       {FaultCode::kOverlap, 1},
       0},
  };
  for (const ProgramFault& test : cases) {
    const auto core = MakeCore();
    Send(*core, ProgramRecord(test.program));
    StartMessage start = test.start;
    start.request_id = 77;
    Send(*core, StartRecord(start));
    while (core->Step()) {
    }
    EXPECT_EQ(ReadFault(*core), test.fault) << test.name;
    EXPECT_EQ(ReadRegister(*core, Register::kFaultInstruction, RegisterWidth::k32),
              test.instruction)
        << test.name;
    const Event event{.kind = EventKind::kFaulted,
                      .fault = test.fault.code,
                      .request_id = 77,
                      .detail = test.instruction};
    EXPECT_EQ(*DecodeEvent(TakeAll(core->events())), event) << test.name;
    const auto code = static_cast<uint8_t>(test.fault.code);
    EXPECT_EQ(TakeAll(core->fault_words()), (Bytes{code, 0, 0, 0})) << test.name;
  }
}

// A dense layer and an ADD on its result, with 64 bytes at 0x200.
AddInstruction ChainedSum() {
  return {.input1_address = 0x200,
          .input2_address = 0x100,
          .output_address = 0x300,
          .count0 = 1,
          .count1 = 1,
          .count2 = 1,
          .count3 = kDense,
          .input1_stride3 = 1,
          .input2_stride3 = 1,
          .flags = kFlagChained,
          .input1_multiplier = 1 << 30,
          .input1_exponent = 1,
          .input2_multiplier = 1 << 30,
          .input2_exponent = 1,
          .output_multiplier = 1 << 30,
          .output_exponent = 1,
          .clamp_min = -128,
          .clamp_max = 127};
}

TEST(Core, RunsAChainedAddWithItsConvolution) {
  Conv2DInstruction rows = DenseLayer();
  rows.batch = 4;
  AddInstruction chained = ChainedSum();
  chained.count3 = 4 * kDense;
  AddInstruction apart = chained;
  apart.flags = 0;
  std::vector<RunResult> results;
  for (const AddInstruction& add : {chained, apart}) {
    for (const Face face : {Face::kDirect, Face::kStepped}) {
      const auto core = MakeCore({.profile = SmallProfile(), .face = face});
      results.push_back(RunProgram(
          *core,
          {ParametersInstruction{.output_address = kParameterSegment, .bytes = kDenseParameters},
           InputInstruction{.bytes = 4 * kDense},
           FillInstruction{.output_address = 0x200, .bytes = 0x100}, rows, add,
           OutputInstruction{.bytes = 0x400}},
          {.inputs = Bytes(4 * kDense, 3),
           .parameters = DenseParameters(1),
           .segments = {.parameter_base = kParameterBase}}));
      EXPECT_EQ(results.back().outputs, results[0].outputs);
      EXPECT_EQ(ReadRegister(*core, Register::kInstructions, RegisterWidth::k64), 7u);
    }
  }
  EXPECT_EQ(results[0].event, results[1].event);
  EXPECT_EQ(results[2].event, results[3].event);
  EXPECT_LT(results[0].event.detail, results[2].event.detail) << "cycles";
}

// Whatever is wrong with a chained ADD, it is its fault, and the convolution has run.
TEST(Core, FaultsAtAChainedAddThatIsBad) {
  const auto with = [](auto change) {
    AddInstruction add = ChainedSum();
    change(add);
    return add;
  };
  const Fault flags{FaultCode::kBadOperand, 16};
  const struct {
    const char* name;
    std::vector<Instruction> program;
    Fault fault;
  } cases[] = {
      {"not behind the convolution",
       {DenseLayer(), FillInstruction{.output_address = 0x300, .bytes = 1}, ChainedSum()},
       flags},
      {"behind another instruction", {FillInstruction{.bytes = 1}, ChainedSum()}, flags},
      {"first in the program", {ChainedSum()}, flags},
      {"onto what the convolution reads",
       {DenseLayer(), with([](AddInstruction& add) { add.output_address = 0; })},
       flags},
      {"beyond the memory",
       {DenseLayer(), with([](AddInstruction& add) { add.output_address = 0x7FFFFFFF; })},
       {FaultCode::kBadAddress, 3}},
      {"not of the convolution, and beyond the memory",
       {DenseLayer(), with([](AddInstruction& add) {
          add.input2_address = 0x180;
          add.output_address = 0x7FFFFFFF;
        })},
       flags},
      {"partly onto an operand",
       {DenseLayer(), with([](AddInstruction& add) { add.output_address = 0x210; })},
       {FaultCode::kOverlap, 1}},
  };
  for (const auto& test : cases) {
    for (const Face face : {Face::kDirect, Face::kStepped}) {
      SCOPED_TRACE(std::string(test.name) + (face == Face::kDirect ? ", direct" : ", stepped"));
      const auto core = MakeCore({.profile = SmallProfile(), .face = face});
      LoadDense(*core, 1);
      const uint64_t before = ReadRegister(*core, Register::kInstructions, RegisterWidth::k64);
      const RunResult result =
          RunProgram(*core, test.program, {.segments = {.parameter_base = kParameterBase}});
      EXPECT_EQ(result.event.kind, EventKind::kFaulted);
      EXPECT_EQ(result.event.detail, test.program.size() - 1);
      EXPECT_EQ(ReadFault(*core), test.fault);
      EXPECT_EQ(ReadRegister(*core, Register::kInstructions, RegisterWidth::k64) - before,
                test.program.size() - 1);
    }
  }
}

// It is the program that counts, not what stands before it in program memory.
TEST(Core, ChecksAChainAnewInEveryProgram) {
  for (const Face face : {Face::kDirect, Face::kStepped}) {
    const auto core = MakeCore({.profile = SmallProfile(), .face = face});
    LoadDense(*core, 1);
    Send(*core, ProgramRecord({DenseLayer(), ChainedSum(), EndInstruction{}}));
    StartMessage start{.instruction_count = 3, .parameter_base = kParameterBase};
    Send(*core, StartRecord(start));
    RunToEvent(*core);
    start.program_offset = kInstructionBytes;
    start.instruction_count = 2;
    Send(*core, StartRecord(start));
    RunToEvent(*core, EventKind::kFaulted);
    EXPECT_EQ(ReadFault(*core), (Fault{FaultCode::kBadOperand, 16}));
  }
}

TEST(Core, ReportsNonzeroUnusedWords) {
  const auto core = MakeCore();
  Bytes record = ProgramRecord({EndInstruction{}});
  record[kRecordHeaderBytes + kInstructionsPrefixBytes + 4 * 31 + 3] = 1;
  Send(*core, record);
  Send(*core, StartRecord({.instruction_count = 1}));
  RunToEvent(*core, EventKind::kFaulted);
  EXPECT_EQ(ReadFault(*core), (Fault{FaultCode::kBadOpcode, 31}));
}

TEST(Core, FaultsOnRecordsThatItDoesNotExpect) {
  const auto core = MakeCore();
  Send(*core, {0, 0, 0, 0, 5, 0, 0, 0});
  EXPECT_EQ(ReadFault(*core), (Fault{FaultCode::kBadStream, 5}));
  const Bytes event = TakeAll(core->events());
  EXPECT_EQ(*DecodeEvent(event),
            (Event{.kind = EventKind::kFaulted, .fault = FaultCode::kBadStream}));
}

TEST(Core, FaultsOnAStartWhileAProgramRuns) {
  const auto core = MakeCore();
  Send(*core, ProgramRecord(
                  {FillInstruction{.bytes = 1}, InputInstruction{.bytes = 1}, EndInstruction{}}));
  Send(*core, StartRecord({.instruction_count = 3, .request_id = 3}));
  while (core->Step()) {
  }
  Send(*core, StartRecord({.instruction_count = 3, .request_id = 4}));
  EXPECT_EQ(ReadFault(*core), (Fault{FaultCode::kBadStream, 8}));
  EXPECT_EQ(*DecodeEvent(TakeAll(core->events())), (Event{.kind = EventKind::kFaulted,
                                                          .fault = FaultCode::kBadStream,
                                                          .request_id = 3,
                                                          .detail = 1}));
}

TEST(Core, IgnoresEverythingAfterAFaultUntilReset) {
  const auto core = MakeCore();
  Send(*core, {0, 0, 0, 0, 5, 0, 0, 0});
  TakeAll(core->events());
  Send(*core, ProgramRecord({EndInstruction{}}));
  Send(*core, StartRecord({.instruction_count = 1}));
  Send(*core, Bytes(1000, 0xFF));
  EXPECT_FALSE(core->Step());
  EXPECT_EQ(core->events().size(), 0u);
  EXPECT_EQ(core->status(), CoreStatus::kFaulted);
  ASSERT_TRUE(ResetByRegister(*core).ok());
  EXPECT_EQ(core->status(), CoreStatus::kIdle);
  EXPECT_EQ(core->fault_words().size(), 0u);
  EXPECT_EQ(ReadRegister(*core, Register::kFaultCode, RegisterWidth::k32), 0u);
  EXPECT_EQ(RunProgram(*core, {}).event.kind, EventKind::kCompleted);
}

TEST(Core, ForgetsProgramsAndStreamsOnReset) {
  const auto core = MakeCore();
  Send(*core, ProgramRecord(
                  {InputInstruction{.bytes = 1}, OutputInstruction{.bytes = 1}, EndInstruction{}}));
  Send(*core, Record(RecordTag::kInput, Bytes{1, 2, 3}));
  Send(*core, StartRecord({.instruction_count = 3}));
  while (core->Step()) {
  }
  ASSERT_TRUE(ResetByRegister(*core).ok());
  EXPECT_EQ(core->outputs().size() + core->events().size(), 0u);
  Send(*core, StartRecord({.instruction_count = 3}));
  RunToEvent(*core, EventKind::kFaulted);
  EXPECT_EQ(ReadFault(*core), (Fault{FaultCode::kBadOpcode, 0}));
}

TEST(Core, BoundsWhatItQueues) {
  const auto core = MakeCore();
  Send(*core, ProgramRecord({ParametersInstruction{.bytes = 1 << 10}, EndInstruction{}}));
  const Bytes parameters = Record(RecordTag::kParameters, Bytes(Core::kQueueLimit + (4 << 10)));
  size_t accepted = core->AcceptBulkOut(parameters);
  EXPECT_LT(accepted, parameters.size());
  EXPECT_GT(accepted, Core::kQueueLimit - 100);
  // Without a program nothing makes room.
  EXPECT_EQ(core->AcceptBulkOut(std::span(parameters).subspan(accepted)), 8u);
}

TEST(Core, LetsProgramsWaitForTheHostToReadOutputs) {
  const auto core = MakeCore();
  std::vector<Instruction> program(40, OutputInstruction{.bytes = 60 << 10});
  program.push_back(EndInstruction{});
  Send(*core, ProgramRecord(program));
  size_t received = 0, largest = 0;
  for (int run = 0; run < 30; ++run) {  // 72 MB; nobody reads at first
    Send(*core, StartRecord({.instruction_count = 41}));
    while (core->Step()) {
    }
    if (core->status() == CoreStatus::kRunning) break;
  }
  EXPECT_EQ(core->status(), CoreStatus::kRunning);
  largest = core->outputs().size();
  EXPECT_EQ(largest, Core::kQueueLimit);
  while (core->status() == CoreStatus::kRunning) {
    received += TakeAll(core->outputs()).size();
    while (core->Step()) {
    }
  }
  received += core->outputs().size();
  EXPECT_EQ(received % (40 * (60 << 10)), 0u);
}

TEST(Core, LetsProgramsWaitForTheHostToReadEvents) {
  const auto core = MakeCore();
  Send(*core, ProgramRecord({EndInstruction{}}));
  for (size_t run = 0; run <= Core::kEventLimit; ++run) {
    Send(*core, StartRecord({.instruction_count = 1}));
    core->Step();
  }
  EXPECT_EQ(core->status(), CoreStatus::kRunning);
  EXPECT_EQ(core->events().size(), Core::kEventLimit * kEventBytes);
  TakeAll(core->events());
  EXPECT_TRUE(core->Step());
  EXPECT_EQ(core->status(), CoreStatus::kIdle);
}

TEST(Core, DoesNotCareWhereTransfersAreCut) {
  Bytes stream = ProgramRecord(
      {InputInstruction{.bytes = 3}, OutputInstruction{.bytes = 3}, EndInstruction{}});
  Append(stream, StartRecord({.instruction_count = 3}));
  Append(stream, Record(RecordTag::kInput, Bytes{7, 8, 9}));
  for (size_t cut = 0; cut <= stream.size(); ++cut) {
    const auto core = MakeCore();
    const std::span<const uint8_t> all(stream);
    ASSERT_EQ(core->AcceptBulkOut(all.first(cut)), cut);
    while (core->Step()) {
    }
    ASSERT_EQ(core->AcceptBulkOut(all.subspan(cut)), stream.size() - cut);
    RunToEvent(*core);
    ASSERT_EQ(TakeAll(core->outputs()), (Bytes{7, 8, 9})) << "cut at " << cut;
  }
}

// Hostile programs: valid opcodes with operands that are nearly plausible, so that many get past
// some of the checks; whatever they do, they do it on the chip.
TEST(Core, SurvivesRandomPrograms) {
  Rng rng(TestSeed(21));
  CoreOptions options{.profile = SmallProfile(), .features = *DetectCpuFeatures()};
  options.profile.memory_bytes = 4096;  // keeps instructions that pass short
  const auto core = MakeCore(options);
  uint64_t completed = 0;
  for (int round = 0; round < 10000; ++round) {
    ASSERT_TRUE(ResetByRegister(*core).ok());
    std::vector<Instruction> program;
    for (int i = 0; i < 8; ++i) {
      const auto table = InstructionTable();
      const InstructionInfo& info =
          table[static_cast<size_t>(rng.Int(1, static_cast<int64_t>(table.size()) - 1))];
      EncodedInstruction bytes{};
      StoreLittleEndian<uint32_t>(bytes.data(), info.opcode);
      for (size_t word = 1; word <= info.operands.size(); ++word) {
        const std::string name = info.operands[word - 1].name();
        int64_t value = rng.Int(1, 3);
        if (name.ends_with("_address")) value = rng.Int(0, 4095);
        if (name == "flags") value = rng.Int(0, rng.OneIn(3) ? 3 : 1);
        if (name == "flags" && rng.OneIn(50)) value |= kFlagChained;
        if (name.starts_with("input1_stride") || name.starts_with("input2_stride")) {
          value = rng.Int(0, 1);
        }
        if (name == "clamp_min") value = 0;
        if (name == "clamp_max") value = 127;
        if (name.starts_with("pad_")) value = rng.Int(0, 1);
        if (name == "min_difference") value = rng.Int(-300, 0);
        if (name == "mode") value = rng.Int(0, 2);
        if (name.ends_with("_first")) value = rng.OneIn(8) ? 1 : 0;
        if (rng.OneIn(200)) value = static_cast<int64_t>(rng.Next());
        StoreLittleEndian<uint32_t>(&bytes[4 * word], static_cast<uint32_t>(value));
      }
      program.push_back(*Decode(bytes));
    }
    program.insert(program.begin(), FillInstruction{.bytes = 4096, .value = 0});
    program.push_back(EndInstruction{});
    Send(*core, ProgramRecord(program));
    Send(*core, StartRecord({.instruction_count = 10}));
    Send(*core, Record(RecordTag::kInput, Bytes(64, 3)));
    Send(*core, Record(RecordTag::kParameters, Bytes(64, 5)));
    while (core->Step()) {
    }
    completed += core->status() == CoreStatus::kIdle ? 1 : 0;
  }
  EXPECT_GT(completed, 100u);  // or the test shows little
}

TEST(Core, SurvivesRandomBytes) {
  Rng rng(TestSeed(22));
  const auto core = MakeCore();
  for (int round = 0; round < 2000; ++round) {
    ASSERT_TRUE(ResetByRegister(*core).ok());
    Bytes stream;
    const int records = rng.Int32(1, 6);
    for (int i = 0; i < records; ++i) {
      Bytes payload(static_cast<size_t>(rng.Int(0, 300)));
      rng.Fill(payload);
      Bytes record = Record(rng.Pick({RecordTag::kInstructions, RecordTag::kInput,
                                      RecordTag::kParameters, RecordTag::kStart}),
                            payload);
      if (rng.OneIn(2)) record = ProgramRecord({EndInstruction{}});
      if (rng.OneIn(2)) record = StartRecord({.instruction_count = 1});
      if (rng.OneIn(4))
        record[static_cast<size_t>(rng.Int(0, 7))] ^= static_cast<uint8_t>(1 << rng.Int(0, 7));
      Append(stream, record);
    }
    std::span<const uint8_t> rest(stream);
    while (!rest.empty()) {
      const size_t cut = static_cast<size_t>(rng.Int(1, static_cast<int64_t>(rest.size())));
      ASSERT_EQ(core->AcceptBulkOut(rest.first(cut)), cut);
      rest = rest.subspan(cut);
      while (core->Step()) {
      }
    }
  }
}

}  // namespace
}  // namespace atollrt
