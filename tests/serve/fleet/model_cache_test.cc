// SPDX-License-Identifier: Apache-2.0
#include "serve/fleet/model_cache.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/base/sha256.h"
#include "serve/fleet/job_files.h"
#include "tests/serve/inference/failing_folder.h"

namespace atollserve {
namespace {

namespace fs = std::filesystem;

class ModelCacheTest : public testing::Test {
 protected:
  ModelCacheTest() {
    std::string name = (fs::temp_directory_path() / "atoll-cache-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~ModelCacheTest() override { fs::remove_all(folder_); }

  static std::string Digest(const std::string& bytes) {
    return atollrt::Sha256Hex(bytes.data(), bytes.size());
  }
  fs::path PathOf(const std::string& bytes) const { return folder_ / (Digest(bytes) + ".tflite"); }
  // As if it had been used so many hours ago.
  void Age(const fs::path& path, int hours) const {
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(hours));
  }
  void Write(const fs::path& path, const std::string& bytes) const {
    std::ofstream(path, std::ios::binary) << bytes;
  }

  fs::path folder_;
  const std::string a_ = std::string(400, 'a'), b_ = std::string(400, 'b'),
                    c_ = std::string(400, 'c');
};

// Jobs of a part of a folder alone would look as if that were all.
TEST_F(ModelCacheTest, JobsOfAFolderThatCannotBeReadToTheEndAreRefused) {
  for (const char* const name : {"a", "b"}) Write(folder_ / name, "x");
  for (int entries = 0; entries < 4; ++entries) {  // "." and ".." among them
    const FailingFolders fail(entries);
    const auto files = ExpandFiles({folder_.string()});
    ASSERT_FALSE(files.ok()) << entries;
    EXPECT_NE(files.status().message().find("folder '" + folder_.string() + "': "),
              std::string::npos);
  }
  EXPECT_EQ(*ExpandFiles({folder_.string()}),
            (std::vector<std::string>{folder_ / "a", folder_ / "b"}));
}

TEST_F(ModelCacheTest, WhatWasNotUsedForLongestGoesFirst) {
  const ModelCache cache((folder_ / "made" / "here").string(), 1000);
  folder_ = folder_ / "made" / "here";
  cache.Keep(Digest(a_), a_);
  cache.Keep(Digest(b_), b_);
  Age(PathOf(a_), 2);
  Age(PathOf(b_), 1);
  // Its use makes it the latest.
  EXPECT_EQ(cache.Find(Digest(a_), a_.size()), a_);
  cache.Keep(Digest(c_), c_);
  EXPECT_EQ(cache.Find(Digest(a_), a_.size()), a_);
  EXPECT_EQ(cache.Find(Digest(b_), b_.size()), std::nullopt);
  EXPECT_EQ(cache.Find(Digest(c_), c_.size()), c_);
  folder_ = folder_.parent_path().parent_path();
}

TEST_F(ModelCacheTest, TheNewestStaysWhateverTheClockSays) {
  const ModelCache cache(folder_.string(), 500);
  cache.Keep(Digest(a_), a_);
  Age(PathOf(a_), -24);
  cache.Keep(Digest(b_), b_);
  EXPECT_FALSE(fs::exists(PathOf(a_)));
  EXPECT_EQ(cache.Find(Digest(b_), b_.size()), b_);
}

TEST_F(ModelCacheTest, NothingLargerThanTheFolderMayBe) {
  const ModelCache cache(folder_.string(), 500);
  cache.Keep(Digest(a_), a_);
  const std::string large(501, 'x');
  cache.Keep(Digest(large), large);
  EXPECT_FALSE(fs::exists(PathOf(large)));
  EXPECT_TRUE(fs::exists(PathOf(a_)));
  const ModelCache none("", 500);
  none.Keep(Digest(a_), a_);
  EXPECT_EQ(none.Find(Digest(a_), a_.size()), std::nullopt);
}

TEST_F(ModelCacheTest, FilesOfOthersStayAndWhatIsNotBelievedIsNone) {
  const ModelCache cache(folder_.string(), 500);
  Write(folder_ / "notes.tflite", std::string(5000, 'n'));
  Write(PathOf(a_), b_);  // other bytes, as many
  EXPECT_EQ(cache.Find(Digest(a_), a_.size()), std::nullopt);
  EXPECT_EQ(cache.Find(Digest(a_), a_.size() + 1), std::nullopt);
  EXPECT_EQ(cache.Find("../../etc/passwd", 1), std::nullopt);
  const fs::path other = folder_ / "other";
  Write(other, c_);
  fs::create_symlink(other, PathOf(c_));
  EXPECT_EQ(cache.Find(Digest(c_), c_.size()), std::nullopt);
  // Halves of processes that have gone, and of one that writes now.
  const fs::path old = PathOf(b_).string() + ".1.new", young = PathOf(b_).string() + ".2.new";
  Write(old, "b");
  Write(young, "b");
  Age(old, 2);
  cache.Keep(Digest(b_), b_);
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(young));
  EXPECT_TRUE(fs::exists(folder_ / "notes.tflite"));
  EXPECT_TRUE(fs::exists(other));
  EXPECT_FALSE(fs::exists(PathOf(a_)));  // 800 bytes of which one had to go
  EXPECT_EQ(cache.Find(Digest(b_), b_.size()), b_);
}

}  // namespace
}  // namespace atollserve
