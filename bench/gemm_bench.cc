// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of real models on every kernel of gemm/kernels.inc.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "bench/bell_weights.h"
#include "bench/layer_bench.h"
#include "runtime/kernels/conv2d.h"
#include "runtime/kernels/cpu_features.h"

namespace atollrt {
namespace {

struct Layer {
  const char* name;
  int32_t side;  // of the input, square
  int32_t input_c, output_c, kernel, stride;
  bool is_linear = false;  // not followed by a ReLU
  int64_t WeightBytes() const { return int64_t{output_c} * kernel * kernel * input_c; }
};

constexpr Layer kLayers[] = {
    {"first_3x3s2_224x3_32", 224, 3, 32, 3, 2},  // MobileNet v1 and v2
    {"v1_1x1_112x32_64", 112, 32, 64, 1, 1},       {"v1_1x1_28x256_256", 28, 256, 256, 1, 1},
    {"v1_1x1_14x512_512", 14, 512, 512, 1, 1},     {"v1_1x1_7x1024_1024", 7, 1024, 1024, 1, 1},
    {"v2_1x1_112x32_16", 112, 32, 16, 1, 1, true}, {"v2_1x1_112x16_96", 112, 16, 96, 1, 1},
    {"v2_1x1_56x96_24", 56, 96, 24, 1, 1, true},   {"v2_1x1_56x24_144", 56, 24, 144, 1, 1},
    {"v2_1x1_28x144_32", 28, 144, 32, 1, 1, true}, {"v2_1x1_14x64_384", 14, 64, 384, 1, 1},
    {"v2_1x1_14x576_96", 14, 576, 96, 1, 1, true}, {"v2_1x1_7x960_320", 7, 960, 320, 1, 1, true},
    {"v2_1x1_7x320_1280", 7, 320, 1280, 1, 1},     {"dense_3x3_28x128_128", 28, 128, 128, 3, 1},
    {"dense_3x3_56x64_64", 56, 64, 64, 3, 1},      {"fc_1x1280_1001", 1, 1280, 1001, 1, 1, true},
};

Conv2DParams Params(const Layer& layer, ByteType type, const std::vector<uint8_t>& weights) {
  Conv2DParams p;
  const int32_t output = (layer.side + layer.stride - 1) / layer.stride;
  const int32_t padding = (output - 1) * layer.stride + layer.kernel - layer.side;
  p.shape = {.input_h = layer.side,
             .input_w = layer.side,
             .input_c = layer.input_c,
             .output_h = output,
             .output_w = output,
             .output_c = layer.output_c,
             .kernel_h = layer.kernel,
             .kernel_w = layer.kernel,
             .stride_h = layer.stride,
             .stride_w = layer.stride,
             .pad_top = padding > 0 ? padding / 2 : 0,
             .pad_left = padding > 0 ? padding / 2 : 0};
  p.input_type = p.weight_type = type;
  p.weight_zero_point = type == ByteType::kUInt8 ? kUInt8WeightZeroPoint : 0;
  p.input_zero_point = type == ByteType::kUInt8 ? 128 : -1;
  p.weights = weights.data();
  p.output.zero_point = ByteMin(type) + (layer.is_linear ? 128 : 0);
  p.output.clamp = {ByteMin(type), ByteMax(type)};
  p.output.channels.assign(static_cast<size_t>(layer.output_c),
                           {.bias = 100, .multiplier = {1500000000, -9}, .scale = 0.001});
  return p;
}

void RegisterAll() {
#define ATOLL_GEMM_KERNEL(kernel, features) \
  RegisterLayers<Conv2D>(#kernel, features, kLayers, Params);
#include "runtime/kernels/gemm/kernels.inc"
#undef ATOLL_GEMM_KERNEL
}

}  // namespace
}  // namespace atollrt

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  atollrt::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
