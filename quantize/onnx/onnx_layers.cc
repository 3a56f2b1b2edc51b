// SPDX-License-Identifier: Apache-2.0
//
// Convolutions, batch normalization and matrix products.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "quantize/onnx/onnx_operators.h"
#include "quantize/onnx/onnx_window.h"
#include "runtime/shapes/shape_inference.h"

namespace atollrt {
namespace {

Conv2DOptions ConvOptions(const OnnxWindow& window, Padding padding) {
  Conv2DOptions options;
  options.padding = padding;
  options.stride_h = static_cast<int32_t>(window.stride[0]);
  options.stride_w = static_cast<int32_t>(window.stride[1]);
  options.dilation_h = static_cast<int32_t>(window.dilation[0]);
  options.dilation_w = static_cast<int32_t>(window.dilation[1]);
  return options;
}

// The weights and bias of a convolution, constants: [O, I / groups, H, W] (of a transposed one
// [I, O / groups, H, W]), and a bias of zeros if there is none.
struct Filter {
  OnnxValue weights;
  std::vector<float> bias;
};
Result<Filter> ReadFilter(OnnxNodeImport& n, size_t rank, int64_t outputs) {
  Filter filter;
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* weights, n.FloatInput(1));
  if (!weights->is_constant()) {
    return Unsupported("weights that are computed at run time; they must be an initializer");
  }
  filter.weights = *weights;
  if (rank == 3) filter.weights.dims.insert(filter.weights.dims.begin() + 2, 1);
  if (n.has(2)) {
    ATOLL_ASSIGN_OR_RETURN(filter.bias, n.FloatsAt(2, "the bias"));
    if (static_cast<int64_t>(filter.bias.size()) != outputs) {
      return CorruptModel("a bias of %zu for %lld output channels", filter.bias.size(),
                          static_cast<long long>(outputs));
    }
  } else {
    ATOLL_RETURN_IF_ERROR(n.b.Charge(outputs, sizeof(float)));
    filter.bias.assign(static_cast<size_t>(outputs), 0.0f);
  }
  return filter;
}

// Outputs first ... first + count - 1 of a filter.
Result<OnnxValue> FilterRows(OnnxNodeImport& n, const OnnxValue& weights, int64_t first,
                             int64_t count) {
  Dims dims = weights.dims;
  const int64_t row = DimsCount(dims) / dims[0];
  dims[0] = count;
  const auto begin = weights.constant->floats.begin() + first * row;
  return n.b.Floats(std::move(dims), std::vector<float>(begin, begin + count * row));
}

// A tensor for the constant alone, so that batch normalization may change it.
Result<int32_t> OwnTensor(OnnxNodeImport& n, const OnnxValue& value, const Perm& perm) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue permuted, n.b.Permute(value, perm));
  return n.b.FloatTensor(ToShape(permuted.dims), permuted.constant->floats);
}

Result<std::vector<int32_t>> SplitChannels(OnnxNodeImport& n, int32_t x, int64_t groups) {
  ATOLL_ASSIGN_OR_RETURN(const int32_t axis, n.b.IntTensor({}, {3}));
  return n.b.EmitMany(OpType::kSPLIT, {axis, x}, static_cast<size_t>(groups),
                      SplitOptions{static_cast<int32_t>(groups)}, DataType::kFloat32);
}

Status CheckGroups(int64_t groups, int64_t channels, const Dims& weights) {
  if (groups < 1 || channels % groups != 0) {
    return CorruptModel("group is %lld for %lld channels", static_cast<long long>(groups),
                        static_cast<long long>(channels));
  }
  for (const int64_t size : weights) {
    if (size < 1) return CorruptModel("weights of shape %s", DimsString(weights).c_str());
  }
  return Status();
}

