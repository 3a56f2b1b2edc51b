// SPDX-License-Identifier: Apache-2.0
#include "driver/usb/recording.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>

#include "driver/usb/pcapng.h"
#include "runtime/base/bytes.h"
#include "runtime/base/log.h"

namespace atollrt {
namespace {

constexpr uint32_t kUsbInterface = 0;
constexpr uint32_t kTextInterface = 1;
// Wireshark takes packets of at most 256 KiB; longer transfers are written in pieces, which have
// the same id.
constexpr size_t kPieceBytes = size_t{128} << 10;
constexpr size_t kRecordingBytesMax = size_t{1} << 31;

// The header that Linux's usbmon puts in front of each packet
// (Documentation/usb/usbmon.rst, struct usbmon_packet; 64 bytes).
constexpr size_t kUsbmonBytes = 64;
enum class TransferType : uint8_t { kInterrupt = 1, kControl = 2, kBulk = 3 };
struct UsbmonHeader {
  uint64_t id = 0;
  bool completes = false;
  TransferType type = TransferType::kBulk;
  uint8_t endpoint = 0;  // bit 7: IN
  uint8_t device = 0;
  int32_t status = 0;       // of a completion: a negative errno
  uint32_t length = 0;      // asked for, or moved
  uint32_t data_bytes = 0;  // that follow
  std::optional<ControlSetup> setup;
  uint16_t setup_length = 0;

