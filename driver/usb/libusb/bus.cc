// SPDX-License-Identifier: Apache-2.0
//
// SystemUsbBus by way of libusb.
#include <libusb.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "driver/usb/libusb/transport.h"
#include "driver/usb/usb_bus.h"
#include "runtime/base/log.h"
#include "runtime/base/process_files.h"

namespace atollrt {
namespace {

constexpr std::chrono::milliseconds kPollInterval{250};
// How often to look with fresh eyes, where it matters whether something came or went.
constexpr std::chrono::milliseconds kLookInterval{500};
// Between attempts to handle events, should libusb refuse to.
constexpr std::chrono::milliseconds kPause{10};
constexpr int kMostPorts = 7;  // hubs in a row, and the device (USB 3.2, 10.1)

// libusb's state, and the one thread that handles its events. The thread runs the callbacks of
// transfers and of hotplug, nothing else. Everything that is open shares ownership: the last to go
// ends the thread.
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

// A device of a list with its place: the bus, then the ports on the way to it.
struct Found {
  UsbDeviceInfo info;
  std::vector<int> place;
  libusb_device* device = nullptr;
};

// libusb's list of devices, and ours made of it, in the order of places.
struct DeviceList {
  struct Free {
    void operator()(libusb_device** devices) const {
      libusb_free_device_list(devices, /*unref_devices=*/1);
    }
  };
  std::unique_ptr<libusb_device*, Free> list;
  std::vector<Found> found;
};

// They have the same numbers.
UsbSpeed SpeedOf(int speed) {
  static_assert(static_cast<int>(UsbSpeed::kLow) == LIBUSB_SPEED_LOW &&
                static_cast<int>(UsbSpeed::kSuperPlus) == LIBUSB_SPEED_SUPER_PLUS);
  return speed >= 0 && speed <= LIBUSB_SPEED_SUPER_PLUS ? static_cast<UsbSpeed>(speed)
                                                        : UsbSpeed::kUnknown;
}

Result<DeviceList> ReadDeviceList(const LibusbContext& context) {
  libusb_device** list = nullptr;
  const ssize_t count = libusb_get_device_list(context.get(), &list);
  if (count < 0) {
    return NotFound("USB devices cannot be listed: %s",
                    LibusbErrorText(static_cast<int>(count)).c_str());
  }
  DeviceList devices;
  devices.list.reset(list);
  for (ssize_t i = 0; i < count; ++i) {
    libusb_device* device = list[i];
    std::array<uint8_t, kMostPorts> ports = {};
    const int port_count = libusb_get_port_numbers(device, ports.data(), ports.size());
    libusb_device_descriptor descriptor;
    if (port_count <= 0 || libusb_get_device_descriptor(device, &descriptor) != 0) {
      continue;  // part of the computer, not plugged in
    }
    Found found{.info = {.id = {descriptor.idVendor, descriptor.idProduct},
                         .path = std::to_string(libusb_get_bus_number(device)),
                         .address = libusb_get_device_address(device),
                         .speed = SpeedOf(libusb_get_device_speed(device))},
                .place = {libusb_get_bus_number(device)},
                .device = device};
    for (int p = 0; p < port_count; ++p) {
      found.info.path += (p == 0 ? "-" : ".") + std::to_string(ports[static_cast<size_t>(p)]);
      found.place.push_back(ports[static_cast<size_t>(p)]);
    }
    devices.found.push_back(std::move(found));
  }
  std::sort(devices.found.begin(), devices.found.end(),
            [](const Found& a, const Found& b) { return a.place < b.place; });
  return devices;
}

std::string NodeOf(libusb_device* device) {
  return Format("/dev/bus/usb/%03d/%03d", libusb_get_bus_number(device),
                libusb_get_device_address(device));
}

Status Busy(const std::string& path, const std::string& node, uint8_t interface_number) {
  const std::string holders = ProcessesText(ProcessesWithFile(node));
  return Status(
      StatusCode::kDeviceBusy,
      Format("interface %d of the USB device at %s is in use; %s", interface_number, path.c_str(),
             holders.empty() ? Format("'sudo fuser %s' tells by whom", node.c_str()).c_str()
                             : Format("%s is open in process %s: end it, or choose another device",
                                      node.c_str(), holders.c_str())
                                   .c_str()));
}

// Why a device could not be opened or claimed.
Status OpenError(int error, const char* call, const std::string& path, const std::string& node,
                 uint8_t interface_number) {
  switch (error) {
    case LIBUSB_ERROR_ACCESS:
      return Status(
          StatusCode::kPermissionDenied,
          Format("this user may not open the USB device at %s (%s); copy 60-atoll.rules to "
                 "/etc/udev/rules.d, join the group plugdev (sudo usermod -aG plugdev $USER), "
                 "then plug the device in again",
                 path.c_str(), node.c_str()));
    case LIBUSB_ERROR_BUSY:
      return Busy(path, node, interface_number);
    case LIBUSB_ERROR_NO_MEM:
      return ResourceExhausted("no memory for the USB device at %s (%s)", path.c_str(), call);
    default:  // gone, or without the interface since it has other ids
      return DeviceLost("the USB device at %s cannot be opened (%s: %s); plug it in again",
                        path.c_str(), call, LibusbErrorText(error).c_str());
  }
}

class LibusbBus : public UsbBus {
 public:
  Result<std::vector<UsbDeviceInfo>> List() override;
  Result<std::unique_ptr<UsbTransport>> Open(const UsbDeviceInfo& device,
                                             uint8_t interface_number) override;
  uint64_t generation() override;
  bool WaitForChange(uint64_t seen, Deadline deadline) override;

