// SPDX-License-Identifier: Apache-2.0
//
// The primitives of docs/isa.md §3 as the page has them: what the stepped units compute with, and
// the tests' loops over the page. Written from the page alone, with nothing of runtime/kernels, so
// that the two are witnesses of each other. Numbers have 64 bits and wrap or saturate only where
// the page says so. Pure functions, thread-safe.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "driver/isa/instruction.h"

namespace atollrt::isa {

inline constexpr int64_t kInt32Min = -(int64_t{1} << 31);
inline constexpr int64_t kInt32Max = (int64_t{1} << 31) - 1;

inline int64_t Between(int64_t x, int64_t least, int64_t greatest) {
  return std::min(std::max(x, least), greatest);
}

// To int32 modulo 2^32.
inline int64_t Wrap(int64_t x) { return static_cast<int32_t>(static_cast<uint64_t>(x)); }

inline int64_t Srdhm(int64_t a, int64_t b) {
  if (a == kInt32Min && b == kInt32Min) return kInt32Max;
  return (a * b + (int64_t{1} << 30)) >> 31;
}

inline int64_t Rdpot(int64_t x, int64_t n) {
  const int64_t mask = (int64_t{1} << n) - 1;
  return (x >> n) + ((x & mask) > (mask >> 1) + (x < 0 ? 1 : 0) ? 1 : 0);
}

inline int64_t Mbqm(int64_t x, int64_t multiplier, int64_t exponent) {
  if (exponent <= 0) return Rdpot(Srdhm(x, multiplier), -exponent);
  return Srdhm(Wrap(static_cast<int64_t>(static_cast<uint64_t>(x) << (exponent % 32))), multiplier);
}

// x * 2^n saturated to int32; x is an int32, 0 <= n <= 31.
inline int64_t Shl(int64_t x, int64_t n) {
  return Between(x * (int64_t{1} << n), kInt32Min, kInt32Max);
}

// Numbers of 16 bits, as LSTM's functions have them.
inline int64_t Sat16(int64_t x) { return Between(x, -32768, 32767); }
inline int64_t Product16(int64_t a, int64_t b) {
  return a == -32768 && b == -32768 ? 32767 : (a * b + (1 << 14)) >> 15;
}

// ---- Bytes ----

inline int64_t Value(uint8_t byte, bool is_unsigned) {
  return is_unsigned || byte < 128 ? byte : byte - 256;
}

// The low 8 bits of `y` within [min, max].
inline uint8_t Clamped(int64_t y, int64_t min, int64_t max) {
  return static_cast<uint8_t>(Between(y, min, max));
}

// What an activation unit needs to know of its output channel.
struct ChannelRecord {
  int64_t bias = 0;
  int64_t multiplier = 0;
  int64_t exponent = 0;
  double scale = 0;
};

// `bytes` has kChannelRecordBytes at least.
inline ChannelRecord ReadChannelRecord(std::span<const uint8_t> bytes) {
  const auto word = [&](size_t at) {
    return uint32_t{bytes[at]} | uint32_t{bytes[at + 1]} << 8 | uint32_t{bytes[at + 2]} << 16 |
           uint32_t{bytes[at + 3]} << 24;
  };
  return {static_cast<int32_t>(word(0)), static_cast<int32_t>(word(4)),
          static_cast<int32_t>(word(8)), std::bit_cast<double>(uint64_t{word(12)} << 32 | word(8))};
}

// The activation unit: the output byte of an accumulator. `op` has flags, output_zero_point and
// clamps.
template <typename T>
uint8_t Activate(const T& op, const ChannelRecord& channel, int64_t accumulator) {
  const int64_t sum = Wrap(accumulator + channel.bias);
  if ((op.flags & kFlagDouble) != 0) {
    const double y = std::round(static_cast<double>(sum) * channel.scale) + op.output_zero_point;
    const double clamped = std::min<double>(std::max<double>(op.clamp_min, y), op.clamp_max);
    return static_cast<uint8_t>(static_cast<int32_t>(clamped));
  }
  const int64_t y = Mbqm(sum, channel.multiplier, channel.exponent) + op.output_zero_point;
  return Clamped(Wrap(y), op.clamp_min, op.clamp_max);
}

}  // namespace atollrt::isa
