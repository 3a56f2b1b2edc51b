// SPDX-License-Identifier: Apache-2.0
//
// The host of a PcieEndpoint as far as tests need one: memory at bus addresses, a ring in it, and a
// count of interrupts.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>

#include "driver/emulator/pcie_endpoint.h"
#include "tests/driver/emulator/emulated_program.h"

namespace atollrt {

class RingHost final : public PcieUpstream {
 public:
  static constexpr uint64_t kMemory = 0x7'0000'0000;  // bus address of the first byte
  static constexpr uint32_t kNothing = ~0u;

  explicit RingHost(uint32_t entries = 64, const CoreOptions& options = {.profile = SmallProfile()},
                    size_t memory_bytes = 4 << 20)
      : entries_(entries), memory_(memory_bytes) {
    auto created = PcieEndpoint::Create(options, this);
    EXPECT_TRUE(created.ok()) << created.status().message();
    endpoint_ = *std::move(created);
    ring_ = Reserve(entries * kDescriptorBytes);
  }

  bool ReadMemory(uint64_t address, std::span<uint8_t> destination, uint64_t* fault) override {
    EXPECT_FALSE(destination.empty());
    EXPECT_LE(destination.size(), PcieEndpoint::kTransferBytes);
    if (!Reaches(address, destination.size(), fault)) return false;
    std::memcpy(destination.data(), &memory_[address - kMemory], destination.size());
    read_bytes_ += destination.size();
    return true;
  }
  bool WriteMemory(uint64_t address, std::span<const uint8_t> source, uint64_t* fault) override {
    EXPECT_FALSE(source.empty());
    EXPECT_LE(source.size(), PcieEndpoint::kTransferBytes);
    if (!Reaches(address, source.size(), fault)) return false;
    std::memcpy(&memory_[address - kMemory], source.data(), source.size());
    written_bytes_ += source.size();
    return true;
  }
  void RaiseInterrupt(uint32_t vector) override { ++raised_.at(vector); }

  PcieEndpoint& endpoint() { return *endpoint_; }
  uint32_t tail() const { return tail_; }
  uint64_t ring() const { return ring_; }
  size_t read_bytes() const { return read_bytes_; }
  size_t written_bytes() const { return written_bytes_; }

  uint32_t Get(RingRegister at) { return endpoint_->Read32(static_cast<uint32_t>(at)); }
  uint32_t Get(Register at) { return endpoint_->Read32(static_cast<uint32_t>(at)); }
  void Set(RingRegister at, uint32_t value) {
    endpoint_->Write32(static_cast<uint32_t>(at), value);
  }
  RingStatus status() { return static_cast<RingStatus>(Get(RingRegister::kRingStatus)); }
  uint64_t stop_address() {
    return uint64_t{Get(RingRegister::kStopAddressHigh)} << 32 | Get(RingRegister::kStopAddressLow);
  }
  void ResetCore() { endpoint_->Write32(static_cast<uint32_t>(Register::kControl), kControlReset); }

  // Switches the ring on; descriptors count from `first`.
  void SwitchOn(uint32_t first = 0) {
    endpoint_->set_first_number(first);
    Set(RingRegister::kRingLow, static_cast<uint32_t>(ring_));
    Set(RingRegister::kRingHigh, static_cast<uint32_t>(ring_ >> 32));
    Set(RingRegister::kRingEntries, entries_);
    Set(RingRegister::kRingControl, kRingOn);
    tail_ = first;
    ASSERT_EQ(status(), RingStatus::kOn);
  }

  // The bus address of so many bytes of memory, or of these.
  uint64_t Reserve(size_t size_bytes) {
    const uint64_t address = kMemory + used_;
    used_ = AlignUp(used_ + size_bytes, 64);
    EXPECT_LE(used_, memory_.size());
    return address;
  }
  uint64_t Place(const Bytes& bytes) {
    const uint64_t address = Reserve(bytes.size());
    std::copy(bytes.begin(), bytes.end(), At(address));
    return address;
  }
  uint8_t* At(uint64_t address) { return &memory_[address - kMemory]; }
  Bytes Read(uint64_t address, size_t size_bytes) {
    return Bytes(At(address), At(address) + size_bytes);
  }

