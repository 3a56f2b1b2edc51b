// SPDX-License-Identifier: Apache-2.0
#include "driver/recording/usb_recording.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string_view>
#include <thread>

#include "driver/recording/session_text.h"
#include "runtime/base/bytes.h"
#include "runtime/base/log.h"

namespace atollrt {

// A call of a bus or of a transport.
struct UsbCall {
  enum class Kind { kControl, kOut, kIn, kInterrupt, kList, kOpen, kReset };
  Kind kind = Kind::kControl;
  uint8_t endpoint = 0;
  ControlSetup setup = {};
  size_t length = 0;      // asked for
  std::string path = {};  // kOpen
  uint8_t interface_number = 0;
  bool operator==(const UsbCall&) const = default;

  bool is_transfer() const { return kind <= Kind::kInterrupt; }
  bool is_in() const {
    return kind == Kind::kIn || kind == Kind::kInterrupt ||
           (kind == Kind::kControl && setup.is_in());
  }
};

namespace {

using Kind = UsbCall::Kind;
using Bytes = std::span<const uint8_t>;

constexpr uint32_t kUsbInterface = 0;
constexpr uint32_t kTextInterface = 1;
// Wireshark takes packets of at most 256 KiB; longer transfers are written in pieces, which have
// the same id.
constexpr size_t kPieceBytes = size_t{128} << 10;

// The header that Linux's usbmon puts in front of each packet
// (Documentation/usb/usbmon.rst, struct usbmon_packet; 64 bytes).
constexpr size_t kUsbmonBytes = 64;
constexpr uint8_t kInterruptType = 1, kControlType = 2, kBulkType = 3;
constexpr int32_t kInProgress = -115;  // EINPROGRESS
struct UsbmonHeader {
  uint64_t id = 0;
  bool completes = false;
  UsbCall call;  // of a completion without setup
  uint8_t device = 0;
  int32_t status = kInProgress;  // of a completion: a negative errno
  uint32_t length = 0;           // asked for, or moved
  uint32_t data_bytes = 0;       // that follow

