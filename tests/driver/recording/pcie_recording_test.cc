// SPDX-License-Identifier: Apache-2.0
#include "driver/recording/pcie_recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "driver/recording/pcie_replay.h"
#include "driver/recording/session_text.h"
#include "driver/recording/usb_recording.h"
#include "tests/support/allocation_meter.h"
#include "tests/support/fake_pcie.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

using ::testing::HasSubstr;

class PcieFile {
 public:
  ~PcieFile() { std::remove(path().c_str()); }
  std::string path() const { return ::testing::TempDir() + "pcie_recording_test.pcapng"; }
};

constexpr uint64_t kFrom = 0x10, kTo = 0x18, kBytes = 0x20, kGo = 0x28, kDone = 0x30;
constexpr uint64_t kMoment = 0x38;  // gives another number each time

// A device that adds 1 to bytes: from one address to another, so many, now.
std::shared_ptr<FakePcieBus> MakeAdder() {
  auto bus = std::make_shared<FakePcieBus>();
  FakePcieDevice* device = bus->device.get();
  device->on_write = [device](uint64_t offset, uint64_t) {
    if (offset != kGo) return;
    const size_t count = device->registers[kBytes];
    const auto from = device->Reach(device->registers[kFrom], count);
    const auto to = device->Reach(device->registers[kTo], count);
    if (from.empty() || to.empty()) return;
    for (size_t i = 0; i < count; ++i) to[i] = static_cast<uint8_t>(from[i] + 1);
    device->registers[kDone] += 1;
    device->Raise(2);
  };
  return bus;
}

struct AdderOptions {
  uint8_t first = 7;
  size_t count = 4;
  int rounds = 2;
  int looks = 1;  // at registers, while it waits
  int waits = 0;  // in vain, after what it waited for and before it looks
};

// A session: input to the device's memory, doorbell, wait, output. What came out last.
Result<std::vector<uint8_t>> RunAdder(PcieBus& bus, const AdderOptions& options = {}) {
  ATOLL_ASSIGN_OR_RETURN(const std::vector<PcieDeviceInfo> devices, bus.List());
  if (devices.empty()) return NotFound("no device");
  ATOLL_ASSIGN_OR_RETURN(const std::unique_ptr<PcieFunction> function, bus.Open(devices[0]));
  ATOLL_RETURN_IF_ERROR(function->Reset(Clock::now()));
  EXPECT_FALSE(function->maps_callers_memory());
  std::vector<uint8_t> callers(4);
  EXPECT_EQ(function->Map(callers, DmaDirection::kBoth).code(), StatusCode::kUnsupported);
  ATOLL_ASSIGN_OR_RETURN(const auto input,
                         function->Allocate(options.count, DmaDirection::kToDevice));
  ATOLL_ASSIGN_OR_RETURN(const auto output,
                         function->Allocate(options.count, DmaDirection::kFromDevice));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(input->bytes().data()) % kDmaPageBytes, 0u);
  ATOLL_RETURN_IF_ERROR(function->Write64(2, kFrom, input->iova()));
  ATOLL_RETURN_IF_ERROR(function->Write64(2, kTo, output->iova()));
  ATOLL_RETURN_IF_ERROR(function->Write64(2, kBytes, options.count));
  ATOLL_RETURN_IF_ERROR(function->EnableInterrupts(4));
  for (int round = 0; round < options.rounds; ++round) {
    std::iota(input->bytes().begin(), input->bytes().end(),
              static_cast<uint8_t>(options.first + round));
    ATOLL_RETURN_IF_ERROR(function->Write32(2, kGo, static_cast<uint32_t>(round)));
    for (int i = 0; i < options.looks; ++i) {
      ATOLL_RETURN_IF_ERROR(function->Read64(2, kMoment).status());
      (void)function->AwaitInterrupts(1, Clock::now()).ok();  // in vain
      if (!function->is_present()) return DeviceLost("it is not there");
    }
    ATOLL_ASSIGN_OR_RETURN(const uint64_t raised, function->AwaitInterrupts(7, Clock::now()));
    if (raised != 4) return InternalError("another interrupt");
    for (int i = 0; i < options.waits; ++i) {
      const auto in_vain = function->AwaitInterrupts(1, Clock::now());
      if (in_vain.code() != StatusCode::kTimeout) return in_vain.status();
    }
    ATOLL_ASSIGN_OR_RETURN(const uint32_t done, function->Read32(2, kDone));
    if (done != static_cast<uint32_t>(round) + 1) return InternalError("not done");
  }
  return std::vector<uint8_t>(output->bytes().begin(), output->bytes().end());
}

std::vector<uint8_t> Expected(const AdderOptions& options) {
  std::vector<uint8_t> bytes(options.count);
  std::iota(bytes.begin(), bytes.end(), static_cast<uint8_t>(options.first + options.rounds));
  return bytes;
}