Status ImportConv(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.FloatInput(0));
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* w, n.FloatInput(1));
  if (w->rank() != x->rank() || w->rank() < 3) {
    return Unsupported(
        "an input of shape %s with weights of shape %s; convolutions over one or "
        "two axes are supported",
        DimsString(x->dims).c_str(), DimsString(w->dims).c_str());
  }
  ATOLL_ASSIGN_OR_RETURN(const OnnxWindow window,
                         ReadWindow(n, *x, Dims(w->dims.begin() + 2, w->dims.end())));
  const int64_t groups = n.Int("group", 1);
  ATOLL_RETURN_IF_ERROR(CheckGroups(groups, x->dims[1], w->dims));
  const int64_t outputs = w->dims[0];
  if (w->dims[1] != x->dims[1] / groups || outputs % groups != 0) {
    return CorruptModel("weights of shape %s for %lld channels in %lld groups",
                        DimsString(w->dims).c_str(), static_cast<long long>(x->dims[1]),
                        static_cast<long long>(groups));
  }
  ATOLL_ASSIGN_OR_RETURN(const Filter filter, ReadFilter(n, x->rank(), outputs));
  ATOLL_ASSIGN_OR_RETURN(int32_t tensor, AsPicture(n, *x));
  Padding padding = Padding::kValid;
  if (window.padded() && IsSamePadding(window)) {
    padding = Padding::kSame;
  } else {
    ATOLL_ASSIGN_OR_RETURN(tensor, EmitPad(n, tensor, window, 0));
  }
  const Conv2DOptions options = ConvOptions(window, padding);
  const size_t rank = x->rank();
  if (groups > 1 && groups == x->dims[1]) {
    ATOLL_ASSIGN_OR_RETURN(const int32_t weights, OwnTensor(n, filter.weights, {1, 2, 3, 0}));
    ATOLL_ASSIGN_OR_RETURN(const int32_t bias,
                           n.b.FloatTensor({static_cast<int32_t>(outputs)}, filter.bias));
    ATOLL_ASSIGN_OR_RETURN(tensor,
                           n.b.Emit(OpType::kDEPTHWISE_CONV_2D, {tensor, weights, bias}, options));
    return SetPicture(n, tensor, rank);
  }
  std::vector<int32_t> parts = {tensor};
  if (groups > 1) {
    ATOLL_ASSIGN_OR_RETURN(parts, SplitChannels(n, tensor, groups));
  }
  const int64_t count = outputs / groups;
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t first = static_cast<int64_t>(i) * count;
    ATOLL_ASSIGN_OR_RETURN(const OnnxValue rows, FilterRows(n, filter.weights, first, count));
    ATOLL_ASSIGN_OR_RETURN(const int32_t weights, OwnTensor(n, rows, {0, 2, 3, 1}));
    ATOLL_ASSIGN_OR_RETURN(
        const int32_t bias,
        n.b.FloatTensor({static_cast<int32_t>(count)},
                        {filter.bias.begin() + first, filter.bias.begin() + first + count}));
    ATOLL_ASSIGN_OR_RETURN(parts[i],
                           n.b.Emit(OpType::kCONV_2D, {parts[i], weights, bias}, options));
  }
  tensor = parts[0];
  if (groups > 1) {
    AxisOptions axis;
    axis.axis = 3;
    ATOLL_ASSIGN_OR_RETURN(tensor, n.b.Emit(OpType::kCONCATENATION, parts, axis));
  }
  return SetPicture(n, tensor, rank);
}

// [I, O, H, W] with zeros between the taps.
Result<OnnxValue> Dilate(OnnxNodeImport& n, const OnnxValue& weights, const OnnxWindow& window) {
  if (window.dilation[0] == 1 && window.dilation[1] == 1) return weights;
  Dims dims = weights.dims;
  dims[2] = window.extent(0);
  dims[3] = window.extent(1);
  ATOLL_RETURN_IF_ERROR(n.b.Charge(DimsCount(dims), sizeof(float)));
  std::vector<float> values(static_cast<size_t>(DimsCount(dims)), 0.0f);
  size_t source = 0;
  for (int64_t plane = 0; plane < dims[0] * dims[1]; ++plane) {
    for (int64_t y = 0; y < window.filter[0]; ++y) {
      for (int64_t x = 0; x < window.filter[1]; ++x) {
        values[static_cast<size_t>((plane * dims[2] + y * window.dilation[0]) * dims[3] +
                                   x * window.dilation[1])] = weights.constant->floats[source++];
      }
    }
  }
  return n.b.Floats(std::move(dims), std::move(values));
}

// What a transposed convolution makes of its window: all that the filter reaches, and of that the
// output, between the pads.
struct TransposedSizes {
  int64_t full[2];
  int64_t output[2];
  bool is_same = true;  // the pads are those of SAME, and the operator leaves them out itself
  const int64_t* emitted() const { return is_same ? output : full; }
};