  std::array<uint8_t, kUsbmonBytes> Encode(uint64_t time_ns) const {
    const bool has_setup = call.kind == Kind::kControl && !completes;
    std::array<uint8_t, kUsbmonBytes> bytes{};
    StoreLittleEndian(&bytes[0], id);
    bytes[8] = completes ? 'C' : 'S';
    bytes[9] = call.kind == Kind::kControl     ? kControlType
               : call.kind == Kind::kInterrupt ? kInterruptType
                                               : kBulkType;
    bytes[10] = static_cast<uint8_t>(call.endpoint | (call.is_in() ? 0x80 : 0));
    bytes[11] = device;
    StoreLittleEndian<uint16_t>(&bytes[12], 1);
    bytes[14] = has_setup ? 0 : '-';
    bytes[15] = data_bytes > 0 ? 0 : call.is_in() ? '<' : '>';
    StoreLittleEndian<int64_t>(&bytes[16], static_cast<int64_t>(time_ns / 1'000'000'000));
    StoreLittleEndian<int32_t>(&bytes[24], static_cast<int32_t>(time_ns / 1000 % 1'000'000));
    StoreLittleEndian(&bytes[28], status);
    StoreLittleEndian(&bytes[32], length);
    StoreLittleEndian(&bytes[36], data_bytes);
    if (has_setup) {
      bytes[40] = call.setup.request_type;
      bytes[41] = call.setup.request;
      StoreLittleEndian(&bytes[42], call.setup.value);
      StoreLittleEndian(&bytes[44], call.setup.index);
      StoreLittleEndian(&bytes[46], static_cast<uint16_t>(call.length));
    }
    return bytes;
  }

  static Result<UsbmonHeader> Decode(Bytes packet) {
    if (packet.size() < kUsbmonBytes) {
      return InvalidArgument("a USB packet of %zu bytes", packet.size());
    }
    UsbmonHeader header;
    header.id = LoadLittleEndian<uint64_t>(&packet[0]);
    header.completes = packet[8] == 'C';
    header.status = LoadLittleEndian<int32_t>(&packet[28]);
    header.length = LoadLittleEndian<uint32_t>(&packet[32]);
    header.data_bytes = LoadLittleEndian<uint32_t>(&packet[36]);
    if ((!header.completes && packet[8] != 'S') || packet[9] < kInterruptType ||
        packet[9] > kBulkType || header.data_bytes != packet.size() - kUsbmonBytes) {
      return InvalidArgument("a USB packet of kind %u with %u of %zu bytes", packet[8],
                             header.data_bytes, packet.size() - kUsbmonBytes);
    }
    if (packet[9] != kControlType) {
      header.call.kind = packet[9] == kInterruptType ? Kind::kInterrupt
                         : (packet[10] & 0x80) != 0  ? Kind::kIn
                                                     : Kind::kOut;
      header.call.endpoint = packet[10];
    } else if (!header.completes) {
      if (packet[14] != 0) return InvalidArgument("a control transfer without setup");
      header.call.setup = {.request_type = packet[40],
                           .request = packet[41],
                           .value = LoadLittleEndian<uint16_t>(&packet[42]),
                           .index = LoadLittleEndian<uint16_t>(&packet[44])};
    }
    return header;
  }
};

// What Linux would say.
int32_t ErrnoOf(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return 0;
    case StatusCode::kInvalidArgument:
      return -32;  // EPIPE: stall
    case StatusCode::kTimeout:
      return -110;  // ETIMEDOUT
    case StatusCode::kCancelled:
      return -104;  // ECONNRESET
    case StatusCode::kDeviceLost:
      return -19;  // ENODEV
    default:
      return -71;  // EPROTO
  }
}

std::string Describe(const UsbCall& call) {
  switch (call.kind) {
    case Kind::kControl:
      return Format("control %02X %02X value %04X index %04X, %zu bytes", call.setup.request_type,
                    call.setup.request, call.setup.value, call.setup.index, call.length);
    case Kind::kOut:
      return Format("%zu bytes to endpoint %02X", call.length, call.endpoint);
    case Kind::kIn:
    case Kind::kInterrupt:
      return Format("a read of %zu bytes from endpoint %02X", call.length, call.endpoint);
    case Kind::kList:
      return "a look at the bus";
    case Kind::kOpen:
      return Format("opening port %s, interface %u", call.path.c_str(), call.interface_number);
    case Kind::kReset:
      break;
  }
  return "a reset";
}

}  // namespace

// ---- Recording --------------------------------------------------------------------------------

class RecordingBus::Transport final : public UsbTransport {
 public:
  Transport(std::unique_ptr<UsbTransport> inner, std::shared_ptr<RecordingBus> bus, int number)
      : inner_(std::move(inner)),
        bus_(std::move(bus)),
        device_(static_cast<uint8_t>(number & 0x7F)) {}

  Status Control(const ControlSetup& setup, std::span<uint8_t> data, Deadline deadline) override {
    const uint64_t begin = UnixNs();
    Status status = inner_->Control(setup, data, deadline);
    bus_->WriteTransfer({.kind = Kind::kControl, .setup = setup, .length = data.size()}, device_,
                        begin, setup.is_in() && !status.ok() ? Bytes() : Bytes(data), status);
    return status;
  }
  Status BulkOut(uint8_t endpoint, Bytes data, Deadline deadline) override {
    const uint64_t begin = UnixNs();
    Status status = inner_->BulkOut(endpoint, data, deadline);
    bus_->WriteTransfer({.kind = Kind::kOut, .endpoint = endpoint, .length = data.size()}, device_,
                        begin, data, status);
    return status;
  }
  Result<size_t> BulkIn(uint8_t endpoint, std::span<uint8_t> data, Deadline deadline) override {
    const uint64_t begin = UnixNs();
    return Received(Kind::kIn, endpoint, begin, data, inner_->BulkIn(endpoint, data, deadline));
  }
  Result<size_t> InterruptIn(uint8_t endpoint, std::span<uint8_t> data,
                             Deadline deadline) override {
    const uint64_t begin = UnixNs();
    return Received(Kind::kInterrupt, endpoint, begin, data,
                    inner_->InterruptIn(endpoint, data, deadline));
  }
  void Cancel() override { inner_->Cancel(); }
  Status Reset(Deadline deadline) override {
    Status status = inner_->Reset(deadline);
    bus_->WriteText("reset " + StatusText(status));
    return status;
  }

