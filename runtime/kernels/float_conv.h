// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of float32 as products of matrices, NHWC: CONV_2D, and FULLY_CONNECTED as the 1x1
// case, with the formula of Conv2DFloatParams. Results are the same for every number of threads.
// Part of libatoll, not of libatoll-core (ops/apart_ops.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "atoll/status.h"
#include "runtime/base/buffer.h"
#include "runtime/base/thread_pool.h"
#include "runtime/kernels/conv2d_wide.h"
#include "runtime/kernels/cpu_features.h"
#include "runtime/kernels/float_loops/float_loops.h"
#include "runtime/kernels/float_products/float_products.h"

namespace atollrt {

// Immutable after Prepare; several threads may run one object, each with its own scratch.
class FloatConv {
 public:
  // Packs the weights of `params`, which is of kind kConv. kResourceExhausted if they do not fit
  // memory.
  static Result<FloatConv> Prepare(const Conv2DFloatParams& params, CpuFeatures features);

  // Bytes of scratch that Run needs with a pool of `threads` threads.
  size_t ScratchBytes(int threads) const;

  // `input` may be unaligned; `output` is aligned to 8 bytes, `scratch` to Buffer::kAlignment.
  // `pool` may be nullptr.
  void Run(const uint8_t* input, uint8_t* output, uint8_t* scratch, ThreadPool* pool) const;

 private:
  size_t WorkerBytes() const;
  // Floats of the packed block of weights that begins with this channel of a group.
  int64_t BlockFloats(int64_t channel) const;
  int64_t Columns() const;
  // The output channels of all groups from block `first` on to before `end`, for the pixels from
  // `pixel` on; blocks are counted through the groups.
  void RunTile(const uint8_t* input, int64_t pixel, int64_t columns, int64_t first, int64_t end,
               float* scratch, float* output) const;

  Conv2DFloatParams params_;  // without weights
  const FloatProducts* products_ = nullptr;
  const FloatLoops* loops_ = nullptr;
  Buffer bias_;
  Buffer packed_;
};

}  // namespace atollrt
