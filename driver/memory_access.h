// SPDX-License-Identifier: Apache-2.0
//
// Which on-chip memory an instruction reads and writes, as spans from the first byte to the last:
// what the device checks before it runs the instruction, and what orders it among others
// (docs/isa.md §4, §5). Pure functions, thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "driver/instruction.h"

namespace atollrt {

struct MemoryAccess {
  enum class Kind : uint8_t {
    kRead,
    kReadInPlace,  // the output may begin at the same address
    kWrite,
    kReadWrite,  // state
  };
  Kind kind = Kind::kRead;
  uint8_t word = 0;      // of the address operand in the encoding
  uint32_t address = 0;  // on-chip address of the first byte
  uint64_t bytes = 0;    // saturated at 2^64 - 1
};

// Reads first, then what is read and written, then writes.
class MemoryAccesses {
 public:
  static constexpr size_t kMax = 8;

  const MemoryAccess* begin() const { return list_.data(); }
  const MemoryAccess* end() const { return list_.data() + count_; }
  size_t size() const { return count_; }

  void Add(const MemoryAccess& access) { list_[count_++] = access; }

 private:
  std::array<MemoryAccess, kMax> list_{};
  size_t count_ = 0;
};

// Operands may have any value; sizes saturate. Only divisors must not be 0 (CONV_2D's groups):
// such instructions are said to access nothing.
MemoryAccesses AccessesOf(const Instruction& instruction);

}  // namespace atollrt
