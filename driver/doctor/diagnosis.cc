// SPDX-License-Identifier: Apache-2.0
#include "driver/doctor/diagnosis.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "driver/doctor/diagnosis_pcie.h"
#include "driver/usb/usb_bus.h"
#include "runtime/base/process_files.h"

namespace atollrt {
namespace {

constexpr int kHighSpeed = 480;  // Mbit/s, as sysfs writes it
constexpr int kSuperSpeed = 5000;
constexpr int kUsb21 = 0x210;       // bcdUSB from which on a device may know USB 3, too
constexpr int kSelfPowered = 0x40;  // bit of bmAttributes

// Files of the kernel.

bool Exists(const std::string& path) {
  struct stat status = {};
  return stat(path.c_str(), &status) == 0;
}

// The first line; "" if there is none.
std::string ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// A number at the beginning of the file; 0 if there is none.
int ReadNumber(const std::string& path, int base) {
  return static_cast<int>(std::strtol(ReadLine(path).c_str(), nullptr, base));
}

// "2.10" as 0x210.
int ReadVersion(const std::string& path) {
  std::string text = ReadLine(path);
  std::erase_if(text, [](char c) { return c == '.' || c == ' '; });
  return static_cast<int>(std::strtol(text.c_str(), nullptr, 16));
}

// One USB device, as sysfs has it.
struct SysfsDevice {
  std::string path;        // "2-3.1", "usb2" for a root hub
  std::vector<int> place;  // its numbers
  UsbId id;
  int bus = 0;
  int address = 0;
  int speed = 0;       // Mbit/s
  int version = 0;     // bcdUSB
  int attributes = 0;  // bmAttributes of its configuration
  int power_ma = 0;    // that it may take from the bus
  std::string node;    // "/dev/bus/usb/002/005"
  bool is_root() const { return path.starts_with("usb"); }
  // "2-3" for "2-3.1", "" for a port of the computer.
  std::string hub() const {
    const size_t dot = path.rfind('.');
    return dot == path.npos ? "" : path.substr(0, dot);
  }
};

std::vector<int> NumbersIn(const std::string& text) {
  std::vector<int> numbers;
  for (size_t i = 0; i < text.size();) {
    if (text[i] < '0' || text[i] > '9') {
      ++i;
      continue;
    }
    char* end = nullptr;
    numbers.push_back(static_cast<int>(std::strtol(text.c_str() + i, &end, 10)));
    i = static_cast<size_t>(end - text.c_str());
  }
  return numbers;
}

std::vector<SysfsDevice> ReadUsb(const std::string& root) {
  const std::string folder = root + "/sys/bus/usb/devices/";
  std::vector<SysfsDevice> devices;
  for (const std::string& name : NamesIn(folder)) {
    const std::string path = folder + name + "/";
    // Interfaces ("2-3:1.0") lie here, too.
    if (name.find(':') != name.npos || !Exists(path + "idVendor")) continue;
    SysfsDevice device;
    device.path = name;
    device.place = NumbersIn(name);
    device.id = {static_cast<uint16_t>(ReadNumber(path + "idVendor", 16)),
                 static_cast<uint16_t>(ReadNumber(path + "idProduct", 16))};
    device.bus = ReadNumber(path + "busnum", 10);
    device.address = ReadNumber(path + "devnum", 10);
    device.speed = ReadNumber(path + "speed", 10);
    device.version = ReadVersion(path + "version");
    device.attributes = ReadNumber(path + "bmAttributes", 16);
    device.power_ma = ReadNumber(path + "bMaxPower", 10);
    device.node = Format("/dev/bus/usb/%03d/%03d", device.bus, device.address);
    devices.push_back(std::move(device));
  }
  std::sort(devices.begin(), devices.end(),
            [](const auto& a, const auto& b) { return a.place < b.place; });
  return devices;
}

// One pass over what there is.
class Doctor {
 public:
  explicit Doctor(const DiagnosisOptions& options)
      : options_(options), usb_(ReadUsb(options.root)), on_pcie_(DiagnosePcie(options)) {}

  std::vector<Finding> Run() {
    CheckUsb();
    for (const SysfsDevice& device : usb_) {
      if (IsKnown(device.id)) CheckDevice(device);
    }
    for (Finding& finding : on_pcie_) findings_.push_back(std::move(finding));
    return std::move(findings_);
  }

 private:
  void Add(FindingLevel level, const char* code, const std::string& device, std::string message,
           std::string fix) {
    findings_.push_back({level, code, device, std::move(message), std::move(fix)});
  }

