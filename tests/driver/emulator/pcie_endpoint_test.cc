// SPDX-License-Identifier: Apache-2.0
#include "driver/emulator/pcie_endpoint.h"

#include <gtest/gtest.h>

#include <functional>

#include "driver/isa/timing.h"
#include "tests/driver/emulator/ring_host.h"
#include "tests/support/allocation_meter.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

// Gives back so many bytes of input.
std::vector<Instruction> Echo(uint32_t bytes) {
  return {InputInstruction{.bytes = bytes}, OutputInstruction{.bytes = bytes}, EndInstruction{}};
}

// Where a request has its outputs and its event.
struct Posted {
  uint64_t output = 0, event = 0;
};

// Of Echo at the beginning of program memory.
Posted PostEcho(RingHost& host, const Bytes& input, uint32_t request_id) {
  Posted posted;
  host.PostStart({.instruction_count = 3, .request_id = request_id});
  host.PostInput(input);
  posted.output = host.PostOutput(input.size());
  posted.event = host.PostEvent();
  return posted;
}

TEST(PcieEndpoint, HasTheRegistersOfBothTables) {
  RingHost host;
  EXPECT_EQ(host.Get(Register::kId), kDeviceId);
  EXPECT_EQ(host.Get(Register::kMemoryBytes), SmallProfile().memory_bytes);
  EXPECT_EQ(host.Get(Register::kStatus), 0u);
  EXPECT_EQ(host.Get(Register::kControl), 0u);
  for (const RingRegister at :
       {RingRegister::kRingLow, RingRegister::kRingHigh, RingRegister::kRingEntries}) {
    EXPECT_EQ(host.Get(at), 0u);
    host.Set(at, 0x12345678);
    EXPECT_EQ(host.Get(at), 0x12345678u);
  }
  EXPECT_EQ(host.status(), RingStatus::kOff);
  for (const uint64_t nothing : {0x34ull, 0x228ull, 0xFFCull, 0x1000ull, 0x1'0000'0000ull, 0x202ull,
                                 0xFFFF'FFFF'FFFF'FFFFull}) {
    host.endpoint().Write32(nothing, 1);
    EXPECT_EQ(host.endpoint().Read32(nothing), 0u) << nothing;
  }
  host.endpoint().Reset();
  EXPECT_EQ(host.Get(RingRegister::kRingLow), 0u);
}

TEST(PcieEndpoint, HoldsTheUpperHalfOfALongRegister) {
  RingHost host;
  host.SwitchOn();
  host.PostInstructions(Echo(4));
  PostEcho(host, {1, 2, 3, 4}, 1);
  host.RingAndRun();
  EXPECT_EQ(host.Get(Register::kInstructions), 3u);
  EXPECT_EQ(host.endpoint().Read32(static_cast<uint32_t>(Register::kInstructions) + 4), 0u);
  EXPECT_EQ(host.Get(Register::kCycles), 192u);
}

// The bytes of docs/protocol.md, "A worked exchange on the ring", after its first sentences have
// been made true.
TEST(PcieEndpoint, HoldsTheWorkedExchange) {
  RingHost host(64, {.profile = *FindDeviceProfile("pcie")});
  host.SwitchOn();
  Bytes table(256);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<uint8_t>(i + 0x10);
  host.PostInstructions(
      {ParametersInstruction{.output_address = kParameterSegment, .bytes = 256}, EndInstruction{}},
      0x1000);
  host.PostStart({.program_offset = 0x1000, .instruction_count = 2, .parameter_base = 0x7FF000});
  host.PostInput(table, DescriptorKind::kParameters);
  const uint64_t cached = host.PostEvent();
  host.RingAndRun();
  const RingEvent first = host.EventAt(cached);
  EXPECT_EQ(first.sequence, 1u);
  EXPECT_EQ(first.clock, first.event.detail);

  host.PostInstructions(
      {InputInstruction{.bytes = 4},
       TableInstruction{.output_address = 16, .count = 4, .table_address = kParameterSegment},
       OutputInstruction{.input_address = 16, .bytes = 4}, EndInstruction{}});
  const Bytes input = {0, 1, 2, 3};
  std::copy(input.begin(), input.end(), host.At(0x7'0000'2003));
  host.PostRaw({0x08, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0xF0, 0x7F,
                0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01});
  host.PostRaw({0x01, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x03, 0x20, 0x00, 0x00, 0x07});
  host.PostRaw({0x03, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x07, 0x30, 0x00, 0x00, 0x07});
  host.PostRaw({0x09, 0x01, 0x00, 0x00, 0x20, 0x00, 0x00, 0x00, 0x20, 0x10, 0x00, 0x00, 0x07});
  host.Set(RingRegister::kRingTail, 9);
  host.Run();
  EXPECT_EQ(host.Read(0x7'0000'3007, 4), (Bytes{0x10, 0x11, 0x12, 0x13}));
  EXPECT_EQ(host.Read(0x7'0000'1020, 32),
            (Bytes{0x01, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00,
                   0x00, 0x00, 0x00, 0x00, 0x00, 0x49, 0x02, 0x00, 0x00, 0x00, 0x00,
                   0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0xA0, 0x93, 0xAD, 0x88}));
  EXPECT_EQ(host.Get(RingRegister::kRingHead), host.tail());
  EXPECT_EQ(host.TakeRaised(RingVector::kEvent), 2);
  EXPECT_EQ(host.TakeRaised(RingVector::kOut), 0) << "nobody asked for it";
  EXPECT_EQ(host.TakeRaised(RingVector::kIn), 0);
  EXPECT_EQ(host.TakeRaised(RingVector::kFault), 0);
}

TEST(PcieEndpoint, RaisesTheVectorOfTheDirectionIfAsked) {
  RingHost host;
  host.SwitchOn();
  host.PostInstructions(Echo(1));
  host.Post(
      {.kind = DescriptorKind::kStart, .interrupts = true, .start = {.instruction_count = 3}});
  host.RingAndRun();
  EXPECT_EQ(host.TakeRaised(RingVector::kOut), 1) << "it runs";
  EXPECT_EQ(host.Get(RingRegister::kRingHead), 2u);
  EXPECT_EQ(host.Get(Register::kStatus), 1u);
  host.Post(
      {.kind = DescriptorKind::kInput, .interrupts = true, .bytes = 1, .address = host.Place({7})});
  host.RingAndRun();
  EXPECT_EQ(host.TakeRaised(RingVector::kOut), 1);
  EXPECT_EQ(host.TakeRaised(RingVector::kIn), 0);
  host.Post({.kind = DescriptorKind::kOutput,
             .interrupts = true,
             .bytes = 1,
             .address = host.Reserve(1)});
  host.RingAndRun();
  EXPECT_EQ(host.TakeRaised(RingVector::kIn), 1);
  EXPECT_EQ(host.TakeRaised(RingVector::kEvent), 0);
  EXPECT_EQ(host.Get(RingRegister::kRingHead), 4u);
  EXPECT_EQ(host.Get(Register::kStatus), 0u) << "ended, but for its event";
}

// The ring and the numbers of descriptors and events, which pass 2^32.
TEST(PcieEndpoint, GoesRoundTheRingAndPastTheLastNumber) {
  for (const uint32_t first : {0u, 0xFFFF'FFF0u}) {
    RingHost host(8);
    host.SwitchOn(first);
    host.PostInstructions(Echo(5));
    host.RingAndRun();
    for (uint32_t i = 0; i < 40; ++i) {
      const Bytes input = {static_cast<uint8_t>(i), 2, 3, 4, 5};
      const Posted posted = PostEcho(host, input, i);
      host.RingAndRun();
      ASSERT_EQ(host.Read(posted.output, 5), input);
      const RingEvent event = host.EventAt(posted.event);
      ASSERT_EQ(event.event.request_id, i);
      ASSERT_EQ(event.sequence, first + i + 1);
      ASSERT_EQ(host.Get(RingRegister::kRingHead), first + 1 + 4 * (i + 1));
    }
    EXPECT_EQ(host.status(), RingStatus::kOn);
  }
}

TEST(PcieEndpoint, FillsTheWholeRing) {
  RingHost host(8);
  host.SwitchOn(0xFFFF'FFFD);
  host.PostInstructions(Echo(1));
  host.RingAndRun();
  const Posted first = PostEcho(host, {1}, 1);
  const Posted second = PostEcho(host, {2}, 2);
  host.RingAndRun();
  EXPECT_EQ(host.Read(first.output, 1), Bytes{1});
  EXPECT_EQ(host.Read(second.output, 1), Bytes{2});
  EXPECT_EQ(host.EventAt(second.event).event.request_id, 2u);
}

// Each request may have its descriptors in another order and other pieces, and come late.
TEST(PcieEndpoint, CutsStreamsAnywhere) {
  Rng rng(TestSeed(71));
  RingHost host(4096, {.profile = SmallProfile()}, 16 << 20);
  host.SwitchOn(0xFFFF'FF00);
  constexpr uint32_t kBytes = 1000;
  host.PostInstructions(Echo(kBytes));
  std::vector<Bytes> inputs;
  std::vector<std::vector<std::pair<uint64_t, uint32_t>>> outputs;
  std::vector<uint64_t> events;
  const auto pieces = [&] {
    std::vector<uint32_t> sizes;
    for (uint32_t left = kBytes; left > 0; left -= sizes.back()) {
      sizes.push_back(std::min<uint32_t>(left, static_cast<uint32_t>(rng.Int(0, 400))));
    }
    return sizes;
  };
  for (uint32_t i = 0; i < 100; ++i) {
    inputs.push_back(RandomBytes(rng, kBytes));
    const bool start_first = rng.Int(0, 1) == 0;
    if (start_first) host.PostStart({.instruction_count = 3, .request_id = i});
    uint32_t offset = 0;
    for (const uint32_t size : pieces()) {
      host.PostInput(Bytes(&inputs[i][offset], &inputs[i][offset] + size));
      offset += size;
    }
    if (!start_first) host.PostStart({.instruction_count = 3, .request_id = i});
    outputs.emplace_back();
    for (const uint32_t size : pieces()) outputs[i].emplace_back(host.PostOutput(size), size);
    events.push_back(host.PostEvent());
    if (rng.Int(0, 3) == 0) host.Ring();
    for (int64_t steps = rng.Int(0, 20); steps > 0; --steps) host.endpoint().Step();
  }
  host.RingAndRun();
  for (uint32_t i = 0; i < 100; ++i) {
    Bytes all;
    for (const auto& [address, size] : outputs[i]) Append(all, host.Read(address, size));
    ASSERT_EQ(all, inputs[i]);
    ASSERT_EQ(host.EventAt(events[i]).event.request_id, i);
  }
  EXPECT_EQ(host.Get(RingRegister::kRingHead), host.tail());
}

TEST(PcieEndpoint, TakesInputsAndParametersInTheOrderOfTheProgram) {
  RingHost host;
  host.SwitchOn();
  host.PostInstructions({ParametersInstruction{.bytes = 2},
                         InputInstruction{.output_address = 2, .bytes = 2},
                         ParametersInstruction{.output_address = 4, .bytes = 2},
                         OutputInstruction{.bytes = 6}, EndInstruction{}});
  host.PostInput({3, 4});
  host.PostInput({1, 2, 5, 6}, DescriptorKind::kParameters);
  host.PostStart({.instruction_count = 5});
  const uint64_t output = host.PostOutput(6);
  const uint64_t event = host.PostEvent();
  host.RingAndRun();
  EXPECT_EQ(host.Read(output, 6), (Bytes{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(host.EventAt(event).event.kind, EventKind::kCompleted);
}

TEST(PcieEndpoint, MovesMoreThanAStepDoes) {
  constexpr uint32_t kBytes = (5 << 19) + 3;
  RingHost host(64, {.profile = *FindDeviceProfile("pcie")}, 8 << 20);
  host.SwitchOn();
  host.PostInstructions(Echo(kBytes));
  Rng rng(TestSeed(5));
  const Bytes input = RandomBytes(rng, kBytes);
  const Posted posted = PostEcho(host, input, 1);
  host.RingAndRun();
  EXPECT_EQ(host.Read(posted.output, kBytes), input);
  // Nothing is moved twice: descriptors, 3 instructions, input; output and event.
  EXPECT_EQ(host.read_bytes(), 5 * kDescriptorBytes + 3 * kInstructionBytes + kBytes);
  EXPECT_EQ(host.written_bytes(), kBytes + kRingEventBytes);
}

TEST(PcieEndpoint, LetsInstructionsWaitForTheProgramsBeforeThem) {
  RingHost host;
  host.SwitchOn();
  host.PostInstructions(Echo(2));
  host.PostStart({.instruction_count = 3, .request_id = 1});
  host.PostInstructions(
      {FillInstruction{.bytes = 2, .value = 9}, OutputInstruction{.bytes = 2}, EndInstruction{}});
  host.PostStart({.instruction_count = 3, .request_id = 2});
  const uint64_t first = host.PostOutput(2);
  const uint64_t first_event = host.PostEvent();
  const uint64_t second = host.PostOutput(2);
  const uint64_t second_event = host.PostEvent();
  host.RingAndRun();
  EXPECT_FALSE(host.HasEvent(first_event)) << "it waits for its input";
  host.PostInput({5, 6});
  host.RingAndRun();
  EXPECT_EQ(host.Read(first, 2), (Bytes{5, 6}));
  EXPECT_EQ(host.Read(second, 2), (Bytes{9, 9}));
  EXPECT_EQ(host.EventAt(first_event).event.request_id, 1u);
  EXPECT_EQ(host.EventAt(second_event).event.request_id, 2u);
}

TEST(PcieEndpoint, IsDoneWithDescriptorsWithoutBytesWhenTheirTurnComes) {
  RingHost host;
  host.SwitchOn();
  host.PostInstructions({});
  host.PostInput({});
  host.PostInput({}, DescriptorKind::kParameters);
  host.PostOutput(0);
  host.RingAndRun();
  EXPECT_EQ(host.Get(RingRegister::kRingHead), 4u);
  host.PostInstructions(Echo(1));
  PostEcho(host, {1}, 1);
  host.PostInput({});
  host.PostOutput(0);
  host.RingAndRun();
  EXPECT_EQ(host.Get(RingRegister::kRingHead), host.tail());
}

TEST(PcieEndpoint, ATailThatIsKnownDoesNothing) {
  RingHost host(8);
  host.SwitchOn();
  host.PostInstructions(Echo(1));
  const Posted posted = PostEcho(host, {1}, 1);
  host.Ring();
  host.Set(RingRegister::kRingTail, 2);
  host.Set(RingRegister::kRingTail, 5);
  host.Run();
  EXPECT_EQ(host.Read(posted.output, 1), Bytes{1});
  host.RingAndRun();
  EXPECT_EQ(host.status(), RingStatus::kOn);
  EXPECT_EQ(host.TakeRaised(RingVector::kEvent), 1);
}

TEST(PcieEndpoint, SwitchedOffItDoesNoDma) {
  RingHost host;
  host.SwitchOn();
  host.PostInstructions(Echo(4));
  const Posted posted = PostEcho(host, {1, 2, 3, 4}, 1);
  host.Ring();
  for (int i = 0; i < 2; ++i) host.endpoint().Step();
  host.Set(RingRegister::kRingControl, kRingOff);
  EXPECT_EQ(host.status(), RingStatus::kOff);
  const size_t moved = host.read_bytes() + host.written_bytes();
  host.Ring();
  host.Run();
  EXPECT_EQ(host.read_bytes() + host.written_bytes(), moved);
  EXPECT_FALSE(host.HasEvent(posted.event));
  // Not before the core is idle.
  EXPECT_EQ(host.Get(Register::kStatus), 1u);
  host.Set(RingRegister::kRingControl, kRingOn);
  EXPECT_EQ(host.status(), RingStatus::kOff);
  host.ResetCore();
  host.SwitchOn();
  host.PostInstructions(Echo(4));
  const Posted again = PostEcho(host, {5, 6, 7, 8}, 2);
  host.RingAndRun();
  EXPECT_EQ(host.Read(again.output, 4), (Bytes{5, 6, 7, 8}));
  EXPECT_EQ(host.EventAt(again.event).sequence, 1u);
}

TEST(PcieEndpoint, ResetsThatSwitchOff) {
  for (const bool flr : {false, true}) {
    RingHost host;
    host.SwitchOn();
    host.PostInstructions(Echo(1));
    PostEcho(host, {1}, 1);
    host.RingAndRun();
    flr ? host.endpoint().Reset() : host.ResetCore();
    EXPECT_EQ(host.status(), RingStatus::kOff);
    EXPECT_EQ(host.Get(RingRegister::kRingHead), 0u);
    EXPECT_EQ(host.Get(Register::kCycles), 0u);
    EXPECT_EQ(host.Get(RingRegister::kRingEntries), flr ? 0u : 64u);
    host.SwitchOn();
    host.PostInstructions(Echo(1));
    const Posted posted = PostEcho(host, {1}, 1);
    host.RingAndRun();
    const RingEvent event = host.EventAt(posted.event);
    EXPECT_EQ(event.clock, event.event.detail) << "the clock begins again";
  }
}

TEST(PcieEndpoint, SteppedItGivesTheSameBytesAndTimes) {
  Rng rng(TestSeed(3));
  const Bytes input = RandomBytes(rng, 300);
  std::vector<RingEvent> events[2];
  std::vector<Bytes> outputs[2];
  for (const Face face : {Face::kDirect, Face::kStepped}) {
    const auto which = static_cast<size_t>(face);
    RingHost host(64, {.profile = SmallProfile(), .face = face});
    host.SwitchOn();
    host.PostInstructions(
        {InputInstruction{.bytes = 300}, TableInstruction{.output_address = 1024, .count = 300},
         OutputInstruction{.input_address = 1024, .bytes = 300}, EndInstruction{}});
    std::vector<Posted> posted;
    for (uint32_t i = 0; i < 4; ++i) {
      host.PostStart({.instruction_count = 4, .request_id = i});
      host.PostInput(Bytes(input.begin(), input.begin() + 130));
      host.PostInput(Bytes(input.begin() + 130, input.end()));
      posted.push_back({.output = host.PostOutput(300), .event = 0});
      posted.back().event = host.PostEvent();
    }
    host.RingAndRun();
    for (const Posted& request : posted) {
      events[which].push_back(host.EventAt(request.event));
      outputs[which].push_back(host.Read(request.output, 300));
    }
    EXPECT_EQ(events[which][0].clock, events[which][0].event.detail);
  }
  EXPECT_EQ(events[0], events[1]);
  EXPECT_EQ(outputs[0], outputs[1]);
}

// ---- Time ---------------------------------------------------------------------------------------

// A device with a link of `link_bytes_per_second`, and programs that take a table of all their
// bytes `passes` times.
struct Load {
  uint32_t bytes;
  uint32_t passes;
  uint64_t link_bytes_per_second;
};
struct Timed {
  uint64_t alone = 0;  // T of one request
  std::vector<uint64_t> clocks;
  uint64_t link_cycles = 0;  // of its inputs
  uint64_t core_cycles = 0;  // of the table look-ups
};
// Runs requests of which `in_flight` are posted at once, and another when one is done.
Timed RunLoad(const Load& load, uint32_t in_flight, uint32_t requests) {
  Timed timed;
  DeviceProfile profile = *FindDeviceProfile("pcie");
  profile.link_bytes_per_second = load.link_bytes_per_second;
  RingHost host(256, {.profile = profile}, 64 << 20);
  host.SwitchOn();
  std::vector<Instruction> program = {InputInstruction{.bytes = load.bytes}};
  for (uint32_t i = 0; i < load.passes; ++i) {
    program.push_back(TableInstruction{
        .output_address = 1 << 20, .count = load.bytes, .table_address = kParameterSegment});
  }
  program.push_back(OutputInstruction{.input_address = 1 << 20, .bytes = load.bytes});
  program.push_back(EndInstruction{});
  host.PostInstructions(program);
  std::vector<Posted> posted;
  const auto post = [&] {
    host.PostStart({.instruction_count = static_cast<uint32_t>(program.size()),
                    .parameter_base = 4 << 20,
                    .request_id = static_cast<uint32_t>(posted.size())});
    host.PostInput(Bytes(load.bytes));
    const uint64_t output = host.PostOutput(load.bytes);
    posted.push_back({.output = output, .event = host.PostEvent()});
    host.Ring();
  };
  for (uint32_t i = 0; i < in_flight; ++i) post();
  for (uint32_t i = 0; i < requests; ++i) {
    while (!host.HasEvent(posted[i].event)) {
      EXPECT_TRUE(host.endpoint().Step());
    }
    const RingEvent event = host.EventAt(posted[i].event);
    timed.alone = event.event.detail;
    timed.clocks.push_back(event.clock);
    post();
  }
  timed.link_cycles =
      DivideRoundingUp(load.bytes * profile.clock_hz, profile.link_bytes_per_second);
  timed.core_cycles = uint64_t{load.passes} * load.bytes / profile.array_columns;
  return timed;
}

constexpr Load kLinkBound{.bytes = 64'000, .passes = 10, .link_bytes_per_second = 100'000'000};
constexpr Load kCoreBound{.bytes = 64'000, .passes = 400, .link_bytes_per_second = 1'000'000'000};

TEST(PcieEndpoint, OneRequestInFlightTakesItsOwnTime) {
  for (const Load& load : {kLinkBound, kCoreBound}) {
    const Timed timed = RunLoad(load, 1, 10);
    for (size_t i = 0; i < timed.clocks.size(); ++i) {
      EXPECT_EQ(timed.clocks[i], (i + 1) * timed.alone);
    }
  }
}

TEST(PcieEndpoint, FourRequestsInFlightTakeTheTimeOfTheBottleneck) {
  constexpr uint32_t kRequests = 50;
  for (const Load& load : {kLinkBound, kCoreBound}) {
    const Timed timed = RunLoad(load, 4, kRequests);
    const uint64_t bottleneck = std::max(timed.link_cycles, timed.core_cycles);
    EXPECT_EQ(timed.clocks.front(), timed.alone);
    for (size_t i = 0; i < timed.clocks.size(); ++i) {
      EXPECT_GE(timed.clocks[i], (i + 1) * bottleneck) << "faster than can be";
    }
    const double each = static_cast<double>(timed.clocks.back() - timed.clocks.front()) /
                        static_cast<double>(kRequests - 1);
    EXPECT_LT(each, 1.05 * static_cast<double>(bottleneck));
    EXPECT_LT(each, 0.95 * static_cast<double>(timed.alone));
  }
}

TEST(PcieEndpoint, KeepsNoTimeIfItIsNotAsked) {
  RingHost host(64, {.profile = SmallProfile(), .timekeeping = Timekeeping::kNever});
  host.SwitchOn();
  host.PostInstructions(Echo(1));
  const Posted posted = PostEcho(host, {1}, 1);
  host.RingAndRun();
  EXPECT_EQ(host.EventAt(posted.event),
            (RingEvent{.event = {.request_id = 1}, .clock = 0, .sequence = 1}));
}

TEST(PcieEndpoint, ASteadyStateAllocatesNothing) {
  RingHost host;
  host.SwitchOn();
  host.PostInstructions(Echo(100));
  Posted posted = PostEcho(host, Bytes(100), 1);
  host.RingAndRun();
  const Bytes descriptors = host.Read(host.ring() + kDescriptorBytes, 4 * kDescriptorBytes);
  const auto again = [&] {
    for (size_t i = 0; i < 4; ++i) {
      std::array<uint8_t, kDescriptorBytes> bytes;
      std::copy_n(&descriptors[i * kDescriptorBytes], kDescriptorBytes, bytes.begin());
      host.PostRaw(bytes);
    }
    host.RingAndRun();
  };
  for (int i = 0; i < 4; ++i) again();
  const AllocationMeter meter;
  for (int i = 0; i < 100; ++i) again();
  EXPECT_EQ(meter.count(), 0);
  EXPECT_EQ(host.EventAt(posted.event).sequence, 105u);
}

// ---- Stops --------------------------------------------------------------------------------------

// What is told after a stop; and that nothing helps but a reset, after which all is well.
void ExpectStop(RingHost& host, RingStatus status, uint32_t number, uint64_t address = 0) {
  EXPECT_EQ(host.status(), status);
  EXPECT_EQ(host.Get(RingRegister::kStopDescriptor), number);
  EXPECT_EQ(host.stop_address(), address);
  EXPECT_EQ(host.TakeRaised(RingVector::kFault), 1);
  const size_t moved = host.read_bytes() + host.written_bytes();
  host.Unmap(UINT64_MAX);
  host.Ring();
  EXPECT_FALSE(host.endpoint().Step());
  EXPECT_EQ(host.read_bytes() + host.written_bytes(), moved);
  host.ResetCore();
  EXPECT_EQ(host.status(), RingStatus::kOff);
  EXPECT_EQ(host.Get(RingRegister::kStopDescriptor), 0u);
  EXPECT_EQ(host.stop_address(), 0u);
  host.SwitchOn();
  host.PostInstructions(Echo(3));
  const Posted posted = PostEcho(host, {7, 8, 9}, 11);
  host.RingAndRun();
  EXPECT_EQ(host.Read(posted.output, 3), (Bytes{7, 8, 9}));
  EXPECT_EQ(host.EventAt(posted.event).event.request_id, 11u);
}

TEST(PcieEndpoint, StopsAtADescriptorThatIsNone) {
  const auto bad = [](size_t place, uint8_t value) {
    auto bytes = EncodeDescriptor(
        {.kind = DescriptorKind::kEvent, .bytes = kRingEventBytes, .address = RingHost::kMemory});
    bytes[place] = value;
    return bytes;
  };
  const auto instructions = [](uint32_t offset, uint32_t bytes) {
    return EncodeDescriptor({.kind = DescriptorKind::kInstructions,
                             .bytes = bytes,
                             .address = RingHost::kMemory,
                             .program_offset = offset});
  };
  const auto program_bytes = static_cast<uint32_t>(SmallProfile().program_memory_bytes);
  const std::array<uint8_t, kDescriptorBytes> cases[] = {
      bad(0, 4),
      bad(0, 255),
      bad(1, 2),
      bad(2, 1),
      bad(31, 1),
      bad(20, 1),
      bad(4, 16),
      instructions(64, 128),
      instructions(0, 127),
      instructions(program_bytes, 128),
      instructions(0xFFFF'FF80, 128),
      instructions(128, 0xFFFF'FF80),
  };
  for (const auto& descriptor : cases) {
    RingHost host;
    host.SwitchOn(0xFFFF'FFFF);
    host.PostInstructions(Echo(1));
    host.PostRaw(descriptor);
    host.PostEvent();
    host.RingAndRun();
    ExpectStop(host, RingStatus::kBadDescriptor, 0);
  }
}

TEST(PcieEndpoint, StopsAtARingThatIsNone) {
  struct Case {
    uint64_t address;
    uint32_t entries;
  };
  for (const Case& ring : {Case{RingHost::kMemory + 32, 64}, Case{RingHost::kMemory, 0},
                           Case{RingHost::kMemory, 4}, Case{RingHost::kMemory, 12},
                           Case{RingHost::kMemory, 8192}, Case{RingHost::kMemory, 0x8000'0000}}) {
    RingHost host;
    host.Set(RingRegister::kRingLow, static_cast<uint32_t>(ring.address));
    host.Set(RingRegister::kRingHigh, static_cast<uint32_t>(ring.address >> 32));
    host.Set(RingRegister::kRingEntries, ring.entries);
    host.Set(RingRegister::kRingControl, kRingOn);
    ExpectStop(host, RingStatus::kBadDescriptor, 0);
  }
}

TEST(PcieEndpoint, StopsAtATailBeyondTheRing) {
  for (const uint32_t beyond : {9u, 100u, 0x8000'0000u, 0xFFFF'FFFFu}) {
    RingHost host(8);
    host.SwitchOn(5);
    host.PostInstructions(Echo(1));
    host.Ring();
    host.Run();
    host.Set(RingRegister::kRingTail, 6 + beyond);
    ExpectStop(host, RingStatus::kBadDescriptor, 6);
  }
}

TEST(PcieEndpoint, StopsWhereMemoryDoesNotAnswer) {
  constexpr uint64_t kNowhere = 0x123'4567'89AB;
  const auto stops_at = [](const std::function<void(RingHost&)>& post, uint32_t number,
                           uint64_t address) {
    RingHost host;
    host.SwitchOn();
    host.PostInstructions({ParametersInstruction{.bytes = 4}, InputInstruction{.bytes = 4},
                           OutputInstruction{.bytes = 4}, EndInstruction{}});
    host.PostStart({.instruction_count = 4});
    post(host);
    host.RingAndRun();
    ExpectStop(host, RingStatus::kDmaFault, number, address);
  };
  const auto bytes = [&](DescriptorKind kind) -> Descriptor {
    return {.kind = kind, .bytes = 4, .address = kNowhere};
  };
  stops_at([&](RingHost& host) { host.Post(bytes(DescriptorKind::kParameters)); }, 2, kNowhere);
  stops_at(
      [&](RingHost& host) {
        host.PostInput({1, 2, 3, 4}, DescriptorKind::kParameters);
        host.Post(bytes(DescriptorKind::kInput));
      },
      3, kNowhere);
  const auto fed = [](RingHost& host) {
    host.PostInput({1, 2, 3, 4}, DescriptorKind::kParameters);
    host.PostInput({1, 2, 3, 4});
  };
  stops_at(
      [&](RingHost& host) {
        fed(host);
        host.Post(bytes(DescriptorKind::kOutput));
      },
      4, kNowhere);
  stops_at(
      [&](RingHost& host) {
        fed(host);
        host.PostOutput(4);
        host.Post({.kind = DescriptorKind::kEvent, .bytes = kRingEventBytes, .address = kNowhere});
      },
      5, kNowhere);
  stops_at(
      [&](RingHost& host) {
        fed(host);
        host.PostOutput(4);
        host.PostEvent();
        host.Post({.kind = DescriptorKind::kInstructions, .bytes = 128, .address = kNowhere});
      },
      6, kNowhere);
  // Only its end; and past the end of all addresses.
  const uint64_t end = RingHost::kMemory + (4 << 20);
  stops_at(
      [&](RingHost& host) {
        host.Post({.kind = DescriptorKind::kParameters, .bytes = 4, .address = end - 3});
      },
      2, end);
  stops_at(
      [&](RingHost& host) {
        host.Post({.kind = DescriptorKind::kParameters, .bytes = 4, .address = UINT64_MAX});
      },
      2, UINT64_MAX);
}

TEST(PcieEndpoint, StopsWhereTheRingDoesNotAnswer) {
  RingHost host;
  host.SwitchOn();
  host.PostInstructions(Echo(1));
  PostEcho(host, {1}, 1);
  host.Unmap(host.ring() + 64);
  host.RingAndRun();
  ExpectStop(host, RingStatus::kDmaFault, 0, host.ring() + 64);
}

TEST(PcieEndpoint, TellsOfAFaultAndStops) {
  RingHost host;
  host.SwitchOn();
  host.PostInstructions({OutputInstruction{.bytes = 2}, FillInstruction{}, EndInstruction{}});
  host.PostInstructions(Echo(1), 1024);
  host.PostStart({.program_offset = 1024, .instruction_count = 3, .request_id = 1});
  host.PostInput({9});
  const uint64_t good_output = host.PostOutput(1);
  const uint64_t good = host.PostEvent();
  host.PostStart({.instruction_count = 3, .request_id = 2});
  host.PostOutput(1);
  host.PostOutput(100);
  const uint64_t bad = host.PostEvent();
  const Posted never = PostEcho(host, {1}, 3);
  host.RingAndRun();
  EXPECT_EQ(host.Read(good_output, 1), Bytes{9});
  EXPECT_EQ(host.EventAt(good).event.kind, EventKind::kCompleted);
  const RingEvent event = host.EventAt(bad);
  EXPECT_EQ(event.event, (Event{.kind = EventKind::kFaulted,
                                .fault = FaultCode::kBadOperand,
                                .request_id = 2,
                                .detail = 1}));
  EXPECT_EQ(event.sequence, 2u);
  EXPECT_EQ(event.clock, host.EventAt(good).clock);
  EXPECT_FALSE(host.HasEvent(never.event));
  EXPECT_EQ(host.TakeRaised(RingVector::kEvent), 2);
  EXPECT_EQ(host.Get(Register::kStatus), 2u);
  EXPECT_EQ(host.Get(Register::kFaultInstruction), 1u);
  ExpectStop(host, RingStatus::kProgramFault, 6);
}

TEST(PcieEndpoint, StopsForAFaultThatHasNoPlace) {
  RingHost host;
  host.SwitchOn();
  host.PostStart({.instruction_count = 0});
  host.PostOutput(5);
  host.RingAndRun();
  EXPECT_EQ(host.Get(Register::kFaultCode), static_cast<uint32_t>(FaultCode::kBadProgram));
  ExpectStop(host, RingStatus::kProgramFault, 0);
}

// Anything that a host may write: nothing happens to us, and after a reset all is well.
TEST(PcieEndpoint, SurvivesAnything) {
  Rng rng(TestSeed(9));
  const auto any = [&](uint64_t most) {
    return static_cast<uint64_t>(rng.Int(0, static_cast<int64_t>(most)));
  };
  for (int round = 0; round < TestCount(300); ++round) {
    RingHost host(16, {.profile = SmallProfile()}, 1 << 20);
    host.SwitchOn(static_cast<uint32_t>(any(UINT32_MAX)));
    host.PostInstructions(Echo(20));
    host.Ring();
    for (int i = 0; i < 60; ++i) {
      Descriptor descriptor;
      const DescriptorKind kinds[] = {DescriptorKind::kInstructions, DescriptorKind::kInput,
                                      DescriptorKind::kParameters,   DescriptorKind::kOutput,
                                      DescriptorKind::kStart,        DescriptorKind::kEvent};
      descriptor.kind = kinds[any(5)];
      descriptor.interrupts = any(1) != 0;
      if (descriptor.kind == DescriptorKind::kStart) {
        descriptor.start = {.program_offset = any(9) == 0 ? 128u : 0u,
                            .instruction_count = static_cast<uint32_t>(any(4)) + 2};
      } else {
        descriptor.bytes = descriptor.kind == DescriptorKind::kEvent
                               ? static_cast<uint32_t>(kRingEventBytes)
                               : static_cast<uint32_t>(any(3) * 128);
        descriptor.address =
            any(30) == 0 ? any(INT64_MAX) * 2 : RingHost::kMemory + any((1 << 20) - 1000);
      }
      auto bytes = EncodeDescriptor(descriptor);
      if (any(40) == 0) bytes[any(31)] = static_cast<uint8_t>(any(255));
      host.PostRaw(bytes);
      if (any(2) != 0) host.Ring();
      if (any(20) == 0) {
        host.endpoint().Write32(any(0x240), static_cast<uint32_t>(any(UINT32_MAX)));
      }
      for (uint64_t steps = any(6); steps > 0; --steps) host.endpoint().Step();
      host.endpoint().Read32(any(0x240));
    }
    int steps = 0;
    while (host.endpoint().Step()) ASSERT_LT(++steps, 10'000);
    host.endpoint().Reset();
    host.SwitchOn();
    host.PostInstructions(Echo(3));
    const Posted posted = PostEcho(host, {7, 8, 9}, 11);
    host.RingAndRun();
    ASSERT_EQ(host.Read(posted.output, 3), (Bytes{7, 8, 9}));
  }
}

}  // namespace
}  // namespace atollrt
