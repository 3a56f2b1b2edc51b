// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>

#include "driver/doctor/diagnosis.h"
#include "driver/vfio/vfio_bus.h"
#include "tests/support/fake_vfio.h"

namespace atollrt {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kFolder[] = "/sys/bus/pci/devices/0000:01:00.0/";
constexpr char kSlot[] = "0000:01:00.0";

class DiagnosisPcie : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::permissions(root_.path(), std::filesystem::perms(0755));
  }
  // One that could be opened.
  void Plug(PcieId id) {
    root_.Plug({.id = id});
    root_.Write("/dev/vfio/7", "");
    root_.Write("/dev/vfio/vfio", "");
  }
  void PlugApex(const std::string& status, int temperature_mc = 45'050) {
    root_.Plug({.id = kCoralPcieId, .driver = "apex", .group = ""});
    const std::string folder = "/sys/class/apex/apex_0/";
    root_.Write(folder + "pci_address", std::string(kSlot) + "\n");
    root_.Write(folder + "status", status + "\n");
    root_.Write(folder + "temp", std::to_string(temperature_mc) + "\n");
    root_.Write("/dev/apex_0", "");
  }
  void UseLink(const char* lanes, const char* speed) {
    root_.Write(std::string(kFolder) + "current_link_width", std::string(lanes) + "\n");
    root_.Write(std::string(kFolder) + "current_link_speed", std::string(speed) + "\n");
    root_.Write(std::string(kFolder) + "max_link_width", "1\n");
    root_.Write(std::string(kFolder) + "max_link_speed", "5.0 GT/s PCIe\n");
  }
  // Opens what looks usable, on the made-up kernel.
  void Open() {
    options_.pcie = std::make_shared<VfioBus>(VfioBus::Options{root_.path(), &kernel_});
  }

  std::vector<Finding> Diagnose() {
    options_.root = root_.path();
    std::vector<Finding> findings = atollrt::Diagnose(options_);
    std::erase_if(findings, [](const Finding& one) { return one.device.empty(); });  // of USB
    return findings;
  }
  std::vector<std::string> Codes() {
    std::vector<std::string> codes;
    for (const Finding& finding : Diagnose()) {
      codes.push_back(std::string(FindingLevelName(finding.level)) + " " + finding.code + " " +
                      finding.device);
    }
    return codes;
  }

  FakeRoot root_;
  FakeVfio kernel_;
  DiagnosisOptions options_;
};

TEST_F(DiagnosisPcie, OneThatIsFine) {
  Plug(kAtollPcieId);
  EXPECT_THAT(Codes(), ElementsAre("fine usable pci:0000:01:00.0"));
  EXPECT_THAT(Diagnose()[0].message, HasSubstr("Atoll-1, PCIe, can be opened"));
  UseLink("1", "5.0 GT/s PCIe");
  Open();
  EXPECT_THAT(Codes(), ElementsAre("fine usable pci:0000:01:00.0"));
  EXPECT_THAT(Diagnose()[0].message, HasSubstr("Atoll-1, gen 2 x1, can be opened"));
  EXPECT_EQ(kernel_.num_files(), 0u);  // closed again
  // Nobody says that nothing is there.
  for (const Finding& finding : atollrt::Diagnose(options_))
    EXPECT_STRNE(finding.code, "no_device");
}

TEST_F(DiagnosisPcie, NoIommu) {
  root_.Plug({.group = ""});
  EXPECT_THAT(Codes(), ElementsAre("error no_iommu pci:0000:01:00.0"));
  EXPECT_THAT(Diagnose()[0].fix,
              AllOf(HasSubstr("intel_iommu=on"), HasSubstr("BIOS"), Not(HasSubstr("gasket"))));
  root_.Plug({.id = kCoralPcieId, .group = ""});
  EXPECT_THAT(Diagnose()[0].fix, HasSubstr("Raspberry Pi, need Google's kernel modules"));
}

