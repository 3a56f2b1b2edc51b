// SPDX-License-Identifier: Apache-2.0
//
// The part of OpenDevice that finds devices on buses: USB, recordings, and emulated devices that
// are recorded or that something shall go wrong with.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <functional>
#include <string_view>

#include "driver/atoll1/atoll1_chip.h"
#include "driver/coral/coral_chip.h"
#include "driver/device/activity.h"
#include "driver/emulator/emulated_transport.h"
#include "driver/faults/faulty_bus.h"
#include "driver/open_device.h"
#include "driver/open_emulator.h"
#include "driver/usb/recording.h"

namespace atollrt {
namespace {

constexpr std::string_view kUsbPrefix = "usb:";
constexpr uint8_t kAtollInterface = 0;
// For bringing a device back that nothing else stands in for.
constexpr std::chrono::seconds kReplayTimeout{30};
// How often a bus is looked at for a device that is not there, if it does not tell.
constexpr std::chrono::milliseconds kLookInterval{100};
// For opening a device despite the faults that were asked for.
constexpr std::chrono::seconds kFaultyOpenTimeout{30};

// What it takes to open one device, and to find it again when it was lost.
struct Opener {
  std::shared_ptr<UsbBus> bus;
  UsbDeviceInfo info;  // of the device as it was first seen
  DeviceOrigin known;
  Clock::duration patience{};  // with it, when it is opened first
  CoralOptions coral;
};

Result<std::unique_ptr<Chip>> OpenOnce(const Opener& opener, const UsbDeviceInfo& info) {
  Status status;
  if (IsCoral(info.id)) {
    Result<std::unique_ptr<Chip>> chip = OpenCoral(opener.bus.get(), info, opener.coral);
    if (chip.ok()) return chip;
    status = chip.status();
  } else {
    Result<std::unique_ptr<UsbTransport>> transport = opener.bus->Open(info, kAtollInterface);
    if (transport.ok()) return Atoll1Chip::Open(*std::move(transport), opener.known);
    status = transport.status();
  }
  return std::move(status).WithContext("device " + opener.known.name);
}

bool IsSameFamily(const UsbId& a, const UsbId& b) { return IsCoral(a) == IsCoral(b) && IsKnown(b); }

// The device at the port where it was, or else, if `anywhere`, another of its family, which may be
// the same one at another port. Looks until `deadline`.
Result<std::unique_ptr<Chip>> OpenAgain(const Opener& opener, Deadline deadline, bool anywhere) {
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
        if (!anywhere && info.path != opener.info.path) continue;
        auto chip = OpenOnce(opener, info);
        if (chip.ok()) return chip;
        status = chip.status();
      }
    }
    const Deadline now = Clock::now();
    // A recorded session that took another way does not come back to its own.
    if (now >= deadline || status.code() == StatusCode::kInternal) return status;
    opener.bus->WaitForChange(generation, std::min(deadline, now + kLookInterval));
  }
}

// What a recording has to say of a device so that it can be replayed.
void NoteDevice(const Opener& opener, const OpenOptions& options, RecordingBus* recording) {
  recording->Note("session", options.record_note);
  recording->Note("name", opener.known.name);
  recording->Note("description", opener.known.description);
  recording->Note("emulated", opener.known.emulated ? "1" : "0");
  recording->Note("host_us", Format("%lld", std::llround(opener.known.host_seconds * 1e6)));
  recording->Note("timeout_min_ms",
                  Format("%lld", static_cast<long long>(opener.known.request_timeout_min.count())));
  recording->Note("performance", Format("%d", static_cast<int>(opener.coral.performance)));
  recording->Note("faults", options.faults.has_value() ? "1" : "0");
  recording->Note("on_loss", Format("%d", static_cast<int>(options.on_loss)));
}

// 0 if there is none of that key.
int64_t NumberNote(const ReplayBus& recording, const char* key, int64_t most = INT32_MAX) {
  const std::string text = recording.Note(key);
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return std::clamp<int64_t>(value, 0, most);
}

