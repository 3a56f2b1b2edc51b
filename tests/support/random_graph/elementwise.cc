// SPDX-License-Identifier: Apache-2.0
//
// Recipes of arithmetic on elements, of functions of one byte, conversions and reductions.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/kernels/int16_functions.h"
#include "runtime/kernels/quantization/quantization.h"
#include "runtime/ops/tensor_checks.h"
#include "tests/support/random_graph/graph_maker.h"

namespace atollrt {
namespace {

// A constant byte of value `value` that broadcasts with everything.
int32_t ByteScalar(GraphMaker& g, const NumberFormat& format, int32_t value) {
  return g.model().AddConstant(format, {}, {static_cast<uint8_t>(value)});
}

int32_t ZeroPointOf(GraphMaker& g, int32_t tensor) {
  return g.graph().tensors[tensor].zero_point();
}

// What the result of an operator of two operands is stored as.
NumberFormat OfPair(GraphMaker& g, OpType type, int32_t a, int32_t b) {
  const DataType numbers = g.type(a);
  const double larger = std::max(g.scale(a), g.scale(b));
  switch (type) {
    case OpType::kADD:
    case OpType::kSUB:
      return g.Around(numbers, 2 * larger,
                      larger * (numbers == DataType::kInt16 ? 0x1p-13 : 0x1p-18));
    case OpType::kMUL:
      return g.Around(numbers, g.scale(a) * g.scale(b) * 100);
    case OpType::kDIV:
      return g.Around(numbers, g.scale(a) / g.scale(b) / 32);
    case OpType::kSQUARED_DIFFERENCE:
      return g.Around(numbers, larger * larger * 200, larger * larger * 0x1p-11);
    case OpType::kMAXIMUM:
    case OpType::kMINIMUM:
      return g.Like(a);
    default:
      return g.Plain(DataType::kBool);
  }
}

bool HasFusedActivation(OpType type) {
  return type == OpType::kADD || type == OpType::kSUB || type == OpType::kMUL ||
         type == OpType::kDIV;
}

void AddPair(GraphMaker& g, OpType type, int32_t a, int32_t b) {
  const NumberFormat output = OfPair(g, type, a, b);
  OpOptions options;
  if (HasFusedActivation(type)) {
    options = ElementwiseOptions{.activation = g.FusedActivation(output), .pot_scale_int16 = false};
  }
  g.Node(type, {a, b}, output, options);
}

// `x`, or what is next to its zero point where it is that or below.
int32_t AboveZero(GraphMaker& g, int32_t x) {
  const int32_t zero = ZeroPointOf(g, x);
  const NumberFormat format = g.Like(x);
  if (zero == ByteMax(ToByteType(format.type))) {
    return g.Node(OpType::kMINIMUM, {x, ByteScalar(g, format, zero - 1)}, format);
  }
  return g.Node(OpType::kMAXIMUM, {x, ByteScalar(g, format, zero + 1)}, format);
}

// A constant list of the axes in `is_listed`, in some order.
int32_t AxisList(GraphMaker& g, const Shape& shape, const std::vector<bool>& is_listed) {
  std::vector<int32_t> axes;
  for (int32_t axis = 0; axis < GraphMaker::Rank(shape); ++axis) {
    if (is_listed[static_cast<size_t>(axis)]) axes.push_back(g.Stored(axis, shape));
  }
  if (g.choose().OneIn(4)) std::reverse(axes.begin(), axes.end());
  if (axes.size() == 1 && g.choose().OneIn(2)) return g.Integers({}, axes);
  return g.Indices(axes);
}

}  // namespace

// ---- Two operands -------------------------------------------------------------------------------

bool MakePair(GraphMaker& g, OpType type) {
  int32_t a = g.Any();
  int32_t b = g.BroadcastPartner(a);
  if (g.choose().OneIn(4)) std::swap(a, b);
  AddPair(g, type, a, b);
  return true;
}

bool MakeDiv(GraphMaker& g, OpType type) {
  const int32_t a = g.Any();
  const int32_t b = AboveZero(g, g.BroadcastPartner(a));
  AddPair(g, type, a, b);
  return true;
}

bool MakePrelu(GraphMaker& g, OpType type) {
  const int32_t x = g.Any();
  Shape slopes = g.shape(x);
  for (size_t i = 0; i + 1 < slopes.size(); ++i) {
    if (!g.choose().OneIn(4)) slopes[i] = 1;
  }
  if (g.choose().OneIn(2)) {
    const auto first = std::find_if(slopes.begin(), slopes.end(), [](int32_t n) { return n > 1; });
    slopes.erase(slopes.begin(), first);
  }
  const int32_t slope =
      g.choose().OneIn(4) ? g.Partner(x, slopes) : g.Constant(g.Anything(g.type(x)), slopes);
  g.Node(type, {x, slope}, g.Around(g.type(x), g.scale(x)));
  return true;
}

// ---- Functions of one number --------------------------------------------------------------------

bool MakeFunction(GraphMaker& g, OpType type) {
  const int32_t x = g.Any();
  const DataType numbers = g.type(x);
  const bool is_unsigned = numbers == DataType::kUInt8;
  const bool is_int16 = numbers == DataType::kInt16;
  double natural = g.scale(x);
  if (type == OpType::kRELU6) natural = std::min(natural, 6.0 / 128);
  if (type == OpType::kRELU_N1_TO_1) natural = std::min(natural, 1.0 / 128);
  if (type == OpType::kEXP) natural = std::exp(std::min(natural * 80, 12.0)) / 128;
  NumberFormat output = g.Around(numbers, natural);
  OpOptions options;
  switch (type) {
    case OpType::kLOGISTIC:
    case OpType::kTANH:
      if (is_int16) {
        if (g.scale(x) > static_cast<double>(kMaxSigmoidScale)) return false;
        output = g.Fixed(numbers, 1.0f / 32768, 0);
      } else if (type == OpType::kLOGISTIC) {
        output = g.Fixed(numbers, 1.0f / 256, is_unsigned ? 0 : -128);
      } else {
        output = g.Fixed(numbers, 1.0f / 128, is_unsigned ? 128 : 0);
      }
      break;
    case OpType::kHARD_SWISH:
      output = g.Around(numbers, g.scale(x), g.scale(x) / 100);
      break;
    case OpType::kLEAKY_RELU:
      options = LeakyReluOptions{.alpha = g.choose().Pick({0.25f, 0.01f, -0.5f, 3.0f, 0.0f})};
      break;
    default:
      break;
  }
  g.Node(type, {x}, output, options);
  return true;
}

bool MakeRsqrt(GraphMaker& g, OpType type) {
  const int32_t x = AboveZero(g, g.Any());
  // Of what lies below zero there is no root.
  if (ZeroPointOf(g, x) == INT8_MAX) return false;
  g.Node(type, {x}, g.Around(DataType::kInt8, 1 / std::sqrt(g.scale(x)) / 256));
  return true;
}

bool MakeQuantize(GraphMaker& g, OpType) {
  const int32_t x = g.Any();
  DataType to = g.choose().Pick({DataType::kInt8, DataType::kInt8, DataType::kUInt8});
  if (g.choose().OneIn(12)) to = DataType::kInt16;
  const auto range = [](DataType type) { return type == DataType::kInt16 ? 0x1p16 : 0x1p8; };
  const double natural = g.scale(x) * range(g.type(x)) / range(to);
  g.Requantized(x, g.choose().OneIn(10) ? g.Anything(to) : g.Around(to, natural));
  return true;
}

// Out of quantized numbers and maybe back: DEQUANTIZE, a function of float32, QUANTIZE.
bool MakeFloats(GraphMaker& g, OpType type) {
  const int32_t x = g.Any();
  const NumberFormat floats = g.Plain(DataType::kFloat32);
  int32_t y = g.Node(OpType::kDEQUANTIZE, {x}, floats);
  if (type == OpType::kSQRT) y = g.Node(type, {y}, floats);
  if (type == OpType::kFLOOR_DIV) {
    const float divisor = g.choose().Pick({0.5f, -3.0f, 0.01f});
    std::vector<uint8_t> bytes(sizeof(divisor));
    std::memcpy(bytes.data(), &divisor, sizeof(divisor));
    y = g.Node(type, {y, g.model().AddConstant(floats, {}, std::move(bytes))}, floats);
  }
  if (g.choose().OneIn(2)) g.Node(OpType::kQUANTIZE, {y}, g.Around(g.type(x), g.scale(x)));
  return true;
}

bool MakeCast(GraphMaker& g, OpType type) {
  const int32_t x = g.Any();
  const DataType to =
      g.choose().Pick({DataType::kInt8, DataType::kUInt8, DataType::kInt32, DataType::kFloat32,
                       DataType::kBool, DataType::kInt16, DataType::kInt64});
  g.Node(type, {x}, IsByteType(to) ? g.Anything(to) : g.Plain(to));
  return true;
}

bool MakeShape(GraphMaker& g, OpType type) {
  const int32_t x = g.Any();
  g.Node(type, {x}, g.Plain(g.choose().Pick({DataType::kInt32, DataType::kInt64})));
  return true;
}

// ---- Rows ---------------------------------------------------------------------------------------

bool MakeSoftmax(GraphMaker& g, OpType type) {
  const int32_t x = g.OfRank(1, 5);
  const bool is_unsigned = g.type(x) == DataType::kUInt8;
  const SoftmaxOptions options{.beta = g.choose().Pick({1.0f, 1.0f, 0.25f, 10.0f})};
  if (g.type(x) == DataType::kInt16) {
    const float product = static_cast<float>(g.scale(x)) * options.beta;
    if (product > Softmax16::kMaxScale) return false;
    g.Node(type, {x}, g.Fixed(DataType::kInt16, 1.0f / 32768, 0), options);
    return true;
  }
  if (!is_unsigned && g.choose().OneIn(8)) {
    const NumberFormat wide = g.Fixed(DataType::kInt16, 1.0f / 65536, INT16_MIN);
    const int32_t y = g.Node(type, {x}, wide, options);
    if (g.choose().OneIn(2)) g.Requantized(y, g.Around(DataType::kInt8, 1.0 / 256));
    return true;
  }
  g.Node(type, {x}, g.Fixed(g.type(x), 1.0f / 256, is_unsigned ? 0 : -128), options);
  return true;
}

bool MakeLogSoftmax(GraphMaker& g, OpType type) {
  const int32_t x = g.OfRank(1, 5);
  if (g.scale(x) < 0x1p-26) return false;
  g.Node(type, {x}, g.Fixed(g.type(x), 1.0f / 16, ByteMax(ToByteType(g.type(x)))));
  return true;
}

bool MakeL2Normalization(GraphMaker& g, OpType type) {
  const int32_t x = g.OfRank(1, 5);
  const int32_t zero_point = g.type(x) == DataType::kUInt8 ? 128 : 0;
  g.Node(type, {x}, g.Fixed(g.type(x), 1.0f / 128, zero_point), ElementwiseOptions{});
  return true;
}

// ---- Reductions ---------------------------------------------------------------------------------

bool MakeReduction(GraphMaker& g, OpType type) {
  const int32_t x = g.OfRank(1, 5);
  const Shape shape = g.shape(x);
  std::vector<bool> reduced(shape.size());
  if (shape.size() == 4 && !g.choose().OneIn(3)) {
    reduced[1] = reduced[2] = true;
  } else {
    for (size_t i = 0; i < reduced.size(); ++i) reduced[i] = g.choose().OneIn(2);
  }
  double count = 1;
  for (size_t i = 0; i < reduced.size(); ++i) count *= reduced[i] ? shape[i] : 1;
  NumberFormat output = g.Like(x);
  if (type == OpType::kMEAN) output = g.Around(g.type(x), g.scale(x) / 2);
  if (type == OpType::kSUM) output = g.Around(g.type(x), g.scale(x) * std::sqrt(count));
  const int32_t axes = AxisList(g, shape, reduced);
  g.Node(type, {x, axes}, output, ReducerOptions{.keep_dims = g.choose().OneIn(2)});
  return true;
}

bool MakeArgReduction(GraphMaker& g, OpType type) {
  const int32_t x = g.OfRank(1, 5);
  const Shape shape = g.shape(x);
  const int32_t axis = g.Integers({}, {g.Stored(g.Axis(shape), shape)});
  g.Node(type, {x, axis}, g.Plain(g.choose().Pick({DataType::kInt32, DataType::kInt64})));
  return true;
}

}  // namespace atollrt
