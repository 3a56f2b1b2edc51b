// SPDX-License-Identifier: Apache-2.0
#include "driver/doctor/diagnosis.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

namespace atollrt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A computer made of files.
class Computer {
 public:
  struct Usb {
    std::string path;
    std::string id;  // "1209:0001"
    int speed = 5000;
    std::string version = " 3.20";
    std::string attributes = "80";
    std::string power = "100mA";
    bool has_node = true;
  };

  Computer() {
    char name[] = "/tmp/atoll_doctor_XXXXXX";
    root_ = mkdtemp(name);
    std::filesystem::permissions(root_, std::filesystem::perms(0755));
  }
  ~Computer() { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  // The node's path.
  std::string Plug(const Usb& usb) {
    const std::string folder = "/sys/bus/usb/devices/" + usb.path + "/";
    const int address = ++addresses_;
    Write(folder + "idVendor", usb.id.substr(0, 4) + "\n");
    Write(folder + "idProduct", usb.id.substr(5) + "\n");
    Write(folder + "busnum", "2\n");
    Write(folder + "devnum", std::to_string(address) + "\n");
    Write(folder + "speed", std::to_string(usb.speed) + "\n");
    Write(folder + "version", usb.version + "\n");
    Write(folder + "bmAttributes", usb.attributes + "\n");
    Write(folder + "bMaxPower", usb.power + "\n");
    Write("/sys/bus/usb/devices/" + usb.path + ":1.0/bInterfaceNumber", "00\n");
    const std::string node = Format("/dev/bus/usb/002/%03d", address);
    if (usb.has_node) Write(node, "");
    return root_ + node;
  }
  void PlugRootHubs() {
    Plug({.path = "usb1", .id = "1d6b:0002", .speed = 480, .version = " 2.00", .attributes = "e0"});
    Plug({.path = "usb2", .id = "1d6b:0003", .attributes = "e0"});
  }

  std::vector<Finding> Diagnose(Status coral_firmware = {}) const {
    return atollrt::Diagnose({.root = root_, .coral_firmware = std::move(coral_firmware)});
  }
  std::vector<std::string> Codes(const Status& coral_firmware = {}) const {
    std::vector<std::string> codes;
    for (const Finding& finding : Diagnose(coral_firmware)) {
      codes.push_back(std::string(FindingLevelName(finding.level)) + " " + finding.code + " " +
                      finding.device);
    }
    return codes;
  }
  const std::string& root() const { return root_; }

 private:
  std::string root_;
  int addresses_ = 0;
};

constexpr char kAtoll[] = "1209:0001";
constexpr char kCoral[] = "18d1:9302";
constexpr char kCoralBoot[] = "1a6e:089a";

TEST(Diagnosis, ADeviceThatIsFine) {
  Computer computer;
  computer.PlugRootHubs();
  computer.Plug({.path = "2-3", .id = kAtoll});
  EXPECT_THAT(computer.Codes(), ElementsAre("fine usable usb:2-3"));
  EXPECT_THAT(computer.Diagnose()[0].message, HasSubstr("Atoll-1, 5000 Mbit/s"));
}

TEST(Diagnosis, DevicesComeInTheOrderOfTheirPorts) {
  Computer computer;
  computer.PlugRootHubs();
  computer.Plug({.path = "2-10", .id = kAtoll});
  computer.Plug({.path = "2-9", .id = kCoral});
  computer.Plug({.path = "2-1", .id = "046d:c077"});  // a mouse
  EXPECT_THAT(computer.Codes(), ElementsAre("fine usable usb:2-9", "fine usable usb:2-10"));
}

TEST(Diagnosis, NoDevice) {
  Computer computer;
  EXPECT_THAT(computer.Codes(), ElementsAre("note no_usb ", "note no_device "));
  computer.PlugRootHubs();
  computer.Plug({.path = "2-1", .id = "046d:c077"});
  EXPECT_THAT(computer.Codes(), ElementsAre("note no_device "));
  EXPECT_THAT(computer.Diagnose()[0].message, HasSubstr("1209:0001"));
  EXPECT_THAT(computer.Diagnose()[0].fix, HasSubstr("another cable"));
}

TEST(Diagnosis, AContainerWithoutNodes) {
  Computer computer;
  computer.Write("/.dockerenv", "");
  EXPECT_THAT(computer.Diagnose()[0].fix, HasSubstr("--device /dev/bus/usb"));
  computer.Plug({.path = "usb2", .id = "1d6b:0003", .has_node = false});
  computer.Plug({.path = "2-3", .id = kAtoll, .has_node = false});
  EXPECT_THAT(computer.Codes(), ElementsAre("error no_nodes "));
  EXPECT_THAT(computer.Diagnose()[0].fix, HasSubstr("--device /dev/bus/usb"));
  // One that came after the container was started.
  computer.Write("/dev/bus/usb/002/001", "");
  EXPECT_THAT(computer.Codes(), ElementsAre("error no_nodes usb:2-3"));
}

TEST(Diagnosis, ACoralWithoutFirmware) {
  Computer computer;
  computer.PlugRootHubs();
  computer.Plug({.path = "1-3", .id = kCoralBoot, .speed = 480, .version = " 2.00"});
  const Status absent = NotFound("get the file from there");
  EXPECT_THAT(computer.Codes(absent), ElementsAre("error no_firmware usb:1-3"));
  EXPECT_EQ(computer.Diagnose(absent)[0].fix, "get the file from there");
  EXPECT_THAT(computer.Codes(), ElementsAre("note no_firmware usb:1-3", "fine usable usb:1-3"));
}

TEST(Diagnosis, APortThatIsNotThisUsers) {
  Computer computer;
  computer.PlugRootHubs();
  const std::string node = computer.Plug({.path = "2-3", .id = kAtoll});
  std::filesystem::permissions(node, std::filesystem::perms::none);
  const bool is_root = geteuid() == 0;  // who may open everything
  if (is_root) {
    ASSERT_EQ(seteuid(65534), 0);
  }
  const std::vector<std::string> codes = computer.Codes();
  const std::string fix = computer.Diagnose()[0].fix;
  if (is_root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  EXPECT_THAT(codes, ElementsAre("error no_permission usb:2-3"));
  EXPECT_THAT(fix, HasSubstr("60-atoll.rules /etc/udev/rules.d"));

  computer.Write("/etc/udev/rules.d/60-atoll.rules", "");
  if (is_root) {
    ASSERT_EQ(seteuid(65534), 0);
  }
  const std::string next_fix = computer.Diagnose()[0].fix;
  if (is_root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  EXPECT_THAT(next_fix, ::testing::AnyOf(HasSubstr("usermod -aG plugdev"),
                                         HasSubstr("plug the device in again")));
}

TEST(Diagnosis, ABusyDeviceAndWhoHasIt) {
  Computer computer;
  computer.PlugRootHubs();
  const std::string node = computer.Plug({.path = "2-3", .id = kAtoll});
  const std::string command = "exec sleep 60 <" + node;
  const char* arguments[] = {"sh", "-c", command.c_str(), nullptr};
  pid_t child = 0;
  ASSERT_EQ(
      posix_spawn(&child, "/bin/sh", nullptr, nullptr, const_cast<char**>(arguments), environ), 0);
  std::string message;
  for (int i = 0; i < 1000 && message.find("(sleep)") == message.npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    message = computer.Diagnose()[0].message;
  }
  EXPECT_EQ(message, Format("process %d (sleep) has it open", child));
  EXPECT_THAT(computer.Codes(), ElementsAre("error busy usb:2-3"));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  // What this process has open is no obstacle.
  const int mine = open(node.c_str(), O_RDONLY);
  EXPECT_THAT(computer.Codes(), ElementsAre("fine usable usb:2-3"));
  close(mine);
}

TEST(Diagnosis, ALinkThatIsSlowerThanItCouldBe) {
  Computer computer;
  computer.Plug({.path = "usb1", .id = "1d6b:0002", .speed = 480, .version = " 2.00"});
  computer.Plug({.path = "1-3", .id = kCoral, .speed = 480, .version = " 2.10"});
  EXPECT_THAT(computer.Codes(), ElementsAre("fine usable usb:1-3", "warning slow_link usb:1-3"));
  EXPECT_THAT(computer.Diagnose()[1].fix, HasSubstr("no port of USB 3"));

  computer.Plug({.path = "usb2", .id = "1d6b:0003"});
  EXPECT_THAT(computer.Diagnose()[1].fix, HasSubstr("cable"));

  // Behind a hub of USB 2.
  Computer with_hub;
  with_hub.PlugRootHubs();
  with_hub.Plug(
      {.path = "1-4", .id = "05e3:0608", .speed = 480, .version = " 2.00", .attributes = "e0"});
  with_hub.Plug({.path = "1-4.2", .id = kAtoll, .speed = 480, .version = " 2.10"});
  EXPECT_THAT(with_hub.Diagnose()[1].fix, HasSubstr("the one at 1-4 runs at USB 2"));

  // A device that knows no better is as fast as it can be, but not at full speed.
  Computer old;
  old.PlugRootHubs();
  old.Plug({.path = "1-3", .id = kAtoll, .speed = 480, .version = " 2.00"});
  EXPECT_THAT(old.Codes(), ElementsAre("fine usable usb:1-3"));
  old.Plug({.path = "1-3", .id = kAtoll, .speed = 12, .version = " 2.00"});
  EXPECT_THAT(old.Codes(), ElementsAre("fine usable usb:1-3", "warning slow_link usb:1-3"));
}

TEST(Diagnosis, HubsWithLittlePower) {
  Computer computer;
  computer.PlugRootHubs();
  computer.Plug({.path = "2-4", .id = "05e3:0612", .attributes = "80"});
  computer.Plug({.path = "2-4.1", .id = kCoral, .power = "896mA"});
  computer.Plug({.path = "2-4.2", .id = "046d:c077", .power = "100mA"});
  EXPECT_THAT(computer.Codes(),
              ElementsAre("fine usable usb:2-4.1", "warning hub_power usb:2-4.1"));
  EXPECT_THAT(computer.Diagnose()[1].message, HasSubstr("ask for 996 mA"));

  Computer powered;
  powered.PlugRootHubs();
  powered.Plug({.path = "2-4", .id = "05e3:0612", .attributes = "e0"});
  powered.Plug({.path = "2-4.1", .id = kCoral});
  EXPECT_THAT(powered.Codes(), ElementsAre("fine usable usb:2-4.1"));
  powered.Plug({.path = "2-4.2", .id = kAtoll});
  EXPECT_THAT(powered.Codes(), ElementsAre("fine usable usb:2-4.1", "note hub_power usb:2-4.1",
                                           "fine usable usb:2-4.2", "note hub_power usb:2-4.2"));
}

TEST(Diagnosis, FilesOfAnyContentAreNoMatter) {
  Computer computer;
  computer.PlugRootHubs();
  computer.Plug({.path = "2-3", .id = kAtoll});
  for (const char* file : {"busnum", "devnum", "speed", "version", "bmAttributes", "bMaxPower"}) {
    for (const std::string& text : {std::string(), std::string("x\n"), std::string(5000, '9'),
                                    std::string("-1\n"), std::string("\0\xff\n", 3)}) {
      computer.Write(std::string("/sys/bus/usb/devices/2-3/") + file, text);
      EXPECT_THAT(computer.Diagnose(), ::testing::Not(IsEmpty()));
    }
  }
}

TEST(Diagnosis, ThisComputerHasSomethingToSay) {
  for (const Finding& finding : Diagnose({})) {
    EXPECT_FALSE(finding.message.empty()) << finding.code;
  }
}

}  // namespace
}  // namespace atollrt
