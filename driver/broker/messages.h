// SPDX-License-Identifier: Apache-2.0
//
// What a broker and its clients say to each other, over a Unix socket that keeps the borders of
// messages (SOCK_SEQPACKET). docs/broker.md has the order of things.
//
// A message is one of the structs below and, behind some, a tail. Both ends are on one computer, so
// numbers are in its byte order. Everything that comes from a client is hostile.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "atoll/status.h"
#include "driver/device/device_info.h"

namespace atollrt {

inline constexpr uint32_t kBrokerMagic = 0x62'6c'74'61;  // "atlb"
// The protocols that this library speaks.
inline constexpr uint32_t kBrokerProtocolMin = 1, kBrokerProtocolMax = 1;
// The size of a message, its tail included: more than a Submit of kMaxLayers buffers has.
inline constexpr size_t kBrokerMessageBytes = 24 << 10;
inline constexpr size_t kBrokerTextBytes = 1024;  // of a sentence or a name

enum class BrokerMessage : uint32_t {
  // What a client sends.
  kHello = 1,   // the first one
  kArena = 2,   // with a memfd; answered by kDone
  kLoad = 3,    // with a memfd that has the stored form of an executable, or its package; kDone
  kUnload = 4,  // no answer
  kSubmit = 5,  // kDone, in any order
  kCancel = 6,  // no answer but that of the request
  kDrop = 7,    // no answer
  kReset = 8,   // kDone; of those who may
  kList = 9,    // kDone with a tail of BrokerClientRows
  // What the broker sends.
  kWelcome = 101,
  kDone = 102,
  kState = 103,  // when it changes
};

struct BrokerHello {
  static constexpr BrokerMessage kType = BrokerMessage::kHello;
  uint32_t type = static_cast<uint32_t>(kType);
  uint32_t magic = kBrokerMagic;
  uint32_t protocol_min = kBrokerProtocolMin, protocol_max = kBrokerProtocolMax;
  // Tail: the client's name for people, as it says.
};

// Memory for buffers of requests: a memfd that is sealed against shrinking, growing and further
// seals. One of an id that is there takes its place.
struct BrokerArena {
  static constexpr BrokerMessage kType = BrokerMessage::kArena;
  uint32_t type = static_cast<uint32_t>(kType);
  uint32_t request = 0;
  uint64_t bytes = 0;
  uint32_t id = 0;
  uint32_t unused = 0;
};

struct BrokerLoad {
  static constexpr BrokerMessage kType = BrokerMessage::kLoad;
  uint32_t type = static_cast<uint32_t>(kType);
  uint32_t request = 0;
  uint64_t bytes = 0;
  uint32_t residency_set = 0;
  uint32_t unused = 0;
  // Tail: its name for people, as the client says.
};

struct BrokerUnload {
  static constexpr BrokerMessage kType = BrokerMessage::kUnload;
  uint32_t type = static_cast<uint32_t>(kType);
  uint32_t executable = 0;
};

struct BrokerSubmit {
  static constexpr BrokerMessage kType = BrokerMessage::kSubmit;
  uint32_t type = static_cast<uint32_t>(kType);
  uint32_t request = 0;
  uint32_t executable = 0;
  int32_t priority = 0;
  uint64_t timeout_ms = 0;
  uint32_t buffers = 0;
  uint32_t unused = 0;
  // Tail: so many BrokerBuffers, of the inputs and then the outputs, whose sizes are the
  // executable's.
};

struct BrokerBuffer {
  uint64_t offset = 0;  // in the arena
  uint32_t arena = 0;
  uint32_t unused = 0;
  bool operator==(const BrokerBuffer&) const = default;
};

struct BrokerCancel {
  static constexpr BrokerMessage kType = BrokerMessage::kCancel;
  uint32_t type = static_cast<uint32_t>(kType);
  uint32_t request = 0;
};

// An arena that is not needed any more; what is under way keeps it until then.
struct BrokerDrop {
  static constexpr BrokerMessage kType = BrokerMessage::kDrop;
  uint32_t type = static_cast<uint32_t>(kType);
  uint32_t arena = 0;
};

// Makes the device begin anew; requests of all clients that are under way are sent again.
struct BrokerReset {
  static constexpr BrokerMessage kType = BrokerMessage::kReset;
  uint32_t type = static_cast<uint32_t>(kType);
  uint32_t request = 0;
};

// Whom the broker serves: not who asks, and of other users only for root and the broker's own.
struct BrokerList {
  static constexpr BrokerMessage kType = BrokerMessage::kList;
  uint32_t type = static_cast<uint32_t>(kType);
  uint32_t request = 0;
  uint32_t behind = 0;  // those with greater numbers, kBrokerRowsMax at most
  uint32_t unused = 0;
};

struct BrokerClientRow {
  uint32_t number = 0;             // rises from row to row
  uint32_t user = 0, process = 0;  // as the kernel says
  int32_t priority_max = 0;
  double weight = 0;
  double device_seconds = 0;
  double share = 0;       // of what all clients have had in the last one or two seconds
  uint64_t requests = 0;  // that it was answered
  uint64_t bytes = 0;     // charged
  uint32_t running = 0, waiting = 0, executables = 0;
  uint32_t unused = 0;
  char name[128] = {};  // as it says; 0 behind it, if there is room
};
inline constexpr size_t kBrokerRowsMax = 100;  // in a message
static_assert(kBrokerRowsMax * sizeof(BrokerClientRow) + 256 < kBrokerMessageBytes);

struct BrokerWelcome {
  static constexpr BrokerMessage kType = BrokerMessage::kWelcome;
  uint32_t type = static_cast<uint32_t>(kType);
  uint32_t protocol = 0;  // 0: the broker refuses, for `code`, and the tail says why
  // What the device is.
  uint32_t family = 0;
  uint32_t array_rows = 0, array_columns = 0;
  uint32_t isa_version = 0;
  uint64_t memory_bytes = 0, program_memory_bytes = 0;
  uint64_t clock_hz = 0, link_bytes_per_second = 0;
  double host_seconds = 0;
  uint64_t request_timeout_min_ms = 0;
  uint32_t emulated = 0;
  uint32_t code = 0;  // a StatusCode
  // Tail: a line that describes it; or why not.
};

// How the broker's device is. Clients need not know what is done about it.
struct BrokerState {
  static constexpr BrokerMessage kType = BrokerMessage::kState;
  uint32_t type = static_cast<uint32_t>(kType);
  uint32_t state = 0;  // a DeviceState
  // DeviceHealth, of all clients together.
  uint64_t failures = 0, resets = 0, reopenings = 0, losses = 0, replays = 0, fallbacks = 0;
};

struct BrokerDone {
  static constexpr BrokerMessage kType = BrokerMessage::kDone;
  uint32_t type = static_cast<uint32_t>(kType);
  uint32_t request = 0;
  uint32_t code = 0;   // a StatusCode
  uint32_t value = 0;  // of a Load: the executable's number; of a List: rows
  // RequestReport.
  uint64_t device_cycles = 0;
  double device_seconds = 0;
  uint64_t bytes_to_device = 0, bytes_from_device = 0, bytes_copied = 0, parameter_bytes = 0;
  int64_t queue_ns = 0, link_out_ns = 0, compute_ns = 0, link_in_ns = 0;
  uint64_t device_clock = 0;
  int32_t replays = 0;
  uint32_t on_fallback = 0;
  // Tail: the sentence of an error; of a List, rows.
};

// A message of type T and what is behind it; nullopt if it is another one, or too short.
template <typename T>
struct BrokerReceived {
  T message;
  std::span<const uint8_t> tail;
};
template <typename T>
std::optional<BrokerReceived<T>> ReadBrokerMessage(std::span<const uint8_t> bytes) {
  static_assert(std::is_trivially_copyable_v<T> && std::is_standard_layout_v<T>);
  if (bytes.size() < sizeof(T)) return std::nullopt;
  BrokerReceived<T> received{{}, bytes.subspan(sizeof(T))};
  std::memcpy(&received.message, bytes.data(), sizeof(T));
  if (received.message.type != static_cast<uint32_t>(T::kType)) return std::nullopt;
  return received;
}
template <typename T>
std::vector<uint8_t> WriteBrokerMessage(const T& message, std::span<const uint8_t> tail = {}) {
  static_assert(std::is_trivially_copyable_v<T> && std::is_standard_layout_v<T>);
  std::vector<uint8_t> bytes(sizeof(T) + tail.size());
  std::memcpy(bytes.data(), &message, sizeof(T));
  if (!tail.empty()) std::memcpy(bytes.data() + sizeof(T), tail.data(), tail.size());
  return bytes;
}

// A tail that is text: of printable characters, at most kBrokerTextBytes.
std::string TextOf(std::span<const uint8_t> tail);
std::span<const uint8_t> TailOf(std::string_view text);

BrokerWelcome WelcomeOf(const DeviceInfo& info);
// Without the names. kDeviceLost if it says what no device is.
Result<DeviceInfo> DeviceInfoOf(const BrokerWelcome& welcome);

BrokerWelcome RefusalOf(StatusCode code);
// kOk, or an error of that code; kUnsupported for a code that is none.
Status RefusalOf(const BrokerWelcome& welcome, std::string_view sentence);

BrokerState StateOf(DeviceState state, const DeviceHealth& health);
DeviceHealth HealthOf(const BrokerState& state);

BrokerDone DoneOf(uint32_t request, const Status& status, const RequestReport& report);
RequestReport ReportOf(const BrokerDone& done);
// kOk, or an error of that code with the sentence.
Status StatusOf(const BrokerDone& done, std::string_view sentence);

}  // namespace atollrt
