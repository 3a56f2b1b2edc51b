// SPDX-License-Identifier: Apache-2.0
//
// How a Coral gets its firmware: what goes well, and what does not.
#include "driver/coral/firmware.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "driver/coral/coral_chip.h"
#include "tests/support/fake_coral.h"

namespace atollrt {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Le;

std::vector<uint8_t> Image(size_t size = 1000) {
  std::vector<uint8_t> image(size);
  for (size_t i = 0; i < size; ++i) image[i] = static_cast<uint8_t>(i * 7 + i / 256);
  return image;
}

class CoralFirmwareTest : public ::testing::Test {
 protected:
  Result<UsbDeviceInfo> Download(const std::vector<uint8_t>& image = Image()) {
    return DownloadCoralFirmware(&bus_, bus_.devices[0], image, clock_.Function());
  }
  void ExpectFailure(StatusCode code, const char* message) {
    const Result<UsbDeviceInfo> device = Download();
    EXPECT_EQ(device.code(), code);
    EXPECT_THAT(device.status().message(),
                AllOf(HasSubstr("port 2-3"), HasSubstr(message), HasSubstr("unplug")));
  }

  FakeClock clock_;
  FakeCoralBus bus_{&clock_, /*has_firmware=*/false};
};

TEST_F(CoralFirmwareTest, IsTakenAndTheDeviceComesBackAsItself) {
  const Result<UsbDeviceInfo> device = Download();
  ASSERT_TRUE(device.ok()) << device.status().message();
  EXPECT_EQ(device->id, kCoralUsbId);
  EXPECT_EQ(device->path, "2-3");
  EXPECT_EQ(device->address, 8);
  EXPECT_EQ(bus_.rom.image, Image());
  EXPECT_EQ(bus_.rom.downloads, 1);
}

TEST_F(CoralFirmwareTest, EveryLengthEndsWithAnEmptyBlock) {
  for (const size_t size : {1u, 255u, 256u, 257u, 512u, 10783u}) {
    FakeCoralBus bus(&clock_, false);
    const auto device = DownloadCoralFirmware(&bus, bus.devices[0], Image(size), clock_.Function());
    EXPECT_TRUE(device.ok()) << size << ": " << device.status().message();
    EXPECT_EQ(bus.rom.image, Image(size));
  }
}

TEST_F(CoralFirmwareTest, BlocksAreAsLargeAsTheDeviceSays) {
  bus_.rom.block_bytes = 100;
  EXPECT_TRUE(Download().ok());
  EXPECT_EQ(bus_.rom.next_block, 10);
}

TEST_F(CoralFirmwareTest, TheInterfaceIsTheOneForDownloads) {
  bus_.rom.interface_number = 2;
  EXPECT_TRUE(Download().ok());
}

TEST_F(CoralFirmwareTest, ABusyDeviceIsAskedAgainWhenItWantsTo) {
  bus_.rom.busy_polls = 2;
  bus_.rom.poll_ms = 30;
  EXPECT_TRUE(Download().ok());
  EXPECT_GE(bus_.waits_ms.size(), 8u);
  EXPECT_EQ(bus_.waits_ms[0], 30);
}

// bwPollTimeout has 24 bits: four and a half hours.
TEST_F(CoralFirmwareTest, ADeviceThatWantsHoursIsGivenUpAtOnce) {
  bus_.rom.busy_polls = 1;
  bus_.rom.poll_ms = 0xFFFFFF;
  ExpectFailure(StatusCode::kTimeout,
                "still busy with firmware block 0, and wants 16777215 ms more");
}

TEST_F(CoralFirmwareTest, ADeviceThatIsBusyAndWantsNoTimeIsNotAskedForEver) {
  bus_.rom.busy_polls = 1 << 30;
  bus_.rom.poll_ms = 0;
  ExpectFailure(StatusCode::kTimeout, "still busy with firmware block 0");
}

TEST_F(CoralFirmwareTest, ADeviceThatStaysBusyIsGivenUp) {
  bus_.rom.busy_polls = 1 << 30;
  bus_.rom.poll_ms = 200;
  ExpectFailure(StatusCode::kTimeout, "still busy with firmware block 0");
}

TEST_F(CoralFirmwareTest, WhatAnEarlierHostLeftIsCleanedUp) {
  for (const uint8_t state : {uint8_t{5}, uint8_t{9}, uint8_t{10}}) {
    FakeCoralBus bus(&clock_, false);
    bus.rom.state = state;
    bus.rom.status = state == 10 ? 3 : 0;
    EXPECT_TRUE(DownloadCoralFirmware(&bus, bus.devices[0], Image(), clock_.Function()).ok());
  }
}

TEST_F(CoralFirmwareTest, OneFailureIsOvercome) {
  bus_.rom.fails_at_block = 2;
  EXPECT_TRUE(Download().ok());
  EXPECT_EQ(bus_.rom.downloads, 2);
}

TEST_F(CoralFirmwareTest, OneWrongByteReadBackIsOvercome) {
  bus_.rom.bad_reads = 1;
  EXPECT_TRUE(Download().ok());
  EXPECT_EQ(bus_.rom.downloads, 2);
}

TEST_F(CoralFirmwareTest, MemoryThatKeepsReadingWrongIsAnError) {
  bus_.rom.bad_reads = 2;
  ExpectFailure(StatusCode::kDeviceLost, "byte 3 of the firmware reads back as");
}

TEST_F(CoralFirmwareTest, OneRestartWithoutEffectIsOvercome) {
  bus_.rom.failed_boots = 1;
  EXPECT_TRUE(Download().ok());
}

TEST_F(CoralFirmwareTest, ADeviceThatDoesNotStartItIsAnError) {
  bus_.rom.failed_boots = 2;
  ExpectFailure(StatusCode::kDeviceLost, "did not start it within 2000 ms");
}

TEST_F(CoralFirmwareTest, ADeviceThatComesBackAsItWasGetsItAgain) {
  bus_.rom.comes_back_as_rom = true;
  ExpectFailure(StatusCode::kDeviceLost, "came back without running the firmware");
  EXPECT_EQ(bus_.rom.downloads, 2);
}

TEST_F(CoralFirmwareTest, ADeviceThatStaysAwayIsLost) {
  bus_.rom.away_ms = 11'000;
  const Deadline begin = clock_.Now();
  const Result<UsbDeviceInfo> device = Download();
  EXPECT_EQ(device.code(), StatusCode::kDeviceLost);
  EXPECT_THAT(clock_.Now() - begin, Le(std::chrono::seconds(12)));
}

TEST_F(CoralFirmwareTest, ADeviceWithAnotherSpeedComesBackOnTheCompanionBus) {
  bus_.rom.comes_back_at = "1-3";
  const Result<UsbDeviceInfo> device = Download();
  ASSERT_TRUE(device.ok()) << device.status().message();
  EXPECT_EQ(device->path, "1-3");
}

TEST_F(CoralFirmwareTest, AnotherStickIsNotTakenForIt) {
  bus_.devices.push_back(
      {.id = kCoralUsbId, .path = "1-3", .address = 3, .speed = UsbSpeed::kHigh});
  bus_.rom.away_ms = 300;
  const Result<UsbDeviceInfo> device = Download();
  ASSERT_TRUE(device.ok()) << device.status().message();
  EXPECT_EQ(device->path, "2-3");
}

// Files.

class CoralFirmwareFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() / Format("coral_firmware_%d", getpid());
    std::filesystem::create_directories(directory_ / "atoll");
    unsetenv("ATOLL_CORAL_FIRMWARE");
    setenv("XDG_DATA_HOME", directory_.c_str(), 1);
    setenv("XDG_DATA_DIRS", "/nowhere:/neither", 1);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string Write(const std::string& name, size_t size) {
    const std::string path = (directory_ / name).string();
    std::ofstream(path) << std::string(size, 'x');
    return path;
  }
  std::filesystem::path directory_;
};

