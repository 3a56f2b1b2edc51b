// SPDX-License-Identifier: Apache-2.0
#include "tools/gadget/function.h"

#include <fcntl.h>
#include <linux/usb/functionfs.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <thread>

#include "runtime/base/bytes.h"
#include "runtime/base/log.h"

namespace atollrt {
namespace {

constexpr uint16_t kEnglish = 0x0409;

Status ErrorOf(const char* verb, int error) {
  if (error == EINTR) return Status(StatusCode::kCancelled, Format("%s was interrupted", verb));
  // ESHUTDOWN: the endpoint was disabled; EIDRM: the host began another request.
  if (error == ESHUTDOWN || error == EIDRM || error == ENODEV || error == ESRCH) {
    return DeviceLost("%s: %s", verb, std::strerror(error));
  }
  return InternalError("%s: %s", verb, std::strerror(error));
}

template <typename T>
void Append(std::vector<uint8_t>* bytes, T value) {
  bytes->resize(bytes->size() + sizeof(T));
  StoreLittleEndian<T>(bytes->data() + bytes->size() - sizeof(T), value);
}

struct Speed {
  uint16_t bulk_packet_bytes;
  uint8_t interrupt_interval;  // one millisecond, as each speed counts it
  bool is_super;
};
constexpr Speed kSpeeds[] = {
    {64, 1, false}, {512, 4, false}, {1024, 4, true}};  // full, high, super
constexpr uint16_t kInterruptPacketBytes = 64;
constexpr uint8_t kSuperSpeedBurst = 15;

// Returns how many descriptors these are.
uint32_t AppendDescriptors(const InterfaceDescription& interface, const Speed& speed,
                           std::vector<uint8_t>* bytes) {
  uint32_t count = 1;  // the interface's
  const uint8_t head[] = {USB_DT_INTERFACE_SIZE,
                          USB_DT_INTERFACE,
                          0,  // number; the kernel gives it
                          0,  // alternate setting
                          static_cast<uint8_t>(interface.endpoints.size()),
                          interface.interface_class,
                          interface.interface_subclass,
                          interface.interface_protocol,
                          1};  // its string
  bytes->insert(bytes->end(), std::begin(head), std::end(head));
  bytes->insert(bytes->end(), interface.class_descriptor.begin(), interface.class_descriptor.end());
  count += interface.class_descriptor.empty() ? 0 : 1;
  for (const EndpointDescription& endpoint : interface.endpoints) {
    const bool bulk = endpoint.type == EndpointDescription::Type::kBulk;
    bytes->insert(bytes->end(), {USB_DT_ENDPOINT_SIZE, USB_DT_ENDPOINT, endpoint.address,
                                 static_cast<uint8_t>(endpoint.type)});
    Append<uint16_t>(bytes, bulk ? speed.bulk_packet_bytes : kInterruptPacketBytes);
    bytes->push_back(bulk ? 0 : speed.interrupt_interval);
    ++count;
    if (!speed.is_super) continue;
    bytes->insert(bytes->end(), {USB_DT_SS_EP_COMP_SIZE, USB_DT_SS_ENDPOINT_COMP,
                                 bulk ? kSuperSpeedBurst : uint8_t{0}, 0});
    Append<uint16_t>(bytes, bulk ? 0 : kInterruptPacketBytes);  // wBytesPerInterval
    ++count;
  }
  return count;
}

Result<FileDescriptor> OpenFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd >= 0) return FileDescriptor(fd);
  const int error = errno;
  if (error == ENOENT) {
    return NotFound("%s does not exist; mount FunctionFS there first (tools/gadget/setup.sh up)",
                    path.c_str());
  }
  if (error == EACCES) {
    return Status(StatusCode::kPermissionDenied,
                  Format("%s may not be opened by this user; run as root, or mount FunctionFS with "
                         "this user's uid",
                         path.c_str()));
  }
  if (error == EBUSY) {
    return Status(StatusCode::kDeviceBusy, Format("%s is in use by another program", path.c_str()));
  }
  return InternalError("%s: %s", path.c_str(), std::strerror(error));
}

Status WriteAll(int fd, const std::vector<uint8_t>& bytes, const char* what) {
  const ssize_t written = write(fd, bytes.data(), bytes.size());
  if (written == static_cast<ssize_t>(bytes.size())) return {};
  return Unsupported("the kernel refuses the %s: %s", what,
                     written < 0 ? std::strerror(errno) : "taken in part");
}

void Answer(FunctionFs* function_fs, Function* function, const FunctionFs::Event& event) {
  Status status;
  bool accepted = false;
  std::vector<uint8_t> data(event.length);
  if (event.setup.is_in()) {
    const Result<size_t> count = function->ControlIn(event.setup, data);
    accepted = count.ok();
    status = accepted ? function_fs->Send(std::span(data).first(*count)) : count.status();
  } else {
    status = function->ControlOut(event.setup, event.length, [&](std::span<uint8_t> room) {
      accepted = true;
      return function_fs->Receive(room);
    });
  }
  if (!accepted) function_fs->Stall(event);
  if (!status.ok()) {
    Log(LogSeverity::kInfo, "request %02X %02X value %04X index %04X length %u %s: %s",
        event.setup.request_type, event.setup.request, event.setup.value, event.setup.index,
        event.length, accepted ? "failed" : "refused", status.message().c_str());
  }
}

