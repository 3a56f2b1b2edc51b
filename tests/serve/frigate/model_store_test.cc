// SPDX-License-Identifier: Apache-2.0
#include "serve/frigate/model_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/serve/frigate/temporary_folder.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> NamesIn(const ModelStore& store) {
  std::vector<std::string> names;
  for (const StoredModel& model : store.models()) names.push_back(model.name);
  return names;
}

int CountModels(const TemporaryFolder& folder) {
  const auto files = std::filesystem::directory_iterator(folder.path());
  return static_cast<int>(std::count_if(begin(files), end(files), [](const auto& file) {
    return file.path().extension() == ".tflite";
  }));
}

std::vector<uint8_t> Bytes(size_t size, uint8_t value) { return std::vector<uint8_t>(size, value); }

TEST(ModelStore, KeepsFilesByTheirBytesAndOutlivesItsProgram) {
  const TemporaryFolder folder;
  {
    auto store = ModelStore::Open(folder / "models", {});
    ASSERT_TRUE(store.ok()) << store.status().message();
    // Names never become names of files.
    ASSERT_TRUE(store->Save("a model.tflite", Bytes(3, 'a')).ok());
    ASSERT_TRUE(store->Save("same", Bytes(3, 'a')).ok());
    struct stat information = {};
    ASSERT_EQ(stat((folder / "models").c_str(), &information), 0);
    EXPECT_EQ(information.st_mode & 0777, 0700u);
  }
  auto store = ModelStore::Open(folder / "models", {});
  ASSERT_TRUE(store.ok()) << store.status().message();
  EXPECT_THAT(NamesIn(*store), ElementsAre("same", "a model.tflite"));
  const auto found = store->Find("a model.tflite");
  ASSERT_TRUE(found.has_value());
  // printf aaa | sha256sum
  EXPECT_EQ(found->sha256, "9834876dcfb05cb167a5c24953eba58c4ac89b1adf57f28f2f9d09af107ee8f0");
  EXPECT_EQ(BytesOfFile(store->PathOf(*found)), Bytes(3, 'a'));
  EXPECT_THAT(NamesIn(*store), ElementsAre("a model.tflite", "same"));
  EXPECT_FALSE(store->Find("other").has_value());
}

TEST(ModelStore, ABrokenFileIsForgotten) {
  const TemporaryFolder folder;
  auto store = ModelStore::Open(folder.path(), {});
  const auto saved = store->Save("a", Bytes(3, 'a'));
  ASSERT_TRUE(saved.ok());
  WriteTextFile(store->PathOf(*saved), "aab");
  EXPECT_FALSE(store->Find("a").has_value());
  EXPECT_TRUE(store->models().empty());
  EXPECT_EQ(CountModels(folder), 0);
}

TEST(ModelStore, ANewFileTakesThePlaceOfTheOneOfItsName) {
  const TemporaryFolder folder;
  auto store = ModelStore::Open(folder.path(), {});
  ASSERT_TRUE(store->Save("a", Bytes(3, 'a')).ok());
  ASSERT_TRUE(store->Save("a", Bytes(3, 'b')).ok());
  EXPECT_THAT(NamesIn(*store), ElementsAre("a"));
  EXPECT_EQ(CountModels(folder), 1);
  ASSERT_TRUE(store->Forget("a").ok());
  EXPECT_EQ(CountModels(folder), 0);
}

TEST(ModelStore, WhatWasNotUsedForLongestGoesFirst) {
  const TemporaryFolder folder;
  ModelStoreLimits limits;
  limits.models = 3;
  limits.bytes = 100;
  limits.bytes_per_model = 60;
  auto store = ModelStore::Open(folder.path(), limits);
  for (const char* name : {"a", "b", "c"}) {
    ASSERT_TRUE(store->Save(name, Bytes(20, static_cast<uint8_t>(*name))).ok());
  }
  ASSERT_TRUE(store->Find("a").has_value());
  ASSERT_TRUE(store->Save("d", Bytes(20, 'd')).ok());  // a fourth
  EXPECT_THAT(NamesIn(*store), ElementsAre("d", "a", "c"));
  ASSERT_TRUE(store->Save("e", Bytes(60, 'e')).ok());  // more than 100 bytes
  EXPECT_THAT(NamesIn(*store), ElementsAre("e", "d", "a"));
  ASSERT_TRUE(store->Save("f", Bytes(60, 'f')).ok());
  EXPECT_THAT(NamesIn(*store), ElementsAre("f"));
  EXPECT_EQ(CountModels(folder), 1);
  EXPECT_EQ(store->Save("g", Bytes(61, 'g')).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(store->Save("g", {}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store->Save("../g", Bytes(3, 'g')).code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(NamesIn(*store), ElementsAre("f"));
}

TEST(ModelStore, SaysWhatIsWrongWithItsFolder) {
  const TemporaryFolder folder;
  EXPECT_THAT(ModelStore::Open(folder / "none/models", {}).status().message(),
              HasSubstr("none/models"));
  WriteTextFile(folder / "file", "");
  EXPECT_FALSE(ModelStore::Open(folder / "file", {}).ok());
  for (const char* index :
       {"", "{}", "[1]", R"([{"name": "a"}])", R"([{"name": "../a", "sha256": "x", "bytes": 1}])",
        R"([{"name": "a", "sha256": "../../etc/passwd", "bytes": 1}])"}) {
    WriteTextFile(folder / "index.json", index);
    const auto store = ModelStore::Open(folder.path(), {});
    EXPECT_EQ(store.code(), StatusCode::kCorruptModel) << index;
    EXPECT_THAT(store.status().message(), HasSubstr("index.json"));
  }
}

TEST(ModelStore, AFolderHasOneOwner) {
  const TemporaryFolder folder;
  auto store = ModelStore::Open(folder.path(), {});
  ASSERT_TRUE(store.ok());
  EXPECT_EQ(ModelStore::Open(folder.path(), {}).code(), StatusCode::kDeviceBusy);
}

}  // namespace
}  // namespace atollrt
