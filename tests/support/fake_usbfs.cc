// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_usbfs.h"

#include <linux/usbdevice_fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <umockdev.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>

#include "atoll/check.h"

namespace atollrt {
namespace {

constexpr const char* kNode = "/dev/bus/usb/001/002";
constexpr size_t kSetupBytes = 8;
constexpr std::chrono::microseconds kIdle{100};  // between looks for transfers that are over

// Device memory is what mmap of a node gives. umockdev leaves mmap alone, and all maps of the same
// file would be the same memory.
struct Maps {
  std::mutex mutex;
  std::string root;  // of the nodes; empty: there is no FakeUsbfs
  bool allowed = true;
  std::set<void*> addresses;
};
Maps& TheMaps() {
  static auto* maps = new Maps;
  return *maps;
}
std::atomic<bool> maps_watched = false;

bool IsNode(int fd, const std::string& root) {
  std::array<char, 512> target = {};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = readlink(link.c_str(), target.data(), target.size() - 1);
  return length > 0 && std::string(target.data()).starts_with(root);
}

void* Map(void* address, size_t length, int protection, int flags, int fd, off_t offset) {
  if (fd >= 0 && maps_watched) {
    Maps& maps = TheMaps();
    const std::lock_guard lock(maps.mutex);
    if (!maps.root.empty() && IsNode(fd, maps.root)) {
      if (!maps.allowed) {
        errno = ENODEV;
        return MAP_FAILED;
      }
      const long result = syscall(SYS_mmap, nullptr, length, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      void* memory = reinterpret_cast<void*>(result);
      if (memory != MAP_FAILED) maps.addresses.insert(memory);
      return memory;
    }
  }
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, length, protection, flags, fd, offset));
}

}  // namespace
}  // namespace atollrt

extern "C" {
[[gnu::visibility("default")]] void* mmap(void* address, size_t length, int protection, int flags,
                                          int fd, off_t offset) noexcept {
  return atollrt::Map(address, length, protection, flags, fd, offset);
}
[[gnu::visibility("default")]] void* mmap64(void* address, size_t length, int protection, int flags,
                                            int fd, off_t offset) noexcept {
  return atollrt::Map(address, length, protection, flags, fd, offset);
}
[[gnu::visibility("default")]] int munmap(void* address, size_t length) noexcept {
  if (atollrt::maps_watched) {
    const std::lock_guard lock(atollrt::TheMaps().mutex);
    atollrt::TheMaps().addresses.erase(address);
  }
  return static_cast<int>(syscall(SYS_munmap, address, length));
}
}  // extern "C"