  void CheckUsb();
  void CheckDevice(const SysfsDevice& device);
  bool CheckAccess(const SysfsDevice& device, const std::string& name);
  void CheckSpeed(const SysfsDevice& device, const std::string& name);
  void CheckPower(const SysfsDevice& device, const std::string& name);

  const DiagnosisOptions& options_;
  const std::vector<SysfsDevice> usb_;
  std::vector<Finding> on_pcie_;
  std::vector<Finding> findings_;
};

void Doctor::CheckUsb() {
  const bool in_container =
      Exists(options_.root + "/.dockerenv") || Exists(options_.root + "/run/.containerenv");
  if (usb_.empty()) {
    Add(FindingLevel::kNote, "no_usb", "", "the kernel shows no USB",
        in_container ? "start the container with --device /dev/bus/usb, on a host with USB" : "");
  } else if (!Exists(options_.root + "/dev/bus/usb")) {
    Add(FindingLevel::kError, "no_nodes", "",
        "there are USB devices, but their nodes in /dev/bus/usb are not here",
        in_container ? "start the container with --device /dev/bus/usb, or with "
                       "-v /dev/bus/usb:/dev/bus/usb --device-cgroup-rule 'c 189:* rmw' for "
                       "devices that come and go"
                     : "start udev, or mount devtmpfs on /dev");
  }
  if (on_pcie_.empty() &&
      std::none_of(usb_.begin(), usb_.end(), [](const auto& d) { return IsKnown(d.id); })) {
    Add(FindingLevel::kNote, "no_device", "",
        Format("no Atoll-1 (%04x:%04x, on PCIe %04x:%04x) or Coral (%04x:%04x, %04x:%04x, on PCIe "
               "%04x:%04x) is plugged in",
               kAtollUsbId.vendor, kAtollUsbId.product, kAtollPcieId.vendor, kAtollPcieId.device,
               kCoralUsbId.vendor, kCoralUsbId.product, kCoralBootUsbId.vendor,
               kCoralBootUsbId.product, kCoralPcieId.vendor, kCoralPcieId.device),
        "plug one in; if it is, try another cable, port and supply of power, and look at 'sudo "
        "dmesg'; a card, at 'lspci -nn'. --device emu needs none");
  }
}

void Doctor::CheckDevice(const SysfsDevice& device) {
  const std::string name = "usb:" + device.path;
  bool usable = CheckAccess(device, name);
  if (device.id == kCoralBootUsbId) {
    const bool found = options_.coral_firmware.ok();
    usable = usable && found;
    Add(found ? FindingLevel::kNote : FindingLevel::kError, "no_firmware", name,
        "it is a Coral whose firmware has not been loaded since it has power",
        found ? "it is loaded when the device is first opened" : options_.coral_firmware.message());
  }
  if (usable) {
    Add(FindingLevel::kFine, "usable", name,
        Format("%s, %d Mbit/s, can be opened", UsbProductName(device.id), device.speed), "");
  }
  CheckSpeed(device, name);
  CheckPower(device, name);
}

// Whether this user may open it and nobody else has it.
bool Doctor::CheckAccess(const SysfsDevice& device, const std::string& name) {
  const std::string node = options_.root + device.node;
  if (!Exists(node)) {
    if (Exists(options_.root + "/dev/bus/usb")) {
      Add(FindingLevel::kError, "no_nodes", name, "its node " + device.node + " is not here",
          "give the container all of /dev/bus/usb: the node is another one each time that the "
          "device comes");
    }
    return false;  // CheckUsb has told
  }
  if (faccessat(AT_FDCWD, node.c_str(), R_OK | W_OK, AT_EACCESS) != 0) {
    Add(FindingLevel::kError, "no_permission", name,
        "this user may not open its node " + device.node,
        PermissionFix(options_.root, "60-atoll.rules", "driver/usb/udev/", "usb",
                      "plug the device in again, so that the rules see it"));
    return false;
  }
  std::vector<ProcessWithFile> holders = ProcessesWithFile(node);
  std::erase_if(holders, [](const ProcessWithFile& process) { return process.pid == getpid(); });
  if (holders.empty()) return true;
  Add(FindingLevel::kError, "busy", name, "process " + ProcessesText(holders) + " has it open",
      "end that process, or use another device");
  return false;
}

void Doctor::CheckSpeed(const SysfsDevice& device, const std::string& name) {
  if (device.speed >= kSuperSpeed || device.speed == 0) return;
  // The firmware decides what a Coral can do; before it is there, that says nothing.
  if (device.id == kCoralBootUsbId) return;
  if (device.speed >= kHighSpeed && device.version < kUsb21) return;  // it knows no better
  const bool has_usb3 = std::any_of(usb_.begin(), usb_.end(), [](const SysfsDevice& other) {
    return other.is_root() && other.speed >= kSuperSpeed;
  });
  const SysfsDevice* slow_hub = nullptr;
  for (const SysfsDevice& hub : usb_) {
    if (hub.path == device.hub() && hub.version < 0x300) slow_hub = &hub;
  }
  std::string fix =
      "use a port of USB 3 and a cable for it: with a USB 2 cable even a blue port "
      "is no faster";
  if (device.speed >= kHighSpeed && !has_usb3) fix = "this computer has no port of USB 3";
  if (device.speed >= kHighSpeed && has_usb3 && slow_hub != nullptr) {
    fix = "plug it into the computer itself, or into a hub of USB 3; the one at " + slow_hub->path +
          " runs at USB 2";
  }
  Add(FindingLevel::kWarning, "slow_link", name,
      Format("it is linked at %d Mbit/s and may be able to do %d", device.speed,
             device.version < kUsb21 ? kHighSpeed : kSuperSpeed),
      std::move(fix));
}

void Doctor::CheckPower(const SysfsDevice& device, const std::string& name) {
  const std::string hub_path = device.hub();
  const auto hub = std::find_if(usb_.begin(), usb_.end(),
                                [&](const SysfsDevice& d) { return d.path == hub_path; });
  if (hub == usb_.end()) return;
  int devices = 0, power_ma = 0;
  for (const SysfsDevice& other : usb_) {
    if (other.hub() != hub_path) continue;
    power_ma += other.power_ma;
    devices += IsKnown(other.id) ? 1 : 0;
  }
  const bool bus_powered = hub->attributes != 0 && (hub->attributes & kSelfPowered) == 0;
  // What a port of the computer gives to all that hangs on it (USB 2.0, 7.2.1; USB 3.2, 11.4.1).
  const int limit_ma = hub->speed >= kSuperSpeed ? 900 : 500;
  if (bus_powered) {
    Add(FindingLevel::kWarning, "hub_power", name,
        Format("the hub at %s takes its power from the bus: %d mA for itself and all behind it, "
               "which ask for %d mA; an accelerator may take 900 mA when it computes",
               hub_path.c_str(), limit_ma, power_ma),
        "use a hub with a power supply of its own, or a port of the computer");
  } else if (devices > 1) {
    Add(FindingLevel::kNote, "hub_power", name,
        Format("%d accelerators share the hub at %s", devices, hub_path.c_str()),
        "if they get lost under load, give each a port of its own: hubs rarely supply 900 mA to "
        "every port");
  }
}

}  // namespace

const char* FindingLevelName(FindingLevel level) {
  constexpr const char* kNames[] = {"fine", "note", "warning", "error"};
  return kNames[static_cast<size_t>(level)];
}

std::string PermissionFix(const std::string& root, const std::string& rules,
                          const std::string& source, const std::string& subsystem,
                          const std::string& then) {
  bool has_rules = false;
  for (const char* folder : {"/etc/udev/rules.d/", "/run/udev/rules.d/", "/usr/lib/udev/rules.d/",
                             "/usr/local/lib/udev/rules.d/", "/lib/udev/rules.d/"}) {
    has_rules = has_rules || Exists(root + folder + rules);
  }
  if (!has_rules) {
    return Format(
        "sudo cp %s%s /etc/udev/rules.d/ && sudo udevadm control --reload && sudo udevadm trigger "
        "--subsystem-match=%s",
        source.c_str(), rules.c_str(), subsystem.c_str());
  }
  bool in_group = false;
  if (const group* plugdev = getgrnam("plugdev"); plugdev != nullptr) {
    std::vector<gid_t> groups(static_cast<size_t>(std::max(getgroups(0, nullptr), 0)));
    if (getgroups(static_cast<int>(groups.size()), groups.data()) < 0) groups.clear();
    groups.push_back(getegid());
    in_group = std::find(groups.begin(), groups.end(), plugdev->gr_gid) != groups.end();
  }
  return in_group ? then : "sudo usermod -aG plugdev $USER, then log in again";
}

DiagnosisOptions OnThisComputer(DiagnosisOptions options) {
  options.page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  rlimit limit = {};
  if (geteuid() != 0 && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    options.memlock_bytes = limit.rlim_cur;
  }
  return options;
}

std::vector<Finding> Diagnose(const DiagnosisOptions& options) { return Doctor(options).Run(); }

}  // namespace atollrt
