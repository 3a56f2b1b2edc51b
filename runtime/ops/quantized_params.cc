// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/quantized_params.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/bytes.h"
#include "runtime/graph/shape_inference.h"

namespace atollrt {
namespace {

ByteType ToByteType(DataType type) {
  return type == DataType::kUInt8 ? ByteType::kUInt8 : ByteType::kInt8;
}

ByteFormat FormatOf(const Tensor& tensor) {
  return {ToByteType(tensor.type), tensor.scale(), tensor.zero_point()};
}

// A byte tensor with exactly one, positive scale.
Status CheckQuantizedByte(const char* role, const Tensor& tensor) {
  if (!IsByteType(tensor.type)) {
    return Unsupported("%s '%s' has type %s, must be int8 or uint8", role, tensor.name.c_str(),
                       DataTypeName(tensor.type));
  }
  if (tensor.quantization.scales.size() != 1 || !(tensor.scale() > 0)) {
    return CorruptModel("%s '%s' has %zu scales, must have one that is positive", role,
                        tensor.name.c_str(), tensor.quantization.scales.size());
  }
  return Status();
}

Status CheckSameType(const Tensor& a, const Tensor& b) {
  if (a.type == b.type) return Status();
  return CorruptModel("'%s' is %s but '%s' is %s; they must be the same", a.name.c_str(),
                      DataTypeName(a.type), b.name.c_str(), DataTypeName(b.type));
}

Status CheckSameQuantization(const Tensor& a, const Tensor& b) {
  if (a.scale() == b.scale() && a.zero_point() == b.zero_point()) return Status();
  return CorruptModel(
      "'%s' (scale %g, zero point %d) and '%s' (scale %g, zero point %d) must be "
      "quantized alike",
      a.name.c_str(), static_cast<double>(a.scale()), a.zero_point(), b.name.c_str(),
      static_cast<double>(b.scale()), b.zero_point());
}

// Weights must be constants of the input's signedness, with one scale or one per channel of
// `channel_dimension`; signed ones without zero points.
Status CheckWeights(const Tensor& input, const Tensor& weights, int32_t channel_dimension) {
  if (!weights.is_constant()) {
    return Unsupported("weights '%s' are not constant", weights.name.c_str());
  }
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, weights));
  const Quantization& q = weights.quantization;
  const int32_t channels = weights.shape[channel_dimension];
  if (q.scales.empty()) return CorruptModel("weights '%s' have no scale", weights.name.c_str());
  if (q.scales.size() > 1) {
    if (weights.type == DataType::kUInt8) {
      return CorruptModel("uint8 weights '%s' have %zu scales, must have 1", weights.name.c_str(),
                          q.scales.size());
    }
    if (q.dimension != channel_dimension || static_cast<int32_t>(q.scales.size()) != channels) {
      return CorruptModel(
          "weights '%s' have %zu scales along dimension %d, must have 1 or %d "
          "along dimension %d",
          weights.name.c_str(), q.scales.size(), q.dimension, channels, channel_dimension);
    }
  }
  for (size_t i = 0; weights.type == DataType::kInt8 && i < q.zero_points.size(); ++i) {
    if (q.zero_points[i] != 0) {
      return CorruptModel("int8 weights '%s' have zero_point[%zu] = %lld, must be 0",
                          weights.name.c_str(), i, static_cast<long long>(q.zero_points[i]));
    }
  }
  return Status();
}

Status CheckBias(const Tensor* bias) {
  if (bias == nullptr) return Status();
  if (bias->type != DataType::kInt32) {
    return CorruptModel("bias '%s' has type %s, must be int32", bias->name.c_str(),
                        DataTypeName(bias->type));
  }
  if (!bias->is_constant()) return Unsupported("bias '%s' is not constant", bias->name.c_str());
  return Status();
}

// TensorFlow Lite's check for uint8 layers: the bias must have been quantized with the product of
// the scales.
Status CheckBiasScale(const Tensor& input, const Tensor& weights, const Tensor* bias,
                      const Tensor& output) {
  if (bias == nullptr || bias->quantization.scales.size() != 1) return Status();
  const double product = static_cast<double>(input.scale()) * weights.scale();
  const double difference = std::abs(product - static_cast<double>(bias->scale()));
  if (difference / output.scale() <= 0.02) return Status();
  return CorruptModel(
      "bias '%s' has scale %g, must be the product %g of the scales of input and "
      "weights",
      bias->name.c_str(), static_cast<double>(bias->scale()), product);
}

