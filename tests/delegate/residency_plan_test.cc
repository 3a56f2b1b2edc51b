// SPDX-License-Identifier: Apache-2.0
//
// The plan says what the real Device then does on the emulator, byte for byte.
#include "delegate/residency_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "delegate/delegate.h"
#include "driver/atoll1/protocol.h"
#include "runtime/interpreter.h"
#include "runtime/plan/partition_report.h"
#include "tests/support/emulated_device.h"
#include "tests/support/model_builder.h"
#include "tests/support/rng.h"
#include "tests/support/test_executables.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kUnit = kResidencyUnitBytes;
constexpr ResidencyMemory kMemory{.memory_bytes = 8 * kUnit, .program_memory_bytes = 1 << 20};

// One part of `units` of parameters; an upload takes a second for each.
ResidencyModel OnePart(uint64_t units, uint64_t activation_units = 1) {
  return {{.footprint = {.program_bytes = 256,
                         .parameter_bytes = units * kUnit,
                         .activation_bytes = activation_units * kUnit},
           .upload = {.bytes = 256 + units * kUnit, .seconds = static_cast<double>(units)},
           .inference_seconds = 0.5}};
}

ResidencyPlan Plan(const std::vector<ResidencyModel>& models,
                   const ResidencyMemory& memory = kMemory) {
  auto plan = PlanResidency(models, memory);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? *std::move(plan) : ResidencyPlan();
}

TEST(ResidencyPlan, WhatFitsIsUploadedOnce) {
  const ResidencyPlan plan = Plan({OnePart(3), OnePart(4)});
  EXPECT_TRUE(plan.all_fit);
  ASSERT_EQ(plan.rounds.size(), 2u);
  EXPECT_EQ(plan.repeating_round, 1u);
  EXPECT_EQ(plan.rounds[0][0].upload.bytes, 256 + 3 * kUnit);
  EXPECT_EQ(plan.rounds[0][1].upload.seconds, 4);
  for (const ResidencyTurn& turn : plan.rounds[1]) {
    EXPECT_EQ(turn.upload.bytes, 0u);
    EXPECT_THAT(turn.evicted, IsEmpty());
  }
  EXPECT_EQ(plan.round_seconds, 1);
  EXPECT_EQ(plan.resident_round_seconds, 1);
  EXPECT_EQ(plan.needed.memory_bytes, 8 * kUnit);
  EXPECT_EQ(plan.needed.program_memory_bytes, 512u);
  EXPECT_THAT(plan.in_subset, ElementsAre(true, true));
}

TEST(ResidencyPlan, TheLeastRecentlyUsedMakesRoom) {
  const ResidencyPlan plan = Plan({OnePart(3), OnePart(4), OnePart(2)});
  EXPECT_FALSE(plan.all_fit);
  ASSERT_GE(plan.rounds.size(), 2u);
  EXPECT_THAT(plan.rounds[0][2].evicted, ElementsAre(0));
  // In turn, whoever comes next has been used the longest time ago.
  for (size_t r = plan.repeating_round; r < plan.rounds.size(); ++r) {
    EXPECT_THAT(plan.rounds[r][0].evicted, ElementsAre(1));
    EXPECT_EQ(plan.rounds[r][0].upload.seconds, 3);
  }
  EXPECT_GT(plan.round_seconds, plan.resident_round_seconds);
  EXPECT_EQ(plan.needed.memory_bytes, 10 * kUnit);
  EXPECT_THAT(plan.in_subset, ElementsAre(true, true, false));
}

TEST(ResidencyPlan, ProgramMemoryCountsToo) {
  const ResidencyPlan plan =
      Plan({OnePart(1), OnePart(1)}, {.memory_bytes = 1 << 20, .program_memory_bytes = 384});
  EXPECT_FALSE(plan.all_fit);
  EXPECT_EQ(plan.needed.memory_bytes, 3 * kUnit);
  EXPECT_EQ(plan.needed.program_memory_bytes, 512u);
  EXPECT_THAT(plan.in_subset, ElementsAre(true, false));
}