void Handle(FunctionFs* function_fs, Function* function, const FunctionFs::Event& event) {
  using Type = FunctionFs::EventType;
  switch (event.type) {
    case Type::kBind:
      Log(LogSeverity::kInfo, "on the bus");
      break;
    case Type::kUnbind:
      Log(LogSeverity::kInfo, "off the bus");
      function->Disable();
      break;
    case Type::kEnable:
      // The kernel forgets a Disable that nobody has read before the next Enable.
      function->Disable();
      for (EndpointFile& endpoint : function_fs->endpoints()) endpoint.UpdatePacketBytes();
      Log(LogSeverity::kInfo, "the host has configured the device");
      function->Enable(function_fs->endpoints());
      break;
    case Type::kDisable:
      Log(LogSeverity::kInfo, "the host has reset or left the device");
      function->Disable();
      break;
    case Type::kSetup:
      Answer(function_fs, function, event);
      break;
    case Type::kSuspend:
    case Type::kResume:
      break;  // nothing to save: the host that resumes finds everything as it was
  }
}

}  // namespace

std::vector<uint8_t> EncodeFunctionDescriptors(const InterfaceDescription& interface) {
  std::vector<uint8_t> descriptors;
  uint32_t counts[std::size(kSpeeds)];
  for (size_t i = 0; i < std::size(kSpeeds); ++i) {
    counts[i] = AppendDescriptors(interface, kSpeeds[i], &descriptors);
  }
  std::vector<uint8_t> bytes;
  Append<uint32_t>(&bytes, FUNCTIONFS_DESCRIPTORS_MAGIC_V2);
  Append<uint32_t>(&bytes, static_cast<uint32_t>(12 + 4 * std::size(counts) + descriptors.size()));
  // ALL_CTRL_RECIP: vendor requests to the device, as Atoll-1's registers are, come here, too.
  Append<uint32_t>(&bytes, FUNCTIONFS_HAS_FS_DESC | FUNCTIONFS_HAS_HS_DESC |
                               FUNCTIONFS_HAS_SS_DESC | FUNCTIONFS_ALL_CTRL_RECIP);
  for (const uint32_t count : counts) Append<uint32_t>(&bytes, count);
  bytes.insert(bytes.end(), descriptors.begin(), descriptors.end());
  return bytes;
}

std::vector<uint8_t> EncodeFunctionStrings(const InterfaceDescription& interface) {
  std::vector<uint8_t> bytes;
  Append<uint32_t>(&bytes, FUNCTIONFS_STRINGS_MAGIC);
  Append<uint32_t>(&bytes, static_cast<uint32_t>(16 + 2 + interface.name.size() + 1));
  Append<uint32_t>(&bytes, 1);  // strings
  Append<uint32_t>(&bytes, 1);  // languages
  Append<uint16_t>(&bytes, kEnglish);
  bytes.insert(bytes.end(), interface.name.begin(), interface.name.end());
  bytes.push_back(0);
  return bytes;
}

Result<size_t> EndpointFile::Read(std::span<uint8_t> data) {
  const ssize_t count = read(file_.get(), data.data(), data.size());
  if (count < 0) return ErrorOf("reading from the host", errno);
  return static_cast<size_t>(count);
}

Status EndpointFile::Write(std::span<const uint8_t> data) {
  const ssize_t count = write(file_.get(), data.data(), data.size());
  if (count < 0) return ErrorOf("writing to the host", errno);
  if (static_cast<size_t>(count) == data.size()) return {};
  return DeviceLost("the host took %zd of %zu bytes", count, data.size());
}

void EndpointFile::Halt(uint8_t address) {
  // FunctionFS halts an endpoint that is used against its direction, and says EBADMSG.
  uint8_t byte = 0;
  if ((address & USB_DIR_IN) != 0) {
    (void)!read(file_.get(), &byte, 1);
  } else {
    (void)!write(file_.get(), &byte, 1);
  }
}

void EndpointFile::UpdatePacketBytes() {
  usb_endpoint_descriptor descriptor = {};
  if (ioctl(file_.get(), FUNCTIONFS_ENDPOINT_DESC, &descriptor) != 0) return;
  const auto* field = reinterpret_cast<const uint8_t*>(&descriptor.wMaxPacketSize);
  const size_t bytes = LoadLittleEndian<uint16_t>(field) & 0x7FF;
  if (bytes > 0) packet_bytes_ = bytes;
}