enum class MultiplierForm { kDouble, kFloatProduct };  // docs/quantization.md §2

// Bias and multiplier (or scale) of every output channel.
std::vector<OutputChannel> MakeChannels(const Tensor& input, const Tensor& weights,
                                        const Tensor* bias, const Tensor& output, int32_t channels,
                                        MultiplierForm form) {
  std::vector<OutputChannel> result(static_cast<size_t>(channels));
  const std::vector<float>& scales = weights.quantization.scales;
  for (int32_t c = 0; c < channels; ++c) {
    const float weight_scale = scales.size() == 1 ? scales[0] : scales[c];
    const double product =
        form == MultiplierForm::kFloatProduct
            ? static_cast<double>(input.scale() * weight_scale)
            : static_cast<double>(input.scale()) * static_cast<double>(weight_scale);
    const double real = product / static_cast<double>(output.scale());
    OutputChannel& channel = result[c];
    channel.scale = real;
    channel.multiplier = QuantizeMultiplier(real);
    if (bias != nullptr) {
      channel.bias = LoadLittleEndian<int32_t>(bias->data.data() + 4 * static_cast<size_t>(c));
    }
  }
  return result;
}

// The parts that convolution and depthwise convolution have in common.
template <typename Params>
Result<Params> MakeFilterParams(const Graph& graph, const Node& node, int32_t channel_dimension) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& weights = *graph.Input(node, 1);
  const Tensor* bias = graph.Input(node, 2);
  const Tensor& output = graph.Output(node);
  ATOLL_RETURN_IF_ERROR(CheckQuantizedByte("input", input));
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, output));
  ATOLL_RETURN_IF_ERROR(CheckQuantizedByte("output", output));
  ATOLL_RETURN_IF_ERROR(CheckWeights(input, weights, channel_dimension));
  ATOLL_RETURN_IF_ERROR(CheckBias(bias));
  const bool is_unsigned = input.type == DataType::kUInt8;
  if (is_unsigned) ATOLL_RETURN_IF_ERROR(CheckBiasScale(input, weights, bias, output));

  const Conv2DOptions& options = std::get<Conv2DOptions>(node.options);
  const WindowResult rows = ResolveWindow(
      {input.shape[1], weights.shape[1], options.stride_h, options.dilation_h}, options.padding);
  const WindowResult columns = ResolveWindow(
      {input.shape[2], weights.shape[2], options.stride_w, options.dilation_w}, options.padding);
  Params params;
  params.shape = {.batch = input.shape[0],
                  .input_h = input.shape[1],
                  .input_w = input.shape[2],
                  .input_c = input.shape[3],
                  .output_h = rows.output,
                  .output_w = columns.output,
                  .output_c = weights.shape[channel_dimension],
                  .kernel_h = weights.shape[1],
                  .kernel_w = weights.shape[2],
                  .stride_h = options.stride_h,
                  .stride_w = options.stride_w,
                  .dilation_h = options.dilation_h,
                  .dilation_w = options.dilation_w,
                  .pad_top = rows.pad_before,
                  .pad_left = columns.pad_before};
  params.input_type = ToByteType(input.type);
  params.weight_type = ToByteType(weights.type);
  params.input_zero_point = input.zero_point();
  params.weight_zero_point = weights.zero_point();
  params.weights = weights.data.data();
  params.output.zero_point = output.zero_point();
  ATOLL_ASSIGN_OR_RETURN(params.output.clamp, FusedClamp(output, options.activation));
  params.output.channels =
      MakeChannels(input, weights, bias, output, params.shape.output_c,
                   is_unsigned ? MultiplierForm::kFloatProduct : MultiplierForm::kDouble);
  return params;
}

// zero point + round(value / scale), the division in float32, saturated far outside any byte.
int32_t QuantizeBound(const Tensor& tensor, float value) {
  const float steps = std::round(value / tensor.scale());
  return tensor.zero_point() + static_cast<int32_t>(std::clamp(steps, -1e6f, 1e6f));
}

}  // namespace

