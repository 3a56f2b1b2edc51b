// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/int16_params.h"

#include <cmath>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/ops/filter_tensors.h"
#include "runtime/ops/quantized_params.h"
#include "runtime/ops/tensor_checks.h"

namespace atollrt {
namespace {

// TensorFlow Lite chooses the accumulator by the bias: only one of 32 bits has 32 bits as well.
Requantize16Mode ModeOf(const Node& node, const Tensor* bias) {
  if (node.type == OpType::kFULLY_CONNECTED) return Requantize16Mode::kDouble;
  const bool is_narrow = bias != nullptr && bias->type == DataType::kInt32;
  return is_narrow ? Requantize16Mode::kFixedPoint : Requantize16Mode::kWide;
}

int64_t BiasOf(const Tensor* bias, int32_t channel) {
  if (bias == nullptr) return 0;
  const size_t index = static_cast<size_t>(channel);
  if (bias->type == DataType::kInt32) {
    return LoadLittleEndian<int32_t>(bias->data.data() + 4 * index);
  }
  return LoadLittleEndian<int64_t>(bias->data.data() + 8 * index);
}

}  // namespace

Status CheckQuantizedInt16(const char* role, const Tensor& tensor) {
  if (tensor.type != DataType::kInt16) {
    return Unsupported("%s '%s' has type %s, must be int16", role, tensor.name.c_str(),
                       DataTypeName(tensor.type));
  }
  if (tensor.quantization.scales.size() != 1 || !(tensor.scale() > 0) || tensor.zero_point() != 0) {
    return CorruptModel(
        "%s '%s' has %zu scales and zero point %d, must have one positive scale and zero point 0",
        role, tensor.name.c_str(), tensor.quantization.scales.size(), tensor.zero_point());
  }
  return Status();
}

Result<Multiplier> WideMultiplier(double real) {
  const Multiplier multiplier = QuantizeMultiplier(real);
  if (multiplier.exponent < 15 && std::isfinite(real)) return multiplier;
  return Unsupported("multiplier %g of 64-bit sums, must be below 16384", real);
}

Result<Conv2DInt16Params> MakeConv2DInt16Params(const Graph& graph, const Node& node) {
  const FilterTensors t = FilterTensorsOf(graph, node);
  ATOLL_RETURN_IF_ERROR(CheckQuantizedInt16("input", t.input));
  ATOLL_RETURN_IF_ERROR(CheckSameType(t.input, t.output));
  ATOLL_RETURN_IF_ERROR(CheckQuantizedInt16("output", t.output));
  ATOLL_RETURN_IF_ERROR(CheckWeights(t, DataType::kInt8));
  ATOLL_RETURN_IF_ERROR(CheckBias(t, {DataType::kInt64, DataType::kInt32}));
  Conv2DInt16Params params;
  params.shape = FilterShape(graph, node);
  params.kind = FilterKindOf(node);
  params.weights = t.weights.data.data();
  params.mode = ModeOf(node, t.bias);
  ATOLL_ASSIGN_OR_RETURN(params.clamp, FusedClamp(t.output, FusedActivation(node)));
  params.channels.resize(static_cast<size_t>(params.shape.output_c));
  const std::vector<float>& scales = t.weights.quantization.scales;
  for (int32_t c = 0; c < params.shape.output_c; ++c) {
    const double product = static_cast<double>(t.input.scale()) *
                           static_cast<double>(scales.size() == 1 ? scales[0] : scales[c]);
    Output16Channel& channel = params.channels[c];
    channel.bias = BiasOf(t.bias, c);
    channel.scale = product / static_cast<double>(t.output.scale());
    if (params.mode == Requantize16Mode::kWide) {
      ATOLL_ASSIGN_OR_RETURN(channel.multiplier, WideMultiplier(channel.scale));
    } else {
      channel.multiplier = QuantizeMultiplier(channel.scale);
    }
  }
  return params;
}

}  // namespace atollrt
