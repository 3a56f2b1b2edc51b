// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/quantized_params.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/bytes.h"
#include "runtime/ops/filter_tensors.h"
#include "runtime/ops/tensor_checks.h"
#include "runtime/shapes/shape_inference.h"

namespace atollrt {
namespace {

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

// Whether looking for float forms of the output stage pays. Finding one takes as long as it saves
// in about 2,000 outputs of its channel with registers of 256 bits, in 4,000 with those of 512:
// forty inferences if there are 7 x 7, to make MobileNet v2 half a percent faster
// (docs/benchmarks.md). It pays in any case where a channel that is nearly dead, with a multiplier
// far from others, would have its neighbours computed by the slowest integers.
bool FindsFits(const Conv2DParams& params) {
  constexpr int64_t kLeastOutputs = 64;
  const ConvShape& s = params.shape;
  if (int64_t{s.batch} * s.output_h * s.output_w >= kLeastOutputs) return true;
  return std::ranges::any_of(params.output.channels, [](const OutputChannel& channel) {
    return channel.multiplier.value != 0 &&
           !OutputColumns::IsVectorShift(-channel.multiplier.exponent);
  });
}

// The parts that convolution, depthwise convolution and fully-connected layers have in common.
template <typename Params>
Result<Params> MakeFilterParams(const Graph& graph, const Node& node, MultiplierForm uint8_form) {
  const FilterTensors t = FilterTensorsOf(graph, node);
  ATOLL_RETURN_IF_ERROR(CheckQuantizedByte("input", t.input));
  ATOLL_RETURN_IF_ERROR(CheckSameType(t.input, t.output));
  ATOLL_RETURN_IF_ERROR(CheckQuantizedByte("output", t.output));
  ATOLL_RETURN_IF_ERROR(CheckWeights(t, t.input.type));
  ATOLL_RETURN_IF_ERROR(CheckBias(t, {DataType::kInt32}));
  const MultiplierForm form =
      t.input.type == DataType::kUInt8 ? uint8_form : MultiplierForm::kDouble;
  if (form == MultiplierForm::kFloatProduct) {
    ATOLL_RETURN_IF_ERROR(CheckBiasScale(t.input, t.weights, t.bias, t.output));
  }
  Params params;
  params.shape = FilterShape(graph, node);
  params.input_type = ToByteType(t.input.type);
  params.weight_type = ToByteType(t.weights.type);
  params.input_zero_point = t.input.zero_point();
  params.weight_zero_point = t.weights.zero_point();
  params.weights = t.weights.data.data();
  params.packed_weights = t.weights.packed_weights;
  params.output.zero_point = t.output.zero_point();
  ATOLL_ASSIGN_OR_RETURN(params.output.clamp, FusedClamp(t.output, FusedActivation(node)));
  params.output.channels =
      MakeChannels(t.input, t.weights, t.bias, t.output, params.shape.output_c, form);
  params.output.finds_fits = FindsFits(params);
  return params;
}

// zero point + round(value / scale), the division in float32, saturated far outside any byte.
int32_t QuantizeBound(const Tensor& tensor, float value) {
  const float steps = std::round(value / tensor.scale());
  return tensor.zero_point() + static_cast<int32_t>(std::clamp(steps, -1e6f, 1e6f));
}

LookupTable MakeLeakyReluNodeTable(const ByteFormat& from, const ByteFormat& to, float alpha) {
  const float negative = from.scale * alpha / to.scale;
  return MakeLeakyReluTable(
      from, to,
      {.positive = QuantizeMultiplier(static_cast<double>(from.scale / to.scale)),
       .negative = QuantizeMultiplier(static_cast<double>(std::abs(negative))),
       .sign = negative < 0 ? -1 : 1});
}

Result<LookupTable> MakeHardSwishNodeTable(const ByteFormat& from, const ByteFormat& to) {
  if (!((1.0f / 128.0f) * from.scale / to.scale < 1)) {
    return CorruptModel("output scale %g is below 1/128 of input scale %g",
                        static_cast<double>(to.scale), static_cast<double>(from.scale));
  }
  return MakeHardSwishTable(from, to);
}

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

Result<ClampRange> FusedClamp(const Tensor& output, Activation activation) {
  const ByteType type = ToByteType(output.type);
  ClampRange clamp{ByteMin(type), ByteMax(type)};
  if (output.type == DataType::kInt16) clamp = {INT16_MIN, INT16_MAX};
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
  return MakeFilterParams<Conv2DParams>(graph, node, MultiplierForm::kFloatProduct);
}

Result<DepthwiseConv2DParams> MakeDepthwiseConv2DParams(const Graph& graph, const Node& node) {
  return MakeFilterParams<DepthwiseConv2DParams>(graph, node, MultiplierForm::kFloatProduct);
}

Result<Conv2DParams> MakeFullyConnectedParams(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(Conv2DParams params,
                         MakeFilterParams<Conv2DParams>(graph, node, MultiplierForm::kDouble));
  params.output.mode = RequantizeMode::kDouble;
  return params;
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

Result<Pool2DParams> MakePool2DParams(const Graph& graph, const Node& node) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  ATOLL_RETURN_IF_ERROR(CheckQuantizedByte("input", input));
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, output));
  ATOLL_RETURN_IF_ERROR(CheckSameQuantization(input, output));
  Pool2DParams params = PoolShape(graph, node);
  params.type = ToByteType(input.type);
  ATOLL_ASSIGN_OR_RETURN(params.clamp, FusedClamp(output, FusedActivation(node)));
  return params;
}

