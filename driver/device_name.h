// SPDX-License-Identifier: Apache-2.0
//
// ParseDeviceName: what a device string means, and for every way of being wrong what to write
// instead (docs/devices.md, "Names"). The one place that tells the forms from each other; it opens
// nothing and knows nothing of what is plugged in. Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/status.h"

namespace atollrt {

// Behind the name of an emulator that computes cycle by cycle.
inline constexpr std::string_view kSteppedSuffix = "+stepped";

struct DeviceName {
  enum class Kind {
    kAuto,      // auto
    kCpu,       // cpu: no device at all
    kEmulator,  // emu, emu:PROFILE, either with +stepped behind it
    kUsb,       // usb, usb:N, usb:BUS-PORT
    kPcie,      // pci, pci:N, pci:ADDRESS
    kApex,      // /dev/apex_N: a Coral on PCIe by its kernel modules
    kBroker,    // broker, broker:PATH
    kNetwork,   // grpc://HOST, grpc://HOST:PORT, grpc://
    kReplay,    // replay:FILE
    kGroup,     // A,B: devices of one kind as one
  };
  Kind kind = Kind::kAuto;
  // Into the string that was parsed: the profile, the number, the port, the address, the node, the
  // socket, the host with its port or the file, "" if the string names none.
  std::string_view which = {};
  bool stepped = false;  // of an emulator
  // The devices of a group, at least two; each parses, none is the CPU.
  std::vector<std::string_view> members = {};
};

// kInvalidArgument with what is wrong with the string and what was probably meant.
Result<DeviceName> ParseDeviceName(std::string_view text);

// For ParseDeviceName: names on PCIe; nullopt for what has nothing of them. libatoll-core, which
// drives no such device, has another one (emulator_only.cc).
std::optional<Result<DeviceName>> ParsePcieName(std::string_view text);

// A PCI address as Linux writes it, domain included: "01:00.0" is "0000:01:00.0". "" if it is none.
std::string PciAddressOf(std::string_view text);

}  // namespace atollrt