namespace atollrt {
namespace {

void PutWord(std::vector<uint8_t>* bytes, size_t word) {
  bytes->push_back(static_cast<uint8_t>(word));
  bytes->push_back(static_cast<uint8_t>(word >> 8));
}

void PutEndpoint(std::vector<uint8_t>* bytes, uint8_t address, uint8_t type, size_t packet_bytes) {
  bytes->insert(bytes->end(), {7, 5, address, type});
  PutWord(bytes, packet_bytes);
  bytes->push_back(type == 3 ? 1 : 0);
}

// Device and configuration descriptors (USB 2.0, 9.6), as sysfs has them, in hexadecimal.
std::string Descriptors(UsbId id) {
  std::vector<uint8_t> bytes = {18, 1, 0x00, 0x02, 0, 0, 0, 64};
  PutWord(&bytes, id.vendor);
  PutWord(&bytes, id.product);
  bytes.insert(bytes.end(), {0x00, 0x01, 0, 0, 0, 1});
  bytes.insert(bytes.end(), {9, 2, 46, 0, 1, 1, 0, 0x80, 50});
  bytes.insert(bytes.end(), {9, 4, 0, 0, 4, 0xFF, 0xFF, 0xFF, 0});
  PutEndpoint(&bytes, 0x01, 2, FakeUsbfs::kPacketBytes);
  PutEndpoint(&bytes, 0x81, 2, FakeUsbfs::kPacketBytes);
  PutEndpoint(&bytes, 0x82, 2, FakeUsbfs::kPacketBytes);
  PutEndpoint(&bytes, 0x83, 3, 64);
  std::string text;
  for (const uint8_t byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

// At `path` of /sys/devices, on bus 1.
void AddDevice(UMockdevTestbed* testbed, const std::string& path, int address, UsbId id) {
  const std::string number = std::to_string(address);
  const std::string description = "P: /devices/" + path + "\nN: bus/usb/001/00" + number +
                                  "\nE: SUBSYSTEM=usb\nE: DEVTYPE=usb_device\nE: BUSNUM=001" +
                                  "\nE: DEVNUM=00" + number + "\nE: DEVNAME=/dev/bus/usb/001/00" +
                                  number + "\nA: busnum=1\\n\nA: devnum=" + number +
                                  "\\n\nA: speed=480\\n\nA: bConfigurationValue=1\\n" +
                                  "\nH: descriptors=" + Descriptors(id) + "\n";
  ATOLL_CHECK(umockdev_testbed_add_from_string(testbed, description.c_str(), nullptr));
}

}  // namespace

struct FakeUsbfs::State {
  UMockdevTestbed* testbed = nullptr;
  UMockdevIoctlBase* handler = nullptr;
  std::string root;

  std::mutex mutex;
  bool dead = false;
  Endpoints endpoints;
  std::function<void(Endpoints&)> device = [](Endpoints&) {};
  ControlHandler control = [](const ControlSetup&, std::span<uint8_t>) { return -EPIPE; };
  int claim_error = 0;
  int reset_error = 0;
  int submit_error = 0;
  bool keeps_cancelled = false;
  std::vector<usbdevfs_urb*> kept;     // among the pending ones
  std::vector<usbdevfs_urb*> pending;  // in the order of submission
  std::deque<usbdevfs_urb*> finished;

  static gboolean OnIoctl(UMockdevIoctlBase*, UMockdevIoctlClient* client, gpointer state);
  // What usbfs would return: 0 or -errno.
  int Answer(unsigned long request, void* argument);
  int Submit(usbdevfs_urb* urb);
  int Discard(const usbdevfs_urb* urb);
  void Finish(usbdevfs_urb* urb, int status);
  void FinishAll(int status);
  void Pump();
  bool Progress(usbdevfs_urb* urb);
};

// The program under test is this one, so its pointers are good here; it waits for the answer.
gboolean FakeUsbfs::State::OnIoctl(UMockdevIoctlBase*, UMockdevIoctlClient* client,
                                   gpointer state) {
  auto* self = static_cast<State*>(state);
  UMockdevIoctlData* data = umockdev_ioctl_client_get_arg(client);
  void* argument = nullptr;
  std::memcpy(&argument, data->data, sizeof(argument));
  const int result = self->Answer(umockdev_ioctl_client_get_request(client), argument);
  umockdev_ioctl_client_complete(client, result < 0 ? -1 : result, result < 0 ? -result : 0);
  return TRUE;
}

int FakeUsbfs::State::Answer(unsigned long request, void* argument) {
  std::unique_lock lock(mutex);
  if (request == USBDEVFS_REAPURBNDELAY || request == USBDEVFS_REAPURB) {
    Pump();
    if (!finished.empty()) {
      *static_cast<void**>(argument) = finished.front();
      finished.pop_front();
      return 0;
    }
    if (dead) return -ENODEV;
    lock.unlock();
    std::this_thread::sleep_for(kIdle);  // poll() always finds a node ready
    return -EAGAIN;
  }
  if (dead) return -ENODEV;
  switch (request) {
    case USBDEVFS_GET_CAPABILITIES:
      *static_cast<uint32_t*>(argument) =
          USBDEVFS_CAP_BULK_SCATTER_GATHER | USBDEVFS_CAP_BULK_CONTINUATION |
          USBDEVFS_CAP_NO_PACKET_SIZE_LIM | USBDEVFS_CAP_REAP_AFTER_DISCONNECT |
          USBDEVFS_CAP_ZERO_PACKET | USBDEVFS_CAP_MMAP;
      return 0;
    case USBDEVFS_CLAIMINTERFACE:
    case USBDEVFS_DISCONNECT_CLAIM:
      return -claim_error;
    case USBDEVFS_RELEASEINTERFACE:
      return 0;
    case USBDEVFS_SUBMITURB:
      return Submit(static_cast<usbdevfs_urb*>(argument));
    case USBDEVFS_DISCARDURB:
      return Discard(static_cast<usbdevfs_urb*>(argument));
    case USBDEVFS_CLEAR_HALT: {
      Endpoint& endpoint = endpoints[static_cast<uint8_t>(*static_cast<unsigned*>(argument))];
      endpoint.error = 0;
      ++endpoint.halts_cleared;
      return 0;
    }
    case USBDEVFS_RESET:
      FinishAll(-ENOENT);
      for (auto& [address, endpoint] : endpoints) {
        endpoint.packets.clear();
        endpoint.error = 0;
      }
      return -reset_error;
    default:
      return -ENOTTY;
  }
}

int FakeUsbfs::State::Submit(usbdevfs_urb* urb) {
  if (submit_error != 0 && !pending.empty()) return -submit_error;
  urb->actual_length = 0;
  urb->status = 0;
  pending.push_back(urb);
  Endpoint& endpoint = endpoints[urb->endpoint];
  const auto in_flight = std::count_if(pending.begin(), pending.end(), [&](const auto* other) {
    return other->endpoint == urb->endpoint;
  });
  endpoint.most_in_flight = std::max(endpoint.most_in_flight, static_cast<size_t>(in_flight));
  endpoint.largest = std::max(endpoint.largest, static_cast<size_t>(urb->buffer_length));
  return 0;
}

int FakeUsbfs::State::Discard(const usbdevfs_urb* urb) {
  const auto found = std::find(pending.begin(), pending.end(), urb);
  if (found == pending.end()) return -EINVAL;
  if (keeps_cancelled) {
    kept.push_back(*found);
  } else {
    Finish(*found, -ENOENT);
  }
  return 0;
}

void FakeUsbfs::State::Finish(usbdevfs_urb* urb, int status) {
  urb->status = status;
  std::erase(pending, urb);
  finished.push_back(urb);
}

void FakeUsbfs::State::FinishAll(int status) {
  while (!pending.empty()) Finish(pending.front(), status);
}

// Lets the device do all that it can do now.
void FakeUsbfs::State::Pump() {
  device(endpoints);
  std::set<uint8_t> waiting;  // endpoints whose first transfer has to wait
  for (size_t i = 0; i < pending.size();) {
    usbdevfs_urb* urb = pending[i];
    if (!waiting.contains(urb->endpoint) && Progress(urb)) {
      i = 0;
      continue;
    }
    waiting.insert(urb->endpoint);
    ++i;
  }
}

// True if the transfer is over.
bool FakeUsbfs::State::Progress(usbdevfs_urb* urb) {
  auto* buffer = static_cast<uint8_t*>(urb->buffer);
  if (urb->type == USBDEVFS_URB_TYPE_CONTROL) {
    const auto word = [&](int at) {
      return static_cast<uint16_t>(buffer[at] | buffer[at + 1] << 8);
    };
    const int answer = control(
        {.request_type = buffer[0], .request = buffer[1], .value = word(2), .index = word(4)},
        std::span(buffer, static_cast<size_t>(urb->buffer_length)).subspan(kSetupBytes));
    if (answer == kSilence) return false;
    urb->actual_length = std::max(answer, 0);
    Finish(urb, std::min(answer, 0));
    return true;
  }
  Endpoint& endpoint = endpoints[urb->endpoint];
  if (endpoint.error != 0) {
    Finish(urb, -endpoint.error);
    return true;
  }
  const auto length = static_cast<size_t>(urb->buffer_length);
  auto actual = static_cast<size_t>(urb->actual_length);
  if ((urb->endpoint & 0x80) == 0) {
    const size_t count = std::min(endpoint.room, length - actual);
    endpoint.taken.insert(endpoint.taken.end(), buffer + actual, buffer + actual + count);
    if (endpoint.room != SIZE_MAX) endpoint.room -= count;
    urb->actual_length += static_cast<int>(count);
    if (actual + count < length) return false;
    Finish(urb, 0);
    return true;
  }
  const size_t packet_bytes = urb->endpoint == 0x83 ? 64 : kPacketBytes;
  while (!endpoint.packets.empty()) {
    const Bytes packet = std::move(endpoint.packets.front());
    endpoint.packets.pop_front();
    if (packet.size() > length - actual) {
      Finish(urb, -EOVERFLOW);
      return true;
    }
    std::copy(packet.begin(), packet.end(), buffer + actual);
    actual += packet.size();
    urb->actual_length = static_cast<int>(actual);
    if (packet.size() < packet_bytes || actual == length) {
      Finish(urb, 0);
      return true;
    }
  }
  return false;
}

FakeUsbfs::FakeUsbfs() : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.testbed = umockdev_testbed_new();
  state.handler = umockdev_ioctl_base_new();
  g_signal_connect(state.handler, "handle-ioctl", G_CALLBACK(State::OnIoctl), &state);
  gchar* root = umockdev_testbed_get_root_dir(state.testbed);
  state.root = root;
  g_free(root);
  {
    const std::lock_guard lock(TheMaps().mutex);
    TheMaps().root = state.root;
    TheMaps().allowed = true;
  }
  maps_watched = true;
  AddDevice(state.testbed, "usb1", 1, {0x1d6b, 0x0002});
}

FakeUsbfs::~FakeUsbfs() {
  maps_watched = false;
  {
    const std::lock_guard lock(TheMaps().mutex);
    TheMaps().root.clear();
  }
  g_object_unref(state_->testbed);  // ends the thread that calls OnIoctl
  g_object_unref(state_->handler);
}

void FakeUsbfs::Plug(UsbId id) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->dead = false;
  }
  // Before the device, whose arrival may make somebody open it at once.
  ATOLL_CHECK(umockdev_testbed_attach_ioctl(state_->testbed, kNode, state_->handler, nullptr));
  AddDevice(state_->testbed, "usb1/1-2", 2, id);
}