  std::array<uint8_t, kUsbmonBytes> Encode(uint64_t time_ns) const {
    std::array<uint8_t, kUsbmonBytes> bytes{};
    StoreLittleEndian(&bytes[0], id);
    bytes[8] = completes ? 'C' : 'S';
    bytes[9] = static_cast<uint8_t>(type);
    bytes[10] = endpoint;
    bytes[11] = device;
    StoreLittleEndian<uint16_t>(&bytes[12], 1);
    bytes[14] = setup.has_value() ? 0 : '-';
    bytes[15] = data_bytes > 0 ? 0 : (endpoint & 0x80) != 0 ? '<' : '>';
    StoreLittleEndian<int64_t>(&bytes[16], static_cast<int64_t>(time_ns / 1'000'000'000));
    StoreLittleEndian<int32_t>(&bytes[24], static_cast<int32_t>(time_ns / 1000 % 1'000'000));
    StoreLittleEndian(&bytes[28], completes ? status : kInProgress);
    StoreLittleEndian(&bytes[32], length);
    StoreLittleEndian(&bytes[36], data_bytes);
    if (setup.has_value()) {
      bytes[40] = setup->request_type;
      bytes[41] = setup->request;
      StoreLittleEndian(&bytes[42], setup->value);
      StoreLittleEndian(&bytes[44], setup->index);
      StoreLittleEndian(&bytes[46], setup_length);
    }
    return bytes;
  }

  static Result<UsbmonHeader> Decode(std::span<const uint8_t> packet) {
    if (packet.size() < kUsbmonBytes) {
      return InvalidArgument("a USB packet of %zu bytes", packet.size());
    }
    UsbmonHeader header;
    header.id = LoadLittleEndian<uint64_t>(&packet[0]);
    header.completes = packet[8] == 'C';
    header.type = static_cast<TransferType>(packet[9]);
    header.endpoint = packet[10];
    header.device = packet[11];
    header.status = LoadLittleEndian<int32_t>(&packet[28]);
    header.length = LoadLittleEndian<uint32_t>(&packet[32]);
    header.data_bytes = LoadLittleEndian<uint32_t>(&packet[36]);
    if ((!header.completes && packet[8] != 'S') || packet[9] < 1 || packet[9] > 3 ||
        header.data_bytes != packet.size() - kUsbmonBytes) {
      return InvalidArgument("a USB packet of kind %u with %u of %zu bytes", packet[8],
                             header.data_bytes, packet.size() - kUsbmonBytes);
    }
    if (packet[14] == 0) {
      header.setup = {.request_type = packet[40],
                      .request = packet[41],
                      .value = LoadLittleEndian<uint16_t>(&packet[42]),
                      .index = LoadLittleEndian<uint16_t>(&packet[44])};
    }
    return header;
  }

 private:
  static constexpr int32_t kInProgress = -115;  // EINPROGRESS
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

// What happened to a session, one call after the other.
struct SessionEvent {
  enum class Kind { kControl, kOut, kIn, kInterrupt, kList, kOpen, kReset };
  Kind kind = Kind::kControl;
  uint8_t endpoint = 0;
  ControlSetup setup;
  size_t length = 0;          // asked for
  std::vector<uint8_t> data;  // sent or received
  std::string path;           // kOpen
  uint8_t interface_number = 0;
  std::vector<UsbDeviceInfo> devices;  // kList
  StatusCode code = StatusCode::kOk;
  std::string message;

  Status status() const { return code == StatusCode::kOk ? Status() : Status(code, message); }
  bool is_in() const {
    return kind == Kind::kIn || kind == Kind::kInterrupt ||
           (kind == Kind::kControl && (setup.request_type & 0x80) != 0);
  }
};

std::string Describe(const SessionEvent& event) {
  switch (event.kind) {
    case SessionEvent::Kind::kControl:
      return Format("control %02X %02X value %04X index %04X, %zu bytes", event.setup.request_type,
                    event.setup.request, event.setup.value, event.setup.index, event.length);
    case SessionEvent::Kind::kOut:
      return Format("%zu bytes to endpoint %02X", event.length, event.endpoint);
    case SessionEvent::Kind::kIn:
    case SessionEvent::Kind::kInterrupt:
      return Format("a read of %zu bytes from endpoint %02X", event.length, event.endpoint);
    case SessionEvent::Kind::kList:
      return "a look at the bus";
    case SessionEvent::Kind::kOpen:
      return Format("opening port %s, interface %u", event.path.c_str(), event.interface_number);
    case SessionEvent::Kind::kReset:
      break;
  }
  return "a reset";
}

std::string OneLine(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}

std::string StatusText(const Status& status) {
  return Format("%d ", static_cast<int>(status.code())) + OneLine(status.message());
}

// Takes words and numbers off the front of a line.
class LineReader {
 public:
  explicit LineReader(std::string_view line) : rest_(line) {}
  std::string_view Word() {
    const std::string_view word = rest_.substr(0, rest_.find(' '));
    rest_.remove_prefix(std::min(word.size() + 1, rest_.size()));
    return word;
  }
  uint32_t Number(int base = 10) {
    const std::string_view word = Word();
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, base);
    ok_ &= error == std::errc() && end == word.data() + word.size() && !word.empty();
    return value;
  }
  void ReadStatus(SessionEvent* event) {
    const uint32_t code = Number();
    ok_ &= code <= static_cast<uint32_t>(StatusCode::kInternal);
    event->code = ok_ ? static_cast<StatusCode>(code) : StatusCode::kInternal;
    event->message = std::string(rest_);
  }
  std::string_view rest() const { return rest_; }
  bool ok() const { return ok_; }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace

// ---- Recording --------------------------------------------------------------------------------

class RecordingBus::File {
 public:
  explicit File(PcapngWriter writer) : writer_(std::move(writer)) {}
  ~File() {
    if (const Status status = writer_.Close(); !status.ok()) {
      Log(LogSeverity::kError, "%s", status.message().c_str());
    }
  }

  static uint64_t Now() {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                     std::chrono::system_clock::now().time_since_epoch())
                                     .count());
  }

  void WriteText(const std::string& text) {
    const std::lock_guard lock(mutex_);
    WriteTextLocked(text);
  }

  // One call, which began at `begin_ns`; `moved` is what was sent or received.
  void WriteTransfer(UsbmonHeader header, uint64_t begin_ns, size_t asked_for,
                     std::span<const uint8_t> moved, const Status& status) {
    const std::lock_guard lock(mutex_);
    header.id = ++last_id_;
    header.status = ErrnoOf(status.code());
    const bool is_in = (header.endpoint & 0x80) != 0;
    const uint64_t end_ns = Now();
    do {
      const std::span<const uint8_t> piece = moved.first(std::min(moved.size(), kPieceBytes));
      moved = moved.subspan(piece.size());
      const auto bytes = static_cast<uint32_t>(piece.size());
      header.completes = false;
      header.length = is_in && moved.empty() ? static_cast<uint32_t>(asked_for) : bytes;
      header.data_bytes = is_in ? 0 : bytes;
      writer_.Write(kUsbInterface, begin_ns, header.Encode(begin_ns),
                    is_in ? std::span<const uint8_t>() : piece);
      header.completes = true;
      header.length = bytes;
      header.data_bytes = is_in ? bytes : 0;
      UsbmonHeader completion = header;
      completion.setup = std::nullopt;
      writer_.Write(kUsbInterface, end_ns, completion.Encode(end_ns),
                    is_in ? piece : std::span<const uint8_t>());
      asked_for -= std::min<size_t>(asked_for, bytes);
    } while (!moved.empty());
    if (!status.ok()) WriteTextLocked("failed " + StatusText(status));
  }

  uint8_t NextDevice() {
    const std::lock_guard lock(mutex_);
    return static_cast<uint8_t>(++devices_ & 0x7F);
  }

 private:
  void WriteTextLocked(const std::string& text) {
    writer_.Write(kTextInterface, Now(),
                  {reinterpret_cast<const uint8_t*>(text.data()), text.size()}, {});
  }

  std::mutex mutex_;
  PcapngWriter writer_;
  uint64_t last_id_ = 0;
  int devices_ = 0;
};

class RecordingBus::Transport final : public UsbTransport {
 public:
  Transport(std::unique_ptr<UsbTransport> inner, std::shared_ptr<File> file)
      : inner_(std::move(inner)), file_(std::move(file)), device_(file_->NextDevice()) {}

