// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "runtime/kernels/cpu_features.h"
#include "runtime/kernels/float_products/float_products.h"

namespace atollrt {

// What FloatProducts are chosen by, for every level that this CPU has.
inline std::vector<CpuFeatures> FloatProductLevels() {
  const CpuFeatures features = DetectCpuFeatures().ok() ? *DetectCpuFeatures() : kBaseline;
  std::vector<CpuFeatures> levels;
#define ATOLL_FLOAT_PRODUCTS(name, needed) \
  if (Supports(features, needed)) levels.push_back(needed);
#include "runtime/kernels/float_products/kernels.inc"
#undef ATOLL_FLOAT_PRODUCTS
  return levels;
}

}  // namespace atollrt
