// SPDX-License-Identifier: Apache-2.0
#include "driver/atoll1/ring_session.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "driver/atoll1/atoll1_chip.h"
#include "runtime/base/bytes.h"
#include "runtime/base/log.h"

namespace atollrt {
namespace {

constexpr uint32_t kRingEntries = 2048;  // more than a job of kMaxLayers takes
// Events lie in lines of their own, so that the device writes no line that the host reads.
constexpr size_t kEventStride = 64;
constexpr size_t kCopyAlignment = 64;
// Memory for copies grows in such steps.
constexpr size_t kCopyUnit = 16 * 1024;

// A wait without an interrupt looks at the device itself, first after so long, then more rarely.
constexpr std::chrono::milliseconds kFirstLook{4};
constexpr std::chrono::milliseconds kLooksMax{64};
// For the ring to go off, which is one transfer; between looks at it.
constexpr std::chrono::milliseconds kOffTimeout{1000};
constexpr std::chrono::milliseconds kOffInterval{1};
constexpr int kOffLooksMax = 2000;  // whatever the clock says
constexpr std::chrono::milliseconds kRingResetTimeout{5000};

constexpr uint32_t kAllOnes = ~uint32_t{0};

constexpr uint64_t Bit(RingVector vector) { return uint64_t{1} << static_cast<uint32_t>(vector); }
constexpr uint64_t kAwaited = Bit(RingVector::kEvent) | Bit(RingVector::kFault);

// What is loaded behind was stored by the device before what was loaded before: nobody has waited
// for an interrupt in between.
inline void BarrierAfterEvent() {
#if defined(__aarch64__)
  asm volatile("dmb oshld" ::: "memory");
#else
  std::atomic_thread_fence(std::memory_order_acquire);
#endif
}

bool Contains(std::span<const uint8_t> outer, const uint8_t* data, size_t size) {
  return data >= outer.data() && size <= outer.size() &&
         static_cast<size_t>(data - outer.data()) <= outer.size() - size;
}

bool IsWhole(const std::span<const uint8_t>& a, const std::span<const uint8_t>& b) {
  return a.data() == b.data() && a.size() == b.size();
}

}  // namespace

Result<std::unique_ptr<Chip>> OpenAtoll1OnPcie(std::unique_ptr<PcieFunction> function,
                                               const DeviceOrigin& origin, NowFunction now) {
  auto session = std::make_unique<RingSession>(std::move(function), origin.name, now);
  ATOLL_RETURN_IF_ERROR(
      session->ResetDevice(now() + kRingResetTimeout).WithContext("device " + origin.name));
  return Atoll1Chip::Open(std::move(session), origin, std::move(now));
}

RingSession::RingSession(std::unique_ptr<PcieFunction> function, std::string name, NowFunction now)
    : name_(std::move(name)), now_(std::move(now)), function_(std::move(function)) {}

RingSession::~RingSession() {
  (void)Quiesce().ok();
  TakeEverything();
}

// Registers.

Status RingSession::Gone() const {
  return DeviceLost("the device was taken off its memory, as it did not let go of it");
}

Result<uint32_t> RingSession::Read(uint64_t address) {
  if (function_ == nullptr) return Gone();
  Result<uint32_t> value = function_->Read32(kRegisterBar, address);
  if (!value.ok()) {
    return Status(value.status())
        .WithContext(Format("reading register %04llX", static_cast<unsigned long long>(address)));
  }
  const bool is_never_so = address == static_cast<uint64_t>(Register::kId) ||
                           address == static_cast<uint64_t>(RingRegister::kRingStatus);
  if (*value == kAllOnes && (is_never_so || !function_->is_present())) {
    return DeviceLost("register %04llX reads as all ones: the device is gone",
                      static_cast<unsigned long long>(address));
  }
  return value;
}

Result<uint32_t> RingSession::Read32(Register address, Deadline) {
  return Read(static_cast<uint64_t>(address));
}

Status RingSession::Write(uint64_t address, uint32_t value) {
  if (function_ == nullptr) return Gone();
  Status status = function_->Write32(kRegisterBar, address, value);
  if (status.ok()) return status;  // and no text for it
  return std::move(status).WithContext(
      Format("writing register %04llX", static_cast<unsigned long long>(address)));
}

// The ring.

Status RingSession::AwaitStatus(RingStatus wanted, Deadline deadline) {
  for (int looks = 0;; ++looks) {
    ATOLL_ASSIGN_OR_RETURN(const uint32_t status, Read(RingRegister::kRingStatus));
    if (status == static_cast<uint32_t>(wanted)) return {};
    if (looks == kOffLooksMax || now_() >= deadline) {
      return Timeout("RING_STATUS stays %u, must become %u", status, static_cast<uint32_t>(wanted));
    }
    // No more than a pause.
    (void)function_->AwaitInterrupts(Bit(RingVector::kFault), now_() + kOffInterval).ok();
  }
}

Status RingSession::SwitchOff() {
  ATOLL_RETURN_IF_ERROR(Write(RingRegister::kRingControl, kRingOff));
  return AwaitStatus(RingStatus::kOff, now_() + kOffTimeout);
}

Status RingSession::SwitchOn(Deadline deadline) {
  for (auto* const memory : {&ring_, &events_}) {
    if (*memory != nullptr) continue;
    const bool is_ring = memory == &ring_;
    ATOLL_ASSIGN_OR_RETURN(
        *memory,
        function_->Allocate(is_ring ? kRingEntries * kDescriptorBytes : kFlights * kEventStride,
                            is_ring ? DmaDirection::kToDevice : DmaDirection::kFromDevice));
  }
  if (!has_interrupts_) {
    ATOLL_RETURN_IF_ERROR(function_->EnableInterrupts(kRingVectors));
    has_interrupts_ = true;
  }
  // A doorbell that comes late finds nothing of before.
  std::ranges::fill(ring_->bytes(), uint8_t{0});
  const uint64_t address = ring_->iova();
  ATOLL_RETURN_IF_ERROR(Write(RingRegister::kRingLow, static_cast<uint32_t>(address)));
  ATOLL_RETURN_IF_ERROR(Write(RingRegister::kRingHigh, static_cast<uint32_t>(address >> 32)));
  ATOLL_RETURN_IF_ERROR(Write(RingRegister::kRingEntries, kRingEntries));
  is_on_ = true;  // from here on the device may use memory
  ATOLL_RETURN_IF_ERROR(Write(RingRegister::kRingControl, kRingOn));
  tail_ = done_ = sequence_ = 0;
  first_flight_ = flight_count_ = 0;
  return AwaitStatus(RingStatus::kOn, deadline);
}

Status RingSession::ResetCore(Deadline deadline) {
  ATOLL_RETURN_IF_ERROR(Quiesce());
  if (std::exchange(has_lost_memory_, false)) MapAnew();
  // Twice: writes can get lost, and nothing tells that of one that finds the ring off.
  for (int i = 0; i < 2; ++i) {
    ATOLL_RETURN_IF_ERROR(Write(static_cast<uint64_t>(Register::kControl), kControlReset));
  }
  ATOLL_RETURN_IF_ERROR(AwaitStatus(RingStatus::kOff, deadline));
  return SwitchOn(deadline);
}

Status RingSession::ResetDevice(Deadline deadline) {
  ATOLL_RETURN_IF_ERROR(Quiesce());
  if (function_ == nullptr) return Gone();
  Status status = function_->Reset(deadline);
  if (status.code() == StatusCode::kUnsupported) return {};
  has_interrupts_ = false;
  return status;
}

Status RingSession::Quiesce() {
  flight_count_ = 0;
  if (!is_on_) return {};
  is_on_ = false;
  const Status off = SwitchOff();
  if (off.ok()) return {};
  Status reset = function_->Reset(now_() + kRingResetTimeout);
  has_interrupts_ = false;
  Log(LogSeverity::kWarning, "device %s: the ring does not go off: %s; reset: %s", name_.c_str(),
      off.message().c_str(), reset.ok() ? "done" : reset.message().c_str());
  if (reset.ok()) return {};
  TakeEverything();
  return DeviceLost(
      "the device does not let go of this computer's memory (%s; %s), and was cut off",
      off.message().c_str(), reset.message().c_str());
}

// First what it reaches, then the right to reach anything.
void RingSession::TakeEverything() {
  const std::lock_guard lock(mutex_);
  for (Flight& one : flights_) one.copies = nullptr;
  regions_.clear();
  ring_ = nullptr;
  events_ = nullptr;
  function_ = nullptr;
}

// Memory.

Status RingSession::RegisterMemory(std::span<uint8_t> memory) {
  const std::lock_guard lock(mutex_);
  if (function_ == nullptr) return Gone();
  if (memory.empty() || !function_->maps_callers_memory()) return {};
  Status status;
  auto mapping = MapRegion(memory, /*is_constant=*/false, &status);
  if (mapping != nullptr) regions_.push_back({.bytes = memory, .mapping = std::move(mapping)});
  return status;
}

// With the mutex held. nullptr, and the reason in the log the first time, if it cannot be.
std::unique_ptr<DmaMapping> RingSession::MapRegion(std::span<const uint8_t> bytes, bool is_constant,
                                                   Status* status) {
  // The device may only read what is constant.
  const std::span<uint8_t> memory(const_cast<uint8_t*>(bytes.data()), bytes.size());
  const bool maps = function_->maps_callers_memory();
  Result<std::unique_ptr<DmaMapping>> mapping =
      maps ? function_->Map(memory, is_constant ? DmaDirection::kToDevice : DmaDirection::kBoth)
           : function_->Allocate(memory.size(), DmaDirection::kToDevice);
  if (status != nullptr) *status = mapping.status();
  if (mapping.ok()) {
    if (!maps) std::memcpy((*mapping)->bytes().data(), bytes.data(), bytes.size());
    return *std::move(mapping);
  }
  if (!std::exchange(told_of_copies_, true)) {
    Log(LogSeverity::kWarning, "device %s: %s cannot be given to it, and is copied: %s",
        name_.c_str(), is_constant ? "a program" : "memory", mapping.status().message().c_str());
  }
  return nullptr;
}

void RingSession::UnregisterMemory(std::span<uint8_t> memory) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(regions_, [memory](const Region& region) {
    return !region.is_constant && IsWhole(region.bytes, memory);
  });
  if (found != regions_.end()) regions_.erase(found);
}