  Status Control(const ControlSetup& setup, std::span<uint8_t> data, Deadline deadline) override {
    const uint64_t begin = File::Now();
    Status status = inner_->Control(setup, data, deadline);
    const bool is_in = (setup.request_type & 0x80) != 0;
    UsbmonHeader header = Header(TransferType::kControl, is_in ? 0x80 : 0);
    header.setup = setup;
    header.setup_length = static_cast<uint16_t>(data.size());
    file_->WriteTransfer(header, begin, data.size(),
                         is_in && !status.ok() ? std::span<uint8_t>() : data, status);
    return status;
  }
  Status BulkOut(uint8_t endpoint, std::span<const uint8_t> data, Deadline deadline) override {
    const uint64_t begin = File::Now();
    Status status = inner_->BulkOut(endpoint, data, deadline);
    file_->WriteTransfer(Header(TransferType::kBulk, endpoint), begin, data.size(), data, status);
    return status;
  }
  Result<size_t> BulkIn(uint8_t endpoint, std::span<uint8_t> data, Deadline deadline) override {
    const uint64_t begin = File::Now();
    return Received(TransferType::kBulk, endpoint, begin, data,
                    inner_->BulkIn(endpoint, data, deadline));
  }
  Result<size_t> InterruptIn(uint8_t endpoint, std::span<uint8_t> data,
                             Deadline deadline) override {
    const uint64_t begin = File::Now();
    return Received(TransferType::kInterrupt, endpoint, begin, data,
                    inner_->InterruptIn(endpoint, data, deadline));
  }
  void Cancel() override { inner_->Cancel(); }
  Status Reset(Deadline deadline) override {
    Status status = inner_->Reset(deadline);
    file_->WriteText("reset " + StatusText(status));
    return status;
  }

