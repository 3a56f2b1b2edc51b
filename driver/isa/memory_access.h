// SPDX-License-Identifier: Apache-2.0
//
// Which on-chip memory an instruction reads and writes, as spans from the first byte to the last.
// The device checks them, and they say which instructions wait for each other or may run together
// (docs/isa.md §3 to §5). Pure functions, thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "driver/isa/instruction.h"

namespace atollrt {

// Where the two segments of a running program begin (docs/isa.md §2).
struct Segments {
  uint32_t parameter_base = 0;
  uint32_t activation_base = 0;
  bool operator==(const Segments&) const = default;

  // The memory address of an on-chip address; it may lie beyond the memory.
  uint64_t Resolve(uint32_t address) const {
    const uint32_t base = (address & kParameterSegment) != 0 ? parameter_base : activation_base;
    return uint64_t{base} + (address & ~kParameterSegment);
  }
};
// For a program that does not run yet: wherever its segments will be, they do not overlap.
inline constexpr Segments kSegmentsApart{.parameter_base = kParameterSegment};

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
  const MemoryAccess& back() const { return list_[count_ - 1]; }

  void Add(const MemoryAccess& access) { list_[count_++] = access; }

 private:
  std::array<MemoryAccess, kMax> list_{};
  size_t count_ = 0;
};

// Operands may have any value; sizes saturate. Only divisors must not be 0 (CONV_2D's groups):
// such instructions are said to access nothing.
MemoryAccesses AccessesOf(const Instruction& instruction);

// Whether two spans have no byte in common.
bool AreApart(const MemoryAccess& a, const MemoryAccess& b, const Segments& segments);

// Whether `add` may have CHAINED behind `before` (docs/isa.md §3, ADD): memory is the same whether
// each sum is made as soon as there is the byte of the convolution, or all of them afterwards. That
// the ADD by itself is valid is taken for granted.
bool MayChain(const Instruction& before, const AddInstruction& add, const Segments& segments);

}  // namespace atollrt
