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
#include <thread>
#include <type_traits>

#include "driver/atoll1/atoll1_chip.h"
#include "driver/atoll1/ring_session.h"
#include "driver/broker/broker_chip.h"
#include "driver/broker/socket.h"
#include "driver/coral/coral_chip.h"
#include "driver/coral/coral_pcie_chip.h"
#include "driver/device/activity.h"
#include "driver/emulator/emulated_pcie.h"
#include "driver/emulator/emulated_transport.h"
#include "driver/faults/faulty_bus.h"
#include "driver/faults/faulty_pcie_bus.h"
#include "driver/network_module.h"
#include "driver/open_device.h"
#include "driver/open_emulator.h"
#include "driver/pcie/pcie_bus.h"
#include "driver/recording/pcie_recording.h"
#include "driver/recording/pcie_replay.h"
#include "driver/recording/session_text.h"
#include "driver/recording/usb_recording.h"
#include "runtime/base/monotonic.h"

namespace atollrt {
namespace {

constexpr std::string_view kUsbPrefix = "usb:";
constexpr std::string_view kPciPrefix = "pci:";
constexpr uint8_t kAtollInterface = 0;
constexpr std::string_view kVfioDriver = "vfio-pci";
// For bringing a device back that nothing else stands in for.
constexpr std::chrono::seconds kReplayTimeout{30};
// How often a bus is looked at for a device that is not there, if it does not tell.
constexpr std::chrono::milliseconds kLookInterval{100};
// Behind a computer's name, where none is.
constexpr const char* kGrpcPort = ":8001";
// For a broker to say hello.
constexpr std::chrono::seconds kAnswerTimeout{5};
// For opening a device despite the faults that were asked for.
constexpr std::chrono::seconds kFaultyOpenTimeout{30};

// A bus is a UsbBus or a PcieBus. What one has to say of a device, and where it is.
template <typename Bus>
using InfoOf = std::conditional_t<std::is_same_v<Bus, UsbBus>, UsbDeviceInfo, PcieDeviceInfo>;
template <typename Info>
const std::string& PlaceOf(const Info& info) {
  if constexpr (std::is_same_v<Info, UsbDeviceInfo>) {
    return info.path;
  } else {
    return info.address;
  }
}

// What it takes to open one device, and to find it again when it was lost.
template <typename Bus>
struct Opener {
  std::shared_ptr<Bus> bus;
  InfoOf<Bus> info;  // of the device as it was first seen
  DeviceOrigin known;
  Clock::duration patience{};  // with it, when it is opened first
  CoralOptions coral;
};

// Of a device that somebody else has: who, if it is one of this user's programs, and how to share
// it.
Status WithOwner(Status status, const std::string& name) {
  if (status.code() != StatusCode::kDeviceBusy) return status;
  std::string text = status.message();
  for (const Activity& activity : ListActivity(ActivityDirectory(), MonotonicNs())) {
    if (activity.device != name) continue;
    text += Format(" (process %u: %s)", activity.pid, activity.command.c_str());
    break;
  }
  text += "; 'atoll broker --device " + name + "' shares it among programs";
  return {status.code(), std::move(text)};
}

Result<std::unique_ptr<Chip>> OpenOnce(const Opener<UsbBus>& opener, const UsbDeviceInfo& info) {
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
  return WithOwner(std::move(status), opener.known.name).WithContext("device " + opener.known.name);
}

Result<std::unique_ptr<Chip>> OpenOnce(const Opener<PcieBus>& opener, const PcieDeviceInfo& info) {
  Status status;
  if (IsCoral(info.id)) {
    Result<std::unique_ptr<Chip>> chip = OpenCoralPcie(opener.bus.get(), info, opener.coral);
    if (chip.ok()) return chip;
    status = chip.status();
  } else {
    Result<std::unique_ptr<PcieFunction>> function = opener.bus->Open(info);
    if (function.ok()) return OpenAtoll1OnPcie(*std::move(function), opener.known);
    status = function.status();
  }
  return WithOwner(std::move(status), opener.known.name).WithContext("device " + opener.known.name);
}

template <typename Id>
bool IsSameFamily(const Id& a, const Id& b) {
  return IsCoral(a) == IsCoral(b) && IsKnown(b);
}

// The device at the port where it was, or else, if `anywhere`, another of its family, which may be
// the same one at another port. Looks until `deadline`.
template <typename Bus>
Result<std::unique_ptr<Chip>> OpenAgain(const Opener<Bus>& opener, Deadline deadline,
                                        bool anywhere) {
  const auto is_where_it_was = [&](const InfoOf<Bus>& info) {
    return PlaceOf(info) == PlaceOf(opener.info);
  };
  for (;;) {
    const uint64_t generation = opener.bus->generation();
    Result<std::vector<InfoOf<Bus>>> devices = opener.bus->List();
    Status status = devices.status();
    if (devices.ok()) {
      std::stable_partition(devices->begin(), devices->end(), is_where_it_was);
      status = NotFound("it is not on the bus");
      for (const InfoOf<Bus>& info : *devices) {
        if (!IsSameFamily(opener.info.id, info.id)) continue;
        if (!anywhere && !is_where_it_was(info)) continue;
        auto chip = OpenOnce(opener, info);
        if (chip.ok()) return chip;
        // Another one that somebody has, perhaps this program, is no reason.
        if (chip.code() == StatusCode::kDeviceBusy && !is_where_it_was(info)) continue;
        status = chip.status();
      }
    }
    const Deadline now = Clock::now();
    // A recorded session that took another way does not come back to its own.
    if (now >= deadline || status.code() == StatusCode::kInternal) return status;
    opener.bus->WaitForChange(generation, std::min(deadline, now + kLookInterval));
  }
}

std::shared_ptr<UsbBus> WithFaults(std::shared_ptr<UsbBus> bus, const FaultPlan& plan) {
  return std::make_shared<FaultyBus>(std::move(bus), plan, FaultyBus::Options());
}
std::shared_ptr<PcieBus> WithFaults(std::shared_ptr<PcieBus> bus, const FaultPlan& plan) {
  return std::make_shared<FaultyPcieBus>(std::move(bus), plan, FaultyPcieBus::Options());
}
Result<std::shared_ptr<RecordingBus>> Record(std::shared_ptr<UsbBus> bus, const std::string& path) {
  return RecordingBus::Create(std::move(bus), path);
}
Result<std::shared_ptr<RecordingPcieBus>> Record(std::shared_ptr<PcieBus> bus,
                                                 const std::string& path) {
  return RecordingPcieBus::Create(std::move(bus), path);
}

// What a recording has to say of a device so that it can be replayed.
template <typename Bus, typename Recording>
void NoteDevice(const Opener<Bus>& opener, const OpenOptions& options, Recording* recording) {
  recording->Note("session", options.record_note);
  recording->Note("name", opener.known.name);
  recording->Note("place", PlaceOf(opener.info));
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
template <typename Recording>
int64_t NumberNote(const Recording& recording, const char* key, int64_t most = INT32_MAX) {
  const std::string text = recording.Note(key);
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return std::clamp<int64_t>(value, 0, most);
}

Status RefuseFaults(const std::string& name, const OpenOptions& options) {
  if (!options.faults.has_value() && options.record.empty()) return {};
  return Unsupported("faults and recordings are of devices on USB and of PCI functions, not of %s",
                     name.c_str());
}

ChipKeeper::Options RecoveryOptions(const OpenOptions& options) {
  ChipKeeper::Options recovery;
  recovery.activity_directory = ActivityDirectory();
  recovery.on_loss = options.on_loss;
  if (options.on_loss == OnDeviceLoss::kReplay) recovery.recovery_timeout = kReplayTimeout;
  return recovery;
}

// A device that comes back; with faults on its bus, and recorded, if that is wanted.
// `open_stand_in` is the keeper's; without one it is the emulator.
template <typename Bus>
Result<std::unique_ptr<Device>> OpenRecovering(
    Opener<Bus> opener, const OpenOptions& options,
    std::function<Result<std::unique_ptr<Chip>>(const DeviceInfo&)> open_stand_in = {}) {
  Clock::duration patience = opener.patience;
  if (options.faults.has_value()) {
    constexpr FaultBus kBus = std::is_same_v<Bus, UsbBus> ? FaultBus::kUsb : FaultBus::kPcie;
    ATOLL_RETURN_IF_ERROR(CheckSuits(*options.faults, kBus));
    opener.bus = WithFaults(opener.bus, *options.faults);
    patience = kFaultyOpenTimeout;
  }
  if (!options.record.empty()) {
    ATOLL_ASSIGN_OR_RETURN(const auto recording, Record(opener.bus, options.record));
    NoteDevice(opener, options, recording.get());
    opener.bus = recording;
  }
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<Chip> chip, OpenAgain(opener, Clock::now() + patience,
                                                               patience > Clock::duration::zero()));
  ChipKeeper::Options recovery = RecoveryOptions(options);
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

// The device of a recorded session, which went through faults and losses of its own. `bus` is a
// ReplayBus or a ReplayPcieBus.
template <typename Bus, typename Replay>
Result<std::unique_ptr<Device>> OpenReplayOn(std::shared_ptr<Replay> bus,
                                             const OpenOptions& options) {
  const Replay& recording = *bus;
  Opener<Bus> opener;
  opener.bus = bus;
  ATOLL_ASSIGN_OR_RETURN(const std::vector<InfoOf<Bus>> devices, recording.FirstDevices());
  if (devices.empty()) return NotFound("it has no device");
  const std::string place = recording.Note("place");
  const auto found = std::find_if(devices.begin(), devices.end(),
                                  [&](const InfoOf<Bus>& info) { return PlaceOf(info) == place; });
  opener.info = found == devices.end() ? devices.front() : *found;
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

Result<std::unique_ptr<Device>> OpenReplay(const std::string& path, const OpenOptions& options) {
  ATOLL_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, ReadRecording(path));
  const auto open = [&]() -> Result<std::unique_ptr<Device>> {
    if (IsPcieRecording(bytes)) {
      ATOLL_ASSIGN_OR_RETURN(auto bus, ReplayPcieBus::Create(bytes));
      return OpenReplayOn<PcieBus>(std::move(bus), options);
    }
    ATOLL_ASSIGN_OR_RETURN(auto bus, ReplayBus::Create(bytes));
    return OpenReplayOn<UsbBus>(std::move(bus), options);
  };
  Result<std::unique_ptr<Device>> device = open();
  if (device.ok()) return device;
  return Status(device.status()).WithContext(Format("recording '%s'", path.c_str()));
}

// Of "usb:N" and "pci:N": 0 without one.
size_t NumberOf(std::string_view text) {
  size_t number = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  return text.empty() || end.ec == std::errc() ? number : SIZE_MAX;  // beyond all numbers
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
  Opener<UsbBus> opener;
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
  const size_t index = is_path ? 0 : NumberOf(which);
  for (size_t i = 0; i < devices->size(); ++i) {
    if (is_path ? (*devices)[i].path == which : i == index) {
      return OpenUsbDevice((*devices)[i], options);
    }
  }
  std::string there;
  for (const UsbDeviceInfo& info : *devices) there += (there.empty() ? "" : ", ") + UsbName(info);
  return NotFound(
      "no device on USB for '%s' (there is %s; ids are %04x:%04x of an Atoll-1, %04x:%04x and "
      "%04x:%04x of a Coral, as 'lsusb' shows them); plug one in, or use --device emu for the "
      "emulated one",
      device.c_str(), there.empty() ? "none" : there.c_str(), kAtollUsbId.vendor,
      kAtollUsbId.product, kCoralBootUsbId.vendor, kCoralBootUsbId.product, kCoralUsbId.vendor,
      kCoralUsbId.product);
}

// Devices on PCIe: over the bus, or, where the kernel's modules for a Coral have it, over their
// node.

struct OnPcie {
  PcieDeviceInfo info;
  std::string node;  // "/dev/apex_0"; "": none

  std::string name() const { return node.empty() ? std::string(kPciPrefix) + info.address : node; }
  bool available() const { return !node.empty() || info.driver == kVfioDriver; }
};

// Those that this driver knows, in the order of addresses.
Result<std::vector<OnPcie>> ListKnown(PcieBus* bus) {
  std::vector<OnPcie> devices;
  Status status;
  if (bus != nullptr) {
    const auto on_bus = bus->List();
    for (const PcieDeviceInfo& info : on_bus.ok() ? *on_bus : std::vector<PcieDeviceInfo>()) {
      if (IsKnown(info.id)) devices.push_back({info, ""});
    }
    status = on_bus.status();
  } else {
    status = NotFound("this program was built without PCIe; Linux has it");
  }
  for (const ApexDevice& apex : ListApex()) {
    const auto found = std::find_if(devices.begin(), devices.end(), [&](const OnPcie& device) {
      return device.info.address == apex.pci_address;
    });
    if (found != devices.end()) {
      found->node = apex.node;
    } else {
      devices.push_back(
          {{.id = kCoralPcieId, .address = apex.pci_address, .driver = "apex"}, apex.node});
    }
  }
  if (devices.empty() && !status.ok()) return status;
  std::stable_sort(devices.begin(), devices.end(), [](const OnPcie& a, const OnPcie& b) {
    return a.info.address < b.info.address;
  });
  return devices;
}

std::string DescribePcie(const OnPcie& device) {
  const PcieDeviceInfo& info = device.info;
  std::string text = PcieProductName(info.id);
  text += info.link_lanes > 0 && info.link_generation > 0
              ? Format(", gen %u x%u", info.link_generation, info.link_lanes)
              : ", PCIe";
  if (!device.available()) {
    text += info.driver.empty() ? ", without a driver" : ", bound to " + info.driver;
    text += "; 'atoll doctor' says what to do";
  }
  return text;
}

Result<std::unique_ptr<Device>> OpenApexDevice(const std::string& node,
                                               const OpenOptions& options) {
  ATOLL_RETURN_IF_ERROR(RefuseFaults(node, options));
  CoralOptions coral;
  coral.name = node;
  coral.performance = options.coral_performance;
  const auto open = [node, coral](Deadline deadline) -> Result<std::unique_ptr<Chip>> {
    for (;;) {
      Result<std::unique_ptr<Chip>> chip = OpenApex(node, coral);
      if (chip.ok()) return chip;
      const Deadline now = Clock::now();
      if (now >= deadline) return WithOwner(chip.status(), node).WithContext("device " + node);
      std::this_thread::sleep_until(std::min(deadline, now + kLookInterval));
    }
  };
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<Chip> chip, open(Clock::now()));
  ChipKeeper::Options recovery = RecoveryOptions(options);
  recovery.reopen = open;
  return std::make_unique<Device>(std::move(chip), std::move(recovery));
}

Result<std::unique_ptr<Device>> OpenPcieDevice(const OnPcie& device, const OpenOptions& options) {
  if (!device.node.empty()) return OpenApexDevice(device.node, options);
  Opener<PcieBus> opener;
  opener.bus = options.pcie;
  opener.info = device.info;
  opener.known.name = opener.coral.name = device.name();
  opener.coral.performance = options.coral_performance;
  return OpenRecovering(std::move(opener), options);
}

// `which` is what stands behind "pci:": a number, an address, or nothing for the first.
Result<std::unique_ptr<Device>> OpenPcie(const std::string& name, std::string_view which,
                                         const OpenOptions& options) {
  const auto devices = ListKnown(options.pcie.get());
  if (!devices.ok()) {
    return Status(devices.status().code(),
                  Format("no device on PCIe for '%s': %s; or use --device emu:pcie", name.c_str(),
                         devices.status().message().c_str()));
  }
  const std::string address = PciAddressOf(which);
  const size_t index = address.empty() ? NumberOf(which) : 0;
  std::string there;
  for (size_t i = 0; i < devices->size(); ++i) {
    const OnPcie& device = (*devices)[i];
    if (address.empty() ? i == index : device.info.address == address) {
      return OpenPcieDevice(device, options);
    }
    there += (there.empty() ? "" : ", ") + device.name();
  }
  return NotFound(
      "no device on PCIe for '%s' (there is %s; ids are %04x:%04x of an Atoll-1 and %04x:%04x of a "
      "Coral, as 'lspci -nn' shows them); or use --device emu:pcie for an emulated one",
      name.c_str(), there.empty() ? "none" : there.c_str(), kAtollPcieId.vendor,
      kAtollPcieId.device, kCoralPcieId.vendor, kCoralPcieId.device);
}

// With faults on its bus, and recorded, if that is wanted.
Result<std::unique_ptr<Device>> OpenEmulatorOnBus(const DeviceName& name,
                                                  const OpenOptions& options,
                                                  std::string note = {}) {
  ATOLL_ASSIGN_OR_RETURN(const EmulatorSetup setup, SetUpEmulator(name, options, std::move(note)));
  if (!options.faults.has_value() && options.record.empty()) {  // nothing can happen to it
    return OpenEmulator(setup);
  }
  const std::vector<CoreOptions> devices = {setup.core};
  const auto open = [&](auto opener, auto bus) -> Result<std::unique_ptr<Device>> {
    ATOLL_ASSIGN_OR_RETURN(const auto plugged_in, bus->List());
    opener.bus = std::move(bus);
    opener.info = plugged_in.front();
    opener.known = setup.known;
    return OpenRecovering(std::move(opener), options);
  };
  return setup.core.profile.on_pcie
             ? open(Opener<PcieBus>(), std::make_shared<EmulatedPcieBus>(devices))
             : open(Opener<UsbBus>(), std::make_shared<EmulatedBus>(devices));
}

// Looks for a chip that `open_once` opens until `deadline`, as long as it is only not there.
template <typename Open>
Result<std::unique_ptr<Chip>> OpenUntil(Deadline deadline, const Open& open_once) {
  constexpr std::chrono::milliseconds kPause{20};
  for (;;) {
    Result<std::unique_ptr<Chip>> chip =
        open_once(std::max(deadline, Clock::now() + kAnswerTimeout));
    const StatusCode code = chip.status().code();
    const bool is_final = code == StatusCode::kPermissionDenied ||
                          code == StatusCode::kInvalidArgument || code == StatusCode::kUnsupported;
    if (chip.ok() || is_final || Clock::now() + kPause >= deadline) return chip;
    std::this_thread::sleep_for(kPause);
  }
}

// A device that is not on a bus of this computer, and comes back by `reopen`.
Result<std::unique_ptr<Device>> OpenBeyond(
    const OpenOptions& options, bool leaves_at_once,
    const std::function<Result<std::unique_ptr<Chip>>(Deadline)>& reopen) {
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<Chip> chip, reopen(Clock::now()));
  ChipKeeper::Options recovery = RecoveryOptions(options);
  recovery.activity_directory = "";  // what the device does its owner publishes
  if (chip->info().family == DeviceFamily::kAtoll1) {
    recovery.open_stand_in = [info = chip->info(), threads = options.threads] {
      return OpenStandIn(info, threads);
    };
  }
  recovery.leaves_at_once = leaves_at_once;
  recovery.reopen = reopen;
  return std::make_unique<Device>(std::move(chip), std::move(recovery));
}

// The device of another computer. `which`: HOST:PORT; "" says which there are.
Result<std::unique_ptr<Device>> OpenNetwork(std::string_view which, const OpenOptions& options) {
  DeviceOrigin origin;
  origin.name = "grpc://" + std::string(which);
  ATOLL_RETURN_IF_ERROR(RefuseFaults(origin.name, options));
  ATOLL_ASSIGN_OR_RETURN(const NetworkModule* const module, LoadNetworkModule());
  if (which.empty()) {
    constexpr std::chrono::seconds kBrowseTime{2};
    ATOLL_ASSIGN_OR_RETURN(const auto hosts, module->browse(Clock::now() + kBrowseTime));
    std::string text;
    for (const NetworkHost& host : hosts) {
      text += Format("%s grpc://%s (%s)", text.empty() ? "" : ",", host.address.c_str(),
                     host.description.c_str());
    }
    if (text.empty()) {
      return NotFound(
          "no computer of this network announces a device; start 'atoll serve --share-device "
          "--announce' there, or name it: grpc://HOST:PORT");
    }
    return InvalidArgument("choose one, or several with commas between:%s", text.c_str());
  }
  std::string address(which);
  if (address.rfind(':') == address.npos || address.ends_with(']')) address += kGrpcPort;
  return OpenBeyond(options, /*leaves_at_once=*/true, [module, address, origin](Deadline deadline) {
    return OpenUntil(deadline,
                     [&](Deadline until) { return module->open(address, origin, until); });
  });
}

// The device that a broker shares. `which`: its socket, "" the one of this user or computer.
Result<std::unique_ptr<Device>> OpenBroker(std::string_view which, const OpenOptions& options) {
  DeviceOrigin origin;
  origin.name = which.empty() ? "broker" : "broker:" + std::string(which);
  ATOLL_RETURN_IF_ERROR(RefuseFaults(origin.name, options));
  const std::string path = which.empty() ? DefaultBrokerPath() : std::string(which);
  return OpenBeyond(options, /*leaves_at_once=*/false, [path, origin](Deadline deadline) {
    return OpenUntil(deadline,
                     [&](Deadline until) { return BrokerChip::Open(path, origin, until); });
  });
}

// The first Atoll-1 that can be opened: a Coral runs models that were made for it, and no others.
Result<std::unique_ptr<Device>> OpenAuto(const OpenOptions& options) {
  std::string note;
  const auto note_why_not = [&](const Status& status) {
    note += (note.empty() ? "" : "; ") + status.message();
  };
  // Where a broker is, the devices are its own.
  if (options.auto_takes_broker && !options.faults.has_value() && options.record.empty()) {
    auto device = OpenBroker("", options);
    if (device.ok() && (*device)->info().family == DeviceFamily::kAtoll1) return device;
    if (device.status().code() != StatusCode::kNotFound) note_why_not(device.status());
  }
  // Where there is no bus, there is no device on it.
  const auto on_usb = ListKnown(options.usb.get());
  for (const UsbDeviceInfo& info : on_usb.ok() ? *on_usb : std::vector<UsbDeviceInfo>()) {
    if (info.id != kAtollUsbId) continue;
    auto device = OpenUsbDevice(info, options);
    if (device.ok()) return device;
    note_why_not(device.status());
  }
  const auto on_pcie = ListKnown(options.pcie.get());
  for (const OnPcie& there : on_pcie.ok() ? *on_pcie : std::vector<OnPcie>()) {
    if (there.info.id != kAtollPcieId) continue;
    auto device = OpenPcieDevice(there, options);
    if (device.ok()) return device;
    note_why_not(device.status());
  }
  return OpenEmulatorOnBus({DeviceName::Kind::kEmulator}, options, std::move(note));
}

}  // namespace

