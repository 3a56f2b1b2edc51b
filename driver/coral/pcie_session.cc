// SPDX-License-Identifier: Apache-2.0
#include "driver/coral/pcie_session.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "atoll/check.h"
#include "runtime/base/bytes.h"
#include "runtime/base/log.h"

namespace atollrt {
namespace {

using coral::Register64;

constexpr std::chrono::milliseconds kQueuePatience{1000};
constexpr std::chrono::microseconds kQueuePollPause{20};
// Until the chip is asked, should an interrupt have been lost.
constexpr std::chrono::milliseconds kInterruptPatience{100};

constexpr uint64_t kCoralDescriptorBytes = 16;
constexpr uint64_t kStatusBlockOffset = kCoralPageBytes;  // in the queue's memory
constexpr size_t kFatalErrorByte = 4;                     // of the status block

constexpr uint64_t kQueueOn = 5;  // and it writes the status block
constexpr uint64_t kAllScalarInterrupts = 0xF;
constexpr uint32_t kScalarCores = 4;
constexpr uint64_t kAllVectors = (uint64_t{1} << kCoralVectors) - 1;

// As the chip writes it, at any moment.
uint32_t LoadShared(const uint8_t* place) {
  return std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(const_cast<uint8_t*>(place)))
      .load(std::memory_order_acquire);
}

}  // namespace

CoralPcieSession::CoralPcieSession(CoralPcieLink* link, NowFunction now, std::string name)
    : link_(link), now_(std::move(now)), name_(std::move(name)) {}

Status CoralPcieSession::Await(Register64 address, uint64_t value, const char* what,
                               Deadline deadline) {
  deadline = std::min(deadline, now_() + kQueuePatience);
  for (;;) {
    ATOLL_ASSIGN_OR_RETURN(const uint64_t word, link_->Read(address));
    if (word == value) return {};
    if (now_() >= deadline) {
      return Timeout("the chip does not %s: register %05x has %llx, should have %llx", what,
                     static_cast<uint32_t>(address), static_cast<unsigned long long>(word),
                     static_cast<unsigned long long>(value));
    }
    std::this_thread::sleep_for(kQueuePollPause);
  }
}

// Writes to tiles go to all of them. It must be read back: later writes may be faster.
Status CoralPcieSession::SelectAllTiles(Deadline deadline) {
  ATOLL_RETURN_IF_ERROR(link_->Write(Register64::kTileConfig, coral::kAllTiles));
  return Await(Register64::kTileConfig, coral::kAllTiles, "select its tiles", deadline);
}

// Goes on past errors; the first one.
Status CoralPcieSession::SetRunControl(uint64_t value, Deadline deadline) {
  Status first;
  const auto keep = [&first](Status status) {
    if (first.ok()) first = std::move(status);
  };
  for (const Register64 unit : coral::kCoreRunControls) keep(link_->Write(unit, value));
  keep(SelectAllTiles(deadline));
  for (const Register64 unit : coral::kTileRunControls) keep(link_->Write(unit, value));
  return first;
}

