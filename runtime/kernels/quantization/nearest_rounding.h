// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <xmmintrin.h>

namespace atollrt {
namespace {

// While it lives, floats of this thread are rounded to the nearest, and raise no signals: what
// float forms (float_stage.h) are tried and used with, whatever the program has set. AVX-512 needs
// none for using them: its instructions say how they round.
class NearestRounding {
 public:
  NearestRounding() : own_(_mm_getcsr()) {
    if (differs()) _mm_setcsr((own_ & ~kBits) | kMasked);
  }
  ~NearestRounding() {
    if (differs()) _mm_setcsr(own_);
  }
  NearestRounding(const NearestRounding&) = delete;
  NearestRounding& operator=(const NearestRounding&) = delete;

 private:
  static constexpr unsigned kBits = 0x7f80;    // rounding, masks
  static constexpr unsigned kMasked = 0x1f80;  // to the nearest, all masked
  bool differs() const { return (own_ & kBits) != kMasked; }
  unsigned own_;
};

}  // namespace
}  // namespace atollrt
