// SPDX-License-Identifier: Apache-2.0
//
// Function: what a gadget is, seen from its end of the cable: an interface whose requests, resets
// and endpoints somebody answers. ServeFunction feeds it the events of a FunctionFs.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "atoll/status.h"
#include "driver/usb/usb_transport.h"
#include "tools/gadget/function_fs.h"

namespace atollrt {

class Function {
 public:
  virtual ~Function() = default;

  virtual InterfaceDescription Describe() const = 0;

  // The host has chosen the configuration: the endpoints, whose files live until Disable has
  // returned, can be used.
  virtual void Enable(std::span<EndpointFile> endpoints) = 0;
  // It was reset or unplugged, or is about to be enabled anew. May come several times in a row.
  virtual void Disable() = 0;

  // A request to which the kernel has no answer, with room for wLength bytes. Returns how many of
  // them to send; an error stalls.
  virtual Result<size_t> ControlIn(const ControlSetup& setup, std::span<uint8_t> data) = 0;
  // A request that brings `length` bytes. An error stalls, unless `receive` was called, which takes
  // the data and thereby accepts the request: the host goes on from there at once.
  using ReceiveData = std::function<Status(std::span<uint8_t> data)>;
  virtual Status ControlOut(const ControlSetup& setup, size_t length,
                            const ReceiveData& receive) = 0;

  // What should happen now; asked after each event and when `attention` (below) is readable.
  enum class Wish {
    kServe,   // go on
    kReplug,  // leave the bus for a while, as if somebody had pulled the cable
    kEnd,     // leave the bus: another function takes over
  };
  virtual Wish wish() { return Wish::kServe; }
  // A file that becomes readable when the wish may have changed on another thread; -1: none.
  virtual int attention_fd() const { return -1; }
};

enum class ServeEnd { kStopped, kReplug, kEnd };

// Serves until `stop_fd` is readable, or the function wishes something else, and leaves the
// function disabled. Errors are the kernel's; what a host does is none.
Result<ServeEnd> ServeFunction(FunctionFs* function_fs, Function* function, int stop_fd);

}  // namespace atollrt
