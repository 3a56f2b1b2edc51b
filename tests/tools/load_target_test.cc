// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/load_target.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "tools/atoll/exit_code.h"
#include "tools/atoll/load_samples.h"
#include "tools/atoll/machine_state.h"

namespace atollcmd {
namespace {

namespace fs = std::filesystem;

TEST(OipAddressTest, IsRead) {
  OipAddress address = ParseOipAddress("oip://localhost:8000");
  EXPECT_EQ(address.host, "localhost");
  EXPECT_EQ(address.port, 8000);
  EXPECT_EQ(address.model, "");
  address = ParseOipAddress("oip://[::1]:1/a model%2f");
  EXPECT_EQ(address.host, "[::1]");
  EXPECT_EQ(address.model, "a model%2f");
}

TEST(OipAddressTest, WhatIsNone) {
  for (const char* text : {"",
                           "oip://",
                           "oip://host",
                           "oip://host:",
                           "oip://host:0",
                           "oip://host:65536",
                           "oip://host:80x",
                           "oip://:80",
                           "oip://a b:80",
                           "oip://u@host:80",
                           "oip://host:80/a/b",
                           "oip://host:80/..",
                           "oip://host:80/a\nb",
                           "oip://[::1:80",
                           "oip://[]:80",
                           "http://host:80",
                           "oip://host#:80",
                           "oip://host?:80",
                           "oip://host:-1",
                           "oip://[::1]x:80"}) {
    EXPECT_THROW(ParseOipAddress(text), CommandError) << text;
  }
}

TEST(OipAddressTest, LoginsStayOutOfSentences) {
  for (const char* text : {"http://me:secret@host:80/m", "oip://me:secret@host:80/m",
                           "grpcs://secret@host:80/m", "oip://me:sec/ret@host:80"}) {
    try {
      ParseOipAddress(text);
      ADD_FAILURE() << text;
    } catch (const CommandError& error) {
      EXPECT_EQ(std::string(error.what()).find("ret"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("://host:80"), std::string::npos) << error.what();
    }
  }
}

TEST(OipAddressTest, Tls) {
  EXPECT_TRUE(ParseOipAddress("oips://h:1/m").tls);
  EXPECT_FALSE(ParseOipAddress("oip://h:1/m").tls);
}

TEST(OipAddressTest, TokensAreNotForTheNetwork) {
  const OipCredentials token = {.token = "abc", .ca_file = ""};
  for (const char* fine : {"oips://h:1", "oips://127.0.0.1:1", "oip://127.0.0.1:1",
                           "oip://127.9.9.9:1", "oip://localhost:1", "oip://[::1]:1"}) {
    CheckCredentials(ParseOipAddress(fine), token);
  }
  for (const char* open :
       {"oip://h:1", "oip://127.0.0.1.evil:1", "oip://1270.0.0.1:1", "oip://127.0.0:1",
        "oip://127.0.0.256:1", "oip://localhost.evil:1", "oip://[::2]:1", "oip://128.0.0.1:1"}) {
    EXPECT_THROW(CheckCredentials(ParseOipAddress(open), token), CommandError) << open;
    CheckCredentials(ParseOipAddress(open), {});
  }
  EXPECT_THROW(CheckCredentials(ParseOipAddress("oip://h:1"), {.token = "", .ca_file = "x"}),
               CommandError);
}

OutputBytes Output(AtollType type, const void* data, size_t size) {
  return {type, {static_cast<const uint8_t*>(data), size}};
}

TEST(TopClassesTest, LargestFirstAndEqualOnesInOrder) {
  const int8_t scores[] = {-128, 5, 127, 5, -1};
  EXPECT_EQ(TopClasses(Output(ATOLL_INT8, scores, sizeof(scores)), 3), (std::vector<int>{2, 1, 3}));
  const uint8_t bytes[] = {128, 5, 127};
  EXPECT_EQ(TopClasses(Output(ATOLL_UINT8, bytes, sizeof(bytes)), 9), (std::vector<int>{0, 2, 1}));
  const float floats[] = {std::numeric_limits<float>::quiet_NaN(), -1e30f,
                          std::numeric_limits<float>::infinity()};
  EXPECT_EQ(TopClasses(Output(ATOLL_FLOAT32, floats, sizeof(floats)), 3),
            (std::vector<int>{2, 1, 0}));
  EXPECT_TRUE(TopClasses(Output(ATOLL_INT8, scores, 0), 5).empty());
  EXPECT_THROW(TopClasses(Output(ATOLL_STRING, scores, sizeof(scores)), 1), CommandError);
}

TEST(TopClassesTest, OddBytesAtTheEndAreNoNumber) {
  const uint8_t bytes[7] = {};
  EXPECT_EQ(CountScores(Output(ATOLL_FLOAT32, bytes, 7)), 1u);
}

TEST(AccuracyTest, CountsTopOneAndFive) {
  Accuracy accuracy;
  const int8_t scores[] = {0, 1, 2, 3, 4, 5, 6};
  for (int label = 0; label < 7; ++label) {
    accuracy.Add(Output(ATOLL_INT8, scores, sizeof(scores)), label);
  }
  EXPECT_EQ(accuracy.pictures, 7);
  EXPECT_EQ(accuracy.top1, 1);
  EXPECT_EQ(accuracy.top5, 5);
}

class MachineStateTest : public testing::Test {
 protected:
  MachineStateTest()
      : root_(fs::path(testing::TempDir()) / ("machine_state." + std::to_string(getpid()))) {
    fs::create_directories(root_);
  }
  ~MachineStateTest() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  const fs::path root_;
};

TEST_F(MachineStateTest, NothingWhereTheKernelShowsNothing) {
  const MachineState state = ReadMachineState(root_.string());
  EXPECT_FALSE(state.temperature_c);
  EXPECT_FALSE(state.clock_mhz);
  EXPECT_TRUE(ToJson(state)["temperature_c"].is_null());
  EXPECT_TRUE(ToJson(state)["clock_mhz"].is_null());
}

TEST_F(MachineStateTest, HottestZoneAndMeanClock) {
  Write("class/thermal/thermal_zone0/temp", "41500\n");
  Write("class/thermal/thermal_zone1/temp", "62000\n");
  Write("class/thermal/thermal_zone2/temp", "-274000\n");  // switched off
  Write("class/thermal/thermal_zone3/temp", "999000\n");
  Write("class/thermal/thermal_zone4/temp", "warm\n");
  Write("class/thermal/cooling_device0/temp", "90000\n");
  Write("devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "600000\n");
  Write("devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "1500000\n");
  Write("devices/system/cpu/cpufreq/policy0/scaling_cur_freq", "1\n");
  const MachineState state = ReadMachineState(root_.string());
  EXPECT_EQ(state.temperature_c, 62);
  EXPECT_EQ(state.clock_mhz, 1050);
}

}  // namespace
}  // namespace atollcmd
