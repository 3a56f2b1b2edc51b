// SPDX-License-Identifier: Apache-2.0
#include "driver/open_device.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>

#include "driver/activity.h"
#include "driver/device_profile.h"
#include "driver/emulator/emulated_transport.h"
#include "driver/protocol.h"
#include "driver/usb_device.h"
#include "runtime/base/host_cpus.h"

namespace atollrt {
namespace {

constexpr std::string_view kEmulator = "emu";
constexpr std::string_view kEmulatorPrefix = "emu:";
constexpr std::string_view kSteppedSuffix = "+stepped";
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

Result<std::unique_ptr<Device>> OpenEmulator(const EmulatorName& name, int threads) {
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
  options.activity_directory = ActivityDirectory();
  if (name.face == Face::kStepped) {
    options.name += kSteppedSuffix;
  }
  options.request_timeout_min = name.face == Face::kStepped ? kSteppedTimeout : kDirectTimeout;
  options.host_seconds = core.profile.host_seconds;
  return UsbDevice::Open(std::move(transport), std::move(options));
}

// Where a transport over libusb will look.
Result<std::unique_ptr<Device>> OpenUsb(const std::string& device) {
  return NotFound(
      "no Atoll-1 device on USB for '%s' (ids %04x:%04x); plug one in, or use --device emu for the "
      "emulated one",
      device.c_str(), kAtollVendorId, kAtollProductId);
}

}  // namespace

Result<std::unique_ptr<Device>> OpenDevice(const OpenOptions& options) {
  const std::string& device = options.device;
  if (options.threads < 0) return InvalidArgument("%d threads for a device", options.threads);
  if (device == "auto") return OpenEmulator({}, options.threads);
  if (const auto emulator = ParseEmulatorName(device)) {
    return OpenEmulator(*emulator, options.threads);
  }
  if (device == "usb" || IsNumbered(device, "usb:")) return OpenUsb(device);
  if (IsNumbered(device, "pci:")) {
    return NotFound(
        "no Atoll-1 device on PCIe for '%s'; use --device emu:pcie for an emulated one with the "
        "timing of such a link",
        device.c_str());
  }
  return InvalidArgument(
      "'%s' is no device; write auto, usb, usb:N, pci:N, emu or emu:PROFILE, the last two with or "
      "without +stepped (N counts from 0; a PROFILE is a name of 'atoll devices' or the path of a "
      ".json file)",
      device.c_str());
}

std::vector<DeviceListing> ListDevices() {
  std::vector<DeviceListing> devices = {
      {.name = "usb", .description = "no Atoll-1 device on USB found"}};
  for (const DeviceProfile& profile : DeviceProfiles()) {
    const bool is_default = &profile == DeviceProfiles().data();
    devices.push_back(
        {.name = is_default ? std::string(kEmulator) : std::string(kEmulatorPrefix) + profile.name,
         .description = EmulatorDescription(profile, Face::kDirect),
         .available = true,
         .is_default = is_default});
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
