// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/conv2d_int16.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/bytes.h"
#include "runtime/kernels/patch_gather.h"

namespace atollrt {
namespace {

// Products are at most 2^22, so 256 of them fit into 32 bits, and multiply-add instructions apply.
int64_t DotProduct(const int16_t* a, const int16_t* b, int64_t count) {
  constexpr int64_t kChunk = 256;
  int64_t sum = 0;
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    int32_t part = 0;
    const int64_t end = std::min(begin + kChunk, count);
    for (int64_t i = begin; i < end; ++i) part += a[i] * b[i];
    sum += part;
  }
  return sum;
}

}  // namespace

Result<Conv2DInt16> Conv2DInt16::Prepare(const Conv2DInt16Params& params, CpuFeatures) {
  Conv2DInt16 conv;
  const ConvShape& s = params.shape;
  const int64_t count = params.kind == FilterKind::kConv
                            ? s.output_c * FilterDepth(s)
                            : int64_t{s.kernel_h} * s.kernel_w * s.output_c;
  ATOLL_ASSIGN_OR_RETURN(conv.weights_,
                         Buffer::Allocate(static_cast<size_t>(count) * sizeof(int16_t)));
  int16_t* weights = reinterpret_cast<int16_t*>(conv.weights_.data());
  for (int64_t i = 0; i < count; ++i) weights[i] = static_cast<int8_t>(params.weights[i]);
  conv.params_ = params;
  conv.params_.weights = nullptr;
  return conv;
}

// A patch, or the sums of one pixel.
size_t Conv2DInt16::WorkerScratchBytes() const {
  const ConvShape& s = params_.shape;
  const size_t bytes = params_.kind == FilterKind::kConv
                           ? static_cast<size_t>(FilterDepth(s)) * sizeof(int16_t)
                           : static_cast<size_t>(s.output_c) * sizeof(int64_t);
  return AlignUp(bytes, Buffer::kAlignment);
}

size_t Conv2DInt16::ScratchBytes(int threads) const {
  return static_cast<size_t>(threads) * WorkerScratchBytes();
}

int16_t Conv2DInt16::Finish(int64_t sum, int32_t channel) const {
  const Output16Channel& c = params_.channels[channel];
  const int64_t biased =
      static_cast<int64_t>(static_cast<uint64_t>(sum) + static_cast<uint64_t>(c.bias));
  const ClampRange clamp = params_.clamp;
  switch (params_.mode) {
    case Requantize16Mode::kWide:
      return static_cast<int16_t>(
          Clamp(MultiplyByQuantizedMultiplier64(biased, c.multiplier), clamp.min, clamp.max));
    case Requantize16Mode::kFixedPoint:
      return static_cast<int16_t>(
          Clamp(MultiplyByQuantizedMultiplier(static_cast<int32_t>(biased), c.multiplier),
                clamp.min, clamp.max));
    case Requantize16Mode::kDouble:
      break;
  }
  const double value = std::round(static_cast<double>(biased) * c.scale);
  return static_cast<int16_t>(
      std::clamp(value, static_cast<double>(clamp.min), static_cast<double>(clamp.max)));
}

void Conv2DInt16::ConvolvePixel(const uint8_t* input, int64_t pixel, int16_t* patch,
                                int16_t* output) const {
  const ConvShape& s = params_.shape;
  const int64_t depth = FilterDepth(s);
  const int32_t group_out = s.output_c / s.groups;
  const int16_t* weights = reinterpret_cast<const int16_t*>(weights_.data());
  for (int32_t channel = 0; channel < s.output_c; ++channel) {
    if (channel % group_out == 0) GatherPatch(s, input, channel / group_out, pixel, patch);
    output[channel] = Finish(DotProduct(patch, weights + channel * depth, depth), channel);
  }
}

void Conv2DInt16::Run(const uint8_t* input, uint8_t* output, uint8_t* scratch,
                      ThreadPool* pool) const {
  const ConvShape& s = params_.shape;
  const int64_t pixels = OutputPixels(s);
  const int threads = pool == nullptr ? 1 : pool->threads();
  ParallelFor(pool, threads, [&](int task, int worker) {
    uint8_t* const own_scratch = scratch + static_cast<size_t>(worker) * WorkerScratchBytes();
    for (int64_t pixel = pixels * task / threads; pixel < pixels * (task + 1) / threads; ++pixel) {
      int16_t* out = reinterpret_cast<int16_t*>(output) + pixel * s.output_c;
      if (params_.kind == FilterKind::kConv) {
        ConvolvePixel(input, pixel, reinterpret_cast<int16_t*>(own_scratch), out);
        continue;
      }
      int64_t* sums = reinterpret_cast<int64_t*>(own_scratch);
      AccumulateDepthwise<int16_t>(s, input, reinterpret_cast<const int16_t*>(weights_.data()),
                                   pixel, sums);
      for (int32_t c = 0; c < s.output_c; ++c) out[c] = Finish(sums[c], c);
    }
  });
}

}  // namespace atollrt
