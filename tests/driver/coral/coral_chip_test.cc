// SPDX-License-Identifier: Apache-2.0
//
// What a Coral is told, in which order, and what becomes of answers that it should not give
// (docs/coral.md).
#include "driver/coral/coral_chip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "driver/coral/executable.h"
#include "driver/coral/package.h"
#include "driver/device/device.h"
#include "tests/support/coral_packages.h"
#include "tests/support/fake_coral.h"

namespace atollrt {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Bytes = std::vector<uint8_t>;
using Sent = FakeCoralState::Sent;

class CoralChipTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // What the programs of tests/support/coral_packages.h do.
    state_->on_payload = [](FakeCoralState& state, const Sent& sent) {
      const auto first = sent.payload[0];
      const auto before = [&state](size_t n) {
        return state.sent.size() > n ? state.sent[state.sent.size() - 1 - n].payload[0] : 0;
      };
      if (sent.tag == 2 && before(1) == 0x11) state.Event(4);   // cached
      if (sent.tag == 1 && before(1) == 0x21) Emit(state, 16);  // its first outputs
      if (sent.tag == 0 && first == 0x22) Emit(state, 8), state.Event(4);
      if (sent.tag == 2 && before(2) == 0x51) Emit(state, 8), state.Event(4);
    };
  }
  static void Emit(FakeCoralState& state, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      state.output.push_back(static_cast<uint8_t>(state.output.size() + (count == 8 ? 16 : 0)));
    }
  }

  Status Open(CoralPerformance performance = CoralPerformance::kMax,
              UsbSpeed speed = UsbSpeed::kSuper) {
    auto chip =
        CoralChip::Open(std::make_unique<FakeCoral>(state_, &clock_), {.name = "test",
                                                                       .path = "2-3",
                                                                       .speed = speed,
                                                                       .performance = performance,
                                                                       .now = clock_.Function()});
    if (!chip.ok()) return chip.status();
    device_ =
        std::make_unique<Device>(*std::move(chip), ChipKeeper::Options{.now = clock_.Function()});
    return {};
  }

  ExecutableId Load(const PackedModel& model) {
    auto executable = ReadCoralPackage(WritePackage(model));
    EXPECT_TRUE(executable.ok()) << executable.status().message();
    const auto id = device_->Load(std::make_shared<CoralExecutable>(*std::move(executable)));
    EXPECT_TRUE(id.ok()) << id.status().message();
    return id.ok() ? *id : 0;
  }

  Status Run(ExecutableId id, bool stands_alone = false) {
    input_.resize(stands_alone ? 12 : 6);
    output_.assign(stands_alone ? 5 : 12, 0xEE);
    const auto request =
        device_->Submit({.executable = id, .inputs = {input_}, .outputs = {output_}});
    if (!request.ok()) return request.status();
    return device_->Wait(*request, &report_);
  }

  // The first bytes of what was sent, which say what it is.
  Bytes Firsts() const {
    Bytes firsts;
    for (const Sent& sent : state_->sent) firsts.push_back(sent.payload[0]);
    return firsts;
  }

  FakeClock clock_;
  std::shared_ptr<FakeCoralState> state_ = std::make_shared<FakeCoralState>();
  std::unique_ptr<Device> device_;
  Bytes input_ = {0, 1, 2, 3, 4, 5};
  Bytes output_;
  RequestReport report_;
};

TEST_F(CoralChipTest, OpenSetsTheClockAndPackets) {
  const struct {
    CoralPerformance performance;
    uint64_t clocks, clock_hz;
  } levels[] = {{CoralPerformance::kLow, 0xF, 62'500'000},
                {CoralPerformance::kMedium, 0x6, 125'000'000},
                {CoralPerformance::kHigh, 0x5, 250'000'000},
                {CoralPerformance::kMax, 0x0, 500'000'000}};
  for (const auto& level : levels) {
    ASSERT_TRUE(Open(level.performance, UsbSpeed::kHigh).ok());
    EXPECT_EQ(state_->registers[0x1a318] >> 28, level.clocks);
    EXPECT_EQ(state_->registers[0x4c058], 0x20u);
    EXPECT_EQ(device_->info().clock_hz, level.clock_hz);
    EXPECT_EQ(device_->info().family, DeviceFamily::kCoral);
    device_.reset();
  }
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(state_->registers[0x4c058], 0x80u);
  EXPECT_THAT(device_->info().description, HasSubstr("500 MHz, USB 3, port 2-3"));
}

TEST_F(CoralChipTest, CloseHaltsAndPutsToSleep) {
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(state_->registers[0x44018], 1u);
  device_.reset();
  EXPECT_EQ(state_->registers[0x1a318] >> 22 & 3, 3u);
  EXPECT_EQ(state_->registers[0x40210], 2u);
  EXPECT_EQ(state_->registers[0x4c060], 0u);
}

TEST_F(CoralChipTest, CloseGoesOnPastWhatFails) {
  ASSERT_TRUE(Open().ok());
  state_->before_control = [](const ControlSetup& setup) {
    return setup.value == 0xc070 ? InvalidArgument("stall") : Status();
  };
  device_.reset();
  EXPECT_EQ(state_->registers[0x1a318] >> 22 & 3, 3u);
}

