// SPDX-License-Identifier: Apache-2.0
//
// A client of a broker, what it brought, and what it wants. All of it is guarded by the broker's
// mutex, also where it ends.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "atoll/status.h"
#include "driver/broker/messages.h"
#include "driver/broker/socket.h"
#include "driver/device/device_info.h"
#include "runtime/base/clock.h"
#include "runtime/base/file_descriptor.h"
#include "serve/broker/broker.h"

namespace atollrt {

// What nobody uses any more, for whoever takes it away without the mutex.
struct BrokerLeavings {
  std::vector<ExecutableId> executables;
  std::vector<SharedMemory> memory;
};

// Bytes that a client is charged with, as long as this lives, which may be longer than the client.
class BrokerCharge {
 public:
  BrokerCharge(std::shared_ptr<uint64_t> to, uint64_t bytes) : to_(std::move(to)), bytes_(bytes) {
    *to_ += bytes_;
  }
  ~BrokerCharge() { *to_ -= bytes_; }
  BrokerCharge(const BrokerCharge&) = delete;
  BrokerCharge& operator=(const BrokerCharge&) = delete;

 private:
  const std::shared_ptr<uint64_t> to_;
  const uint64_t bytes_;
};
using BrokerChargePtr = std::unique_ptr<BrokerCharge>;

// An executable on the device, for all clients that loaded the same bytes.
struct BrokerLoaded {
  BrokerLeavings* const leavings;
  const ExecutableId id;
  const std::string digest;  // of its bytes
  const std::shared_ptr<const AnyExecutable> executable;

  BrokerLoaded(BrokerLeavings* to, ExecutableId its_id, std::string its_digest,
               std::shared_ptr<const AnyExecutable> what)
      : leavings(to), id(its_id), digest(std::move(its_digest)), executable(std::move(what)) {}
  ~BrokerLoaded() { leavings->executables.push_back(id); }
  BrokerLoaded(const BrokerLoaded&) = delete;
  BrokerLoaded& operator=(const BrokerLoaded&) = delete;
};

struct BrokerClientArena {
  BrokerLeavings* const leavings;
  SharedMemory memory;
  BrokerChargePtr charge;

  BrokerClientArena(BrokerLeavings* to, SharedMemory what, BrokerChargePtr its_charge)
      : leavings(to), memory(std::move(what)), charge(std::move(its_charge)) {}
  ~BrokerClientArena() { leavings->memory.push_back(std::move(memory)); }
  BrokerClientArena(const BrokerClientArena&) = delete;
  BrokerClientArena& operator=(const BrokerClientArena&) = delete;
};

// As a client has loaded it.
struct BrokerClientExecutable {
  std::shared_ptr<const BrokerLoaded> loaded;
  BrokerChargePtr charge;
};

struct BrokerConnection;

// A request. Keeps all that it uses.
struct BrokerPending {
  std::shared_ptr<BrokerConnection> client;
  uint32_t request = 0;
  std::shared_ptr<const BrokerClientExecutable> executable;
  std::vector<std::shared_ptr<const BrokerClientArena>> arenas;  // of the buffers
  std::vector<std::span<uint8_t>> buffers;                       // inputs, and then outputs
  int32_t priority = 0;
  Deadline came, deadline;
};

// Something that takes long: an executable, or a reset.
struct BrokerIncoming {
  bool is_reset = false;
  uint32_t request = 0;
  uint32_t residency_set = 0;
  uint64_t bytes = 0;
  FileDescriptor file{};
  std::string name{};
  BrokerChargePtr charge{};
};

// What was had in the second that goes on and in the one before it.
class BrokerLately {
 public:
  void Add(Clock::time_point now, double seconds) {
    Move(now);
    this_ += seconds;
  }
  double Sum(Clock::time_point now) const {
    BrokerLately moved = *this;
    moved.Move(now);
    return moved.this_ + moved.last_;
  }

 private:
  void Move(Clock::time_point now) {
    const int64_t second =
        std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count();
    if (second == second_) return;
    last_ = second == second_ + 1 ? this_ : 0;
    this_ = 0;
    second_ = second;
  }

  int64_t second_ = 0;
  double this_ = 0, last_ = 0;
};

struct BrokerConnection {
  FileDescriptor socket;
  uint32_t number = 0;  // counted
  Peer peer;
  Deadline connected;
  bool has_said_hello = false;
  bool is_gone = false;
  bool state_untold = false;
  std::string name;
  BrokerShare share;

  const std::shared_ptr<uint64_t> bytes = std::make_shared<uint64_t>(0);  // charged
  std::map<uint32_t, std::shared_ptr<const BrokerClientArena>> arenas;
  std::map<uint32_t, std::shared_ptr<const BrokerClientExecutable>> executables;
  uint32_t last_executable = 0;
  std::deque<BrokerIncoming> incoming;
  size_t executables_coming = 0;  // the one that is being taken in, too

  std::deque<BrokerPending> queue;  // the highest priority first
  struct Running {
    RequestId id = 0;  // the device's; 0: not submitted yet
    bool is_cancelled = false;
  };
  std::map<uint32_t, Running> running;
  double used = 0;  // time of the device over the weight
  double device_seconds = 0;
  BrokerLately used_of_late;
  uint64_t requests = 0;

  bool IsUnderWay(uint32_t request) const;
  void Enqueue(BrokerPending pending);
};

// What a client asks for, checked: its executable and arenas are there, every buffer is inside of
// its arena, and no output lies above another buffer. Without the client's quotas.
Result<BrokerPending> ReadBrokerSubmit(const std::shared_ptr<BrokerConnection>& client,
                                       const BrokerReceived<BrokerSubmit>& submit);

}  // namespace atollrt
