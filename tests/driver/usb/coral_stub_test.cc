// SPDX-License-Identifier: Apache-2.0
//
// The system's USB bus over a stand-in for libusb with a Coral on its bus (tools/coral-stub of the
// reference data). CMake puts the stand-in before the real library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <libusb.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "driver/open_device.h"
#include "driver/usb/usb_bus.h"
#include "runtime/base/bytes.h"
#include "tests/support/absent.h"

namespace atollrt {
namespace {

using ::testing::HasSubstr;

Deadline In(int ms) { return Clock::now() + std::chrono::milliseconds(ms); }

// One device per process: the stand-in reads its environment once.
class CoralStub : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("FAKEUSB_MODE", "app", 1);
    setenv("FAKEUSB_LOG", "/dev/null", 1);
    if (std::strcmp(libusb_get_version()->describe, "fakeusb") != 0) {
      ReportAbsent("reference data: tools/coral-stub, in place of libusb");
      GTEST_SKIP();
    }
    bus_ = SystemUsbBus();
    auto devices = bus_->List();
    ASSERT_TRUE(devices.ok()) << devices.status().message();
    ASSERT_EQ(devices->size(), 1u);  // without the root hub
    info_ = devices->front();
  }

  Result<uint32_t> ReadRegister(UsbTransport* transport, uint32_t address) {
    uint8_t bytes[4] = {};
    ATOLL_RETURN_IF_ERROR(transport->Control({.request_type = 0xC0,
                                              .request = 1,
                                              .value = static_cast<uint16_t>(address & 0xFFFF),
                                              .index = static_cast<uint16_t>(address >> 16)},
                                             bytes, In(1000)));
    return LoadLittleEndian<uint32_t>(bytes);
  }

  std::shared_ptr<UsbBus> bus_;
  UsbDeviceInfo info_;
};

TEST_F(CoralStub, IsListedByItsPort) {
  EXPECT_EQ(info_.id, kCoralUsbId);
  EXPECT_EQ(info_.path, "2-3");
  EXPECT_EQ(info_.speed, UsbSpeed::kSuper);
  EXPECT_EQ(SystemUsbBus(), bus_);
  EXPECT_EQ(ListDevices(bus_).front().name, "usb:2-3");
  EXPECT_THAT(ListDevices(bus_).front().description,
              HasSubstr("Coral USB Accelerator, USB 3, 5 Gbit/s"));
}

TEST_F(CoralStub, RegistersCanBeReadAndWritten) {
  auto transport = bus_->Open(info_, 0);
  ASSERT_TRUE(transport.ok()) << transport.status().message();
  const auto id = ReadRegister(transport->get(), 0x1a000);
  ASSERT_TRUE(id.ok()) << id.status().message();
  EXPECT_EQ(*id, 0x0219089au);

  uint8_t bytes[8] = {0x34, 0x12};
  const ControlSetup write{.request_type = 0x40, .request = 0, .value = 0xa000, .index = 4};
  ASSERT_TRUE((*transport)->Control(write, bytes, In(1000)).ok());
  uint8_t back[8] = {};
  const ControlSetup read{.request_type = 0xC0, .request = 0, .value = 0xa000, .index = 4};
  ASSERT_TRUE((*transport)->Control(read, back, In(1000)).ok());
  EXPECT_EQ(std::memcmp(bytes, back, sizeof(bytes)), 0);

  // A request that it does not know stalls.
  const ControlSetup unknown{.request_type = 0x80, .request = 6, .value = 0x0900, .index = 0};
  EXPECT_EQ((*transport)->Control(unknown, back, In(1000)).code(), StatusCode::kInvalidArgument);
  // And the interface is taken as long as it is open.
  EXPECT_EQ(bus_->Open(info_, 0).code(), StatusCode::kDeviceBusy);
  transport->reset();
  EXPECT_TRUE(bus_->Open(info_, 0).ok());
}

TEST_F(CoralStub, ReadsOfNothingTimeOutAndCanBeCancelled) {
  auto transport = bus_->Open(info_, 0);
  ASSERT_TRUE(transport.ok());
  std::vector<uint8_t> data(100'000);
  EXPECT_EQ((*transport)->BulkIn(0x81, data, In(30)).code(), StatusCode::kTimeout);
  EXPECT_EQ((*transport)->BulkIn(0x81, data, In(-30)).code(), StatusCode::kTimeout);
  std::thread canceller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    (*transport)->Cancel();
  });
  EXPECT_EQ((*transport)->InterruptIn(0x83, std::span(data).first(4), In(60'000)).code(),
            StatusCode::kCancelled);
  canceller.join();
  EXPECT_EQ((*transport)->BulkOut(0x01, data, In(1000)).code(), StatusCode::kCancelled);
  ASSERT_TRUE((*transport)->Reset(In(1000)).ok());
  EXPECT_EQ((*transport)->BulkIn(0x81, data, In(30)).code(), StatusCode::kTimeout);
  EXPECT_EQ((*transport)->BulkIn(0x85, data, In(30)).code(), StatusCode::kInvalidArgument);
}

TEST_F(CoralStub, TheDeviceThatDoesNotTakeDataTimesOut) {
  auto transport = bus_->Open(info_, 0);
  ASSERT_TRUE(transport.ok());
  // A payload without a header makes it hang.
  std::vector<uint8_t> data(6 << 20);
  const Status status = (*transport)->BulkOut(0x01, data, In(50));
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  EXPECT_THAT(status.message(), HasSubstr("took 0 of 6291456 bytes"));
}

}  // namespace
}  // namespace atollrt