Result<ClampRange> FusedClamp(const Tensor& output, Activation activation) {
  const ByteType type = ToByteType(output.type);
  ClampRange clamp{ByteMin(type), ByteMax(type)};
  switch (activation) {
    case Activation::kNone:
      return clamp;
    case Activation::kRelu:
      clamp.min = std::max(clamp.min, QuantizeBound(output, 0));
      break;
    case Activation::kRelu6:
      clamp.min = std::max(clamp.min, QuantizeBound(output, 0));
      clamp.max = std::min(clamp.max, QuantizeBound(output, 6));
      break;
    case Activation::kReluN1To1:
      clamp.min = std::max(clamp.min, QuantizeBound(output, -1));
      clamp.max = std::min(clamp.max, QuantizeBound(output, 1));
      break;
    case Activation::kTanh:
    case Activation::kSignBit:
      return Unsupported("fused activation %s of a quantized operator",
                         activation == Activation::kTanh ? "TANH" : "SIGN_BIT");
  }
  return clamp;
}

Result<Conv2DParams> MakeConv2DParams(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(Conv2DParams params, MakeFilterParams<Conv2DParams>(graph, node, 0));
  params.shape.groups = params.shape.input_c / graph.Input(node, 1)->shape[3];
  return params;
}

Result<DepthwiseConv2DParams> MakeDepthwiseConv2DParams(const Graph& graph, const Node& node) {
  return MakeFilterParams<DepthwiseConv2DParams>(graph, node, 3);
}

Result<Conv2DParams> MakeFullyConnectedParams(const Graph& graph, const Node& node) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& weights = *graph.Input(node, 1);
  const Tensor* bias = graph.Input(node, 2);
  const Tensor& output = graph.Output(node);
  ATOLL_RETURN_IF_ERROR(CheckQuantizedByte("input", input));
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, output));
  ATOLL_RETURN_IF_ERROR(CheckQuantizedByte("output", output));
  ATOLL_RETURN_IF_ERROR(CheckWeights(input, weights, 0));
  ATOLL_RETURN_IF_ERROR(CheckBias(bias));
  const int32_t units = weights.shape[0];
  const int32_t depth = weights.shape[1];
  Conv2DParams params;
  params.shape.batch = static_cast<int32_t>(input.element_count() / depth);
  params.shape.input_c = depth;
  params.shape.output_c = units;
  params.input_type = ToByteType(input.type);
  params.weight_type = ToByteType(weights.type);
  params.input_zero_point = input.zero_point();
  params.weight_zero_point = weights.zero_point();
  params.weights = weights.data.data();
  params.output.mode = RequantizeMode::kDouble;
  params.output.zero_point = output.zero_point();
  ATOLL_ASSIGN_OR_RETURN(
      params.output.clamp,
      FusedClamp(output, std::get<FullyConnectedOptions>(node.options).activation));
  params.output.channels =
      MakeChannels(input, weights, bias, output, units, MultiplierForm::kDouble);
  return params;
}

Result<Pool2DParams> MakePool2DParams(const Graph& graph, const Node& node) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  ATOLL_RETURN_IF_ERROR(CheckQuantizedByte("input", input));
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, output));
  ATOLL_RETURN_IF_ERROR(CheckSameQuantization(input, output));
  const Pool2DOptions& options = std::get<Pool2DOptions>(node.options);
  const WindowResult rows =
      ResolveWindow({input.shape[1], options.filter_h, options.stride_h, 1}, options.padding);
  const WindowResult columns =
      ResolveWindow({input.shape[2], options.filter_w, options.stride_w, 1}, options.padding);
  Pool2DParams params{
      .batch = input.shape[0],
      .input_h = input.shape[1],
      .input_w = input.shape[2],
      .channels = input.shape[3],
      .output_h = rows.output,
      .output_w = columns.output,
      .kernel_h = options.filter_h,
      .kernel_w = options.filter_w,
      .stride_h = options.stride_h,
      .stride_w = options.stride_w,
      .pad_top = rows.pad_before,
      .pad_left = columns.pad_before,
      .type = ToByteType(input.type),
      .kind = node.type == OpType::kMAX_POOL_2D ? PoolKind::kMax : PoolKind::kAverage};
  ATOLL_ASSIGN_OR_RETURN(params.clamp, FusedClamp(output, options.activation));
  return params;
}

