// SPDX-License-Identifier: Apache-2.0
//
// Random geometry and output stages for the property tests of convolutions: mostly ordinary
// values, with the extremes of every range far more often than chance would have it.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "runtime/base/buffer.h"
#include "runtime/base/bytes.h"
#include "runtime/kernels/conv2d.h"
#include "runtime/kernels/cpu_features.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/rng.h"

namespace atollrt {

// Each level that kernels are written for and that this machine has.
inline std::vector<CpuFeatures> AvailableCpuLevels() {
  std::vector<CpuFeatures> levels;
  const Result<CpuFeatures> available = DetectCpuFeatures();
  for (const CpuLevel& level : CpuLevels()) {
    if (available.ok() && Supports(*available, level.features)) levels.push_back(level.features);
  }
  return levels;
}

// Packed weights as in a mapped file that ends with them.
class PackedFile {
 public:
  explicit PackedFile(const std::vector<uint8_t>& bytes)
      : buffer_(bytes.size(), GuardedBuffer::kEnd,
                AlignUp(bytes.size(), Buffer::kAlignment) - bytes.size()) {
    std::copy(bytes.begin(), bytes.end(), buffer_.data());
  }
  std::span<const uint8_t> bytes() const { return buffer_.bytes(); }
  std::span<uint8_t> bytes() { return buffer_.bytes(); }

