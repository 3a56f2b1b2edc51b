// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/self_test.h"

#include <cstring>
#include <vector>

#include "runtime/kernels/conv2d.h"
#include "runtime/kernels/cpu_features.h"
#include "runtime/kernels/depthwise/depthwise_conv2d.h"

namespace atollrt {
namespace {

// A small linear congruential generator: the same bytes on every machine.
struct ByteSource {
  uint32_t state = 1;
  uint8_t operator()() {
    state = state * 1664525u + 1013904223u;
    return static_cast<uint8_t>(state >> 24);
  }
};

std::vector<uint8_t> Bytes(ByteSource* source, int64_t count) {
  std::vector<uint8_t> bytes(static_cast<size_t>(count));
  for (uint8_t& byte : bytes) byte = (*source)();
  return bytes;
}

OutputStage MakeOutputStage(int32_t channels, RequantizeMode mode, ByteType type) {
  OutputStage stage{.mode = mode,
                    .zero_point = type == ByteType::kInt8 ? 3 : 131,
                    .clamp = {ByteMin(type), ByteMax(type)},
                    .channels = {}};
  for (int32_t c = 0; c < channels; ++c) {
    const double scale = 0.0007 + 0.00001 * c;
    stage.channels.push_back(
        {.bias = c * 37 - 500, .multiplier = QuantizeMultiplier(scale), .scale = scale});
  }
  return stage;
}

template <typename Kernel, typename Params, typename Reference>
Status CompareWithReference(const Params& params, Reference reference, CpuFeatures features,
                            ByteSource* source) {
  const std::vector<uint8_t> input = Bytes(source, params.shape.InputBytes());
  std::vector<uint8_t> expected(static_cast<size_t>(params.shape.OutputBytes()));
  std::vector<uint8_t> got(expected.size());
  reference(params, input.data(), expected.data());
  ATOLL_ASSIGN_OR_RETURN(const Kernel kernel, Kernel::Prepare(params, features));
  ATOLL_ASSIGN_OR_RETURN(Buffer scratch, Buffer::Allocate(kernel.ScratchBytes(1)));
  kernel.Run(input.data(), got.data(), scratch.data(), nullptr);
  if (std::memcmp(got.data(), expected.data(), got.size()) == 0) return Status();
  return InternalError("kernel %s differs from the reference for %d channels into %d, %dx%d",
                       kernel.kernel_name(), params.shape.input_c, params.shape.output_c,
                       params.shape.kernel_h, params.shape.kernel_w);
}

Status TestWith(CpuFeatures features) {
  ByteSource source;
  for (const ByteType type : {ByteType::kInt8, ByteType::kUInt8}) {
    for (const RequantizeMode mode : {RequantizeMode::kFixedPoint, RequantizeMode::kDouble}) {
      for (const int32_t channels : {1, 3, 16, 37}) {
        const ConvShape shape{.input_h = 9,
                              .input_w = 7,
                              .input_c = channels,
                              .output_h = 5,
                              .output_w = 4,
                              .output_c = 37,
                              .kernel_h = 3,
                              .kernel_w = 3,
                              .stride_h = 2,
                              .stride_w = 2,
                              .pad_top = 1,
                              .pad_left = 1};
        const int32_t weight_zero_point = type == ByteType::kInt8 ? 0 : 119;
        const std::vector<uint8_t> weights = Bytes(&source, int64_t{37} * 9 * channels);
        Conv2DParams conv{.shape = shape,
                          .input_type = type,
                          .weight_type = type,
                          .input_zero_point = 5,
                          .weight_zero_point = weight_zero_point,
                          .weights = weights.data(),
                          .output = MakeOutputStage(37, mode, type)};
        ATOLL_RETURN_IF_ERROR(
            CompareWithReference<Conv2D>(conv, ReferenceConv2D, features, &source));
        DepthwiseConv2DParams depthwise = conv;
        depthwise.shape.output_c = channels;
        depthwise.output = MakeOutputStage(channels, mode, type);
        ATOLL_RETURN_IF_ERROR(CompareWithReference<DepthwiseConv2D>(
            depthwise, ReferenceDepthwiseConv2D, features, &source));
      }
    }
  }
  return Status();
}

}  // namespace

Status RunSelfTest() {
  ATOLL_ASSIGN_OR_RETURN(const CpuFeatures available, DetectCpuFeatures());
  for (const CpuLevel& level : CpuLevels()) {
    if (!Supports(available, level.features)) continue;
    ATOLL_RETURN_IF_ERROR(TestWith(level.features).WithContext(level.name));
  }
  return Status();
}

}  // namespace atollrt
