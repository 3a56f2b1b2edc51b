// SPDX-License-Identifier: Apache-2.0
//
// Scales of channels for random instructions, with the ends of the range of doubles among them.
#pragma once

#include <cmath>

#include "tests/support/rng.h"

namespace atollrt {

inline double RandomScale(Rng& rng) {
  const double sign = rng.OneIn(8) ? -1 : 1;
  if (rng.OneIn(4)) return sign * rng.Pick({0.0, 0.5, 0.125, 3e-310, 1e300, 1.0 / 3});
  const double fraction = rng.OneIn(2) ? 1 : 1 + rng.Real();  // powers of two make halves
  return sign * std::ldexp(fraction, -rng.Int32(3, 14));
}

}  // namespace atollrt
