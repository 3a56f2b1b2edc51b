// SPDX-License-Identifier: Apache-2.0
//
// What this CPU (and its operating system) can do, as far as the kernels care. Kernels are chosen
// once, when a model is prepared; inner loops never ask. Thread-safe.
#pragma once

#include <cstdint>

#include "runtime/base/status.h"

namespace atollrt {

// A set of the bits below.
using CpuFeatures = uint32_t;
inline constexpr CpuFeatures kBaseline = 0;
inline constexpr CpuFeatures kAvx2 = 1u << 0;
inline constexpr CpuFeatures kAvx512Vnni = 1u << 1;  // with F, BW, VL and DQ

constexpr bool Supports(CpuFeatures available, CpuFeatures needed) {
  return (available & needed) == needed;
}

// Everything that this machine supports, capped by the environment variable ATOLL_CPU
// ("baseline", "avx2", "avx512vnni"; for debugging and tests). A name that does not exist, or
// that this machine does not have, is kInvalidArgument.
Result<CpuFeatures> DetectCpuFeatures();

// "avx512vnni", "avx2" or "baseline": the best of `features`.
const char* CpuFeaturesName(CpuFeatures features);

}  // namespace atollrt
