// SPDX-License-Identifier: Apache-2.0
//
// A quick check, on the machine where Atoll runs, that the kernels for its CPU, of every level
// (cpu_features.h) that it has, compute what the reference kernels compute.
#pragma once

#include "atoll/status.h"

namespace atollrt {

// kInternal with the level, the kernel's name and the shape if one differs. Takes well under a
// second.
Status RunSelfTest();

}  // namespace atollrt