 private:
  UsbmonHeader Header(TransferType type, uint8_t endpoint) const {
    UsbmonHeader header;
    header.type = type;
    header.endpoint = endpoint;
    header.device = device_;
    return header;
  }
  Result<size_t> Received(TransferType type, uint8_t endpoint, uint64_t begin,
                          std::span<uint8_t> data, Result<size_t> result) {
    const size_t count = result.ok() ? std::min(*result, data.size()) : 0;
    file_->WriteTransfer(Header(type, endpoint), begin, data.size(), data.first(count),
                         result.status());
    return result;
  }

  const std::unique_ptr<UsbTransport> inner_;
  const std::shared_ptr<File> file_;
  const uint8_t device_;
};

RecordingBus::RecordingBus(std::shared_ptr<UsbBus> inner, std::shared_ptr<File> file)
    : inner_(std::move(inner)), file_(std::move(file)) {}

RecordingBus::~RecordingBus() = default;

Result<std::shared_ptr<RecordingBus>> RecordingBus::Create(std::shared_ptr<UsbBus> inner,
                                                           const std::string& path) {
  constexpr uint16_t kLinkTypes[] = {kLinkTypeUsbLinux, kLinkTypeUser0};
  ATOLL_ASSIGN_OR_RETURN(PcapngWriter writer, PcapngWriter::Create(path, kLinkTypes));
  return std::shared_ptr<RecordingBus>(
      new RecordingBus(std::move(inner), std::make_shared<File>(std::move(writer))));
}

void RecordingBus::Note(const std::string& key, const std::string& value) {
  file_->WriteText("note " + key + " " + OneLine(value));
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
  file_->WriteText(text);
  return devices;
}

Result<std::unique_ptr<UsbTransport>> RecordingBus::Open(const UsbDeviceInfo& device,
                                                         uint8_t interface_number) {
  auto transport = inner_->Open(device, interface_number);
  file_->WriteText(Format("open %s %u ", device.path.c_str(), interface_number) +
                   StatusText(transport.status()));
  if (!transport.ok()) return transport;
  return std::unique_ptr<UsbTransport>(std::make_unique<Transport>(*std::move(transport), file_));
}

uint64_t RecordingBus::generation() { return inner_->generation(); }

bool RecordingBus::WaitForChange(uint64_t seen, Deadline deadline) {
  return inner_->WaitForChange(seen, deadline);
}

// ---- Playing back -----------------------------------------------------------------------------

class ReplayBus::Script {
 public:
  static Result<std::shared_ptr<Script>> Parse(std::span<const uint8_t> recording) {
    ATOLL_ASSIGN_OR_RETURN(const std::vector<PcapngPacket> packets, ReadPcapng(recording));
    auto script = std::make_shared<Script>();
    std::optional<uint64_t> last_id;  // of the transfer at the end of events_
    for (const PcapngPacket& packet : packets) {
      const Status status =
          packet.link_type == kLinkTypeUsbLinux ? script->AddTransfer(packet.bytes, &last_id)
          : packet.link_type == kLinkTypeUser0  ? script->AddText(packet.bytes, &last_id)
                                                : Status();
      if (!status.ok()) return status;
    }
    if (script->events_.empty()) return InvalidArgument("nothing is recorded there");
    return script;
  }

  std::string Note(const std::string& key) const {
    for (const auto& [name, value] : notes_) {
      if (name == key) return value;
    }
    return "";
  }
  Result<std::vector<UsbDeviceInfo>> FirstDevices() const {
    for (const SessionEvent& event : events_) {
      if (event.kind == SessionEvent::Kind::kList && event.code == StatusCode::kOk)
        return event.devices;
    }
    return InvalidArgument("nobody looked at the bus in this recording");
  }
  Status departure() const {
    const std::lock_guard lock(mutex_);
    return departure_;
  }
  size_t replayed() const {
    const std::lock_guard lock(mutex_);
    return replayed_;
  }
  size_t transfers() const { return transfers_; }

