// SPDX-License-Identifier: Apache-2.0
//
// What is said of a device and of its requests, above and below the queue (device.h, chip.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "driver/isa/executable.h"
#include "runtime/base/request_cost.h"

namespace atollrt {

// What only its opener knows of a device.
struct DeviceOrigin {
  std::string name{};         // for people: "emu" or "usb:2-3"
  std::string description{};  // if the opener knows more than its registers say; else empty
  std::string note{};         // why it was taken instead of another one that is there; else empty
  // Another process has it: buffers of requests that lie in memory that others can map (HostMemory)
  // are not copied, and executables of Corals bring their packages.
  bool is_elsewhere = false;
  bool emulated = false;    // its computer is this one, its times a model
  double host_seconds = 0;  // modelled: what the host spends on a request beside the transfers
  // What a request gets at least, whatever it asks for: more than nothing for a device that is
  // slower than any hardware.
  std::chrono::milliseconds request_timeout_min{0};
};

// With what the device says of itself (docs/protocol.md §2).
struct DeviceInfo : DeviceFigures, DeviceOrigin {
  uint32_t isa_version = 0;
};

// kDeviceLost if `now`, which answers in the place of `before`, is of another shape.
Status CheckSameShape(const DeviceFigures& before, const DeviceFigures& now);

// kUnsupported if `executable` is for another family of devices.
Status CheckFamily(const AnyExecutable& executable, const DeviceInfo& device);

// From the best to the worst.
enum class DeviceState {
  kReady,
  kRecovering,  // being reset, or looked for on the bus; requests wait
  kFallback,    // gone; requests run elsewhere until it is seen again
  kLost,
};
const char* DeviceStateName(DeviceState state);  // "Ready"

// Executables and requests by number; 0 is never given out.
using ExecutableId = uint32_t;
using RequestId = uint32_t;

// What one request cost: the figures are of the attempt that succeeded, without device_seconds.
struct RequestReport : RequestCost {
  // Of the device in cycles since its reset, when it had completed the request; 0: it does not say.
  uint64_t device_clock = 0;
  // How often it had to be sent again after something had gone wrong, and whether it was completed
  // by the device's stand-in in the end.
  int replays = 0;
  bool on_fallback = false;
};

// What went wrong so far, each event counted once.
struct DeviceHealth {
  uint64_t failures = 0;    // attempts at a request that did not end well
  uint64_t resets = 0;      // after which the device was there again
  uint64_t reopenings = 0;  // after it had been away, or would not be reset
  uint64_t losses = 0;      // times that it did not come back before the deadline
  uint64_t replays = 0;     // requests sent again, each time counted
  uint64_t fallbacks = 0;   // requests that the stand-in completed
};

DeviceHealth operator+(const DeviceHealth& a, const DeviceHealth& b);

// How an executable is to be kept.
struct LoadOptions {
  // Executables of one set, if it is not 0, are used together: the use of one counts as a use of
  // all, and they do not make room for each other while somebody else can.
  uint32_t residency_set = 0;
  // On a device of several chips: the one that it runs on, modulo their number; -1: any.
  int32_t stage = -1;
};

// One run of an executable. Buffers belong to the caller and must stay valid until Wait returns.
struct Request {
  ExecutableId executable = 0;
  std::vector<std::span<const uint8_t>> inputs;  // sizes as AnyExecutable::inputs
  std::vector<std::span<uint8_t>> outputs;       // sizes as AnyExecutable::outputs
  std::chrono::milliseconds timeout{10'000};     // of each attempt; of the first, from Submit on
  int32_t priority = 0;                          // the higher, the sooner
};

}  // namespace atollrt