// A device that comes back; with faults on its bus, and recorded, if that is wanted.
// `open_stand_in` is the keeper's; without one it is the emulator.
Result<std::unique_ptr<Device>> OpenRecovering(
    Opener opener, const OpenOptions& options,
    std::function<Result<std::unique_ptr<Chip>>(const DeviceInfo&)> open_stand_in = {}) {
  Clock::duration patience = opener.patience;
  if (options.faults.has_value()) {
    opener.bus = std::make_shared<FaultyBus>(opener.bus, *options.faults, FaultyBus::Options());
    patience = kFaultyOpenTimeout;
  }
  if (!options.record.empty()) {
    ATOLL_ASSIGN_OR_RETURN(const std::shared_ptr<RecordingBus> recording,
                           RecordingBus::Create(opener.bus, options.record));
    NoteDevice(opener, options, recording.get());
    opener.bus = recording;
  }
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<Chip> chip, OpenAgain(opener, Clock::now() + patience,
                                                               patience > Clock::duration::zero()));
  ChipKeeper::Options recovery;
  recovery.activity_directory = ActivityDirectory();
  recovery.on_loss = options.on_loss;
  if (options.on_loss == OnDeviceLoss::kReplay) recovery.recovery_timeout = kReplayTimeout;
  if (!IsCoral(opener.info.id)) {
    recovery.open_stand_in = [info = chip->info(), threads = options.threads,
                              open_stand_in = std::move(open_stand_in)] {
      return open_stand_in ? open_stand_in(info) : OpenStandIn(info, threads);
    };
  }
  recovery.bus_generation = [bus = opener.bus] { return bus->generation(); };
  recovery.reopen = [opener = std::move(opener)](Deadline deadline) {
    return OpenAgain(opener, deadline, /*anywhere=*/true);
  };
  return std::make_unique<Device>(std::move(chip), std::move(recovery));
}

Result<std::shared_ptr<ReplayBus>> OpenRecording(const std::string& path) {
  ATOLL_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, ReadRecording(path));
  Result<std::shared_ptr<ReplayBus>> bus = ReplayBus::Create(bytes);
  if (!bus.ok()) return Status(bus.status()).WithContext(Format("recording '%s'", path.c_str()));
  return bus;
}

// The device of a recorded session, which went through faults and losses of its own.
Result<std::unique_ptr<Device>> OpenReplay(const std::string& path, const OpenOptions& options) {
  ATOLL_ASSIGN_OR_RETURN(const std::shared_ptr<ReplayBus> bus, OpenRecording(path));
  const ReplayBus& recording = *bus;
  Opener opener;
  opener.bus = bus;
  ATOLL_ASSIGN_OR_RETURN(const std::vector<UsbDeviceInfo> devices, recording.FirstDevices());
  if (devices.empty()) return NotFound("recording '%s' has no device", path.c_str());
  opener.info = devices.front();
  opener.known.name = opener.coral.name = recording.Note("name");
  opener.known.description = recording.Note("description");
  opener.known.emulated = NumberNote(recording, "emulated") != 0;
  opener.known.host_seconds = static_cast<double>(NumberNote(recording, "host_us")) * 1e-6;
  opener.known.request_timeout_min =
      std::chrono::milliseconds(NumberNote(recording, "timeout_min_ms"));
  opener.coral.performance = static_cast<CoralPerformance>(
      NumberNote(recording, "performance", static_cast<int64_t>(CoralPerformance::kMax)));
  OpenOptions as_recorded;
  as_recorded.threads = options.threads;
  as_recorded.on_loss = static_cast<OnDeviceLoss>(
      NumberNote(recording, "on_loss", static_cast<int64_t>(OnDeviceLoss::kFail)));
  if (NumberNote(recording, "faults") != 0) opener.patience = kFaultyOpenTimeout;
  // A session that took another way than its recording must not be completed elsewhere.
  return OpenRecovering(
      std::move(opener), as_recorded,
      [bus, threads = options.threads](const DeviceInfo& info) -> Result<std::unique_ptr<Chip>> {
        ATOLL_RETURN_IF_ERROR(bus->departure());
        return OpenStandIn(info, threads);
      });
}