TEST_F(DiagnosisPcie, AGroupThatIsNotViable) {
  Plug(kCoralPcieId);
  root_.Plug({.address = "0000:01:00.1", .id = {0x8086, 1}, .driver = "xhci_hcd"});
  EXPECT_THAT(Codes(), ElementsAre("error group_not_viable pci:0000:01:00.0"));
  EXPECT_THAT(Diagnose()[0].message, HasSubstr("group 7 with functions that the system uses: "
                                               "0000:01:00.1 (xhci_hcd)"));
}

TEST_F(DiagnosisPcie, AnotherDriverAndNone) {
  root_.Plug({.driver = "pcieport_test"});
  EXPECT_THAT(Codes(), ElementsAre("error other_driver pci:0000:01:00.0"));
  EXPECT_THAT(Diagnose()[0].message, HasSubstr("bound to the driver pcieport_test"));
  root_.Bind(kSlot, "");
  EXPECT_THAT(Codes(), ElementsAre("error no_driver pci:0000:01:00.0"));
  EXPECT_THAT(Diagnose()[0].fix, AllOf(HasSubstr("atoll doctor --fix"),
                                       HasSubstr("driverctl set-override 0000:01:00.0 vfio-pci")));
}

TEST_F(DiagnosisPcie, GasketThatIsThereButBroken) {
  // Loaded, without taking the device.
  root_.Plug({.id = kCoralPcieId, .driver = ""});
  EXPECT_THAT(Codes(), ElementsAre("error no_driver pci:0000:01:00.0"));
  root_.Write("/sys/module/gasket/refcnt", "0\n");
  EXPECT_THAT(Codes(), ElementsAre("error gasket_broken pci:0000:01:00.0"));
  EXPECT_THAT(Diagnose()[0].fix, AllOf(HasSubstr("dmesg"), HasSubstr("doctor --fix")));
  // Bound, without a device of its own.
  root_.Plug({.id = kCoralPcieId, .driver = "apex"});
  EXPECT_THAT(Codes(), ElementsAre("error gasket_broken pci:0000:01:00.0"));
  EXPECT_THAT(Diagnose()[0].message, HasSubstr("there is no /dev/apex_N of it"));
  // An Atoll-1 is none of its.
  root_.Plug({.driver = ""});
  EXPECT_THAT(Codes(), ElementsAre("error no_driver pci:0000:01:00.0"));
}

TEST_F(DiagnosisPcie, ACoralByItsKernelModules) {
  PlugApex("ALIVE");
  EXPECT_THAT(Codes(), ElementsAre("fine usable /dev/apex_0"));
  PlugApex("DEAD");
  EXPECT_THAT(Codes(), ElementsAre("error gasket_broken /dev/apex_0"));
  EXPECT_THAT(Diagnose()[0].message, HasSubstr("says that it is DEAD"));
  PlugApex("LAMED");
  EXPECT_THAT(Codes(), ElementsAre("error msix_refused /dev/apex_0"));
  PlugApex("ALIVE");
  root_.Remove("/dev/apex_0");
  EXPECT_THAT(Codes(), ElementsAre("error gasket_broken /dev/apex_0"));
  EXPECT_THAT(Diagnose()[0].fix, HasSubstr("--device /dev/apex_0"));
}

TEST_F(DiagnosisPcie, AContainerThatSeesTheModulesAlone) {
  PlugApex("ALIVE");
  root_.Remove("/sys/bus/pci/devices/0000:01:00.0");
  EXPECT_THAT(Codes(), ElementsAre("fine usable /dev/apex_0"));
}

TEST_F(DiagnosisPcie, LargePages) {
  options_.page_bytes = 16384;
  PlugApex("ALIVE");
  EXPECT_THAT(Codes(), ElementsAre("error large_pages /dev/apex_0"));
  EXPECT_THAT(Diagnose()[0].fix, HasSubstr("kernel=kernel8.img"));
  root_.Remove("/sys/class/apex");
  Plug(kAtollPcieId);
  EXPECT_THAT(Codes(),
              ElementsAre("fine usable pci:0000:01:00.0", "note large_pages pci:0000:01:00.0"));
  options_.page_bytes = 4096;
  EXPECT_THAT(Codes(), ElementsAre("fine usable pci:0000:01:00.0"));
}

