// SPDX-License-Identifier: Apache-2.0
//
// A hostile host: any writes to the registers of an emulated Atoll-1 on PCIe, likely and unlikely
// descriptors in its ring, programs and streams from anywhere, memory that is there or not. The
// device never asks for what nobody may, ends every burst of work, and touches no memory while its
// ring is off.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "atoll/check.h"
#include "driver/atoll1/ring.h"
#include "driver/emulator/pcie_endpoint.h"
#include "driver/isa/instruction.h"
#include "runtime/base/bytes.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/requests.h"
#include "tests/support/allocation_meter.h"

namespace atollrt::pcie_host_fuzzer {

namespace {

constexpr uint64_t kMemoryBase = uint64_t{1} << 32;
constexpr size_t kMemoryBytes = size_t{64} << 10;
constexpr size_t kBlock = 256;
constexpr uint32_t kProgramBytes = 64 * kInstructionBytes;

// Memory of the host, of which the input takes pages away.
class Host final : public PcieUpstream {
 public:
  bool ReadMemory(uint64_t address, std::span<uint8_t> destination, uint64_t* fault) override {
    const uint8_t* const there = Reach(address, destination.size(), fault);
    if (there != nullptr) std::copy_n(there, destination.size(), destination.begin());
    return there != nullptr;
  }
  bool WriteMemory(uint64_t address, std::span<const uint8_t> source, uint64_t* fault) override {
    uint8_t* const there = Reach(address, source.size(), fault);
    if (there != nullptr) std::copy(source.begin(), source.end(), there);
    return there != nullptr;
  }
  void RaiseInterrupt(uint32_t vector) override { ATOLL_CHECK(vector < kRingVectors); }

  std::span<uint8_t> memory() { return memory_; }
  bool may_reach = false;  // the device, now
  uint64_t bytes_reached = kMemoryBytes;

 private:
  uint8_t* Reach(uint64_t address, size_t size, uint64_t* fault) {
    ATOLL_CHECK(may_reach && size > 0 && size <= PcieEndpoint::kTransferBytes);
    const uint64_t offset = address - kMemoryBase;
    if (address >= kMemoryBase && offset <= bytes_reached && size <= bytes_reached - offset) {
      return &memory_[offset];
    }
    *fault = address;
    return nullptr;
  }
  std::vector<uint8_t> memory_ = std::vector<uint8_t>(kMemoryBytes);
};

class Machine {
 public:
  explicit Machine(Input* input) : input_(*input) {
    CoreOptions options;
    options.profile.array_rows = options.profile.array_columns = 4;
    options.profile.memory_bytes = 1 << 14;
    options.profile.program_memory_bytes = kProgramBytes;
    auto endpoint = PcieEndpoint::Create(options, &host_);
    ATOLL_CHECK(endpoint.ok());
    endpoint_ = *std::move(endpoint);
    // A program that gives back what it gets lies at the front of memory.
    const std::vector<Instruction> program = {InputInstruction{.output_address = 0, .bytes = 64},
                                              OutputInstruction{.input_address = 0, .bytes = 64},
                                              EndInstruction{}};
    size_t at = 0;
    for (const Instruction& instruction : program) {
      const EncodedInstruction bytes = Encode(instruction);
      std::copy(bytes.begin(), bytes.end(), host_.memory().begin() + static_cast<ptrdiff_t>(at));
      at += bytes.size();
    }
  }

  void Act() {
    switch (input_.Byte() % 8) {
      case 0:  // any register
        return Write(input_.Byte() % 4 == 0 ? input_.Word() : uint64_t{input_.Byte()} * 4,
                     input_.Word());
      case 1:
        return SwitchOn();
      case 2: {  // any descriptor
        const auto place = Place();
        input_.Fill(place);
        return;
      }
      case 3: {
        const auto place = Place();
        const auto bytes = EncodeDescriptor(MakeDescriptor());
        std::copy(bytes.begin(), bytes.end(), place.begin());
        ++tail_;
        return;
      }
      case 4:
        return Request();
      case 5:
        Write(static_cast<uint32_t>(RingRegister::kRingTail),
              input_.Byte() % 8 == 0 ? input_.Word() : tail_);
        return Run();
      case 6:
        if (input_.Byte() % 2 == 0) {
          host_.bytes_reached = input_.Byte() * kBlock;
        } else {
          (void)endpoint_->Read32(input_.Word());
        }
        return;
      default:
        switch (input_.Byte() % 4) {
          case 0:
            endpoint_->Reset();
            return;
          case 1:
            Write(static_cast<uint32_t>(Register::kControl), input_.Byte() % 3);
            return;
          case 2:
            Write(static_cast<uint32_t>(RingRegister::kRingControl), input_.Byte() % 3);
            return;
          default:
            endpoint_->set_first_number(input_.Word());
            return;
        }
    }
  }

