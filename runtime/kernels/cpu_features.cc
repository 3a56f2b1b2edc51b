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
struct CpuId {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// Zeros if the CPU does not have that leaf.
CpuId AskCpu(unsigned leaf, unsigned subleaf) {
  CpuId id;
  __get_cpuid_count(leaf, subleaf, &id.eax, &id.ebx, &id.ecx, &id.edx);
  return id;
}

bool HasAll(unsigned word, unsigned bits) { return (word & bits) == bits; }

// The kinds of registers that the operating system keeps: XCR0.
unsigned KeptRegisters() {
  if (!HasAll(AskCpu(1, 0).ecx, bit_OSXSAVE)) return 0;
  unsigned low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}
constexpr unsigned kYmm = 0x06;  // SSE's and AVX's
constexpr unsigned kZmm = 0xe6;  // those and all of AVX-512's
#endif

CpuFeatures Hardware() {
  CpuFeatures features = kBaseline;
#if defined(__x86_64__)
  const unsigned kept = KeptRegisters();
  const CpuId extended = AskCpu(7, 0);
  const bool has_fma = HasAll(AskCpu(1, 0).ecx, bit_FMA);
  if (HasAll(kept, kYmm) && HasAll(extended.ebx, bit_AVX2) && has_fma) {
    features |= kAvx2;
    constexpr unsigned kAvxVnniBit = 1u << 4;
    if (extended.eax >= 1 && HasAll(AskCpu(7, 1).eax, kAvxVnniBit)) features |= kAvxVnni;
    if (HasAll(kept, kZmm) &&
        HasAll(extended.ebx, bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ) &&
        HasAll(extended.ecx, bit_AVX512VNNI)) {
      features |= kAvx512Vnni256;
      if (kHasAvx512Kernels) features |= kAvx512Vnni;
    }
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
  static const CpuFeatures hardware = Hardware();
  const char* cap = std::getenv("ATOLL_CPU");
  if (cap == nullptr || *cap == '\0') return hardware;
  std::string names;
  for (const CpuLevel& level : kLevels) {
    if (std::strcmp(cap, level.name) == 0) {
      if (Supports(hardware, level.features)) return level.features;
#if defined(__x86_64__)
      if (!kHasAvx512Kernels && Supports(level.features, kAvx512Vnni) &&
          Supports(hardware, kAvx512Vnni256)) {
        return Unsupported("ATOLL_CPU=%s: libatoll-core has no kernels for it; link libatoll", cap);
      }
#endif
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
