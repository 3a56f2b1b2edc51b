// SPDX-License-Identifier: Apache-2.0
//
// LibusbContext: libusb's state, and the one thread that handles its events. The thread runs the
// callbacks of transfers and of hotplug, nothing else. Everything that is open shares ownership:
// the last to go ends the thread.
#pragma once

#include <libusb.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "atoll/status.h"
#include "driver/usb/usb_bus.h"

namespace atollrt {

// One of libusb's error codes as words: "LIBUSB_ERROR_IO, Input/Output Error".
std::string LibusbErrorText(int code);

class LibusbContext {
 public:
  // kNotFound where there is no USB, with what to do about it.
  static Result<std::shared_ptr<LibusbContext>> Create();
  ~LibusbContext();
  LibusbContext(const LibusbContext&) = delete;
  LibusbContext& operator=(const LibusbContext&) = delete;

  libusb_context* get() const { return context_; }

  // Whether the system says when a device comes or goes; otherwise changes() stays 0.
  bool has_hotplug() const { return has_hotplug_; }
  uint64_t changes();
  // Until changes() is no longer `seen`, or the deadline; true in the former case.
  bool WaitForChange(uint64_t seen, Deadline deadline);

 private:
  explicit LibusbContext(libusb_context* context);
  void HandleEvents();
  static int LIBUSB_CALL OnHotplug(libusb_context* context, libusb_device* device,
                                   libusb_hotplug_event event, void* self);

  libusb_context* const context_;
  bool has_hotplug_ = false;
  libusb_hotplug_callback_handle hotplug_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t changes_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace atollrt