// Devices on USB.

const char* SpeedName(UsbSpeed speed) {
  constexpr const char* kNames[] = {"USB",
                                    "USB 1, 1.5 Mbit/s",
                                    "USB 1, 12 Mbit/s",
                                    "USB 2, 480 Mbit/s",
                                    "USB 3, 5 Gbit/s",
                                    "USB 3, 10 Gbit/s"};
  return kNames[static_cast<size_t>(speed)];
}

std::string UsbName(const UsbDeviceInfo& info) { return std::string(kUsbPrefix) + info.path; }

std::string DescribeUsb(const UsbDeviceInfo& info) {
  return Format("%s, %s", UsbProductName(info.id), SpeedName(info.speed));
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

// One device on USB, as `options` say.
Result<std::unique_ptr<Device>> OpenUsbDevice(const UsbDeviceInfo& info,
                                              const OpenOptions& options) {
  Opener opener;
  opener.bus = options.usb;
  opener.info = info;
  opener.known.name = opener.coral.name = UsbName(info);
  opener.coral.performance = options.coral_performance;
  opener.coral.firmware = options.coral_firmware;
  return OpenRecovering(std::move(opener), options);
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
      return OpenUsbDevice((*devices)[i], options);
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

// With faults on its bus, and recorded, if that is wanted.
Result<std::unique_ptr<Device>> OpenEmulatorOnBus(const DeviceName& name,
                                                  const OpenOptions& options,
                                                  std::string note = {}) {
  ATOLL_ASSIGN_OR_RETURN(EmulatorSetup setup, SetUpEmulator(name, options, std::move(note)));
  if (!options.faults.has_value() && options.record.empty()) {  // nothing can happen to it
    return OpenEmulator(setup);
  }
  auto bus = std::make_shared<EmulatedBus>(std::vector<CoreOptions>{std::move(setup.core)});
  ATOLL_ASSIGN_OR_RETURN(const std::vector<UsbDeviceInfo> plugged_in, bus->List());
  Opener opener;
  opener.bus = std::move(bus);
  opener.info = plugged_in.front();
  opener.known = std::move(setup.known);
  return OpenRecovering(std::move(opener), options);
}

Result<std::unique_ptr<Device>> OpenAuto(const OpenOptions& options) {
  // Where there is no USB, there is no device on it.
  const auto devices = ListKnown(options.usb.get());
  std::string note;
  for (const UsbDeviceInfo& info : devices.ok() ? *devices : std::vector<UsbDeviceInfo>()) {
    if (info.id != kAtollUsbId) continue;  // it runs models that were made for it, and no others
    auto device = OpenUsbDevice(info, options);
    if (device.ok()) return device;
    note += (note.empty() ? "" : "; ") + device.status().message();
  }
  return OpenEmulatorOnBus({DeviceName::Kind::kEmulator}, options, std::move(note));
}

}  // namespace

Result<std::unique_ptr<Device>> OpenOnBus(const DeviceName& name, const OpenOptions& options) {
  switch (name.kind) {
    case DeviceName::Kind::kAuto:
      return OpenAuto(options);
    case DeviceName::Kind::kUsb:
      return OpenUsb(options.device, name.which, options);
    case DeviceName::Kind::kReplay:
      return OpenReplay(std::string(name.which), options);
    case DeviceName::Kind::kPcie:
      return NotFound(
          "no device on PCIe for '%s': this version drives devices on USB alone; use --device "
          "emu:pcie for an emulated one with the timing of such a link",
          options.device.c_str());
    default:
      return OpenEmulatorOnBus(name, options);
  }
}

std::vector<DeviceListing> ListOnBus(const std::shared_ptr<UsbBus>& usb) {
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
  return devices;
}

Result<std::string> ReadRecordingNote(const std::string& path) {
  ATOLL_ASSIGN_OR_RETURN(const std::shared_ptr<ReplayBus> recording, OpenRecording(path));
  return recording->Note("session");
}

}  // namespace atollrt
