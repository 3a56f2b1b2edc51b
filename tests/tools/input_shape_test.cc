// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/atoll/session.h"

namespace atollcmd {
namespace {

using ::testing::ElementsAre;

TEST(InputShape, NamesAnInputOrNone) {
  const auto only = ParseInputShape("1x320x240x3");
  ASSERT_TRUE(only);
  EXPECT_EQ(only->name, "");
  EXPECT_EQ(only->index, -1);
  EXPECT_THAT(only->sizes, ElementsAre(1, 320, 240, 3));
  const auto named = ParseInputShape("serving:x=0=7");
  ASSERT_TRUE(named);
  EXPECT_EQ(named->name, "serving:x=0");
  EXPECT_EQ(named->index, -1);
  EXPECT_THAT(named->sizes, ElementsAre(7));
  const auto numbered = ParseInputShape("12=2147483647x1");
  ASSERT_TRUE(numbered);
  EXPECT_EQ(numbered->name, "");
  EXPECT_EQ(numbered->index, 12);
  EXPECT_THAT(numbered->sizes, ElementsAre(2147483647, 1));
}

TEST(InputShape, RefusesEverythingElse) {
  for (const char* text : {"", "x", "1x", "x1", "1xx2", "0", "1x0", "-1x2", "1x-2", "+1", "1 x2",
                           "1x2 ", "1,2", "2147483648", "=1x2", "a=", "a=b", "1x2=", "0x10x"}) {
    EXPECT_FALSE(ParseInputShape(text)) << text;
  }
}

}  // namespace
}  // namespace atollcmd
