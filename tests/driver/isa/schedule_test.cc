// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "driver/emulator/stepped_sequencer.h"
#include "driver/isa/timing.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

constexpr ArraySize kArray{64, 64};
// A link of one byte per cycle.
constexpr ScheduleOptions kSlowLink{
    .array = kArray, .clock_hz = 500'000'000, .link_bytes_per_second = 500'000'000};
constexpr ScheduleOptions kNoLink{.array = kArray, .clock_hz = 500'000'000};

TableInstruction Table(uint32_t input, uint32_t output, uint32_t count) {
  return {.input_address = input,
          .output_address = output,
          .count = count,
          .table_address = kParameterSegment};
}
CopyInstruction Copy(uint32_t input, uint32_t output, uint32_t bytes) {
  return {.input_address = input,
          .output_address = output,
          .bytes = bytes,
          .count0 = 1,
          .count1 = 1,
          .count2 = 1,
          .count3 = 1,
          .count4 = 1};
}
// One tile: 64 + 126 cycles beside the first weights.
Conv2DInstruction Dense(uint32_t input, uint32_t output) {
  return {.input_address = input,
          .weight_address = kParameterSegment,
          .channel_address = kParameterSegment + 4096,
          .output_address = output,
          .batch = 1,
          .input_h = 1,
          .input_w = 1,
          .input_c = 64,
          .output_h = 1,
          .output_w = 1,
          .output_c = 64,
          .kernel_h = 1,
          .kernel_w = 1,
          .stride_h = 1,
          .stride_w = 1,
          .dilation_h = 1,
          .dilation_w = 1,
          .groups = 1};
}

TEST(Schedule, IssuesOneInstructionAfterTheOther) {
  Schedule schedule(kNoLink);
  EXPECT_EQ(schedule.Add(Table(0, 64, 64)).start, 64u);
  EXPECT_EQ(schedule.Add(Copy(1000, 2000, 64)).start, 128u);
  EXPECT_EQ(schedule.Add(EndInstruction{}).end, 192u);
}

TEST(Schedule, RunsUnitsSideBySide) {
  Schedule schedule(kNoLink);
  const auto table = schedule.Add(Table(0, 64'000, 64'000));
  EXPECT_EQ(table.end, 64u + 1000);
  EXPECT_EQ(schedule.Add(Copy(200'000, 300'000, 6400)).end, 128u + 100);
  EXPECT_EQ(schedule.Add(Dense(400'000, 500'000)).end, 192u + 64 + 64 + 126);
  EXPECT_EQ(schedule.Add(EndInstruction{}).start, table.end);
  EXPECT_EQ(schedule.summary().vector, 1000u);
  EXPECT_EQ(schedule.summary().dma, 100u);
  EXPECT_EQ(schedule.summary().array, 64u + 64 + 126);
  EXPECT_EQ(schedule.summary().total, table.end);
}

TEST(Schedule, KeepsAUnitBusyWithOneInstruction) {
  Schedule schedule(kNoLink);
  const auto first = schedule.Add(Table(0, 100'000, 64'000));
  EXPECT_EQ(schedule.Add(Table(200'000, 300'000, 64)).start, first.end);
}

TEST(Schedule, WaitsForWhatEarlierOnesWrite) {
  Schedule schedule(kNoLink);
  const auto table = schedule.Add(Table(0, 64'000, 64'000));
  EXPECT_EQ(schedule.Add(Copy(127'999, 500'000, 1)).start, table.end) << "reads its last byte";
  Schedule apart(kNoLink);
  apart.Add(Table(0, 64'000, 64'000));
  EXPECT_EQ(apart.Add(Copy(128'000, 500'000, 1)).start, 128u);
}