TEST_F(DiagnosisPcie, MsixThatIsRefused) {
  Plug(kAtollPcieId);
  root_.Write("/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 pci=nomsi quiet\n");
  EXPECT_THAT(Codes(), ElementsAre("error msix_refused pci:0000:01:00.0"));
  EXPECT_THAT(Diagnose()[0].message, HasSubstr("pci=nomsi"));
  root_.Write("/proc/cmdline", "quiet\n");
  root_.Write(std::string(kFolder) + "msi_bus", "0\n");
  EXPECT_THAT(Codes(), ElementsAre("error msix_refused pci:0000:01:00.0"));
  root_.Write(std::string(kFolder) + "msi_bus", "1\n");
  Open();
  EXPECT_THAT(Codes(), ElementsAre("fine usable pci:0000:01:00.0"));
  kernel_.failures["set_irqs"] = {EINVAL};
  EXPECT_THAT(Codes(), ElementsAre("error msix_refused pci:0000:01:00.0"));
  kernel_.function.vectors = 2;
  EXPECT_THAT(Codes(), ElementsAre("error msix_refused pci:0000:01:00.0"));
}

TEST_F(DiagnosisPcie, ALinkThatIsDownOrSlow) {
  Plug(kAtollPcieId);
  UseLink("0", "Unknown");
  EXPECT_THAT(Codes(), ElementsAre("error link_down pci:0000:01:00.0"));
  UseLink("63", "Unknown");  // as some write that there is none
  EXPECT_THAT(Codes(), ElementsAre("error link_down pci:0000:01:00.0"));
  UseLink("1", "2.5 GT/s PCIe");
  EXPECT_THAT(Codes(),
              ElementsAre("warning slow_link pci:0000:01:00.0", "fine usable pci:0000:01:00.0"));
  EXPECT_THAT(Diagnose()[0].message, HasSubstr("linked at gen 1 x1 and can do gen 2 x1"));
  UseLink("1", "5.0 GT/s PCIe");
  root_.Write(std::string(kFolder) + "max_link_width", "4\n");
  EXPECT_THAT(Diagnose()[0].message, HasSubstr("linked at gen 2 x1 and can do gen 2 x4"));
  EXPECT_THAT(Diagnose()[0].fix, HasSubstr("more lanes"));
}