Result<TransposedSizes> TransposedSizesOf(const OnnxWindow& window, const int64_t extra[2]) {
  TransposedSizes sizes;
  for (int i = 0; i < 2; ++i) {
    const int64_t extent = window.extent(i);
    // With what the padding at the end takes away, and what output_padding adds.
    sizes.full[i] = (window.input[i] - 1) * window.stride[i] + extent + extra[i];
    sizes.output[i] = sizes.full[i] - window.before[i] - window.after[i];
    if (sizes.output[i] < 1 || sizes.full[i] > INT32_MAX || extra[i] >= window.stride[i]) {
      return CorruptModel("pads and output_padding that make %lld of %lld cells",
                          static_cast<long long>(sizes.output[i]),
                          static_cast<long long>(sizes.full[i]));
    }
    const WindowResult result =
        ResolveWindow({static_cast<int32_t>(sizes.output[i]), static_cast<int32_t>(extent),
                       static_cast<int32_t>(window.stride[i]), 1},
                      Padding::kSame);
    sizes.is_same &= result.output == window.input[i] && result.pad_before == window.before[i];
  }
  return sizes;
}

// One operator for each group, of `count` output channels, and their outputs joined.
Result<int32_t> EmitTransposedGroups(OnnxNodeImport& n, int32_t picture, int64_t groups,
                                     int64_t count, const Filter& filter,
                                     const TransposedSizes& sizes, const Conv2DOptions& options) {
  std::vector<int32_t> parts = {picture};
  if (groups > 1) {
    ATOLL_ASSIGN_OR_RETURN(parts, SplitChannels(n, picture, groups));
  }
  const int32_t batch = n.b.tensor(picture).shape[0];
  const int64_t inputs = n.b.tensor(picture).shape[3] / groups;
  for (size_t i = 0; i < parts.size(); ++i) {
    ATOLL_ASSIGN_OR_RETURN(const OnnxValue rows,
                           FilterRows(n, filter.weights, static_cast<int64_t>(i) * inputs, inputs));
    ATOLL_ASSIGN_OR_RETURN(const int32_t weights, OwnTensor(n, rows, {1, 2, 3, 0}));
    const auto first = filter.bias.begin() + static_cast<int64_t>(i) * count;
    ATOLL_ASSIGN_OR_RETURN(const int32_t bias,
                           n.b.FloatTensor({static_cast<int32_t>(count)}, {first, first + count}));
    ATOLL_ASSIGN_OR_RETURN(const int32_t shape,
                           n.b.IntTensor({4}, {batch, static_cast<int32_t>(sizes.emitted()[0]),
                                               static_cast<int32_t>(sizes.emitted()[1]),
                                               static_cast<int32_t>(count)}));
    ATOLL_ASSIGN_OR_RETURN(
        parts[i], n.b.Emit(OpType::kTRANSPOSE_CONV, {shape, weights, parts[i], bias}, options));
  }
  if (groups == 1) return parts[0];
  AxisOptions axis;
  axis.axis = 3;
  return n.b.Emit(OpType::kCONCATENATION, parts, axis);
}

