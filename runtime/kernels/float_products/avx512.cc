// SPDX-License-Identifier: Apache-2.0
#define ATOLL_FLOAT_PRODUCTS_NAME kFloatProductsAvx512
#define Eigen AtollEigenAvx512
#include "runtime/kernels/float_products/float_products.inc"
