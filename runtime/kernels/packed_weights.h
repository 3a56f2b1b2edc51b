// SPDX-License-Identifier: Apache-2.0
//
// What a kernel makes of a filter's weights, as bytes that a file can keep and a later Prepare uses
// where they lie (docs/executable.md, "Packed weights"): numbers, among them all that says what the
// weights were packed for, and blocks of weights in the kernel's layout.
//
//   0-3   "ATPW"
//   4-7   how many numbers there are
//   8-    the numbers, 32 bits each, little-endian
//         the blocks, each at the next multiple of 64 bytes from the beginning
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/kernels/quantization/quantization.h"

namespace atollrt {

// Who packed them; their first number. kNarrowConv2D: within [-127, 127], for kernels that would
// overflow with -128. kSmallConv2D: so small that sums of 16 bits hold (GemmKernel::mark_wide).
enum class PackedWeightsKind : uint32_t {
  kConv2D = 1,
  kDepthwiseConv2D = 2,
  kNarrowConv2D = 3,
  kSmallConv2D = 4
};

// Added to the kind where float forms of the output stage are kept, too (kept_fits.h): for each
// group of output channels a block of them, before those of weights.
inline constexpr uint32_t kWithFits = 0x100;

class PackedWeightsWriter {
 public:
  PackedWeightsWriter();
  void Add(uint32_t number);
  void Add(std::span<const uint32_t> numbers) {
    for (const uint32_t number : numbers) Add(number);
  }
  // Two numbers: sums matter in 32 bits, absolute ones up to 2^31, and beyond it nothing does.
  void Add(const WeightSums& sums);
  // A block of what `fit` finds for these columns.
  void AddFits(FitFloatColumn fit, std::span<const FixedPointColumn> columns);
  // Zeroed; valid until the next call.
  uint8_t* AddBlock(uint64_t bytes);
  // Nothing may be added afterwards.
  std::vector<uint8_t> Finish();

 private:
  std::vector<uint8_t> numbers_, blocks_;
};

// Takes hostile bytes, and gives nothing from outside of them.
class PackedWeightsReader {
 public:
  // No bytes, bytes of another form, or not aligned to 64: all that is read fails.
  explicit PackedWeightsReader(std::span<const uint8_t> bytes);

  // Packed weights for `wanted`, whose first number is the kind without kWithFits; `*has_fits` says
  // whether those have it. Not ok() if these are others.
  static PackedWeightsReader Open(std::span<const uint8_t> bytes, std::span<uint32_t> wanted,
                                  bool* has_fits);

  // 0 after the last number; reading then has failed.
  uint32_t Next();
  WeightSums NextSums();
  // Whether the next numbers are these.
  bool Expect(std::span<const uint32_t> numbers);
  // Aligned to 64 bytes, and not copied; nullptr if there are not as many left.
  const uint8_t* NextBlock(uint64_t bytes);
  void Fail() { ok_ = false; }
  bool ok() const { return ok_; }

 private:
  std::span<const uint8_t> numbers_, blocks_;
  bool ok_ = true;
};

// ---- Weights of more than a byte ----------------------------------------------------------------
//
// Weights less their zero point lie in [-255, 255], but the kernels for bytes multiply int8. What
// does not fit is a sum of parts that do, each multiplied on its own. For some kernels that
// is -128, too: they take narrow weights.

// No number in [-255, 255] has more parts that are not 0; most have one.
inline constexpr int32_t kByteParts = 3;

// Part number `part` of `value`, within [smallest, 127]; `smallest` is -128 or -127.
constexpr int32_t BytePart(int32_t value, int32_t part, int32_t smallest = -128) {
  const auto nearest = [smallest](int32_t x) {
    return x < smallest ? smallest : (x > 127 ? 127 : x);
  };
  for (; part > 0; --part) value -= nearest(value);
  return nearest(value);
}

}  // namespace atollrt