 private:
  mutable GuardedBuffer buffer_;
};

inline ByteType RandomType(Rng* rng) { return rng->OneIn(2) ? ByteType::kInt8 : ByteType::kUInt8; }

// Within the range of `type`; both ends are frequent.
inline int32_t RandomZeroPoint(Rng* rng, ByteType type) {
  return rng->Pick<int32_t>({ByteMin(type), ByteMax(type), ByteMin(type) + 128,
                             rng->Int32(ByteMin(type), ByteMax(type))});
}

// Strides, dilations, pads, and any output size that they allow, also one that leaves cells at the
// end of the input unused or sees only padding.
inline ConvShape RandomGeometry(Rng* rng, int32_t largest_side) {
  ConvShape s;
  s.batch = rng->Pick<int32_t>({1, 1, 1, 2, 3});
  s.input_h = rng->Int32(1, largest_side);
  s.input_w = rng->Int32(1, largest_side);
  const int32_t kernel = rng->Pick<int32_t>({1, 1, 1, 2, 3, 3, 3, 5, 7});
  s.kernel_h = rng->OneIn(4) ? rng->Int32(1, 5) : kernel;
  s.kernel_w = rng->OneIn(4) ? rng->Int32(1, 5) : kernel;
  s.stride_h = rng->Pick<int32_t>({1, 1, 1, 2, 3});
  s.stride_w = rng->OneIn(4) ? rng->Int32(1, 4) : s.stride_h;
  s.dilation_h = rng->Pick<int32_t>({1, 1, 1, 2, 4});
  s.dilation_w = rng->OneIn(4) ? rng->Int32(1, 3) : s.dilation_h;
  s.pad_top = rng->Int32(0, (s.kernel_h - 1) * s.dilation_h);
  s.pad_left = rng->Int32(0, (s.kernel_w - 1) * s.dilation_w);
  const auto output = [&](int32_t input, int32_t pad, int32_t stride) {
    return std::max(0, (input + pad - 1) / stride + 1 - rng->Pick<int32_t>({0, 0, 0, 1, 2}));
  };
  s.output_h = output(s.input_h, s.pad_top, s.stride_h);
  s.output_w = output(s.input_w, s.pad_left, s.stride_w);
  return s;
}

inline ConvShape SmallGeometry(Rng* rng) { return RandomGeometry(rng, 9); }

// Dilated far beyond a small image: most taps, or all, are over padding in every output.
inline ConvShape FarGeometry(Rng* rng) {
  ConvShape s = RandomGeometry(rng, 9);
  const auto spread = [&](int32_t input, int32_t* output, int32_t* kernel, int32_t* stride,
                          int32_t* dilation, int32_t* pad) {
    *kernel = rng->Pick<int32_t>({2, 3, 4, 5, 32, 33});
    *dilation = rng->Pick<int32_t>({1023, 1025, 4096, 65535});
    *stride = rng->Pick<int32_t>({1, 1, 2, 3, 10, 65535});
    *output = (input - 1) / *stride + 1;
    const int32_t reach = (*output - 1) * *stride + (*kernel - 1) * *dilation + 1;
    // About the middle, as with SAME padding.
    *pad = (reach - input) / 2 + rng->Pick<int32_t>({0, 0, 0, rng->Int32(-12, 12)});
  };
  if (rng->OneIn(2)) {
    spread(s.input_h, &s.output_h, &s.kernel_h, &s.stride_h, &s.dilation_h, &s.pad_top);
  }
  spread(s.input_w, &s.output_w, &s.kernel_w, &s.stride_w, &s.dilation_w, &s.pad_left);
  return s;
}

// `sums` is about the largest accumulator to expect, so that most outputs are not clamped.
inline OutputStage RandomOutputStage(Rng* rng, int32_t channels, double sums) {
  OutputStage stage;
  stage.mode = rng->OneIn(4) ? RequantizeMode::kDouble : RequantizeMode::kFixedPoint;
  const ByteType type = RandomType(rng);
  stage.zero_point = RandomZeroPoint(rng, type);
  stage.clamp = {ByteMin(type), ByteMax(type)};
  if (rng->OneIn(3)) {  // as a fused activation would
    stage.clamp.min = rng->Int32(ByteMin(type), ByteMax(type));
    stage.clamp.max = rng->Int32(stage.clamp.min, ByteMax(type));
  }
  // Unusual multipliers come per layer, since one of them sends its whole block down another path.
  const bool unusual = rng->OneIn(4);
  for (int32_t c = 0; c < channels; ++c) {
    OutputChannel channel;
    channel.bias = static_cast<int32_t>((rng->Real() - 0.5) * sums);
    const double real = (rng->Real() + 0.01) * 200 / (sums + 1);
    channel.multiplier = QuantizeMultiplier(real);
    channel.scale = real;
    if (rng->OneIn(8)) {  // many exact halves
      channel.multiplier = {1 << 30, -rng->Int32(0, 12)};
      channel.scale = std::ldexp(1, -rng->Int32(1, 12));
    }
    if (unusual && rng->OneIn(3)) {
      channel.bias = rng->Pick<int32_t>({INT32_MIN, INT32_MAX, channel.bias});
      channel.multiplier = rng->Pick<Multiplier>({{INT32_MAX, rng->Int32(-31, 31)},
                                                  {1 << 30, rng->Int32(-31, 31)},
                                                  {1 << 30, -31},
                                                  {rng->Int32(1 << 30, INT32_MAX), 0},
                                                  {INT32_MAX, 102},
                                                  {0, 0}});
      channel.scale = rng->Pick<double>({0.0, 1e-300, 0.5, 1.0, 1e30});
    }
    stage.channels.push_back(channel);
  }
  return stage;
}

// Random bytes, or now and then the extremes only: then sums are as large as they get.
inline void RandomBytes(Rng* rng, std::span<uint8_t> bytes) {
  rng->Fill(bytes);
  if (!rng->OneIn(4)) return;
  const uint8_t low = rng->Pick<uint8_t>({0x00, 0x80});
  const bool both = rng->OneIn(2);
  for (uint8_t& byte : bytes) {
    byte = both && (byte & 1) != 0 ? static_cast<uint8_t>(low - 1) : low;
  }
}

// Random bytes, or those of real models: mostly near the zero point.
inline void RandomWeights(Rng* rng, ByteType type, int32_t zero_point, std::span<uint8_t> weights) {
  RandomBytes(rng, weights);
  if (rng->OneIn(2)) return;
  const int32_t most = rng->Pick<int32_t>({1, 10, 31, 33, 64, 100});
  const int32_t outliers = rng->Pick<int32_t>({2, 50, 1000});
  for (uint8_t& byte : weights) {
    if (rng->OneIn(outliers)) continue;
    byte = static_cast<uint8_t>(
        std::clamp(zero_point + rng->Int32(-most, most), ByteMin(type), ByteMax(type)));
  }
}

}  // namespace atollrt