Status ImportConvTranspose(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.FloatInput(0));
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* w, n.FloatInput(1));
  if (w->rank() != x->rank() || w->rank() < 3) {
    return Unsupported("an input of shape %s with weights of shape %s", DimsString(x->dims).c_str(),
                       DimsString(w->dims).c_str());
  }
  const std::string_view auto_pad = n.Text("auto_pad", "NOTSET");
  if (auto_pad != "NOTSET" && auto_pad != "VALID") {
    return Unsupported("auto_pad '%s'; export with pads", std::string(auto_pad).c_str());
  }
  if (!n.Ints("output_shape").empty()) {
    return Unsupported("the attribute output_shape; export with pads and output_padding");
  }
  ATOLL_ASSIGN_OR_RETURN(OnnxWindow window,
                         ReadWindow(n, *x, Dims(w->dims.begin() + 2, w->dims.end())));
  const int64_t groups = n.Int("group", 1);
  ATOLL_RETURN_IF_ERROR(CheckGroups(groups, x->dims[1], w->dims));
  if (w->dims[0] != x->dims[1]) {
    return CorruptModel("weights of shape %s for %lld channels", DimsString(w->dims).c_str(),
                        static_cast<long long>(x->dims[1]));
  }
  int64_t extra[2] = {0, 0};
  ATOLL_RETURN_IF_ERROR(ReadWindowAxes(n, "output_padding", x->rank() - 2, 0, extra));
  const size_t rank = x->rank();
  const int64_t count = w->dims[1];
  ATOLL_ASSIGN_OR_RETURN(Filter filter, ReadFilter(n, rank, count * groups));
  ATOLL_ASSIGN_OR_RETURN(filter.weights, Dilate(n, filter.weights, window));
  ATOLL_ASSIGN_OR_RETURN(const TransposedSizes sizes, TransposedSizesOf(window, extra));
  Conv2DOptions options = ConvOptions(window, sizes.is_same ? Padding::kSame : Padding::kValid);
  options.dilation_h = options.dilation_w = 1;
  ATOLL_ASSIGN_OR_RETURN(const int32_t picture, AsPicture(n, *x));
  ATOLL_ASSIGN_OR_RETURN(int32_t tensor,
                         EmitTransposedGroups(n, picture, groups, count, filter, sizes, options));
  if (!sizes.is_same && window.padded()) {
    ATOLL_ASSIGN_OR_RETURN(const int32_t begin,
                           n.b.IntTensor({4}, {0, static_cast<int32_t>(window.before[0]),
                                               static_cast<int32_t>(window.before[1]), 0}));
    const std::vector<int32_t>& shape = n.b.tensor(tensor).shape;
    ATOLL_ASSIGN_OR_RETURN(const int32_t cut,
                           n.b.IntTensor({4}, {shape[0], static_cast<int32_t>(sizes.output[0]),
                                               static_cast<int32_t>(sizes.output[1]), shape[3]}));
    ATOLL_ASSIGN_OR_RETURN(tensor, n.b.Emit(OpType::kSLICE, {tensor, begin, cut}));
  }
  return SetPicture(n, tensor, rank);
}

// ---- Batch normalization ----

bool FoldIntoConvolution(OnnxNodeImport& n, const OnnxValue& x, const std::vector<float>& scale,
                         const std::vector<float>& shift) {
  if (x.is_constant() || !n.OnlyReader(0) || x.rank() != 4 || x.perm != ChannelsLast(4)) {
    return false;
  }
  const Node* node = n.b.Producer(x.tensor);
  if (node == nullptr) return false;
  const bool depthwise = node->type == OpType::kDEPTHWISE_CONV_2D;
  if (node->type != OpType::kCONV_2D && node->type != OpType::kTRANSPOSE_CONV && !depthwise) {
    return false;
  }
  if (std::get<Conv2DOptions>(node->options).activation != Activation::kNone) return false;
  const size_t bias_at = node->type == OpType::kTRANSPOSE_CONV ? 3 : 2;
  std::vector<uint8_t>* weights = n.b.ConstantBytes(node->inputs[1]);
  std::vector<uint8_t>* bias = n.b.ConstantBytes(node->inputs[bias_at]);
  if (weights == nullptr || bias == nullptr) return false;
  const size_t channels = scale.size();
  const size_t count = weights->size() / sizeof(float);
  const size_t per_channel = count / channels;
  // One normalization behind another would go through all weights once more.
  if (!n.b.Charge(static_cast<int64_t>(count), sizeof(float)).ok()) return false;
  for (size_t i = 0; i < count; ++i) {
    const size_t channel = depthwise ? i % channels : i / per_channel;
    float value = 0;
    std::memcpy(&value, weights->data() + i * sizeof(float), sizeof(float));
    value *= scale[channel];
    std::memcpy(weights->data() + i * sizeof(float), &value, sizeof(float));
  }
  for (size_t i = 0; i < channels; ++i) {
    float value = 0;
    std::memcpy(&value, bias->data() + i * sizeof(float), sizeof(float));
    value = value * scale[i] + shift[i];
    std::memcpy(bias->data() + i * sizeof(float), &value, sizeof(float));
  }
  return true;
}

