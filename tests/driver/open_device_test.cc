// SPDX-License-Identifier: Apache-2.0
#include "driver/open_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <tuple>
#include <utility>

#include "driver/device/activity.h"
#include "driver/device_name.h"
#include "driver/emulator/emulated_transport.h"
#include "driver/open_emulator.h"
#include "driver/pcie/pcie_bus.h"
#include "driver/profiles/device_profile.h"
#include "driver/usb/usb_bus.h"
#include "tests/support/rng.h"
#include "tests/support/test_executables.h"

namespace atollrt {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A bus with these devices, of which `openable` is an emulated Atoll-1; the others are busy.
class ListedBus : public UsbBus {
 public:
  explicit ListedBus(std::vector<UsbDeviceInfo> devices, std::string openable = "")
      : devices_(std::move(devices)), openable_(std::move(openable)) {}
  Result<std::vector<UsbDeviceInfo>> List() override { return devices_; }
  Result<std::unique_ptr<UsbTransport>> Open(const UsbDeviceInfo& device,
                                             uint8_t interface_number) override {
    if (device.path != openable_) {
      return Status(StatusCode::kDeviceBusy, "process 7 has it");
    }
    EXPECT_EQ(interface_number, 0);
    auto transport = EmulatedTransport::Create({});
    if (!transport.ok()) return transport.status();
    return std::unique_ptr<UsbTransport>(*std::move(transport));
  }
  uint64_t generation() override { return 0; }
  bool WaitForChange(uint64_t, Deadline) override { return false; }

 private:
  std::vector<UsbDeviceInfo> devices_;
  std::string openable_;
};

const std::vector<UsbDeviceInfo> kSomeDevices = {
    {.id = {0x046d, 0xc077}, .path = "1-1", .speed = UsbSpeed::kLow},  // a mouse
    {.id = kAtollUsbId, .path = "1-2.4", .speed = UsbSpeed::kHigh},
    {.id = kCoralUsbId, .path = "2-1", .speed = UsbSpeed::kSuper},
    {.id = kAtollUsbId, .path = "2-10", .speed = UsbSpeed::kSuper},
};

TEST(OpenDevice, DevicesOnUsbAreOpenedByNumberAndByPort) {
  const auto bus = std::make_shared<ListedBus>(kSomeDevices, "2-10");
  for (const char* name : {"usb:2", "usb:2-10"}) {
    const auto device = OpenDevice({.device = name, .usb = bus});
    ASSERT_TRUE(device.ok()) << device.status().message();
    EXPECT_EQ((*device)->info().name, "usb:2-10");
  }
  for (const char* name : {"usb", "usb:0", "usb:1-2.4"}) {
    const auto device = OpenDevice({.device = name, .usb = bus});
    EXPECT_EQ(device.code(), StatusCode::kDeviceBusy) << name;
    EXPECT_THAT(device.status().message(), HasSubstr("device usb:1-2.4: process 7 has it"));
  }
  // A Coral, which this bus does not let anyone open.
  EXPECT_EQ(OpenDevice({.device = "usb:1", .usb = bus}).code(), StatusCode::kDeviceBusy);
  for (const char* name : {"usb:3", "usb:1-1", "usb:2-1.1"}) {
    const auto device = OpenDevice({.device = name, .usb = bus});
    EXPECT_EQ(device.code(), StatusCode::kNotFound) << name;
    EXPECT_THAT(device.status().message(), HasSubstr("there is usb:1-2.4, usb:2-1, usb:2-10"));
  }
}

TEST(OpenDevice, AutoTakesARealDeviceOrSaysWhyNot) {
  auto device = OpenDevice({.usb = std::make_shared<ListedBus>(kSomeDevices, "2-10")});
  ASSERT_TRUE(device.ok()) << device.status().message();
  EXPECT_EQ((*device)->info().name, "usb:2-10");
  EXPECT_EQ((*device)->info().note, "");
  *device = nullptr;  // it would be named as the owner

  device = OpenDevice({.usb = std::make_shared<ListedBus>(kSomeDevices)});
  ASSERT_TRUE(device.ok()) << device.status().message();
  EXPECT_EQ((*device)->info().name, "emu");
  EXPECT_EQ((*device)->info().note,
            "device usb:1-2.4: process 7 has it; 'atoll broker --device usb:1-2.4' shares it among "
            "programs; device usb:2-10: process 7 has it; 'atoll broker --device usb:2-10' shares "
            "it among programs");
}

TEST(OpenDevice, ABusyDeviceNamesItsOwner) {
  std::string directory = testing::TempDir() + "owner_XXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  setenv("ATOLL_ACTIVITY", directory.c_str(), 1);
  DeviceInfo info;
  info.name = "usb:1-2.4";
  auto publisher = ActivityPublisher::Create(directory, info);
  ASSERT_NE(publisher, nullptr);
  const auto bus = std::make_shared<ListedBus>(kSomeDevices);
  const auto open = [&](const char* name) {
    return OpenDevice({.device = name, .usb = bus}).status().message();
  };
  const std::string owner = "(process " + std::to_string(getpid()) + ": ";
  EXPECT_THAT(open("usb:1-2.4"), HasSubstr("process 7 has it " + owner));
  EXPECT_THAT(open("usb:1-2.4"), HasSubstr("'atoll broker --device usb:1-2.4' shares it"));
  EXPECT_EQ(open("usb:2-10").find(owner), std::string::npos);
  EXPECT_THAT(open("usb:2-1"), HasSubstr("'atoll broker --device usb:2-1' shares it"));  // a Coral
  unsetenv("ATOLL_ACTIVITY");
  publisher = nullptr;
  rmdir(directory.c_str());
}

// A bus with these functions, which somebody else has.
class ListedPcie : public PcieBus {
 public:
  explicit ListedPcie(std::vector<PcieDeviceInfo> devices) : devices_(std::move(devices)) {}
  Result<std::vector<PcieDeviceInfo>> List() override { return devices_; }
  Result<std::unique_ptr<PcieFunction>> Open(const PcieDeviceInfo& device) override {
    return Status(StatusCode::kDeviceBusy, device.address + " is somebody else's");
  }
  uint64_t generation() override { return 0; }
  bool WaitForChange(uint64_t, Deadline) override { return false; }

