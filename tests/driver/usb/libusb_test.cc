// SPDX-License-Identifier: Apache-2.0
//
// The system's USB bus and its transport over real libusb and a kernel made up by umockdev.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <numeric>
#include <thread>

#include "driver/atoll1/protocol.h"
#include "driver/emulator/core.h"
#include "driver/open_device.h"
#include "driver/usb/usb_bus.h"
#include "tests/support/fake_usbfs.h"
#include "tests/support/test_executables.h"

namespace atollrt {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr size_t kPacketBytes = FakeUsbfs::kPacketBytes;

Deadline In(int ms) { return Clock::now() + milliseconds(ms); }
Deadline Never() { return In(60'000); }

std::vector<uint8_t> SomeBytes(size_t count) {
  std::vector<uint8_t> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(i * 7 + (i >> 9));
  return bytes;
}

// Waits for something that another thread does soon.
template <typename Condition>
bool Soon(const Condition& condition) {
  for (const Deadline deadline = In(5000); Clock::now() < deadline;) {
    if (condition()) return true;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return false;
}

class Libusb : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_.Plug(kAtollUsbId);
    bus_ = SystemUsbBus();
  }

  UsbDeviceInfo Info() {
    auto devices = bus_->List();
    EXPECT_TRUE(devices.ok()) << devices.status().message();
    return devices.ok() && !devices->empty() ? devices->front() : UsbDeviceInfo();
  }
  void OpenIt() {
    auto transport = bus_->Open(Info(), 0);
    ASSERT_TRUE(transport.ok()) << transport.status().message();
    transport_ = *std::move(transport);
  }

  FakeUsbfs fake_;
  std::shared_ptr<UsbBus> bus_;
  std::unique_ptr<UsbTransport> transport_;
};

TEST_F(Libusb, DevicesAreListedWithoutTheirRootHubs) {
  const auto devices = bus_->List();
  ASSERT_TRUE(devices.ok());
  EXPECT_EQ(*devices,
            (std::vector<UsbDeviceInfo>{
                {.id = kAtollUsbId, .path = "1-2", .address = 2, .speed = UsbSpeed::kHigh}}));
  EXPECT_EQ(SystemUsbBus(), bus_);
}

TEST_F(Libusb, NobodyMayOpenWhatIsNotTheirs) {
  const UsbDeviceInfo info = Info();
  fake_.Forbid();
  if (getuid() == 0) {
    ASSERT_EQ(seteuid(65534), 0);  // root may open everything
  }
  const auto transport = bus_->Open(info, 0);
  if (getuid() == 0) {
    ASSERT_EQ(seteuid(0), 0);
  }
  EXPECT_EQ(transport.code(), StatusCode::kPermissionDenied) << transport.status().message();
  for (const char* part : {"1-2", "/dev/bus/usb/001/002", "60-atoll.rules", "plugdev"}) {
    EXPECT_THAT(transport.status().message(), HasSubstr(part));
  }
}

TEST_F(Libusb, ABusyDeviceNamesTheProcessThatHasIt) {
  const std::string command = "exec sleep 60 <" + fake_.node();
  const char* arguments[] = {"sh", "-c", command.c_str(), nullptr};
  pid_t child = 0;
  ASSERT_EQ(
      posix_spawn(&child, "/bin/sh", nullptr, nullptr, const_cast<char**>(arguments), environ), 0);
  fake_.set_claim_error(EBUSY);
  std::string message;
  EXPECT_TRUE(Soon([&] {
    const auto transport = bus_->Open(Info(), 0);
    EXPECT_EQ(transport.code(), StatusCode::kDeviceBusy);
    message = transport.status().message();
    return message.find(std::to_string(child) + " (sleep)") != message.npos;
  })) << message;
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(Soon([&] {
    return bus_->Open(Info(), 0).status().message().find("sudo fuser") != std::string::npos;
  }));
  fake_.set_claim_error(0);
  EXPECT_TRUE(bus_->Open(Info(), 0).ok());
}

TEST_F(Libusb, WhatIsNotThereAnyMoreIsLost) {
  UsbDeviceInfo other = Info();
  other.path = "1-3";
  EXPECT_EQ(bus_->Open(other, 0).code(), StatusCode::kDeviceLost);
  other = Info();
  other.id = kCoralUsbId;
  EXPECT_EQ(bus_->Open(other, 0).code(), StatusCode::kDeviceLost);
  fake_.set_claim_error(ENODEV);
  EXPECT_EQ(bus_->Open(Info(), 0).code(), StatusCode::kDeviceLost);
}

// Control.

TEST_F(Libusb, ControlRequestsCarryDataBothWays) {
  OpenIt();
  std::vector<uint8_t> memory;
  fake_.OnControl([&](const ControlSetup& setup, std::span<uint8_t> data) {
    if (setup.request != 7 || setup.value != 0x1234 || setup.index != 0x5678) return -EPIPE;
    if (setup.request_type == 0x40) {
      memory.assign(data.begin(), data.end());
    } else {
      std::copy(memory.begin(), memory.end(), data.begin());
    }
    return static_cast<int>(memory.size());
  });
  ControlSetup setup{.request_type = 0x40, .request = 7, .value = 0x1234, .index = 0x5678};
  std::vector<uint8_t> sent = SomeBytes(4096);
  ASSERT_TRUE(transport_->Control(setup, sent, Never()).ok());
  setup.request_type = 0xC0;
  std::vector<uint8_t> received(4096);
  ASSERT_TRUE(transport_->Control(setup, received, Never()).ok());
  EXPECT_EQ(received, sent);
  ASSERT_TRUE(transport_
                  ->Control({.request_type = 0x40, .request = 7, .value = 0x1234, .index = 0x5678},
                            {}, Never())
                  .ok());
  EXPECT_TRUE(memory.empty());

  std::vector<uint8_t> too_many(4097);
  EXPECT_EQ(transport_->Control(setup, too_many, Never()).code(), StatusCode::kInvalidArgument);
  // A short answer is none.
  EXPECT_EQ(transport_->Control(setup, received, Never()).code(), StatusCode::kDeviceLost);
}

TEST_F(Libusb, ARefusedRequestIsNoMatter) {
  OpenIt();
  std::vector<uint8_t> data(4);
  EXPECT_EQ(transport_->Control({.request_type = 0xC0, .request = 9}, data, Never()).code(),
            StatusCode::kInvalidArgument);
  fake_.OnControl([](const ControlSetup&, std::span<uint8_t> answer) {
    answer[0] = 42;
    return 4;
  });
  EXPECT_TRUE(transport_->Control({.request_type = 0xC0, .request = 9}, data, Never()).ok());
  EXPECT_EQ(data[0], 42);
}

TEST_F(Libusb, ARequestWithoutAnswerEndsAtItsDeadline) {
  OpenIt();
  fake_.OnControl([](const ControlSetup&, std::span<uint8_t>) { return FakeUsbfs::kSilence; });
  std::vector<uint8_t> data(4);
  EXPECT_EQ(transport_->Control({.request_type = 0xC0, .request = 9}, data, In(20)).code(),
            StatusCode::kTimeout);
  EXPECT_EQ(fake_.transfers_in_flight(), 0);
}

// Bulk OUT.

TEST_F(Libusb, LargeDataGoesOutInOrderInLargeTransfers) {
  OpenIt();
  const std::vector<uint8_t> data = SomeBytes(9'999'999);
  fake_.At(0x01, [](FakeUsbfs::Endpoint& endpoint) { endpoint.room = 0; });
  std::thread device([&] {
    EXPECT_TRUE(Soon([&] { return fake_.transfers_in_flight() == 4; }));
    fake_.At(0x01, [](FakeUsbfs::Endpoint& endpoint) { endpoint.room = SIZE_MAX; });
  });
  EXPECT_TRUE(transport_->BulkOut(0x01, data, Never()).ok());
  device.join();
  fake_.At(0x01, [&](FakeUsbfs::Endpoint& endpoint) {
    EXPECT_TRUE(endpoint.taken == data);
    EXPECT_EQ(endpoint.largest, size_t{1} << 20);
    EXPECT_EQ(endpoint.most_in_flight, 4u);
  });
  EXPECT_EQ(fake_.transfers_in_flight(), 0);
  // Buffers are the device's memory, and stay.
  const int maps = fake_.memory_maps();
  EXPECT_EQ(maps, 4);
  ASSERT_TRUE(transport_->BulkOut(0x01, data, Never()).ok());
  EXPECT_EQ(fake_.memory_maps(), maps);
  ASSERT_TRUE(transport_->BulkOut(0x01, {}, Never()).ok());  // nothing is sent
  fake_.At(0x01, [&](FakeUsbfs::Endpoint& endpoint) {
    EXPECT_EQ(endpoint.taken.size(), 2 * data.size());
  });
  transport_.reset();
  EXPECT_EQ(fake_.memory_maps(), 0);
}

TEST_F(Libusb, WorksWithoutMemoryOfTheDevice) {
  fake_.set_gives_memory(false);
  OpenIt();
  const std::vector<uint8_t> data = SomeBytes(3'000'000);
  ASSERT_TRUE(transport_->BulkOut(0x01, data, Never()).ok());
  fake_.At(0x01, [&](FakeUsbfs::Endpoint& endpoint) { EXPECT_TRUE(endpoint.taken == data); });
  fake_.Send(0x81, std::span(data).first(700));
  std::vector<uint8_t> received(700);
  EXPECT_EQ(*transport_->BulkIn(0x81, received, Never()), 700u);
  EXPECT_TRUE(std::equal(received.begin(), received.end(), data.begin()));
  EXPECT_EQ(fake_.memory_maps(), 0);
}

TEST_F(Libusb, ASystemShortOfMemoryGetsOneTransferAtATime) {
  OpenIt();
  fake_.set_submit_error(ENOMEM);
  const std::vector<uint8_t> data = SomeBytes(5'000'000);
  ASSERT_TRUE(transport_->BulkOut(0x01, data, Never()).ok());
  fake_.At(0x01, [&](FakeUsbfs::Endpoint& endpoint) {
    EXPECT_TRUE(endpoint.taken == data);
    EXPECT_EQ(endpoint.most_in_flight, 1u);
  });
}

TEST_F(Libusb, ADeviceThatTakesNoMoreTimesOut) {
  OpenIt();
  fake_.At(0x01, [](FakeUsbfs::Endpoint& endpoint) { endpoint.room = 1'500'000; });
  const Status status = transport_->BulkOut(0x01, SomeBytes(8'000'000), In(100));
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  EXPECT_THAT(status.message(), HasSubstr("took 1500000 of 8000000 bytes"));
  EXPECT_EQ(fake_.transfers_in_flight(), 0);
  fake_.At(0x01, [](FakeUsbfs::Endpoint& endpoint) { endpoint.room = SIZE_MAX; });
  EXPECT_TRUE(transport_->BulkOut(0x01, SomeBytes(100), Never()).ok());
}

TEST_F(Libusb, AStalledOutEndpointIsClearedAndGoesOn) {
  OpenIt();
  fake_.At(0x01, [](FakeUsbfs::Endpoint& endpoint) { endpoint.error = EPIPE; });
  EXPECT_EQ(transport_->BulkOut(0x01, SomeBytes(5'000'000), Never()).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(fake_.transfers_in_flight(), 0);
  EXPECT_TRUE(transport_->BulkOut(0x01, SomeBytes(100), Never()).ok());
  fake_.At(0x01, [](FakeUsbfs::Endpoint& endpoint) {
    EXPECT_EQ(endpoint.halts_cleared, 1);
    EXPECT_EQ(endpoint.taken, SomeBytes(100));
  });
}

TEST_F(Libusb, AnErrorOnTheBusLosesTheDeviceUntilItIsReset) {
  OpenIt();
  fake_.At(0x01, [](FakeUsbfs::Endpoint& endpoint) { endpoint.error = EPROTO; });
  EXPECT_EQ(transport_->BulkOut(0x01, SomeBytes(100), Never()).code(), StatusCode::kDeviceLost);
  ASSERT_TRUE(transport_->Reset(Never()).ok());
  EXPECT_TRUE(transport_->BulkOut(0x01, SomeBytes(100), Never()).ok());
}

// Bulk and interrupt IN.

TEST_F(Libusb, AReadEndsWithItsBufferOrWithAShortPacket) {
  OpenIt();
  const std::vector<uint8_t> data = SomeBytes(2000);
  fake_.Send(0x81, data);
  std::vector<uint8_t> received(5000);
  EXPECT_EQ(*transport_->BulkIn(0x81, received, Never()), 2000u);
  EXPECT_TRUE(std::equal(data.begin(), data.end(), received.begin()));
  // The device says nothing behind a full packet, and the read does not wait for it.
  fake_.Send(0x81, std::span(data).first(2 * kPacketBytes));
  EXPECT_EQ(*transport_->BulkIn(0x81, std::span(received).first(2 * kPacketBytes), Never()),
            2 * kPacketBytes);
  // An empty packet is an empty answer.
  fake_.Send(0x81, {});
  EXPECT_EQ(*transport_->BulkIn(0x81, received, Never()), 0u);
  EXPECT_EQ(*transport_->BulkIn(0x81, {}, Never()), 0u);
  EXPECT_EQ(fake_.transfers_in_flight(), 0);
}

TEST_F(Libusb, BytesThatDoNotFitAreKept) {
  OpenIt();
  const std::vector<uint8_t> data = SomeBytes(kPacketBytes + 100);
  fake_.Send(0x81, data);
  std::vector<uint8_t> received;
  for (const size_t count : {100, 300, 112, 60, 60}) {
    std::vector<uint8_t> part(count);
    const auto result = transport_->BulkIn(0x81, part, Never());
    ASSERT_TRUE(result.ok());
    received.insert(received.end(), part.begin(), part.begin() + static_cast<ptrdiff_t>(*result));
  }
  EXPECT_EQ(received, data);
  // Another endpoint has nothing of it, and a reset forgets what is left.
  fake_.Send(0x81, data);
  std::vector<uint8_t> part(10);
  EXPECT_EQ(*transport_->BulkIn(0x81, part, Never()), 10u);
  EXPECT_EQ(transport_->BulkIn(0x82, part, In(10)).code(), StatusCode::kTimeout);
  ASSERT_TRUE(transport_->Reset(Never()).ok());
  EXPECT_EQ(transport_->BulkIn(0x81, part, In(10)).code(), StatusCode::kTimeout);
}

TEST_F(Libusb, LargeReadsHaveSeveralTransfersInFlight) {
  OpenIt();
  const std::vector<uint8_t> data = SomeBytes(3'000'001);
  constexpr size_t kBegin = 1000 * kPacketBytes;
  fake_.Send(0x81, std::span(data).first(kBegin));
  std::thread device([&] {
    EXPECT_TRUE(Soon([&] { return fake_.transfers_in_flight() == 4; }));
    fake_.Send(0x81, std::span(data).subspan(kBegin));
  });
  std::vector<uint8_t> received(data.size());
  EXPECT_EQ(*transport_->BulkIn(0x81, received, Never()), data.size());
  device.join();
  EXPECT_TRUE(received == data);
  fake_.At(0x81, [](FakeUsbfs::Endpoint& endpoint) {
    EXPECT_EQ(endpoint.largest, size_t{256} << 10);
    EXPECT_EQ(endpoint.most_in_flight, 4u);
  });
  // One that ends its transfers early has one at a time.
  for (int i = 0; i < 3; ++i) {
    fake_.Send(0x81, std::span(data).first(100));
    EXPECT_EQ(*transport_->BulkIn(0x81, received, Never()), 100u);
    if (i > 0) continue;
    fake_.At(0x81, [](FakeUsbfs::Endpoint& endpoint) { endpoint.most_in_flight = 0; });
  }
  fake_.At(0x81, [](FakeUsbfs::Endpoint& endpoint) { EXPECT_EQ(endpoint.most_in_flight, 1u); });
  EXPECT_EQ(fake_.transfers_in_flight(), 0);
}

TEST_F(Libusb, WhatComesBehindAShortPacketIsKept) {
  OpenIt();
  const std::vector<uint8_t> data = SomeBytes(2000 * kPacketBytes);
  std::vector<uint8_t> received(data.size());
  fake_.Send(0x81, data);  // from now on, four transfers at a time
  ASSERT_EQ(*transport_->BulkIn(0x81, received, Never()), data.size());
  std::thread device([&] {
    EXPECT_TRUE(Soon([&] { return fake_.transfers_in_flight() == 4; }));
    fake_.At(0x81, [&](FakeUsbfs::Endpoint& endpoint) {
      endpoint.packets.emplace_back(data.begin(), data.begin() + 5);
      for (size_t i = 0; i < 3; ++i) {
        endpoint.packets.emplace_back(
            data.begin() + static_cast<ptrdiff_t>(i * kPacketBytes),
            data.begin() + static_cast<ptrdiff_t>((i + 1) * kPacketBytes));
      }
    });
  });
  EXPECT_EQ(*transport_->BulkIn(0x81, received, Never()), 5u);
  device.join();
  // Whether the transfers behind it had these or not.
  EXPECT_EQ(*transport_->BulkIn(0x81, std::span(received).first(3 * kPacketBytes), Never()),
            3 * kPacketBytes);
  EXPECT_TRUE(std::equal(data.begin(), data.begin() + 3 * kPacketBytes, received.begin()));
}

TEST_F(Libusb, ATimedOutReadLosesNothing) {
  OpenIt();
  const std::vector<uint8_t> data = SomeBytes(3 * kPacketBytes);
  std::vector<uint8_t> received(10'000);
  EXPECT_EQ(transport_->BulkIn(0x81, received, In(20)).code(), StatusCode::kTimeout);
  fake_.Send(0x81, data);  // and no short packet
  EXPECT_EQ(*transport_->BulkIn(0x81, received, In(50)), data.size());
  EXPECT_TRUE(std::equal(data.begin(), data.end(), received.begin()));
  // A deadline that has passed takes what is there.
  fake_.Send(0x81, data);
  EXPECT_EQ(*transport_->BulkIn(0x81, received, In(-1000)), data.size());
  EXPECT_EQ(transport_->BulkIn(0x81, received, In(-1000)).code(), StatusCode::kTimeout);
  EXPECT_EQ(fake_.transfers_in_flight(), 0);
}

TEST_F(Libusb, AStalledInEndpointIsClearedAfterItsBytesAreRead) {
  OpenIt();
  std::vector<uint8_t> received(1000);
  fake_.At(0x81, [](FakeUsbfs::Endpoint& endpoint) { endpoint.error = EPIPE; });
  EXPECT_EQ(transport_->BulkIn(0x81, received, Never()).code(), StatusCode::kInvalidArgument);
  fake_.At(0x81, [](FakeUsbfs::Endpoint& endpoint) { EXPECT_EQ(endpoint.halts_cleared, 1); });
  fake_.Send(0x81, SomeBytes(kPacketBytes));
  std::thread device([&] {
    EXPECT_TRUE(Soon([&] {
      bool empty = false;
      fake_.At(0x81, [&](FakeUsbfs::Endpoint& endpoint) { empty = endpoint.packets.empty(); });
      return empty;
    }));
    fake_.At(0x81, [](FakeUsbfs::Endpoint& endpoint) { endpoint.error = EPIPE; });
  });
  EXPECT_EQ(*transport_->BulkIn(0x81, received, Never()), kPacketBytes);
  device.join();
  EXPECT_EQ(transport_->BulkIn(0x81, received, Never()).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(transport_->BulkIn(0x81, received, In(10)).code(), StatusCode::kTimeout);
}

TEST_F(Libusb, MoreThanAPacketIsAnError) {
  OpenIt();
  fake_.At(0x81, [](FakeUsbfs::Endpoint& endpoint) {
    endpoint.packets.push_back(SomeBytes(kPacketBytes + 1));
  });
  std::vector<uint8_t> received(10);
  EXPECT_EQ(transport_->BulkIn(0x81, received, Never()).code(), StatusCode::kDeviceLost);
}

TEST_F(Libusb, InterruptsAreReadLikeBulk) {
  OpenIt();
  std::vector<uint8_t> word(4);
  EXPECT_EQ(transport_->InterruptIn(0x83, word, In(10)).code(), StatusCode::kTimeout);
  fake_.At(0x83, [](FakeUsbfs::Endpoint& endpoint) { endpoint.packets.push_back({1, 2, 3, 4}); });
  EXPECT_EQ(*transport_->InterruptIn(0x83, word, Never()), 4u);
  EXPECT_EQ(word, (std::vector<uint8_t>{1, 2, 3, 4}));
}

TEST_F(Libusb, OtherEndpointsAreRefused) {
  OpenIt();
  std::vector<uint8_t> data(10);
  for (const int endpoint : {0x00, 0x80, 0x81, 0x02, 0x0F, 0x11}) {
    EXPECT_EQ(transport_->BulkOut(static_cast<uint8_t>(endpoint), data, Never()).code(),
              StatusCode::kInvalidArgument)
        << endpoint;
  }
  for (const int endpoint : {0x00, 0x80, 0x01, 0x84, 0x8F, 0x91}) {
    EXPECT_EQ(transport_->BulkIn(static_cast<uint8_t>(endpoint), data, Never()).code(),
              StatusCode::kInvalidArgument)
        << endpoint;
  }
}

// Cancel, Reset, close, unplug.

TEST_F(Libusb, CancelEndsAllCallsUntilReset) {
  OpenIt();
  fake_.At(0x01, [](FakeUsbfs::Endpoint& endpoint) { endpoint.room = 0; });
  fake_.OnControl([](const ControlSetup&, std::span<uint8_t>) { return FakeUsbfs::kSilence; });
  std::vector<uint8_t> big(2'000'000), small(8), word(4), event(16);
  StatusCode codes[4] = {};
  std::thread out([&] { codes[0] = transport_->BulkOut(0x01, big, Never()).code(); });
  std::thread in([&] { codes[1] = transport_->BulkIn(0x82, event, Never()).code(); });
  std::thread interrupt([&] { codes[2] = transport_->InterruptIn(0x83, word, Never()).code(); });
  std::thread control(
      [&] { codes[3] = transport_->Control({.request_type = 0xC0}, small, Never()).code(); });
  EXPECT_TRUE(Soon([&] { return fake_.transfers_in_flight() == 5; }));
  transport_->Cancel();
  for (std::thread* thread : {&out, &in, &interrupt, &control}) thread->join();
  for (const StatusCode code : codes) EXPECT_EQ(code, StatusCode::kCancelled);
  EXPECT_EQ(fake_.transfers_in_flight(), 0);
  EXPECT_EQ(transport_->BulkIn(0x82, event, Never()).code(), StatusCode::kCancelled);

  fake_.At(0x01, [](FakeUsbfs::Endpoint& endpoint) { endpoint.room = SIZE_MAX; });
  ASSERT_TRUE(transport_->Reset(Never()).ok());
  EXPECT_TRUE(transport_->BulkOut(0x01, big, Never()).ok());
}

TEST_F(Libusb, ResetEndsCallsInProgress) {
  OpenIt();
  std::vector<uint8_t> event(16);
  StatusCode code = StatusCode::kOk;
  std::thread in([&] { code = transport_->BulkIn(0x82, event, Never()).code(); });
  EXPECT_TRUE(Soon([&] { return fake_.transfers_in_flight() == 1; }));
  EXPECT_TRUE(transport_->Reset(Never()).ok());
  in.join();
  EXPECT_EQ(code, StatusCode::kCancelled);
}

TEST_F(Libusb, ADeviceThatIsAnotherAfterAResetHasToBeOpenedAgain) {
  OpenIt();
  fake_.set_reset_error(ENODEV);
  EXPECT_EQ(transport_->Reset(Never()).code(), StatusCode::kDeviceLost);
  fake_.set_reset_error(0);
  EXPECT_EQ(transport_->Reset(Never()).code(), StatusCode::kDeviceLost);
  EXPECT_EQ(transport_->BulkOut(0x01, SomeBytes(4), Never()).code(), StatusCode::kDeviceLost);
  transport_.reset();
  OpenIt();
  EXPECT_TRUE(transport_->BulkOut(0x01, SomeBytes(4), Never()).ok());
}

TEST_F(Libusb, ClosingWaitsForTransfersThatComeBackLate) {
  OpenIt();
  fake_.set_keeps_cancelled(true);
  fake_.At(0x01, [](FakeUsbfs::Endpoint& endpoint) { endpoint.room = 0; });
  // The system does not give the transfers back, so the call gives up on the transport.
  const Deadline begin = Clock::now();
  EXPECT_EQ(transport_->BulkOut(0x01, SomeBytes(3'000'000), In(10)).code(),
            StatusCode::kDeviceLost);
  EXPECT_EQ(fake_.transfers_in_flight(), 3);
  EXPECT_EQ(transport_->BulkOut(0x01, SomeBytes(3), Never()).code(), StatusCode::kDeviceLost);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10));
  fake_.set_keeps_cancelled(false);
  transport_.reset();
  EXPECT_EQ(fake_.transfers_in_flight(), 0);
  EXPECT_EQ(fake_.memory_maps(), 0);
}

TEST_F(Libusb, ClosingForgetsTransfersThatNeverComeBack) {
  OpenIt();
  fake_.set_keeps_cancelled(true);
  std::vector<uint8_t> event(16);
  EXPECT_EQ(transport_->BulkIn(0x82, event, In(10)).code(), StatusCode::kDeviceLost);
  const Deadline begin = Clock::now();
  transport_.reset();
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10));
}

TEST_F(Libusb, AnUnpluggedDeviceIsLostAtOnceAndForGood) {
  OpenIt();
  const uint64_t before = bus_->generation();
  const UsbDeviceInfo info = Info();
  std::vector<uint8_t> event(16);
  Status status;
  std::thread in([&] { status = transport_->BulkIn(0x82, event, Never()).status(); });
  EXPECT_TRUE(Soon([&] { return fake_.transfers_in_flight() == 1; }));
  fake_.Unplug();
  in.join();
  EXPECT_EQ(status.code(), StatusCode::kDeviceLost);
  EXPECT_EQ(transport_->BulkOut(0x01, SomeBytes(4), Never()).code(), StatusCode::kDeviceLost);
  EXPECT_EQ(transport_->Control({}, {}, Never()).code(), StatusCode::kDeviceLost);
  EXPECT_EQ(transport_->Reset(Never()).code(), StatusCode::kDeviceLost);
  transport_.reset();

  EXPECT_TRUE(bus_->WaitForChange(before, Never()));
  EXPECT_TRUE(bus_->List()->empty());
  EXPECT_EQ(bus_->Open(info, 0).code(), StatusCode::kDeviceLost);

  const uint64_t gone = bus_->generation();
  EXPECT_FALSE(bus_->WaitForChange(gone, In(20)));
  fake_.Plug(kAtollUsbId);
  EXPECT_TRUE(bus_->WaitForChange(gone, Never()));
  EXPECT_EQ(Info().path, "1-2");
  OpenIt();
  EXPECT_TRUE(transport_->BulkOut(0x01, SomeBytes(4), Never()).ok());
}

TEST_F(Libusb, AChangeOfWhichNobodyTellsIsSeen) {
  EXPECT_EQ(Info().path, "1-2");
  const uint64_t before = bus_->generation();
  fake_.Vanish();
  EXPECT_TRUE(bus_->WaitForChange(before, In(10'000)));
  EXPECT_TRUE(bus_->List()->empty());
  const uint64_t gone = bus_->generation();
  EXPECT_FALSE(bus_->WaitForChange(gone, In(1500)));
  fake_.Plug(kAtollUsbId);
  EXPECT_TRUE(bus_->WaitForChange(gone, In(10'000)));
  EXPECT_EQ(Info().path, "1-2");
}

TEST_F(Libusb, ADeviceThatDiesInTheMiddleOfACallIsLost) {
  OpenIt();
  fake_.At(0x01, [](FakeUsbfs::Endpoint& endpoint) { endpoint.room = 1'200'000; });
  std::thread cable([&] {
    EXPECT_TRUE(Soon([&] { return fake_.transfers_in_flight() >= 3; }));
    fake_.Die();
  });
  EXPECT_EQ(transport_->BulkOut(0x01, SomeBytes(8'000'000), Never()).code(),
            StatusCode::kDeviceLost);
  cable.join();
  transport_.reset();
}

// A whole device: the emulated core behind the made-up kernel.

// Packets of what one of the core's queues has to send.
void SendQueue(ByteQueue* queue, FakeUsbfs::Endpoint* endpoint) {
  while (queue->size() > 0) {
    FakeUsbfs::Bytes packet(std::min(queue->size(), kPacketBytes));
    queue->Take(packet);
    endpoint->packets.push_back(std::move(packet));
  }
}

TEST_F(Libusb, AnAtoll1RunsOverIt) {
  auto core = Core::Create({});
  ASSERT_TRUE(core.ok());
  fake_.OnLook([&](FakeUsbfs::Endpoints& endpoints) {
    FakeUsbfs::Bytes& taken = endpoints[kRecordEndpoint].taken;
    do {
      const size_t accepted = (*core)->AcceptBulkOut(taken);
      taken.erase(taken.begin(), taken.begin() + static_cast<ptrdiff_t>(accepted));
    } while ((*core)->Step());
    SendQueue(&(*core)->outputs(), &endpoints[kOutputEndpoint]);
    SendQueue(&(*core)->events(), &endpoints[kEventEndpoint]);
  });
  fake_.OnControl([&](const ControlSetup& setup, std::span<uint8_t> data) {
    return (*core)->Control(setup, data).ok() ? static_cast<int>(data.size()) : -EPIPE;
  });

  // Where processes stand still for seconds, the made-up kernel is too late with an answer.
  constexpr int kAttempts = 10;
  for (const char* name : {"auto", "usb", "usb:0", "usb:1-2"}) {
    auto device = OpenDevice({.device = name, .usb = bus_});
    for (int i = 1; i < kAttempts && (!device.ok() || (*device)->info().name != "usb:1-2"); ++i) {
      device = OpenDevice({.device = name, .usb = bus_});
    }
    ASSERT_TRUE(device.ok()) << device.status().message();
    ASSERT_EQ((*device)->info().name, "usb:1-2");
    const auto id = (*device)->Load(std::make_shared<Executable>(MakeTableExecutable({})));
    ASSERT_TRUE(id.ok());
    for (int i = 0; i < 20; ++i) {
      const std::vector<uint8_t> input = {0, 1, 2, 255};
      std::vector<uint8_t> output(4);
      const Request request{.executable = *id, .inputs = {input}, .outputs = {output}};
      const Status status = (*device)->Wait(*(*device)->Submit(request), nullptr);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(output, (std::vector<uint8_t>{0x10, 0x11, 0x12, 0x0F}));
    }
  }
}

}  // namespace
}  // namespace atollrt
