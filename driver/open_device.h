// SPDX-License-Identifier: Apache-2.0
//
// OpenDevice: from a device string to a Device. With open_emulator.h and open_on_bus.cc, all that
// knows which transports there are, and that one of them ends in an emulator. Thread-safe.
// What the strings mean is in docs/devices.md, "Names", and device_name.h.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "driver/coral/session.h"
#include "driver/device/device.h"
#include "driver/device_name.h"
#include "driver/faults/fault_plan.h"
#include "driver/pcie/pcie_bus.h"
#include "driver/usb/usb_bus.h"

namespace atollrt {

struct OpenOptions {
  std::string device = "auto";
  int threads = 0;              // that an emulated device computes with; 0: one per CPU, at most 4
  uint32_t cpu_features = ~0u;  // CpuFeatures that an emulated device may use, for self-tests
  // Where devices on USB and on PCIe are; nullptr: this program was built without.
  std::shared_ptr<UsbBus> usb = {};
  std::shared_ptr<PcieBus> pcie = {};
  // What becomes of requests when a device on a bus, or one with faults, is lost; the stand-in is
  // an emulated device of the same size.
  OnDeviceLoss on_loss = OnDeviceLoss::kFallback;
  // What shall go wrong between the driver and the device (fault_plan.h).
  std::optional<FaultPlan> faults = {};
  // Where to record what goes over the bus (driver/recording), and what to note there: by whom.
  // "": not.
  std::string record = {};
  std::string record_note = {};
  // Of a broker that is there, `auto` takes the device; a broker itself takes its own.
  bool auto_takes_broker = true;
  // Of a Coral: its clock, and the file with its firmware ("": where FindCoralFirmware looks).
  CoralPerformance coral_performance = CoralPerformance::kMax;
  std::string coral_firmware = {};
};

// kInvalidArgument for a string of no known form, kNotFound for a device that is not there, both
// with what to write instead; otherwise the errors of UsbBus::Open, PcieBus::Open,
// Atoll1Chip::Open, OpenCoral, OpenCoralPcie and OpenApex. `auto` that has to leave a device on a
// bus alone says why in DeviceOrigin::note.
Result<std::unique_ptr<Device>> OpenDevice(const OpenOptions& options);

// One device string that could be opened, or why not.
struct DeviceListing {
  std::string name;         // for OpenOptions::device
  std::string description;  // one line
  bool available = false;   // opening it now would find a device
  bool is_default = false;  // `auto` takes this one
};

// What is there now: a broker's device, then real devices, those on USB by port and those on PCIe
// by address, then each profile of the emulator. Opens nothing: a real device that is available may
// still turn out to be busy. `usb` and `pcie` as in OpenOptions.
std::vector<DeviceListing> ListDevices(const std::shared_ptr<UsbBus>& usb,
                                       const std::shared_ptr<PcieBus>& pcie = {});

// OpenOptions::record_note of a recorded session. kNotFound if it cannot be read, kInvalidArgument
// if it is none.
Result<std::string> ReadRecordingNote(const std::string& path);

// One line for people: "emulated Atoll-1, 64x64 at 500 MHz, 8 MiB, USB 3".
std::string DescribeDevice(const DeviceInfo& info);

// For OpenDevice and ListDevices: what is more than an emulator alone. libatoll-core has another
// OpenOnBus, which opens `auto` and refuses the rest (emulator_only.cc).
Result<std::unique_ptr<Device>> OpenOnBus(const DeviceName& name, const OpenOptions& options);
std::vector<DeviceListing> ListOnBus(const std::shared_ptr<UsbBus>& usb,
                                     const std::shared_ptr<PcieBus>& pcie);

}  // namespace atollrt