 private:
  Result<size_t> Received(Kind kind, uint8_t endpoint, uint64_t begin, Bytes data,
                          Result<size_t> result) {
    const size_t count = result.ok() ? std::min(*result, data.size()) : 0;
    bus_->WriteTransfer({.kind = kind, .endpoint = endpoint, .length = data.size()}, device_, begin,
                        data.first(count), result.status());
    return result;
  }

  const std::unique_ptr<UsbTransport> inner_;
  const std::shared_ptr<RecordingBus> bus_;
  const uint8_t device_;
};

Result<std::shared_ptr<RecordingBus>> RecordingBus::Create(std::shared_ptr<UsbBus> inner,
                                                           const std::string& path) {
  constexpr uint16_t kLinkTypes[] = {kLinkTypeUsbLinux, kLinkTypeUser0};
  ATOLL_ASSIGN_OR_RETURN(PcapngWriter writer, PcapngWriter::Create(path, kLinkTypes));
  return std::shared_ptr<RecordingBus>(new RecordingBus(std::move(inner), std::move(writer)));
}

RecordingBus::~RecordingBus() {
  if (const Status status = writer_.Close(); !status.ok()) {
    Log(LogSeverity::kError, "%s", status.message().c_str());
  }
}

void RecordingBus::WriteText(const std::string& text) {
  const std::lock_guard lock(mutex_);
  WriteTextLocked(text);
}

void RecordingBus::WriteTextLocked(const std::string& text) {
  writer_.Write(kTextInterface, UnixNs(), TextBytes(text), {});
}

// One call, which began at `begin_ns`; `moved` is what was sent or received.
void RecordingBus::WriteTransfer(const UsbCall& call, uint8_t device, uint64_t begin_ns,
                                 Bytes moved, const Status& status) {
  const std::lock_guard lock(mutex_);
  UsbmonHeader header{.id = ++last_id_, .call = call, .device = device};
  const auto write = [&](bool completes, uint64_t time_ns, size_t length, Bytes data) {
    header.completes = completes;
    header.status = completes ? ErrnoOf(status.code()) : kInProgress;
    header.length = static_cast<uint32_t>(length);
    header.data_bytes = static_cast<uint32_t>(data.size());
    writer_.Write(kUsbInterface, time_ns, header.Encode(time_ns), data);
  };
  const uint64_t end_ns = UnixNs();
  size_t asked_for = call.length;
  do {
    const Bytes piece = moved.first(std::min(moved.size(), kPieceBytes));
    moved = moved.subspan(piece.size());
    const bool takes_rest = call.is_in() && moved.empty();
    write(false, begin_ns, takes_rest ? asked_for : piece.size(), call.is_in() ? Bytes() : piece);
    write(true, end_ns, piece.size(), call.is_in() ? piece : Bytes());
    asked_for -= std::min(asked_for, piece.size());
  } while (!moved.empty());
  if (!status.ok()) WriteTextLocked("failed " + StatusText(status));
}

void RecordingBus::Note(const std::string& key, const std::string& value) {
  WriteText(SessionNotes::Text(key, value));
}

Result<std::vector<UsbDeviceInfo>> RecordingBus::List() {
  Result<std::vector<UsbDeviceInfo>> devices = inner_->List();
  std::string text = "list " + StatusText(devices.status());
  if (devices.ok()) {
    for (const UsbDeviceInfo& info : *devices) {
      text += Format("\n%04x %04x %d %d %s", info.id.vendor, info.id.product, info.address,
                     static_cast<int>(info.speed), info.path.c_str());
    }
  }
  WriteText(text);
  return devices;
}

Result<std::unique_ptr<UsbTransport>> RecordingBus::Open(const UsbDeviceInfo& device,
                                                         uint8_t interface_number) {
  auto transport = inner_->Open(device, interface_number);
  WriteText(Format("open %s %u ", device.path.c_str(), interface_number) +
            StatusText(transport.status()));
  if (!transport.ok()) return transport;
  const std::lock_guard lock(mutex_);
  return std::unique_ptr<UsbTransport>(
      std::make_unique<Transport>(*std::move(transport), shared_from_this(), ++devices_));
}

// ---- Reading ----------------------------------------------------------------------------------

namespace {

// What happened to a session, one call after the other.
struct SessionEvent {
  UsbCall call;
  std::vector<uint8_t> data = {};           // sent or received
  std::vector<UsbDeviceInfo> devices = {};  // kList
  StatusCode code = StatusCode::kOk;
  std::string message = {};