  // The recorded event that answers `wanted`, or where the two part.
  Result<const SessionEvent*> Next(const SessionEvent& wanted) {
    const std::lock_guard lock(mutex_);
    if (!departure_.ok()) return departure_;
    // How often the bus was looked at depends on how long that took.
    while (next_ < events_.size() && events_[next_].kind == SessionEvent::Kind::kList) ++next_;
    if (next_ == events_.size()) {
      return Depart(Describe(wanted) + ", but the recording ends there");
    }
    const SessionEvent& event = events_[next_];
    if (event.kind != wanted.kind || event.endpoint != wanted.endpoint ||
        event.setup.request_type != wanted.setup.request_type ||
        event.setup.request != wanted.setup.request || event.setup.value != wanted.setup.value ||
        event.setup.index != wanted.setup.index || event.length != wanted.length ||
        event.path != wanted.path || event.interface_number != wanted.interface_number) {
      return Depart(Describe(wanted) + ", recorded is " + Describe(event));
    }
    if (!event.is_in() && event.data != wanted.data) {
      const auto [a, b] = std::mismatch(event.data.begin(), event.data.end(), wanted.data.begin());
      const auto at = a - event.data.begin();
      return Depart(Describe(wanted) + Format(", byte %td is %u, recorded is %u", at, *b, *a));
    }
    ++next_;
    if (IsTransfer(event)) ++replayed_;
    return &event;
  }

  // The next recorded look at the bus, or the last one again.
  Result<std::vector<UsbDeviceInfo>> List() {
    const std::lock_guard lock(mutex_);
    if (next_ < events_.size() && events_[next_].kind == SessionEvent::Kind::kList) {
      last_list_ = &events_[next_++];
    }
    if (last_list_ == nullptr) return std::vector<UsbDeviceInfo>();
    if (last_list_->code != StatusCode::kOk) return last_list_->status();
    return last_list_->devices;
  }

 private:
  static bool IsTransfer(const SessionEvent& event) {
    return event.kind == SessionEvent::Kind::kControl || event.kind == SessionEvent::Kind::kOut ||
           event.kind == SessionEvent::Kind::kIn || event.kind == SessionEvent::Kind::kInterrupt;
  }

  Status Depart(const std::string& how) {
    departure_ = InternalError("the session departs from its recording at transfer %zu of %zu: %s",
                               replayed_ + 1, transfers_, how.c_str());
    return departure_;
  }

  Status AddTransfer(std::span<const uint8_t> packet, std::optional<uint64_t>* last_id) {
    ATOLL_ASSIGN_OR_RETURN(const UsbmonHeader header, UsbmonHeader::Decode(packet));
    const std::span<const uint8_t> data = packet.subspan(kUsbmonBytes);
    if (!header.completes) {
      if (*last_id != header.id) {  // otherwise another piece
        SessionEvent event;
        event.kind = header.type == TransferType::kControl     ? SessionEvent::Kind::kControl
                     : header.type == TransferType::kInterrupt ? SessionEvent::Kind::kInterrupt
                     : (header.endpoint & 0x80) != 0           ? SessionEvent::Kind::kIn
                                                               : SessionEvent::Kind::kOut;
        if (event.kind == SessionEvent::Kind::kControl) {
          if (!header.setup.has_value()) return InvalidArgument("a control transfer without setup");
          event.setup = *header.setup;
        } else {
          event.endpoint = header.endpoint;
        }
        events_.push_back(std::move(event));
        *last_id = header.id;
        ++transfers_;
      }
      events_.back().length += header.length;
      if (!events_.back().is_in()) {
        events_.back().data.insert(events_.back().data.end(), data.begin(), data.end());
        if (header.length != data.size()) {
          return InvalidArgument("a transfer of %u bytes of which %zu are recorded", header.length,
                                 data.size());
        }
      }
      return {};
    }
    if (*last_id != header.id) {
      return InvalidArgument(
          "a transfer that ends was not begun: the recording is of another kind");
    }
    SessionEvent& event = events_.back();
    if (event.is_in()) {
      event.data.insert(event.data.end(), data.begin(), data.end());
      if (event.data.size() > event.length) {
        return InvalidArgument("a read of %zu bytes that gives %zu", event.length,
                               event.data.size());
      }
    }
    if (header.status != 0) event.code = StatusCode::kDeviceLost;  // until its words come
    return {};
  }

