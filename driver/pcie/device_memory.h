// SPDX-License-Identifier: Apache-2.0
//
// Host memory and registers that a device uses while the program does. Real devices are seen by no
// tool; what stands in for them is a thread of the program, whose stores ThreadSanitizer sees. What
// orders the two is PcieFunction's contract, and, for memory that is polled, words that are loaded
// with LoadFromDevice. Thread-safe by their nature.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>

// Marks functions that look at such memory at any time, and can bear to see a store in part.
#define ATOLL_DEVICE_MEMORY __attribute__((no_sanitize("thread")))

namespace atollrt {

inline constexpr size_t kDeviceStoreBytesMax = 64;  // of what StoreAsDevice stores word by word

// What a device's stand-in does to host memory. Short writes of whole, aligned words of 64 bits, as
// a host polls for, are stored in order: who loads one has what was stored before it.
inline void StoreAsDevice(std::span<const uint8_t> source, uint8_t* destination) {
  constexpr size_t kWord = sizeof(uint64_t);
  if (source.size() > kDeviceStoreBytesMax || source.size() % kWord != 0 ||
      reinterpret_cast<uintptr_t>(destination) % kWord != 0) {
    if (!source.empty()) std::memcpy(destination, source.data(), source.size());
    return;
  }
  for (size_t at = 0; at < source.size(); at += kWord) {
    uint64_t word = 0;
    std::memcpy(&word, &source[at], kWord);
    std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(destination + at))
        .store(word, std::memory_order_release);
  }
}

// The 64 bits at `place`, a multiple of 8, which a device may be storing.
inline uint64_t LoadFromDevice(const uint8_t* place) {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(const_cast<uint8_t*>(place)))
      .load(std::memory_order_acquire);
}

// One byte, or all of them, of memory that is being stored: of each what it had at some moment.
ATOLL_DEVICE_MEMORY inline uint8_t GlanceAt(const uint8_t* place) {
  return *static_cast<const volatile uint8_t*>(place);
}
ATOLL_DEVICE_MEMORY inline void GlanceAt(std::span<const uint8_t> source, uint8_t* destination) {
#ifdef __SANITIZE_THREAD__
  for (size_t i = 0; i < source.size(); ++i) {
    static_cast<volatile uint8_t*>(destination)[i] =
        static_cast<const volatile uint8_t*>(source.data())[i];
  }
#else
  if (!source.empty()) std::memcpy(destination, source.data(), source.size());
#endif
}

// Registers that are mapped, each in one access. Another mapping may take their place meanwhile.
template <typename Word>
ATOLL_DEVICE_MEMORY inline Word LoadRegister(const uint8_t* place) {
  return *reinterpret_cast<const volatile Word*>(place);
}
template <typename Word>
ATOLL_DEVICE_MEMORY inline void StoreRegister(uint8_t* place, Word value) {
  *reinterpret_cast<volatile Word*>(place) = value;
}

}  // namespace atollrt