std::vector<uint8_t> RecordAdder(const std::string& path, const AdderOptions& options = {}) {
  {
    auto recording = RecordingPcieBus::Create(MakeAdder(), path);
    EXPECT_TRUE(recording.ok()) << recording.status().message();
    (*recording)->Note("session", "two words\nand a line");
    const auto output = RunAdder(**recording, options);
    EXPECT_TRUE(output.ok()) << output.status().message();
    EXPECT_EQ(*output, Expected(options));
  }
  auto bytes = ReadRecording(path);
  EXPECT_TRUE(bytes.ok());
  return *std::move(bytes);
}

std::shared_ptr<ReplayPcieBus> Replay(std::span<const uint8_t> bytes) {
  auto replay = ReplayPcieBus::Create(bytes);
  EXPECT_TRUE(replay.ok()) << replay.status().message();
  return *std::move(replay);
}

// Also of memory that changes in more than a packet takes.
TEST(PcieRecording, IsPlayedBackWithoutTheDevice) {
  const PcieFile file;
  for (const size_t count : {4u, 500'000u}) {
    const AdderOptions options{.count = count};
    const std::vector<uint8_t> bytes = RecordAdder(file.path(), options);
    EXPECT_TRUE(IsPcieRecording(bytes));
    const auto replay = Replay(bytes);
    EXPECT_EQ(replay->Note("session"), "two words and a line");
    EXPECT_EQ(replay->Note("nothing"), "");
    const PcieDeviceInfo info = replay->FirstDevices()->front();
    EXPECT_EQ(info, MakeAdder()->List()->front());
    const auto output = RunAdder(*replay, options);
    ASSERT_TRUE(output.ok()) << output.status().message();
    EXPECT_EQ(*output, Expected(options));
    EXPECT_GT(replay->calls(), 20u);
    EXPECT_EQ(replay->replayed(), replay->calls());
    EXPECT_TRUE(replay->departure().ok());
  }
}

TEST(PcieRecording, AnotherSessionDepartsFromIt) {
  const PcieFile file;
  const std::vector<uint8_t> bytes = RecordAdder(file.path());
  const auto replay = Replay(bytes);
  const auto output = RunAdder(*replay, {.first = 9});
  EXPECT_EQ(output.code(), StatusCode::kInternal);
  EXPECT_THAT(output.status().message(), HasSubstr("the session departs from its recording at"));
  EXPECT_THAT(output.status().message(), HasSubstr("byte 0 of memory 1 is 9, recorded is 7"));
  EXPECT_EQ(replay->departure().code(), StatusCode::kInternal);
  EXPECT_FALSE(RunAdder(*replay).ok());  // and it stays so

  const auto larger = RunAdder(*Replay(bytes), {.count = 5});
  EXPECT_THAT(larger.status().message(),
              HasSubstr("memory of 5 bytes for the device, recorded is memory of 4 bytes"));
  const auto ended = RunAdder(*Replay(bytes), {.rounds = 3});
  EXPECT_THAT(ended.status().message(), HasSubstr("but the recording ends there"));
  const auto at_end = Replay(bytes);
  EXPECT_TRUE(RunAdder(*at_end, {.rounds = 1}).ok());
  EXPECT_TRUE(at_end->departure().ok());
  EXPECT_LT(at_end->replayed(), at_end->calls());
}

// How often a host looks is a matter of time.
TEST(PcieRecording, WaitingIsNotCompared) {
  const PcieFile file;
  for (const int then : {0, 1, 3}) {
    const std::vector<uint8_t> bytes = RecordAdder(file.path(), {.looks = then});
    for (const int now : {0, 1, 3, 10}) {
      if (then == 0 && now > 0) continue;  // of what nobody asked for there is no answer
      const auto output = RunAdder(*Replay(bytes), {.looks = now});
      EXPECT_TRUE(output.ok()) << then << " " << now << output.status().message();
    }
  }
}

// Nor is how long it waits before it looks: a slow host finds its time to be over already.
TEST(PcieRecording, WaitsInFrontOfLooksAreNotCompared) {
  const PcieFile file;
  for (const int then : {0, 1, 3}) {
    const std::vector<uint8_t> bytes = RecordAdder(file.path(), {.waits = then});
    for (const int now : {0, 1, 3}) {
      const auto replay = Replay(bytes);
      const auto output = RunAdder(*replay, {.waits = now});
      EXPECT_TRUE(output.ok()) << then << " " << now << output.status().message();
      EXPECT_EQ(replay->replayed(), replay->calls());
    }
  }
}

TEST(PcieRecording, ErrorsAreRecordedToo) {
  class FailingBus final : public PcieBus {
   public:
    Result<std::vector<PcieDeviceInfo>> List() override {
      return Status(StatusCode::kPermissionDenied, "a\nreason");
    }
    Result<std::unique_ptr<PcieFunction>> Open(const PcieDeviceInfo&) override {
      return Status(StatusCode::kDeviceBusy, "somebody has it");
    }
    uint64_t generation() override { return 0; }
    bool WaitForChange(uint64_t, Deadline) override { return false; }
  };
  const PcieFile file;
  const auto use = [](PcieBus& bus) {
    const auto list = bus.List();
    EXPECT_EQ(list.code(), StatusCode::kPermissionDenied);
    const auto open = bus.Open({.id = kAtollPcieId, .address = "0000:01:00.0", .driver = {}});
    EXPECT_EQ(open.code(), StatusCode::kDeviceBusy);
    EXPECT_EQ(open.status().message(), "somebody has it");
  };
  {
    const auto recording = RecordingPcieBus::Create(std::make_shared<FailingBus>(), file.path());
    use(**recording);
  }
  const auto replay = Replay(*ReadRecording(file.path()));
  use(*replay);
  EXPECT_FALSE(replay->FirstDevices().ok());
}

TEST(PcieRecording, OtherFilesAreRefused) {
  const PcieFile file;
  const std::vector<uint8_t> bytes = RecordAdder(file.path());
  EXPECT_EQ(ReplayPcieBus::Create({}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(RecordingPcieBus::Create(MakeAdder(), "/nonexistent/file").code(),
            StatusCode::kInvalidArgument);
  constexpr uint16_t kLinkTypes[] = {kLinkTypeUsbLinux, kLinkTypeUser0};
  auto writer = PcapngWriter::Create(file.path(), kLinkTypes);
  writer->Write(1, 0, TextBytes("list 0 "), {});
  ASSERT_TRUE(writer->Close().ok());
  const auto usb = *ReadRecording(file.path());
  EXPECT_FALSE(IsPcieRecording(usb));
  EXPECT_EQ(ReplayPcieBus::Create(usb).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(ReplayBus::Create(usb).ok());
}

TEST(PcieRecording, HostileBytesAreRefusedOrReplayHarmlessly) {
  const PcieFile file;
  const std::vector<uint8_t> bytes = RecordAdder(file.path());
  for (size_t size = 0; size < bytes.size(); size += 7) {
    const auto replay = ReplayPcieBus::Create(std::span(bytes).first(size));
    EXPECT_FALSE(replay.ok() && (*replay)->calls() == Replay(bytes)->calls());
    if (replay.ok()) (void)RunAdder(**replay).ok();
  }
  Rng rng(TestSeed(3));
  for (int i = 0; i < TestCount(2000); ++i) {
    std::vector<uint8_t> broken = bytes;
    for (int64_t k = rng.Int(1, 4); k > 0; --k) {
      const size_t at = static_cast<size_t>(rng.Int(0, static_cast<int64_t>(broken.size()) - 1));
      broken[at] = static_cast<uint8_t>(rng.OneIn(2) ? rng.Next() : rng.Int('0', '9'));
    }
    const auto replay = ReplayPcieBus::Create(broken);
    if (!replay.ok()) continue;
    const auto devices = (*replay)->List();
    if (!devices.ok() || devices->empty()) continue;
    const auto function = (*replay)->Open(devices->front());
    if (!function.ok()) continue;
    (void)(*function)->Reset(Clock::now()).ok();
    const auto memory = (*function)->Allocate(4, DmaDirection::kToDevice);
    const auto more = (*function)->Allocate(4, DmaDirection::kFromDevice);
    if (!memory.ok()) continue;
    (void)(*function)->Write64(2, kFrom, (*memory)->iova()).ok();
    (void)(*function)->Write64(2, kTo, 0).ok();
  }
}

TEST(PcieRecording, TakesMemoryInProportionToTheFile) {
  const PcieFile file;
  const auto repeat = [](std::string_view text) {
    return [text](PcapngWriter* writer) {
      for (int i = 0; i < 50'000; ++i) writer->Write(0, 0, TextBytes(text), {});
    };
  };
  const auto devices = [](PcapngWriter* writer) {
    std::string text = "list 0 ";
    for (int i = 0; i < 50'000; ++i) text += "\n0 0 0 0  ";
    writer->Write(0, 0, TextBytes(text), {});
  };
  for (const std::function<void(PcapngWriter*)>& write :
       std::initializer_list<std::function<void(PcapngWriter*)>>{
           repeat("reset 0 "), repeat("note"), repeat("host 1 0"),
           repeat("allocate 99999999999999 0 1 0 0 "), devices}) {
    constexpr uint16_t kLinkTypes[] = {kLinkTypeUser0};
    auto writer = PcapngWriter::Create(file.path(), kLinkTypes);
    ASSERT_TRUE(writer.ok());
    writer->Write(0, 0, TextBytes("note bus pcie"), {});
    write(&*writer);
    writer->Write(0, 0, TextBytes("reset 0 "), {});
    ASSERT_TRUE(writer->Close().ok());
    const auto bytes = ReadRecording(file.path());
    ASSERT_TRUE(bytes.ok());
    const MemoryLimit limit(ProportionalBytes(bytes->size()));
    EXPECT_TRUE(ReplayPcieBus::Create(*bytes).ok());
  }
}

}  // namespace
}  // namespace atollrt
