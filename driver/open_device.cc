// SPDX-License-Identifier: Apache-2.0
#include "driver/open_device.h"

#include <algorithm>
#include <utility>

#include "driver/open_emulator.h"

namespace atollrt {
namespace {

// "emu,emu": those of the list as one.
Result<std::unique_ptr<Device>> OpenGroup(const DeviceName& name, const OpenOptions& options) {
  if (!options.record.empty()) {
    return InvalidArgument("a recording is of one device, not of '%s'", options.device.c_str());
  }
  std::vector<std::unique_ptr<Device>> devices;
  OpenOptions one = options;
  for (const std::string_view member : name.members) {
    one.device = std::string(member);
    ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, OpenDevice(one));
    devices.push_back(std::move(device));
  }
  return Device::Join(std::move(devices));
}

}  // namespace

Result<std::unique_ptr<Device>> OpenDevice(const OpenOptions& options) {
  if (options.threads < 0) return InvalidArgument("%d threads for a device", options.threads);
  ATOLL_ASSIGN_OR_RETURN(const DeviceName name, ParseDeviceName(options.device));
  if (name.kind == DeviceName::Kind::kCpu) {
    return InvalidArgument("'cpu' is this computer's CPU and no device to open; 'emu' is one");
  }
  if (name.kind == DeviceName::Kind::kGroup) return OpenGroup(name, options);
  const bool all_goes_well = !options.faults.has_value() && options.record.empty();
  if (name.kind != DeviceName::Kind::kEmulator || !all_goes_well) return OpenOnBus(name, options);
  ATOLL_ASSIGN_OR_RETURN(const EmulatorSetup setup, SetUpEmulator(name, options));
  return OpenEmulator(setup);
}

std::vector<DeviceListing> ListDevices(const std::shared_ptr<UsbBus>& usb,
                                       const std::shared_ptr<PcieBus>& pcie) {
  std::vector<DeviceListing> devices = ListOnBus(usb, pcie);
  const bool has_default =
      std::any_of(devices.begin(), devices.end(), [](const auto& one) { return one.is_default; });
  for (DeviceListing& emulator : ListEmulators(!has_default)) {
    devices.push_back(std::move(emulator));
  }
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