Status CoralPcieSession::BringUp(Deadline deadline) {
  ATOLL_RETURN_IF_ERROR(LookForError());
  ATOLL_RETURN_IF_ERROR(link_->Write(Register64::kDmaBurstLimit, 0));
  ATOLL_ASSIGN_OR_RETURN(const uint64_t bytes, link_->Read(Register64::kDescriptorBytes));
  if (bytes != kCoralDescriptorBytes) {
    return Unsupported("the chip has descriptors of %llu bytes; known are those of %llu",
                       static_cast<unsigned long long>(bytes),
                       static_cast<unsigned long long>(kCoralDescriptorBytes));
  }
  const uint64_t queue = link_->queue_memory().address;
  // Hardware does not reset where the ring ends.
  ATOLL_RETURN_IF_ERROR(link_->Write(Register64::kQueueTail, 0));
  ATOLL_RETURN_IF_ERROR(link_->Write(Register64::kQueueBase, queue));
  ATOLL_RETURN_IF_ERROR(link_->Write(Register64::kQueueStatusBlock, queue + kStatusBlockOffset));
  // Whatever it did from elsewhere would look like the fault of a program.
  ATOLL_RETURN_IF_ERROR(Await(Register64::kQueueBase, queue, "take its queue", deadline));
  ATOLL_RETURN_IF_ERROR(Await(Register64::kQueueStatusBlock, queue + kStatusBlockOffset,
                              "take its status block", deadline));
  ATOLL_RETURN_IF_ERROR(link_->Write(Register64::kQueueSize, kCoralRingEntries));
  ATOLL_RETURN_IF_ERROR(link_->Write(Register64::kQueueControl, kQueueOn));
  ATOLL_RETURN_IF_ERROR(Await(Register64::kQueueStatus, 1, "start its queue", deadline));
  ATOLL_ASSIGN_OR_RETURN(const uint64_t counts, link_->Read(Register64::kScalarInterruptCounts));
  count_ = static_cast<uint16_t>(counts);
  queued_ = rung_ = retired_ = runs_ = finished_ = 0;
  ATOLL_RETURN_IF_ERROR(SetRunControl(coral::kRun, deadline));
  ATOLL_RETURN_IF_ERROR(link_->Write(Register64::kStatusBlockUpdate, 0));
  ATOLL_RETURN_IF_ERROR(link_->Write(Register64::kScalarInterruptControl, kAllScalarInterrupts));
  ATOLL_RETURN_IF_ERROR(link_->Write(Register64::kQueueInterruptControl, 1));
  return link_->Write(Register64::kFatalInterruptControl, 1);
}

Status CoralPcieSession::Pause(Deadline deadline) {
  ATOLL_RETURN_IF_ERROR(link_->Write(Register64::kDmaPause, 1));
  return Await(Register64::kDmaPaused, 1, "end its transfers", deadline);
}

bool CoralPcieSession::Close(Deadline deadline) {
  Status first = Pause(deadline);
  const bool paused = first.ok();
  const auto keep = [&first](Status status) {
    if (first.ok()) first = std::move(status);
  };
  keep(SetRunControl(coral::kHalt, deadline));
  for (const Register64 control :
       {Register64::kFatalInterruptControl, Register64::kQueueInterruptControl,
        Register64::kScalarInterruptControl, Register64::kQueueControl}) {
    keep(link_->Write(control, 0));
  }
  keep(Await(Register64::kQueueStatus, 0, "stop its queue", deadline));
  for (const Register64 place :
       {Register64::kQueueTail, Register64::kQueueBase, Register64::kQueueStatusBlock}) {
    keep(link_->Write(place, 0));
  }
  if (!first.ok()) {
    Log(LogSeverity::kWarning, "device %s: closing was not complete: %s", name_.c_str(),
        first.message().c_str());
  }
  return paused;
}

// The queue.

void CoralPcieSession::Queue(uint64_t address, uint32_t bytes) {
  ATOLL_CHECK(room() > 0);
  uint8_t* const descriptor =
      link_->queue_memory().bytes.data() + queued_ % kCoralRingEntries * kCoralDescriptorBytes;
  StoreLittleEndian(descriptor, address);
  StoreLittleEndian(descriptor + 8, bytes);
  StoreLittleEndian(descriptor + 12, uint32_t{0});
  ++queued_;
}

Status CoralPcieSession::RingBell() {
  if (rung_ == queued_) return {};
  rung_ = queued_;
  return link_->Write(Register64::kQueueTail, queued_ % kCoralRingEntries);
}

Status CoralPcieSession::LookAtQueue() {
  const uint8_t* const block = link_->queue_memory().bytes.data() + kStatusBlockOffset;
  const uint32_t head = LoadShared(block);
  const uint32_t error = LoadShared(block + kFatalErrorByte);
  if (error != 0) {
    return DeviceLost("the chip's instruction queue reports error %u", error);
  }
  const uint64_t retired = (head - retired_) % kCoralRingEntries;
  if (head >= kCoralRingEntries || retired > rung_ - retired_) {
    return DeviceLost(
        "the chip says that it has retired descriptors up to %u, with %llu queued and %llu retired",
        head, static_cast<unsigned long long>(rung_), static_cast<unsigned long long>(retired_));
  }
  retired_ += retired;
  return {};
}

