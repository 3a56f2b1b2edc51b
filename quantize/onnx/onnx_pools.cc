// SPDX-License-Identifier: Apache-2.0
//
// Pools.
#include <algorithm>
#include <cfloat>
#include <variant>

#include "quantize/onnx/onnx_operators.h"
#include "quantize/onnx/onnx_window.h"

namespace atollrt {
namespace {

// Windows that ceil_mode adds reach beyond the padding, but begin before its end.
void ApplyCeilMode(const OnnxNodeImport& n, OnnxWindow* window) {
  if (n.Int("ceil_mode", 0) == 0) return;
  for (int i = 0; i < 2; ++i) {
    const int64_t padded = window->input[i] + window->before[i] + window->after[i];
    const int64_t room = padded - window->extent(i);
    if (room < 0) continue;
    int64_t windows = (room + window->stride[i] - 1) / window->stride[i] + 1;
    if ((windows - 1) * window->stride[i] >= window->input[i] + window->before[i]) --windows;
    const int64_t reach = (windows - 1) * window->stride[i] + window->extent(i);
    if (reach > padded) window->after[i] += reach - padded;
  }
}

// Whether no element of a tensor is below 0.
bool IsNonNegative(OnnxNodeImport& n, int32_t tensor) {
  for (int depth = 0; depth < 64; ++depth) {
    const Node* node = n.b.Producer(tensor);
    if (node == nullptr) return false;
    Activation activation = Activation::kNone;
    if (const auto* conv = std::get_if<Conv2DOptions>(&node->options)) {
      activation = conv->activation;
    } else if (const auto* elementwise = std::get_if<ElementwiseOptions>(&node->options)) {
      activation = elementwise->activation;
    }
    if (activation == Activation::kRelu || activation == Activation::kRelu6) return true;
    switch (node->type) {
      case OpType::kRELU:
      case OpType::kRELU6:
      case OpType::kLOGISTIC:
      case OpType::kSOFTMAX:
        return true;
      case OpType::kRESHAPE:
      case OpType::kTRANSPOSE:
      case OpType::kMAX_POOL_2D:
      case OpType::kPAD:
      case OpType::kSLICE:
        tensor = node->inputs[0];
        break;
      default:
        return false;
    }
  }
  return false;
}

Pool2DOptions PoolOptions(const OnnxWindow& window, Padding padding) {
  Pool2DOptions options;
  options.padding = padding;
  options.stride_h = static_cast<int32_t>(window.stride[0]);
  options.stride_w = static_cast<int32_t>(window.stride[1]);
  options.filter_h = static_cast<int32_t>(window.filter[0]);
  options.filter_w = static_cast<int32_t>(window.filter[1]);
  return options;
}

Result<OnnxWindow> ReadPool(const OnnxNodeImport& n, const OnnxValue& x) {
  ATOLL_ASSIGN_OR_RETURN(OnnxWindow window, ReadWindow(n, x, n.Ints("kernel_shape")));
  if (window.dilation[0] != 1 || window.dilation[1] != 1) {
    return Unsupported("dilations of %lld x %lld; pools without holes are supported",
                       static_cast<long long>(window.dilation[0]),
                       static_cast<long long>(window.dilation[1]));
  }
  ApplyCeilMode(n, &window);
  return window;
}

Status ImportMaxPool(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.FloatInput(0));
  if (n.node.outputs.size() > 1 && !n.node.outputs[1].empty()) {
    return Unsupported("the output Indices; export without return_indices");
  }
  if (n.Int("storage_order", 0) != 0) return Unsupported("storage_order 1");
  ATOLL_ASSIGN_OR_RETURN(const OnnxWindow window, ReadPool(n, *x));
  const size_t rank = x->rank();
  ATOLL_ASSIGN_OR_RETURN(int32_t tensor, AsPicture(n, *x));
  Padding padding = Padding::kValid;
  if (window.padded() && IsSamePadding(window)) {
    padding = Padding::kSame;
  } else {
    // Padding never wins: 0 is the least element behind a ReLU.
    const float least = IsNonNegative(n, tensor) ? 0.0f : -FLT_MAX;
    ATOLL_ASSIGN_OR_RETURN(tensor, EmitPad(n, tensor, window, least));
  }
  ATOLL_ASSIGN_OR_RETURN(tensor,
                         n.b.Emit(OpType::kMAX_POOL_2D, {tensor}, PoolOptions(window, padding)));
  return SetPicture(n, tensor, rank);
}

Status ImportAveragePool(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.FloatInput(0));
  ATOLL_ASSIGN_OR_RETURN(const OnnxWindow window, ReadPool(n, *x));
  const bool include_pad = n.Int("count_include_pad", 0) != 0;
  const size_t rank = x->rank();
  ATOLL_ASSIGN_OR_RETURN(int32_t tensor, AsPicture(n, *x));
  if (!window.padded() || (!include_pad && IsSamePadding(window))) {
    const Padding padding = window.padded() ? Padding::kSame : Padding::kValid;
    ATOLL_ASSIGN_OR_RETURN(
        tensor, n.b.Emit(OpType::kAVERAGE_POOL_2D, {tensor}, PoolOptions(window, padding)));
    return SetPicture(n, tensor, rank);
  }
  ATOLL_ASSIGN_OR_RETURN(tensor, EmitPad(n, tensor, window, 0));
  ATOLL_ASSIGN_OR_RETURN(
      tensor, n.b.Emit(OpType::kAVERAGE_POOL_2D, {tensor}, PoolOptions(window, Padding::kValid)));
  // The average counts every cell of a window, and so does ONNX if it is told to count the padding.
  if (include_pad) return SetPicture(n, tensor, rank);
  std::vector<float> factors[2];
  bool all_one = true;
  const Shape shape = n.b.tensor(tensor).shape;
  for (int i = 0; i < 2; ++i) {
    const int64_t low = window.before[i];
    const int64_t high = window.before[i] + window.input[i];
    ATOLL_RETURN_IF_ERROR(n.b.Charge(shape[1 + i], sizeof(float)));
    for (int64_t k = 0; k < shape[1 + i]; ++k) {
      const int64_t begin = std::max(low, k * window.stride[i]);
      const int64_t end = std::min(high, k * window.stride[i] + window.filter[i]);
      if (end <= begin) return Unsupported("a window that lies in the padding alone");
      factors[i].push_back(static_cast<float>(window.filter[i]) / static_cast<float>(end - begin));
      all_one &= end - begin == window.filter[i];
    }
  }
  if (!all_one) {
    ATOLL_RETURN_IF_ERROR(n.b.Charge(int64_t{shape[1]} * shape[2], sizeof(float)));
    std::vector<float> factor;
    for (const float h : factors[0]) {
      for (const float w : factors[1]) factor.push_back(h * w);
    }
    ATOLL_ASSIGN_OR_RETURN(const int32_t constant,
                           n.b.FloatTensor({1, shape[1], shape[2], 1}, factor));
    ATOLL_ASSIGN_OR_RETURN(tensor,
                           n.b.Emit(OpType::kMUL, {tensor, constant}, ElementwiseOptions{}));
  }
  return SetPicture(n, tensor, rank);
}

