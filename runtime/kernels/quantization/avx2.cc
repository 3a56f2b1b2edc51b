// SPDX-License-Identifier: Apache-2.0
//
// StoreSums256.
#include "runtime/kernels/quantization/nearest_rounding.h"
#include "runtime/kernels/quantization/store_sums.h"

namespace atollrt {

void StoreSums256(const OutputColumns& columns, const RequantizeArgs& args) {
  const NearestRounding nearest;
  if (args.count > kLanes) {
    StoreVectors<2>(columns, args);
  } else {
    StoreVectors<1>(columns, args);
  }
}

}  // namespace atollrt
