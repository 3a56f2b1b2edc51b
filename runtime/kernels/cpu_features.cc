// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/cpu_features.h"

#include <cstdlib>
#include <cstring>

namespace atollrt {
namespace {

struct NamedLevel {
  const char* name;
  CpuFeatures features;
};

// Best first; each level includes the ones after it.
constexpr NamedLevel kLevels[] = {
    {"avx512vnni", kAvx512Vnni | kAvx2},
    {"avx2", kAvx2},
    {"baseline", kBaseline},
};

CpuFeatures Hardware() {
  CpuFeatures features = kBaseline;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2")) features |= kAvx2;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vnni")) {
    features |= kAvx512Vnni;
  }
#endif
  return features;
}

}  // namespace

Result<CpuFeatures> DetectCpuFeatures() {
  const CpuFeatures hardware = Hardware();
  const char* cap = std::getenv("ATOLL_CPU");
  if (cap == nullptr || *cap == '\0') return hardware;
  for (const NamedLevel& level : kLevels) {
    if (std::strcmp(cap, level.name) != 0) continue;
    if (!Supports(hardware, level.features)) {
      return InvalidArgument("ATOLL_CPU=%s: this machine has only %s", cap,
                             CpuFeaturesName(hardware));
    }
    return level.features;
  }
  return InvalidArgument("ATOLL_CPU=%s is not one of avx512vnni, avx2, baseline", cap);
}

const char* CpuFeaturesName(CpuFeatures features) {
  for (const NamedLevel& level : kLevels) {
    if (Supports(features, level.features)) return level.name;
  }
  return "baseline";
}

}  // namespace atollrt