  // Writes the next descriptor; the device is told by Ring.
  void Post(const Descriptor& descriptor) { PostRaw(EncodeDescriptor(descriptor)); }
  void PostRaw(const std::array<uint8_t, kDescriptorBytes>& bytes) {
    std::copy(bytes.begin(), bytes.end(),
              At(ring_ + (tail_++ & (entries_ - 1)) * kDescriptorBytes));
  }
  void PostInstructions(const std::vector<Instruction>& program, uint32_t offset = 0) {
    Bytes bytes;
    for (const Instruction& instruction : program) Append(bytes, Encode(instruction));
    Post({.kind = DescriptorKind::kInstructions,
          .bytes = static_cast<uint32_t>(bytes.size()),
          .address = Place(bytes),
          .program_offset = offset});
  }
  void PostStart(const StartMessage& start) {
    Post({.kind = DescriptorKind::kStart, .start = start});
  }
  void PostBytes(DescriptorKind kind, uint64_t address, size_t size_bytes) {
    Post({.kind = kind, .bytes = static_cast<uint32_t>(size_bytes), .address = address});
  }
  uint64_t PostInput(const Bytes& bytes, DescriptorKind kind = DescriptorKind::kInput) {
    const uint64_t address = Place(bytes);
    PostBytes(kind, address, bytes.size());
    return address;
  }
  uint64_t PostOutput(size_t size_bytes) {
    const uint64_t address = Reserve(size_bytes);
    PostBytes(DescriptorKind::kOutput, address, size_bytes);
    return address;
  }
  uint64_t PostEvent() {
    const uint64_t address = Reserve(kRingEventBytes);
    Post({.kind = DescriptorKind::kEvent,
          .interrupts = true,
          .bytes = kRingEventBytes,
          .address = address});
    return address;
  }
  void Ring() { Set(RingRegister::kRingTail, tail_); }

  // Lets the device work until it waits for the host.
  void Run() {
    while (endpoint_->Step()) {
    }
  }
  void RingAndRun() {
    Ring();
    Run();
  }

  bool HasEvent(uint64_t address) {
    return DecodeRingEvent(std::span<const uint8_t, kRingEventBytes>(At(address), kRingEventBytes))
        .ok();
  }
  RingEvent EventAt(uint64_t address) {
    const auto event =
        DecodeRingEvent(std::span<const uint8_t, kRingEventBytes>(At(address), kRingEventBytes));
    EXPECT_TRUE(event.ok()) << event.status().message();
    return event.ok() ? *event : RingEvent();
  }

  // How often the vector was raised since this was last asked.
  int TakeRaised(RingVector vector) {
    return std::exchange(raised_.at(static_cast<uint32_t>(vector)), 0);
  }

  // From now on the device reaches nothing from here on.
  void Unmap(uint64_t address) { end_ = address; }

 private:
  bool Reaches(uint64_t address, uint64_t size_bytes, uint64_t* fault) const {
    const uint64_t end = std::min(end_, kMemory + memory_.size());
    *fault = address < kMemory || address >= end ? address : end;
    return address >= kMemory && address < end && size_bytes <= end - address;
  }

  const uint32_t entries_;
  Bytes memory_;
  uint64_t used_ = 0;
  uint64_t end_ = UINT64_MAX;
  uint64_t ring_ = 0;
  uint32_t tail_ = 0;
  std::array<int, kRingVectors> raised_{};
  size_t read_bytes_ = 0, written_bytes_ = 0;
  std::unique_ptr<PcieEndpoint> endpoint_;
};

}  // namespace atollrt
