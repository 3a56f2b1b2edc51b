// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/output_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tools/atoll/exit_code.h"

namespace atollcmd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<std::string> kJpeg = {".jpg", ".jpeg"};

std::string Refusal(const std::string& output, const std::vector<std::string>& pictures) {
  try {
    PlanOutputs("--output", output, kJpeg, pictures);
  } catch (const CommandError& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  return "";
}

TEST(PlanOutputs, TakesAFileForOnePicture) {
  EXPECT_THAT(PlanOutputs("--output", "x/boxes.JPG", kJpeg, {"a.png"}), ElementsAre("x/boxes.JPG"));
  EXPECT_THAT(Refusal("boxes.jpg", {"a.png", "b.png"}), HasSubstr("2 pictures"));
}

TEST(PlanOutputs, NamesFilesInADirectoryAfterThePictures) {
  EXPECT_THAT(PlanOutputs("--output", "out", kJpeg, {"a.png", "photos/b.c.jpg"}),
              ElementsAre("out/a.jpg", "out/b.c.jpg"));
  EXPECT_THAT(PlanOutputs("--output", "out", kJpeg, {"1/a.png", "2/a.png", "a-2.png", "a.png"}),
              ElementsAre("out/a.jpg", "out/a-2.jpg", "out/a-2-2.jpg", "out/a-3.jpg"));
}

TEST(PlanOutputs, RefusesOtherKindsOfPictures) {
  EXPECT_THAT(Refusal("boxes.png", {"a.png"}), HasSubstr(".jpg or .jpeg"));
}

TEST(PlanOutputs, OverwritesNoPicture) {
  const std::filesystem::path directory = testing::TempDir() + "/plan_outputs";
  std::filesystem::create_directories(directory);
  const std::string picture = directory / "a.jpg";
  std::ofstream(picture) << "picture";
  EXPECT_THAT(Refusal(directory, {picture}), HasSubstr("would overwrite the picture"));
  EXPECT_THAT(Refusal(directory / "." / "a.jpg", {picture}), HasSubstr("would overwrite"));
  EXPECT_EQ(Refusal(directory / "b.jpg", {picture}), "");
  std::filesystem::remove_all(directory);
}

TEST(OutputFiles, AppearTogetherOrNotAtAll) {
  const std::filesystem::path directory = testing::TempDir() + "/output_files";
  {
    OutputFiles files;
    files.Add("--output", directory / "deep/a", "a", 1);
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory / "deep"));
  std::filesystem::create_directories(directory / "deep/b");
  {
    OutputFiles files;
    files.Add("--output", directory / "deep/a", "a", 1);
    files.Add("--mask", directory / "deep/b", "b", 1);  // a directory of this name is in the way
    try {
      files.Commit();
      ADD_FAILURE() << "committed";
    } catch (const CommandError& error) {
      EXPECT_THAT(error.what(), HasSubstr("choose another --mask"));
    }
  }
  EXPECT_FALSE(std::filesystem::exists(directory / "deep/a"));
  std::filesystem::remove_all(directory);
}

TEST(OutputFiles, ReplaceNoDevices) {
  const std::filesystem::path directory = testing::TempDir() + "/special_output_files";
  std::filesystem::create_directories(directory);
  for (const char* device : {"/dev/null", "/dev/full"}) {
    std::filesystem::create_symlink(device, directory / "link");
    for (const std::string& path : {std::string(device), (directory / "link").string()}) {
      OutputFiles files;
      files.Add("--trace", directory / "a", "a", 1);
      files.Add("--output", path, "b", 1);
      try {
        files.Commit();
        EXPECT_STREQ(device, "/dev/null");
      } catch (const CommandError& error) {
        EXPECT_STREQ(device, "/dev/full");
        EXPECT_THAT(error.what(), HasSubstr("No space left on device; choose another --output"));
        EXPECT_FALSE(std::filesystem::exists(directory / "a"));
      }
      EXPECT_TRUE(std::filesystem::is_character_file(device));
      std::filesystem::remove(directory / "a");
    }
    std::filesystem::remove(directory / "link");
  }
  std::filesystem::remove_all(directory);
}

TEST(OutputFiles, FollowLinks) {
  const std::filesystem::path directory = testing::TempDir() + "/linked_output_files";
  std::filesystem::create_directories(directory / "elsewhere");
  std::ofstream(directory / "elsewhere/a") << "old";
  std::filesystem::create_symlink("elsewhere/a", directory / "link");
  OutputFiles files;
  files.Add("--output", directory / "link", "new", 3);
  files.Commit();
  EXPECT_TRUE(std::filesystem::is_symlink(directory / "link"));
  std::string text;
  std::ifstream(directory / "elsewhere/a") >> text;
  EXPECT_EQ(text, "new");
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace atollcmd