Status ImportBatchNormalization(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.FloatInput(0));
  if (n.Int("training_mode", 0) != 0) {
    return Unsupported("training_mode 1; export the model in evaluation mode");
  }
  if (n.opset < 9 && n.Int("spatial", 1) == 0) return Unsupported("spatial 0");
  if (x->rank() < 2) return CorruptModel("an input of shape %s", DimsString(x->dims).c_str());
  std::vector<float> parameters[4];
  constexpr const char* kNames[] = {"the scale", "B", "the mean", "the variance"};
  for (size_t i = 0; i < 4; ++i) {
    ATOLL_ASSIGN_OR_RETURN(parameters[i], n.FloatsAt(1 + i, kNames[i]));
    if (static_cast<int64_t>(parameters[i].size()) != x->dims[1]) {
      return CorruptModel("%s has %zu numbers for %lld channels", kNames[i], parameters[i].size(),
                          static_cast<long long>(x->dims[1]));
    }
  }
  const float epsilon = n.Float("epsilon", 1e-5f);
  std::vector<float> scale;
  std::vector<float> shift;
  for (size_t i = 0; i < parameters[0].size(); ++i) {
    const double factor = parameters[0][i] / std::sqrt(double{parameters[3][i]} + epsilon);
    scale.push_back(static_cast<float>(factor));
    shift.push_back(static_cast<float>(parameters[1][i] - parameters[2][i] * factor));
  }
  if (FoldIntoConvolution(n, *x, scale, shift)) return n.Set(*x);
  const Perm perm = ChannelsLast(x->rank());
  ATOLL_ASSIGN_OR_RETURN(int32_t tensor, n.b.Stored(*x, perm));
  const int32_t channels = static_cast<int32_t>(scale.size());
  ATOLL_ASSIGN_OR_RETURN(const int32_t factor, n.b.FloatTensor({channels}, scale));
  ATOLL_ASSIGN_OR_RETURN(const int32_t addend, n.b.FloatTensor({channels}, shift));
  ATOLL_ASSIGN_OR_RETURN(tensor, n.b.Emit(OpType::kMUL, {tensor, factor}, ElementwiseOptions{}));
  ATOLL_ASSIGN_OR_RETURN(tensor, n.b.Emit(OpType::kADD, {tensor, addend}, ElementwiseOptions{}));
  return n.SetTensor(tensor, perm);
}

// ---- Matrix products ----

// FULLY_CONNECTED of a tensor [..., K] with a constant [N, K] and a bias.
Result<int32_t> EmitFullyConnected(OnnxNodeImport& n, int32_t tensor, const OnnxValue& weights,
                                   const std::vector<float>& bias) {
  ATOLL_ASSIGN_OR_RETURN(const int32_t w, n.b.ConstantTensor(weights));
  ATOLL_ASSIGN_OR_RETURN(const int32_t b,
                         n.b.FloatTensor({static_cast<int32_t>(bias.size())}, bias));
  FullyConnectedOptions options;
  options.keep_num_dims = n.b.tensor(tensor).shape.size() != 2;
  return n.b.Emit(OpType::kFULLY_CONNECTED, {tensor, w, b}, options);
}

Status ImportMatMul(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* a, n.FloatInput(0));
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* w, n.FloatInput(1));
  if (a->rank() < 2 || w->rank() < 2) {
    return Unsupported("vectors as operands: %s and %s; reshape them to matrices",
                       DimsString(a->dims).c_str(), DimsString(w->dims).c_str());
  }
  if (a->dims.back() != w->dims[w->rank() - 2]) {
    return CorruptModel("matrices of %s and %s", DimsString(a->dims).c_str(),
                        DimsString(w->dims).c_str());
  }
  const size_t rank = std::max(a->rank(), w->rank());
  ATOLL_ASSIGN_OR_RETURN(const int32_t left, n.b.InOrder(*a));
  int32_t result = -1;
  if (w->is_constant() && w->rank() == 2) {
    ATOLL_ASSIGN_OR_RETURN(const OnnxValue weights, n.b.Permute(*w, {1, 0}));
    ATOLL_RETURN_IF_ERROR(n.b.Charge(w->dims[1], sizeof(float)));
    const std::vector<float> bias(static_cast<size_t>(w->dims[1]), 0.0f);
    ATOLL_ASSIGN_OR_RETURN(result, EmitFullyConnected(n, left, weights, bias));
  } else {
    ATOLL_ASSIGN_OR_RETURN(const int32_t right, n.b.InOrder(*w));
    ATOLL_ASSIGN_OR_RETURN(result,
                           n.b.Emit(OpType::kBATCH_MATMUL, {left, right}, BatchMatMulOptions{}));
  }
  return n.SetTensor(result, IdentityPerm(rank));
}