void FakeUsbfs::Die() {
  const std::lock_guard lock(state_->mutex);
  state_->dead = true;
  state_->FinishAll(-ESHUTDOWN);
}

void FakeUsbfs::Unplug() {
  Die();
  umockdev_testbed_uevent(state_->testbed, "/sys/devices/usb1/1-2", "remove");
  Vanish();
}

void FakeUsbfs::Vanish() {
  Die();
  umockdev_testbed_detach_ioctl(state_->testbed, kNode, nullptr);
  umockdev_testbed_remove_device(state_->testbed, "/sys/devices/usb1/1-2");
}

void FakeUsbfs::At(uint8_t endpoint, const std::function<void(Endpoint&)>& use) {
  const std::lock_guard lock(state_->mutex);
  use(state_->endpoints[endpoint]);
}

void FakeUsbfs::Send(uint8_t endpoint, std::span<const uint8_t> bytes) {
  At(endpoint, [&](Endpoint& e) {
    do {
      const auto packet = bytes.first(std::min(bytes.size(), kPacketBytes));
      e.packets.emplace_back(packet.begin(), packet.end());
      bytes = bytes.subspan(packet.size());
    } while (!bytes.empty());
  });
}

void FakeUsbfs::OnControl(ControlHandler handler) {
  const std::lock_guard lock(state_->mutex);
  state_->control = std::move(handler);
}

