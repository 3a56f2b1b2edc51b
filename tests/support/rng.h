// SPDX-License-Identifier: Apache-2.0
//
// Random test data from one printed 64-bit seed. The environment variable ATOLL_TEST_SEED replaces
// the seed, so that a failure can be repeated and a nightly run can look elsewhere:
//
//   Rng rng(TestSeed(1));
//
// The generator is splitmix64 (Steele, Lea, Flood 2014): every seed is as good as any other.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <span>

namespace atollrt {

// ATOLL_TEST_SEED, or else the given number.
inline uint64_t TestSeed(uint64_t otherwise) {
  const char* text = std::getenv("ATOLL_TEST_SEED");
  const uint64_t seed = text != nullptr ? std::strtoull(text, nullptr, 0) : otherwise;
  std::printf("ATOLL_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

#if !defined(__has_feature)
#define __has_feature(feature) 0
#endif

// ATOLL_TEST_SCALE; 1 if it is not set, or empty. Ends the program if it is no number above 0:
// tests that look at nothing would pass.
inline double TestScale() {
  const char* text = std::getenv("ATOLL_TEST_SCALE");
  if (text == nullptr || *text == '\0') return 1;
  char* end = nullptr;
  const double scale = std::strtod(text, &end);
  if (*end == '\0' && scale > 0) return scale;
  std::fprintf(stderr, "ATOLL_TEST_SCALE is '%s', must be a number above 0\n", text);
  std::exit(2);
}

// How many random cases a test looks at: `count`, times TestScale(), and a tenth of it where code
// is slow: under the sanitizers, and where nothing is optimized. (Of a release, only the tests are
// not.)
inline int TestCount(int count) {
  double cases = count * TestScale();
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer) || \
    !(defined(__OPTIMIZE__) || defined(NDEBUG))
  cases /= 10;
#endif
  return cases < 1 ? 1 : static_cast<int>(cases);
}

class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // Uniform in [low, high], up to a bias of (high - low) / 2^64.
  int64_t Int(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Next() % (static_cast<uint64_t>(high - low) + 1));
  }
  int32_t Int32(int32_t low, int32_t high) { return static_cast<int32_t>(Int(low, high)); }

  // Uniform in [0, 1).
  double Real() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

  // True once in `n` calls.
  bool OneIn(int64_t n) { return Int(1, n) == 1; }

  template <typename T>
  T Pick(std::initializer_list<T> choices) {
    return choices.begin()[Int(0, static_cast<int64_t>(choices.size()) - 1)];
  }

  void Fill(std::span<uint8_t> bytes) {
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(Next());
  }

 private:
  uint64_t state_;
};

}  // namespace atollrt
