// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/elementwise_params.h"

#include <algorithm>
#include <cmath>

#include "runtime/ops/quantized_params.h"
#include "runtime/ops/tensor_checks.h"

namespace atollrt {
namespace {

Multiplier ToMultiplier(float real) { return QuantizeMultiplier(static_cast<double>(real)); }

bool IsComparison(OpType type) {
  return type == OpType::kEQUAL || type == OpType::kNOT_EQUAL || type == OpType::kLESS ||
         type == OpType::kLESS_EQUAL || type == OpType::kGREATER || type == OpType::kGREATER_EQUAL;
}

PairOp PairOpOf(OpType type) {
  switch (type) {
    case OpType::kSUB:
      return PairOp::kSubtract;
    case OpType::kSQUARED_DIFFERENCE:
      return PairOp::kSquaredDifference;
    case OpType::kMUL:
      return PairOp::kMultiply;
    case OpType::kPRELU:
      return PairOp::kPrelu;
    case OpType::kMAXIMUM:
      return PairOp::kMaximum;
    case OpType::kMINIMUM:
      return PairOp::kMinimum;
    default:
      return PairOp::kAdd;
  }
}

// Multipliers and the shift in front of them. The scales are float32, and products and quotients
// of them are rounded to float32 except where they are widened here. False if the output's scale
// is too small for the operands'.
bool SetMultipliers(OpType type, float s1, float s2, float so, PairParams* params) {
  const double twice_max = 2.0 * static_cast<double>(std::max(s1, s2));
  const auto set_terms = [&](int32_t left_shift) {
    params->left_shift = left_shift;
    params->input1 = QuantizeMultiplier(static_cast<double>(s1) / twice_max);
    params->input2 = QuantizeMultiplier(static_cast<double>(s2) / twice_max);
  };
  switch (type) {
    case OpType::kADD:
    case OpType::kSUB: {
      set_terms(20);
      const double real = twice_max / ((1 << params->left_shift) * static_cast<double>(so));
      params->output = QuantizeMultiplier(real);
      return real < 1;
    }
    case OpType::kMUL:
      params->output = ToMultiplier(s1 * s2 / so);
      break;
    case OpType::kDIV:
      params->output = ToMultiplier(s1 / (s2 * so));
      break;
    case OpType::kPRELU:
      params->input1 = ToMultiplier(s1 / so);
      params->output = ToMultiplier(s1 * s2 / so);
      break;
    case OpType::kSQUARED_DIFFERENCE: {
      set_terms(7);
      constexpr float kFraction = 1 << 14;  // of the square of a term
      params->output =
          QuantizeMultiplier(twice_max * twice_max / static_cast<double>(kFraction * so));
      return params->output.exponent <= 0;
    }
    default:
      break;
  }
  return true;
}

}  // namespace

Result<PairParams> MakePairParams(const Graph& graph, const Node& node) {
  const Tensor& a = *graph.Input(node, 0);
  const Tensor& b = *graph.Input(node, 1);
  const Tensor& output = graph.Output(node);
  PairParams params;
  params.op = PairOpOf(node.type);
  params.type = ToByteType(a.type);
  ATOLL_RETURN_IF_ERROR(CheckSameType(a, b));
  if (params.op == PairOp::kMaximum || params.op == PairOp::kMinimum) {
    ATOLL_RETURN_IF_ERROR(CheckSameType(a, output));
    return params;
  }
  ATOLL_RETURN_IF_ERROR(CheckQuantizedByte("input 0", a));
  ATOLL_RETURN_IF_ERROR(CheckQuantizedByte("input 1", b));
  params.input1_zero_point = a.zero_point();
  params.input2_zero_point = b.zero_point();
  if (IsComparison(node.type)) {
    params.input1 = ToMultiplier(a.scale());
    params.input2 = ToMultiplier(b.scale());
    return params;
  }
  ATOLL_RETURN_IF_ERROR(CheckSameType(a, output));
  ATOLL_RETURN_IF_ERROR(CheckQuantizedByte("output", output));
  if (node.type == OpType::kSQUARED_DIFFERENCE && a.type == DataType::kUInt8) {
    return Unsupported("type uint8; TensorFlow Lite computes it for int8, int32 and float32");
  }
  params.output_zero_point = output.zero_point();
  if (!SetMultipliers(node.type, a.scale(), b.scale(), output.scale(), &params)) {
    return CorruptModel("output scale %g is too small for inputs of scale %g and %g",
                        static_cast<double>(output.scale()), static_cast<double>(a.scale()),
                        static_cast<double>(b.scale()));
  }
  const auto* options = std::get_if<ElementwiseOptions>(&node.options);
  ATOLL_ASSIGN_OR_RETURN(params.clamp, FusedClamp(output, options != nullptr ? options->activation
                                                                             : Activation::kNone));
  return params;
}

Result<Add16Params> MakeAdd16Params(const Graph& graph, const Node& node) {
  const Tensor& a = *graph.Input(node, 0);
  const Tensor& b = *graph.Input(node, 1);
  const Tensor& output = graph.Output(node);
  ATOLL_RETURN_IF_ERROR(CheckQuantizedInt16("input 0", a));
  ATOLL_RETURN_IF_ERROR(CheckQuantizedInt16("input 1", b));
  ATOLL_RETURN_IF_ERROR(CheckQuantizedInt16("output", output));
  const ElementwiseOptions& options = std::get<ElementwiseOptions>(node.options);
  Add16Params params;
  params.sign = node.type == OpType::kSUB ? -1 : 1;
  ATOLL_ASSIGN_OR_RETURN(params.clamp, FusedClamp(output, options.activation));
  int32_t log1 = 0, log2 = 0, log_out = 0;
  if (options.pot_scale_int16 && IsPowerOfTwo(a.scale(), &log1) && IsPowerOfTwo(b.scale(), &log2) &&
      IsPowerOfTwo(output.scale(), &log_out)) {
    params.form = Add16Form::kPowersOfTwo;
    params.shift1 = log_out - log1;
    params.shift2 = log_out - log2;
    if (std::min(params.shift1, params.shift2) != 0 ||
        std::max(params.shift1, params.shift2) > 31) {
      return CorruptModel(
          "input scales 2^%d and 2^%d for output scale 2^%d: one must be the output's, the other "
          "at most that",
          log1, log2, log_out);
    }
    return params;
  }
  constexpr int kLeftShift = 15;
  const double twice_max = 2.0 * static_cast<double>(std::max(a.scale(), b.scale()));
  const double output_real = twice_max / ((1 << kLeftShift) * static_cast<double>(output.scale()));
  if (!(output_real < 1)) {
    return CorruptModel("output scale %g is too small for inputs of scale %g and %g",
                        static_cast<double>(output.scale()), static_cast<double>(a.scale()),
                        static_cast<double>(b.scale()));
  }
  params.input1 = QuantizeMultiplier(static_cast<double>(a.scale()) / twice_max);
  params.input2 = QuantizeMultiplier(static_cast<double>(b.scale()) / twice_max);
  params.output = QuantizeMultiplier(output_real);
  return params;
}

Result<LogSoftmaxParams> MakeLogSoftmaxParams(const Graph& graph, const Node& node) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  ATOLL_RETURN_IF_ERROR(CheckQuantizedByte("input", input));
  ATOLL_RETURN_IF_ERROR(CheckQuantizedByte("output", output));
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, output));
  ATOLL_RETURN_IF_ERROR(CheckRows(input));
  const ByteType type = ToByteType(input.type);
  ATOLL_RETURN_IF_ERROR(CheckOutputFormat(output, 1.0f / 16, ByteMax(type)));
  constexpr float kMinScale = 1.0f / (1 << 26);
  if (input.scale() < kMinScale) {
    return CorruptModel("input '%s' has scale %g, must be at least 2^-26", input.name.c_str(),
                        static_cast<double>(input.scale()));
  }
  const int32_t depth = input.shape.back();
  return MakeLogSoftmaxParams(input.element_count() / depth, depth, type, input.scale());
}

Result<L2NormalizationParams> MakeL2NormalizationParams(const Graph& graph, const Node& node) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  ATOLL_RETURN_IF_ERROR(CheckQuantizedByte("input", input));
  ATOLL_RETURN_IF_ERROR(CheckQuantizedByte("output", output));
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, output));
  ATOLL_RETURN_IF_ERROR(CheckRows(input));
  ATOLL_RETURN_IF_ERROR(
      CheckOutputFormat(output, 1.0f / 128, output.type == DataType::kUInt8 ? 128 : 0));
  if (std::get<ElementwiseOptions>(node.options).activation != Activation::kNone) {
    return Unsupported("a fused activation");
  }
  L2NormalizationParams params;
  params.depth = input.shape.back();
  params.rows = input.element_count() / params.depth;
  params.type = ToByteType(input.type);
  params.input_zero_point = input.zero_point();
  return params;
}

}  // namespace atollrt
