// SPDX-License-Identifier: Apache-2.0
#define ATOLL_FLOAT_PRODUCTS_NAME kFloatProductsBaseline
#define Eigen AtollEigenBaseline
#include "runtime/kernels/float_products/float_products.inc"