// One model of two partitions that do not fit together.
TEST(ResidencyPlan, AModelMayBeInItsOwnWay) {
  ResidencyModel model = OnePart(5);
  model.push_back(OnePart(6)[0]);
  const ResidencyPlan plan = Plan({model, OnePart(0)});
  EXPECT_FALSE(plan.all_fit);
  const ResidencyTurn& turn = plan.rounds.back()[0];
  EXPECT_EQ(turn.upload.seconds, 11);
  EXPECT_THAT(turn.evicted, ::testing::Contains(0));
  EXPECT_THAT(plan.in_subset, ElementsAre(false, true));
  EXPECT_EQ(plan.needed.memory_bytes, 12 * kUnit);
}

TEST(ResidencyPlan, NothingOnTheDeviceTakesNothing) {
  const ResidencyPlan plan = Plan({{}, OnePart(7)});
  EXPECT_TRUE(plan.all_fit);
  EXPECT_EQ(plan.rounds[0][0].upload.bytes, 0u);
  EXPECT_THAT(plan.in_subset, ElementsAre(true, true));
}

TEST(ResidencyPlan, RefusesWhatCannotBePlanned) {
  const auto message = [](const std::vector<ResidencyModel>& models) {
    return PlanResidency(models, kMemory).status().message();
  };
  EXPECT_THAT(message({}), HasSubstr("must be 1 to 12"));
  EXPECT_THAT(message(std::vector<ResidencyModel>(13)), HasSubstr("13 models"));
  EXPECT_THAT(message({OnePart(1), OnePart(8)}), HasSubstr("model 1 of the plan"));
  EXPECT_EQ(PlanResidency(std::vector<ResidencyModel>{OnePart(8)}, kMemory).status().code(),
            StatusCode::kResourceExhausted);
}

// Whatever it says of memory is enough and, but for one unit, needed.
TEST(ResidencyPlan, NeededMemoryIsEnoughAndNoMoreThanThat) {
  Rng rng(TestSeed(5));
  for (int i = 0; i < 50; ++i) {
    std::vector<ResidencyModel> models;
    for (int64_t count = rng.Int(1, 5); count > 0; --count) {
      models.push_back(
          OnePart(static_cast<uint64_t>(rng.Int(0, 6)), static_cast<uint64_t>(rng.Int(0, 2))));
    }
    ResidencyMemory memory = Plan(models).needed;
    memory.program_memory_bytes = 1 << 20;
    if (memory.memory_bytes > kUnit) {
      EXPECT_TRUE(Plan(models, memory).all_fit);
      memory.memory_bytes -= kUnit;
      const auto plan = PlanResidency(models, memory);
      EXPECT_FALSE(plan.ok() && plan->all_fit);
    }
  }
}

TEST(ResidencyPlan, AnUploadIsTheProgramsAndTheCachingProgram) {
  DeviceInfo device;
  device.array_rows = 64;
  device.array_columns = 64;
  device.clock_hz = 1'000'000;
  device.link_bytes_per_second = 1000;
  Executable executable = MakeTableExecutable({.extra_parameters = 744});
  const Upload resident = UploadOf(executable, device);
  // Programs of 6 instructions; 1000 bytes of parameters.
  EXPECT_EQ(resident.bytes, (16u + 768) + (8 + 32) + (8 + 1000));
  EXPECT_NEAR(resident.seconds, 1.768, 0.001);
  executable = MakeTableExecutable({.table = TableExecutableOptions::kStreamed});
  EXPECT_EQ(UploadOf(executable, device).bytes, 16u + 5 * 128);
  EXPECT_EQ(UploadOf(executable, device).seconds, 0.64);
}

// ---- Against the device -------------------------------------------------------------------------

std::unique_ptr<DeviceDelegate> DelegateWith(const ResidencyMemory& memory) {
  const EmulatedDevice device{.memory_bytes = memory.memory_bytes,
                              .program_bytes = memory.program_memory_bytes};
  return std::make_unique<DeviceDelegate>(device.Open());
}