TEST_F(CoralChipTest, CloseOfADeviceThatIsGoneIsShort) {
  ASSERT_TRUE(Open().ok());
  state_->is_gone = true;
  const Deadline begin = clock_.Now();
  device_.reset();
  EXPECT_EQ(clock_.Now(), begin);
}

TEST_F(CoralChipTest, ASecondOpenFindsItAsleep) {
  ASSERT_TRUE(Open().ok());
  device_.reset();
  state_->written.clear();
  ASSERT_TRUE(Open().ok());
  EXPECT_THAT(state_->written, ::testing::Not(Contains(0x1907cu)));
}

TEST_F(CoralChipTest, OtherChipsAreRefused) {
  state_->registers[0x1a000] = 0x02190123;
  const Status status = Open();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("0123"));
}

TEST_F(CoralChipTest, AChipThatDoesNotFollowGetsAResetThenUp) {
  int failures = 20;
  state_->before_control = [&](const ControlSetup& setup) {
    if (setup.value != 0xa318 || setup.request_type != 0x40) return Status();
    return failures-- > 0 ? Timeout("nothing") : Status();
  };
  EXPECT_EQ(Open().code(), StatusCode::kTimeout);
  EXPECT_EQ(state_->resets, 1);
  failures = 5;
  EXPECT_TRUE(Open().ok());
  EXPECT_EQ(state_->resets, 2);
  state_->before_control = nullptr;
}

TEST_F(CoralChipTest, AFewLostControlRequestsAreRepeated) {
  int failures = 4;
  state_->before_control = [&](const ControlSetup&) {
    return failures-- > 0 ? InvalidArgument("stall") : Status();
  };
  EXPECT_TRUE(Open().ok());
  EXPECT_EQ(state_->resets, 0);
  state_->before_control = nullptr;
}

TEST_F(CoralChipTest, ARunIsWhatItsListSays) {
  ASSERT_TRUE(Open().ok());
  const ExecutableId id = Load(CachingModel(7));
  const Status status = Run(id);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_THAT(state_->sent,
              ElementsAre(Sent{0, {0x11, 0}}, Sent{2, {1, 2, 3, 4, 5, 6, 7, 8}}, Sent{0, {0x21, 0}},
                          Sent{1, {0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0, 0}},
                          Sent{2, {9, 9, 8, 8}}, Sent{0, {0x22, 0}}));
  EXPECT_THAT(input_, ElementsAre(0, 1, 2, 3, 4, 5)) << "the caller's input is as it was";
  for (uint8_t& byte : output_) byte ^= 0x80;
  EXPECT_THAT(output_, ElementsAre(0, 1, 4, 5, 16, 17, 8, 9, 12, 13, 20, 21));
  EXPECT_EQ(report_.parameter_bytes, 12u);
  EXPECT_EQ(report_.bytes_to_device, 6 * 8u + 2 + 8 + 2 + 8 + 4 + 2);
  EXPECT_EQ(report_.bytes_from_device, 24 + 2 * 16u);
}

TEST_F(CoralChipTest, PacketsOfAnySizeGiveTheSameOutputs) {
  ASSERT_TRUE(Open().ok());
  const ExecutableId id = Load(CachingModel(7));
  ASSERT_TRUE(Run(id).ok());
  const Bytes expected = output_;
  for (const size_t packet : {1u, 5u, 8u, 23u}) {
    state_->packet_bytes = packet;
    ASSERT_TRUE(Run(id).ok());
    EXPECT_EQ(output_, expected);
  }
}

TEST_F(CoralChipTest, ParametersAreSentOnce) {
  ASSERT_TRUE(Open().ok());
  const ExecutableId id = Load(CachingModel(7));
  ASSERT_TRUE(Run(id).ok());
  state_->sent.clear();
  ASSERT_TRUE(Run(id).ok());
  EXPECT_THAT(Firsts(), ElementsAre(0x21, 0x80, 9, 0x22));
  EXPECT_EQ(report_.parameter_bytes, 4u);
}

TEST_F(CoralChipTest, OneTokenSharesTheChipAndOthersEvict) {
  ASSERT_TRUE(Open().ok());
  const ExecutableId a = Load(CachingModel(7, 0xA)), b = Load(CachingModel(7, 0xB));
  const ExecutableId other = Load(CachingModel(8));
  const ExecutableId alone = Load(StandAloneModel());
  const auto uploads = [&](ExecutableId id, bool stands_alone = false) {
    state_->sent.clear();
    const Status status = Run(id, stands_alone);
    EXPECT_TRUE(status.ok()) << status.message();
    return Firsts()[0] == 0x11;
  };
  EXPECT_TRUE(uploads(a));
  EXPECT_TRUE(uploads(b));
  EXPECT_FALSE(uploads(a));
  EXPECT_FALSE(uploads(b));
  EXPECT_TRUE(uploads(other));
  EXPECT_TRUE(uploads(a));
  EXPECT_TRUE(uploads(b)) << "each when its own turn comes";
  EXPECT_FALSE(uploads(alone, true));
  EXPECT_TRUE(uploads(a)) << "an executable without a token evicts all";
  EXPECT_FALSE(uploads(a));
}