  Status status() const { return code == StatusCode::kOk ? Status() : Status(code, message); }
  void ReadStatus(LineReader* line) {
    std::string_view words;
    line->ReadStatus(&code, &words);
    message = std::string(words);
  }
};

}  // namespace

struct RecordedSession {
  std::vector<SessionEvent> events;
  SessionNotes notes;
  size_t transfers = 0;
  std::optional<uint64_t> last_id;  // of the transfer at the end of `events`

  Status AddTransfer(Bytes packet) {
    ATOLL_ASSIGN_OR_RETURN(UsbmonHeader header, UsbmonHeader::Decode(packet));
    const Bytes data = packet.subspan(kUsbmonBytes);
    if (!header.completes && last_id != header.id) {  // otherwise another piece
      events.push_back({.call = std::move(header.call)});
      last_id = header.id;
      ++transfers;
    }
    if (last_id != header.id) {
      return InvalidArgument(
          "a transfer that ends was not begun: the recording is of another kind");
    }
    SessionEvent& event = events.back();
    if (!header.completes) event.call.length += header.length;
    if (header.completes == event.call.is_in()) {
      event.data.insert(event.data.end(), data.begin(), data.end());
    }
    if (!header.completes && !event.call.is_in() && header.length != data.size()) {
      return InvalidArgument("a transfer of %u bytes of which %zu are recorded", header.length,
                             data.size());
    }
    if (header.completes && event.call.is_in() && event.data.size() > event.call.length) {
      return InvalidArgument("a read of %zu bytes that gives %zu", event.call.length,
                             event.data.size());
    }
    // Until its words come.
    if (header.completes && header.status != 0) event.code = StatusCode::kDeviceLost;
    return {};
  }