Status ImportGemm(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* a, n.FloatInput(0));
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* w, n.FloatInput(1));
  if (a->rank() != 2 || w->rank() != 2) {
    return CorruptModel("matrices of %s and %s", DimsString(a->dims).c_str(),
                        DimsString(w->dims).c_str());
  }
  const float alpha = n.Float("alpha", 1);
  const float beta = n.Float("beta", 1);
  const bool transposed = n.Int("transB", 0) != 0;
  ATOLL_ASSIGN_OR_RETURN(const int32_t left,
                         n.b.Stored(*a, n.Int("transA", 0) != 0 ? Perm{1, 0} : Perm{0, 1}));
  const int64_t depth = n.b.tensor(left).shape[1];
  const int64_t units = w->dims[transposed ? 0 : 1];
  if (w->dims[transposed ? 1 : 0] != depth || units < 1) {
    return CorruptModel("matrices of %s and %s", DimsString(a->dims).c_str(),
                        DimsString(w->dims).c_str());
  }
  ATOLL_RETURN_IF_ERROR(n.b.Charge(units, sizeof(float)));
  std::vector<float> bias(static_cast<size_t>(units), 0.0f);
  const OnnxValue* addend = nullptr;  // what is no bias
  if (n.has(2)) {
    ATOLL_ASSIGN_OR_RETURN(addend, n.FloatInput(2));
    const bool row = addend->is_constant() &&
                     (DimsCount(addend->dims) == 1 ||
                      (DimsCount(addend->dims) == units && addend->dims.back() == units));
    if (row && w->is_constant()) {
      const std::vector<float>& values = addend->constant->floats;
      for (size_t i = 0; i < bias.size(); ++i) bias[i] = beta * values[values.size() == 1 ? 0 : i];
      addend = nullptr;
    }
  }
  int32_t result = -1;
  if (w->is_constant()) {
    ATOLL_ASSIGN_OR_RETURN(OnnxValue weights,
                           n.b.Permute(*w, transposed ? Perm{0, 1} : Perm{1, 0}));
    if (alpha != 1) {
      std::vector<float> scaled = weights.constant->floats;
      for (float& value : scaled) value *= alpha;
      ATOLL_ASSIGN_OR_RETURN(weights, n.b.Floats(weights.dims, std::move(scaled)));
    }
    ATOLL_ASSIGN_OR_RETURN(result, EmitFullyConnected(n, left, weights, bias));
  } else {
    ATOLL_ASSIGN_OR_RETURN(const int32_t right, n.b.InOrder(*w));
    BatchMatMulOptions options;
    options.transpose_rhs = transposed;
    ATOLL_ASSIGN_OR_RETURN(result, n.b.Emit(OpType::kBATCH_MATMUL, {left, right}, options));
    if (alpha != 1) {
      ATOLL_ASSIGN_OR_RETURN(const int32_t factor, n.b.ScalarTensor(alpha));
      ATOLL_ASSIGN_OR_RETURN(result,
                             n.b.Emit(OpType::kMUL, {result, factor}, ElementwiseOptions{}));
    }
  }
  if (addend != nullptr) {
    ATOLL_ASSIGN_OR_RETURN(int32_t right, n.b.InOrder(*addend));
    if (beta != 1) {
      ATOLL_ASSIGN_OR_RETURN(const int32_t factor, n.b.ScalarTensor(beta));
      ATOLL_ASSIGN_OR_RETURN(right, n.b.Emit(OpType::kMUL, {right, factor}, ElementwiseOptions{}));
    }
    ATOLL_ASSIGN_OR_RETURN(result, n.b.Emit(OpType::kADD, {result, right}, ElementwiseOptions{}));
  }
  return n.SetTensor(result, {0, 1});
}

}  // namespace

std::vector<OnnxOperatorEntry> OnnxLayerOperators() {
  return {
      {"Conv", ImportConv},
      {"ConvTranspose", ImportConvTranspose},
      {"BatchNormalization", ImportBatchNormalization},
      {"Gemm", ImportGemm},
      {"MatMul", ImportMatMul},
  };
}

}  // namespace atollrt
