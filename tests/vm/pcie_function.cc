// SPDX-License-Identifier: Apache-2.0
//
// usage: vm-pcie-function qemu-system-x86_64 ARGUMENT...
//
// Runs QEMU with an emulated Atoll-1 in a slot of its guest's PCI Express: the guest's own PCI,
// VT-d and VFIO code drives it. QEMU gives the function's place to another process through its
// device x-pci-proxy-dev, and this is that process. What they say to each other is QEMU's private
// multi-process protocol (docs/system/multi-process.rst in its source, for names; messages as QEMU
// 7.2 sends them, native-endian): it may change with any version, and tests that need it are
// skipped where QEMU lacks the device. The guest's memory must be one memfd; one processor, as two
// that access the function at once lose accesses.
//
// QEMU's standard output is the guest's report, and is passed on, but for lines that ask something
// of the host. The answer, "done" or what went wrong, goes to QEMU's standard input:
//   HOST leave              the function gives all ones from now on: it has left the bus
//   HOST leave LEAST MOST   the same, after a number of accesses, DMA and interrupts from a seed
//   HOST left               waits until it has
//   HOST return             it is back, as after power comes on
//   HOST return link        the same, as after its link was down: its configuration still holds
//   HOST flaps N            N times: leaves in the middle of work, returns as after a link that was
//                           down, and is at work again
//   HOST used               waits until it reports the next event of a program
//   HOST unplug             asks the guest to give the function up, by ACPI, and takes it out when
//   it has HOST plug               puts another one in HOST astray             its next write by
//   DMA goes to an address that it was not given HOST strayed            waits until it has, and
//   until the IOMMU has stopped it
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "atoll/check.h"
#include "driver/profiles/device_profile.h"
#include "runtime/base/file_descriptor.h"
#include "tests/vm/guest_machine.h"
#include "tests/vm/proxied_function.h"