Result<std::unique_ptr<Chip>> OpenEmulatedOnPcie(const EmulatorSetup& setup) {
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<PcieFunction> function, EmulatedPcie::Create(setup.core));
  return OpenAtoll1OnPcie(std::move(function), setup.known);
}

Result<std::unique_ptr<Device>> OpenOnBus(const DeviceName& name, const OpenOptions& options) {
  switch (name.kind) {
    case DeviceName::Kind::kAuto:
      return OpenAuto(options);
    case DeviceName::Kind::kUsb:
      return OpenUsb(options.device, name.which, options);
    case DeviceName::Kind::kReplay:
      return OpenReplay(std::string(name.which), options);
    case DeviceName::Kind::kPcie:
      return OpenPcie(options.device, name.which, options);
    case DeviceName::Kind::kBroker:
      return OpenBroker(name.which, options);
    case DeviceName::Kind::kNetwork:
      return OpenNetwork(name.which, options);
    case DeviceName::Kind::kApex:
      return OpenApexDevice(std::string(name.which), options);
    default:
      return OpenEmulatorOnBus(name, options);
  }
}

std::vector<DeviceListing> ListOnBus(const std::shared_ptr<UsbBus>& usb,
                                     const std::shared_ptr<PcieBus>& pcie) {
  std::vector<DeviceListing> devices;
  bool has_default = false;
  const auto list = [&](std::string name, std::string description, bool available, bool is_atoll) {
    devices.push_back({.name = std::move(name),
                       .description = std::move(description),
                       .available = available,
                       .is_default = available && is_atoll && !has_default});
    has_default |= devices.back().is_default;
  };
  constexpr std::chrono::seconds kWelcomeTimeout{1};
  const auto broker = BrokerLink::Connect(DefaultBrokerPath(), "", Clock::now() + kWelcomeTimeout);
  if (broker.ok()) {
    const DeviceInfo& info = (*broker)->info();
    list("broker", info.description + ", by the broker at " + DefaultBrokerPath(), true,
         info.family == DeviceFamily::kAtoll1);
  } else if (broker.status().code() != StatusCode::kNotFound) {
    list("broker", broker.status().message(), false, false);
  }
  const auto on_usb = ListKnown(usb.get());
  const size_t before = devices.size();
  for (const UsbDeviceInfo& info : on_usb.ok() ? *on_usb : std::vector<UsbDeviceInfo>()) {
    list(UsbName(info), DescribeUsb(info), true, info.id == kAtollUsbId);
  }
  if (devices.size() == before) {
    list("usb", on_usb.ok() ? "no Atoll-1 device on USB found" : on_usb.status().message(), false,
         false);
  }
  const auto on_pcie = ListKnown(pcie.get());
  for (const OnPcie& device : on_pcie.ok() ? *on_pcie : std::vector<OnPcie>()) {
    list(device.name(), DescribePcie(device), device.available(), device.info.id == kAtollPcieId);
  }
  return devices;
}

Result<std::string> ReadRecordingNote(const std::string& path) {
  ATOLL_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, ReadRecording(path));
  Result<std::string> note = ReadNote(bytes, "session");
  if (note.ok()) return note;
  return Status(note.status()).WithContext(Format("recording '%s'", path.c_str()));
}

}  // namespace atollrt
