// SPDX-License-Identifier: Apache-2.0
//
// What libatoll-core has in place of open_device.cc, fault_plan.cc, the stepped machine and every
// bus: the emulator that computes directly, and nothing else.
#include "driver/emulator/stepped_machine.h"
#include "driver/open_emulator.h"
#include "driver/usb/system_usb_bus.h"

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
std::unique_ptr<SteppedMachine> MakeSteppedMachine(const SteppedMachineOptions&) { return nullptr; }

Result<std::unique_ptr<Device>> OpenDevice(const OpenOptions& options) {
  if (options.threads < 0) return InvalidArgument("%d threads for a device", options.threads);
  if (options.faults.has_value() || !options.record.empty()) return NoFaultsOrRecordings();
  ATOLL_ASSIGN_OR_RETURN(const DeviceName name, ParseDeviceName(options.device));
  switch (name.kind) {
    case DeviceName::Kind::kCpu:
      return CpuIsNoDevice();
    case DeviceName::Kind::kGroup:
      return OpenGroup(name, options);
    case DeviceName::Kind::kAuto:
    case DeviceName::Kind::kEmulator: {
      ATOLL_ASSIGN_OR_RETURN(const EmulatorSetup setup, SetUpEmulator(name, options));
      return OpenEmulator(setup);
    }
    default:
      break;
  }
  return NotFound("no device for '%s': %s; or use --device emu", options.device.c_str(), kAbsent);
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