namespace atollrt {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kPatience(120);  // for what must happen
constexpr uint32_t kSeed = 19;

std::pair<FileDescriptor, FileDescriptor> SocketPair() {
  int ends[2];
  ATOLL_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

// ---- QEMU's protocol with the function's process ------------------------------------------------

enum Command : int32_t {
  kSyncMemory = 0,  // the guest's memory, and a file for each region; not answered
  kReturn = 1,
  kWriteConfiguration = 2,
  kReadConfiguration = 3,
  kWriteBar = 4,
  kReadBar = 5,
  kSetIrqFiles = 6,  // for INTx, which the function has not; not answered
  kReset = 7,
};
struct Header {
  int32_t command;
  uint32_t padding;
  uint64_t bytes;
};
constexpr size_t kRegionsMax = 8;
struct MemoryMap {
  uint64_t guest_addresses[kRegionsMax];
  uint64_t sizes[kRegionsMax];
  uint64_t file_offsets[kRegionsMax];
};
struct ConfigurationAccess {
  uint32_t offset;
  uint32_t value;
  int32_t bytes;
};
struct BarAccess {
  uint64_t address;
  uint64_t value;
  uint32_t bytes;
  uint8_t is_memory;
};
static_assert(sizeof(Header) == 16 && sizeof(MemoryMap) == 192 &&
              sizeof(ConfigurationAccess) == 12 && sizeof(BarAccess) == 24);

// Fills `bytes` bytes; files that come along are added to `files`. False at the end.
bool Receive(int socket, void* data, size_t bytes, std::vector<FileDescriptor>* files) {
  for (size_t have = 0; have < bytes;) {
    alignas(cmsghdr) char control[CMSG_SPACE(kRegionsMax * sizeof(int))];
    iovec part{.iov_base = static_cast<char*>(data) + have, .iov_len = bytes - have};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t count = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    if (count <= 0) return false;
    have += static_cast<size_t>(count);
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
      for (size_t at = 0; at + sizeof(int) <= c->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
        int file = -1;
        std::memcpy(&file, CMSG_DATA(c) + at, sizeof file);
        files->emplace_back(file);
      }
    }
  }
  return true;
}

// Serves the function to QEMU until that takes it out.
void Serve(int socket, GuestMemory* memory, ProxiedFunction* function) {
  for (;;) {
    Header header{};
    union {
      MemoryMap map;
      ConfigurationAccess configuration;
      BarAccess bar;
    } message{};
    std::vector<FileDescriptor> files;
    if (!Receive(socket, &header, sizeof header, &files)) return;
    ATOLL_CHECK(header.bytes <= sizeof message);
    if (!Receive(socket, &message, header.bytes, &files)) return;
    uint64_t answer = 0;
    const ConfigurationAccess& configuration = message.configuration;
    const BarAccess& bar = message.bar;
    switch (header.command) {
      case kSyncMemory: {
        std::vector<GuestMemory::Region> regions;
        for (size_t i = 0; i < files.size() && i < kRegionsMax; ++i) {
          regions.push_back(
              {message.map.guest_addresses[i], message.map.sizes[i], message.map.file_offsets[i]});
        }
        memory->Replace(regions, files);
        continue;
      }
      case kSetIrqFiles:
        continue;
      case kWriteConfiguration:
        function->WriteConfiguration(
            configuration.offset, static_cast<uint32_t>(configuration.bytes), configuration.value);
        break;
      case kReadConfiguration:
        answer = function->ReadConfiguration(configuration.offset,
                                             static_cast<uint32_t>(configuration.bytes));
        break;
      case kWriteBar:
        function->WriteMemoryAt(bar.address, bar.bytes, bar.value);
        break;
      case kReadBar:
        answer = function->ReadMemoryAt(bar.address, bar.bytes);
        break;
      case kReset:
        function->Reset();
        break;
      default:
        std::fprintf(stderr, "function: QEMU says %d, which is not known\n", header.command);
        return;
    }
    const struct {
      Header header;
      uint64_t value;
    } reply{{kReturn, 0, sizeof(uint64_t)}, answer};
    if (write(socket, &reply, sizeof reply) != sizeof reply) return;
  }
}

// ---- QEMU's monitor -----------------------------------------------------------------------------

class Monitor {
 public:
  explicit Monitor(FileDescriptor socket) : socket_(std::move(socket)) {}

  // Executes a command, with a file if there is one; what went wrong, or "".
  std::string Execute(const char* name, const json& arguments, int file = -1) {
    if (!std::exchange(has_greeted_, true)) {
      Next();
      Execute("qmp_capabilities", json::object());
    }
    const std::string text = json{{"execute", name}, {"arguments", arguments}}.dump();
    iovec part{.iov_base = const_cast<char*>(text.data()), .iov_len = text.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (file >= 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* c = CMSG_FIRSTHDR(&message);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(c), &file, sizeof file);
    }
    if (sendmsg(socket_.get(), &message, 0) != static_cast<ssize_t>(text.size())) return "no QEMU";
    for (;;) {
      const json line = Next();
      if (line.is_discarded()) return "no QEMU";
      if (line.contains("event")) {
        events_.push_back(line);
      } else if (line.contains("error")) {
        return line["error"].dump();
      } else {
        return "";
      }
    }
  }

  // Waits until the device is out.
  std::string AwaitDeleted(const std::string& device) {
    for (;;) {
      while (!events_.empty()) {
        const json event = events_.back();
        events_.pop_back();
        if (event["event"] == "DEVICE_DELETED" && event["data"].value("device", "") == device) {
          return "";
        }
        if (event["event"] == "DEVICE_UNPLUG_GUEST_ERROR") return event.dump();
      }
      const json line = Next();
      if (line.is_discarded()) return "the guest keeps it";
      if (line.contains("event")) events_.push_back(line);
    }
  }

 private:
  // The next line; discarded after a long silence.
  json Next() {
    const timeval patience{.tv_sec = kPatience.count(), .tv_usec = 0};
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    size_t end = 0;
    while ((end = text_.find('\n')) == std::string::npos) {
      char part[4096];
      const ssize_t count = read(socket_.get(), part, sizeof part);
      if (count <= 0) return json(json::value_t::discarded);
      text_.append(part, static_cast<size_t>(count));
    }
    const json line = json::parse(text_.substr(0, end), nullptr, false);
    text_.erase(0, end + 1);
    return line;
  }

