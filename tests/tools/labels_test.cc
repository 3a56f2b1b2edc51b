// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/labels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <optional>
#include <string>

#include "tests/support/allocation_meter.h"
#include "tools/atoll/exit_code.h"

namespace atollcmd {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Labels, AreNoMoreThanModelsHaveClasses) {
  std::string text;
  for (int i = 0; i < 1 << 21; ++i) text += "a\n";
  EXPECT_EQ(ParseLabels(text).size(), size_t{1} << 20);
  EXPECT_TRUE(ParseLabels(std::string(1 << 22, '\n')).empty());
}

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

// ---- With a model -------------------------------------------------------------------------------

class LabelFile : public testing::Test {
 protected:
  LabelFile() : path_(testing::TempDir() + "/label_file.txt") {}
  ~LabelFile() override { std::remove(path_.c_str()); }

  Labels Read(const char* text, const LabelRule& rule, std::optional<int> offset = {}) {
    std::ofstream(path_) << text;
    return Labels({path_, offset}, rule);
  }

  const std::string path_;
};

TEST_F(LabelFile, NamesClasses) {
  const Labels labels = Read("cat\n\nbird\n", {{3, 3}});
  EXPECT_EQ(labels[0], "cat");
  EXPECT_EQ(labels.NameOf(0), "cat");
  EXPECT_EQ(labels[1], "");
  EXPECT_EQ(labels.NameOf(1), "class 1");
  EXPECT_EQ(labels[3], "");
  EXPECT_EQ(labels[-1], "");
  EXPECT_THAT(labels.warnings(), IsEmpty());
}

TEST_F(LabelFile, CanBeShifted) {
  EXPECT_EQ(Read("background\ncat\n", {{1, 1}}, 1)[0], "cat");
  const Labels labels = Read("cat\n", {{2, 2}}, -1);
  EXPECT_EQ(labels[0], "");
  EXPECT_EQ(labels[1], "cat");
}

TEST_F(LabelFile, LosesItsBackgroundWhereTheModelHasNone) {
  const LabelRule detector = {.classes = {2, 3}, .without_background = true};
  for (const char* file : {"???\ncat\ndog\n", "Background\ncat\ndog\n", "1 cat\n2 dog\n"}) {
    const Labels labels = Read(file, detector);
    EXPECT_EQ(labels[0], "cat") << file;
    EXPECT_EQ(labels[1], "dog") << file;
  }
  EXPECT_EQ(Read("cat\ndog\n", detector)[0], "cat");
  EXPECT_EQ(Read("???\ncat\ndog\n", detector, 0)[0], "???");
  EXPECT_EQ(Read("???\ncat\ndog\n", {{3, 3}})[0], "???") << "a classifier may have one";
}

TEST_F(LabelFile, MustBeLongEnough) {
  EXPECT_THROW(Read("cat\n", {{2, 2}}), CommandError);
  EXPECT_THROW(Read("cat\ndog\n", {{2, 2}}, 1), CommandError);
  std::ofstream(path_) << "cat\n";
  EXPECT_EQ(Labels({path_, {}}, {{2, 2}}, /*lenient=*/true).warnings().size(), 1u);
  EXPECT_EQ(Read("cat\ndog\nbird\n", {{2, 2}}).warnings().size(), 1u);
}

TEST(Labels, TakeMemoryInProportion) {
  for (const char* part : {"\n", "a\n", "1 a\n", "1:\n", "\r", "a", "99999999 a\n"}) {
    std::string text;
    while (text.size() < 1 << 20) text += part;
    const atollrt::AllocationMeter meter;
    (void)ParseLabels(text);
    EXPECT_LE(meter.peak_bytes(), atollrt::ProportionalBytes(text.size())) << part;
  }
}

}  // namespace
}  // namespace atollcmd
