// SPDX-License-Identifier: Apache-2.0
#include "driver/profiles/device_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/allocation_meter.h"

namespace atollrt {
namespace {

using ::testing::HasSubstr;

std::string ReadSourceFile(const std::string& path) {
  std::ifstream file(ATOLL_SOURCE_DIR "/" + path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(DeviceProfile, BuiltInProfilesAreTheFilesOfTheFolder) {
  ASSERT_EQ(DeviceProfiles().size(), 7u);
  EXPECT_EQ(DeviceProfiles()[0].name, "usb3");
  for (const DeviceProfile& profile : DeviceProfiles()) {
    const auto read = ParseDeviceProfile(
        profile.name, ReadSourceFile("driver/profiles/" + profile.name + ".json"));
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(read->summary, profile.summary);
    EXPECT_EQ(read->array_rows, profile.array_rows);
    EXPECT_EQ(read->array_columns, profile.array_columns);
    EXPECT_EQ(read->clock_hz, profile.clock_hz);
    EXPECT_EQ(read->memory_bytes, profile.memory_bytes);
    EXPECT_EQ(read->program_memory_bytes, profile.program_memory_bytes);
    EXPECT_EQ(read->link_bytes_per_second, profile.link_bytes_per_second);
    EXPECT_EQ(read->host_seconds, profile.host_seconds);
  }
}

TEST(DeviceProfile, AnEmptyObjectIsTheDefaultWithASummaryOfItsNumbers) {
  const auto profile = ParseDeviceProfile("mine", "{}");
  ASSERT_TRUE(profile.ok());
  const DeviceProfile& usb3 = DeviceProfiles()[0];
  EXPECT_EQ(profile->name, "mine");
  EXPECT_EQ(profile->summary, "64x64 at 500 MHz, 8 MiB, link of 455 MB/s");
  EXPECT_EQ(profile->array_rows, usb3.array_rows);
  EXPECT_EQ(profile->array_columns, usb3.array_columns);
  EXPECT_EQ(profile->clock_hz, usb3.clock_hz);
  EXPECT_EQ(profile->memory_bytes, usb3.memory_bytes);
  EXPECT_EQ(profile->program_memory_bytes, usb3.program_memory_bytes);
  EXPECT_EQ(profile->link_bytes_per_second, usb3.link_bytes_per_second);
  EXPECT_EQ(profile->host_seconds, usb3.host_seconds);
}

TEST(DeviceProfile, EveryKeyTakesItsBoundsAndNothingBeyond) {
  for (const ProfileKey& key : ProfileKeys()) {
    const auto parse = [&](double value) {
      return ParseDeviceProfile("x", Format("{\"%s\": %.17g}", key.name, value));
    };
    EXPECT_TRUE(parse(key.min).ok()) << key.name;
    EXPECT_TRUE(parse(key.max).ok()) << key.name;
    for (const double value : {key.min - 1, key.max + std::max(key.step, 1.0), 1e300, -1e300}) {
      const auto profile = parse(value);
      ASSERT_EQ(profile.code(), StatusCode::kInvalidArgument) << key.name << " " << value;
      EXPECT_THAT(profile.status().message(), HasSubstr(Format("%s is ", key.name)));
      EXPECT_THAT(profile.status().message(),
                  HasSubstr(Format("from %.17g to %.17g", key.min, key.max)));
    }
    if (key.step == 0) continue;
    EXPECT_TRUE(parse(key.min + key.step).ok()) << key.name;
    EXPECT_EQ(parse(key.min + key.step / 2).code(), StatusCode::kInvalidArgument) << key.name;
  }
}

struct BadText {
  const char* text;
  const char* says;
};

TEST(DeviceProfile, RefusesHostileTextWithTheKeyAndTheNextStep) {
  const BadText kTexts[] = {
      {"", "no valid JSON at byte"},
      {"{", "no valid JSON at byte"},
      {"{\"array_rows\": 64", "no valid JSON at byte"},
      {"{\"array_rows\": 64} x", "no valid JSON at byte"},
      {"{\"array_rows\": 1e999}", "no valid JSON at byte"},
      {"[]", "is one JSON object"},
      {"7", "is one JSON object"},
      {"\"usb3\"", "is one JSON object"},
      {"null", "is one JSON object"},
      {"{\"rows\": 64}", "\"rows\" is no key of a profile; there are: array_rows, "},
      {"{\"array_rows\": \"64\"}", "\"array_rows\" must be a number"},
      {"{\"array_rows\": true}", "\"array_rows\" must be a number"},
      {"{\"array_rows\": {\"array_rows\": 1}}", "\"array_rows\" must be a number"},
      {"{\"array_rows\": [64]}", "\"array_rows\" must be a number"},
      {"{\"summary\": 1}", "\"summary\" must be a string"},
      {"{\"link\": 1}", "\"link\" must be a string"},
      {"{\"link\": \"sata\"}", "link is \"sata\", must be \"usb\" or \"pcie\""},
      {"{\"link\": \"usb\", \"link\": \"usb\"}", "\"link\" is there twice"},
      {"{\"summary\": null}", "\"summary\" must be a string"},
      {"{\"summary\": \"\"}", "1 to 100 printable"},
      {"{\"summary\": \"a\\nb\"}", "1 to 100 printable"},
      {"{\"array_rows\": 8, \"array_rows\": 8}", "\"array_rows\" is there twice"},
      {"{\"summary\": \"a\", \"summary\": \"a\"}", "\"summary\" is there twice"},
  };
  for (const BadText& bad : kTexts) {
    const auto profile = ParseDeviceProfile("mine", bad.text);
    ASSERT_EQ(profile.code(), StatusCode::kInvalidArgument) << bad.text;
    EXPECT_THAT(profile.status().message(), HasSubstr("device profile 'mine': ")) << bad.text;
    EXPECT_THAT(profile.status().message(), HasSubstr(bad.says)) << bad.text;
  }
  // Deep nesting ends at its first level.
  EXPECT_FALSE(ParseDeviceProfile("mine", std::string(1 << 20, '[')).ok());
}

TEST(DeviceProfile, SurvivesEveryPrefixAndEveryChangedByte) {
  const std::string text = ReadSourceFile("driver/profiles/usb2.json");
  for (size_t size = 0; size + 2 < text.size(); ++size) {
    EXPECT_FALSE(ParseDeviceProfile("x", text.substr(0, size)).ok()) << size;
  }
  for (size_t i = 0; i < text.size(); ++i) {
    for (const char c : {'\0', '"', '9', '{', '\xFF'}) {
      std::string changed = text;
      changed[i] = c;
      (void)ParseDeviceProfile("x", changed);
    }
  }
}

TEST(DeviceProfile, FindsFilesByTheirEnding) {
  const std::string path = ::testing::TempDir() + "/mine.json";
  std::ofstream(path) << "{\"array_rows\": 16, \"memory_bytes\": 65536}";
  const auto profile = FindDeviceProfile(path);
  std::remove(path.c_str());
  ASSERT_TRUE(profile.ok()) << profile.status().message();
  EXPECT_EQ(profile->name, path);
  EXPECT_EQ(profile->array_rows, 16u);
  EXPECT_EQ(profile->summary, "16x64 at 500 MHz, 64 KiB, link of 455 MB/s");

  EXPECT_EQ(FindDeviceProfile(path).code(), StatusCode::kNotFound);
  std::ofstream(path) << std::string(1 << 17, ' ');
  EXPECT_EQ(FindDeviceProfile(path).code(), StatusCode::kInvalidArgument);
  std::remove(path.c_str());
  const auto unknown = FindDeviceProfile("usb9");
  EXPECT_EQ(unknown.code(), StatusCode::kNotFound);
  EXPECT_THAT(unknown.status().message(), HasSubstr("usb3, usb2"));
  EXPECT_THAT(unknown.status().message(), HasSubstr(".json"));
}

TEST(DeviceProfile, TakesMemoryInProportion) {
  for (const char* part : {"[", "{\"a\":", "1,", "\"", "\\u0041", "{\"rows\": 1},", " ", "["}) {
    for (const char* begin : {"", "[", "{\"name\": \""}) {
      std::string text = begin;
      while (text.size() < 1 << 18) text += part;
      const AllocationMeter meter;
      EXPECT_FALSE(ParseDeviceProfile("own", text).ok());
      EXPECT_LE(meter.peak_bytes(), ProportionalBytes(text.size())) << begin << part;
    }
  }
}

}  // namespace
}  // namespace atollrt