bool RingSession::Pin(std::span<const uint8_t> constant) {
  const std::lock_guard lock(mutex_);
  if (function_ == nullptr || constant.empty()) return false;
  auto mapping = MapRegion(constant, /*is_constant=*/true);
  if (mapping == nullptr) return false;
  regions_.push_back({.bytes = constant, .is_constant = true, .mapping = std::move(mapping)});
  return true;
}

void RingSession::Unpin(std::span<const uint8_t> constant) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(regions_, [constant](const Region& region) {
    return region.is_constant && IsWhole(region.bytes, constant);
  });
  if (found != regions_.end()) regions_.erase(found);
}

// All that the device should reach, as it does not reach some of it any more. Nothing is under way.
void RingSession::MapAnew() {
  const std::lock_guard lock(mutex_);
  if (function_ == nullptr) return;
  for (Flight& one : flights_) one.copies = nullptr;
  ring_ = nullptr;
  events_ = nullptr;
  for (Region& region : regions_) {
    region.mapping = nullptr;
    region.mapping = MapRegion(region.bytes, region.is_constant);
  }
  std::erase_if(regions_, [](const Region& region) { return region.mapping == nullptr; });
}

// Finds the address of memory that the device reaches as it is.
bool RingSession::Locate(Transfer* transfer) {
  Descriptor& descriptor = transfer->descriptor;
  // The latest knows best what lies there.
  for (auto place = regions_.rbegin(); place != regions_.rend(); ++place) {
    const Region& region = *place;
    if (!Contains(region.bytes, transfer->bytes, descriptor.bytes) ||
        (region.is_constant && descriptor.kind == DescriptorKind::kOutput)) {
      continue;
    }
    descriptor.address =
        region.mapping->iova() + static_cast<uint64_t>(transfer->bytes - region.bytes.data());
    return true;
  }
  return false;
}

