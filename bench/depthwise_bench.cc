// SPDX-License-Identifier: Apache-2.0
//
// Depthwise convolutions of real models on every kernel of depthwise/kernels.inc. Besides the
// products, each output costs a requantization: small kernels cannot come near the peak.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "bench/bell_weights.h"
#include "bench/layer_bench.h"
#include "runtime/kernels/cpu_features.h"
#include "runtime/kernels/depthwise/depthwise_conv2d.h"

namespace atollrt {
namespace {

struct Layer {
  const char* name;
  int32_t side;  // of the input, square
  int32_t channels, kernel, stride;
  int64_t WeightBytes() const { return int64_t{channels} * kernel * kernel; }
};

constexpr Layer kLayers[] = {
    {"3x3s1_112x32", 112, 32, 3, 1},  // MobileNet v1 and v2
    {"3x3s2_112x64", 112, 64, 3, 2},  // v1
    {"3x3s1_56x128", 56, 128, 3, 1},  // v1
    {"3x3s1_14x512", 14, 512, 3, 1},  // v1
    {"3x3s2_112x96", 112, 96, 3, 2},  // v2
    {"3x3s1_56x144", 56, 144, 3, 1},  // v2
    {"3x3s1_28x192", 28, 192, 3, 1},  // v2
    {"3x3s1_14x576", 14, 576, 3, 1},  // v2
    {"3x3s1_7x960", 7, 960, 3, 1},    // v2
    {"5x5s1_14x672", 14, 672, 5, 1},  // MobileNet v3, EfficientNet
};

DepthwiseConv2DParams Params(const Layer& layer, ByteType type,
                             const std::vector<uint8_t>& weights) {
  DepthwiseConv2DParams p;
  const int32_t output = (layer.side + layer.stride - 1) / layer.stride;
  const int32_t padding = (output - 1) * layer.stride + layer.kernel - layer.side;
  p.shape = {.input_h = layer.side,
             .input_w = layer.side,
             .input_c = layer.channels,
             .output_h = output,
             .output_w = output,
             .output_c = layer.channels,
             .kernel_h = layer.kernel,
             .kernel_w = layer.kernel,
             .stride_h = layer.stride,
             .stride_w = layer.stride,
             .pad_top = padding / 2,
             .pad_left = padding / 2};
  p.input_type = p.weight_type = type;
  p.weight_zero_point = type == ByteType::kUInt8 ? kUInt8WeightZeroPoint : 0;
  p.input_zero_point = type == ByteType::kUInt8 ? 0 : -128;
  p.weights = weights.data();
  p.output.zero_point = ByteMin(type);
  p.output.clamp = {ByteMin(type), ByteMax(type)};
  p.output.channels.assign(static_cast<size_t>(layer.channels),
                           {.bias = 100, .multiplier = {1500000000, -7}, .scale = 0.001});
  return p;
}

void RegisterAll() {
#define ATOLL_DEPTHWISE_KERNEL(kernel, features) \
  RegisterLayers<DepthwiseConv2D>(#kernel, features, kLayers, Params);
#include "runtime/kernels/depthwise/kernels.inc"
#undef ATOLL_DEPTHWISE_KERNEL
}

}  // namespace
}  // namespace atollrt

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  atollrt::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