  FileDescriptor socket_;
  bool has_greeted_ = false;
  std::string text_;
  std::vector<json> events_;
};

// ---- The host's side ----------------------------------------------------------------------------

class Host {
 public:
  Host(FileDescriptor qtest, FileDescriptor monitor)
      : qtest_(std::move(qtest)), monitor_(std::move(monitor)) {}
  ~Host() { EndService(); }

  // A new function; QEMU's end of its socket.
  FileDescriptor NewFunction() {
    EndService();
    auto [ours, theirs] = SocketPair();
    const Result<DeviceProfile> profile = FindDeviceProfile("");
    ATOLL_CHECK(profile.ok());
    auto function = ProxiedFunction::Create({.profile = *profile}, &memory_, &qtest_);
    ATOLL_CHECK(function.ok());
    function_ = std::move(*function);
    service_ = std::thread(
        [this, socket = std::move(ours)] { Serve(socket.get(), &memory_, function_.get()); });
    ++functions_;
    return std::move(theirs);
  }
  // That of the one that was made last.
  std::string device_id() const { return "atoll" + std::to_string(functions_); }

  // Does what the guest asks for; the answer.
  std::string Do(const std::string& request) {
    std::istringstream words(request);
    std::string verb;
    words >> verb;
    uint64_t least = 0, most = 0;
    std::string how;
    ProxiedFunction::Stray stray;
    if (verb == "leave") {
      words >> least >> most;
      function_->LeaveAfter(most == 0 ? 0 : Random(least, most));
      return "done";
    }
    if (verb == "left") return Answer(function_->AwaitAbsence(Until()), "It is still there.");
    if (verb == "return") {
      words >> how;
      function_->ComeBack(how == "link" ? ProxiedFunction::Return::kFromLinkDown
                                        : ProxiedFunction::Return::kFromPowerOff);
      return "done";
    }
    if (verb == "flaps") {
      words >> least;
      return Flap(least);
    }
    if (verb == "used") return Answer(function_->AwaitEvent(Until()), "Nobody uses it.");
    if (verb == "unplug") return Unplug();
    if (verb == "plug") return Plug();
    if (verb == "astray") {
      function_->GoAstray();
      return "done";
    }
    if (verb == "strayed") {
      if (!function_->AwaitStray(Until(), &stray)) return "Nothing was written.";
      if (stray.passed) return "The write passed.";
      char text[64];
      std::snprintf(text, sizeof text, "done %llX", static_cast<unsigned long long>(stray.address));
      return text;
    }
    return "What is \"" + request + "\"?";
  }

 private:
  static Deadline Until() { return Clock::now() + kPatience; }
  static std::string Answer(bool done, const char* otherwise) { return done ? "done" : otherwise; }
  uint64_t Random(uint64_t least, uint64_t most) { return least + random_() % (most - least + 1); }

  std::string Flap(uint64_t times) {
    // From the second access on; a few requests.
    constexpr uint64_t kMostEvents = 120;
    constexpr uint64_t kMostAbsentMs = 500;
    for (uint64_t i = 1; i <= times; ++i) {
      const std::string which = "flap " + std::to_string(i) + ": ";
      const uint64_t events = Random(2, kMostEvents);
      function_->LeaveAfter(events);
      if (!function_->AwaitAbsence(Until())) return which + "It is still there.";
      const std::chrono::milliseconds absent(Random(1, kMostAbsentMs));
      std::fprintf(stderr, "function: %sleft after %llu events, for %lld ms\n", which.c_str(),
                   static_cast<unsigned long long>(events), static_cast<long long>(absent.count()));
      std::this_thread::sleep_for(absent);
      function_->ComeBack(ProxiedFunction::Return::kFromLinkDown);
      if (!function_->AwaitEvent(Until())) return which + "Nobody uses it again.";
    }
    return "done";
  }