// kResourceExhausted, whatever the system says: that is a reason to wait for other runs.
Status RingSession::MakeRoomForCopies(size_t bytes, Flight* flight) {
  if (bytes == 0 || (flight->copies != nullptr && flight->copies->bytes().size() >= bytes)) {
    return {};
  }
  flight->copies = nullptr;
  Result<std::unique_ptr<DmaMapping>> memory =
      function_->Allocate(AlignUp(bytes, kCopyUnit), DmaDirection::kBoth);
  if (!memory.ok()) {
    const Status& status = memory.status();
    if (status.code() == StatusCode::kDeviceLost) return status;
    return ResourceExhausted("no %zu bytes of memory for what has to be copied: %s", bytes,
                             status.message().c_str());
  }
  flight->copies = *std::move(memory);
  return {};
}

// Runs.

void RingSession::AddTransfer(DescriptorKind kind, std::span<const uint8_t> bytes) {
  if (bytes.empty()) return;
  transfers_.push_back({.descriptor = {.kind = kind, .bytes = static_cast<uint32_t>(bytes.size())},
                        .bytes = const_cast<uint8_t*>(bytes.data())});
}

std::span<uint8_t, kRingEventBytes> RingSession::EventOf(const Flight& flight) const {
  const size_t place = flight.sequence % kFlights * kEventStride;
  return events_->bytes().subspan(place).first<kRingEventBytes>();
}