Status ImportGlobalPool(OnnxNodeImport& n, OpType type) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.FloatInput(0));
  if (x->rank() < 3) return CorruptModel("an input of shape %s", DimsString(x->dims).c_str());
  Perm perm;
  ATOLL_ASSIGN_OR_RETURN(const int32_t tensor, n.b.AnyOrder(*x, &perm));
  std::vector<int32_t> axes;
  for (size_t i = 0; i < perm.size(); ++i) {
    if (perm[i] >= 2) axes.push_back(static_cast<int32_t>(i));
  }
  ATOLL_ASSIGN_OR_RETURN(const int32_t constant,
                         n.b.IntTensor({static_cast<int32_t>(axes.size())}, axes));
  ATOLL_ASSIGN_OR_RETURN(const int32_t result,
                         n.b.Emit(type, {tensor, constant}, ReducerOptions{true}));
  return n.SetTensor(result, perm);
}

}  // namespace

std::vector<OnnxOperatorEntry> OnnxPoolOperators() {
  return {
      {"MaxPool", ImportMaxPool},
      {"AveragePool", ImportAveragePool},
      {"GlobalAveragePool", [](OnnxNodeImport& n) { return ImportGlobalPool(n, OpType::kMEAN); }},
      {"GlobalMaxPool", [](OnnxNodeImport& n) { return ImportGlobalPool(n, OpType::kREDUCE_MAX); }},
  };
}

}  // namespace atollrt
