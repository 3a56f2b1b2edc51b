// SPDX-License-Identifier: Apache-2.0
#include "driver/emulator/emulated_pcie.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/driver/emulator/emulated_program.h"
#include "tests/driver/pcie/pcie_function_contract.h"
#include "tests/support/allocation_meter.h"
#include "tests/support/assembled.h"

namespace atollrt {
namespace {

std::unique_ptr<EmulatedPcie> MakePcie(const CoreOptions& options = {.profile = SmallProfile()}) {
  auto pcie = EmulatedPcie::Create(options);
  EXPECT_TRUE(pcie.ok()) << pcie.status().message();
  return *std::move(pcie);
}

TEST(EmulatedPcie, ItsAddressesDoNotFit32BitsAndAreNotUsedAgainSoon) {
  const auto pcie = MakePcie();
  uint64_t last = uint64_t{1} << 32;
  for (int i = 0; i < 100; ++i) {
    const auto mapping = pcie->Allocate(kDmaPageBytes, DmaDirection::kBoth);
    ASSERT_TRUE(mapping.ok());
    ASSERT_GE((*mapping)->iova(), last);
    last = (*mapping)->iova() + 2 * kDmaPageBytes;
  }
}

// The end of the address space, and back to its beginning, round what is there.
TEST(EmulatedPcie, GoesRoundItsAddresses) {
  const auto pcie = MakePcie();
  std::vector<std::unique_ptr<DmaMapping>> kept;
  // As if they were there: nothing touches them.
  static uint8_t byte;
  const std::span<uint8_t> large(&byte, size_t{200} << 30);
  uint64_t last = 0;
  bool went_round = false;
  for (int i = 0; i < 10; ++i) {
    auto small = pcie->Map(large.first(1), DmaDirection::kBoth);
    ASSERT_TRUE(small.ok()) << small.status().message();
    kept.push_back(*std::move(small));
    const auto mapping = pcie->Map(large, DmaDirection::kBoth);
    ASSERT_TRUE(mapping.ok()) << mapping.status().message();
    for (const auto& other : kept) {
      EXPECT_TRUE(other->iova() < (*mapping)->iova() ||
                  other->iova() >= (*mapping)->iova() + large.size());
    }
    went_round |= (*mapping)->iova() < last;
    last = (*mapping)->iova();
  }
  EXPECT_TRUE(went_round);
  const auto one = pcie->Map(large, DmaDirection::kBoth);
  const auto two = pcie->Map(large, DmaDirection::kBoth);
  EXPECT_EQ(pcie->Map(large, DmaDirection::kBoth).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(pcie->Map({&byte, size_t{1} << 40}, DmaDirection::kBoth).code(),
            StatusCode::kResourceExhausted);
}

// Neighbours on the same page, which a real IOMMU would let pass.
TEST(EmulatedPcie, ReachesNotOneByteTooMany) {
  const auto pcie = MakePcie();
  ASSERT_TRUE(pcie->EnableInterrupts(kRingVectors).ok());
  pcie_contract::Ring ring(*pcie);
  std::vector<uint8_t> memory(100);
  const auto mapping = *pcie->Map(std::span(memory).subspan(50, 4), DmaDirection::kBoth);
  pcie_contract::ExpectReadFaults(*pcie, ring, mapping->iova() - 1);
  pcie_contract::ExpectReadFaults(*pcie, ring, mapping->iova() + 4);
  pcie_contract::ExpectReadFaults(*pcie, ring, UINT64_MAX - 2);
}

// Hours of work in one instruction.
CopyInstruction Long() {
  return Assembled<CopyInstruction>(
      "output_address=act+1024, bytes=1, count0=1, count1=1, count2=1, count3=1, "
      "count4=2000000000");
}
// Programs with this one, and nothing else that takes time.
void PostLong(pcie_contract::Ring& ring, const DmaMapping& program) {
  const Instruction instructions[] = {Long(), EndInstruction{}, EndInstruction{}};
  size_t offset = 0;
  for (const Instruction& instruction : instructions) {
    const auto encoded = Encode(instruction);
    std::copy(encoded.begin(), encoded.end(), program.bytes().begin() + offset);
    offset += encoded.size();
  }
  ring.PostBytes(DescriptorKind::kInstructions, program.iova(), offset);
  ring.PostStart(1);
  ring.PostEvent();
  ring.RingDoorbell();
}

TEST(EmulatedPcie, CancelAndResetGiveUpALongInstruction) {
  for (const Face face : {Face::kDirect, Face::kStepped}) {
    const auto pcie = MakePcie({.profile = *FindDeviceProfile("pcie"), .face = face});
    pcie_contract::Ring ring(*pcie);
    const auto program = ring.Allocate(kDmaPageBytes, DmaDirection::kToDevice);
    for (const bool resets : {false, true}) {
      ASSERT_TRUE(pcie->EnableInterrupts(kRingVectors).ok());
      ring.SwitchOn();
      PostLong(ring, *program);
      std::atomic<bool> ended = false;
      std::thread interrupter([&] {
        while (!ended) {
          std::this_thread::sleep_for(
              std::chrono::milliseconds(5));  // so that it has begun, mostly
          if (resets) {
            EXPECT_TRUE(pcie->Reset(pcie_contract::Eventually()).ok());
          } else {
            pcie->Cancel();
          }
        }
      });
      EXPECT_EQ(
          pcie->AwaitInterrupts(pcie_contract::Bit(RingVector::kEvent), pcie_contract::In(600'000))
              .code(),
          StatusCode::kCancelled);
      ended = true;
      interrupter.join();
      ASSERT_TRUE(pcie->Reset(pcie_contract::Eventually()).ok());
    }
  }
}

// It is late by an instruction at most.
TEST(EmulatedPcie, LooksAtTheDeadlineBetweenInstructions) {
  const auto pcie = MakePcie({.profile = *FindDeviceProfile("pcie")});
  ASSERT_TRUE(pcie->EnableInterrupts(kRingVectors).ok());
  pcie_contract::Ring ring(*pcie);
  const auto program = ring.Allocate(61 * kInstructionBytes, DmaDirection::kToDevice);
  // 60 instructions that copy 16 MiB byte by byte: seconds, if they ran to the end.
  const Instruction slow = Assembled<CopyInstruction>(
      "output_address=act+1, bytes=1, count0=4096, count1=4096, count2=1, count3=1, count4=1");
  for (size_t i = 0; i < 61; ++i) {
    const auto encoded = Encode(i < 60 ? slow : Instruction(EndInstruction{}));
    std::copy(encoded.begin(), encoded.end(), &program->bytes()[i * kInstructionBytes]);
  }
  ring.SwitchOn();
  ring.PostBytes(DescriptorKind::kInstructions, program->iova(), program->bytes().size());
  ring.Post({.kind = DescriptorKind::kStart, .start = {.instruction_count = 61}});
  ring.PostEvent();
  ring.RingDoorbell();
  EXPECT_EQ(ring.Await(pcie_contract::Bit(RingVector::kEvent), Clock::now()), 0u);
  EXPECT_EQ(ring.Await(pcie_contract::Bit(RingVector::kEvent), pcie_contract::Soon()), 0u);
  EXPECT_EQ(*pcie->Read32(kRegisterBar, static_cast<uint32_t>(Register::kStatus)), 1u);
  std::thread canceller([&] { pcie->Cancel(); });
  EXPECT_EQ(
      pcie->AwaitInterrupts(pcie_contract::Bit(RingVector::kEvent), pcie_contract::In(600'000))
          .code(),
      StatusCode::kCancelled);
  canceller.join();
}

TEST(EmulatedPcie, WaitsAllocateNothing) {
  const auto pcie = MakePcie();
  ASSERT_TRUE(pcie->EnableInterrupts(kRingVectors).ok());
  pcie_contract::Ring ring(*pcie);
  const auto memory = ring.Allocate(8, DmaDirection::kBoth);
  ring.SwitchOn();
  ring.PostEcho(4);
  const auto request = [&] {
    ring.PostStart(1);
    ring.PostBytes(DescriptorKind::kInput, memory->iova(), 4);
    ring.PostBytes(DescriptorKind::kOutput, memory->iova() + 4, 4);
    ring.PostEvent();
    ring.RingDoorbell();
    const bool came =
        pcie->AwaitInterrupts(pcie_contract::Bit(RingVector::kEvent), pcie_contract::Eventually())
            .ok();
    return came &&
           pcie->AwaitInterrupts(pcie_contract::Bit(RingVector::kEvent), Clock::now()).code() ==
               StatusCode::kTimeout;
  };
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(request());
  const AllocationMeter meter;
  bool all_ok = true;
  for (int i = 0; i < 100; ++i) all_ok &= request();
  EXPECT_EQ(meter.count(), 0);
  EXPECT_TRUE(all_ok);
}

TEST(EmulatedPcieBus, HasDevicesAtAddresses) {
  DeviceProfile second = SmallProfile();
  second.array_rows = 8;
  EmulatedPcieBus bus({{.profile = SmallProfile()}, {.profile = second}});
  const auto list = bus.List();
  ASSERT_TRUE(list.ok());
  ASSERT_EQ(list->size(), 2u);
  EXPECT_EQ((*list)[1].address, "0000:02:00.0");
  EXPECT_TRUE(IsKnown((*list)[1].id));
  const auto function = bus.Open((*list)[1]);
  ASSERT_TRUE(function.ok()) << function.status().message();
  EXPECT_EQ(*(*function)->Read32(kRegisterBar, static_cast<uint32_t>(Register::kArrayRows)), 8u);
  PcieDeviceInfo other = (*list)[0];
  other.address = "0000:03:00.0";
  EXPECT_EQ(bus.Open(other).code(), StatusCode::kDeviceLost);
  EXPECT_EQ(bus.generation(), 0u);
  EXPECT_FALSE(bus.WaitForChange(0, pcie_contract::Soon()));
  EXPECT_TRUE(bus.WaitForChange(1, pcie_contract::Eventually()));
}

}  // namespace
}  // namespace atollrt
