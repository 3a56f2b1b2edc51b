// SPDX-License-Identifier: Apache-2.0
//
// usage: vm-edu ADDRESS
//
// Drives QEMU's educational device through VfioBus: its registers, its DMA and its interrupts are
// QEMU's, and so is the IOMMU between it and memory (docs/specs/edu.txt in QEMU's source has the
// registers). Prints a line; the exit code is 0 if everything was right. After the test the last
// thing that the device did was to write where it must not: the kernel has a fault to report.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "driver/vfio/vfio_bus.h"

namespace atollrt {
namespace {

constexpr PcieId kEdu{0x1234, 0x11E8};
constexpr uint64_t kIdentification = 0x00, kLiveness = 0x04, kFactorial = 0x08, kStatus = 0x20;
constexpr uint64_t kRaised = 0x24, kAcknowledge = 0x64;
constexpr uint64_t kSource = 0x80, kTarget = 0x88, kCount = 0x90, kCommand = 0x98;
constexpr uint32_t kFactorialInterrupts = 0x80;
constexpr uint64_t kRun = 1, kToMemory = 2, kDmaInterrupts = 4;
constexpr uint64_t kBuffer = 0x40000;  // in the device

constexpr uint32_t kBytes = 1024;
constexpr std::chrono::seconds kPatience(30);

void Require(bool right, const char* what) {
  if (right) return;
  std::printf("wrong: %s\n", what);
  std::exit(1);
}
void Require(const Status& status, const char* what) {
  if (status.ok()) return;
  std::printf("%s: %s\n", what, status.message().c_str());
  std::exit(1);
}

class Edu {
 public:
  explicit Edu(std::unique_ptr<PcieFunction> function) : function_(std::move(function)) {}

  PcieFunction& function() { return *function_; }
  uint32_t Read(uint64_t offset) {
    const Result<uint32_t> value = function_->Read32(0, offset);
    Require(value.status(), "read");
    return *value;
  }
  void Write(uint64_t offset, uint32_t value) {
    Require(function_->Write32(0, offset, value), "write");
  }
  void AwaitInterrupt(const char* of) {
    const Result<uint64_t> raised = function_->AwaitInterrupts(1, Clock::now() + kPatience);
    Require(raised.status(), of);
    Write(kAcknowledge, Read(kRaised));
  }
  void Copy(uint64_t source, uint64_t target, uint64_t command) {
    for (const auto& [offset, value] : {std::pair(kSource, source), std::pair(kTarget, target),
                                        std::pair(kCount, uint64_t{kBytes}),
                                        std::pair(kCommand, kRun | kDmaInterrupts | command)}) {
      Require(function_->Write64(0, offset, value), "write");
    }
    AwaitInterrupt("interrupt of DMA");
  }

 private:
  std::unique_ptr<PcieFunction> function_;
};

int Test(const char* address) {
  VfioBus bus;
  auto opened = bus.Open({.id = kEdu, .address = address, .driver = {}});
  Require(opened.status(), "open");
  Edu edu(std::move(*opened));
  Require(edu.function().is_present(), "presence");
  Require((edu.Read(kIdentification) & 0xFFFF) == 0x00ED, "identification");
  edu.Write(kLiveness, 0x12345678);
  Require(edu.Read(kLiveness) == ~0x12345678u, "liveness");

  // It has MSI, and no MSI-X.
  Require(!edu.function().EnableInterrupts(2).ok(), "two vectors");
  Require(edu.function().EnableInterrupts(1), "interrupts");
  edu.Write(kStatus, kFactorialInterrupts);
  edu.Write(kFactorial, 10);
  edu.AwaitInterrupt("interrupt of the factorial");
  Require(edu.Read(kFactorial) == 3628800, "factorial of 10");

  std::vector<uint8_t> memory(2 * kBytes);
  for (size_t i = 0; i < kBytes; ++i) memory[i] = static_cast<uint8_t>(i * 7 + 3);
  const std::vector<uint8_t> first(memory.begin(), memory.begin() + kBytes);
  const auto second_is = [&](const std::vector<uint8_t>& bytes) {
    return std::equal(bytes.begin(), bytes.end(), memory.begin() + kBytes);
  };
  auto mapping = edu.function().Map(memory, DmaDirection::kBoth);
  Require(mapping.status(), "mapping");
  const uint64_t iova = (*mapping)->iova();
  edu.Copy(iova, kBuffer, 0);
  edu.Copy(kBuffer, iova + kBytes, kToMemory);
  Require(second_is(first), "bytes through the device");

  // Memory that nobody has touched when the device, which only reads it, gets it.
  auto given = edu.function().Allocate(kBytes, DmaDirection::kToDevice);
  Require(given.status(), "memory for the device");
  std::copy(first.rbegin(), first.rend(), (*given)->bytes().begin());
  edu.Copy((*given)->iova(), kBuffer, 0);
  edu.Copy(kBuffer, iova + kBytes, kToMemory);
  Require(second_is({first.rbegin(), first.rend()}), "bytes that were written after it was mapped");

  // Where it wrote before it must not any more.
  *mapping = nullptr;
  const std::vector<uint8_t> untouched(kBytes, 0xAA);
  std::copy(untouched.begin(), untouched.end(), memory.begin() + kBytes);
  edu.Copy(kBuffer, iova + kBytes, kToMemory);
  Require(second_is(untouched), "memory that is no longer mapped");

  std::printf(
      "registers, factorial, interrupts, DMA both ways, none to %llx after it was unmapped\n",
      static_cast<unsigned long long>(iova));
  return 0;
}

}  // namespace
}  // namespace atollrt

int main(int argc, char** argv) {
  if (argc != 2) {
    std::printf("usage: vm-edu ADDRESS\n");
    return 2;
  }
  return atollrt::Test(argv[1]);
}
