// SPDX-License-Identifier: Apache-2.0
//
// How many cases random tests look at, by the environment.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/rng.h"

namespace atollrt {
namespace {

TEST(TestScale, IsOneIfItIsNotSetOrEmpty) {
  unsetenv("ATOLL_TEST_SCALE");
  const int plain = TestCount(1000);
  EXPECT_EQ(TestScale(), 1);
  setenv("ATOLL_TEST_SCALE", "", /*overwrite=*/1);
  EXPECT_EQ(TestScale(), 1);
  EXPECT_EQ(TestCount(1000), plain);
  setenv("ATOLL_TEST_SCALE", "0.5", /*overwrite=*/1);
  EXPECT_EQ(TestCount(1000), plain / 2);
}

TEST(TestScale, OfNoCasesIsRefused) {
  for (const char* scale : {"0", "-1", "many", "2x", " "}) {
    setenv("ATOLL_TEST_SCALE", scale, /*overwrite=*/1);
    EXPECT_EXIT(TestScale(), testing::ExitedWithCode(2), "must be a number above 0") << scale;
  }
}

}  // namespace
}  // namespace atollrt
