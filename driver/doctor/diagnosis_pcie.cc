// SPDX-License-Identifier: Apache-2.0
#include "driver/doctor/diagnosis_pcie.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <thread>
#include <utility>

#include "driver/atoll1/ring.h"
#include "driver/coral/coral_pcie_chip.h"
#include "driver/coral/function_link.h"
#include "driver/coral/registers.h"
#include "driver/pcie/pci_sysfs.h"
#include "runtime/base/process_files.h"

namespace atollrt {
namespace {

constexpr uint64_t kSmallPageBytes = 4096;
// From which on a Coral halves its clock, halves it again, and once more.
constexpr int kWarmMc = 85'000;
constexpr int kHotMc = 90'000;
constexpr int kHottestMc = 95'000;
// What large models have in parameters, and some buffers.
constexpr uint64_t kMemlockBytes = 64 << 20;
constexpr uint32_t kCoralBar = 2;

bool IsThere(const std::string& path) {
  struct stat status = {};
  return stat(path.c_str(), &status) == 0;
}

bool MayUse(const std::string& node) {
  return faccessat(AT_FDCWD, node.c_str(), R_OK | W_OK, AT_EACCESS) == 0;
}

int Megahertz(int temperature_mc) {
  return temperature_mc >= kHottestMc ? 63 : (temperature_mc >= kHotMc ? 125 : 250);
}

// Of an opened Coral: its sensor is switched on if nobody has done that yet. 0 if it says nothing.
Result<int> TemperatureOf(PcieFunction* function) {
  const auto set = [&](coral::Register32 address, uint32_t bits) -> Status {
    const auto offset = static_cast<uint64_t>(address);
    ATOLL_ASSIGN_OR_RETURN(const uint32_t before, function->Read32(kCoralBar, offset));
    return function->Write32(kCoralBar, offset, before | bits);
  };
  ATOLL_RETURN_IF_ERROR(set(coral::Register32::kThermalSensor, 1 << 7));
  ATOLL_RETURN_IF_ERROR(set(coral::Register32::kTemperatureShutdown, 7));
  std::this_thread::sleep_for(std::chrono::microseconds(100));
  ATOLL_RETURN_IF_ERROR(set(coral::Register32::kTemperature, 1));
  for (int i = 0; i < 20; ++i) {
    ATOLL_ASSIGN_OR_RETURN(
        const uint32_t word,
        function->Read32(kCoralBar, static_cast<uint64_t>(coral::Register32::kTemperature)));
    const uint32_t reading = word >> 16 & 0x3FF;
    if (reading != 0) return CoralTemperatureMc(reading);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return 0;
}

// One pass over one function after the other.
class PcieDoctor {
 public:
  explicit PcieDoctor(const DiagnosisOptions& options)
      : options_(options), sysfs_(options.root), apex_(ListApex(options.root + "/sys")) {}

  std::vector<Finding> Run() {
    for (const PcieDeviceInfo& info : sysfs_.Known()) CheckFunction(info);
    for (const ApexDevice& apex : apex_) {
      if (!sysfs_.Id(apex.pci_address).vendor) CheckApex(apex, apex.node);  // /sys is another's
    }
    return std::move(findings_);
  }

 private:
  void Add(FindingLevel level, const char* code, std::string message, std::string fix) {
    findings_.push_back({level, code, name_, std::move(message), std::move(fix)});
  }

  void CheckFunction(const PcieDeviceInfo& info);
  bool CheckAnswer(const PcieDeviceInfo& info);
  bool CheckLink(const PcieDeviceInfo& info);  // whether there is one
  bool CheckDriver(const PcieDeviceInfo& info);
  bool CheckGroup(const PcieDeviceInfo& info);
  bool CheckNode(const std::string& node, const std::string& container);
  bool CheckInterrupts(const PcieDeviceInfo& info);
  bool Probe(const PcieDeviceInfo& info);
  void CheckMemlock();
  void CheckPages(bool by_apex);
  void CheckTemperature(int temperature_mc);
  void CheckApex(const ApexDevice& apex, const std::string& name);

  const DiagnosisOptions& options_;
  const PciSysfs sysfs_;
  const std::vector<ApexDevice> apex_;
  std::string name_;  // of the function at hand
  std::vector<Finding> findings_;
};

void PcieDoctor::CheckFunction(const PcieDeviceInfo& info) {
  name_ = "pci:" + info.address;
  if (!CheckAnswer(info) || !CheckLink(info)) return;
  const auto apex = std::find_if(apex_.begin(), apex_.end(), [&](const ApexDevice& one) {
    return one.pci_address == info.address;
  });
  if (apex != apex_.end()) return CheckApex(*apex, apex->node);
  if (CheckDriver(info) && CheckGroup(info) && CheckInterrupts(info) && Probe(info)) {
    Add(FindingLevel::kFine, "usable",
        Format("%s, %s, can be opened", PcieProductName(info.id),
               info.link_lanes > 0
                   ? Format("gen %u x%u", info.link_generation, info.link_lanes).c_str()
                   : "PCIe"),
        "");
    CheckMemlock();
    CheckPages(/*by_apex=*/false);
  }
}

// The first bytes of its configuration space, which every user may read, come from the device.
bool PcieDoctor::CheckAnswer(const PcieDeviceInfo& info) {
  std::array<char, 4> ids = {};
  std::ifstream config(sysfs_.Folder(info.address) + "/config", std::ios::binary);
  config.read(ids.data(), ids.size());
  if (config.gcount() != static_cast<std::streamsize>(ids.size()) ||
      std::any_of(ids.begin(), ids.end(), [](char byte) { return byte != '\xff'; })) {
    return true;
  }
  Add(FindingLevel::kError, "all_ones",
      "every register reads as ones: it has fallen off the bus, or has no power",
      Format("as root: echo 1 > /sys/bus/pci/devices/%s/remove; echo 1 > /sys/bus/pci/rescan; if "
             "it does not come back, switch the computer off, seat the card anew and look at its "
             "cooling and supply",
             info.address.c_str()));
  return false;
}

bool PcieDoctor::CheckLink(const PcieDeviceInfo& info) {
  const auto number = [&](const char* name) {
    return static_cast<uint32_t>(
        std::strtoul(sysfs_.Attribute(info.address, name).c_str(), nullptr, 10));
  };
  const std::string width = sysfs_.Attribute(info.address, "current_link_width");
  if (width.empty()) return true;  // of what is no PCIe link, as in virtual machines
  if (info.link_lanes == 0) {
    Add(FindingLevel::kError, "link_down", "its link is down: x0",
        "seat the card anew; in an M.2 slot, look in the BIOS whether the slot is one for PCIe and "
        "not for SATA or WiFi alone; a dual card needs a slot with two links of one lane each");
    return false;
  }
  const uint32_t most_lanes = number("max_link_width");
  const uint32_t most = PcieGeneration(sysfs_.Attribute(info.address, "max_link_speed"));
  const bool is_slow = info.link_generation > 0 && info.link_generation < most;
  const bool is_narrow = most_lanes <= 32 && info.link_lanes < most_lanes;
  if (!is_slow && !is_narrow) return true;
  Add(FindingLevel::kWarning, "slow_link",
      Format("it is linked at gen %u x%u and can do gen %u x%u", info.link_generation,
             info.link_lanes, std::max(most, info.link_generation),
             is_narrow ? most_lanes : info.link_lanes),
      is_narrow
          ? "use a slot with more lanes, without an adapter if that is possible"
          : "set the slot to that generation in the BIOS, seat the card and its cable anew; a link "
            "that saves power is slow until it is used, too");
  return true;
}

// Whether it is bound to the driver that gives it to programs, and if not, why.
bool PcieDoctor::CheckDriver(const PcieDeviceInfo& info) {
  const bool is_coral = info.id == kCoralPcieId;
  const bool has_iommu = !sysfs_.IommuGroup(info.address).empty();
  const bool has_modules =
      IsThere(options_.root + "/sys/module/apex") || IsThere(options_.root + "/sys/module/gasket");
  if (is_coral && (info.driver == "apex" || (info.driver.empty() && has_modules))) {
    const std::string leave =
        has_iommu ? "; or leave it to VFIO, which needs no module: sudo atoll doctor --fix" : "";
    Add(FindingLevel::kError, "gasket_broken",
        info.driver.empty() ? "Google's kernel modules (gasket, apex) are loaded, and have not "
                              "taken it"
                            : "it is bound to Google's kernel module apex, but there is no "
                              "/dev/apex_N of it",
        "look at 'sudo dmesg | grep -e apex -e gasket': the modules do not fit recent kernels (6.4 "
        "and later) unless they are patched" +
            leave);
    return false;
  }
  if (!has_iommu) {
    Add(FindingLevel::kError, "no_iommu",
        "there is no IOMMU for it, and without one no program may drive it",
        std::string("switch it on in the BIOS (VT-d, AMD-Vi, SMMU), on Intel also with "
                    "intel_iommu=on on the kernel's command line, then start again") +
            (is_coral ? "; boards without one, as the Raspberry Pi, need Google's kernel modules "
                        "(gasket, apex)"
                      : ""));
    return false;
  }
  if (info.driver == "vfio-pci") return true;
  Add(FindingLevel::kError, info.driver.empty() ? "no_driver" : "other_driver",
      info.driver.empty()
          ? "it is bound to no driver, and programs get it from vfio-pci"
          : "it is bound to the driver " + info.driver + ", and programs get it from vfio-pci",
      "sudo atoll doctor --fix, or: sudo driverctl set-override " + info.address + " vfio-pci");
  return false;
}

bool PcieDoctor::CheckGroup(const PcieDeviceInfo& info) {
  const std::string group = sysfs_.IommuGroup(info.address);
  std::string others;
  for (const std::string& member : sysfs_.MembersInTheWay(group)) {
    others += (others.empty() ? "" : ", ") + member;
  }
  if (!others.empty()) {
    Add(FindingLevel::kError, "group_not_viable",
        "it shares IOMMU group " + group + " with functions that the system uses: " + others,
        "if the system can do without them, bind them to vfio-pci, too, as in docs/devices.md; "
        "otherwise put the card into another slot, or switch ACS on in the BIOS");
    return false;
  }
  // Either way of opening it will do.
  const std::string device = sysfs_.VfioDevice(info.address);
  const std::string own_node = "/dev/vfio/devices/" + device;
  if (!device.empty() && MayUse(options_.root + own_node) && MayUse(options_.root + "/dev/iommu")) {
    return CheckNode(own_node, "/dev/vfio");
  }
  return CheckNode("/dev/vfio/" + group, "/dev/vfio");
}

// Whether this user may open it and nobody else has it. `container` is what a container is to be
// given.
bool PcieDoctor::CheckNode(const std::string& node, const std::string& container) {
  const std::string path = options_.root + node;
  if (!IsThere(path)) {
    Add(FindingLevel::kError, "no_nodes", "its node " + node + " is not here",
        "give the container --device " + container +
            "; outside of one, start udev, or mount devtmpfs on /dev");
    return false;
  }
  if (!MayUse(path)) {
    Add(FindingLevel::kError, "no_permission", "this user may not open its node " + node,
        PermissionFix(options_.root, "61-atoll-pcie.rules", "driver/vfio/udev/", "vfio",
                      "sudo udevadm trigger --subsystem-match=vfio --subsystem-match=vfio-dev "
                      "--subsystem-match=apex; without udev: sudo chown $USER " +
                          node));
    return false;
  }
  std::vector<ProcessWithFile> holders = ProcessesWithFile(path);
  std::erase_if(holders, [](const ProcessWithFile& process) { return process.pid == getpid(); });
  if (holders.empty()) return true;
  Add(FindingLevel::kError, "busy", "process " + ProcessesText(holders) + " has it open",
      "end that process, or use another device");
  return false;
}

bool PcieDoctor::CheckInterrupts(const PcieDeviceInfo& info) {
  std::string command_line;
  std::ifstream file(options_.root + "/proc/cmdline");
  std::getline(file, command_line);
  const bool is_off = (" " + command_line + " ").find("pci=nomsi") != std::string::npos;
  if (!is_off && sysfs_.Attribute(info.address, "msi_bus") != "0") return true;
  Add(FindingLevel::kError, "msix_refused",
      is_off ? "the kernel gives no device MSI-X: its command line has pci=nomsi"
             : "the bus that it is on gives no device MSI-X (msi_bus is 0)",
      is_off ? "take that from the kernel's command line, then start again"
             : Format("as root: echo 1 > /sys/bus/pci/devices/%s/msi_bus, or use another slot",
                      info.address.c_str()));
  return false;
}

// Opens it as a program would, and closes it again.
bool PcieDoctor::Probe(const PcieDeviceInfo& info) {
  if (options_.pcie == nullptr) return true;
  Status status;
  int temperature_mc = 0;
  bool is_there = true;
  if (auto function = options_.pcie->Open(info); !function.ok()) {
    status = function.status();
  } else if (info.id == kCoralPcieId) {
    const auto temperature = TemperatureOf(function->get());
    if (temperature.ok()) temperature_mc = *temperature;
    is_there = (*function)->is_present();
  } else {
    status = (*function)->EnableInterrupts(kRingVectors);
    is_there = (*function)->is_present();
  }
  if (is_there && status.ok() && info.id == kCoralPcieId) {
    const auto chip = OpenCoralPcie(options_.pcie.get(), info, {.name = name_});
    status = chip.status();
  }
  CheckTemperature(temperature_mc);
  if (!is_there) {
    Add(FindingLevel::kError, "all_ones", "every register reads as ones once it is opened",
        "switch the computer off, seat the card anew, and look at its cooling and supply");
    return false;
  }
  if (status.ok()) return true;
  const std::string& message = status.message();
  const bool by_interrupts = message.find("MSI-X") != message.npos;
  Add(FindingLevel::kError,
      by_interrupts                                    ? "msix_refused"
      : status.code() == StatusCode::kDeviceBusy       ? "busy"
      : status.code() == StatusCode::kPermissionDenied ? "no_permission"
                                                       : "cannot_open",
      "it cannot be opened: " + message,
      by_interrupts ? "see 'sudo dmesg'; in a virtual machine, give it a machine of type q35"
                    : "see 'sudo dmesg'");
  return false;
}

void PcieDoctor::CheckMemlock() {
  if (options_.memlock_bytes == 0 || options_.memlock_bytes >= kMemlockBytes) return;
  Add(FindingLevel::kWarning, "little_memlock",
      Format("this user may pin %.1f MiB of memory (RLIMIT_MEMLOCK), and large models need more",
             static_cast<double>(options_.memlock_bytes) / (1 << 20)),
      "a line '* - memlock unlimited' in /etc/security/limits.d/atoll.conf and a new login; "
      "LimitMEMLOCK=infinity in a unit of systemd; --ulimit memlock=-1 for a container");
}

void PcieDoctor::CheckPages(bool by_apex) {
  if (options_.page_bytes == 0 || options_.page_bytes == kSmallPageBytes) return;
  const auto kilobytes = static_cast<unsigned>(options_.page_bytes >> 10);
  if (by_apex) {
    Add(FindingLevel::kError, "large_pages",
        Format("the kernel has pages of %u KiB, and Google's modules need 4 KiB", kilobytes),
        "on a Raspberry Pi 5: kernel=kernel8.img in /boot/firmware/config.txt, then start again");
  } else {
    Add(FindingLevel::kNote, "large_pages",
        Format("the kernel has pages of %u KiB, of which each buffer pins whole ones", kilobytes),
        "");
  }
}

void PcieDoctor::CheckTemperature(int temperature_mc) {
  if (temperature_mc < kWarmMc) return;
  Add(FindingLevel::kWarning, "too_hot",
      Format("it is at %.1f degrees Celsius, and runs at %d MHz instead of 500 until it is cooler",
             temperature_mc / 1000.0, Megahertz(temperature_mc)),
      "give it a heat sink and moving air; from 100 degrees on it switches itself off");
}

// A Coral that Google's kernel modules have.
void PcieDoctor::CheckApex(const ApexDevice& apex, const std::string& name) {
  name_ = name;
  CheckTemperature(apex.temperature_mc);
  CheckPages(/*by_apex=*/true);
  if (!apex.status.empty() && apex.status != "ALIVE") {
    const bool by_interrupts = apex.status == "LAMED";
    Add(FindingLevel::kError, by_interrupts ? "msix_refused" : "gasket_broken",
        Format("its kernel module says that it is %s%s", apex.status.c_str(),
               by_interrupts ? ": the system gave it no MSI-X vectors" : ""),
        Format("as root: echo 1 > /sys/bus/pci/devices/%s/remove; echo 1 > /sys/bus/pci/rescan; "
               "then see 'dmesg | grep -e apex -e gasket'",
               apex.pci_address.empty() ? "ADDRESS" : apex.pci_address.c_str()));
    return;
  }
  if (!IsThere(options_.root + apex.node)) {
    Add(FindingLevel::kError, "gasket_broken",
        "Google's kernel module apex has it, but its node " + apex.node + " is not here",
        "give the container --device " + apex.node +
            "; outside of one, start udev, or mount devtmpfs on /dev");
    return;
  }
  const bool large_pages = options_.page_bytes != 0 && options_.page_bytes != kSmallPageBytes;
  if (!CheckNode(apex.node, apex.node) || large_pages) return;
  Add(FindingLevel::kFine, "usable",
      Format("%s, by Google's kernel modules, can be opened", PcieProductName(kCoralPcieId)), "");
}

}  // namespace

std::vector<Finding> DiagnosePcie(const DiagnosisOptions& options) {
  return PcieDoctor(options).Run();
}

}  // namespace atollrt