Result<FunctionFs> FunctionFs::Open(const std::string& directory,
                                    const InterfaceDescription& interface) {
  ATOLL_ASSIGN_OR_RETURN(FileDescriptor control, OpenFile(directory + "/ep0"));
  ATOLL_RETURN_IF_ERROR(
      WriteAll(control.get(), EncodeFunctionDescriptors(interface), "interface's descriptors"));
  ATOLL_RETURN_IF_ERROR(
      WriteAll(control.get(), EncodeFunctionStrings(interface), "interface's strings"));
  std::vector<EndpointFile> endpoints;
  for (size_t i = 1; i <= interface.endpoints.size(); ++i) {
    ATOLL_ASSIGN_OR_RETURN(FileDescriptor file, OpenFile(Format("%s/ep%zu", directory.c_str(), i)));
    endpoints.emplace_back(std::move(file));
  }
  return FunctionFs(std::move(control), std::move(endpoints));
}

Result<FunctionFs::Event> FunctionFs::Next() {
  usb_functionfs_event raw;
  const ssize_t count = read(control_.get(), &raw, sizeof(raw));
  if (count < 0) return ErrorOf("reading events", errno);
  if (count != sizeof(raw)) return InternalError("an event of %zd bytes", count);
  static_assert(static_cast<int>(EventType::kSetup) == FUNCTIONFS_SETUP &&
                static_cast<int>(EventType::kResume) == FUNCTIONFS_RESUME);
  if (raw.type > FUNCTIONFS_RESUME) {
    return InternalError("the kernel reports an event of unknown type %u", raw.type);
  }
  Event event{.type = static_cast<EventType>(raw.type)};
  if (event.type == EventType::kSetup) {
    uint8_t setup[8];
    std::memcpy(setup, &raw.u.setup, sizeof(setup));
    event.setup = {.request_type = setup[0],
                   .request = setup[1],
                   .value = LoadLittleEndian<uint16_t>(setup + 2),
                   .index = LoadLittleEndian<uint16_t>(setup + 4)};
    event.length = LoadLittleEndian<uint16_t>(setup + 6);
  }
  return event;
}

Status FunctionFs::Send(std::span<const uint8_t> data) {
  const ssize_t count = write(control_.get(), data.data(), data.size());
  return count < 0 ? ErrorOf("answering a request", errno) : Status();
}

Status FunctionFs::Receive(std::span<uint8_t> data) {
  const ssize_t count = read(control_.get(), data.data(), data.size());
  if (count < 0) return ErrorOf("taking a request's data", errno);
  if (static_cast<size_t>(count) == data.size()) return {};
  return DeviceLost("a request brought %zd of %zu bytes", count, data.size());
}

void FunctionFs::Stall(const Event& event) {
  // A call against the request's direction stalls it, and says EL2HLT.
  if (event.setup.is_in()) {
    (void)!read(control_.get(), nullptr, 0);
  } else {
    (void)!write(control_.get(), nullptr, 0);
  }
}

namespace {

// While a request is answered nobody looks at `stop_fd` otherwise, and that may take as long as the
// longest instruction of a device.
class StopWatch {
 public:
  StopWatch(Function* function, int stop_fd) : over_(eventfd(0, EFD_CLOEXEC)) {
    // Signals are for the thread that waits for the host.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    thread_ = std::thread([this, function, stop_fd] { Watch(function, stop_fd); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~StopWatch() {
    const uint64_t one = 1;
    (void)!write(over_.get(), &one, sizeof(one));
    thread_.join();
  }

 private:
  void Watch(Function* function, int stop_fd) {
    constexpr int kPauseMs = 10;
    for (int pause_ms = -1;;) {
      // What is in stop_fd stays there.
      pollfd files[] = {{over_.get(), POLLIN, 0}, {pause_ms < 0 ? stop_fd : -1, POLLIN, 0}};
      if (poll(files, std::size(files), pause_ms) < 0) continue;
      if (files[0].revents != 0) return;
      function->GiveUp();
      pause_ms = kPauseMs;
    }
  }

  const FileDescriptor over_;
  std::thread thread_;
};

}  // namespace

Result<ServeEnd> ServeFunction(FunctionFs* function_fs, Function* function, int stop_fd) {
  struct DisableAtEnd {
    Function* function;
    ~DisableAtEnd() { function->Disable(); }
  } disable_at_end{function};
  const StopWatch stop_watch(function, stop_fd);
  for (;;) {
    pollfd files[] = {{function_fs->control_fd(), POLLIN, 0},
                      {stop_fd, POLLIN, 0},
                      {function->attention_fd(), POLLIN, 0}};
    if (poll(files, std::size(files), -1) < 0 && errno != EINTR) {
      return InternalError("waiting for events: %s", std::strerror(errno));
    }
    if (files[1].revents != 0) return ServeEnd::kStopped;
    if ((files[0].revents & (POLLERR | POLLHUP)) != 0) {
      return DeviceLost("FunctionFS was taken away; was it unmounted?");
    }
    if ((files[0].revents & POLLIN) != 0) {
      const Result<FunctionFs::Event> event = function_fs->Next();
      if (event.ok()) {
        Handle(function_fs, function, *event);
      } else if (event.code() != StatusCode::kCancelled &&
                 event.code() != StatusCode::kDeviceLost) {
        return event.status();
      }
    }
    const Function::Wish wish = function->wish();
    if (wish == Function::Wish::kReplug) return ServeEnd::kReplug;
    if (wish == Function::Wish::kEnd) return ServeEnd::kEnd;
  }
}

}  // namespace atollrt
