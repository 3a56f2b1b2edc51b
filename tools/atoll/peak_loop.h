// SPDX-License-Identifier: Apache-2.0
//
// The yardstick of benchmarks: how many multiplications and additions per second the dot product
// instruction of an ISA does on the registers of one core, here and now. Shared machines change
// their speed from minute to minute; shares of the peak are steadier than times.
#pragma once

#include <string_view>

namespace atollcmd {

// The best of a few short loops, run now, of VPDPBUSD (AVX-512 VNNI, AVX-VNNI), VPMADDWD and VPADDD
// (AVX2), SMMLA, SDOT, or SMULL, SMLAL and SADALP (NEON), for what AtollCpuName says; 0 for kernels
// without such an instruction.
double PeakMacsPerSecond(std::string_view kernels);

}  // namespace atollcmd