// One partition, or two around an operator that no device has.
ModelBuilder RandomConvolutions(Rng& rng) {
  ModelBuilder m(rng.Next());
  const auto conv = [&](int32_t x) {
    return m.Conv2D(x, {.channels = static_cast<int32_t>(rng.Int(8, 96)),
                        .kernel = static_cast<int32_t>(rng.Int(1, 3))});
  };
  const auto size = static_cast<int32_t>(rng.Int(2, 8));
  int32_t x = conv(m.Input({1, size, size, static_cast<int32_t>(rng.Int(8, 64))}));
  if (rng.OneIn(3)) {
    const Shape shape = m.tensor(x).shape;
    const int32_t divisor =
        m.Constant(DataType::kInt8, {1}, {static_cast<uint8_t>(rng.Int(5, 50))});
    m.tensor(divisor).quantization = {.scales = {1.0f / 8}, .zero_points = {-3}};
    x = conv(m.Node(OpType::kDIV, {x, divisor}, shape, ElementwiseOptions{}));
  }
  m.Output(conv(x));
  return m;
}

// What an inference sends when everything is on the device.
uint64_t ResidentBytes(const Interpreter& interpreter) {
  uint64_t bytes = 0;
  for (const Partition& partition : interpreter.partitions()) {
    const PartitionReport& report = *partition.report;
    bytes += kRecordHeaderBytes + kStartBytes + partition.inputs.size() * kRecordHeaderBytes +
             static_cast<uint64_t>(report.input_bytes);
    if (report.streamed_parameter_bytes > 0) {
      bytes += kRecordHeaderBytes + static_cast<uint64_t>(report.streamed_parameter_bytes);
    }
  }
  return bytes;
}

TEST(ResidencyPlan, SaysWhatTheDeviceThenUploads) {
  Rng rng(TestSeed(6));
  int evictions = 0, several_parts = 0, all_fit = 0;
  for (int i = 0; i < 40; ++i) {
    const ResidencyMemory memory{
        .memory_bytes = static_cast<uint64_t>(rng.Int(8, 64)) * kUnit,
        .program_memory_bytes = static_cast<uint64_t>(rng.Int(10, 60)) * kInstructionBytes};
    const auto delegate = DelegateWith(memory);
    std::vector<std::unique_ptr<Interpreter>> interpreters;
    std::vector<ResidencyModel> models;
    for (int64_t count = rng.Int(1, 4); count > 0; --count) {
      const ModelBuilder m = RandomConvolutions(rng);
      auto interpreter = Interpreter::Create(m.Load(), {.threads = 1, .delegate = delegate.get()});
      ASSERT_TRUE(interpreter.ok()) << interpreter.status().message();
      interpreters.push_back(*std::move(interpreter));
      models.push_back(ResidencyModelOf(*interpreters.back()));
      several_parts += models.back().size() > 1;
    }
    const ResidencyPlan plan = Plan(models, memory);
    all_fit += plan.all_fit;
    // The plan's rounds, then twice those that repeat.
    std::vector<ResidencyRound> rounds = plan.rounds;
    for (int again = 0; again < 2; ++again) {
      rounds.insert(rounds.end(), plan.rounds.begin() + static_cast<int>(plan.repeating_round),
                    plan.rounds.end());
    }
    for (size_t r = 0; r < rounds.size(); ++r) {
      for (size_t k = 0; k < interpreters.size(); ++k) {
        ASSERT_TRUE(interpreters[k]->Invoke().ok());
        ASSERT_EQ(interpreters[k]->last_cost().bytes_to_device - ResidentBytes(*interpreters[k]),
                  rounds[r][k].upload.bytes)
            << "model " << k << " in round " << r;
        evictions += !rounds[r][k].evicted.empty();
      }
    }
  }
  // The test has seen what it is for.
  EXPECT_GT(evictions, 50);
  EXPECT_GT(several_parts, 5);
  EXPECT_GT(all_fit, 3);
}

}  // namespace
}  // namespace atollrt
