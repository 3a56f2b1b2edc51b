// SPDX-License-Identifier: Apache-2.0
//
// What every PcieFunction holds to (driver/pcie/pcie_function.h), as clauses that each open one
// with an Atoll-1 behind it, just powered up:
//
//   class EmulatedPcieContract : public testing::TestWithParam<PcieFunctionClause> {};
//   TEST_P(EmulatedPcieContract, Holds) { GetParam().check({.open = [] { ... }}); }
//   INSTANTIATE_TEST_SUITE_P(All, EmulatedPcieContract, testing::ValuesIn(kPcieFunctionContract),
//                            NameOfClause);
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "driver/atoll1/ring.h"
#include "driver/isa/instruction.h"
#include "driver/pcie/pcie_function.h"

namespace atollrt {

// An implementation under test.
struct PcieFunctionUnderTest {
  std::function<std::unique_ptr<PcieFunction>()> open;
  // Whether a device that reads what is mapped for writing alone, or writes what is mapped for
  // reading, is stopped.
  bool checks_direction = true;
};

struct PcieFunctionClause {
  const char* name;
  void (*check)(const PcieFunctionUnderTest& under_test);
};
inline std::string NameOfClause(const testing::TestParamInfo<PcieFunctionClause>& info) {
  return info.param.name;
}

namespace pcie_contract {

inline Deadline In(int ms) { return Clock::now() + std::chrono::milliseconds(ms); }
inline Deadline Soon() { return In(20); }  // for waits that must time out
inline Deadline Eventually() { return In(60'000); }

constexpr uint64_t Bit(RingVector vector) { return uint64_t{1} << static_cast<uint32_t>(vector); }
constexpr uint64_t kAllVectors = (uint64_t{1} << kRingVectors) - 1;

// The ring of an opened function, in memory of Allocate.
class Ring {
 public:
  static constexpr uint32_t kEntries = 64;

  explicit Ring(PcieFunction& function) : function_(function) {
    ring_ = Allocate(kEntries * kDescriptorBytes, DmaDirection::kToDevice);
    events_ = Allocate(kEntries * kRingEventBytes, DmaDirection::kFromDevice);
    programs_ = Allocate(kDmaPageBytes, DmaDirection::kToDevice);
  }

  void SwitchOn() {
    Set(RingRegister::kRingLow, static_cast<uint32_t>(ring_->iova()));
    Set(RingRegister::kRingHigh, static_cast<uint32_t>(ring_->iova() >> 32));
    Set(RingRegister::kRingEntries, kEntries);
    Set(RingRegister::kRingControl, kRingOn);
    tail_ = 0;
    ASSERT_EQ(status(), RingStatus::kOn);
  }
  // From now on memory can be taken away.
  void SwitchOff() {
    Set(RingRegister::kRingControl, kRingOff);
    while (status() != RingStatus::kOff) {
    }
  }

  uint32_t Get(RingRegister at) {
    const Result<uint32_t> value = function_.Read32(kRegisterBar, static_cast<uint32_t>(at));
    EXPECT_TRUE(value.ok()) << value.status().message();
    return value.ok() ? *value : 0;
  }
  void Set(RingRegister at, uint32_t value) {
    const Status status = function_.Write32(kRegisterBar, static_cast<uint32_t>(at), value);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  RingStatus status() { return static_cast<RingStatus>(Get(RingRegister::kRingStatus)); }
  uint64_t stop_address() {
    return uint64_t{Get(RingRegister::kStopAddressHigh)} << 32 | Get(RingRegister::kStopAddressLow);
  }

  void Post(const Descriptor& descriptor) {
    const auto bytes = EncodeDescriptor(descriptor);
    std::copy(bytes.begin(), bytes.end(),
              ring_->bytes().begin() + (tail_++ % kEntries) * kDescriptorBytes);
  }
  void RingDoorbell() { Set(RingRegister::kRingTail, tail_); }

  // A program that gives back `bytes` bytes of input.
  void PostEcho(uint32_t bytes) {
    const Instruction program[] = {InputInstruction{.bytes = bytes},
                                   OutputInstruction{.bytes = bytes}, EndInstruction{}};
    size_t offset = 0;
    for (const Instruction& instruction : program) {
      const auto encoded = Encode(instruction);
      std::copy(encoded.begin(), encoded.end(), programs_->bytes().begin() + offset);
      offset += encoded.size();
    }
    Post({.kind = DescriptorKind::kInstructions,
          .bytes = static_cast<uint32_t>(offset),
          .address = programs_->iova()});
  }
  void PostStart(uint32_t request_id) {
    Post({.kind = DescriptorKind::kStart,
          .start = {.instruction_count = 3, .request_id = request_id}});
  }
  void PostBytes(DescriptorKind kind, uint64_t address, size_t bytes, bool interrupts = false) {
    Post({.kind = kind,
          .interrupts = interrupts,
          .bytes = static_cast<uint32_t>(bytes),
          .address = address});
  }
  // Which event EventAt gives.
  size_t PostEvent() {
    Post({.kind = DescriptorKind::kEvent,
          .interrupts = true,
          .bytes = kRingEventBytes,
          .address = events_->iova() + (event_count_ % kEntries) * kRingEventBytes});
    return event_count_++;
  }
  RingEvent EventAt(size_t number) {
    const auto event = DecodeRingEvent(LoadRingEvent(std::span<const uint8_t, kRingEventBytes>(
        &events_->bytes()[(number % kEntries) * kRingEventBytes], kRingEventBytes)));
    EXPECT_TRUE(event.ok()) << event.status().message();
    return event.ok() ? *event : RingEvent();
  }

  // Whether that event has been written, after an interrupt for it or for one before.
  bool HasEvent(size_t number) {
    const auto event = DecodeRingEvent(LoadRingEvent(std::span<const uint8_t, kRingEventBytes>(
        &events_->bytes()[(number % kEntries) * kRingEventBytes], kRingEventBytes)));
    return event.ok() && event->sequence == number + 1;
  }

  std::unique_ptr<DmaMapping> Allocate(uint64_t bytes, DmaDirection direction) {
    auto mapping = function_.Allocate(bytes, direction);
    EXPECT_TRUE(mapping.ok()) << mapping.status().message();
    return *std::move(mapping);
  }

  // Which of `vectors` came before `deadline`; 0 for none.
  uint64_t Await(uint64_t vectors, Deadline deadline) {
    const Result<uint64_t> seen = function_.AwaitInterrupts(vectors, deadline);
    if (!seen.ok()) {
      EXPECT_EQ(seen.code(), StatusCode::kTimeout) << seen.status().message();
      return 0;
    }
    EXPECT_NE(*seen, 0u);
    EXPECT_EQ(*seen & ~vectors, 0u);
    return *seen;
  }

 private:
  PcieFunction& function_;
  std::unique_ptr<DmaMapping> ring_, events_, programs_;
  uint32_t tail_ = 0;
  size_t event_count_ = 0;
};

inline void AnswersRegisters(const PcieFunctionUnderTest& under_test) {
  const auto function = under_test.open();
  ASSERT_NE(function, nullptr);
  EXPECT_TRUE(function->is_present());
  const auto id = function->Read32(kRegisterBar, static_cast<uint32_t>(Register::kId));
  ASSERT_TRUE(id.ok()) << id.status().message();
  EXPECT_EQ(*id, kDeviceId);
  const auto rows = function->Read32(kRegisterBar, static_cast<uint32_t>(Register::kArrayRows));
  const auto columns =
      function->Read32(kRegisterBar, static_cast<uint32_t>(Register::kArrayColumns));
  const auto both = function->Read64(kRegisterBar, static_cast<uint32_t>(Register::kArrayRows));
  ASSERT_TRUE(rows.ok() && columns.ok() && both.ok());
  EXPECT_EQ(*both, uint64_t{*columns} << 32 | *rows);
  constexpr auto kLow = static_cast<uint32_t>(RingRegister::kRingLow);
  ASSERT_TRUE(function->Write64(kRegisterBar, kLow, 0x0123'4567'89AB'CDC0).ok());
  EXPECT_EQ(*function->Read32(kRegisterBar, kLow), 0x89AB'CDC0u);
  ASSERT_TRUE(function->Write32(kRegisterBar, kLow + 4, 0xFEDC'BA98).ok());
  EXPECT_EQ(*function->Read64(kRegisterBar, kLow), 0xFEDC'BA98'89AB'CDC0u);
}

inline void RefusesRegistersOutsideOfBars(const PcieFunctionUnderTest& under_test) {
  const auto function = under_test.open();
  for (const uint32_t bar : {6u, 0xFFFF'FFFFu}) {
    EXPECT_EQ(function->Read32(bar, 0).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(function->Write64(bar, 0, 0).code(), StatusCode::kInvalidArgument);
  }
  for (const uint64_t offset :
       {kRegisterBarBytes, uint64_t{1} << 32, uint64_t{1} << 63, UINT64_MAX - 3}) {
    EXPECT_EQ(function->Read32(kRegisterBar, offset).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(function->Write32(kRegisterBar, offset, 0).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(function->Read64(kRegisterBar, offset & ~7ull).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(function->Write64(kRegisterBar, offset & ~7ull, 0).code(),
              StatusCode::kInvalidArgument);
  }
}

inline void AllocatesZeroedPages(const PcieFunctionUnderTest& under_test) {
  const auto function = under_test.open();
  std::vector<std::unique_ptr<DmaMapping>> mappings;
  for (const uint64_t bytes : {uint64_t{1}, kDmaPageBytes, uint64_t{100'001}}) {
    for (const DmaDirection direction :
         {DmaDirection::kToDevice, DmaDirection::kFromDevice, DmaDirection::kBoth}) {
      auto mapping = function->Allocate(bytes, direction);
      ASSERT_TRUE(mapping.ok()) << mapping.status().message();
      const std::span<uint8_t> memory = (*mapping)->bytes();
      EXPECT_EQ(memory.size(), bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % kDmaPageBytes, 0u);
      EXPECT_EQ((*mapping)->iova() % kDmaPageBytes, 0u);
      EXPECT_TRUE(std::all_of(memory.begin(), memory.end(), [](uint8_t b) { return b == 0; }));
      std::fill(memory.begin(), memory.end(), 0xEE);
      mappings.push_back(*std::move(mapping));
    }
  }
  std::sort(mappings.begin(), mappings.end(),
            [](const auto& a, const auto& b) { return a->iova() < b->iova(); });
  for (size_t i = 1; i < mappings.size(); ++i) {
    EXPECT_GE(mappings[i]->iova(), mappings[i - 1]->iova() + mappings[i - 1]->bytes().size());
  }
  EXPECT_EQ(function->Allocate(0, DmaDirection::kBoth).code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(function->Allocate(uint64_t{1} << 62, DmaDirection::kBoth).ok());
  EXPECT_FALSE(function->Allocate(UINT64_MAX, DmaDirection::kBoth).ok());
}

inline void MapsTheMemoryOfCallers(const PcieFunctionUnderTest& under_test) {
  const auto function = under_test.open();
  std::vector<uint8_t> memory(3 * kDmaPageBytes + 77, 0x5A);
  const std::span<uint8_t> all(memory);
  if (!function->maps_callers_memory()) {
    EXPECT_EQ(function->Map(all, DmaDirection::kBoth).code(), StatusCode::kUnsupported);
    return;
  }
  for (const auto& [offset, size] :
       {std::pair<size_t, size_t>{0, memory.size()}, {1, 1}, {0, 1}, {100, 2 * kDmaPageBytes}}) {
    const std::span<uint8_t> part = all.subspan(offset, size);
    const auto mapping = function->Map(part, DmaDirection::kBoth);
    ASSERT_TRUE(mapping.ok()) << mapping.status().message();
    EXPECT_EQ((*mapping)->bytes().data(), part.data());
    EXPECT_EQ((*mapping)->bytes().size(), size);
    EXPECT_EQ((*mapping)->iova() % kDmaPageBytes,
              reinterpret_cast<uintptr_t>(part.data()) % kDmaPageBytes);
    // The same memory again, on its own.
    const auto again = function->Map(part, DmaDirection::kToDevice);
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_NE((*again)->iova(), (*mapping)->iova());
  }
  EXPECT_EQ(function->Map({}, DmaDirection::kBoth).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(memory, std::vector<uint8_t>(memory.size(), 0x5A));
}

// Requests from caller's memory, if the function maps that, to other memory of the caller's.
inline void MovesBytes(const PcieFunctionUnderTest& under_test) {
  const auto function = under_test.open();
  Ring ring(*function);
  ASSERT_TRUE(function->EnableInterrupts(kRingVectors).ok());
  ring.SwitchOn();
  constexpr uint32_t kBytes = 9'001;
  std::vector<uint8_t> input(kBytes + 3), output(kBytes + 5);
  std::unique_ptr<DmaMapping> in, out;
  if (function->maps_callers_memory()) {
    in = *function->Map(std::span(input).subspan(3), DmaDirection::kToDevice);
    out = *function->Map(std::span(output).subspan(5), DmaDirection::kFromDevice);
  } else {
    in = ring.Allocate(kBytes, DmaDirection::kToDevice);
    out = ring.Allocate(kBytes, DmaDirection::kFromDevice);
  }
  ring.PostEcho(kBytes);
  for (uint32_t i = 0; i < 30; ++i) {
    for (size_t k = 0; k < kBytes; ++k) in->bytes()[k] = static_cast<uint8_t>(k * 7 + i);
    ring.PostStart(i);
    ring.PostBytes(DescriptorKind::kInput, in->iova(), kBytes);
    ring.PostBytes(DescriptorKind::kOutput, out->iova(), kBytes);
    const size_t event = ring.PostEvent();
    ring.RingDoorbell();
    ASSERT_EQ(ring.Await(Bit(RingVector::kEvent), Eventually()), Bit(RingVector::kEvent));
    EXPECT_EQ(ring.EventAt(event).event.request_id, i);
    EXPECT_EQ(ring.EventAt(event).sequence, i + 1);
    ASSERT_TRUE(std::equal(in->bytes().begin(), in->bytes().end(), out->bytes().begin()));
  }
  ring.SwitchOff();
}

inline void ReportsInterruptsOnce(const PcieFunctionUnderTest& under_test) {
  const auto function = under_test.open();
  Ring ring(*function);
  ASSERT_TRUE(function->EnableInterrupts(kRingVectors).ok());
  EXPECT_EQ(ring.Await(kAllVectors, Soon()), 0u);
  EXPECT_EQ(ring.Await(kAllVectors, Clock::now()), 0u);
  ring.SwitchOn();
  const auto memory = ring.Allocate(8, DmaDirection::kBoth);
  ring.PostEcho(4);
  const auto request = [&] {
    ring.PostStart(1);
    ring.PostBytes(DescriptorKind::kInput, memory->iova(), 4, true);
    ring.PostBytes(DescriptorKind::kOutput, memory->iova() + 4, 4, true);
    ring.PostEvent();
    ring.RingDoorbell();
  };
  // Each vector for those that wait for it; others stay until somebody does.
  request();
  EXPECT_EQ(ring.Await(Bit(RingVector::kEvent), Eventually()), Bit(RingVector::kEvent));
  EXPECT_EQ(ring.Await(Bit(RingVector::kEvent), Soon()), 0u);
  EXPECT_EQ(ring.Await(Bit(RingVector::kOut) | Bit(RingVector::kIn), Eventually()),
            Bit(RingVector::kOut) | Bit(RingVector::kIn));
  EXPECT_EQ(ring.Await(kAllVectors, Soon()), 0u);
  // What was raised before is taken past the deadline, too; several may be one.
  request();
  request();
  while (ring.Get(RingRegister::kRingHead) != 13) {
  }
  EXPECT_EQ(ring.Await(Bit(RingVector::kEvent), Eventually()), Bit(RingVector::kEvent));
  EXPECT_NE(ring.Await(Bit(RingVector::kOut), In(-5)), 0u);
  // Forgotten when they are connected anew; and without a connection none come.
  ASSERT_TRUE(function->EnableInterrupts(kRingVectors).ok());
  EXPECT_EQ(ring.Await(kAllVectors, Soon()), 0u);
  ASSERT_TRUE(function->EnableInterrupts(0).ok());
  request();
  while (ring.Get(RingRegister::kRingHead) != 17) {
  }
  EXPECT_EQ(ring.Await(kAllVectors, Soon()), 0u);
  EXPECT_EQ(function->EnableInterrupts(kRingVectors + 1).code(), StatusCode::kUnsupported);
  ring.SwitchOff();
}

inline void CancelEndsWaitsUntilReset(const PcieFunctionUnderTest& under_test) {
  const auto function = under_test.open();
  ASSERT_TRUE(function->EnableInterrupts(kRingVectors).ok());
  std::thread canceller([&] { function->Cancel(); });
  EXPECT_EQ(function->AwaitInterrupts(kAllVectors, Eventually()).code(), StatusCode::kCancelled);
  canceller.join();
  EXPECT_EQ(function->AwaitInterrupts(kAllVectors, Eventually()).code(), StatusCode::kCancelled);
  EXPECT_EQ(function->AwaitInterrupts(kAllVectors, Clock::now()).code(), StatusCode::kCancelled);
  EXPECT_TRUE(function->Read32(kRegisterBar, 0).ok()) << "registers go on";
  const Status reset = function->Reset(Eventually());
  ASSERT_TRUE(reset.ok() || reset.code() == StatusCode::kUnsupported) << reset.message();
  if (!reset.ok()) return;
  ASSERT_TRUE(function->EnableInterrupts(kRingVectors).ok());
  EXPECT_EQ(function->AwaitInterrupts(kAllVectors, Soon()).code(), StatusCode::kTimeout);
}

inline void ResetReturnsToPowerOn(const PcieFunctionUnderTest& under_test) {
  const auto function = under_test.open();
  Ring ring(*function);
  const auto memory = ring.Allocate(8, DmaDirection::kBoth);
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(function->EnableInterrupts(kRingVectors).ok());
    ring.SwitchOn();
    ring.PostEcho(4);
    ring.PostStart(1);
    ring.PostBytes(DescriptorKind::kInput, memory->iova(), 4);
    ring.PostBytes(DescriptorKind::kOutput, memory->iova() + 4, 4);
    const size_t event = ring.PostEvent();
    // One that will not end.
    ring.PostStart(2);
    ring.RingDoorbell();
    EXPECT_NE(ring.Await(Bit(RingVector::kEvent), Eventually()), 0u);
    EXPECT_EQ(ring.EventAt(event).sequence, 1u);
    const Status reset = function->Reset(Eventually());
    if (reset.code() == StatusCode::kUnsupported) return ring.SwitchOff();
    ASSERT_TRUE(reset.ok()) << reset.message();
    EXPECT_EQ(ring.status(), RingStatus::kOff);
    EXPECT_EQ(ring.Get(RingRegister::kRingLow), 0u);
    EXPECT_EQ(ring.Get(RingRegister::kRingHead), 0u);
    EXPECT_EQ(*function->Read32(kRegisterBar, static_cast<uint32_t>(Register::kStatus)), 0u);
  }
}

// Reads `address`, which must not answer.
inline void ExpectReadFaults(PcieFunction& function, Ring& ring, uint64_t address) {
  ring.SwitchOn();
  ring.PostEcho(4);
  ring.PostStart(1);
  ring.PostBytes(DescriptorKind::kInput, address, 4);
  ring.RingDoorbell();
  EXPECT_EQ(ring.Await(Bit(RingVector::kFault), Eventually()), Bit(RingVector::kFault));
  EXPECT_EQ(ring.status(), RingStatus::kDmaFault);
  EXPECT_EQ(ring.stop_address(), address);
  EXPECT_TRUE(
      function.Write32(kRegisterBar, static_cast<uint32_t>(Register::kControl), kControlReset)
          .ok());
}

inline void OnlyMappedMemoryIsReached(const PcieFunctionUnderTest& under_test) {
  const auto function = under_test.open();
  Ring ring(*function);
  ASSERT_TRUE(function->EnableInterrupts(kRingVectors).ok());
  ExpectReadFaults(*function, ring, 0);
  auto memory = ring.Allocate(8, DmaDirection::kBoth);
  const uint64_t iova = memory->iova();
  memory.reset();
  ExpectReadFaults(*function, ring, iova);
  if (!under_test.checks_direction) return;
  const auto from_device = ring.Allocate(8, DmaDirection::kFromDevice);
  ExpectReadFaults(*function, ring, from_device->iova());
  const auto to_device = ring.Allocate(8, DmaDirection::kToDevice);
  ring.SwitchOn();
  ring.PostEcho(4);
  ring.PostStart(1);
  ring.PostBytes(DescriptorKind::kInput, to_device->iova(), 4);
  ring.PostBytes(DescriptorKind::kOutput, to_device->iova() + 4, 4);
  ring.RingDoorbell();
  EXPECT_EQ(ring.Await(Bit(RingVector::kFault), Eventually()), Bit(RingVector::kFault));
  EXPECT_EQ(ring.status(), RingStatus::kDmaFault);
  EXPECT_EQ(ring.stop_address(), to_device->iova() + 4);
  ring.SwitchOff();
}

// Doorbells, registers and mappings of others while one thread waits.
inline void ServesThreads(const PcieFunctionUnderTest& under_test) {
  const auto function = under_test.open();
  Ring ring(*function);
  ASSERT_TRUE(function->EnableInterrupts(kRingVectors).ok());
  ring.SwitchOn();
  const auto memory = ring.Allocate(8, DmaDirection::kBoth);
  ring.PostEcho(4);
  constexpr uint32_t kRequests = 50;
  std::atomic<bool> ended{false};
  std::atomic<uint32_t> answered{0};
  std::thread sender([&] {
    for (uint32_t i = 0; i < kRequests; ++i) {
      ring.PostStart(i);
      ring.PostBytes(DescriptorKind::kInput, memory->iova(), 4);
      ring.PostBytes(DescriptorKind::kOutput, memory->iova() + 4, 4);
      ring.PostEvent();
      ring.RingDoorbell();
      while (answered.load() < i) std::this_thread::yield();
    }
  });
  std::thread others([&] {
    while (!ended.load()) {
      EXPECT_EQ(*function->Read32(kRegisterBar, 0), kDeviceId);
      EXPECT_TRUE(function->Allocate(100, DmaDirection::kBoth).ok());
    }
  });
  while (answered.load() < kRequests) {
    ASSERT_NE(ring.Await(Bit(RingVector::kEvent), Eventually()), 0u);
    while (answered.load() < kRequests && ring.HasEvent(answered.load())) ++answered;
  }
  ended = true;
  sender.join();
  others.join();
  ring.SwitchOff();
}

// A device with a ring that is on, a program that waits, and nobody who says goodbye.
inline void IsClosedWhileItWorks(const PcieFunctionUnderTest& under_test) {
  for (const bool cancels : {false, true}) {
    const auto function = under_test.open();
    Ring ring(*function);
    ASSERT_TRUE(function->EnableInterrupts(kRingVectors).ok());
    ring.SwitchOn();
    ring.PostEcho(4);
    ring.PostStart(1);
    ring.PostEvent();
    ring.RingDoorbell();
    EXPECT_EQ(ring.Await(kAllVectors, Soon()), 0u);
    if (cancels) function->Cancel();
    ring.SwitchOff();
  }
  MovesBytes(under_test);
}

}  // namespace pcie_contract

inline constexpr PcieFunctionClause kPcieFunctionContract[] = {
    {"AnswersRegisters", pcie_contract::AnswersRegisters},
    {"RefusesRegistersOutsideOfBars", pcie_contract::RefusesRegistersOutsideOfBars},
    {"AllocatesZeroedPages", pcie_contract::AllocatesZeroedPages},
    {"MapsTheMemoryOfCallers", pcie_contract::MapsTheMemoryOfCallers},
    {"MovesBytes", pcie_contract::MovesBytes},
    {"ReportsInterruptsOnce", pcie_contract::ReportsInterruptsOnce},
    {"CancelEndsWaitsUntilReset", pcie_contract::CancelEndsWaitsUntilReset},
    {"ResetReturnsToPowerOn", pcie_contract::ResetReturnsToPowerOn},
    {"OnlyMappedMemoryIsReached", pcie_contract::OnlyMappedMemoryIsReached},
    {"ServesThreads", pcie_contract::ServesThreads},
    {"IsClosedWhileItWorks", pcie_contract::IsClosedWhileItWorks},
};

}  // namespace atollrt