Result<AddParams> MakeAddParams(const Graph& graph, const Node& node) {
  const Tensor& a = *graph.Input(node, 0);
  const Tensor& b = *graph.Input(node, 1);
  const Tensor& output = graph.Output(node);
  ATOLL_RETURN_IF_ERROR(CheckQuantizedByte("input 0", a));
  ATOLL_RETURN_IF_ERROR(CheckQuantizedByte("input 1", b));
  ATOLL_RETURN_IF_ERROR(CheckQuantizedByte("output", output));
  ATOLL_RETURN_IF_ERROR(CheckSameType(a, b));
  ATOLL_RETURN_IF_ERROR(CheckSameType(a, output));
  constexpr int kLeftShift = 20;
  const double twice_max = 2.0 * std::max(a.scale(), b.scale());
  const double output_real = twice_max / ((1 << kLeftShift) * static_cast<double>(output.scale()));
  if (!(output_real < 1)) {
    return CorruptModel("output scale %g is too small for inputs of scale %g and %g",
                        static_cast<double>(output.scale()), static_cast<double>(a.scale()),
                        static_cast<double>(b.scale()));
  }
  AddParams params;
  params.type = ToByteType(a.type);
  params.kind = node.type == OpType::kSUB ? AddKind::kSubtract : AddKind::kAdd;
  params.left_shift = kLeftShift;
  params.input1_zero_point = a.zero_point();
  params.input2_zero_point = b.zero_point();
  params.output_zero_point = output.zero_point();
  params.input1 = QuantizeMultiplier(static_cast<double>(a.scale()) / twice_max);
  params.input2 = QuantizeMultiplier(static_cast<double>(b.scale()) / twice_max);
  params.output = QuantizeMultiplier(output_real);
  ATOLL_ASSIGN_OR_RETURN(params.clamp,
                         FusedClamp(output, std::get<ElementwiseOptions>(node.options).activation));
  return params;
}

Result<SoftmaxParams> MakeSoftmaxParams(const Graph& graph, const Node& node) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  ATOLL_RETURN_IF_ERROR(CheckQuantizedByte("input", input));
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, output));
  ATOLL_RETURN_IF_ERROR(CheckQuantizedByte("output", output));
  const ByteType type = ToByteType(input.type);
  if (output.zero_point() != ByteMin(type) || std::abs(output.scale() * 256.0f - 1.0f) > 1e-3f) {
    return CorruptModel("output '%s' has scale %g and zero point %d, must have 1/256 and %d",
                        output.name.c_str(), static_cast<double>(output.scale()),
                        output.zero_point(), ByteMin(type));
  }
  const float beta = std::get<SoftmaxOptions>(node.options).beta;
  if (!(beta > 0)) return CorruptModel("beta is %g, must be positive", static_cast<double>(beta));
  if (input.shape.empty() || input.shape.back() < 1) {
    return CorruptModel("input has shape %s", ShapeString(input.shape).c_str());
  }
  const int32_t depth = input.shape.back();
  return MakeSoftmaxParams(input.element_count() / depth, depth, type, beta, input.scale());
}

Result<Multiplier> MakeSumMultiplier(OpType type, const Tensor& input, const Tensor& output,
                                     int64_t count) {
  if (!(input.scale() > 0) || !(output.scale() > 0)) {
    return CorruptModel("input has scale %g, output %g; must be one each, and positive",
                        static_cast<double>(input.scale()), static_cast<double>(output.scale()));
  }
  Multiplier multiplier =
      QuantizeMultiplier(static_cast<double>(input.scale()) / static_cast<double>(output.scale()));
  if (type == OpType::kSUM) return multiplier;
  // The division by the number of elements goes into the multiplier; both steps truncate.
  const int32_t floor_log2 = 63 - __builtin_clzll(static_cast<uint64_t>(count));
  const int32_t shift = std::max(0, std::min({floor_log2, 32, 31 + multiplier.exponent}));
  multiplier.value =
      static_cast<int32_t>((static_cast<int64_t>(multiplier.value) << shift) / count);
  multiplier.exponent -= shift;
  return multiplier;
}

Result<MeanPlan> MakeMeanPlan(const Graph& graph, const Node& node) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  ATOLL_RETURN_IF_ERROR(CheckQuantizedByte("input", input));
  ATOLL_RETURN_IF_ERROR(CheckQuantizedByte("output", output));
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, output));
  if (input.element_count() < 1) {
    return CorruptModel("input has shape %s", ShapeString(input.shape).c_str());
  }
  const Tensor& axes = *graph.Input(node, 1);
  MeanPlan plan;
  if (axes.element_count() > 0) {
    for (const int64_t axis : ConstantIntegers(axes)) {
      plan.reduced.push_back(NormalizeAxis(axis, input.shape.size()));
    }
  }
  std::sort(plan.reduced.begin(), plan.reduced.end());
  plan.reduced.erase(std::unique(plan.reduced.begin(), plan.reduced.end()), plan.reduced.end());

  // batch | positions | channels around the first run of reduced axes; a second run means that
  // the input has to be rearranged as [1, positions, everything else].
  const size_t count = plan.reduced.size();
  plan.contiguous =
      count == 0 || plan.reduced.back() - plan.reduced.front() == static_cast<int32_t>(count) - 1;
  MeanParams& params = plan.params;
  int64_t positions = 1;
  for (const int32_t axis : plan.reduced) positions *= input.shape[axis];
  const int32_t first = count == 0 ? 0 : plan.reduced.front();
  int64_t batch = 1;
  for (int32_t i = 0; plan.contiguous && i < first; ++i) batch *= input.shape[i];
  params.batch = static_cast<int32_t>(batch);
  params.positions = static_cast<int32_t>(positions);
  params.channels = static_cast<int32_t>(input.element_count() / positions / batch);
  params.type = ToByteType(input.type);
  params.input_zero_point = input.zero_point();
  params.output_zero_point = output.zero_point();
  params.clamp = {ByteMin(params.type), ByteMax(params.type)};

  ATOLL_ASSIGN_OR_RETURN(params.multiplier, MakeSumMultiplier(node.type, input, output, positions));
  return plan;
}