 private:
  std::vector<PcieDeviceInfo> devices_;
};

const std::vector<PcieDeviceInfo> kSomeFunctions = {
    {.id = kCoralPcieId,
     .address = "0000:01:00.0",
     .driver = "vfio-pci",
     .link_lanes = 1,
     .link_generation = 2},
    {.id = kAtollPcieId, .address = "0000:02:00.0", .driver = ""},
    {.id = kAtollPcieId, .address = "0001:af:00.0", .driver = "vfio-pci"},
};

TEST(OpenDevice, DevicesOnPcieAreOpenedByNumberAndByAddress) {
  const auto bus = std::make_shared<ListedPcie>(kSomeFunctions);
  const std::pair<const char*, const char*> right[] = {
      {"pci", "0000:01:00.0"},
      {"pci:0", "0000:01:00.0"},
      {"pci:01:00.0", "0000:01:00.0"},
      {"pci:1", "0000:02:00.0"},
      {"pci:02:00.0", "0000:02:00.0"},
      {"pci:2", "0001:af:00.0"},
      {"pci:0001:AF:00.0", "0001:af:00.0"},
  };
  for (const auto& [name, address] : right) {
    const auto device = OpenDevice({.device = name, .pcie = bus});
    EXPECT_THAT(device.status().message(), HasSubstr(std::string("device pci:") + address + ": "));
  }
  for (const char* name : {"pci:3", "pci:af:00.0", "pci:0000:01:00.1"}) {
    const auto device = OpenDevice({.device = name, .pcie = bus});
    EXPECT_EQ(device.code(), StatusCode::kNotFound) << name;
    EXPECT_THAT(device.status().message(),
                HasSubstr("there is pci:0000:01:00.0, pci:0000:02:00.0, pci:0001:af:00.0;"));
  }
}

TEST(OpenDevice, AutoNeverTakesACoral) {
  const auto bus = std::make_shared<ListedPcie>(kSomeFunctions);
  const auto device = OpenDevice({.pcie = bus});
  ASSERT_TRUE(device.ok()) << device.status().message();
  EXPECT_EQ((*device)->info().name, "emu");
  EXPECT_THAT((*device)->info().note, HasSubstr("device pci:0000:02:00.0: "));
  EXPECT_THAT((*device)->info().note, HasSubstr("; device pci:0001:af:00.0: "));
  EXPECT_THAT((*device)->info().note, ::testing::Not(HasSubstr("0000:01:00.0")));
}

TEST(ListDevices, ThoseOnPcieFollowThoseOnUsb) {
  const auto devices = ListDevices(std::make_shared<ListedBus>(std::vector<UsbDeviceInfo>()),
                                   std::make_shared<ListedPcie>(kSomeFunctions));
  ASSERT_GT(devices.size(), 5u);
  EXPECT_EQ(devices[0].name, "usb");
  EXPECT_EQ(devices[1].name, "pci:0000:01:00.0");
  EXPECT_EQ(devices[1].description, "Coral Accelerator (PCIe), gen 2 x1");
  EXPECT_TRUE(devices[1].available);
  EXPECT_FALSE(devices[1].is_default);
  EXPECT_EQ(devices[2].name, "pci:0000:02:00.0");
  EXPECT_EQ(devices[2].description,
            "Atoll-1, PCIe, without a driver; 'atoll doctor' says what to do");
  EXPECT_FALSE(devices[2].available);
  EXPECT_FALSE(devices[2].is_default);
  EXPECT_EQ(devices[3].name, "pci:0001:af:00.0");
  EXPECT_TRUE(devices[3].is_default);
  EXPECT_EQ(devices[4].name, "emu");
  EXPECT_FALSE(devices[4].is_default);
}

TEST(ListDevices, RealOnesComeFirst) {
  const auto devices = ListDevices(std::make_shared<ListedBus>(kSomeDevices));
  ASSERT_GT(devices.size(), 4u);
  EXPECT_EQ(devices[0].name, "usb:1-2.4");
  EXPECT_EQ(devices[0].description, "Atoll-1, USB 2, 480 Mbit/s");
  EXPECT_TRUE(devices[0].is_default);
  EXPECT_EQ(devices[1].name, "usb:2-1");
  EXPECT_EQ(devices[1].description, "Coral USB Accelerator, USB 3, 5 Gbit/s");
  EXPECT_TRUE(devices[1].available);
  EXPECT_EQ(devices[2].name, "usb:2-10");
  EXPECT_EQ(devices[3].name, "emu");
  for (size_t i = 1; i < devices.size(); ++i) EXPECT_FALSE(devices[i].is_default);
}

TEST(OpenDevice, EveryWayOfBeingWrongHasASentence) {
  const char* const kAllNames = "the names are auto, cpu, emu, emu:PROFILE, usb, usb:N, ";
  const std::pair<const char*, const char*> wrong[] = {
      {"", "empty name"},
      {"  ", "empty name"},
      {"toaster", kAllNames},
      {"zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz", kAllNames},
      // What is only misspelt.
      {"gpu", "did you mean 'cpu'?"},
      {"CPU", "did you mean 'cpu'?"},
      {"cpu:0", "did you mean 'cpu'?"},
      {"EMU", "did you mean 'emu'?"},
      {"emu ", "did you mean 'emu'?"},
      {"emulator", "did you mean 'emu'?"},
      {"simulator", "did you mean 'emu'?"},
      {"emu+", "did you mean 'emu'?"},
      {"emu+step", "did you mean 'emu+stepped'?"},
      {"automatic", kAllNames},
      {"Auto", "did you mean 'auto'?"},
      {"USB", "did you mean 'usb'?"},
      {"usb0", "did you mean 'usb:0'?"},
      {"0", "did you mean 'usb:0'?"},
      {":1", "did you mean 'usb:1'?"},
      {"2-3.1", "did you mean 'usb:2-3.1'?"},
      {"usb2", "did you mean 'emu:usb2'?"},
      {"32x32", "did you mean 'emu:32x32'?"},
      {"emu-usb2", "did you mean 'emu:usb2'?"},
      {"own.json", "did you mean 'emu:own.json'?"},
      // What begins like a name.
      {"usb:", "behind 'usb:' belongs a number"},
      {"usb:x", "behind 'usb:' belongs a number"},
      {"usb:1x", "behind 'usb:' belongs a number"},
      {"usb:-", "behind 'usb:' belongs a number"},
      {"usb:1-", "behind 'usb:' belongs a number"},
      {"usb:1-2.", "behind 'usb:' belongs a number"},
      {"usb:1-2..3", "behind 'usb:' belongs a number"},
      {"usb:1-x", "behind 'usb:' belongs a number"},
      {"pci:", "behind 'pci:' belongs a number, counted from 0, or an address"},
      {"pci:x", "behind 'pci:' belongs a number"},
      {"pci:-1", "behind 'pci:' belongs a number"},
      {"pci:1.0", "behind 'pci:' belongs a number"},
      {"pci:01:00", "did you mean 'pci:01:00.0'?"},
      {"pci:0000:01:00", "did you mean 'pci:0000:01:00.0'?"},
      {"pci:01:20.0", "device (00 to 1f), function (0 to 7)"},
      {"pci:01:00.8", "device (00 to 1f), function (0 to 7)"},
      {"pci:1:0.0", "bus (two digits)"},
      {"pci:zz:00.0", "in hexadecimal digits"},
      {"pci:0000:0000:01:00.0", "in hexadecimal digits"},
      {"pci:000000001:01:00.0", "in hexadecimal digits"},
      {"pci: 01:00.0", "in hexadecimal digits"},
      {"PCI", "did you mean 'pci'?"},
      {"pcie", "did you mean 'pci'?"},
      {"pci0", "did you mean 'pci:0'?"},
      {"pcie:1", "did you mean 'pci:1'?"},
      {"PCI:01:00.0", "did you mean 'pci:01:00.0'?"},
      {"0000:01:00.0", "did you mean 'pci:0000:01:00.0'?"},
      {"01:00.0", "did you mean 'pci:0000:01:00.0'?"},
      {"/sys/bus/pci/devices/0000:02:00.0", "did you mean 'pci:0000:02:00.0'?"},
      {"/dev/vfio/7", "a node of VFIO belongs to a group"},
      {"/dev/vfio/devices/vfio0", "a node of VFIO belongs to a group"},
      {"pci+stepped", "only 'emu' can be +stepped"},
      {"emu:", "a profile belongs behind 'emu:'"},
      {"emu:+stepped", "a profile belongs behind 'emu:'"},
      {"emu+stepped+stepped", "did you mean 'emu+stepped'?"},
      {"emu:usb2+stepped+stepped", "+stepped belongs there once"},
      {"usb+stepped", "only 'emu' can be +stepped"},
      {"cpu+stepped", "only 'emu' can be +stepped"},
      {"replay:", "the file of a recorded session"},
      // Lists.
      {",", "a device on both of its sides"},
      {"emu,", "a device on both of its sides"},
      {"emu,,emu", "a device on both of its sides"},
      {"cpu,emu", "the CPU cannot share requests"},
      {"emu,cpu", "the CPU cannot share requests"},
      {"emu,toaster", "'toaster' is no device"},
      // What other programs call a Coral, and what is something else.
      {"coral", "a Coral USB Accelerator is 'usb'"},
      {"Coral", "a Coral USB Accelerator is 'usb'"},
      {"edgetpu", "a Coral USB Accelerator is 'usb'"},
      {"edgetpu:0", "a Coral USB Accelerator is 'usb'"},
      {"tpu", "a Coral USB Accelerator is 'usb'"},
      {"tpu", "one on PCIe 'pci'"},
      {"/dev/apex", "did you mean '/dev/apex_0'?"},
      {"/dev/apex_", "did you mean '/dev/apex_0'?"},
      {"/dev/apex1", "did you mean '/dev/apex_1'?"},
      {"/dev/apex_x", "did you mean '/dev/apex_0'?"},
      {"apex_0", "did you mean '/dev/apex_0'?"},
      {"apex:1", "did you mean '/dev/apex_1'?"},
      {"Apex", "did you mean '/dev/apex_0'?"},
      {"/dev/bus/usb/002/005", "is a node"},
      {"/dev/video0", "is a camera"},
      // Not a device, though a name of one place to compute.
      {"cpu", "no device to open"},
  };
  for (const auto& [name, sentence] : wrong) {
    const auto device = OpenDevice({.device = name});
    EXPECT_EQ(device.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(device.status().message(), HasSubstr(sentence)) << name;
  }
  EXPECT_EQ(OpenDevice({.device = "emu", .threads = -1}).code(), StatusCode::kInvalidArgument);
}

TEST(ParseDeviceName, KnowsEveryForm) {
  using Kind = DeviceName::Kind;
  const std::tuple<const char*, Kind, const char*, bool> right[] = {
      {"auto", Kind::kAuto, "", false},
      {"cpu", Kind::kCpu, "", false},
      {"emu", Kind::kEmulator, "", false},
      {"emu+stepped", Kind::kEmulator, "", true},
      {"emu:usb2", Kind::kEmulator, "usb2", false},
      {"emu:./own.json+stepped", Kind::kEmulator, "./own.json", true},
      {"usb", Kind::kUsb, "", false},
      {"usb:12", Kind::kUsb, "12", false},
      {"usb:2-3.1", Kind::kUsb, "2-3.1", false},
      {"pci", Kind::kPcie, "", false},
      {"pci:0", Kind::kPcie, "0", false},
      {"pci:0000:01:00.0", Kind::kPcie, "0000:01:00.0", false},
      {"pci:AF:1f.7", Kind::kPcie, "AF:1f.7", false},
      {"pci:10000:e1:00.0", Kind::kPcie, "10000:e1:00.0", false},
      {"/dev/apex_0", Kind::kApex, "/dev/apex_0", false},
      {"/dev/apex_12", Kind::kApex, "/dev/apex_12", false},
      {"replay:a,b.pcapng", Kind::kReplay, "a,b.pcapng", false},
  };
  for (const auto& [text, kind, which, stepped] : right) {
    const auto name = ParseDeviceName(text);
    ASSERT_TRUE(name.ok()) << name.status().message();
    EXPECT_EQ(name->kind, kind) << text;
    EXPECT_EQ(name->which, which) << text;
    EXPECT_EQ(name->stepped, stepped) << text;
    EXPECT_TRUE(name->members.empty()) << text;
  }
  const auto group = ParseDeviceName("emu,emu:usb2,emu");
  ASSERT_TRUE(group.ok());
  EXPECT_EQ(group->kind, Kind::kGroup);
  EXPECT_THAT(group->members, ::testing::ElementsAre("emu", "emu:usb2", "emu"));
}

TEST(OpenDevice, LoginsStayOutOfSentences) {
  for (const char* name :
       {"grpc://me:secret@host", "grpc://me:secret@host:1,emu", "emu,grpc://me:secret@host",
        "http://me:secret@host/x", "http://me:secret@host/x.json", "me:secret@host",
        "cpu,grpc://me:sec/ret@host"}) {
    const auto device = OpenDevice({.device = name});
    EXPECT_EQ(device.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(device.status().message(), Not(HasSubstr("ret"))) << name;
    EXPECT_THAT(device.status().message(), HasSubstr("host")) << name;
  }
}

TEST(OpenDevice, AbsentDevicesSayWhatToDoNext) {
  const std::shared_ptr<UsbBus> none = std::make_shared<ListedBus>(std::vector<UsbDeviceInfo>());
  for (const auto& usb : {none, std::shared_ptr<UsbBus>()}) {
    for (const char* name :
         {"usb", "usb:0", "usb:17", "usb:99999999999999999999", "usb:2-3.1", "pci", "pci:0",
          "pci:99999999999999999999", "pci:0000:01:00.0", "pci:01:00.0", "/dev/apex_7777"}) {
      const auto device = OpenDevice({.device = name, .usb = usb});
      EXPECT_EQ(device.code(), StatusCode::kNotFound) << name;
      EXPECT_THAT(device.status().message(), HasSubstr("use --device emu")) << name;
      EXPECT_THAT(device.status().message(), HasSubstr(name));
    }
  }
  // What a Coral is called by lsusb, before and after it has its firmware; and the other way to it.
  const auto usb = OpenDevice({.device = "usb", .usb = none});
  EXPECT_THAT(usb.status().message(), HasSubstr("1a6e:089a and 18d1:9302 of a Coral"));
  const auto apex = OpenDevice({.device = "/dev/apex_7777"});
  EXPECT_THAT(apex.status().message(), HasSubstr("--device pci"));
  EXPECT_THAT(apex.status().message(), HasSubstr("'atoll doctor'"));
  const auto device = OpenDevice({.device = "emu:usb9"});
  EXPECT_EQ(device.code(), StatusCode::kNotFound);
  EXPECT_THAT(device.status().message(), HasSubstr("usb3, usb2"));
}

TEST(OpenDevice, EveryListedDeviceThatIsAvailableOpensAndRuns) {
  int defaults = 0;
  for (const DeviceListing& listing : ListDevices(nullptr)) {
    defaults += listing.is_default;
    const auto device = OpenDevice({.device = listing.name, .threads = 1});
    EXPECT_EQ(device.ok(), listing.available) << listing.name;
    if (!device.ok()) continue;
    EXPECT_EQ((*device)->info().name, listing.name);
    EXPECT_EQ(DescribeDevice((*device)->info()), listing.description);

    const auto id = (*device)->Load(std::make_shared<Executable>(MakeTableExecutable({})));
    ASSERT_TRUE(id.ok());
    const std::vector<uint8_t> input = {0, 1, 2, 255};
    std::vector<uint8_t> output(4);
    Request request{.executable = *id, .inputs = {input}, .outputs = {output}};
    const Status status = (*device)->Wait(*(*device)->Submit(request), nullptr);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(output, (std::vector<uint8_t>{0x10, 0x11, 0x12, 0x0F}));
  }
  EXPECT_EQ(defaults, 1);
}

// Which is a cable or a slot, as the profile says; only a ring tells the device's clock.
TEST(OpenDevice, AnEmulatorHasTheLinkOfItsProfile) {
  for (const auto& [name, on_pcie] : {std::pair("emu", false), std::pair("emu:pcie", true),
                                      std::pair("emu:pcie+stepped", true)}) {
    const auto device = OpenDevice({.device = name, .threads = 1});
    ASSERT_TRUE(device.ok()) << device.status().message();
    const auto id =
        (*device)->Load(std::make_shared<Executable>(MakeTableExecutable({.offset = 1})));
    ASSERT_TRUE(id.ok());
    const std::vector<uint8_t> input = {1, 2, 3, 4};
    std::vector<uint8_t> output(4);
    const auto request =
        (*device)->Submit({.executable = *id, .inputs = {input}, .outputs = {output}});
    RequestReport report;
    ASSERT_TRUE((*device)->Wait(*request, &report).ok());
    EXPECT_EQ(output, (std::vector<uint8_t>{2, 3, 4, 5}));
    EXPECT_EQ(report.device_clock > 0, on_pcie) << name;
    EXPECT_EQ(report.bytes_copied, on_pcie ? 8u : 0u) << name;
  }
}

TEST(OpenDevice, EveryEmulatorHasASteppedFace) {
  for (const DeviceProfile& profile : DeviceProfiles()) {
    const std::string name = std::string("emu:") + profile.name + "+stepped";
    const auto device = OpenDevice({.device = name, .threads = 1});
    ASSERT_TRUE(device.ok()) << device.status().message();
    EXPECT_EQ((*device)->info().name, name);
    EXPECT_THAT(DescribeDevice((*device)->info()), HasSubstr(profile.summary));
    EXPECT_THAT(DescribeDevice((*device)->info()), HasSubstr("cycle by cycle"));
  }
  EXPECT_EQ(OpenDevice({.device = "emu:usb9+stepped"}).code(), StatusCode::kNotFound);
}

TEST(OpenDevice, AutoTakesTheListedDefault) {
  const auto device = OpenDevice({});
  ASSERT_TRUE(device.ok());
  for (const DeviceListing& listing : ListDevices(nullptr)) {
    EXPECT_EQ(listing.is_default, listing.name == (*device)->info().name);
  }
}

TEST(OpenDevice, ProfilesReportTheirOwnNumbers) {
  for (const DeviceProfile& profile : DeviceProfiles()) {
    const auto device = OpenDevice({.device = "emu:" + profile.name, .threads = 1});
    ASSERT_TRUE(device.ok());
    const DeviceInfo& info = (*device)->info();
    EXPECT_EQ(info.array_rows, profile.array_rows);
    EXPECT_EQ(info.array_columns, profile.array_columns);
    EXPECT_EQ(info.clock_hz, profile.clock_hz);
    EXPECT_EQ(info.memory_bytes, profile.memory_bytes);
    EXPECT_EQ(info.program_memory_bytes, profile.program_memory_bytes);
    EXPECT_EQ(info.link_bytes_per_second, profile.link_bytes_per_second);
  }
}

TEST(OpenDevice, AProfileOfOnesOwnOpensUnderItsPath) {
  const std::string path = ::testing::TempDir() + "/own_profile.json";
  std::ofstream(path) << "{\"array_rows\": 16, \"summary\": \"mine\"}";
  const auto device = OpenDevice({.device = "emu:" + path, .threads = 1});
  std::remove(path.c_str());
  ASSERT_TRUE(device.ok()) << device.status().message();
  EXPECT_EQ((*device)->info().name, "emu:" + path);
  EXPECT_EQ((*device)->info().array_rows, 16u);
  EXPECT_EQ(DescribeDevice((*device)->info()), "emulated Atoll-1, mine");
}

// The device alone says how large it is, and it may lie.
TEST(OpenStandIn, IsNotAsLargeAsADeviceLikes) {
  DeviceInfo info;
  info.name = "usb:1-1";
  info.array_rows = info.array_columns = 16;
  info.clock_hz = 500'000'000;
  info.link_bytes_per_second = 1'000'000;
  info.memory_bytes = 1 << 20;
  info.program_memory_bytes = 1 << 16;
  EXPECT_TRUE(OpenStandIn(info, 1).ok());
  for (uint64_t* const bytes : {&info.memory_bytes, &info.program_memory_bytes}) {
    const uint64_t before = std::exchange(*bytes, uint64_t{1} << 31);
    const auto device = OpenStandIn(info, 1);
    EXPECT_EQ(device.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(device.status().message(),
                HasSubstr("a stand-in for device usb:1-1 would take 204"));
    *bytes = before;
  }
}

TEST(DescribeDevice, RealDevicesAreDescribedByTheirNumbers) {
  DeviceInfo info;
  info.name = "usb:0";
  info.array_rows = 16;
  info.array_columns = 32;
  info.clock_hz = 250'000'000;
  info.memory_bytes = 2 << 20;
  info.link_bytes_per_second = 40'000'000;
  EXPECT_EQ(DescribeDevice(info), "Atoll-1, 16x32 at 250 MHz, 2048 KiB, link 40 MB/s");
}

}  // namespace
}  // namespace atollrt
