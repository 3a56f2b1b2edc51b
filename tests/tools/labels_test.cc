// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/labels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace atollcmd {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Labels, AreOnePerLine) {
  EXPECT_THAT(ParseLabels("cat\ndog\n"), ElementsAre("cat", "dog"));
  EXPECT_THAT(ParseLabels("cat\ndog"), ElementsAre("cat", "dog"));
  EXPECT_THAT(ParseLabels("tabby, tabby cat\nn/a\n"), ElementsAre("tabby, tabby cat", "n/a"));
}

TEST(Labels, KeepBlankLinesBetweenButNotAtTheEnd) {
  EXPECT_THAT(ParseLabels("a\n\nb\n\n \n"), ElementsAre("a", "", "b"));
  EXPECT_THAT(ParseLabels(""), IsEmpty());
  EXPECT_THAT(ParseLabels("\n\n"), IsEmpty());
}

TEST(Labels, SurviveOtherEditors) {
  EXPECT_THAT(ParseLabels("\xEF\xBB\xBF"
                          "cat\r\ndog \r\n"),
              ElementsAre("cat", "dog"));
}

TEST(Labels, CanBeNumbered) {
  EXPECT_THAT(ParseLabels("0 cat\n1 dog\n"), ElementsAre("cat", "dog"));
  EXPECT_THAT(ParseLabels("0: cat\n1:dog\n"), ElementsAre("cat", "dog"));
  EXPECT_THAT(ParseLabels("0  person\n3\tbus\n"), ElementsAre("person", "", "", "bus"));
}

TEST(Labels, AreNotNumberedUnlessAllAreAndAscend) {
  EXPECT_THAT(ParseLabels("0\n1\n2\n"), ElementsAre("0", "1", "2"));
  EXPECT_THAT(ParseLabels("7 up\ncola\n"), ElementsAre("7 up", "cola"));
  EXPECT_THAT(ParseLabels("1 a\n1 b\n"), ElementsAre("1 a", "1 b"));
  EXPECT_THAT(ParseLabels("99999999999999999999 x\n"), ElementsAre("99999999999999999999 x"));
  EXPECT_THAT(ParseLabels("4000000000 x\n"), ElementsAre("4000000000 x"));
}

}  // namespace
}  // namespace atollcmd