Result<LookupTable> MakeNodeTable(const Graph& graph, const Node& node) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  ATOLL_RETURN_IF_ERROR(CheckQuantizedByte("input", input));
  ATOLL_RETURN_IF_ERROR(CheckQuantizedByte("output", output));
  const ByteFormat from = FormatOf(input);
  const ByteFormat to = FormatOf(output);
  if (node.type == OpType::kQUANTIZE) {
    const double real = static_cast<double>(input.scale()) / static_cast<double>(output.scale());
    return MakeRequantizeTable(from, to, QuantizeMultiplier(real),
                               {ByteMin(to.type), ByteMax(to.type)});
  }
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, output));
  const auto relu_table = [&](Activation activation) -> Result<LookupTable> {
    const float real = input.scale() / output.scale();
    ATOLL_ASSIGN_OR_RETURN(const ClampRange clamp, FusedClamp(output, activation));
    return MakeRequantizeTable(from, to, QuantizeMultiplier(static_cast<double>(real)), clamp);
  };
  const auto check_output = [&](float scale, int32_t zero_point) -> Status {
    if (output.scale() == scale && output.zero_point() == zero_point) return Status();
    return CorruptModel("output '%s' has scale %g and zero point %d, must have %g and %d",
                        output.name.c_str(), static_cast<double>(output.scale()),
                        output.zero_point(), static_cast<double>(scale), zero_point);
  };
  const bool is_unsigned = to.type == ByteType::kUInt8;
  switch (node.type) {
    case OpType::kRELU:
      return relu_table(Activation::kRelu);
    case OpType::kRELU6:
      return relu_table(Activation::kRelu6);
    case OpType::kRELU_N1_TO_1:
      return relu_table(Activation::kReluN1To1);
    case OpType::kLOGISTIC:
      ATOLL_RETURN_IF_ERROR(check_output(1.0f / 256, ByteMin(to.type)));
      return MakeLogisticTable(from, to);
    case OpType::kTANH:
      ATOLL_RETURN_IF_ERROR(check_output(1.0f / 128, is_unsigned ? 128 : 0));
      return MakeTanhTable(from, to);
    default:
      return InternalError("%s is no function of one byte", node.op_name().c_str());
  }
}

Result<ConcatenationPart> MakeConcatenationPart(const Graph& graph, const Node& node,
                                                size_t position) {
  const Tensor& input = *graph.Input(node, position);
  const Tensor& output = graph.Output(node);
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, output));
  ConcatenationPart part;
  if (input.scale() == output.scale() && input.zero_point() == output.zero_point()) return part;
  if (input.type != DataType::kUInt8) {
    ATOLL_RETURN_IF_ERROR(CheckSameQuantization(input, output));
    return part;
  }
  ATOLL_RETURN_IF_ERROR(CheckQuantizedByte("input", input));
  ATOLL_RETURN_IF_ERROR(CheckQuantizedByte("output", output));
  const float inverse_scale = 1.0f / output.scale();
  const float scale = input.scale() * inverse_scale;
  const float bias = static_cast<float>(-input.zero_point()) * scale;
  part.rescale = true;
  for (int byte = 0; byte < 256; ++byte) {
    const float real = static_cast<float>(byte) * scale + bias;
    const float rounded = std::round(real) + static_cast<float>(output.zero_point());
    part.table[byte] = static_cast<uint8_t>(std::clamp(rounded, 0.0f, 255.0f));
  }
  return part;
}

}  // namespace atollrt
