// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/float_products/float_products.h"

#include "runtime/kernels/cpu_features.h"

namespace atollrt {

const FloatProducts& ChooseFloatProducts(uint32_t features) {
#define ATOLL_FLOAT_PRODUCTS(name, needed) \
  if (Supports(features, needed)) return name;
#include "runtime/kernels/float_products/kernels.inc"
#undef ATOLL_FLOAT_PRODUCTS
  return kFloatProductsBaseline;
}

}  // namespace atollrt