  Status AddText(Bytes bytes) {
    std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    LineReader line(Cut(&text, '\n'));
    const std::string_view kind = line.Word();
    SessionEvent event;
    if (kind == "note") {
      notes.Read(line);
      return {};
    }
    if (kind == "failed") {
      if (!last_id.has_value()) return InvalidArgument("an error of no transfer");
      events.back().ReadStatus(&line);
      return line.ok() ? Status() : InvalidArgument("an error without code");
    }
    if (kind == "list") {
      event.call.kind = Kind::kList;
      event.ReadStatus(&line);
      while (!text.empty() && line.ok()) {
        LineReader entry(Cut(&text, '\n'));
        UsbDeviceInfo& info = event.devices.emplace_back();
        info.id.vendor = static_cast<uint16_t>(entry.Number(16));
        info.id.product = static_cast<uint16_t>(entry.Number(16));
        info.address = static_cast<int>(entry.Number());
        info.speed = static_cast<UsbSpeed>(
            std::min(entry.Number(), static_cast<uint64_t>(UsbSpeed::kSuperPlus)));
        info.path = std::string(entry.rest());
        if (!entry.ok()) return InvalidArgument("a list of devices that cannot be read");
      }
    } else if (kind == "open") {
      event.call.kind = Kind::kOpen;
      event.call.path = std::string(line.Word());
      event.call.interface_number = static_cast<uint8_t>(line.Number());
      event.ReadStatus(&line);
    } else if (kind == "reset") {
      event.call.kind = Kind::kReset;
      event.ReadStatus(&line);
    } else {
      return {};  // of a later version
    }
    if (!line.ok()) return InvalidArgument("a line that cannot be read");
    events.push_back(std::move(event));
    last_id.reset();
    return {};
  }
};

// ---- Playing back -----------------------------------------------------------------------------

struct ReplayBus::Answer {
  Bytes data;
  Status status;
};

class ReplayBus::Transport final : public UsbTransport {
 public:
  explicit Transport(std::shared_ptr<ReplayBus> bus) : bus_(std::move(bus)) {}

  Status Control(const ControlSetup& setup, std::span<uint8_t> data, Deadline) override {
    ATOLL_ASSIGN_OR_RETURN(
        const Answer answer,
        bus_->Next({.kind = Kind::kControl, .setup = setup, .length = data.size()}, data));
    if (!answer.status.ok() || !setup.is_in()) return answer.status;
    // Such a transfer brings all or fails.
    if (answer.data.size() != data.size()) {
      return DeviceLost("%zu of %zu bytes of a control transfer are recorded", answer.data.size(),
                        data.size());
    }
    std::copy(answer.data.begin(), answer.data.end(), data.begin());
    return {};
  }
  Status BulkOut(uint8_t endpoint, Bytes data, Deadline) override {
    ATOLL_ASSIGN_OR_RETURN(
        const Answer answer,
        bus_->Next({.kind = Kind::kOut, .endpoint = endpoint, .length = data.size()}, data));
    return answer.status;
  }
  Result<size_t> BulkIn(uint8_t endpoint, std::span<uint8_t> data, Deadline) override {
    return Receive(Kind::kIn, endpoint, data);
  }
  Result<size_t> InterruptIn(uint8_t endpoint, std::span<uint8_t> data, Deadline) override {
    return Receive(Kind::kInterrupt, endpoint, data);
  }
  void Cancel() override {}
  Status Reset(Deadline) override {
    ATOLL_ASSIGN_OR_RETURN(const Answer answer, bus_->Next({.kind = Kind::kReset}, {}));
    return answer.status;
  }

 private:
  Result<size_t> Receive(Kind kind, uint8_t endpoint, std::span<uint8_t> data) {
    ATOLL_ASSIGN_OR_RETURN(
        const Answer answer,
        bus_->Next({.kind = kind, .endpoint = endpoint, .length = data.size()}, {}));
    if (!answer.status.ok()) return answer.status;
    std::copy(answer.data.begin(), answer.data.end(), data.begin());
    return answer.data.size();
  }

