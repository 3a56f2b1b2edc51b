// SPDX-License-Identifier: Apache-2.0
//
// What this CPU (and its operating system) can do, as far as the kernels care. Kernels are chosen
// once, when a model is prepared; inner loops never ask. Thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "atoll/status.h"

namespace atollrt {

// A set of the bits below.
using CpuFeatures = uint32_t;
inline constexpr CpuFeatures kBaseline = 0;
// x86-64
inline constexpr CpuFeatures kAvx2 = 1u << 0;        // with FMA
inline constexpr CpuFeatures kAvx512Vnni = 1u << 1;  // with F, BW, VL and DQ
inline constexpr CpuFeatures kAvxVnni = 1u << 2;     // VPDPBUSD of 256 bits in AVX encoding
// The same in the encoding of AVX-512: the code for kAvxVnni, where kAvx512Vnni has no kernels.
inline constexpr CpuFeatures kAvx512Vnni256 = 1u << 3;
// AArch64
inline constexpr CpuFeatures kNeon = 1u << 4;         // every CPU has it
inline constexpr CpuFeatures kNeonDotprod = 1u << 5;  // SDOT
inline constexpr CpuFeatures kNeonI8mm = 1u << 6;     // SMMLA

constexpr bool Supports(CpuFeatures available, CpuFeatures needed) {
  return (available & needed) == needed;
}

// A set of features that kernels are written for.
struct CpuLevel {
  const char* name;
  CpuFeatures features;
};

// The levels of this architecture, best first; the last one is "baseline", portable code. (Best is
// a matter of speed: not every level includes those after it.)
std::span<const CpuLevel> CpuLevels();

// Whether kernels for kAvx512Vnni are linked into this program; libatoll-core does without them.
extern const bool kHasAvx512Kernels;

// Everything that this machine supports and that there are kernels for, capped by the environment
// variable ATOLL_CPU to the level of that name (for debugging and tests). A name that does not
// exist, or that this machine does not have, is kInvalidArgument; one that it has, but not
// libatoll-core, is kUnsupported.
Result<CpuFeatures> DetectCpuFeatures();

// The name of the best level that `features` include.
const char* CpuFeaturesName(CpuFeatures features);

}  // namespace atollrt
