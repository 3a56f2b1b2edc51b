// SPDX-License-Identifier: Apache-2.0
#include "driver/open_device.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <string_view>

#include "driver/activity.h"
#include "driver/device_profile.h"
#include "driver/emulator/emulated_transport.h"
#include "driver/usb_device.h"
#include "driver/usb_ids.h"
#include "runtime/base/host_cpus.h"

namespace atollrt {
namespace {

constexpr std::string_view kEmulator = "emu";
constexpr std::string_view kEmulatorPrefix = "emu:";
constexpr std::string_view kSteppedSuffix = "+stepped";
constexpr std::string_view kUsbPrefix = "usb:";
constexpr uint8_t kAtollInterface = 0;
// For a request to the emulator. How long that takes is up to the host: seconds for a large picture
// on a slow one, minutes if the emulator steps.
constexpr std::chrono::minutes kDirectTimeout{10};
constexpr std::chrono::hours kSteppedTimeout{24};
constexpr int kDefaultThreadsMax = 4;

// Matches "usb:12" and the like for a given prefix "usb:".
bool IsNumbered(std::string_view text, std::string_view prefix) {
  if (!text.starts_with(prefix) || text.size() == prefix.size()) return false;
  text.remove_prefix(prefix.size());
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Matches "usb:2-3.1" and the like.
bool IsPath(std::string_view text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  const size_t dash = text.find('-');
  if (dash == text.npos || !IsNumbered(text.substr(0, dash), "")) return false;
  for (text.remove_prefix(dash + 1);; text.remove_prefix(text.find('.') + 1)) {
    if (!IsNumbered(text.substr(0, text.find('.')), "")) return false;
    if (text.find('.') == text.npos) return true;
  }
}

// What a device string says of an emulator.
struct EmulatorName {
  std::string_view profile;  // "": the default
  Face face = Face::kDirect;
};

// Nothing if it is no emulator's.
std::optional<EmulatorName> ParseEmulatorName(std::string_view device) {
  EmulatorName name;
  if (device.ends_with(kSteppedSuffix)) {
    name.face = Face::kStepped;
    device.remove_suffix(kSteppedSuffix.size());
  }
  if (device == kEmulator) return name;
  if (!device.starts_with(kEmulatorPrefix) || device.size() == kEmulatorPrefix.size()) return {};
  name.profile = device.substr(kEmulatorPrefix.size());
  return name;
}

std::string EmulatorDescription(const DeviceProfile& profile, Face face) {
  return "emulated Atoll-1, " + profile.summary +
         (face == Face::kStepped ? ", cycle by cycle: 30 to 200 times slower" : "");
}

// `note` is DeviceInfo::note.
Result<std::unique_ptr<Device>> OpenEmulator(const EmulatorName& name, int threads,
                                             std::string note = {}) {
  CoreOptions core;
  ATOLL_ASSIGN_OR_RETURN(core.profile, FindDeviceProfile(name.profile));
  core.face = name.face;
  ATOLL_ASSIGN_OR_RETURN(core.features, DetectCpuFeatures());
  core.threads = threads > 0 ? threads : std::min(GetHostCpus().cores, kDefaultThreadsMax);
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<UsbTransport> transport, EmulatedTransport::Create(core));
  UsbDevice::Options options;
  options.name = name.profile.empty() ? std::string(kEmulator)
                                      : std::string(kEmulatorPrefix) + core.profile.name;
  options.description = EmulatorDescription(core.profile, name.face);
  options.note = std::move(note);
  options.activity_directory = ActivityDirectory();
  if (name.face == Face::kStepped) {
    options.name += kSteppedSuffix;
  }
  options.request_timeout_min = name.face == Face::kStepped ? kSteppedTimeout : kDirectTimeout;
  options.host_seconds = core.profile.host_seconds;
  return UsbDevice::Open(std::move(transport), std::move(options));
}

// Devices on USB.

const char* SpeedName(UsbSpeed speed) {
  switch (speed) {
    case UsbSpeed::kLow:
      return "USB 1, 1.5 Mbit/s";
    case UsbSpeed::kFull:
      return "USB 1, 12 Mbit/s";
    case UsbSpeed::kHigh:
      return "USB 2, 480 Mbit/s";
    case UsbSpeed::kSuper:
      return "USB 3, 5 Gbit/s";
    case UsbSpeed::kSuperPlus:
      return "USB 3, 10 Gbit/s";
    case UsbSpeed::kUnknown:
      break;
  }
  return "USB";
}

std::string UsbName(const UsbDeviceInfo& info) { return std::string(kUsbPrefix) + info.path; }

std::string DescribeUsb(const UsbDeviceInfo& info) {
  const char* kind = "Atoll-1";
  if (info.id == kCoralUsbId) kind = "Coral USB Accelerator";
  if (info.id == kCoralBootUsbId) kind = "Coral USB Accelerator without firmware";
  return Format("%s, %s", kind, SpeedName(info.speed));
}

// Those that this driver knows.
Result<std::vector<UsbDeviceInfo>> ListKnown(UsbBus* bus) {
  if (bus == nullptr) {
    return NotFound("this program was built without USB (libatoll-core); libatoll has it");
  }
  ATOLL_ASSIGN_OR_RETURN(std::vector<UsbDeviceInfo> devices, bus->List());
  std::erase_if(devices, [](const UsbDeviceInfo& info) { return !IsKnown(info.id); });
  return devices;
}

Result<std::unique_ptr<Device>> OpenUsbDevice(UsbBus* bus, const UsbDeviceInfo& info) {
  const std::string name = UsbName(info);
  if (IsCoral(info.id)) {
    return Unsupported("device %s is a Coral, which this version does not drive; use --device emu",
                       name.c_str());
  }
  Result<std::unique_ptr<UsbTransport>> transport = bus->Open(info, kAtollInterface);
  if (!transport.ok()) return Status(transport.status()).WithContext("device " + name);
  UsbDevice::Options options;
  options.name = name;
  options.activity_directory = ActivityDirectory();
  return UsbDevice::Open(*std::move(transport), std::move(options));
}

// `which` is what stands behind "usb:": a number, a path, or nothing for the first.
Result<std::unique_ptr<Device>> OpenUsb(const std::string& device, std::string_view which,
                                        UsbBus* bus) {
  const auto devices = ListKnown(bus);
  if (!devices.ok()) {
    return Status(devices.status().code(),
                  Format("no device on USB for '%s': %s; or use --device emu", device.c_str(),
                         devices.status().message().c_str()));
  }
  const bool is_path = which.find('-') != which.npos;
  size_t index = 0;
  if (!is_path && !which.empty()) {
    const auto end = std::from_chars(which.data(), which.data() + which.size(), index);
    if (end.ec != std::errc()) index = devices->size();  // beyond all numbers
  }
  for (size_t i = 0; i < devices->size(); ++i) {
    if (is_path ? (*devices)[i].path == which : i == index) {
      return OpenUsbDevice(bus, (*devices)[i]);
    }
  }
  std::string there;
  for (const UsbDeviceInfo& info : *devices) there += (there.empty() ? "" : ", ") + UsbName(info);
  return NotFound(
      "no device on USB for '%s' (there is %s; ids of an Atoll-1 are %04x:%04x); plug one in, or "
      "use --device emu for the emulated one",
      device.c_str(), there.empty() ? "none" : there.c_str(), kAtollUsbId.vendor,
      kAtollUsbId.product);
}

Result<std::unique_ptr<Device>> OpenAuto(const OpenOptions& options) {
  // Where there is no USB, there is no device on it.
  const auto devices = ListKnown(options.usb.get());
  std::string note;
  for (const UsbDeviceInfo& info : devices.ok() ? *devices : std::vector<UsbDeviceInfo>()) {
    if (info.id != kAtollUsbId) continue;  // it runs models that were made for it, and no others
    auto device = OpenUsbDevice(options.usb.get(), info);
    if (device.ok()) return device;
    note += (note.empty() ? "" : "; ") + device.status().message();
  }
  return OpenEmulator({}, options.threads, std::move(note));
}

}  // namespace

Result<std::unique_ptr<Device>> OpenDevice(const OpenOptions& options) {
  const std::string& device = options.device;
  if (options.threads < 0) return InvalidArgument("%d threads for a device", options.threads);
  if (device == "auto") return OpenAuto(options);
  if (const auto emulator = ParseEmulatorName(device)) {
    return OpenEmulator(*emulator, options.threads);
  }
  if (device == "usb") return OpenUsb(device, {}, options.usb.get());
  if (IsNumbered(device, kUsbPrefix) || IsPath(device, kUsbPrefix)) {
    return OpenUsb(device, std::string_view(device).substr(kUsbPrefix.size()), options.usb.get());
  }
  if (IsNumbered(device, "pci:")) {
    return NotFound(
        "no Atoll-1 device on PCIe for '%s'; use --device emu:pcie for an emulated one with the "
        "timing of such a link",
        device.c_str());
  }
  return InvalidArgument(
      "'%s' is no device; write auto, usb, usb:N, usb:BUS-PORT, pci:N, emu or emu:PROFILE, the "
      "last two with or without +stepped (N counts from 0; usb:2-3.1 is a port as 'atoll devices' "
      "writes it; a PROFILE is a name of 'atoll devices' or the path of a .json file)",
      device.c_str());
}

std::vector<DeviceListing> ListDevices(const std::shared_ptr<UsbBus>& usb) {
  std::vector<DeviceListing> devices;
  bool has_default = false;
  const auto on_usb = ListKnown(usb.get());
  for (const UsbDeviceInfo& info : on_usb.ok() ? *on_usb : std::vector<UsbDeviceInfo>()) {
    const bool is_atoll = info.id == kAtollUsbId;
    devices.push_back({.name = UsbName(info),
                       .description = DescribeUsb(info),
                       .available = is_atoll,
                       .is_default = is_atoll && !has_default});
    has_default |= is_atoll;
  }
  if (devices.empty()) {
    devices.push_back({.name = "usb",
                       .description = on_usb.ok() ? "no Atoll-1 device on USB found"
                                                  : on_usb.status().message()});
  }
  for (const DeviceProfile& profile : DeviceProfiles()) {
    const bool is_first = &profile == DeviceProfiles().data();
    devices.push_back(
        {.name = is_first ? std::string(kEmulator) : std::string(kEmulatorPrefix) + profile.name,
         .description = EmulatorDescription(profile, Face::kDirect),
         .available = true,
         .is_default = is_first && !has_default});
  }
  devices.push_back({.name = std::string(kEmulator) += kSteppedSuffix,
                     .description = EmulatorDescription(DeviceProfiles().front(), Face::kStepped),
                     .available = true});
  return devices;
}

std::string DescribeDevice(const DeviceInfo& info) {
  if (!info.description.empty()) return info.description;
  return Format("Atoll-1, %ux%u at %llu MHz, %llu KiB, link %llu MB/s", info.array_rows,
                info.array_columns, static_cast<unsigned long long>(info.clock_hz / 1'000'000),
                static_cast<unsigned long long>(info.memory_bytes / 1024),
                static_cast<unsigned long long>(info.link_bytes_per_second / 1'000'000));
}

}  // namespace atollrt
