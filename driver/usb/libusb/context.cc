// SPDX-License-Identifier: Apache-2.0
#include "driver/usb/libusb/context.h"

#include <chrono>

#include "runtime/base/log.h"

namespace atollrt {
namespace {

// Between attempts to handle events, should libusb refuse to.
constexpr std::chrono::milliseconds kPause{10};

}  // namespace

std::string LibusbErrorText(int code) {
  return Format("%s, %s", libusb_error_name(code), libusb_strerror(code));
}

Result<std::shared_ptr<LibusbContext>> LibusbContext::Create() {
  libusb_context* context = nullptr;
  const int error = libusb_init(&context);
  if (error != 0) {
    return NotFound(
        "there is no USB here, or none that this program may see (libusb_init: %s); in a "
        "container, give it /dev/bus/usb",
        LibusbErrorText(error).c_str());
  }
  return std::shared_ptr<LibusbContext>(new LibusbContext(context));
}

LibusbContext::LibusbContext(libusb_context* context) : context_(context) {
  if (libusb_has_capability(LIBUSB_CAP_HAS_HOTPLUG) != 0) {
    const auto events = static_cast<libusb_hotplug_event>(LIBUSB_HOTPLUG_EVENT_DEVICE_ARRIVED |
                                                          LIBUSB_HOTPLUG_EVENT_DEVICE_LEFT);
    const int error = libusb_hotplug_register_callback(
        context_, events, static_cast<libusb_hotplug_flag>(0), LIBUSB_HOTPLUG_MATCH_ANY,
        LIBUSB_HOTPLUG_MATCH_ANY, LIBUSB_HOTPLUG_MATCH_ANY, OnHotplug, this, &hotplug_);
    has_hotplug_ = error == 0;
  }
  thread_ = std::thread([this] { HandleEvents(); });
}

LibusbContext::~LibusbContext() {
  if (has_hotplug_) libusb_hotplug_deregister_callback(context_, hotplug_);
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  libusb_interrupt_event_handler(context_);
  thread_.join();
  libusb_exit(context_);
}

void LibusbContext::HandleEvents() {
  int last_error = 0;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    // Ends early when there was something to do, or for libusb_interrupt_event_handler.
    timeval limit = {.tv_sec = 1, .tv_usec = 0};
    const int error = libusb_handle_events_timeout_completed(context_, &limit, nullptr);
    if (error == 0 || error == LIBUSB_ERROR_INTERRUPTED) continue;
    if (error != last_error) {
      Log(LogSeverity::kError, "USB events cannot be handled: %s", LibusbErrorText(error).c_str());
      last_error = error;
    }
    std::this_thread::sleep_for(kPause);
  }
}

int LibusbContext::OnHotplug(libusb_context*, libusb_device*, libusb_hotplug_event, void* self) {
  auto* context = static_cast<LibusbContext*>(self);
  const std::lock_guard lock(context->mutex_);
  ++context->changes_;
  context->changed_.notify_all();
  return 0;  // go on calling
}

uint64_t LibusbContext::changes() {
  const std::lock_guard lock(mutex_);
  return changes_;
}

bool LibusbContext::WaitForChange(uint64_t seen, Deadline deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [&] { return changes_ != seen; });
}

}  // namespace atollrt
