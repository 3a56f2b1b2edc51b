// SPDX-License-Identifier: Apache-2.0
//
// atoll-gadget: an Atoll-1 for another computer, on a board whose USB port can be a device
// (docs/gadget.md). The emulated core computes; FunctionFS is the cable.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "driver/emulator/emulated_transport.h"
#include "driver/faults/fault_plan.h"
#include "driver/faults/faulty_bus.h"
#include "driver/profiles/device_profile.h"
#include "driver/usb/usb_bus.h"
#include "runtime/base/log.h"
#include "runtime/kernels/cpu_features.h"
#include "tools/gadget/atoll_function.h"
#include "tools/gadget/coral_function.h"
#include "tools/gadget/function.h"

namespace atollrt {
namespace {

struct GadgetOptions {
  std::string profile;
  int threads = 1;
  std::string function_fs = "/dev/atoll-gadget";
  std::string gadget = "/sys/kernel/config/usb_gadget/atoll";
  std::string controller;
  std::string faults;
  bool verbose = false;
};

constexpr char kCoral[] = "coral";

// How long an unplugged device stays away.
constexpr std::chrono::milliseconds kAway{500};

// The gadget's directory in configfs: under which ids it appears on which USB device controller,
// and whether it does.
class Controller {
 public:
  // `directory` was made by tools/gadget/setup.sh; `name` is one of /sys/class/udc, or "" for the
  // first one there.
  static Result<Controller> Find(std::string directory, std::string name) {
    constexpr char kControllers[] = "/sys/class/udc";
    std::error_code error;
    if (!std::filesystem::is_directory(directory, error)) {
      return NotFound("%s does not exist; make the gadget first (tools/gadget/setup.sh up)",
                      directory.c_str());
    }
    if (name.empty()) {
      std::vector<std::string> names;
      for (const auto& entry : std::filesystem::directory_iterator(kControllers, error)) {
        names.push_back(entry.path().filename());
      }
      if (names.empty()) {
        return NotFound(
            "%s is empty: this computer has no USB device controller, or its driver is not loaded "
            "(on a Raspberry Pi: dtoverlay=dwc2 in config.txt)",
            kControllers);
      }
      name = *std::min_element(names.begin(), names.end());
    }
    return Controller(std::move(directory), std::move(name));
  }

  const std::string& name() const { return name_; }

  // Appears on the bus; kDeviceBusy if the controller has another gadget.
  Status Bind(const UsbId& id) {
    ATOLL_RETURN_IF_ERROR(Unbind());
    ATOLL_RETURN_IF_ERROR(WriteAttribute("idVendor", Format("0x%04x", id.vendor)));
    ATOLL_RETURN_IF_ERROR(WriteAttribute("idProduct", Format("0x%04x", id.product)));
    return WriteAttribute("UDC", name_);
  }
  // Leaves the bus; does nothing if it is not there.
  Status Unbind() { return WriteAttribute("UDC", "", /*harmless_error=*/ENODEV); }

 private:
  Controller(std::string directory, std::string name)
      : directory_(std::move(directory)), name_(std::move(name)) {}

  Status WriteAttribute(const char* attribute, const std::string& value, int harmless_error = 0) {
    const FileDescriptor file(open((directory_ + "/" + attribute).c_str(), O_WRONLY | O_CLOEXEC));
    const std::string line = value + "\n";
    if (file.get() >= 0 && write(file.get(), line.data(), line.size()) >= 0) return {};
    const int error = errno;
    if (error == harmless_error) return {};
    const StatusCode code = error == EBUSY    ? StatusCode::kDeviceBusy
                            : error == EACCES ? StatusCode::kPermissionDenied
                                              : StatusCode::kInternal;
    return Status(code, Format("writing '%s' to %s/%s: %s", value.c_str(), directory_.c_str(),
                               attribute, std::strerror(error)));
  }

