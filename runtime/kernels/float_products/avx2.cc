// SPDX-License-Identifier: Apache-2.0
#define ATOLL_FLOAT_PRODUCTS_NAME kFloatProductsAvx2
#define Eigen AtollEigenAvx2
#include "runtime/kernels/float_products/float_products.inc"