 private:
  Result<std::shared_ptr<LibusbContext>> Context();
  // Whether libusb hears of changes cannot be known: without udevd, as in containers, it waits for
  // words that nobody says, and goes on to list what was there in the beginning. So what it lists
  // is compared with what a new context finds, now and then; if that differs, the new context takes
  // its place, apart from transports that are open.
  void LookAfresh(const LibusbContext& context);

  std::mutex mutex_;
  std::shared_ptr<LibusbContext> context_;  // made when it is first needed
  uint64_t earlier_changes_ = 0;            // before there was this context
  Deadline next_look_;
  // Where the system does not tell: what was there when it was last looked at.
  std::vector<UsbDeviceInfo> last_list_;
  uint64_t list_changes_ = 0;
};

Result<std::shared_ptr<LibusbContext>> LibusbBus::Context() {
  const std::lock_guard lock(mutex_);
  if (context_ == nullptr) {
    ATOLL_ASSIGN_OR_RETURN(context_, LibusbContext::Create());
    next_look_ = Clock::now() + kLookInterval;
  }
  return context_;
}

Result<std::vector<UsbDeviceInfo>> LibusbBus::List() {
  ATOLL_ASSIGN_OR_RETURN(const std::shared_ptr<LibusbContext> context, Context());
  ATOLL_ASSIGN_OR_RETURN(const DeviceList devices, ReadDeviceList(*context));
  std::vector<UsbDeviceInfo> list;
  for (const Found& found : devices.found) list.push_back(found.info);
  return list;
}

Result<std::unique_ptr<UsbTransport>> LibusbBus::Open(const UsbDeviceInfo& device,
                                                      uint8_t interface_number) {
  ATOLL_ASSIGN_OR_RETURN(std::shared_ptr<LibusbContext> context, Context());
  ATOLL_ASSIGN_OR_RETURN(const DeviceList devices, ReadDeviceList(*context));
  const auto found =
      std::find_if(devices.found.begin(), devices.found.end(), [&](const Found& candidate) {
        return candidate.info.path == device.path && candidate.info.id == device.id;
      });
  if (found == devices.found.end()) {
    return DeviceLost("the USB device %04x:%04x is no longer at %s; plug it in again",
                      device.id.vendor, device.id.product, device.path.c_str());
  }
  const std::string node = NodeOf(found->device);
  libusb_device_handle* handle = nullptr;
  int error = libusb_open(found->device, &handle);
  if (error != 0) return OpenError(error, "libusb_open", device.path, node, interface_number);
  // Not every system can; then a driver of the kernel that has the interface makes it busy.
  libusb_set_auto_detach_kernel_driver(handle, 1);
  error = libusb_claim_interface(handle, interface_number);
  if (error != 0) {
    libusb_close(handle);
    return OpenError(error, "libusb_claim_interface", device.path, node, interface_number);
  }
  return std::unique_ptr<UsbTransport>(
      new LibusbTransport(std::move(context), handle, interface_number, device.path));
}

void LibusbBus::LookAfresh(const LibusbContext& context) {
  {
    const std::lock_guard lock(mutex_);
    if (Clock::now() < next_look_) return;
    next_look_ = Clock::now() + kLookInterval;
  }
  const auto known = ReadDeviceList(context);
  auto fresh = LibusbContext::Create();
  if (!known.ok() || !fresh.ok()) return;
  const auto found = ReadDeviceList(**fresh);
  if (!found.ok() ||
      std::ranges::equal(known->found, found->found, {}, &Found::info, &Found::info)) {
    return;
  }
  const std::lock_guard lock(mutex_);
  earlier_changes_ += context_->changes() + 1;
  context_ = *std::move(fresh);
}

uint64_t LibusbBus::generation() {
  const auto context = Context();
  if (!context.ok()) return 0;
  if ((*context)->has_hotplug()) {
    LookAfresh(**context);
    const std::lock_guard lock(mutex_);
    return earlier_changes_ + context_->changes();
  }
  auto list = List();
  const std::lock_guard lock(mutex_);
  if (list.ok() && *list != last_list_) {
    last_list_ = *std::move(list);
    ++list_changes_;
  }
  return list_changes_;
}

bool LibusbBus::WaitForChange(uint64_t seen, Deadline deadline) {
  for (;;) {
    const auto context = Context();
    const bool tells = context.ok() && (*context)->has_hotplug();
    const uint64_t own_changes = tells ? (*context)->changes() : 0;
    if (generation() != seen) return true;
    const Deadline now = Clock::now();
    if (now >= deadline) return false;
    if (tells) {
      (*context)->WaitForChange(own_changes, std::min(deadline, now + kLookInterval));
    } else {
      std::this_thread::sleep_until(std::min(deadline, now + kPollInterval));
    }
  }
}

}  // namespace

std::shared_ptr<UsbBus> SystemUsbBus() {
  static std::mutex mutex;
  static std::weak_ptr<UsbBus> shared;
  const std::lock_guard lock(mutex);
  std::shared_ptr<UsbBus> bus = shared.lock();
  if (bus == nullptr) {
    bus = std::make_shared<LibusbBus>();
    shared = bus;
  }
  return bus;
}

}  // namespace atollrt
