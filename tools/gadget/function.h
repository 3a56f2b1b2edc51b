// SPDX-License-Identifier: Apache-2.0
//
// FunctionFs: one instance of the Linux kernel's FunctionFS, the file system in which a program
// implements an interface of a USB gadget (<linux/usb/functionfs.h>). It gives the kernel the
// interface's descriptors for full, high and super speed; the kernel answers the standard requests
// and chooses the endpoints' numbers. What is left is ep0, with events and the requests that nobody
// else answers, and a file per endpoint.
//
// Function: what a gadget is, seen from its end of the cable: an interface whose requests, resets
// and endpoints somebody answers. ServeFunction feeds it the events of a FunctionFs.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "atoll/status.h"
#include "driver/usb/usb_transport.h"
#include "runtime/base/file_descriptor.h"

namespace atollrt {

struct EndpointDescription {
  enum class Type : uint8_t { kBulk = 2, kInterrupt = 3 };  // bmAttributes
  uint8_t address = 0;                                      // with the direction in bit 7
  Type type = Type::kBulk;
};

struct InterfaceDescription {
  std::string name;  // of the string descriptor
  uint8_t interface_class = 0xFF;
  uint8_t interface_subclass = 0xFF;
  uint8_t interface_protocol = 0xFF;
  std::vector<EndpointDescription> endpoints = {};
  std::vector<uint8_t> class_descriptor = {};  // behind the interface's; or empty
};

// What FunctionFS wants to read from ep0 first, and second.
std::vector<uint8_t> EncodeFunctionDescriptors(const InterfaceDescription& interface);
std::vector<uint8_t> EncodeFunctionStrings(const InterfaceDescription& interface);

// One endpoint. Calls block until the host has moved the bytes; a signal ends them with kCancelled
// and loses what had been moved, a disabled endpoint with kDeviceLost. One caller at a time.
class EndpointFile {
 public:
  explicit EndpointFile(FileDescriptor file) : file_(std::move(file)) {}

  // One USB transfer: until `data`, a multiple of packet_bytes(), is full or a short packet comes.
  Result<size_t> Read(std::span<uint8_t> data);
  // All of `data`. If that is a multiple of packet_bytes(), nothing tells the host that it was all;
  // empty data do.
  Status Write(std::span<const uint8_t> data);
  // Makes the host's transfers fail until it clears the halt.
  void Halt(uint8_t address);

  // Size of the endpoint's packets at the speed that the host has chosen.
  size_t packet_bytes() const { return packet_bytes_; }
  void UpdatePacketBytes();  // while the endpoint is enabled

 private:
  FileDescriptor file_;
  size_t packet_bytes_ = 512;
};

class FunctionFs {
 public:
  // With the kernel's numbers.
  enum class EventType : uint8_t { kBind, kUnbind, kEnable, kDisable, kSetup, kSuspend, kResume };
  struct Event {
    EventType type = EventType::kBind;
    ControlSetup setup = {};  // of kSetup, which must be answered before the next event is taken:
    uint16_t length = 0;      // by Send or Receive, according to the direction, or by Stall
  };

  // Takes the FunctionFS mounted on `directory`, which nobody else may use. kNotFound and
  // kPermissionDenied say what to do about it.
  static Result<FunctionFs> Open(const std::string& directory,
                                 const InterfaceDescription& interface);
  // What such a directory consists of; for tests.
  FunctionFs(FileDescriptor control, std::vector<EndpointFile> endpoints)
      : control_(std::move(control)), endpoints_(std::move(endpoints)) {}

  int control_fd() const { return control_.get(); }  // readable when there is an event
  // Blocks; kCancelled after a signal.
  Result<Event> Next();

  // Errors are for the log: the host has given the request up.
  Status Send(std::span<const uint8_t> data);
  Status Receive(std::span<uint8_t> data);
  void Stall(const Event& event);

  // In the order of InterfaceDescription::endpoints.
  std::vector<EndpointFile>& endpoints() { return endpoints_; }

 private:
  FileDescriptor control_;
  std::vector<EndpointFile> endpoints_;
};

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

  // On another thread, and perhaps again and again: Disable is about to come, so whatever takes its
  // time is to be cut short.
  virtual void GiveUp() {}

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
