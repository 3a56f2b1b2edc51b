// SPDX-License-Identifier: Apache-2.0
#include "driver/faults/fault_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/allocation_meter.h"
#include "tests/support/one_shaky_device.h"

namespace atollrt {
namespace {

using ::testing::HasSubstr;

TEST(FaultPlans, AreReadOrExplained) {
  const FaultPlan plan = Script(
      "# a comment\nspeed high\nthrottle 20MB/s\n out 12 unplug 300ms twice # here\n"
      "in 3 shorten 100\ncontrol 4 stall\nevent 1 corrupt\nopen 2 unplug never\n");
  EXPECT_TRUE(plan.high_speed);
  EXPECT_EQ(plan.bytes_per_second, 20'000'000u);
  ASSERT_EQ(plan.faults.size(), 5u);
  EXPECT_EQ(Describe(plan.faults[0]), "unplug 300ms twice in out 12");
  EXPECT_EQ(Describe(plan.faults[1]), "shorten 100 in in 3");
  EXPECT_EQ(Describe(plan.faults[4]), "unplug never in open 2");

  const FaultPlan pcie = Script("write 3 unmap 2\nwrite 4 unmap\nvector 5 repeat\nread 6 corrupt");
  EXPECT_EQ(Describe(pcie.faults[0]), "unmap 2 in write 3");
  EXPECT_EQ(Describe(pcie.faults[1]), "unmap in write 4");
  EXPECT_TRUE(CheckSuits(plan, FaultBus::kUsb).ok());
  EXPECT_TRUE(CheckSuits(pcie, FaultBus::kPcie).ok());
  EXPECT_TRUE(CheckSuits(Script("open 1 unplug never\nreset 1 drop"), FaultBus::kPcie).ok());
  EXPECT_THAT(
      CheckSuits(plan, FaultBus::kPcie).message(),
      HasSubstr("'unplug 300ms twice in out 12' does not happen on PCIe; there it is read"));
  EXPECT_THAT(CheckSuits(pcie, FaultBus::kUsb).message(), HasSubstr("does not happen on USB"));
  EXPECT_THAT(CheckSuits(Script("speed high"), FaultBus::kPcie).message(), HasSubstr("USB cable"));

  const auto seeded = ReadFaultPlan("seed:7:1/400");
  ASSERT_TRUE(seeded.ok());
  EXPECT_EQ(seeded->seed, 7u);
  EXPECT_DOUBLE_EQ(seeded->probability, 1.0 / 400);

  const auto refusal = [](std::string_view text) {
    const auto result = ParseFaultScript(text);
    return result.ok() ? std::string("accepted") : result.status().message();
  };
  EXPECT_THAT(refusal("\nfoo 1 drop"), HasSubstr("line 2 of the fault script, 'foo 1 drop'"));
  EXPECT_THAT(refusal("out 0 drop"), HasSubstr("its number, from 1"));
  EXPECT_THAT(refusal("out 1 explode"), HasSubstr("third comes drop"));
  EXPECT_THAT(refusal("out 1 corrupt"), HasSubstr("cannot happen"));
  EXPECT_THAT(refusal("in 1 shorten x"), HasSubstr("shorten 100"));
  EXPECT_THAT(refusal("in 1 unplug 5"), HasSubstr("milliseconds"));
  EXPECT_THAT(refusal("in 1 unplug 5ms later"), HasSubstr("moved or twice"));
  EXPECT_THAT(refusal("write 1 unmap 0"), HasSubstr("unmap 2 for the second"));
  EXPECT_THAT(refusal("write 1 corrupt"), HasSubstr("cannot happen"));
  EXPECT_THAT(refusal("read 1 repeat"), HasSubstr("cannot happen"));
  EXPECT_THAT(refusal("vector 1 stall"), HasSubstr("cannot happen"));
  EXPECT_THAT(refusal("in 1 drop now"), HasSubstr("too many words"));
  EXPECT_THAT(refusal("throttle 5"), HasSubstr("throttle 20MB/s"));
  EXPECT_EQ(ReadFaultPlan("seed:x:1").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadFaultPlan("seed:1:2").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadFaultPlan("/nonexistent").code(), StatusCode::kNotFound);
}

// What can be noticed, anywhere in about the given part of calls, and the same each time.
TEST(FaultPlans, AtRandomAreAFunctionOfSeedPlaceAndNumber) {
  const FaultPlan plan = *ReadFaultPlan("seed:7:1/10");
  for (int where = 0; where < kFaultWheres; ++where) {
    int faults = 0;
    for (uint64_t number = 1; number <= 2000; ++number) {
      const auto fault = plan.Find(static_cast<FaultWhere>(where), number, 3);
      EXPECT_EQ(fault, plan.Find(static_cast<FaultWhere>(where), number, 3));
      if (!fault.has_value()) continue;
      ++faults;
      EXPECT_TRUE(CanHappen(fault->where, fault->what)) << Describe(*fault);
      EXPECT_FALSE(fault->what == FaultWhat::kCorrupt && fault->where == FaultWhere::kRead);
      EXPECT_LE(fault->bytes, 3u);
      EXPECT_NE(fault->replug, Replug::kNever);
    }
    EXPECT_GT(faults, 120);
    EXPECT_LT(faults, 280);
  }
}

// Of scripts that are right and of such that are not.
TEST(FaultPlans, TakeMemoryInProportion) {
  for (const char* part : {"\n", "#", "in 1 drop\n", "in 1 drop ", "open 2 unplug never\n",
                           "throttle 20MB/s\n", "a", "a b\n", " "}) {
    std::string script;
    while (script.size() < 1 << 20) script += part;
    const AllocationMeter meter;
    (void)ParseFaultScript(script);
    EXPECT_LE(meter.peak_bytes(), ProportionalBytes(script.size())) << part;
    (void)ReadFaultPlan("seed:" + script);
    EXPECT_LE(meter.peak_bytes(), ProportionalBytes(script.size())) << part;
  }
}

}  // namespace
}  // namespace atollrt