  std::string Unplug() {
    const std::string id = device_id();
    const std::string wrong = monitor_.Execute("device_del", {{"id", id}});
    if (!wrong.empty()) return wrong;
    const std::string kept = monitor_.AwaitDeleted(id);
    if (!kept.empty()) return kept;
    EndService();
    return "done";
  }
  std::string Plug() {
    const FileDescriptor theirs = NewFunction();
    const std::string id = device_id();
    std::string wrong = monitor_.Execute("getfd", {{"fdname", id}}, theirs.get());
    if (!wrong.empty()) return wrong;
    wrong = monitor_.Execute(
        "device_add", {{"driver", "x-pci-proxy-dev"}, {"id", id}, {"bus", "rootport"}, {"fd", id}});
    return wrong.empty() ? "done" : wrong;
  }

  void EndService() {
    if (service_.joinable()) service_.join();
  }

  GuestMemory memory_;
  Qtest qtest_;
  Monitor monitor_;
  std::unique_ptr<ProxiedFunction> function_;
  std::thread service_;
  int functions_ = 0;
  std::mt19937_64 random_{kSeed};
};

int Run(std::vector<std::string> arguments) {
  std::signal(SIGPIPE, SIG_IGN);
  auto [our_qtest, their_qtest] = SocketPair();
  auto [our_monitor, their_monitor] = SocketPair();
  auto [our_serial, their_serial] = SocketPair();
  Host host(std::move(our_qtest), std::move(our_monitor));
  FileDescriptor their_function = host.NewFunction();

  // The sockets' numbers in QEMU.
  constexpr int kFunction = 40, kQtest = 41, kMonitor = 42;
  for (const std::string& argument :
       {std::string("-device"), std::string("pcie-root-port,id=rootport,chassis=1,slot=1"),
        std::string("-device"),
        "x-pci-proxy-dev,bus=rootport,id=" + host.device_id() + ",fd=" + std::to_string(kFunction),
        std::string("-chardev"), "socket,id=qtest,fd=" + std::to_string(kQtest),
        std::string("-qtest"), std::string("chardev:qtest"), std::string("-qtest-log"),
        std::string("none"), std::string("-chardev"),
        "socket,id=monitor,fd=" + std::to_string(kMonitor), std::string("-mon"),
        std::string("chardev=monitor,mode=control")}) {
    arguments.push_back(argument);
  }
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);

  const pid_t qemu = fork();
  ATOLL_CHECK(qemu >= 0);
  if (qemu == 0) {
    dup2(their_serial.get(), STDIN_FILENO);
    dup2(their_serial.get(), STDOUT_FILENO);
    dup2(their_function.get(), kFunction);
    dup2(their_qtest.get(), kQtest);
    dup2(their_monitor.get(), kMonitor);
    execvp(argv[0], argv.data());
    std::perror(argv[0]);
    _exit(127);
  }
  for (FileDescriptor* end : {&their_serial, &their_function, &their_qtest, &their_monitor})
    *end = FileDescriptor();

  std::string text;
  char part[4096];
  for (ssize_t count = 0; (count = read(our_serial.get(), part, sizeof part)) > 0;) {
    text.append(part, static_cast<size_t>(count));
    for (size_t end = 0; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1)) {
      const std::string line = text.substr(0, end);
      constexpr std::string_view kAsks = "HOST ";
      if (line.compare(0, kAsks.size(), kAsks) != 0) {
        std::printf("%s\n", line.c_str());
        std::fflush(stdout);
        continue;
      }
      const std::string answer = host.Do(line.substr(kAsks.size())) + "\n";
      if (write(our_serial.get(), answer.data(), answer.size()) < 0) break;
    }
  }
  int status = 0;
  waitpid(qemu, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace
}  // namespace atollrt

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: vm-pcie-function qemu-system-x86_64 ARGUMENT...\n");
    return 2;
  }
  return atollrt::Run({argv + 1, argv + argc});
}
