// SPDX-License-Identifier: Apache-2.0
//
// What libatoll-core has in place of open_on_bus.cc, fault_plan.cc, the stepped machine and every
// bus: the emulator that computes directly, and nothing else.
#include "driver/emulator/stepped_machine.h"
#include "driver/open_emulator.h"
#include "driver/pcie/pcie_bus.h"
#include "driver/usb/usb_bus.h"

namespace atollrt {
namespace {

constexpr const char* kAbsent =
    "this program was built without USB and PCIe (libatoll-core); libatoll has them";

constexpr const char* kNoFaults =
    "this program was built without faults and recordings (libatoll-core); libatoll has them";

}  // namespace

std::shared_ptr<UsbBus> SystemUsbBus() { return nullptr; }
std::shared_ptr<PcieBus> SystemPcieBus() { return nullptr; }

// As none of them can be opened, it does not matter which are right.
std::optional<Result<DeviceName>> ParsePcieName(std::string_view text) {
  if (!text.starts_with("pci") && !text.starts_with("/dev/apex")) return std::nullopt;
  return DeviceName{DeviceName::Kind::kPcie, text};
}

bool HasSteppedMachine() { return false; }
std::unique_ptr<SteppedMachine> MakeSteppedMachine(const SteppedMachineOptions&) { return nullptr; }

Result<std::unique_ptr<Device>> OpenOnBus(const DeviceName& name, const OpenOptions& options) {
  if (options.faults.has_value() || !options.record.empty()) return Unsupported("%s", kNoFaults);
  if (name.kind != DeviceName::Kind::kAuto) {
    return NotFound("no device for '%s': %s; or use --device emu", options.device.c_str(), kAbsent);
  }
  ATOLL_ASSIGN_OR_RETURN(const EmulatorSetup setup, SetUpEmulator(name, options));
  return OpenEmulator(setup);
}

std::vector<DeviceListing> ListOnBus(const std::shared_ptr<UsbBus>&,
                                     const std::shared_ptr<PcieBus>&) {
  return {{.name = "usb", .description = kAbsent}};
}

Result<std::unique_ptr<Chip>> OpenEmulatedOnPcie(const EmulatorSetup& setup) {
  return OpenEmulatedOnUsb(setup);
}

Result<FaultPlan> ReadFaultPlan(const std::string&) { return Unsupported("%s", kNoFaults); }

Result<std::string> ReadRecordingNote(const std::string& path) {
  return Unsupported("recording '%s': %s", path.c_str(), kAbsent);
}

}  // namespace atollrt
