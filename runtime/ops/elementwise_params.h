// SPDX-License-Identifier: Apache-2.0
//
// From a node to the parameters of its element-wise or normalising kernel: the checks and the
// setup arithmetic of docs/quantization.md §4, §5 and §8. Otherwise as quantized_params.h.
#pragma once

#include "atoll/status.h"
#include "runtime/graph/graph.h"
#include "runtime/kernels/normalization.h"
#include "runtime/kernels/pairs/pairs.h"
#include "runtime/kernels/quantization/quantization.h"

namespace atollrt {

// ADD, SUB, MUL, DIV, MAXIMUM, MINIMUM, SQUARED_DIFFERENCE (int8 only), PRELU and comparisons of
// bytes; shapes are the caller's business.
Result<PairParams> MakePairParams(const Graph& graph, const Node& node);

// ADD, SUB of int16.
Result<Add16Params> MakeAdd16Params(const Graph& graph, const Node& node);

Result<LogSoftmaxParams> MakeLogSoftmaxParams(const Graph& graph, const Node& node);
Result<L2NormalizationParams> MakeL2NormalizationParams(const Graph& graph, const Node& node);

// A fused activation of a type that is not quantized. kUnsupported for TANH and SIGN_BIT.
template <typename T>
Result<ValueClamp<T>> FusedValueClamp(Activation activation) {
  ValueClamp<T> clamp;
  switch (activation) {
    case Activation::kNone:
      return clamp;
    case Activation::kRelu:
      clamp.min = 0;
      return clamp;
    case Activation::kRelu6:
      return ValueClamp<T>{0, 6};
    case Activation::kReluN1To1:
      return ValueClamp<T>{-1, 1};
    case Activation::kTanh:
    case Activation::kSignBit:
      break;
  }
  return Unsupported("fused activation %s", activation == Activation::kTanh ? "TANH" : "SIGN_BIT");
}

}  // namespace atollrt
