// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/labels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

TEST(Labels, OfLargeNumbersTakeLittleMemoryForWhatIsLeftOut) {
  for (const char* text : {"1048575 x\n", "70000 x\n", "65537 x\n"}) {
    const atollrt::AllocationMeter meter;
    EXPECT_LE(ParseLabels(text).size(), size_t{1} << 16 | 2) << text;
    EXPECT_LE(meter.peak_bytes(), int64_t{1} << 22) << text;
  }
  EXPECT_THAT(ParseLabels("70000 x\n"), ElementsAre("70000 x"));
}

// ---- In a model ---------------------------------------------------------------------------------

std::string Number(uint64_t value, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i);
  return text;
}

// A file in an archive as it says that it is.
struct Packed {
  std::string name;
  std::string stored;
  uint32_t bytes = 0;
  uint16_t method = 0;
};

std::string Archive(const std::vector<Packed>& files) {
  std::string archive, directory;
  for (const Packed& file : files) {
    // As both headers have it: method, size in the archive, size, size of the name.
    const std::string fields = Number(0, 4) + Number(file.method, 2) + Number(0, 8) +
                               Number(file.stored.size(), 4) + Number(file.bytes, 4) +
                               Number(file.name.size(), 2) + Number(0, 2);
    directory +=
        "PK\1\2" + Number(0, 2) + fields + Number(0, 10) + Number(archive.size(), 4) + file.name;
    archive += "PK\3\4" + fields + file.name + file.stored;
  }
  return archive + directory + "PK\5\6" + Number(0, 8) + Number(directory.size(), 4) +
         Number(archive.size(), 4) + Number(0, 2);
}

// Without zlib's header and checksum.
std::string Deflate(const std::string& text) {
  uLongf size = compressBound(text.size());
  std::string stored(size, '\0');
  compress(reinterpret_cast<Bytef*>(stored.data()), &size,
           reinterpret_cast<const Bytef*>(text.data()), text.size());
  return stored.substr(2, size - 6);
}

TEST_F(LabelFile, InAModelIsRead) {
  std::ofstream(path_) << "model" << Archive({{"labels.txt", "cat\ndog\n", 8}});
  EXPECT_EQ(Labels({.path = "", .offset = {}, .model = path_}, {{2, 2}})[1], "dog");
}

TEST_F(LabelFile, InAModelTakesMemoryInProportion) {
  constexpr size_t kTextBytesMax = size_t{1} << 20;
  std::string letters;
  while (letters.size() < kTextBytesMax) letters += "a\n";
  const std::vector<Packed> stored = {{"labels.txt", letters, kTextBytesMax}};
  const std::vector<Packed> deflated = {{"labels.txt", Deflate(letters), kTextBytesMax, 8}};
  const std::vector<Packed> promised = {{"labels.txt", std::string(2000, '\0'), kTextBytesMax, 8}};
  const std::vector<Packed> huge = {{"labels.txt", std::string(2000, '\0'), 0xffffffffu, 8}};
  for (const auto& files : {std::vector<Packed>(20000), stored, deflated, promised, huge}) {
    std::ofstream(path_) << Archive(files);
    const size_t unpacked = files[0].method == 8 ? kTextBytesMax : 0;
    const size_t size = std::filesystem::file_size(path_) + unpacked;
    const atollrt::AllocationMeter meter;
    const Labels labels({.path = "", .offset = {}, .model = path_}, {{1, 1}});
    EXPECT_EQ(labels.empty(), files[0].stored.empty() || files[0].stored[0] == '\0');
    EXPECT_LE(meter.peak_bytes(), atollrt::ProportionalBytes(size))
        << files.size() << " files, the first of which says " << files[0].bytes;
  }
}

}  // namespace
}  // namespace atollcmd
