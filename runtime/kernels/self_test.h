// SPDX-License-Identifier: Apache-2.0
//
// A quick check, on the machine where Atoll runs, that the kernels chosen for its CPU compute what
// the reference kernels compute.
#pragma once

#include "runtime/base/status.h"

namespace atollrt {

// kInternal with the kernel's name and the shape if one differs. Takes well under a second.
Status RunSelfTest();

}  // namespace atollrt