  std::string directory_;
  std::string name_;
};

LogSeverity g_least_severity = LogSeverity::kWarning;

void LogToStderr(LogSeverity severity, const char* message, void*) {
  if (severity >= g_least_severity) fmt::print(stderr, "atoll-gadget: {}\n", message);
}

// SIGTERM and SIGINT make it readable; they also end what the main thread waits for.
int g_stop_fd = -1;

void StopOnSignals() {
  g_stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  struct sigaction action = {};
  action.sa_handler = [](int) {
    const uint64_t one = 1;
    (void)!write(g_stop_fd, &one, sizeof(one));
  };
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

// Blocks both for threads that are made while it lives, so that the main thread gets them.
class SignalsForMainThread {
 public:
  SignalsForMainThread() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, &before_);
  }
  ~SignalsForMainThread() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

// The device that is served, alone on a bus of its own.
Result<std::shared_ptr<UsbBus>> MakeBus(const GadgetOptions& options) {
  CoreOptions core;
  ATOLL_ASSIGN_OR_RETURN(core.profile, FindDeviceProfile(options.profile));
  ATOLL_ASSIGN_OR_RETURN(core.features, DetectCpuFeatures());
  core.threads = options.threads;
  std::shared_ptr<UsbBus> bus = std::make_shared<EmulatedBus>(std::vector<CoreOptions>{core});
  if (options.faults.empty()) return bus;
  ATOLL_ASSIGN_OR_RETURN(FaultPlan plan, ReadFaultPlan(options.faults));
  ATOLL_RETURN_IF_ERROR(CheckSuits(plan, FaultBus::kUsb));
  return std::shared_ptr<UsbBus>(
      std::make_shared<FaultyBus>(std::move(bus), std::move(plan), FaultyBus::Options()));
}

Status ServeAtoll(const GadgetOptions& options, Controller* controller) {
  std::unique_ptr<AtollFunction> function;
  {
    const SignalsForMainThread signals;
    ATOLL_ASSIGN_OR_RETURN(std::shared_ptr<UsbBus> bus, MakeBus(options));
    ATOLL_ASSIGN_OR_RETURN(function, AtollFunction::Create(std::move(bus)));
  }
  ATOLL_ASSIGN_OR_RETURN(FunctionFs function_fs,
                         FunctionFs::Open(options.function_fs, function->Describe()));
  bool plugged = false;
  for (;;) {
    if (!plugged) {
      ATOLL_RETURN_IF_ERROR(controller->Bind(kAtollUsbId));
      Log(LogSeverity::kInfo, "serving on %s", controller->name().c_str());
      plugged = true;
    }
    ATOLL_ASSIGN_OR_RETURN(const ServeEnd end,
                           ServeFunction(&function_fs, function.get(), g_stop_fd));
    if (end != ServeEnd::kReplug) return {};
    ATOLL_RETURN_IF_ERROR(controller->Unbind());
    plugged = false;
    do {
      pollfd stop = {g_stop_fd, POLLIN, 0};
      if (poll(&stop, 1, static_cast<int>(kAway.count())) > 0) return {};
    } while (!function->Replug().ok());
  }
}

// FunctionFS, but without the interface's class descriptor if this kernel knows none of its kind.
Result<FunctionFs> OpenFunctionFs(const GadgetOptions& options, InterfaceDescription interface) {
  Result<FunctionFs> function_fs = FunctionFs::Open(options.function_fs, interface);
  if (function_fs.code() != StatusCode::kUnsupported || interface.class_descriptor.empty()) {
    return function_fs;
  }
  Log(LogSeverity::kInfo,
      "this kernel's FunctionFS has no descriptors for interfaces of class %02X",
      interface.interface_class);
  interface.class_descriptor.clear();
  return FunctionFs::Open(options.function_fs, interface);
}

Status ServeCoral(const GadgetOptions& options, Controller* controller) {
  CoralFunction::Mode mode = CoralFunction::Mode::kRom;
  for (;;) {
    CoralFunction function(mode);
    ATOLL_ASSIGN_OR_RETURN(FunctionFs function_fs, OpenFunctionFs(options, function.Describe()));
    ATOLL_RETURN_IF_ERROR(controller->Bind(function.id()));
    Log(LogSeverity::kInfo, "serving %04x:%04x on %s", function.id().vendor, function.id().product,
        controller->name().c_str());
    ATOLL_ASSIGN_OR_RETURN(const ServeEnd end, ServeFunction(&function_fs, &function, g_stop_fd));
    if (end == ServeEnd::kStopped) return {};
    ATOLL_RETURN_IF_ERROR(controller->Unbind());
    mode = mode == CoralFunction::Mode::kRom ? CoralFunction::Mode::kApplication
                                             : CoralFunction::Mode::kRom;
  }
}

Status Serve(const GadgetOptions& options) {
  StopOnSignals();
  ATOLL_ASSIGN_OR_RETURN(Controller controller,
                         Controller::Find(options.gadget, options.controller));
  Status status = options.profile == kCoral ? ServeCoral(options, &controller)
                                            : ServeAtoll(options, &controller);
  const Status unbound = controller.Unbind();
  return status.ok() ? unbound : status;
}

int Main(int argc, char** argv) {
  GadgetOptions options;
  CLI::App app(
      "Serves an emulated Atoll-1 as a USB device, on a port that can be one. Make the gadget "
      "first: tools/gadget/setup.sh up (docs/gadget.md).",
      "atoll-gadget");
  app.add_option("--profile", options.profile,
                 "What the device is made of: a name of 'atoll devices', or a .json file (usb3). "
                 "coral: no Atoll-1, but what a Coral shows of itself until it has its firmware");
  app.add_option("--threads", options.threads, "Threads that compute (1)")
      ->check(CLI::Range(1, 64));
  app.add_option("--functionfs", options.function_fs, "Where FunctionFS is mounted")
      ->capture_default_str();
  app.add_option("--gadget", options.gadget, "The gadget's directory in configfs")
      ->capture_default_str();
  app.add_option("--udc", options.controller,
                 "USB device controller, of /sys/class/udc (the first one there)");
  app.add_option("--faults", options.faults,
                 "seed:N:P or a file: what shall go wrong in the device (docs/faults.md)");
  app.add_flag("--verbose", options.verbose, "Say what the host does");
  CLI11_PARSE(app, argc, argv);
  if (options.verbose) g_least_severity = LogSeverity::kInfo;
  SetLogCallback(LogToStderr, nullptr);
  const Status status = Serve(options);
  if (status.ok()) return 0;
  fmt::print(stderr, "atoll-gadget: {}.\n", status.message());
  return 1;
}

}  // namespace
}  // namespace atollrt

int main(int argc, char** argv) { return atollrt::Main(argc, argv); }