  Status AddText(std::span<const uint8_t> bytes, std::optional<uint64_t>* last_id) {
    std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const std::string_view first = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(first.size() + 1, text.size()));
    LineReader line(first);
    const std::string_view kind = line.Word();
    SessionEvent event;
    if (kind == "note") {
      const std::string key(line.Word());
      notes_.emplace_back(key, line.rest());
      return {};
    }
    if (kind == "failed") {
      if (!last_id->has_value()) return InvalidArgument("an error of no transfer");
      line.ReadStatus(&events_.back());
      return line.ok() ? Status() : InvalidArgument("an error without code");
    }
    if (kind == "list") {
      event.kind = SessionEvent::Kind::kList;
      line.ReadStatus(&event);
      while (!text.empty() && line.ok()) {
        LineReader entry(text.substr(0, text.find('\n')));
        text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
        UsbDeviceInfo info;
        info.id.vendor = static_cast<uint16_t>(entry.Number(16));
        info.id.product = static_cast<uint16_t>(entry.Number(16));
        info.address = static_cast<int>(entry.Number());
        info.speed = static_cast<UsbSpeed>(
            std::min(entry.Number(), static_cast<uint32_t>(UsbSpeed::kSuperPlus)));
        info.path = std::string(entry.rest());
        if (!entry.ok()) return InvalidArgument("a list of devices that cannot be read");
        event.devices.push_back(std::move(info));
      }
    } else if (kind == "open") {
      event.kind = SessionEvent::Kind::kOpen;
      event.path = std::string(line.Word());
      event.interface_number = static_cast<uint8_t>(line.Number());
      line.ReadStatus(&event);
    } else if (kind == "reset") {
      event.kind = SessionEvent::Kind::kReset;
      line.ReadStatus(&event);
    } else {
      return {};  // of a later version
    }
    if (!line.ok()) return InvalidArgument("a line that cannot be read");
    events_.push_back(std::move(event));
    last_id->reset();
    return {};
  }

  std::vector<SessionEvent> events_;
  RecordingNotes notes_;
  size_t transfers_ = 0;
  mutable std::mutex mutex_;
  size_t next_ = 0;
  size_t replayed_ = 0;
  const SessionEvent* last_list_ = nullptr;
  Status departure_;
};

class ReplayBus::Transport final : public UsbTransport {
 public:
  explicit Transport(std::shared_ptr<Script> script) : script_(std::move(script)) {}

  Status Control(const ControlSetup& setup, std::span<uint8_t> data, Deadline) override {
    SessionEvent wanted;
    wanted.kind = SessionEvent::Kind::kControl;
    wanted.setup = setup;
    wanted.length = data.size();
    if (!wanted.is_in()) wanted.data.assign(data.begin(), data.end());
    ATOLL_ASSIGN_OR_RETURN(const SessionEvent* event, script_->Next(wanted));
    if (event->code != StatusCode::kOk || !event->is_in()) return event->status();
    // Such a transfer brings all or fails.
    if (event->data.size() != data.size()) {
      return DeviceLost("%zu of %zu bytes of a control transfer are recorded", event->data.size(),
                        data.size());
    }
    std::copy(event->data.begin(), event->data.end(), data.begin());
    return {};
  }
  Status BulkOut(uint8_t endpoint, std::span<const uint8_t> data, Deadline) override {
    SessionEvent wanted;
    wanted.kind = SessionEvent::Kind::kOut;
    wanted.endpoint = endpoint;
    wanted.length = data.size();
    wanted.data.assign(data.begin(), data.end());
    ATOLL_ASSIGN_OR_RETURN(const SessionEvent* event, script_->Next(wanted));
    return event->status();
  }
  Result<size_t> BulkIn(uint8_t endpoint, std::span<uint8_t> data, Deadline) override {
    return Receive(SessionEvent::Kind::kIn, endpoint, data);
  }
  Result<size_t> InterruptIn(uint8_t endpoint, std::span<uint8_t> data, Deadline) override {
    return Receive(SessionEvent::Kind::kInterrupt, endpoint, data);
  }
  void Cancel() override {}
  Status Reset(Deadline) override {
    SessionEvent wanted;
    wanted.kind = SessionEvent::Kind::kReset;
    ATOLL_ASSIGN_OR_RETURN(const SessionEvent* event, script_->Next(wanted));
    return event->status();
  }

