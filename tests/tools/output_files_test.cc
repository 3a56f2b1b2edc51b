// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "tools/atoll/exit_code.h"
#include "tools/atoll/files.h"

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

// A folder of its own, gone with the test.
class Folder {
 public:
  explicit Folder(const char* name) : path_(testing::TempDir() + "/" + name) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  const std::filesystem::path path_;
};

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

int ModeOf(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 ? static_cast<int>(info.st_mode & 0777) : -1;
}

void WriteOne(const std::string& path, const std::string& text) {
  OutputFiles files;
  files.Add("--output", path, text.data(), text.size());
  files.Commit();
}

TEST(OutputFiles, HaveTheModeOfNewFilesOrOfThoseTheyReplace) {
  const Folder folder("modes");
  const mode_t mask = umask(027);
  WriteOne(folder / "new", "a");
  umask(mask);
  EXPECT_EQ(ModeOf(folder / "new"), 0640);
  ASSERT_EQ(chmod((folder / "new").c_str(), 0604), 0);
  WriteOne(folder / "new", "b");
  EXPECT_EQ(ModeOf(folder / "new"), 0604);
  EXPECT_EQ(TextOf(folder / "new"), "b");
}

// Whoever asks for the mask of the process by setting it leaves other threads' files open to all.
TEST(OutputFiles, LeaveTheMaskOfTheProcessAlone) {
  const Folder folder("mask");
  const mode_t mask = umask(077);
  std::atomic<bool> done = false;
  std::thread writer([&] {
    for (int i = 0; i < 300; ++i) WriteOne(folder / "a", "a");
    done = true;
  });
  for (int i = 0; !done; ++i) {
    const std::string path = folder / ("b" + std::to_string(i));
    std::ofstream(path) << "b";
    ASSERT_EQ(ModeOf(path), 0600);
    std::filesystem::remove(path);
  }
  writer.join();
  umask(mask);
}

TEST(OutputFiles, WriteThroughLinksThatLeadNowhereYet) {
  const Folder folder("dangling");
  std::filesystem::create_symlink("target", folder / "link");
  WriteOne(folder / "link", "text");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(TextOf(folder / "target"), "text");
  std::filesystem::create_symlink("loop", folder / "loop");
  EXPECT_THROW(WriteOne(folder / "loop", "text"), CommandError);
}

TEST(OutputFiles, WriteIntoPipes) {
  const Folder folder("pipes");
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  const int reader = open((folder / "pipe").c_str(), O_RDONLY | O_NONBLOCK);
  WriteOne(folder / "pipe", "text");
  char text[5] = "";
  EXPECT_EQ(read(reader, text, 4), 4);
  EXPECT_STREQ(text, "text");
  close(reader);
  EXPECT_TRUE(std::filesystem::is_fifo(folder / "pipe"));
}

// Standard output may be a file that has something in it already.
TEST(OutputFiles, AddToTheStandardOutput) {
  const Folder folder("stdout");
  for (const char* name : {"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}) {
    std::fflush(stdout);
    const int saved = dup(STDOUT_FILENO);
    const int file = open((folder / "out").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ASSERT_EQ(dup2(file, STDOUT_FILENO), STDOUT_FILENO);
    std::printf("printed ");
    WriteOne(name, "written ");
    std::FILE* const stream = OpenOutput("--results", name);
    std::fputs("streamed ", stream);
    std::fclose(stream);
    std::printf("and more");
    std::fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    close(file);
    EXPECT_EQ(TextOf(folder / "out"), "printed written streamed and more") << name;
    EXPECT_TRUE(IsStandardOutput(name));
  }
  EXPECT_FALSE(std::filesystem::exists("-"));
}

}  // namespace
}  // namespace atollcmd