  void Run() {
    // Each step ends an instruction or moves bytes, of which a ring can say no more than this.
    size_t steps = 0;
    constexpr size_t kStepsMax = size_t{1} << 16;
    for (;;) {
      host_.may_reach = Read(RingRegister::kRingStatus) != static_cast<uint32_t>(RingStatus::kOff);
      if (!endpoint_->Step() || ++steps == kStepsMax) break;
    }
    host_.may_reach = false;
  }

 private:
  uint32_t Read(RingRegister at) { return endpoint_->Read32(static_cast<uint32_t>(at)); }
  void Write(uint64_t offset, uint32_t value) { endpoint_->Write32(offset, value); }

  void SwitchOn() {
    ring_ = uint64_t{input_.Byte()} * kBlock % kMemoryBytes;
    entries_ = uint32_t{8} << input_.Byte() % 5;
    const uint64_t address = kMemoryBase + ring_;
    Write(static_cast<uint32_t>(RingRegister::kRingLow), static_cast<uint32_t>(address));
    Write(static_cast<uint32_t>(RingRegister::kRingHigh), static_cast<uint32_t>(address >> 32));
    Write(static_cast<uint32_t>(RingRegister::kRingEntries), entries_);
    Write(static_cast<uint32_t>(RingRegister::kRingControl), kRingOn);
    tail_ = Read(RingRegister::kRingHead);
  }
  // Of the descriptor that is the next one.
  std::span<uint8_t> Place() {
    const size_t offset =
        std::min(ring_ + tail_ % entries_ * kDescriptorBytes, kMemoryBytes - kDescriptorBytes);
    return host_.memory().subspan(offset, kDescriptorBytes);
  }
  Descriptor MakeDescriptor() {
    Descriptor descriptor;
    constexpr DescriptorKind kKinds[] = {DescriptorKind::kInstructions, DescriptorKind::kInput,
                                         DescriptorKind::kParameters,   DescriptorKind::kOutput,
                                         DescriptorKind::kStart,        DescriptorKind::kEvent};
    descriptor.kind = kKinds[input_.Byte() % 6];
    descriptor.interrupts = input_.Byte() % 2 == 0;
    descriptor.address = kMemoryBase + uint64_t{input_.Byte()} * kBlock + input_.Byte() % 4;
    descriptor.bytes = uint32_t{input_.Byte()} << input_.Byte() % 24;
    if (descriptor.kind == DescriptorKind::kEvent && input_.Byte() % 8 != 0) {
      descriptor.bytes = static_cast<uint32_t>(kRingEventBytes);
    }
    descriptor.program_offset = input_.Byte() % 70 * uint32_t{kInstructionBytes};
    if (descriptor.kind == DescriptorKind::kStart) {
      descriptor.start = {.program_offset = descriptor.program_offset,
                          .instruction_count = input_.Byte() % 70u,
                          .parameter_base = input_.Byte() * uint32_t{kBlock},
                          .activation_base = input_.Byte() * uint32_t{kBlock},
                          .request_id = input_.Byte()};
    }
    return descriptor;
  }
  void Put(const Descriptor& descriptor) {
    const auto bytes = EncodeDescriptor(descriptor);
    const auto place = Place();
    std::copy(bytes.begin(), bytes.end(), place.begin());
    ++tail_;
  }
  // A whole one of the program at the front of memory.
  void Request() {
    const auto transfer = [&](DescriptorKind kind, uint64_t offset, uint32_t bytes) {
      Descriptor descriptor;
      descriptor.kind = kind;
      descriptor.address = kMemoryBase + offset;
      descriptor.bytes = bytes;
      descriptor.interrupts = true;
      return descriptor;
    };
    const uint64_t where = kMemoryBytes / 2 + input_.Byte() * uint64_t{64};
    Put(transfer(DescriptorKind::kInstructions, 0, 3 * kInstructionBytes));
    Descriptor start;
    start.kind = DescriptorKind::kStart;
    start.start.instruction_count = 3;
    start.start.request_id = input_.Byte();
    Put(start);
    Put(transfer(DescriptorKind::kInput, 0, 64));
    Put(transfer(DescriptorKind::kOutput, where, 64));
    Put(transfer(DescriptorKind::kEvent, where + 64, kRingEventBytes));
  }

  Input& input_;
  Host host_;
  std::unique_ptr<PcieEndpoint> endpoint_;
  uint64_t ring_ = 0;
  uint32_t entries_ = 8;
  uint32_t tail_ = 0;
};

}  // namespace

ATOLL_FUZZ_TARGET(pcie_host) {
  constexpr int64_t kDeviceBytes = int64_t{16} << 20;
  const MemoryLimit limit(ProportionalBytes(size, kDeviceBytes));
  constexpr int kActsMax = 200;
  Input input({data, size});
  Machine machine(&input);
  for (int i = 0; i < kActsMax && !input.empty(); ++i) machine.Act();
  machine.Run();
  return 0;
}

}  // namespace atollrt::pcie_host_fuzzer
