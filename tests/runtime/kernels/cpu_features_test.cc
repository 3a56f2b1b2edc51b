// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/cpu_features.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace atollrt {
namespace {

class CpuFeaturesTest : public testing::Test {
 protected:
  void TearDown() override { unsetenv("ATOLL_CPU"); }
  static Result<CpuFeatures> DetectCappedTo(const char* name) {
    setenv("ATOLL_CPU", name, 1);
    return DetectCpuFeatures();
  }
};

TEST_F(CpuFeaturesTest, EveryLevelHasItsOwnName) {
  for (const CpuLevel& level : CpuLevels()) {
    EXPECT_STREQ(CpuFeaturesName(level.features), level.name);
  }
  EXPECT_EQ(CpuLevels().back().features, kBaseline);
}

TEST_F(CpuFeaturesTest, ALevelThatTheMachineHasIsUsedAndAnyOtherRefused) {
  unsetenv("ATOLL_CPU");
  const Result<CpuFeatures> hardware = DetectCpuFeatures();
  ASSERT_TRUE(hardware.ok());
  for (const CpuLevel& level : CpuLevels()) {
    const Result<CpuFeatures> capped = DetectCappedTo(level.name);
    ASSERT_EQ(capped.ok(), Supports(*hardware, level.features)) << level.name;
    if (capped.ok()) {
      EXPECT_EQ(*capped, level.features);
    } else {
      EXPECT_THAT(capped.status().message(), testing::HasSubstr(CpuFeaturesName(*hardware)));
    }
  }
}

#if defined(__x86_64__)
TEST_F(CpuFeaturesTest, FindsWhatTheCompilerFinds) {
  unsetenv("ATOLL_CPU");
  const Result<CpuFeatures> hardware = DetectCpuFeatures();
  ASSERT_TRUE(hardware.ok());
  __builtin_cpu_init();
  EXPECT_EQ(Supports(*hardware, kAvx2), __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ(Supports(*hardware, kAvx512Vnni),
            __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                __builtin_cpu_supports("avx512vnni"));
}
#endif

TEST_F(CpuFeaturesTest, ANameThatDoesNotExistIsAnsweredWithTheOnesThatDo) {
  const Result<CpuFeatures> capped = DetectCappedTo("sse9");
  ASSERT_EQ(capped.status().code(), StatusCode::kInvalidArgument);
  for (const CpuLevel& level : CpuLevels()) {
    EXPECT_THAT(capped.status().message(), testing::HasSubstr(level.name));
  }
}

}  // namespace
}  // namespace atollrt