Status RingSession::Begin(const Job& job, Deadline) {
  if (!is_on_) return DeviceLost("the ring is off");
  transfers_.clear();
  AddTransfer(DescriptorKind::kInstructions, job.instructions);
  if (!transfers_.empty()) transfers_[0].descriptor.program_offset = job.start.program_offset;
  transfers_.push_back({.descriptor = {.kind = DescriptorKind::kStart, .start = job.start}});
  for (const std::span<const uint8_t> input : job.inputs) {
    AddTransfer(DescriptorKind::kInput, input);
  }
  AddTransfer(DescriptorKind::kParameters, job.parameters);
  for (const std::span<uint8_t> output : job.outputs) AddTransfer(DescriptorKind::kOutput, output);
  const size_t count = transfers_.size() + 1;
  if (flight_count_ == kFlights || tail_ - done_ + count > kRingEntries) {
    return ResourceExhausted("no room in the ring for %zu descriptors", count);
  }

  if (flight_count_ == 0) first_flight_ = 0;  // whose memory has its size
  Flight& now = flight(flight_count_);
  now.request_id = job.start.request_id;
  now.bytes_out = count * kDescriptorBytes;
  now.bytes_in = kRingEventBytes;
  now.bytes_copied = 0;
  now.outputs.clear();
  size_t copies = 0;
  {
    const std::lock_guard lock(mutex_);
    for (Transfer& transfer : transfers_) {
      if (transfer.bytes == nullptr) continue;
      const bool is_output = transfer.descriptor.kind == DescriptorKind::kOutput;
      (is_output ? now.bytes_in : now.bytes_out) += transfer.descriptor.bytes;
      if (Locate(&transfer)) {
        transfer.bytes = nullptr;
      } else {
        copies += AlignUp(transfer.descriptor.bytes, kCopyAlignment);
      }
    }
  }
  ATOLL_RETURN_IF_ERROR(MakeRoomForCopies(copies, &now));
  size_t used = 0;
  for (Transfer& transfer : transfers_) {
    if (transfer.bytes == nullptr) continue;
    Descriptor& descriptor = transfer.descriptor;
    uint8_t* const copy = now.copies->bytes().data() + used;
    descriptor.address = now.copies->iova() + used;
    used += AlignUp(descriptor.bytes, kCopyAlignment);
    now.bytes_copied += descriptor.bytes;
    if (descriptor.kind == DescriptorKind::kOutput) {
      now.outputs.push_back({{transfer.bytes, descriptor.bytes}, copy});
    } else {
      std::memcpy(copy, transfer.bytes, descriptor.bytes);
    }
  }

  now.sequence = ++sequence_;
  const std::span<uint8_t, kRingEventBytes> event = EventOf(now);
  std::ranges::fill(event, uint8_t{0});
  transfers_.push_back(
      {.descriptor = {.kind = DescriptorKind::kEvent,
                      .interrupts = true,
                      .bytes = kRingEventBytes,
                      .address = events_->iova() +
                                 static_cast<uint64_t>(event.data() - events_->bytes().data())}});
  for (const Transfer& transfer : transfers_) {
    const auto bytes = EncodeDescriptor(transfer.descriptor);
    std::ranges::copy(bytes, ring_->bytes().begin() + tail_ % kRingEntries * kDescriptorBytes);
    ++tail_;
  }
  now.descriptor = tail_ - 1;
  ++flight_count_;
  return Write(RingRegister::kRingTail, tail_);
}

// Whether the event is there, whole and the one that is awaited. What is there in part may still be
// under way.
RingSession::Look RingSession::LookAtEvent(const Flight& flight, RingEvent* event) const {
  const auto bytes = LoadRingEvent(EventOf(flight));
  if (LoadLittleEndian<uint32_t>(&bytes[kRingEventSequence]) != flight.sequence) {
    return Look::kNotYet;
  }
  const Result<RingEvent> decoded = DecodeRingEvent(bytes);
  if (!decoded.ok()) return Look::kNotYet;
  BarrierAfterEvent();
  *event = *decoded;
  return Look::kWhole;
}

// Why the ring has stopped.
Status RingSession::StopReason(RingStatus status) {
  ATOLL_ASSIGN_OR_RETURN(const uint32_t descriptor, Read(RingRegister::kStopDescriptor));
  if (status == RingStatus::kBadDescriptor) {
    return InternalError("the device finds fault with descriptor %u of %u", descriptor, tail_);
  }
  has_lost_memory_ = true;
  ATOLL_ASSIGN_OR_RETURN(const uint32_t low, Read(RingRegister::kStopAddressLow));
  ATOLL_ASSIGN_OR_RETURN(const uint32_t high, Read(RingRegister::kStopAddressHigh));
  return InternalError(
      "DMA fault at bus address %llX, descriptor %u: this computer's memory did not answer there",
      static_cast<unsigned long long>(uint64_t{high} << 32 | low), descriptor);
}