TEST_F(CoralChipTest, AnUploadCountsOnlyOnceTheChipHasSaidSo) {
  ASSERT_TRUE(Open().ok());
  const ExecutableId id = Load(CachingModel(7));
  const auto answer = state_->on_payload;
  state_->on_payload = nullptr;  // no event
  EXPECT_EQ(Run(id).code(), StatusCode::kTimeout);
  EXPECT_EQ(state_->resets, 1);
  state_->on_payload = answer;
  state_->sent.clear();
  ASSERT_TRUE(Run(id).ok());
  EXPECT_EQ(Firsts()[0], 0x11);
}

TEST_F(CoralChipTest, NothingIsCachedAfterAFailure) {
  ASSERT_TRUE(Open().ok());
  const ExecutableId id = Load(CachingModel(7));
  ASSERT_TRUE(Run(id).ok());
  int calls = 0;
  state_->before = [&](uint8_t) { return ++calls == 3 ? InvalidArgument("stall") : Status(); };
  EXPECT_EQ(Run(id).code(), StatusCode::kDeviceLost);
  EXPECT_EQ(device_->state(), DeviceState::kReady);
  state_->before = nullptr;
  state_->sent.clear();
  ASSERT_TRUE(Run(id).ok());
  EXPECT_EQ(Firsts()[0], 0x11);
}

TEST_F(CoralChipTest, BadEventsEndTheConversation) {
  const struct {
    Bytes event;
    const char* message;
  } events[] = {{Bytes(8), "event of 8 bytes"},
                {[] {
                   Bytes e(16);
                   e[12] = 5;
                   return e;
                 }(),
                 "event with tag 5 where 4 was due"},
                {Bytes(16), "event with tag 0"}};
  for (const auto& bad : events) {
    ASSERT_TRUE(Open().ok());
    const ExecutableId id = Load(CachingModel(7));
    state_->events.push_back(bad.event);
    const Status status = Run(id);
    EXPECT_EQ(status.code(), StatusCode::kDeviceLost);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("upload of the parameters"),
                                        HasSubstr("transfer 3 of 3"), HasSubstr(bad.message)));
    device_.reset();
    state_->events.clear();
    ASSERT_TRUE(Open().ok());
    EXPECT_TRUE(Run(Load(CachingModel(7))).ok());
    device_.reset();
  }
}

TEST_F(CoralChipTest, ATimeoutSaysWhatTheChipReports) {
  ASSERT_TRUE(Open().ok());
  const ExecutableId id = Load(CachingModel(7));
  state_->on_payload = nullptr;
  state_->registers[0x486f0] = 0x210;
  state_->registers[0x48700] = 0x200;
  const Status status = Run(id);
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  EXPECT_THAT(status.message(),
              HasSubstr("error answer to a read on the bus, invalid descriptor in the instruction "
                        "queue (error register 210, first error 200)"));
}

TEST_F(CoralChipTest, WarningsAreClearedWhenSomethingFails) {
  ASSERT_TRUE(Open().ok());
  const ExecutableId id = Load(CachingModel(7));
  state_->on_payload = nullptr;
  state_->registers[0x1a0dc] = 0x80000000;
  state_->interrupts = {{0x10 | 0x04 | 0x08 | 0x02, 0, 0, 0}, {0x01, 0, 0, 0}, {1, 2}};
  state_->written.clear();
  EXPECT_EQ(Run(id).code(), StatusCode::kTimeout);
  EXPECT_THAT(state_->written, AllOf(Contains(0x1a0dcu), Contains(0x4c078u), Contains(0x4c088u),
                                     Contains(0x4c098u), Contains(0x4c0a8u), Contains(0x4c068u)));
}

TEST_F(CoralChipTest, ASilentChipCostsAFewSeconds) {
  ASSERT_TRUE(Open().ok());
  const ExecutableId id = Load(CachingModel(7));
  state_->on_payload = nullptr;
  const Deadline begin = clock_.Now();
  EXPECT_EQ(Run(id).code(), StatusCode::kTimeout);
  EXPECT_LE(clock_.Now() - begin, std::chrono::seconds(5));
}

TEST_F(CoralChipTest, ExecutablesOfOtherDevicesAreRefused) {
  ASSERT_TRUE(Open().ok());
  const auto id = device_->Load(std::make_shared<Executable>());
  EXPECT_EQ(id.code(), StatusCode::kUnsupported);
  EXPECT_THAT(id.status().message(), HasSubstr("Atoll-1 devices, device test is a Coral"));
}

TEST_F(CoralChipTest, AnUnloadedExecutableIsForgotten) {
  ASSERT_TRUE(Open().ok());
  const ExecutableId id = Load(CachingModel(7));
  ASSERT_TRUE(Run(id).ok());
  ASSERT_TRUE(device_->Unload(id).ok());
  state_->sent.clear();
  ASSERT_TRUE(Run(Load(CachingModel(7))).ok());
  EXPECT_EQ(Firsts()[0], 0x11);
}

}  // namespace
}  // namespace atollrt
