// SPDX-License-Identifier: Apache-2.0
#include "driver/vfio/vfio_bus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <thread>

#include "tests/support/fake_vfio.h"

namespace atollrt {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class VfioBusTest : public ::testing::Test {
 protected:
  static PcieDeviceInfo Info(const std::string& address) {
    return {.id = kAtollPcieId, .address = address};
  }
  Result<std::unique_ptr<PcieFunction>> Open(const std::string& address = "0000:01:00.0") {
    return bus_.Open(Info(address));
  }
  // What Open says, which fails.
  std::string WhyNot(StatusCode code, const std::string& address = "0000:01:00.0") {
    const auto function = Open(address);
    EXPECT_EQ(function.code(), code) << function.status().message();
    EXPECT_EQ(kernel_.num_files(), 0u);
    return function.status().message();
  }
  void GiveNodes() {
    root_.Write("/sys/bus/pci/devices/0000:01:00.0/vfio-dev/vfio3/dev", "511:3\n");
  }

  FakeRoot root_;
  FakeVfio kernel_;
  VfioBus bus_{{.root = root_.path(), .calls = &kernel_}};
};

TEST_F(VfioBusTest, ListsWhatItKnows) {
  EXPECT_THAT(*bus_.List(), IsEmpty());
  root_.Plug({.address = "0000:05:00.0", .id = {0x8086, 0xa701}});
  root_.Plug({.address = "0000:02:00.0", .id = kCoralPcieId, .driver = "apex"});
  root_.Write("/sys/bus/pci/devices/0000:02:00.0/current_link_width", "1\n");
  root_.Write("/sys/bus/pci/devices/0000:02:00.0/current_link_speed", "5.0 GT/s PCIe\n");
  root_.Plug({.address = "0000:01:00.0", .driver = ""});
  root_.Write("/sys/bus/pci/devices/0000:01:00.0/current_link_width", "63\n");
  root_.Write("/sys/bus/pci/devices/0000:01:00.0/current_link_speed", "Unknown\n");
  EXPECT_THAT(
      *bus_.List(),
      ElementsAre(PcieDeviceInfo{.id = kAtollPcieId, .address = "0000:01:00.0", .driver = ""},
                  PcieDeviceInfo{.id = kCoralPcieId,
                                 .address = "0000:02:00.0",
                                 .driver = "apex",
                                 .link_lanes = 1,
                                 .link_generation = 2}));
}

TEST_F(VfioBusTest, FilesOfAnyContentAreNoMatter) {
  root_.Plug({});
  for (const char* file : {"current_link_width", "current_link_speed", "vendor", "device"}) {
    for (const std::string& text : {std::string(), std::string("x\n"), std::string(5000, '9'),
                                    std::string("-1\n"), std::string("\0\xff\n", 3)}) {
      root_.Write(std::string("/sys/bus/pci/devices/0000:01:00.0/") + file, text);
      EXPECT_TRUE(bus_.List().ok());
    }
  }
}

TEST_F(VfioBusTest, OpensByTheNodeOfTheGroup) {
  root_.Plug({});
  auto function = Open();
  ASSERT_TRUE(function.ok()) << function.status().message();
  EXPECT_THAT(kernel_.TakeLog(), ElementsAre("open /dev/vfio/7", "open /dev/vfio/vfio",
                                             "get 0000:01:00.0", "bus master on"));
  EXPECT_EQ(kernel_.command(), 0x406);  // memory, bus master, no INTx
  *function = nullptr;
  EXPECT_THAT(kernel_.TakeLog(),
              ElementsAre("bus master off", "close device", "close group", "close container"));
}

TEST_F(VfioBusTest, OpensByTheNodeOfTheFunction) {
  root_.Plug({});
  GiveNodes();
  auto function = Open();
  ASSERT_TRUE(function.ok()) << function.status().message();
  EXPECT_THAT(kernel_.TakeLog(), ElementsAre("open /dev/iommu", "open /dev/vfio/devices/vfio3",
                                             "attach to 1", "bus master on"));
  *function = nullptr;
  EXPECT_THAT(kernel_.TakeLog(),
              ElementsAre("bus master off", "close device", "destroy 1", "close iommu"));
}

TEST_F(VfioBusTest, FallsBackFromTheFunctionsNodeToTheGroups) {
  root_.Plug({});
  GiveNodes();
  kernel_.open_errors["/dev/iommu"] = EACCES;
  EXPECT_TRUE(Open().ok());
  EXPECT_THAT(kernel_.TakeLog(), testing::Contains("open /dev/vfio/7"));
  kernel_.open_errors = {{"/dev/vfio/devices/vfio3", ENOENT}};
  EXPECT_TRUE(Open().ok());
  kernel_.open_errors.clear();
  kernel_.failures["bind"] = {EINVAL};
  EXPECT_TRUE(Open().ok());
  kernel_.failures["attach"] = {EINVAL, EINVAL};
  EXPECT_TRUE(Open().ok());
  EXPECT_EQ(kernel_.num_files(), 0u);
}

TEST_F(VfioBusTest, AKernelWithoutNodesOfGroupsSaysWhatIsWrongWithTheOther) {
  root_.Plug({});
  GiveNodes();
  kernel_.has_groups = false;
  kernel_.open_errors["/dev/vfio/devices/vfio3"] = EACCES;
  EXPECT_THAT(WhyNot(StatusCode::kPermissionDenied), HasSubstr("/dev/vfio/devices/vfio3"));
  kernel_.open_errors.clear();
  EXPECT_TRUE(Open().ok());
}

TEST_F(VfioBusTest, FunctionsOfAProcessShareTheContainerAndTheirGroup) {
  root_.Plug({});
  root_.Plug({.address = "0000:01:00.1"});
  root_.Plug({.address = "0000:02:00.0", .group = "8"});
  kernel_.viable = {"7", "8"};
  auto a = Open(), b = Open("0000:01:00.1"), c = Open("0000:02:00.0");
  ASSERT_TRUE(a.ok() && b.ok() && c.ok()) << b.status().message() << c.status().message();
  EXPECT_THAT(kernel_.TakeLog(),
              ElementsAre("open /dev/vfio/7", "open /dev/vfio/vfio", "get 0000:01:00.0",
                          "bus master on", "get 0000:01:00.1", "bus master on", "open /dev/vfio/8",
                          "get 0000:02:00.0", "bus master on"));
  *a = nullptr;
  EXPECT_THAT(kernel_.TakeLog(), ElementsAre("bus master off", "close device"));
  *b = nullptr;
  EXPECT_THAT(kernel_.TakeLog(), ElementsAre("bus master off", "close device", "close group"));
  *c = nullptr;
  EXPECT_THAT(kernel_.TakeLog(),
              ElementsAre("bus master off", "close device", "close group", "close container"));
}

TEST_F(VfioBusTest, AGroupThatTheContainerDoesNotTakeGetsOneOfItsOwn) {
  root_.Plug({});
  root_.Plug({.address = "0000:02:00.0", .group = "8"});
  kernel_.viable = {"7", "8"};
  auto a = Open();
  ASSERT_TRUE(a.ok());
  kernel_.failures["set_container"] = {EINVAL};
  auto b = Open("0000:02:00.0");
  ASSERT_TRUE(b.ok()) << b.status().message();
  EXPECT_EQ(kernel_.num_files(), 6u);
}

TEST_F(VfioBusTest, FunctionsOfOneGroupShareTheSpaceOfIommufd) {
  root_.Plug({});
  root_.Plug({.address = "0000:01:00.1"});
  root_.Plug({.address = "0000:02:00.0", .group = "8"});
  for (const char* address : {"0000:01:00.0", "0000:01:00.1", "0000:02:00.0"}) {
    root_.Write(std::string("/sys/bus/pci/devices/") + address + "/vfio-dev/vfio0/dev", "");
  }
  auto a = Open(), b = Open("0000:01:00.1"), c = Open("0000:02:00.0");
  ASSERT_TRUE(a.ok() && b.ok() && c.ok());
  EXPECT_THAT(kernel_.TakeLog(),
              AllOf(testing::Contains("attach to 1").Times(2), testing::Contains("attach to 2"),
                    testing::Contains("open /dev/iommu").Times(1)));
}

TEST_F(VfioBusTest, AFunctionIsOpenedOnce) {
  root_.Plug({});
  auto function = Open();
  ASSERT_TRUE(function.ok());
  EXPECT_EQ(Open().code(), StatusCode::kDeviceBusy);
  *function = nullptr;
  EXPECT_TRUE(Open().ok());
}

TEST_F(VfioBusTest, NoIommu) {
  root_.Plug({.group = ""});
  EXPECT_THAT(WhyNot(StatusCode::kUnsupported),
              AllOf(HasSubstr("no IOMMU"), HasSubstr("intel_iommu=on"), HasSubstr("BIOS")));
}

TEST_F(VfioBusTest, APretendedIommuIsNone) {
  root_.Plug({.group = ""});
  root_.Write("/sys/kernel/iommu_groups/7/name", "vfio-noiommu\n");
  root_.Link("/sys/bus/pci/devices/0000:01:00.0/iommu_group",
             root_.path() + "/sys/kernel/iommu_groups/7");
  EXPECT_THAT(WhyNot(StatusCode::kUnsupported), HasSubstr("no IOMMU"));
}

TEST_F(VfioBusTest, AnotherDriver) {
  root_.Plug({.driver = "apex"});
  EXPECT_THAT(
      WhyNot(StatusCode::kUnsupported),
      AllOf(HasSubstr("bound to the driver apex instead of vfio-pci"), HasSubstr("doctor --fix"),
            HasSubstr("driverctl set-override 0000:01:00.0 vfio-pci"),
            HasSubstr("echo 0000:01:00.0 > /sys/bus/pci/devices/0000:01:00.0/driver/unbind")));
  root_.Bind("0000:01:00.0", "");
  EXPECT_THAT(
      WhyNot(StatusCode::kUnsupported),
      AllOf(HasSubstr("bound to no driver"), HasSubstr("drivers_probe"), Not(HasSubstr("unbind"))));
}

TEST_F(VfioBusTest, AGroupThatOthersUseNamesThem) {
  kernel_.viable = {};
  root_.Plug({});
  root_.Plug({.address = "0000:01:00.1", .driver = "snd_hda_intel"});
  root_.Plug({.address = "0000:00:1c.0", .id = {0x8086, 1}, .driver = "pcieport"});
  root_.Plug({.address = "0000:01:00.2", .driver = ""});
  EXPECT_THAT(WhyNot(StatusCode::kUnsupported),
              AllOf(HasSubstr("shares IOMMU group 7"),
                    HasSubstr("that the system uses: 0000:01:00.1 (snd_hda_intel);")));
  // Likewise by the other way, which tells in its own.
  GiveNodes();
  kernel_.has_groups = false;
  kernel_.failures["bind"] = {EBUSY};
  EXPECT_THAT(WhyNot(StatusCode::kUnsupported), HasSubstr("0000:01:00.1 (snd_hda_intel);"));
}

TEST_F(VfioBusTest, NoPermission) {
  root_.Plug({});
  for (const int error : {EACCES, EPERM}) {
    kernel_.open_errors["/dev/vfio/7"] = error;
    EXPECT_THAT(WhyNot(StatusCode::kPermissionDenied),
                AllOf(HasSubstr("61-atoll-pcie.rules"), HasSubstr("usermod -aG plugdev"),
                      HasSubstr("sudo chown $USER /dev/vfio/7")));
  }
}

TEST_F(VfioBusTest, BusyAndAbsentNodes) {
  root_.Plug({});
  kernel_.open_errors["/dev/vfio/7"] = EBUSY;
  EXPECT_THAT(WhyNot(StatusCode::kDeviceBusy), HasSubstr("fuser -v /dev/vfio/7"));
  kernel_.open_errors["/dev/vfio/7"] = ENOENT;
  EXPECT_THAT(WhyNot(StatusCode::kNotFound),
              AllOf(HasSubstr("modprobe vfio-pci"), HasSubstr("--device /dev/vfio")));
  kernel_.open_errors = {{"/dev/vfio/vfio", ENODEV}};
  EXPECT_THAT(WhyNot(StatusCode::kNotFound), HasSubstr("/dev/vfio/vfio"));
  kernel_.open_errors.clear();
  kernel_.failures["get_device"] = {EBUSY};
  EXPECT_THAT(WhyNot(StatusCode::kDeviceBusy), HasSubstr("in use"));
  kernel_.failures["get_device"] = {ENODEV};
  EXPECT_THAT(WhyNot(StatusCode::kDeviceLost), HasSubstr("cannot be opened"));
  kernel_.failures["get_info"] = {EIO};
  EXPECT_THAT(WhyNot(StatusCode::kDeviceLost), HasSubstr("does not answer"));
}

TEST_F(VfioBusTest, InterruptsThatAreNotRemapped) {
  root_.Plug({});
  kernel_.failures["set_iommu"] = {EPERM};
  EXPECT_THAT(WhyNot(StatusCode::kUnsupported), HasSubstr("allow_unsafe_interrupts"));
  kernel_.failures["set_iommu"] = {ENODEV};
  EXPECT_THAT(WhyNot(StatusCode::kUnsupported), HasSubstr("VFIO_SET_IOMMU"));
}

TEST_F(VfioBusTest, WhatIsGoneCannotBeOpened) {
  EXPECT_THAT(WhyNot(StatusCode::kDeviceLost), HasSubstr("no longer at pci:0000:01:00.0"));
  root_.Plug({.id = kCoralPcieId});
  EXPECT_THAT(WhyNot(StatusCode::kDeviceLost), HasSubstr("1209:a701 is no longer"));
}

TEST_F(VfioBusTest, TheGenerationChangesWithWhatIsThere) {
  const uint64_t none = bus_.generation();
  EXPECT_FALSE(bus_.WaitForChange(none, In(1)));
  root_.Plug({.driver = ""});
  EXPECT_TRUE(bus_.WaitForChange(none, In(60'000)));
  const uint64_t one = bus_.generation();
  std::thread binder([&] { root_.Bind("0000:01:00.0", "vfio-pci"); });
  EXPECT_TRUE(bus_.WaitForChange(one, In(60'000)));
  binder.join();
  const uint64_t bound = bus_.generation();
  // A link that saves power is no news.
  root_.Write("/sys/bus/pci/devices/0000:01:00.0/current_link_speed", "2.5 GT/s PCIe\n");
  EXPECT_FALSE(bus_.WaitForChange(bound, In(600)));
  root_.Unplug("0000:01:00.0");
  EXPECT_TRUE(bus_.WaitForChange(bound, In(60'000)));
}

}  // namespace
}  // namespace atollrt
