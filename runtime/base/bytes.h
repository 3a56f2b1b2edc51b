// SPDX-License-Identifier: Apache-2.0
//
// Little-endian numbers in byte strings, and the arithmetic that hostile sizes need. Everything
// that Atoll stores or sends is little-endian, whatever the host. Pure functions, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>

namespace atollrt {

// Reads 1, 2, 4 or 8 bytes at `bytes`, which may be unaligned.
template <typename T>
inline T LoadLittleEndian(const uint8_t* bytes) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "byte swaps are not written yet");
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

template <typename T>
inline void StoreLittleEndian(uint8_t* bytes, T value) {
  std::memcpy(bytes, &value, sizeof(T));
}

// The sum and the product of all factors, or the greatest number if they do not fit 64 bits.
inline uint64_t SaturatingSum(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}
inline uint64_t SaturatingProduct(std::initializer_list<uint64_t> factors) {
  uint64_t product = 1;
  for (const uint64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) return UINT64_MAX;
  }
  return product;
}

// a * b and a + b, or false if the result does not fit 64 bits.
inline bool CheckedMultiply(uint64_t a, uint64_t b, uint64_t* product) {
  return !__builtin_mul_overflow(a, b, product);
}
inline bool CheckedAdd(uint64_t a, uint64_t b, uint64_t* sum) {
  return !__builtin_add_overflow(a, b, sum);
}

// `value` rounded up to a multiple of `alignment`, a power of two. No overflow check.
constexpr uint64_t AlignUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

template <typename T>
constexpr T DivideRoundingUp(T a, T b) {
  return (a + b - 1) / b;
}

}  // namespace atollrt
