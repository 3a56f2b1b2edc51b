// SPDX-License-Identifier: Apache-2.0
//
// ParseDeviceName: what a device string means, and for every way of being wrong what to write
// instead (docs/devices.md, "Names"). The one place that tells the forms from each other; it opens
// nothing and knows nothing of what is plugged in. Thread-safe.
#pragma once

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
    kPcie,      // pci:N
    kReplay,    // replay:FILE
    kGroup,     // A,B: devices of one kind as one
  };
  Kind kind = Kind::kAuto;
  // Into the string that was parsed: the profile, the number, the port or the file, "" if the
  // string names none.
  std::string_view which = {};
  bool stepped = false;  // of an emulator
  // Of a group, at least two; each parses, none is the CPU.
  std::vector<std::string_view> members = {};
};

// kInvalidArgument with what is wrong with the string and what was probably meant.
Result<DeviceName> ParseDeviceName(std::string_view text);

}  // namespace atollrt
