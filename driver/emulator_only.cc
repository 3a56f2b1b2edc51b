// SPDX-License-Identifier: Apache-2.0
//
// What libatoll-core has in place of open_device.cc, fault_plan.cc, the stepped machine and every
// bus: the emulator that computes directly, and nothing else.
#include "driver/emulator/stepped_machine.h"
#include "driver/open_emulator.h"
#include "driver/system_usb_bus.h"

namespace atollrt {
namespace {

constexpr const char* kAbsent =
    "this program was built without USB (libatoll-core); libatoll has it";

Status NoFaultsOrRecordings() {
  return Unsupported(
      "this program was built without faults and recordings (libatoll-core); libatoll has them");
}

}  // namespace

std::shared_ptr<UsbBus> SystemUsbBus() { return nullptr; }

bool HasSteppedMachine() { return false; }
std::unique_ptr<SteppedMachine> MakeSteppedMachine(uint32_t, uint32_t) { return nullptr; }

Result<std::unique_ptr<Device>> OpenDevice(const OpenOptions& options) {
  const std::string& device = options.device;
  if (options.threads < 0) return InvalidArgument("%d threads for a device", options.threads);
  if (options.faults.has_value() || !options.record.empty()) return NoFaultsOrRecordings();
  if (device.find(',') != device.npos && !device.starts_with("replay:")) return OpenGroup(options);
  const auto emulator = device == "auto" ? EmulatorName() : ParseEmulatorName(device);
  if (emulator.has_value()) {
    ATOLL_ASSIGN_OR_RETURN(EmulatorSetup setup, SetUpEmulator(*emulator, options));
    return OpenEmulator(std::move(setup));
  }
  for (const char* known : {"usb", "pci:", "replay:"}) {
    if (!device.starts_with(known)) continue;
    return NotFound("no device for '%s': %s; or use --device emu", device.c_str(), kAbsent);
  }
  return NoSuchDevice(device);
}

std::vector<DeviceListing> ListDevices(const std::shared_ptr<UsbBus>&) {
  std::vector<DeviceListing> devices = ListEmulators(/*has_default=*/true);
  devices.insert(devices.begin(), {.name = "usb", .description = kAbsent});
  return devices;
}

Result<FaultPlan> ReadFaultPlan(const std::string&) { return NoFaultsOrRecordings(); }

Result<std::string> ReadRecordingNote(const std::string& path) {
  return Unsupported("recording '%s': %s", path.c_str(), kAbsent);
}

}  // namespace atollrt
