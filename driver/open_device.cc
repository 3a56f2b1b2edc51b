// SPDX-License-Identifier: Apache-2.0
#include "driver/open_device.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <functional>
#include <optional>
#include <string_view>

#include "driver/activity.h"
#include "driver/coral/open_coral.h"
#include "driver/device_profile.h"
#include "driver/emulator/emulated_bus.h"
#include "driver/emulator/emulated_transport.h"
#include "driver/faulty_bus.h"
#include "driver/recovering_device.h"
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
// How often a bus is looked at for a device that is not there, if it does not tell.
constexpr std::chrono::milliseconds kLookInterval{100};
// For opening a device despite the faults that were asked for.
constexpr std::chrono::seconds kFaultyOpenTimeout{30};

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

// What it takes to open one device, and to find it again when it was lost.
struct Opener {
  std::shared_ptr<UsbBus> bus;
  UsbDeviceInfo info;  // of the device as it was first seen
  std::function<Result<std::unique_ptr<Device>>(UsbBus&, const UsbDeviceInfo&)> open;
};

bool IsSameFamily(const UsbId& a, const UsbId& b) { return IsCoral(a) == IsCoral(b) && IsKnown(b); }

// The device at the port where it was, or else another of its family, which may be the same one at
// another port. Looks until `deadline`.
Result<std::unique_ptr<Device>> OpenAgain(const Opener& opener, Deadline deadline) {
  for (;;) {
    const uint64_t generation = opener.bus->generation();
    Result<std::vector<UsbDeviceInfo>> devices = opener.bus->List();
    Status status = devices.status();
    if (devices.ok()) {
      std::stable_partition(devices->begin(), devices->end(), [&](const UsbDeviceInfo& info) {
        return info.path == opener.info.path;
      });
      status = NotFound("it is not on the bus");
      for (const UsbDeviceInfo& info : *devices) {
        if (!IsSameFamily(opener.info.id, info.id)) continue;
        auto device = opener.open(*opener.bus, info);
        if (device.ok()) return device;
        status = device.status();
      }
    }
    const Deadline now = Clock::now();
    if (now >= deadline) return status;
    opener.bus->WaitForChange(generation, std::min(deadline, now + kLookInterval));
  }
}

DeviceProfile StandInFor(const DeviceInfo& info) {
  DeviceProfile profile;
  profile.name = "stand-in";
  profile.summary = "a stand-in";
  profile.array_rows = info.array_rows;
  profile.array_columns = info.array_columns;
  profile.clock_hz = info.clock_hz;
  profile.memory_bytes = info.memory_bytes;
  profile.program_memory_bytes = info.program_memory_bytes;
  profile.link_bytes_per_second = info.link_bytes_per_second;
  profile.host_seconds = info.host_seconds;
  return profile;
}

UsbDevice::Options EmulatorOptions(const DeviceProfile& profile, Face face) {
  UsbDevice::Options options;
  options.description = EmulatorDescription(profile, face);
  options.activity_directory = ActivityDirectory();
  options.request_timeout_min = face == Face::kStepped ? kSteppedTimeout : kDirectTimeout;
  options.host_seconds = profile.host_seconds;
  return options;
}

Result<CoreOptions> EmulatedCore(DeviceProfile profile, Face face, int threads) {
  CoreOptions core{.profile = std::move(profile), .face = face};
  ATOLL_ASSIGN_OR_RETURN(core.features, DetectCpuFeatures());
  core.threads = threads > 0 ? threads : std::min(GetHostCpus().cores, kDefaultThreadsMax);
  return core;
}

Result<std::unique_ptr<Device>> OpenStandIn(const DeviceInfo& info, int threads) {
  ATOLL_ASSIGN_OR_RETURN(const CoreOptions core,
                         EmulatedCore(StandInFor(info), Face::kDirect, threads));
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<UsbTransport> transport, EmulatedTransport::Create(core));
  UsbDevice::Options options = EmulatorOptions(core.profile, Face::kDirect);
  options.name = std::string(kEmulator);
  return UsbDevice::Open(std::move(transport), std::move(options));
}

// A device that comes back: with faults on the bus, if any are wanted.
Result<std::unique_ptr<Device>> OpenRecovering(Opener opener, const OpenOptions& options) {
  Result<std::unique_ptr<Device>> device = NotFound("never opened");
  if (options.faults.has_value()) {
    opener.bus = std::make_shared<FaultyBus>(opener.bus, *options.faults, FaultyBus::Options());
    device = OpenAgain(opener, Clock::now() + kFaultyOpenTimeout);
  } else {
    device = opener.open(*opener.bus, opener.info);
  }
  if (!device.ok()) return device;
  RecoveringDevice::Options recovery;
  recovery.on_loss = options.on_loss;
  if (!IsCoral(opener.info.id)) {
    recovery.open_fallback = [info = (*device)->info(), threads = options.threads] {
      return OpenStandIn(info, threads);
    };
  }
  recovery.bus_generation = [bus = opener.bus] { return bus->generation(); };
  recovery.reopen = [opener = std::move(opener)](Deadline deadline) {
    return OpenAgain(opener, deadline);
  };
  return std::unique_ptr<Device>(
      std::make_unique<RecoveringDevice>(*std::move(device), std::move(recovery)));
}