  const std::shared_ptr<ReplayBus> bus_;
};

ReplayBus::ReplayBus(std::unique_ptr<const RecordedSession> session)
    : session_(std::move(session)) {}

Result<std::shared_ptr<ReplayBus>> ReplayBus::Create(Bytes recording) {
  ATOLL_ASSIGN_OR_RETURN(const std::vector<PcapngPacket> packets, ReadPcapng(recording));
  auto session = std::make_unique<RecordedSession>();
  for (const PcapngPacket& packet : packets) {
    if (packet.link_type == kLinkTypeUsbLinux) {
      ATOLL_RETURN_IF_ERROR(session->AddTransfer(packet.bytes));
    } else if (packet.link_type == kLinkTypeUser0) {
      ATOLL_RETURN_IF_ERROR(session->AddText(packet.bytes));
    }
  }
  if (session->events.empty()) return InvalidArgument("nothing is recorded there");
  return std::shared_ptr<ReplayBus>(new ReplayBus(std::move(session)));
}

ReplayBus::~ReplayBus() {
  if (departure_.ok() && replayed_ > 0 && replayed_ < transfers()) {
    Log(LogSeverity::kWarning, "the session ended after %zu of %zu recorded transfers", replayed_,
        transfers());
  }
}

std::string ReplayBus::Note(const std::string& key) const { return session_->notes.Find(key); }

Result<std::vector<UsbDeviceInfo>> ReplayBus::FirstDevices() const {
  for (const SessionEvent& event : session_->events) {
    if (event.call.kind == Kind::kList && event.code == StatusCode::kOk) return event.devices;
  }
  return InvalidArgument("nobody looked at the bus in this recording");
}

Status ReplayBus::departure() const {
  const std::lock_guard lock(mutex_);
  return departure_;
}

size_t ReplayBus::replayed() const {
  const std::lock_guard lock(mutex_);
  return replayed_;
}

size_t ReplayBus::transfers() const { return session_->transfers; }

Status ReplayBus::Depart(const std::string& how) {
  departure_ = InternalError("the session departs from its recording at transfer %zu of %zu: %s",
                             replayed_ + 1, transfers(), how.c_str());
  return departure_;
}

// What was recorded as the answer to `wanted`, or where the two part.
Result<ReplayBus::Answer> ReplayBus::Next(const UsbCall& wanted, Bytes sent) {
  const std::vector<SessionEvent>& events = session_->events;
  const std::lock_guard lock(mutex_);
  if (!departure_.ok()) return departure_;
  // How often the bus was looked at depends on how long that took.
  while (next_ < events.size() && events[next_].call.kind == Kind::kList) ++next_;
  if (next_ == events.size()) {
    return Depart(Describe(wanted) + ", but the recording ends there");
  }
  const SessionEvent& event = events[next_];
  if (event.call != wanted) {
    return Depart(Describe(wanted) + ", recorded is " + Describe(event.call));
  }
  if (!wanted.is_in()) {
    const auto [a, b] =
        std::mismatch(event.data.begin(), event.data.end(), sent.begin(), sent.end());
    if (a != event.data.end()) {
      return Depart(Describe(wanted) +
                    Format(", byte %td is %u, recorded is %u", a - event.data.begin(), *b, *a));
    }
  }
  ++next_;
  if (event.call.is_transfer()) ++replayed_;
  return Answer{.data = event.data, .status = event.status()};
}

// The next recorded look at the bus, or the last one again.
Result<std::vector<UsbDeviceInfo>> ReplayBus::List() {
  const std::vector<SessionEvent>& events = session_->events;
  const std::lock_guard lock(mutex_);
  if (next_ < events.size() && events[next_].call.kind == Kind::kList) last_list_ = next_++;
  if (last_list_ >= events.size()) return std::vector<UsbDeviceInfo>();
  const SessionEvent& event = events[last_list_];
  if (event.code != StatusCode::kOk) return event.status();
  return event.devices;
}

Result<std::unique_ptr<UsbTransport>> ReplayBus::Open(const UsbDeviceInfo& device,
                                                      uint8_t interface_number) {
  ATOLL_ASSIGN_OR_RETURN(
      const Answer answer,
      Next({.kind = Kind::kOpen, .path = device.path, .interface_number = interface_number}, {}));
  if (!answer.status.ok()) return answer.status;
  return std::unique_ptr<UsbTransport>(std::make_unique<Transport>(shared_from_this()));
}

bool ReplayBus::WaitForChange(uint64_t, Deadline deadline) {
  std::this_thread::sleep_until(std::min(deadline, Clock::now() + std::chrono::milliseconds(10)));
  return false;
}

}  // namespace atollrt
