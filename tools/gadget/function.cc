// SPDX-License-Identifier: Apache-2.0
#include "tools/gadget/function.h"

#include <poll.h>

#include <cerrno>
#include <cstring>

#include "runtime/base/log.h"

namespace atollrt {
namespace {

constexpr uint8_t kDirectionIn = 0x80;

void Answer(FunctionFs* function_fs, Function* function, const FunctionFs::Event& event) {
  Status status;
  bool accepted = false;
  std::vector<uint8_t> data(event.length);
  if ((event.setup.request_type & kDirectionIn) != 0) {
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

Result<ServeEnd> ServeFunction(FunctionFs* function_fs, Function* function, int stop_fd) {
  struct DisableAtEnd {
    Function* function;
    ~DisableAtEnd() { function->Disable(); }
  } disable_at_end{function};
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