 private:
  Result<size_t> Receive(SessionEvent::Kind kind, uint8_t endpoint, std::span<uint8_t> data) {
    SessionEvent wanted;
    wanted.kind = kind;
    wanted.endpoint = endpoint;
    wanted.length = data.size();
    ATOLL_ASSIGN_OR_RETURN(const SessionEvent* event, script_->Next(wanted));
    if (event->code != StatusCode::kOk) return event->status();
    std::copy(event->data.begin(), event->data.end(), data.begin());
    return event->data.size();
  }

  const std::shared_ptr<Script> script_;
};

ReplayBus::ReplayBus(std::shared_ptr<Script> script) : script_(std::move(script)) {}

ReplayBus::~ReplayBus() {
  if (departure().ok() && replayed() > 0 && replayed() < transfers()) {
    Log(LogSeverity::kWarning, "the session ended after %zu of %zu recorded transfers", replayed(),
        transfers());
  }
}

bool ReplayBus::WaitForChange(uint64_t, Deadline deadline) {
  std::this_thread::sleep_until(std::min(deadline, Clock::now() + std::chrono::milliseconds(10)));
  return false;
}

Result<std::shared_ptr<ReplayBus>> ReplayBus::Create(std::span<const uint8_t> recording) {
  ATOLL_ASSIGN_OR_RETURN(std::shared_ptr<Script> script, Script::Parse(recording));
  return std::shared_ptr<ReplayBus>(new ReplayBus(std::move(script)));
}

std::string ReplayBus::Note(const std::string& key) const { return script_->Note(key); }
Result<std::vector<UsbDeviceInfo>> ReplayBus::FirstDevices() const {
  return script_->FirstDevices();
}
Status ReplayBus::departure() const { return script_->departure(); }
size_t ReplayBus::replayed() const { return script_->replayed(); }
size_t ReplayBus::transfers() const { return script_->transfers(); }

Result<std::vector<UsbDeviceInfo>> ReplayBus::List() { return script_->List(); }

Result<std::unique_ptr<UsbTransport>> ReplayBus::Open(const UsbDeviceInfo& device,
                                                      uint8_t interface_number) {
  SessionEvent wanted;
  wanted.kind = SessionEvent::Kind::kOpen;
  wanted.path = device.path;
  wanted.interface_number = interface_number;
  ATOLL_ASSIGN_OR_RETURN(const SessionEvent* event, script_->Next(wanted));
  if (event->code != StatusCode::kOk) return event->status();
  return std::unique_ptr<UsbTransport>(std::make_unique<Transport>(script_));
}

Result<std::vector<uint8_t>> ReadRecording(const std::string& path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (file == nullptr) return NotFound("cannot read the recording '%s'", path.c_str());
  std::vector<uint8_t> bytes;
  uint8_t chunk[1 << 16];
  while (const size_t count = std::fread(chunk, 1, sizeof(chunk), file.get())) {
    // What is none shall not be read to its end, if it has one.
    if (bytes.empty()) ATOLL_RETURN_IF_ERROR(CheckPcapngStart({chunk, count}));
    bytes.insert(bytes.end(), chunk, chunk + count);
    if (bytes.size() > kRecordingBytesMax) {
      return ResourceExhausted("the recording '%s' is larger than %zu bytes", path.c_str(),
                               kRecordingBytesMax);
    }
  }
  return bytes;
}

}  // namespace atollrt