// `note` is DeviceInfo::note.
Result<std::unique_ptr<Device>> OpenEmulator(const EmulatorName& name, const OpenOptions& options,
                                             std::string note = {}) {
  ATOLL_ASSIGN_OR_RETURN(DeviceProfile profile, FindDeviceProfile(name.profile));
  ATOLL_ASSIGN_OR_RETURN(const CoreOptions core,
                         EmulatedCore(std::move(profile), name.face, options.threads));
  UsbDevice::Options device = EmulatorOptions(core.profile, name.face);
  device.name = name.profile.empty() ? std::string(kEmulator)
                                     : std::string(kEmulatorPrefix) + core.profile.name;
  if (name.face == Face::kStepped) device.name += kSteppedSuffix;
  device.note = std::move(note);
  if (!options.faults.has_value()) {  // then nothing can happen to it
    ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<UsbTransport> transport,
                           EmulatedTransport::Create(core));
    return UsbDevice::Open(std::move(transport), std::move(device));
  }
  Opener opener;
  opener.bus = std::make_shared<EmulatedBus>(std::vector<CoreOptions>{core});
  ATOLL_ASSIGN_OR_RETURN(const std::vector<UsbDeviceInfo> plugged_in, opener.bus->List());
  opener.info = plugged_in.front();
  opener.open = [device](UsbBus& bus,
                         const UsbDeviceInfo& info) -> Result<std::unique_ptr<Device>> {
    ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<UsbTransport> transport,
                           bus.Open(info, kAtollInterface));
    return UsbDevice::Open(std::move(transport), device);
  };
  return OpenRecovering(std::move(opener), options);
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

Result<std::unique_ptr<Device>> OpenCoralDevice(UsbBus& bus, const UsbDeviceInfo& info,
                                                CoralOptions coral) {
  coral.name = UsbName(info);
  Result<std::unique_ptr<Chip>> chip = OpenCoral(&bus, info, coral);
  if (!chip.ok()) return Status(chip.status()).WithContext("device " + coral.name);
  UsbDevice::Options options;
  options.activity_directory = ActivityDirectory();
  return std::unique_ptr<Device>(std::make_unique<UsbDevice>(*std::move(chip), std::move(options)));
}

Result<std::unique_ptr<Device>> OpenAtollDevice(UsbBus& bus, const UsbDeviceInfo& info) {
  const std::string name = UsbName(info);
  Result<std::unique_ptr<UsbTransport>> transport = bus.Open(info, kAtollInterface);
  if (!transport.ok()) return Status(transport.status()).WithContext("device " + name);
  UsbDevice::Options options;
  options.name = name;
  options.activity_directory = ActivityDirectory();
  return UsbDevice::Open(*std::move(transport), std::move(options));
}

// Opens one device on USB as `options` say, any number of times.
Opener UsbOpener(const UsbDeviceInfo& info, const OpenOptions& options) {
  const CoralOptions coral{.performance = options.coral_performance,
                           .firmware = options.coral_firmware};
  return {options.usb, info, [coral](UsbBus& bus, const UsbDeviceInfo& found) {
            return IsCoral(found.id) ? OpenCoralDevice(bus, found, coral)
                                     : OpenAtollDevice(bus, found);
          }};
}

// `which` is what stands behind "usb:": a number, a path, or nothing for the first.
Result<std::unique_ptr<Device>> OpenUsb(const std::string& device, std::string_view which,
                                        const OpenOptions& options) {
  const auto devices = ListKnown(options.usb.get());
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
      return OpenRecovering(UsbOpener((*devices)[i], options), options);
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
    auto device = OpenRecovering(UsbOpener(info, options), options);
    if (device.ok()) return device;
    note += (note.empty() ? "" : "; ") + device.status().message();
  }
  return OpenEmulator({}, options, std::move(note));
}

}  // namespace

Result<std::unique_ptr<Device>> OpenDevice(const OpenOptions& options) {
  const std::string& device = options.device;
  if (options.threads < 0) return InvalidArgument("%d threads for a device", options.threads);
  if (device == "auto") return OpenAuto(options);
  if (const auto emulator = ParseEmulatorName(device)) {
    return OpenEmulator(*emulator, options);
  }
  if (device == "usb") return OpenUsb(device, {}, options);
  if (IsNumbered(device, kUsbPrefix) || IsPath(device, kUsbPrefix)) {
    return OpenUsb(device, std::string_view(device).substr(kUsbPrefix.size()), options);
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
                       .available = true,
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