Status CoralPcieSession::LookAtRuns() {
  ATOLL_ASSIGN_OR_RETURN(const uint64_t counts, link_->Read(Register64::kScalarInterruptCounts));
  const auto ended = static_cast<uint16_t>(counts - count_);
  if (ended > runs_ - finished_) {
    return DeviceLost("the chip says that %u more runs have ended, of %llu", ended,
                      static_cast<unsigned long long>(runs_ - finished_));
  }
  count_ = static_cast<uint16_t>(counts);
  finished_ += ended;
  return {};
}

// What the error register says, even if no interrupt has come.
Status CoralPcieSession::LookForError() {
  ATOLL_ASSIGN_OR_RETURN(const uint64_t error, link_->Read(Register64::kHibError));
  if (error == 0) return {};
  const Result<uint64_t> first = link_->Read(Register64::kHibFirstError);
  const std::string text =
      Format("the chip reports %s (error register %llx, first error %llx)",
             coral::DescribeHibError(error).c_str(), static_cast<unsigned long long>(error),
             static_cast<unsigned long long>(first.ok() ? *first : 0));
  if ((error & coral::kPageFaults) == 0) return DeviceLost("%s", text.c_str());
  ATOLL_ASSIGN_OR_RETURN(const uint64_t address, link_->Read(Register64::kPageFaultAddress));
  const auto queue = link_->queue_memory();
  if (link_->IsMapped(address) || address - queue.address < queue.bytes.size()) {
    return DeviceLost("%s: it does not reach %llx, which is mapped", text.c_str(),
                      static_cast<unsigned long long>(address));
  }
  return CorruptModel("%s: nothing is mapped at %llx", text.c_str(),
                      static_cast<unsigned long long>(address));
}

Status CoralPcieSession::HandleFatal() {
  ATOLL_RETURN_IF_ERROR(link_->Write(Register64::kFatalInterruptControl, 0));
  ATOLL_RETURN_IF_ERROR(link_->Write(Register64::kFatalInterruptStatus, 0));
  ATOLL_RETURN_IF_ERROR(LookForError());
  // Of nothing.
  return link_->Write(Register64::kFatalInterruptControl, 1);
}

Status CoralPcieSession::Attend(Deadline deadline) {
  const Result<uint64_t> raised =
      link_->AwaitInterrupts(kAllVectors, std::min(deadline, now_() + kInterruptPatience));
  if (raised.code() == StatusCode::kTimeout) {
    ATOLL_RETURN_IF_ERROR(LookForError());
    ATOLL_RETURN_IF_ERROR(LookAtQueue());
    return LookAtRuns();
  }
  if (!raised.ok()) return raised.status();
  const auto has = [&raised](uint32_t vector) { return (*raised >> vector & 1) != 0; };
  if (has(kCoralFatalVector)) ATOLL_RETURN_IF_ERROR(HandleFatal());
  // Acknowledged first, so that nothing that happens meanwhile goes unseen.
  if (has(kCoralQueueVector)) {
    ATOLL_RETURN_IF_ERROR(link_->Write(Register64::kQueueInterruptStatus, 0));
    ATOLL_RETURN_IF_ERROR(LookAtQueue());
  }
  for (uint32_t core = 0; core < kScalarCores; ++core) {
    if (!has(kCoralScalarVector + core)) continue;
    ATOLL_RETURN_IF_ERROR(link_->Write(Register64::kScalarInterruptStatus,
                                       kAllScalarInterrupts & ~(uint64_t{1} << core)));
    if (core == 0) ATOLL_RETURN_IF_ERROR(LookAtRuns());
  }
  for (uint32_t number = 0; number < coral::kTopLevelCount; ++number) {
    if (!has(kCoralTopLevelVector + number)) continue;
    Log(LogSeverity::kWarning, "device %s %s", name_.c_str(), coral::TopLevelMeaning(number));
  }
  return {};
}

}  // namespace atollrt