TEST(Schedule, WaitsToOverwriteWhatEarlierOnesUse) {
  for (const uint32_t address : {0u, 64'000u}) {
    Schedule schedule(kNoLink);
    const auto table = schedule.Add(Table(0, 64'000, 64'000));
    EXPECT_EQ(schedule.Add(FillInstruction{.output_address = address, .bytes = 1}).start,
              table.end);
  }
}

TEST(Schedule, DoesNotWaitToReadWhatOthersRead) {
  Schedule schedule(kNoLink);
  schedule.Add(Table(0, 64'000, 64'000));
  EXPECT_EQ(schedule.Add(Copy(0, 500'000, 64)).start, 128u);
}

// Of what Dense makes at 1000, with 64 bytes at `other`.
AddInstruction Chained(uint32_t other, uint32_t output) {
  return {.input1_address = 1000,
          .input2_address = other,
          .output_address = output,
          .count0 = 1,
          .count1 = 1,
          .count2 = 1,
          .count3 = 64,
          .input1_stride3 = 1,
          .input2_stride3 = 1,
          .flags = kFlagChained};
}
// 3000 positions, two tiles of products, of 130 channels.
Conv2DInstruction Wide() {
  Conv2DInstruction conv = Dense(0, 1'000'000);
  conv.input_h = conv.output_h = 3000;
  conv.input_c = 128;
  conv.output_c = 130;
  return conv;
}
AddInstruction ChainedToWide() {
  AddInstruction add = Chained(2'000'000, 3'000'000);
  add.input1_address = 1'000'000;
  add.count3 = 3000 * 130;
  return add;
}

TEST(Schedule, RunsAChainedAddBesideItsConvolution) {
  Schedule schedule(kNoLink);
  const auto conv = schedule.Add(Dense(0, 1000));
  EXPECT_EQ(conv.end, 64u + 64 + 64 + 126);
  const auto add = schedule.Add(Chained(2000, 3000));
  EXPECT_EQ(add.start, 128u) << "when it is issued";
  EXPECT_EQ(add.end, conv.end + 2) << "the last position";
  EXPECT_EQ(schedule.summary().vector, add.end - add.start);
  EXPECT_EQ(schedule.Add(Copy(3000, 5000, 64)).start, add.end);

  AddInstruction apart = Chained(2000, 3000);
  apart.flags = 0;
  Schedule one_by_one(kNoLink);
  one_by_one.Add(Dense(0, 1000));
  EXPECT_EQ(one_by_one.Add(apart).start, conv.end);
}

TEST(Schedule, CountsTheLastPositionOfAChainedAddInTilesOfChannels) {
  Schedule schedule(kNoLink);
  const auto conv = schedule.Add(Wide());
  EXPECT_EQ(conv.end, 64u + 64 + 2 * 3 * 3000 + 126);
  EXPECT_EQ(schedule.Add(ChainedToWide()).end, conv.end + 2 * 3);
}

TEST(Schedule, GivesAChainedAddItsOwnCyclesAtLeast) {
  Conv2DInstruction conv = Wide();
  conv.input_c = conv.output_c = 64;
  AddInstruction add = ChainedToWide();
  add.count3 = 3000 * 64;
  Schedule schedule(kNoLink);
  EXPECT_EQ(schedule.Add(conv).end, 64u + 64 + 3000 + 126);
  EXPECT_EQ(schedule.Add(add).end, 128u + 2 * 3000);
  Schedule counted(kNoLink);
  counted.Add(conv, 500);
  EXPECT_EQ(counted.Add(add, 700).end, 128u + 700) << "cycles that somebody else has counted";
}

TEST(Schedule, StartsAChainedAddWithItsConvolution) {
  Schedule schedule(kNoLink);
  const auto table = schedule.Add(Table(100'000, 0, 64'000));
  const auto conv = schedule.Add(Dense(0, 1'000'000));
  EXPECT_EQ(conv.start, table.end);
  AddInstruction add = Chained(2'000'000, 3'000'000);
  add.input1_address = 1'000'000;
  EXPECT_EQ(schedule.Add(add).start, conv.start);
}

TEST(Schedule, LetsAChainedAddWaitForAllButItsConvolution) {
  Schedule unit(kNoLink);
  const auto long_table = unit.Add(Table(100'000, 200'000, 64'000));
  const auto conv = unit.Add(Dense(0, 1000));
  const auto late = unit.Add(Chained(2000, 3000));
  EXPECT_EQ(late.start, long_table.end) << "the vector unit";
  EXPECT_GT(late.start, conv.end);
  EXPECT_EQ(late.end, late.start + 2);
  Schedule other(kNoLink);
  const auto copy = other.Add(Copy(200'000, 300'000, 64'000));
  EXPECT_LT(other.Add(Dense(0, 1000)).end, copy.end);
  EXPECT_EQ(other.Add(Chained(300'000, 3000)).start, copy.end) << "its other input";
}

// Such programs fault; that they have no times must not be noticed otherwise.
TEST(Schedule, SurvivesAChainedAddBehindNothing) {
  Schedule schedule(kNoLink);
  EXPECT_EQ(schedule.Add(Chained(2000, 3000)).end, 64u + 2);
  EXPECT_EQ(schedule.Add(Chained(2000, 3000)).issued, 128u);
}

TEST(Schedule, TellsSegmentsApart) {
  Schedule schedule(kNoLink);
  schedule.Add(Table(0, 64'000, 64'000));
  const auto other =
      schedule.Add(FillInstruction{.output_address = kParameterSegment + 64'000, .bytes = 1});
  EXPECT_EQ(other.start, 128u);
}

TEST(Schedule, KeepsOnlySoManyInFlight) {
  Schedule schedule(kNoLink);
  const auto table = schedule.Add(Table(0, 640'000, 640'000));
  uint64_t issued = 0;
  for (uint32_t i = 0; i < kInstructionsInFlight; ++i) {
    issued = schedule.Add(FillInstruction{.output_address = 2'000'000 + i, .bytes = 1}).issued;
  }
  EXPECT_EQ(issued, table.end) << "the last one had to wait until the first was done";
}

TEST(Schedule, WaitsForBytesOnTheLink) {
  Schedule schedule(kSlowLink);
  EXPECT_EQ(schedule.Add(InputInstruction{.output_address = 0, .bytes = 10'000}).end, 10'000u);
  // Behind the input on the same link, while the vector unit works on the input.
  const auto parameters =
      schedule.Add(ParametersInstruction{.output_address = 50'000, .bytes = 5'000});
  EXPECT_EQ(parameters.end, 15'000u);
  EXPECT_EQ(schedule.Add(Table(0, 20'000, 10'000)).end, 10'000u + 157);
  EXPECT_EQ(schedule.Add(Table(50'000, 30'000, 64)).end, 15'000u + 1);
  EXPECT_EQ(schedule.summary().link_out, 10'000u);
  EXPECT_EQ(schedule.summary().parameters, 5'000u);
}

TEST(Schedule, EndsWhenTheLastOutputByteIsThere) {
  Schedule schedule(kSlowLink);
  const auto first = schedule.Add(OutputInstruction{.input_address = 0, .bytes = 1000});
  EXPECT_EQ(first.end, 64u + 16);
  schedule.Add(OutputInstruction{.input_address = 2000, .bytes = 100});
  schedule.Add(EndInstruction{});
  EXPECT_EQ(schedule.summary().total, first.end + 1000 + 100);
  EXPECT_EQ(schedule.summary().link_in, 1100u);
}

TEST(Schedule, SaysWhenBytesAreOnTheLink) {
  Schedule schedule(kSlowLink);
  const auto input = schedule.Add(InputInstruction{.output_address = 0, .bytes = 1000});
  EXPECT_EQ(input.link_start, 0u) << "the host sends from the start message on";
  EXPECT_EQ(input.link_end, 1000u);
  const auto parameters = schedule.Add(ParametersInstruction{.output_address = 5000, .bytes = 10});
  EXPECT_EQ(parameters.link_start, 1000u);
  EXPECT_EQ(parameters.link_end, 1010u);
  const auto table = schedule.Add(Table(0, 2000, 1000));
  EXPECT_EQ(table.link_end - table.link_start, 0u);
  const auto first = schedule.Add(OutputInstruction{.input_address = 2000, .bytes = 640});
  EXPECT_EQ(first.link_start, first.end);
  EXPECT_EQ(first.link_end, first.end + 640);
  const auto second = schedule.Add(OutputInstruction{.input_address = 0, .bytes = 64});
  EXPECT_LT(second.end, first.link_end);
  EXPECT_EQ(second.link_start, first.link_end) << "one output after the other";
}

TEST(Schedule, OfAProgramIsItsInstructions) {
  const std::vector<Instruction> program = {
      InputInstruction{.output_address = 0, .bytes = 64}, Dense(0, 64),
      OutputInstruction{.input_address = 64, .bytes = 64}, EndInstruction{}};
  const ScheduleSummary summary = SummarizeProgram(program, kSlowLink);
  EXPECT_EQ(summary.instructions, 4u);
  EXPECT_EQ(summary.total, 128u + 64 + 190 + 1 + 64);
}

// Two readings of docs/isa.md §5, "Overlap": as maxima over earlier times, and as a machine that
// goes from event to event. Instructions of all units get in each other's way, take any time, and
// fill the sequencer.
TEST(Schedule, EqualsTheSteppedSequencer) {
  Rng rng(TestSeed(0x5C4ED));
  const auto number = [&](int64_t first, int64_t last) {
    return static_cast<uint32_t>(rng.Int(first, last));
  };
  int chained = 0;
  for (int round = 0; round < TestCount(2000); ++round) {
    const ScheduleOptions options{
        .array = {number(1, 70), number(1, 70)},
        .clock_hz = rng.Pick({uint64_t{500'000'000}, uint64_t{1'000'000}}),
        .link_bytes_per_second =
            rng.Pick({uint64_t{0}, uint64_t{500'000}, uint64_t{455'000'000}, uint64_t{36'600'000}}),
        .bytes_ahead = rng.Pick({uint64_t{0}, uint64_t{1}, uint64_t{500}, uint64_t{4000}})};
    Schedule schedule(options);
    SteppedSequencer sequencer({.rows = options.array.rows,
                                .columns = options.array.columns,
                                .clock_hz = options.clock_hz,
                                .link_bytes_per_second = options.link_bytes_per_second});
    const uint32_t spread = number(1, 4) * 500;
    const auto address = [&] { return (rng.OneIn(4) ? kParameterSegment : 0) | number(0, spread); };
    const bool is_fast = rng.OneIn(2);
    const auto add = [&](const Instruction& instruction) {
      const uint64_t cycles = number(1, is_fast ? 20 : 2000);
      schedule.Add(instruction, cycles);
      sequencer.Add(instruction, cycles);
    };
    for (uint32_t i = number(0, 60); i > 0; --i) {
      switch (rng.Int(0, 6)) {
        case 0:
          add(InputInstruction{.output_address = address(), .bytes = number(1, 300)});
          break;
        case 1:
          add(ParametersInstruction{.output_address = address(), .bytes = number(1, 300)});
          break;
        case 2:
          add(OutputInstruction{.input_address = address(), .bytes = number(1, 300)});
          break;
        case 3:
          add(Table(address(), address(), number(1, 100)));
          break;
        case 4:
          add(Copy(address(), address(), number(1, 100)));
          break;
        case 5:
          add(FillInstruction{.output_address = address(), .bytes = number(1, 100)});
          break;
        default: {
          Conv2DInstruction conv = Dense(address(), address());
          conv.output_c = number(1, 200);
          add(conv);
          if (rng.OneIn(2)) break;
          AddInstruction sum = Chained(address(), address());
          sum.input1_address = conv.output_address;
          sum.count3 = conv.output_c;
          add(sum);
          ++chained;
          break;
        }
      }
    }
    schedule.Add(EndInstruction{}, 0);
    sequencer.Add(EndInstruction{}, 0);
    for (const char* time : {"first", "again"}) {
      const SteppedTimes times = sequencer.Run(options.bytes_ahead);
      const ScheduleSummary& summary = schedule.summary();
      ASSERT_EQ(times.total, summary.total) << "round " << round << ", " << time;
      ASSERT_EQ(times.computed, summary.computed) << "round " << round << ", " << time;
      ASSERT_EQ(times.delivered, summary.delivered) << "round " << round << ", " << time;
      ASSERT_EQ(times.link_out, summary.link_out + summary.parameters) << "round " << round;
      ASSERT_EQ(times.link_in, summary.link_in) << "round " << round;
    }
  }
  EXPECT_GT(chained, 0);
}

// What the clock of overlapping programs needs: when the instructions are done, and when the
// outputs are.
TEST(Schedule, TellsInstructionsFromTheWayOfOutputs) {
  Schedule schedule(kSlowLink);
  schedule.Add(InputInstruction{.bytes = 640});
  EXPECT_EQ(schedule.summary().delivered, 0u);
  const auto output = schedule.Add(OutputInstruction{.bytes = 6400});
  const auto end = schedule.Add(EndInstruction{});
  EXPECT_EQ(output.end, 640u + 100);
  EXPECT_EQ(end.end, output.end);
  EXPECT_EQ(schedule.summary().computed, end.end);
  EXPECT_EQ(schedule.summary().delivered, output.end + 6400);
  EXPECT_EQ(schedule.summary().total, output.end + 6400);
}

TEST(Schedule, BytesThatAreThereBeforehandNeedNoTimeOnTheLink) {
  const auto computed = [](uint64_t bytes_ahead) {
    ScheduleOptions options = kSlowLink;
    options.bytes_ahead = bytes_ahead;
    Schedule schedule(options);
    schedule.Add(InputInstruction{.bytes = 6400});
    schedule.Add(ParametersInstruction{.output_address = 6400, .bytes = 3200});
    schedule.Add(EndInstruction{});
    return schedule.summary().computed;
  };
  EXPECT_EQ(computed(0), 9600u);
  EXPECT_EQ(computed(1000), 8600u);
  EXPECT_EQ(computed(6400), 3200u);
  EXPECT_EQ(computed(9600), 64u + 100 + 50);
  EXPECT_EQ(computed(UINT64_MAX), 64u + 100 + 50);
}

}  // namespace
}  // namespace atollrt
