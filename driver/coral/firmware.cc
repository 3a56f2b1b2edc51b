// SPDX-License-Identifier: Apache-2.0
#include "driver/coral/firmware.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>

#include "driver/usb/usb_bus.h"
#include "runtime/base/bytes.h"
#include "runtime/base/log.h"
#include "runtime/base/sha256.h"

namespace atollrt {
namespace {

constexpr char kFileName[] = "apex_latest_single_ep.bin";
constexpr char kSource[] =
    "driver/usb/apex_latest_single_ep.bin of github.com/google-coral/libedgetpu";
constexpr char kKnownDigest[] = "3b07311b174b81fd14fd2c887f40d646c0ebf2f140cc5ee5cf8befa0f3e3dc7f";
constexpr size_t kImageBytesMax = 32 << 10;  // of the device's memory for it

constexpr int kAttempts = 2;
constexpr std::chrono::milliseconds kControlPatience{2000};
constexpr std::chrono::milliseconds kDownloadTimeout{10'000};
constexpr std::chrono::milliseconds kResetTimeout{5000};
// Between questions to a device that says it needs no time and is not ready.
constexpr std::chrono::milliseconds kPollPauseMin{1};
constexpr std::chrono::milliseconds kReturnTimeout{10'000};
// How long it may look as before after a reset that it did not announce as a new device.
constexpr std::chrono::milliseconds kRestartTimeout{2000};

// DFU 1.1: requests, states, descriptors.
enum class DfuRequest : uint8_t {
  kDownload = 1,
  kUpload = 2,
  kGetStatus = 3,
  kClearStatus = 4,
  kAbort = 6
};
enum State : uint8_t {
  kIdle = 2,
  kDownloadSync = 3,
  kDownloadBusy = 4,
  kDownloadIdle = 5,
  kManifestSync = 6,
  kManifest = 7,
  kManifestWaitReset = 8,
  kError = 10
};
constexpr uint8_t kToDevice = 0x21, kFromDevice = 0xA1;
constexpr uint8_t kApplicationClass = 0xFE, kDfuSubclass = 1;
constexpr uint8_t kInterfaceDescriptor = 4, kDfuDescriptor = 0x21;

struct DfuInterface {
  uint8_t number = 0;
  uint16_t block_bytes = 256;
};

struct DfuStatus {
  uint8_t status = 0;
  uint8_t state = 0;
  std::chrono::milliseconds poll_time{0};
};

// What its configuration descriptor says of downloads.
std::optional<DfuInterface> FindDfuInterface(std::span<const uint8_t> descriptors) {
  std::optional<DfuInterface> found;
  while (descriptors.size() >= 2 && descriptors[0] >= 2 && descriptors[0] <= descriptors.size()) {
    const std::span<const uint8_t> descriptor = descriptors.first(descriptors[0]);
    descriptors = descriptors.subspan(descriptor.size());
    if (descriptor[1] == kInterfaceDescriptor && descriptor.size() >= 9 && !found &&
        descriptor[5] == kApplicationClass && descriptor[6] == kDfuSubclass) {
      found = DfuInterface{.number = descriptor[2]};
    } else if (descriptor[1] == kDfuDescriptor && descriptor.size() >= 7 && found) {
      const auto bytes = LoadLittleEndian<uint16_t>(&descriptor[5]);
      if (bytes != 0) found->block_bytes = bytes;
      break;
    }
  }
  return found;
}

// One opened device in DFU mode.
class Dfu {
 public:
  Dfu(UsbBus* bus, std::unique_ptr<UsbTransport> transport, const NowFunction& now)
      : bus_(bus),
        transport_(std::move(transport)),
        now_(now),
        deadline_(now() + kDownloadTimeout) {}

  // Before anything else.
  Result<DfuInterface> ReadDescriptors() {
    constexpr ControlSetup kGetConfiguration{.request_type = 0x80, .request = 6, .value = 2 << 8};
    std::array<uint8_t, 9> head{};
    ATOLL_RETURN_IF_ERROR(transport_->Control(kGetConfiguration, head, Patience()));
    std::vector<uint8_t> all(
        std::clamp<size_t>(LoadLittleEndian<uint16_t>(&head[2]), head.size(), 4096));
    ATOLL_RETURN_IF_ERROR(transport_->Control(kGetConfiguration, all, Patience()));
    const std::optional<DfuInterface> found = FindDfuInterface(all);
    if (!found) return Unsupported("it has no interface for firmware downloads");
    interface_ = *found;
    return *found;
  }

  // To the state from which a download begins.
  Status BecomeIdle() {
    ATOLL_ASSIGN_OR_RETURN(DfuStatus status, GetStatus());
    if (status.state == kError) {
      ATOLL_RETURN_IF_ERROR(Send(DfuRequest::kClearStatus, 0, {}));
      ATOLL_ASSIGN_OR_RETURN(status, GetStatus());
    }
    if (status.state != kIdle) {
      ATOLL_RETURN_IF_ERROR(Send(DfuRequest::kAbort, 0, {}));
      ATOLL_ASSIGN_OR_RETURN(status, GetStatus());
    }
    if (status.state == kIdle) return {};
    return DeviceLost("it stays in DFU state %u; unplug it and plug it in again", status.state);
  }

  Status Download(std::span<const uint8_t> image) {
    uint16_t block = 0;
    for (size_t sent = 0; sent < image.size(); ++block) {
      const size_t bytes = std::min<size_t>(interface_.block_bytes, image.size() - sent);
      ATOLL_RETURN_IF_ERROR(SendBlock(block, image.subspan(sent, bytes), kDownloadIdle));
      sent += bytes;
    }
    return SendBlock(block, {}, kIdle);
  }

  // Reads the image back.
  Status Verify(std::span<const uint8_t> image) {
    std::vector<uint8_t> block(interface_.block_bytes);
    uint16_t number = 0;
    for (size_t seen = 0; seen < image.size(); ++number) {
      // Whole blocks only, which the device has: its memory is larger than the image.
      Status status = Send(DfuRequest::kUpload, number, block);
      if (!status.ok()) return std::move(status).WithContext("reading the firmware back");
      const size_t bytes = std::min(block.size(), image.size() - seen);
      const auto expected = image.subspan(seen, bytes);
      const auto [want, got] = std::mismatch(expected.begin(), expected.end(), block.begin());
      if (want != expected.end()) {
        const size_t at = seen + static_cast<size_t>(want - expected.begin());
        return DeviceLost("byte %zu of the firmware reads back as %02x instead of %02x", at, *got,
                          *want);
      }
      seen += bytes;
    }
    return {};
  }

  Status Reset() { return transport_->Reset(now_() + kResetTimeout); }

 private:
  Deadline Patience() const { return std::min(deadline_, now_() + kControlPatience); }

  // Sends `data`, or fills it.
  Status Send(DfuRequest request, uint16_t value, std::span<uint8_t> data) {
    const bool reads = request == DfuRequest::kUpload || request == DfuRequest::kGetStatus;
    return transport_->Control({.request_type = reads ? kFromDevice : kToDevice,
                                .request = static_cast<uint8_t>(request),
                                .value = value,
                                .index = interface_.number},
                               data, Patience());
  }

  Result<DfuStatus> GetStatus() {
    std::array<uint8_t, 6> data{};
    ATOLL_RETURN_IF_ERROR(Send(DfuRequest::kGetStatus, 0, data));
    const uint32_t poll_ms = data[1] | data[2] << 8 | data[3] << 16;
    return DfuStatus{
        .status = data[0], .state = data[4], .poll_time = std::chrono::milliseconds(poll_ms)};
  }

  // A block, and what the device has to do for it.
  Status SendBlock(uint16_t number, std::span<const uint8_t> data, State wanted) {
    std::vector<uint8_t> block(data.begin(), data.end());
    ATOLL_RETURN_IF_ERROR(Send(DfuRequest::kDownload, number, block)
                              .WithContext(Format("firmware block %u", number)));
    for (;;) {
      ATOLL_ASSIGN_OR_RETURN(const DfuStatus status, GetStatus());
      const bool ready_to_restart = wanted == kIdle && status.state == kManifestWaitReset;
      if (status.status == 0 && (status.state == wanted || ready_to_restart)) return {};
      const bool is_busy =
          status.state == kDownloadSync || status.state == kDownloadBusy ||
          (wanted == kIdle && (status.state == kManifestSync || status.state == kManifest));
      if (status.status != 0 || !is_busy) {
        return DeviceLost("it answers firmware block %u with status %u, state %u", number,
                          status.status, status.state);
      }
      // It asks to be left alone for so long, up to hours; nothing else happens on the bus but that
      // it leaves.
      const Deadline next = now_() + std::max(status.poll_time, kPollPauseMin);
      if (next >= deadline_) {
        return Timeout("it is still busy with firmware block %u, and wants %lld ms more", number,
                       static_cast<long long>(status.poll_time.count()));
      }
      (void)bus_->WaitForChange(bus_->generation(), next);
    }
  }

  UsbBus* const bus_;
  const std::unique_ptr<UsbTransport> transport_;
  const NowFunction& now_;
  const Deadline deadline_;
  DfuInterface interface_;
};

// "3.1" of "2-3.1".
std::string_view PortsOf(std::string_view path) { return path.substr(path.find('-') + 1); }

// The device that was `before` and has got its firmware since, among those on the bus: at its port;
// else at that of the other bus of the same sockets; else one that was not there before.
const UsbDeviceInfo* FindReturned(const UsbDeviceInfo& before,
                                  const std::vector<UsbDeviceInfo>& known,
                                  const std::vector<UsbDeviceInfo>& now) {
  const UsbDeviceInfo* best = nullptr;
  int best_rank = 0;
  for (const UsbDeviceInfo& device : now) {
    if (device.id != kCoralUsbId) continue;
    const bool is_new = std::none_of(known.begin(), known.end(), [&](const UsbDeviceInfo& other) {
      return other.path == device.path && other.id == device.id;
    });
    const int rank = device.path == before.path                     ? 3
                     : !is_new                                      ? 0
                     : PortsOf(device.path) == PortsOf(before.path) ? 2
                                                                    : 1;
    if (rank > best_rank) {
      best = &device;
      best_rank = rank;
    }
  }
  return best;
}

Result<UsbDeviceInfo> AwaitReturn(UsbBus* bus, const UsbDeviceInfo& before,
                                  const std::vector<UsbDeviceInfo>& known, bool has_left,
                                  const NowFunction& now) {
  const Deadline deadline = now() + (has_left ? kReturnTimeout : kRestartTimeout);
  for (;;) {
    const uint64_t generation = bus->generation();
    ATOLL_ASSIGN_OR_RETURN(const std::vector<UsbDeviceInfo> devices, bus->List());
    if (const UsbDeviceInfo* found = FindReturned(before, known, devices)) return *found;
    for (const UsbDeviceInfo& device : devices) {
      if (device.path == before.path && device.id == before.id &&
          device.address != before.address) {
        return DeviceLost("it came back without running the firmware");
      }
    }
    if (now() >= deadline) {
      return DeviceLost(
          has_left ? "it did not come back within %lld ms"
                   : "it took the firmware, but did not start it within %lld ms",
          static_cast<long long>((has_left ? kReturnTimeout : kRestartTimeout).count()));
    }
    (void)bus->WaitForChange(generation, deadline);
  }
}

Result<UsbDeviceInfo> DownloadOnce(UsbBus* bus, const UsbDeviceInfo& device,
                                   std::span<const uint8_t> image, const NowFunction& now) {
  ATOLL_ASSIGN_OR_RETURN(const std::vector<UsbDeviceInfo> known, bus->List());
  bool has_left = false;
  {
    ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<UsbTransport> transport, bus->Open(device, 0));
    auto dfu = std::make_unique<Dfu>(bus, std::move(transport), now);
    ATOLL_ASSIGN_OR_RETURN(const DfuInterface found, dfu->ReadDescriptors());
    if (found.number != 0) {
      dfu.reset();
      ATOLL_ASSIGN_OR_RETURN(transport, bus->Open(device, found.number));
      dfu = std::make_unique<Dfu>(bus, std::move(transport), now);
      ATOLL_RETURN_IF_ERROR(dfu->ReadDescriptors().status());
    }
    ATOLL_RETURN_IF_ERROR(dfu->BecomeIdle());
    ATOLL_RETURN_IF_ERROR(dfu->Download(image));
    ATOLL_RETURN_IF_ERROR(dfu->Verify(image));
    // A device that comes back as another one is lost to whoever reset it.
    const Status reset = dfu->Reset();
    if (!reset.ok() && reset.code() != StatusCode::kDeviceLost) return reset;
    has_left = !reset.ok();
  }
  return AwaitReturn(bus, device, known, has_left, now);
}

// The device as it is listed now, with its new address.
UsbDeviceInfo Refresh(UsbBus* bus, const UsbDeviceInfo& device) {
  const Result<std::vector<UsbDeviceInfo>> devices = bus->List();
  if (!devices.ok()) return device;
  for (const UsbDeviceInfo& other : *devices) {
    if (other.path == device.path && other.id == device.id) return other;
  }
  return device;
}

struct CloseFile {
  void operator()(FILE* file) const { (void)std::fclose(file); }
};
using File = std::unique_ptr<FILE, CloseFile>;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void AddDirectories(std::string_view list, const char* folder, std::vector<std::string>* places) {
  while (!list.empty()) {
    const size_t end = std::min(list.find(':'), list.size());
    if (end != 0) {
      places->push_back(std::string(list.substr(0, end)) + "/" + folder + "/" + kFileName);
    }
    list.remove_prefix(std::min(end + 1, list.size()));
  }
}

// What to get from where and where to put it; one sentence.
std::string Advice() {
  return Format(
      "get %s (10783 bytes, SHA-256 %s) and give it with --firmware, name it in "
      "ATOLL_CORAL_FIRMWARE, or put it into /usr/share/atoll or ~/.local/share/atoll",
      kSource, kKnownDigest);
}

// Where to look for it, in this order.
std::vector<std::string> Places() {
  const std::string given = Environment("ATOLL_CORAL_FIRMWARE");
  if (!given.empty()) return {given};
  std::vector<std::string> places;
  std::string user = Environment("XDG_DATA_HOME");
  if (const std::string home = Environment("HOME"); user.empty() && !home.empty()) {
    user = home + "/.local/share";
  }
  AddDirectories(user, "atoll", &places);
  std::string system = Environment("XDG_DATA_DIRS");
  if (system.empty()) system = "/usr/local/share:/usr/share";
  AddDirectories(system, "atoll", &places);
  const std::string in_share = std::string("/usr/share/atoll/") + kFileName;
  if (std::find(places.begin(), places.end(), in_share) == places.end()) places.push_back(in_share);
  places.push_back(std::string("/lib/firmware/") + kFileName);
  places.push_back(std::string("/lib/firmware/google/") + kFileName);
  return places;
}

}  // namespace

Result<CoralFirmware> FindCoralFirmware(const std::string& path) {
  CoralFirmware firmware;
  File file;
  int error = ENOENT;
  for (const std::string& place : path.empty() ? Places() : std::vector{path}) {
    file.reset(std::fopen(place.c_str(), "rb"));
    firmware.path = place;
    if (file != nullptr) break;
    error = errno;
    if (error != ENOENT && error != ENOTDIR) break;
  }
  if (file == nullptr) {
    if (error != ENOENT && error != ENOTDIR) {
      return Status(error == EACCES ? StatusCode::kPermissionDenied : StatusCode::kInvalidArgument,
                    Format("cannot read the firmware file '%s': %s", firmware.path.c_str(),
                           std::strerror(error)));
    }
    return NotFound("%s: %s",
                    path.empty() ? "a Coral without firmware is plugged in, and no firmware file "
                                   "was found"
                                 : Format("there is no firmware file '%s'", path.c_str()).c_str(),
                    Advice().c_str());
  }
  firmware.image.resize(kImageBytesMax + 1);
  firmware.image.resize(std::fread(firmware.image.data(), 1, firmware.image.size(), file.get()));
  if (std::ferror(file.get()) != 0 || firmware.image.empty() ||
      firmware.image.size() > kImageBytesMax) {
    return InvalidArgument("'%s' cannot be the firmware of a Coral, which has 1 to %zu bytes; %s",
                           firmware.path.c_str(), kImageBytesMax, Advice().c_str());
  }
  firmware.is_known = Sha256Hex(firmware.image.data(), firmware.image.size()) == kKnownDigest;
  if (!firmware.is_known) {
    Log(LogSeverity::kWarning,
        "firmware '%s' (%zu bytes) is not the published %s, whose SHA-256 is %s; using it "
        "nevertheless",
        firmware.path.c_str(), firmware.image.size(), kFileName, kKnownDigest);
  }
  return firmware;
}

Result<UsbDeviceInfo> DownloadCoralFirmware(UsbBus* bus, const UsbDeviceInfo& device,
                                            std::span<const uint8_t> image,
                                            const NowFunction& now) {
  UsbDeviceInfo current = device;
  for (int attempt = 1;; ++attempt) {
    Result<UsbDeviceInfo> returned = DownloadOnce(bus, current, image, now);
    if (returned.ok()) return returned;
    const StatusCode code = returned.code();
    const bool worth_another = code == StatusCode::kDeviceLost || code == StatusCode::kTimeout ||
                               code == StatusCode::kInvalidArgument;
    if (!worth_another || attempt == kAttempts) {
      return Status(code == StatusCode::kInvalidArgument ? StatusCode::kDeviceLost : code,
                    Format("the Coral at port %s does not take its firmware: %s; unplug it and "
                           "plug it in again",
                           device.path.c_str(), returned.status().message().c_str()));
    }
    Log(LogSeverity::kWarning, "the Coral at port %s: %s; trying again", device.path.c_str(),
        returned.status().message().c_str());
    current = Refresh(bus, device);
  }
}

}  // namespace atollrt
