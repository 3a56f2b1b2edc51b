// SPDX-License-Identifier: Apache-2.0
#include "driver/recording/usb_recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>

#include "driver/recording/pcapng.h"
#include "driver/recording/session_text.h"
#include "tests/support/allocation_meter.h"
#include "tests/support/open_atoll1.h"
#include "tests/support/rng.h"
#include "tests/support/shaky_device.h"
#include "tests/support/test_executables.h"

namespace atollrt {
namespace {

using ::testing::HasSubstr;

class TemporaryFile {
 public:
  TemporaryFile() : path_(::testing::TempDir() + "recording_test.pcapng") {}
  ~TemporaryFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

std::shared_ptr<UsbBus> MakeBus() {
  CoreOptions core;
  core.profile = DeviceProfiles()[0];
  return std::make_shared<EmulatedBus>(std::vector<CoreOptions>{core});
}

// A session on a bus: opens its first device and adds `offset` to `count` bytes. What came out, or
// why nothing did.
Result<std::vector<uint8_t>> RunSession(UsbBus& bus, uint8_t first, size_t count = 4) {
  ATOLL_ASSIGN_OR_RETURN(const std::vector<UsbDeviceInfo> devices, bus.List());
  if (devices.empty()) return NotFound("no device");
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<UsbTransport> transport, bus.Open(devices[0], 0));
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<Device> device,
                         OpenAtoll1(std::move(transport), {.name = "device"}));
  ATOLL_ASSIGN_OR_RETURN(
      const ExecutableId id,
      device->Load(std::make_shared<Executable>(MakeTableExecutable(
          {.name = "one", .count = static_cast<uint32_t>(count), .offset = 1}))));
  std::vector<uint8_t> input(count, first);
  std::vector<uint8_t> output(count);
  ATOLL_ASSIGN_OR_RETURN(
      const RequestId request,
      device->Submit({.executable = id, .inputs = {input}, .outputs = {output}}));
  ATOLL_RETURN_IF_ERROR(device->Wait(request, nullptr));
  return output;
}

std::vector<uint8_t> Record(const std::string& path, std::shared_ptr<UsbBus> bus, size_t count) {
  {
    auto recording = RecordingBus::Create(std::move(bus), path);
    EXPECT_TRUE(recording.ok()) << recording.status().message();
    (*recording)->Note("session", "two words\nand a line");
    EXPECT_EQ((*recording)->generation(), 0u);
    const auto output = RunSession(**recording, 7, count);
    EXPECT_TRUE(output.ok()) << output.status().message();
    EXPECT_EQ(*output, std::vector<uint8_t>(count, 8));
  }
  auto bytes = ReadRecording(path);
  EXPECT_TRUE(bytes.ok());
  return *std::move(bytes);
}

// Also of transfers that are longer than a packet may be.
TEST(Recording, IsPlayedBackWithoutTheDevice) {
  const TemporaryFile file;
  for (const size_t count : {4u, 500'000u}) {
    const std::vector<uint8_t> bytes = Record(file.path(), MakeBus(), count);
    const auto replay = ReplayBus::Create(bytes);
    ASSERT_TRUE(replay.ok()) << replay.status().message();
    EXPECT_EQ((*replay)->Note("session"), "two words and a line");
    EXPECT_EQ((*replay)->Note("nothing"), "");
    EXPECT_EQ((*replay)->FirstDevices()->front().path, "0-1");
    const auto output = RunSession(**replay, 7, count);
    ASSERT_TRUE(output.ok()) << output.status().message();
    EXPECT_EQ(*output, std::vector<uint8_t>(count, 8));
    EXPECT_GT((*replay)->transfers(), 10u);
    EXPECT_EQ((*replay)->replayed(), (*replay)->transfers());
    EXPECT_TRUE((*replay)->departure().ok());
  }
}

TEST(Recording, AnotherSessionDepartsFromIt) {
  const TemporaryFile file;
  const std::vector<uint8_t> bytes = Record(file.path(), MakeBus(), 4);
  const auto replay = ReplayBus::Create(bytes);
  ASSERT_TRUE(replay.ok());
  const auto output = RunSession(**replay, 9);
  EXPECT_EQ(output.code(), StatusCode::kDeviceLost);
  EXPECT_THAT(output.status().message(), HasSubstr("the session departs from its recording at"));
  EXPECT_THAT(output.status().message(), HasSubstr("is 9, recorded is 7"));
  EXPECT_EQ((*replay)->departure().code(), StatusCode::kInternal);
  // And it stays so.
  EXPECT_FALSE(RunSession(**replay, 7).ok());

  const auto ended = ReplayBus::Create(bytes);
  EXPECT_TRUE(RunSession(**ended, 7).ok());
  const auto again = RunSession(**ended, 7);
  EXPECT_THAT(again.status().message(), HasSubstr("but the recording ends there"));
}

// Each transfer once as submitted and once as completed, with the header of usbmon.
TEST(Recording, IsWhatWiresharkReads) {
  const TemporaryFile file;
  const std::vector<uint8_t> bytes = Record(file.path(), MakeBus(), 4);
  const auto packets = ReadPcapng(bytes);
  ASSERT_TRUE(packets.ok());
  size_t submitted = 0, completed = 0;
  uint64_t last = 0;
  for (const PcapngPacket& packet : *packets) {
    if (packet.link_type != kLinkTypeUsbLinux) continue;
    ASSERT_GE(packet.bytes.size(), 64u);
    submitted += packet.bytes[8] == 'S';
    completed += packet.bytes[8] == 'C';
    EXPECT_GT(packet.time_ns, 1'600'000'000'000'000'000u);
    last = packet.time_ns;
  }
  EXPECT_EQ(submitted, completed);
  EXPECT_GT(last, 0u);
  EXPECT_EQ(submitted, (*ReplayBus::Create(bytes))->transfers());
}

TEST(Recording, FaultsAreRecordedToo) {
  const TemporaryFile file;
  const auto run = [](UsbBus& bus) {
    const auto output = RunSession(bus, 7);
    return output.ok() ? std::string("ok") : output.status().message();
  };
  for (const char* script : {"out 2 stall", "event 1 corrupt", "in 1 stall", "control 3 unplug 5ms",
                             "open 1 unplug 5ms", "event 1 unplug never"}) {
    std::string then;
    {
      auto faulty = std::make_shared<FaultyBus>(MakeBus(), *ParseFaultScript(script),
                                                FaultyBus::Options{.sleep_until = nullptr});
      auto recording = RecordingBus::Create(faulty, file.path());
      then = run(**recording);
      EXPECT_NE(then, "ok") << script;
    }
    const auto replay = ReplayBus::Create(*ReadRecording(file.path()));
    ASSERT_TRUE(replay.ok()) << replay.status().message();
    EXPECT_EQ(run(**replay), then) << script;
    EXPECT_TRUE((*replay)->departure().ok()) << (*replay)->departure().message();
  }
}

// The register of rows answers 0, as no device does.
TEST(Recording, RegistersAreCheckedLikeThoseOfADevice) {
  const TemporaryFile file;
  std::vector<uint8_t> bytes = Record(file.path(), MakeBus(), 4);
  const auto packets = ReadPcapng(bytes);
  ASSERT_TRUE(packets.ok());
  int completions = 0;  // of ID, ISA_VERSION, ARRAY_ROWS, ...
  for (const PcapngPacket& packet : *packets) {
    if (packet.link_type != kLinkTypeUsbLinux || packet.bytes[8] != 'C') continue;
    if (++completions != 3) continue;
    ASSERT_EQ(packet.bytes.size(), 68u);
    bytes[static_cast<size_t>(packet.bytes.data() - bytes.data()) + 64] = 0;
  }
  const auto replay = ReplayBus::Create(bytes);
  ASSERT_TRUE(replay.ok());
  const auto output = RunSession(**replay, 7);
  EXPECT_EQ(output.code(), StatusCode::kDeviceLost);
  EXPECT_THAT(output.status().message(), HasSubstr("ARRAY_ROWS is 0"));
}

TEST(Recording, HostileBytesAreRefusedOrReplayHarmlessly) {
  const TemporaryFile file;
  const std::vector<uint8_t> bytes = Record(file.path(), MakeBus(), 4);
  for (size_t size = 0; size < bytes.size(); size += 37) {
    const auto replay = ReplayBus::Create(std::span(bytes).first(size));
    EXPECT_FALSE(replay.ok() && RunSession(**replay, 7).ok());
  }
  Rng rng(TestSeed(3));
  for (int i = 0; i < TestCount(2000); ++i) {
    std::vector<uint8_t> broken = bytes;
    // Most of the file is program and parameters; the interesting bytes are of the first packets.
    for (int64_t k = rng.Int(1, 4); k > 0; --k) {
      const int64_t end = static_cast<int64_t>(rng.OneIn(2) ? std::min<size_t>(2000, broken.size())
                                                            : broken.size());
      broken[static_cast<size_t>(rng.Int(0, end - 1))] = static_cast<uint8_t>(rng.Next());
    }
    const auto replay = ReplayBus::Create(broken);
    if (replay.ok()) (void)RunSession(**replay, 7).ok();
  }
  EXPECT_EQ(ReadRecording("/nonexistent").code(), StatusCode::kNotFound);
  // Which has no end, and would be read up to the limit of gigabytes.
  EXPECT_EQ(ReadRecording("/dev/zero").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(RecordingBus::Create(MakeBus(), "/nonexistent/file").code(),
            StatusCode::kInvalidArgument);
}

// Many small packets, and lists of many devices in one.
TEST(Recording, TakesMemoryInProportionToTheFile) {
  const TemporaryFile file;
  const auto resets = [](PcapngWriter* writer) {
    const std::string_view text = "reset 0 ";
    for (int i = 0; i < 50'000; ++i) {
      writer->Write(1, 0, {reinterpret_cast<const uint8_t*>(text.data()), text.size()}, {});
    }
  };
  const auto notes = [](PcapngWriter* writer) {
    const std::string_view text = "note";
    for (int i = 0; i < 50'000; ++i) {
      writer->Write(1, 0, {reinterpret_cast<const uint8_t*>(text.data()), text.size()}, {});
    }
  };
  const auto devices = [](PcapngWriter* writer) {
    std::string text = "list 0 ";
    for (int i = 0; i < 50'000; ++i) text += "\n0 0 0 0 ";
    writer->Write(1, 0, {reinterpret_cast<const uint8_t*>(text.data()), text.size()}, {});
  };
  for (const std::function<void(PcapngWriter*)>& write :
       std::initializer_list<std::function<void(PcapngWriter*)>>{resets, notes, devices}) {
    constexpr uint16_t kLinkTypes[] = {kLinkTypeUsbLinux, kLinkTypeUser0};
    auto writer = PcapngWriter::Create(file.path(), kLinkTypes);
    ASSERT_TRUE(writer.ok());
    write(&*writer);
    ASSERT_TRUE(writer->Close().ok());
    const auto bytes = ReadRecording(file.path());
    ASSERT_TRUE(bytes.ok());
    const MemoryLimit limit(ProportionalBytes(bytes->size()));
    (void)ReplayBus::Create(*bytes).ok();
  }
}

}  // namespace
}  // namespace atollrt
