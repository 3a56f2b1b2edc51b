// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/cpu_features.h"

#include <cstdlib>
#include <cstring>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace atollrt {
namespace {

constexpr CpuLevel kLevels[] = {
#if defined(__x86_64__)
    {"avx512vnni", kAvx512Vnni | kAvx2},
    {"avxvnni", kAvxVnni | kAvx2},
    {"avx512vnni256", kAvx512Vnni256 | kAvx2},
    {"avx2", kAvx2},
#elif defined(__aarch64__)
    {"neon_i8mm", kNeonI8mm | kNeonDotprod | kNeon},
    {"neon_dotprod", kNeonDotprod | kNeon},
    {"neon", kNeon},
#endif
    {"baseline", kBaseline},
};

#if defined(__x86_64__)
// Leaf 7.1, EAX bit 4. Asked of a CPU whose operating system keeps the AVX registers.
bool HasAvxVnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || eax < 1) return false;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & (1u << 4)) != 0;
}
#endif

CpuFeatures Hardware() {
  CpuFeatures features = kBaseline;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2")) {
    features |= kAvx2;
    if (HasAvxVnni()) features |= kAvxVnni;
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vnni")) {
    features |= kAvx512Vnni | kAvx512Vnni256;
  }
#elif defined(__aarch64__)
  features |= kNeon;
  if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0) features |= kNeonDotprod;
  if ((getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0) features |= kNeonI8mm;
#endif
  return features;
}

}  // namespace

std::span<const CpuLevel> CpuLevels() { return kLevels; }

Result<CpuFeatures> DetectCpuFeatures() {
  const CpuFeatures hardware = Hardware();
  const char* cap = std::getenv("ATOLL_CPU");
  if (cap == nullptr || *cap == '\0') return hardware;
  std::string names;
  for (const CpuLevel& level : kLevels) {
    if (std::strcmp(cap, level.name) == 0) {
      if (Supports(hardware, level.features)) return level.features;
      return InvalidArgument("ATOLL_CPU=%s: this machine has only %s", cap,
                             CpuFeaturesName(hardware));
    }
    if (!names.empty()) names += ", ";
    names += level.name;
  }
  return InvalidArgument("ATOLL_CPU=%s is not one of %s", cap, names.c_str());
}

const char* CpuFeaturesName(CpuFeatures features) {
  for (const CpuLevel& level : kLevels) {
    if (Supports(features, level.features)) return level.name;
  }
  return "baseline";
}

}  // namespace atollrt