Result<SoftmaxParams> MakeSoftmaxParams(const Graph& graph, const Node& node) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  ATOLL_RETURN_IF_ERROR(CheckQuantizedByte("input", input));
  const ByteType type = ToByteType(input.type);
  const bool is_wide = input.type == DataType::kInt8 && output.type == DataType::kInt16;
  if (!is_wide) ATOLL_RETURN_IF_ERROR(CheckSameType(input, output));
  const float steps = is_wide ? 65536.0f : 256.0f;
  const int32_t zero_point = is_wide ? INT16_MIN : ByteMin(type);
  if (output.zero_point() != zero_point || !(std::abs(output.scale() * steps - 1.0f) <= 1e-3f)) {
    return CorruptModel("output '%s' has scale %g and zero point %d, must have 1/%g and %d",
                        output.name.c_str(), static_cast<double>(output.scale()),
                        output.zero_point(), static_cast<double>(steps), zero_point);
  }
  const float beta = std::get<SoftmaxOptions>(node.options).beta;
  if (!(beta > 0)) return CorruptModel("beta is %g, must be positive", static_cast<double>(beta));
  ATOLL_RETURN_IF_ERROR(CheckRows(input));
  const int32_t depth = input.shape.back();
  SoftmaxParams params =
      MakeSoftmaxParams(input.element_count() / depth, depth, type, beta, input.scale());
  params.to_int16 = is_wide;
  return params;
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

std::vector<bool> ReducedAxes(const Graph& graph, const Node& node) {
  const Tensor& axes = *graph.Input(node, 1);
  std::vector<bool> reduce(graph.Input(node, 0)->shape.size());
  if (axes.element_count() == 0) return reduce;
  for (const int64_t axis : ConstantIntegers(axes)) {
    reduce[NormalizeAxis(axis, reduce.size())] = true;
  }
  return reduce;
}

Result<ByteSumParams> MakeByteSumParams(const Graph& graph, const Node& node) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  ATOLL_RETURN_IF_ERROR(CheckQuantizedByte("input", input));
  ATOLL_RETURN_IF_ERROR(CheckQuantizedByte("output", output));
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, output));
  ATOLL_RETURN_IF_ERROR(CheckElements(input));
  ByteSumParams params;
  params.type = ToByteType(input.type);
  params.input_zero_point = input.zero_point();
  params.output_zero_point = output.zero_point();
  params.clamp = {ByteMin(params.type), ByteMax(params.type)};
  ATOLL_ASSIGN_OR_RETURN(
      params.multiplier,
      MakeSumMultiplier(node.type, input, output, input.element_count() / output.element_count()));
  return params;
}

Status CheckExtremes(const Graph& graph, const Node& node) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, output));
  ATOLL_RETURN_IF_ERROR(CheckElements(input));
  return CheckSameQuantization(input, output);
}

Result<ResizeParams> MakeResizeParams(const Graph& graph, const Node& node) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, output));
  ATOLL_RETURN_IF_ERROR(CheckSameQuantization(input, output));
  const ResizeOptions& options = std::get<ResizeOptions>(node.options);
  ResizeParams params{.batch = input.shape[0],
                      .input_h = input.shape[1],
                      .input_w = input.shape[2],
                      .channels = input.shape[3],
                      .output_h = output.shape[1],
                      .output_w = output.shape[2]};
  if (options.align_corners && options.half_pixel_centers) {
    return CorruptModel("align_corners and half_pixel_centers are both set");
  }
  if (options.align_corners) params.mode = ResizeMode::kAlignCorners;
  if (options.half_pixel_centers) params.mode = ResizeMode::kHalfPixelCenters;
  return params;
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
  const bool is_unsigned = to.type == ByteType::kUInt8;
  switch (node.type) {
    case OpType::kRELU:
      return relu_table(Activation::kRelu);
    case OpType::kRELU6:
      return relu_table(Activation::kRelu6);
    case OpType::kRELU_N1_TO_1:
      return relu_table(Activation::kReluN1To1);
    case OpType::kLOGISTIC:
      ATOLL_RETURN_IF_ERROR(CheckOutputFormat(output, 1.0f / 256, ByteMin(to.type)));
      return MakeLogisticTable(from, to);
    case OpType::kTANH:
      ATOLL_RETURN_IF_ERROR(CheckOutputFormat(output, 1.0f / 128, is_unsigned ? 128 : 0));
      return MakeTanhTable(from, to);
    case OpType::kEXP:
      return MakeExpTable(from, to);
    case OpType::kHARD_SWISH:
      return MakeHardSwishNodeTable(from, to);
    case OpType::kLEAKY_RELU:
      return MakeLeakyReluNodeTable(from, to, std::get<LeakyReluOptions>(node.options).alpha);
    case OpType::kRSQRT:
      if (is_unsigned) {
        return Unsupported("type uint8; TensorFlow Lite computes it for int8 and float32");
      }
      return MakeRsqrtTable(from, to);
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
    // 0 if it is no number, which a denormal scale can lead to.
    part.table[byte] = static_cast<uint8_t>(rounded > 0 ? std::min(rounded, 255.0f) : 0.0f);
  }
  return part;
}

}  // namespace atollrt
