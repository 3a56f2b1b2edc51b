// SPDX-License-Identifier: Apache-2.0
//
// Device: the seam upward. Something that holds executables and runs them: an accelerator on USB,
// whether real or emulated. It knows bytes and programs, not tensors or operators.
//
//        Open                        back (Recovering may last its deadline)
//   ───────────> Ready <──────────────────────────────── Recovering <─────────────────────┐
//                 │  failure of the transport               ^  │  │                       │
//                 ├─────────────────────────────────────────┘  │  └─ deadline ─> Fallback ─┤
//                 │  (a device that cannot recover)            │                           │
//                 └──────────────────────────────> Lost <──────┘ deadline, no fallback     │
//                                                   │                 seen again, or Reset │
//                                                   └──────────────────────────────────────┘
//
// A UsbDevice knows Ready and Lost; from Lost its Reset leads straight back to Ready. A
// RecoveringDevice goes through all of them. In Lost, Load and Submit give kDeviceLost, and so do
// the requests that were in progress. A device fault (the program is malformed) or a deadline that
// passes fails the request, resets the device and leaves it Ready: executables are uploaded again
// when they are next used.
//
// Thread safety: all calls may come from any thread. The waiter drives the wire: a submitted
// request makes progress while some thread is in Wait, for it or for a later one; there is no
// hidden thread. Requests run one at a time: those of the highest priority first, among equals
// those of the executable that has not had a turn for longest, and those of one executable in the
// order of Submit. While executables that are on the device have requests, too, one that is not
// waits for at most a few of those, so that executables do not push each other off the device with
// every request. Each request completes exactly once.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "driver/executable.h"
#include "driver/usb_transport.h"
#include "runtime/base/status.h"

namespace atollrt {

// What the device says of itself (docs/protocol.md §2).
struct DeviceInfo {
  std::string name;         // for people: "emu" or "usb:2-3"
  std::string description;  // if whoever opened it knows more than its registers say; else empty
  std::string note{};       // why it was taken instead of another one that is there; else empty
  bool emulated = false;    // by whom it was opened: its computer is this one, its times a model
  DeviceFamily family = DeviceFamily::kAtoll1;
  uint32_t isa_version = 0;
  uint32_t array_rows = 0;
  uint32_t array_columns = 0;
  uint64_t clock_hz = 0;
  uint64_t memory_bytes = 0;           // on-chip memory for parameters and activations
  uint64_t program_memory_bytes = 0;   // on-chip memory for instructions
  uint64_t link_bytes_per_second = 0;  // of the device's link, as modelled or as measured
  double host_seconds = 0;  // modelled: what the host spends on a request beside the transfers
};

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

// Where the time of one request went, measured on the host.
struct RequestTimes {
  int64_t queue_ns = 0;     // until the device was free for it
  int64_t link_out_ns = 0;  // until the last byte was sent, an upload included
  int64_t compute_ns = 0;   // until the first byte came back
  int64_t link_in_ns = 0;   // until the last one had come
};

// What one request cost. Cycles are the device's own count (modelled, when it is emulated).
struct RequestReport {
  uint64_t device_cycles = 0;      // of the inference program
  uint64_t bytes_to_device = 0;    // everything on bulk OUT for this request, upload included
  uint64_t bytes_from_device = 0;  // outputs and events
  uint64_t parameter_bytes = 0;    // the part of bytes_to_device that was parameters
  RequestTimes times;
  // How often it had to be sent again after something had gone wrong, and whether it was completed
  // by the device's stand-in in the end; the figures above are of the attempt that succeeded.
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

// How an executable is to be kept.
struct LoadOptions {
  // Executables of one set, if it is not 0, are used together: the use of one counts as a use of
  // all, and they do not make room for each other while somebody else can.
  uint32_t residency_set = 0;
  // On a group of devices (device_group.h): the one that it runs on, modulo their number; -1: any.
  int32_t stage = -1;
};

// One run of an executable. Buffers belong to the caller and must stay valid until Wait returns.
struct Request {
  ExecutableId executable = 0;
  std::vector<std::span<const uint8_t>> inputs;  // sizes as AnyExecutable::inputs
  std::vector<std::span<uint8_t>> outputs;       // sizes as AnyExecutable::outputs
  std::chrono::milliseconds timeout{10'000};     // from Submit to completion
  int32_t priority = 0;                          // the higher, the sooner
};

class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const = 0;
  virtual DeviceState state() const = 0;

  // Checks that `executable` can run here (family, ISA version, sizes against the device's
  // memories) and registers it; it is uploaded when first used and stays on the device while there
  // is room. The device shares ownership. kUnsupported for another family or ISA version,
  // kResourceExhausted if it can never fit.
  virtual Result<ExecutableId> Load(std::shared_ptr<const AnyExecutable> executable,
                                    const LoadOptions& options = {}) = 0;
  // Forgets an executable. kDeviceBusy while requests for it are in progress.
  virtual Status Unload(ExecutableId id) = 0;

  // Queues a request; the description is copied, the buffers are not. kInvalidArgument if ids or
  // sizes do not fit, kDeviceLost in Lost.
  virtual Result<RequestId> Submit(const Request& request) = 0;
  // Blocks until the request has completed and forgets it; one Wait for each Submit. kTimeout past
  // its deadline (resetting the device may take up to seconds longer), kCancelled after Cancel,
  // kCorruptModel if the device faulted, kDeviceLost if it is gone. After an error the contents of
  // the outputs are unspecified. `report` may be nullptr and is filled after errors, too.
  virtual Status Wait(RequestId id, RequestReport* report) = 0;
  // Makes the request complete with kCancelled, unless it has completed already. One that is
  // running stays on the device, and in Wait, until its program has ended.
  virtual Status Cancel(RequestId id) = 0;

  // Brings a lost or confused device back to Ready; executables stay registered. All requests in
  // progress complete with kDeviceLost. kDeviceLost, and Lost, if the device does not come back.
  virtual Status Reset() = 0;

  virtual DeviceHealth health() const { return {}; }
};

}  // namespace atollrt