TEST_F(DiagnosisPcie, TooHot) {
  PlugApex("ALIVE", 91'300);
  EXPECT_THAT(Codes(), ElementsAre("warning too_hot /dev/apex_0", "fine usable /dev/apex_0"));
  EXPECT_THAT(Diagnose()[0].message, HasSubstr("at 91.3 degrees Celsius, and runs at 125 MHz"));
  PlugApex("ALIVE", 84'999);
  EXPECT_THAT(Codes(), ElementsAre("fine usable /dev/apex_0"));

  // By the chip's own sensor; this kernel's chip says no more than that.
  root_.Remove("/sys/class/apex");
  Plug(kCoralPcieId);
  Open();
  kernel_.SetRegister(2, 0x1a0dc, 300u << 16);
  const std::vector<Finding> findings = Diagnose();
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_STREQ(findings[0].code, "too_hot");
  EXPECT_THAT(findings[0].message, HasSubstr("at 91.0 degrees Celsius"));
  EXPECT_STREQ(findings[1].code, "cannot_open");
}

TEST_F(DiagnosisPcie, AllOnes) {
  Plug(kAtollPcieId);
  root_.Write(std::string(kFolder) + "config", std::string(64, '\xff'));
  EXPECT_THAT(Codes(), ElementsAre("error all_ones pci:0000:01:00.0"));
  EXPECT_THAT(Diagnose()[0].fix, HasSubstr("/sys/bus/pci/rescan"));
  root_.Write(std::string(kFolder) + "config", std::string("\x09\x12\x01\xa7", 4));
  EXPECT_THAT(Codes(), ElementsAre("fine usable pci:0000:01:00.0"));
  Open();
  kernel_.is_gone = true;
  EXPECT_THAT(Codes(), ElementsAre("error all_ones pci:0000:01:00.0"));
}

TEST_F(DiagnosisPcie, ANodeThatIsNotHereOrNotThisUsers) {
  root_.Plug({});
  EXPECT_THAT(Codes(), ElementsAre("error no_nodes pci:0000:01:00.0"));
  EXPECT_THAT(Diagnose()[0].fix, HasSubstr("--device /dev/vfio"));
  Plug(kAtollPcieId);
  std::filesystem::permissions(root_.path() + "/dev/vfio/7", std::filesystem::perms::none);
  const bool is_root = geteuid() == 0;  // who may open everything
  if (is_root) {
    ASSERT_EQ(seteuid(65534), 0);
  }
  const std::vector<Finding> findings = Diagnose();
  if (is_root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_STREQ(findings[0].code, "no_permission");
  EXPECT_THAT(findings[0].fix, HasSubstr("61-atoll-pcie.rules /etc/udev/rules.d"));
  // The other node will do.
  root_.Write(std::string(kFolder) + "vfio-dev/vfio0/dev", "");
  root_.Write("/dev/vfio/devices/vfio0", "");
  root_.Write("/dev/iommu", "");
  EXPECT_THAT(Codes(), ElementsAre("fine usable pci:0000:01:00.0"));
}

TEST_F(DiagnosisPcie, OneThatSomebodyHas) {
  Plug(kAtollPcieId);
  Open();
  const auto function = options_.pcie->Open({.id = kAtollPcieId, .address = kSlot});
  ASSERT_TRUE(function.ok());
  EXPECT_THAT(Codes(), ElementsAre("error busy pci:0000:01:00.0"));
}

TEST_F(DiagnosisPcie, LittleMemoryToPin) {
  Plug(kAtollPcieId);
  options_.memlock_bytes = 8 << 20;
  EXPECT_THAT(Codes(), ElementsAre("fine usable pci:0000:01:00.0",
                                   "warning little_memlock pci:0000:01:00.0"));
  EXPECT_THAT(Diagnose()[1].message, HasSubstr("may pin 8.0 MiB"));
  EXPECT_THAT(Diagnose()[1].fix, HasSubstr("LimitMEMLOCK=infinity"));
}

TEST_F(DiagnosisPcie, FunctionsComeInTheOrderOfTheirAddresses) {
  root_.Plug({.address = "0000:0a:00.0", .group = ""});
  root_.Plug({.address = "0000:02:00.0", .id = kCoralPcieId, .group = ""});
  root_.Plug({.address = "0000:01:00.0", .id = {0x8086, 0x089a}, .group = ""});
  EXPECT_THAT(Codes(),
              ElementsAre("error no_iommu pci:0000:02:00.0", "error no_iommu pci:0000:0a:00.0"));
}

TEST_F(DiagnosisPcie, FilesOfAnyContentAreNoMatter) {
  Plug(kCoralPcieId);
  PlugApex("ALIVE");
  for (const char* file :
       {"sys/bus/pci/devices/0000:01:00.0/current_link_width",
        "sys/bus/pci/devices/0000:01:00.0/max_link_width",
        "sys/bus/pci/devices/0000:01:00.0/current_link_speed",
        "sys/bus/pci/devices/0000:01:00.0/max_link_speed",
        "sys/bus/pci/devices/0000:01:00.0/msi_bus", "sys/bus/pci/devices/0000:01:00.0/config",
        "sys/class/apex/apex_0/temp", "sys/class/apex/apex_0/status",
        "sys/class/apex/apex_0/pci_address", "proc/cmdline"}) {
    for (const std::string& text : {std::string(), std::string("x\n"), std::string(5000, '9'),
                                    std::string("-1\n"), std::string("\0\xff\n", 3)}) {
      root_.Write(std::string("/") + file, text);
      EXPECT_THAT(Diagnose(), Not(IsEmpty()));
    }
  }
}

}  // namespace
}  // namespace atollrt