TEST_F(CoralFirmwareFiles, AreFoundWhereTheyBelong) {
  const std::string path = Write("atoll/apex_latest_single_ep.bin", 100);
  Result<CoralFirmware> firmware = FindCoralFirmware("");
  ASSERT_TRUE(firmware.ok()) << firmware.status().message();
  EXPECT_EQ(firmware->path, path);
  EXPECT_EQ(firmware->image.size(), 100u);
  EXPECT_FALSE(firmware->is_known);
  const std::string other = Write("other.bin", 50);
  setenv("ATOLL_CORAL_FIRMWARE", other.c_str(), 1);
  EXPECT_EQ(FindCoralFirmware("")->path, other);
  EXPECT_EQ(FindCoralFirmware(path)->path, path);
}

TEST_F(CoralFirmwareFiles, AreNeededAndTheErrorSaysWhichAndWhere) {
  setenv("ATOLL_CORAL_FIRMWARE", "/nowhere/firmware.bin", 1);
  const Result<CoralFirmware> firmware = FindCoralFirmware("");
  EXPECT_EQ(firmware.code(), StatusCode::kNotFound);
  EXPECT_THAT(
      firmware.status().message(),
      AllOf(HasSubstr("driver/usb/apex_latest_single_ep.bin of github.com/google-coral/libedgetpu"),
            HasSubstr("3b07311b174b81fd"), HasSubstr("--firmware")));
  EXPECT_THAT(FindCoralFirmware("/nowhere/f.bin").status().message(),
              HasSubstr("'/nowhere/f.bin'"));
}

TEST_F(CoralFirmwareFiles, OfTheWrongSizeAreRefused) {
  EXPECT_EQ(FindCoralFirmware(Write("empty.bin", 0)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(FindCoralFirmware(Write("large.bin", 32769)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(FindCoralFirmware(directory_.string()).code(), StatusCode::kInvalidArgument);
}

TEST_F(CoralFirmwareFiles, GiveAChipThatIsReady) {
  const std::string path = Write("firmware.bin", 700);
  FakeClock clock;
  FakeCoralBus bus(&clock, false);
  bus.denials = 0;
  const auto chip = OpenCoral(&bus, bus.devices[0],
                              {.name = "usb:2-3", .firmware = path, .now = clock.Function()});
  ASSERT_TRUE(chip.ok()) << chip.status().message();
  EXPECT_EQ((*chip)->info().name, "usb:2-3");
  EXPECT_EQ(bus.rom.image.size(), 700u);
}

TEST(OpenCoral, WaitsUntilTheSystemLetsItIn) {
  FakeClock clock;
  FakeCoralBus bus(&clock, true);
  bus.denials = 5;
  EXPECT_TRUE(OpenCoral(&bus, bus.devices[0], {.now = clock.Function()}).ok());
  bus.denials = 1000;
  const auto refused = OpenCoral(&bus, bus.devices[0], {.now = clock.Function()});
  EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied);
  EXPECT_GT(bus.denials, 900);
}

}  // namespace
}  // namespace atollrt