void FakeUsbfs::OnLook(std::function<void(Endpoints&)> device) {
  const std::lock_guard lock(state_->mutex);
  state_->device = std::move(device);
}

void FakeUsbfs::Forbid() {
  ATOLL_CHECK(chmod(node().c_str(), 0) == 0);
  // umockdev's own way to it, without which it ends the program.
  ATOLL_CHECK(chmod(state_->root.c_str(), 0755) == 0);
  ATOLL_CHECK(chmod((state_->root + "/ioctl" + kNode).c_str(), 0777) == 0);
}

void FakeUsbfs::set_claim_error(int error) {
  const std::lock_guard lock(state_->mutex);
  state_->claim_error = error;
}

void FakeUsbfs::set_reset_error(int error) {
  const std::lock_guard lock(state_->mutex);
  state_->reset_error = error;
}

void FakeUsbfs::set_submit_error(int error) {
  const std::lock_guard lock(state_->mutex);
  state_->submit_error = error;
}

void FakeUsbfs::set_keeps_cancelled(bool keeps) {
  const std::lock_guard lock(state_->mutex);
  state_->keeps_cancelled = keeps;
  for (usbdevfs_urb* urb : state_->kept) state_->Finish(urb, -ENOENT);
  state_->kept.clear();
}

void FakeUsbfs::set_gives_memory(bool gives) {
  const std::lock_guard lock(TheMaps().mutex);
  TheMaps().allowed = gives;
}

int FakeUsbfs::transfers_in_flight() {
  const std::lock_guard lock(state_->mutex);
  return static_cast<int>(state_->pending.size() + state_->finished.size());
}

int FakeUsbfs::memory_maps() {
  const std::lock_guard lock(TheMaps().mutex);
  return static_cast<int>(TheMaps().addresses.size());
}

std::string FakeUsbfs::node() const { return state_->root + kNode; }

}  // namespace atollrt