// Asks the device itself, and reminds it of what it may not have heard.
Result<RingSession::Look> RingSession::Inspect(const Flight& flight, RingEvent* event) {
  ATOLL_ASSIGN_OR_RETURN(const uint32_t word, Read(RingRegister::kRingStatus));
  const auto status = static_cast<RingStatus>(word);
  if (status == RingStatus::kDmaFault || status == RingStatus::kBadDescriptor) {
    // Those before it may be well, and get their turn before this is said.
    if (LookAtEvent(flight, event) == Look::kWhole) return Look::kWhole;
    return StopReason(status);
  }
  if (status == RingStatus::kOff) {
    return DeviceLost("the ring is off: somebody has reset the device");
  }
  if (status != RingStatus::kOn && status != RingStatus::kProgramFault) {
    return DeviceLost("RING_STATUS is %u", word);
  }
  ATOLL_ASSIGN_OR_RETURN(const uint32_t head, Read(RingRegister::kRingHead));
  // What the device wrote before it answered is in memory now.
  const Look look = LookAtEvent(flight, event);
  if (look == Look::kWhole) return look;
  const bool is_done = static_cast<int32_t>(head - flight.descriptor) > 0;
  if (is_done || status == RingStatus::kProgramFault) {
    const Result<RingEvent> there = DecodeRingEvent(LoadRingEvent(EventOf(flight)));
    if (there.ok()) {
      return InternalError("the device says that event %u is there, and it is event %u",
                           flight.sequence, there->sequence);
    }
    return InternalError("event %u of the device is damaged: %s", flight.sequence,
                         there.status().message().c_str());
  }
  ATOLL_RETURN_IF_ERROR(Write(RingRegister::kRingTail, tail_));
  return Look::kNotYet;
}

Result<Event> RingSession::AwaitEvent(const Flight& flight, Deadline deadline, uint64_t* clock) {
  RingEvent event;
  auto pause = kFirstLook;
  Deadline next_look = now_() + pause;
  Look look = LookAtEvent(flight, &event);
  while (look == Look::kNotYet) {
    const Result<uint64_t> raised =
        function_->AwaitInterrupts(kAwaited, std::min(deadline, next_look));
    if (!raised.ok() && raised.code() != StatusCode::kTimeout) return raised.status();
    look = LookAtEvent(flight, &event);
    if (look == Look::kWhole) break;
    const bool has_stopped = raised.ok() && (*raised & Bit(RingVector::kFault)) != 0;
    const Deadline now = now_();
    if (!has_stopped && now < next_look && now < deadline) continue;
    ATOLL_ASSIGN_OR_RETURN(look, Inspect(flight, &event));
    if (look == Look::kNotYet && now >= deadline) {
      return Timeout("no event of request %u", flight.request_id);
    }
    pause = std::min(2 * pause, kLooksMax);
    next_look = now + pause;
  }
  ATOLL_RETURN_IF_ERROR(CheckEvent(event.event, flight.request_id));
  *clock = event.clock;
  return event.event;
}

Result<RingSession::End> RingSession::Finish(uint32_t request_id,
                                             std::span<const std::span<uint8_t>>,
                                             Deadline deadline) {
  if (!is_on_) return DeviceLost("the ring is off");
  for (;;) {
    if (flight_count_ == 0) return InternalError("request %u has not begun", request_id);
    const Flight& first = flight(0);
    meter_.Sent(first.bytes_out);
    End end;
    ATOLL_ASSIGN_OR_RETURN(end.event, AwaitEvent(first, deadline, &end.clock));
    if (end.event.kind == EventKind::kFaulted) return end;
    meter_.Received(first.bytes_in);
    meter_.Copied(first.bytes_copied);
    for (const Flight::Output& output : first.outputs) {
      std::memcpy(output.bytes.data(), output.copy, output.bytes.size());
    }
    done_ = first.descriptor + 1;
    first_flight_ = (first_flight_ + 1) % kFlights;
    --flight_count_;
    if (first.request_id == request_id) return end;
    if (first.request_id != kCachingRequest) {
      return InternalError("request %u began before request %u", first.request_id, request_id);
    }
  }
}

}  // namespace atollrt
