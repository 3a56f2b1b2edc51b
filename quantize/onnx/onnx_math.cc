// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic: element by element, activations, reductions and softmax.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "quantize/onnx/onnx_operators.h"

namespace atollrt {
namespace {

// ---- Constants ----

Dims BroadcastDims(const Dims& a, const Dims& b, bool* fits) {
  Dims result(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < result.size(); ++i) {
    const size_t back = result.size() - i;
    const int64_t x = back <= a.size() ? a[a.size() - back] : 1;
    const int64_t y = back <= b.size() ? b[b.size() - back] : 1;
    if (x != y && x != 1 && y != 1) *fits = false;
    result[i] = x == 1 ? y : x;
  }
  return result;
}

// For each element of `dims`, which one of `from`, which broadcasts to it.
std::vector<int64_t> BroadcastIndices(const Dims& from, const Dims& dims) {
  std::vector<int64_t> indices(static_cast<size_t>(DimsCount(dims)));
  for (size_t i = 0; i < indices.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i);
    int64_t stride = 1;
    for (size_t back = 1; back <= dims.size(); ++back) {
      const int64_t position = rest % dims[dims.size() - back];
      rest /= dims[dims.size() - back];
      if (back > from.size()) break;
      const int64_t size = from[from.size() - back];
      if (size != 1) indices[i] += position * stride;
      stride *= size;
    }
  }
  return indices;
}

int64_t Wrap(uint64_t value) { return static_cast<int64_t>(value); }

// An operation on constants; `truth`: its result is a bool.
struct BinaryFold {
  std::string_view name;
  float (*floats)(float, float);
  int64_t (*integers)(int64_t, int64_t);
  bool truth = false;
};
constexpr BinaryFold kBinaryFolds[] = {
    {"Add", [](float a, float b) { return a + b; },
     [](int64_t a, int64_t b) {
       return Wrap(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
     }},
    {"Sub", [](float a, float b) { return a - b; },
     [](int64_t a, int64_t b) {
       return Wrap(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
     }},
    {"Mul", [](float a, float b) { return a * b; },
     [](int64_t a, int64_t b) {
       return Wrap(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
     }},
    {"Div", [](float a, float b) { return a / b; },
     [](int64_t a, int64_t b) {
       return b == 0 ? 0 : b == -1 ? Wrap(-static_cast<uint64_t>(a)) : a / b;
     }},
    {"Pow", [](float a, float b) { return std::pow(a, b); },
     [](int64_t a, int64_t b) {
       const double power = std::pow(static_cast<double>(a), static_cast<double>(b));
       return std::abs(power) < 9e18 ? static_cast<int64_t>(power) : int64_t{0};
     }},
    {"Min", [](float a, float b) { return std::min(a, b); },
     [](int64_t a, int64_t b) { return std::min(a, b); }},
    {"Max", [](float a, float b) { return std::max(a, b); },
     [](int64_t a, int64_t b) { return std::max(a, b); }},
    {"Equal", [](float a, float b) { return a == b ? 1.0f : 0.0f; },
     [](int64_t a, int64_t b) { return int64_t{a == b}; }, true},
    {"Less", [](float a, float b) { return a < b ? 1.0f : 0.0f; },
     [](int64_t a, int64_t b) { return int64_t{a < b}; }, true},
    {"Greater", [](float a, float b) { return a > b ? 1.0f : 0.0f; },
     [](int64_t a, int64_t b) { return int64_t{a > b}; }, true},
};

Result<OnnxValue> FoldBinary(OnnxNodeImport& n, const BinaryFold& fold, const OnnxValue& a,
                             const OnnxValue& b) {
  bool fits = a.is_float() == b.is_float();
  const Dims dims = BroadcastDims(a.dims, b.dims, &fits);
  if (!fits) {
    return CorruptModel("operands of shape %s and %s", DimsString(a.dims).c_str(),
                        DimsString(b.dims).c_str());
  }
  ATOLL_RETURN_IF_ERROR(n.b.Charge(DimsCount(dims), 16));
  const std::vector<int64_t> left = BroadcastIndices(a.dims, dims);
  const std::vector<int64_t> right = BroadcastIndices(b.dims, dims);
  if (!a.is_float() || fold.truth) {
    std::vector<int64_t> values(left.size());
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = a.is_float() ? static_cast<int64_t>(fold.floats(a.constant->floats[left[i]],
                                                                  b.constant->floats[right[i]]))
                               : fold.integers(a.constant->integers[left[i]],
                                               b.constant->integers[right[i]]);
    }
    return n.b.Integers(dims, std::move(values), fold.truth ? OnnxType::kBool : a.type);
  }
  std::vector<float> values(left.size());
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = fold.floats(a.constant->floats[left[i]], b.constant->floats[right[i]]);
  }
  return n.b.Floats(dims, std::move(values));
}

// ---- Element by element ----

// Two operands as tensors that broadcast, stored alike.
struct Pair {
  int32_t a = -1, b = -1;
  Perm perm;
};
Result<Pair> StorePair(OnnxNodeImport& n, const OnnxValue& a, const OnnxValue& b) {
  bool fits = true;
  const Dims dims = BroadcastDims(a.dims, b.dims, &fits);
  if (!fits) {
    return CorruptModel("operands of shape %s and %s", DimsString(a.dims).c_str(),
                        DimsString(b.dims).c_str());
  }
  const size_t rank = dims.size();
  Pair pair;
  // The order of the larger operand that is computed.
  const auto weight = [&](const OnnxValue& value) {
    return value.is_constant() || value.rank() < rank ? int64_t{-1} : DimsCount(value.dims);
  };
  const OnnxValue& leader = weight(a) >= weight(b) ? a : b;
  pair.perm = weight(leader) < 0 ? IdentityPerm(rank) : leader.perm;
  const auto store = [&](const OnnxValue& value) -> Result<int32_t> {
    Dims padded = value.dims;
    padded.insert(padded.begin(), rank - value.rank(), 1);
    if (DimsCount(value.dims) == 1 && value.is_constant()) padded = {};
    ATOLL_ASSIGN_OR_RETURN(OnnxValue whole, n.b.Reshape(value, padded));
    if (!whole.is_constant()) return n.b.Stored(whole, pair.perm);
    if (padded.empty()) return n.b.ConstantTensor(whole);
    ATOLL_ASSIGN_OR_RETURN(whole, n.b.Permute(whole, pair.perm));
    // Leading ones say nothing.
    while (whole.rank() > 1 && whole.dims[0] == 1) whole.dims.erase(whole.dims.begin());
    return n.b.ConstantTensor(whole);
  };
  ATOLL_ASSIGN_OR_RETURN(pair.a, store(a));
  ATOLL_ASSIGN_OR_RETURN(pair.b, store(b));
  return pair;
}

Status ImportBinary(OnnxNodeImport& n, OpType type) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* first, n.Input(0));
  OnnxValue result = *first;
  // Min and Max take any number of operands.
  const bool many = n.node.op_type == "Min" || n.node.op_type == "Max" || n.node.op_type == "Sum";
  if (!many && n.input_count() != 2) return CorruptModel("%zu inputs", n.input_count());
  for (size_t i = 1; i < n.input_count(); ++i) {
    ATOLL_ASSIGN_OR_RETURN(const OnnxValue* next, n.Input(i));
    if (result.is_constant() && next->is_constant()) {
      const std::string_view name = n.node.op_type == "Sum" ? "Add" : n.node.op_type;
      const auto* fold = std::find_if(std::begin(kBinaryFolds), std::end(kBinaryFolds),
                                      [&](const BinaryFold& entry) { return entry.name == name; });
      ATOLL_ASSIGN_OR_RETURN(result, FoldBinary(n, *fold, result, *next));
      continue;
    }
    if (result.type != next->type) {
      return CorruptModel("operands of types %s and %s", OnnxTypeName(result.type),
                          OnnxTypeName(next->type));
    }
    if (!result.is_float()) {
      return Unsupported("operands of type %s that are computed at run time; float is supported",
                         OnnxTypeName(result.type));
    }
    ATOLL_ASSIGN_OR_RETURN(const Pair pair, StorePair(n, result, *next));
    const bool options = type != OpType::kMAXIMUM && type != OpType::kMINIMUM;
    ATOLL_ASSIGN_OR_RETURN(const int32_t tensor, n.b.Emit(type, {pair.a, pair.b},
                                                          options ? OpOptions(ElementwiseOptions{})
                                                                  : OpOptions(NoOptions{})));
    result = n.b.FromTensor(tensor, pair.perm);
  }
  return n.Set(std::move(result));
}

// Folded only: what shapes are computed with.
Status ImportComparison(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* a, n.Input(0));
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* b, n.Input(1));
  if (!a->is_constant() || !b->is_constant()) {
    return Unsupported("operands that are computed at run time; only constants are compared");
  }
  for (const BinaryFold& fold : kBinaryFolds) {
    if (fold.name != n.node.op_type) continue;
    ATOLL_ASSIGN_OR_RETURN(OnnxValue result, FoldBinary(n, fold, *a, *b));
    return n.Set(std::move(result));
  }
  return InternalError("no comparison");
}

// y = f(x), stored as x is.
using Steps = std::function<Result<int32_t>(int32_t)>;
Status ImportUnary(OnnxNodeImport& n, const Steps& steps) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.FloatInput(0));
  Perm perm;
  ATOLL_ASSIGN_OR_RETURN(const int32_t tensor, n.b.AnyOrder(*x, &perm));
  ATOLL_ASSIGN_OR_RETURN(const int32_t result, steps(tensor));
  return n.SetTensor(result, perm);
}

Result<int32_t> EmitScalar(OnnxNodeImport& n, OpType type, int32_t tensor, float value,
                           Activation activation = Activation::kNone) {
  ATOLL_ASSIGN_OR_RETURN(const int32_t scalar, n.b.ScalarTensor(value));
  if (type == OpType::kMAXIMUM || type == OpType::kMINIMUM) {
    return n.b.Emit(type, {tensor, scalar});
  }
  ElementwiseOptions options;
  options.activation = activation;
  return n.b.Emit(type, {tensor, scalar}, options);
}

template <OpType kType>
Status ImportPlain(OnnxNodeImport& n) {
  return ImportUnary(n, [&](int32_t x) { return n.b.Emit(kType, {x}); });
}

Status FoldUnary(OnnxNodeImport& n, float (*function)(float)) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.Input(0));
  if (!x->is_constant()) {
    return Unsupported("an operand that is computed at run time; only constants are supported");
  }
  if (!x->is_float()) return n.Set(*x);  // Floor and Ceil of whole numbers
  std::vector<float> values = x->constant->floats;
  for (float& value : values) value = function(value);
  ATOLL_ASSIGN_OR_RETURN(OnnxValue result, n.b.Floats(x->dims, std::move(values)));
  return n.Set(std::move(result));
}

Status ImportSqrt(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.FloatInput(0));
  if (x->is_constant()) return FoldUnary(n, [](float value) { return std::sqrt(value); });
  return ImportPlain<OpType::kSQRT>(n);
}

Status ImportExp(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.FloatInput(0));
  if (x->is_constant()) return FoldUnary(n, [](float value) { return std::exp(value); });
  return ImportPlain<OpType::kEXP>(n);
}

Status ImportNeg(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.Input(0));
  if (x->is_constant() && !x->is_float()) {
    std::vector<int64_t> values = x->constant->integers;
    for (int64_t& value : values) value = Wrap(-static_cast<uint64_t>(value));
    ATOLL_ASSIGN_OR_RETURN(OnnxValue result, n.b.Integers(x->dims, std::move(values), x->type));
    return n.Set(std::move(result));
  }
  if (x->is_constant()) return FoldUnary(n, [](float value) { return -value; });
  return ImportUnary(n, [&](int32_t tensor) { return EmitScalar(n, OpType::kMUL, tensor, -1); });
}

Status ImportAbs(OnnxNodeImport& n) {
  return ImportUnary(n, [&](int32_t x) -> Result<int32_t> {
    ATOLL_ASSIGN_OR_RETURN(const int32_t negative, EmitScalar(n, OpType::kMUL, x, -1));
    return n.b.Emit(OpType::kMAXIMUM, {x, negative});
  });
}

Status ImportReciprocal(OnnxNodeImport& n) {
  return ImportUnary(n, [&](int32_t x) -> Result<int32_t> {
    ATOLL_ASSIGN_OR_RETURN(const int32_t one, n.b.ScalarTensor(1));
    return n.b.Emit(OpType::kDIV, {one, x}, ElementwiseOptions{});
  });
}

Status ImportPow(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.Input(0));
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* power, n.Input(1));
  if (x->is_constant() && power->is_constant()) {
    OnnxValue base = *x;
    OnnxValue exponent = *power;
    // The exponent may be of another type.
    if (base.is_float() && !exponent.is_float()) {
      std::vector<float> values(exponent.constant->integers.begin(),
                                exponent.constant->integers.end());
      ATOLL_ASSIGN_OR_RETURN(exponent, n.b.Floats(exponent.dims, std::move(values)));
    }
    ATOLL_ASSIGN_OR_RETURN(OnnxValue result, FoldBinary(n, kBinaryFolds[4], base, exponent));
    return n.Set(std::move(result));
  }
  if (!power->is_constant() || DimsCount(power->dims) != 1 || !x->is_float()) {
    return Unsupported("an exponent that is no constant number");
  }
  const float exponent = power->is_float() ? power->constant->floats[0]
                                           : static_cast<float>(power->constant->integers[0]);
  if (exponent == 1) return n.Set(*x);
  if (exponent == 0.5f) return ImportPlain<OpType::kSQRT>(n);
  if (exponent != 2 && exponent != 3) {
    return Unsupported("an exponent of %g; 0.5, 1, 2 and 3 are supported",
                       static_cast<double>(exponent));
  }
  return ImportUnary(n, [&](int32_t base) -> Result<int32_t> {
    ATOLL_ASSIGN_OR_RETURN(int32_t result,
                           n.b.Emit(OpType::kMUL, {base, base}, ElementwiseOptions{}));
    if (exponent == 3) {
      ATOLL_ASSIGN_OR_RETURN(result, n.b.Emit(OpType::kMUL, {result, base}, ElementwiseOptions{}));
    }
    return result;
  });
}

// ---- Activations ----

Status ImportRelu(OnnxNodeImport& n) {
  if (FuseActivation(n, Activation::kRelu)) {
    ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.Input(0));
    return n.Set(*x);
  }
  return ImportPlain<OpType::kRELU>(n);
}

Status ImportClip(OnnxNodeImport& n) {
  float low = -FLT_MAX;
  float high = FLT_MAX;
  if (n.opset < 11) {
    low = n.Float("min", low);
    high = n.Float("max", high);
  } else {
    for (size_t i = 1; i <= 2; ++i) {
      if (!n.has(i)) continue;
      ATOLL_ASSIGN_OR_RETURN(const OnnxValue* limit, n.Input(i));
      if (limit->is_constant() && !limit->is_float()) {
        ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.Input(0));
        if (x->is_constant()) return Unsupported("whole numbers");
      }
      ATOLL_ASSIGN_OR_RETURN(const std::vector<float> value, n.FloatsAt(i, i == 1 ? "min" : "max"));
      if (value.size() != 1)
        return CorruptModel("%s has %zu numbers", i == 1 ? "min" : "max", value.size());
      (i == 1 ? low : high) = value[0];
    }
  }
  const auto fuse = [&](Activation activation) { return FuseActivation(n, activation); };
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.FloatInput(0));
  if (low == 0 && high == 6) {
    return fuse(Activation::kRelu6) ? n.Set(*x) : ImportPlain<OpType::kRELU6>(n);
  }
  if (low == 0 && high >= FLT_MAX) return ImportRelu(n);
  if (low == -1 && high == 1) {
    return fuse(Activation::kReluN1To1) ? n.Set(*x) : ImportPlain<OpType::kRELU_N1_TO_1>(n);
  }
  return ImportUnary(n, [&](int32_t tensor) -> Result<int32_t> {
    if (low == 0) {
      ATOLL_ASSIGN_OR_RETURN(tensor, n.b.Emit(OpType::kRELU, {tensor}));
    } else if (low > -FLT_MAX) {
      ATOLL_ASSIGN_OR_RETURN(tensor, EmitScalar(n, OpType::kMAXIMUM, tensor, low));
    }
    if (high < FLT_MAX) {
      ATOLL_ASSIGN_OR_RETURN(tensor, EmitScalar(n, OpType::kMINIMUM, tensor, high));
    }
    return tensor;
  });
}

Status ImportLeakyRelu(OnnxNodeImport& n) {
  const float alpha = n.Float("alpha", 0.01f);
  return ImportUnary(
      n, [&](int32_t x) { return n.b.Emit(OpType::kLEAKY_RELU, {x}, LeakyReluOptions{alpha}); });
}

Status ImportPRelu(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.FloatInput(0));
  ATOLL_ASSIGN_OR_RETURN(const std::vector<float> slopes, n.FloatsAt(1, "the slope"));
  if (slopes.size() == 1) {
    return ImportUnary(n, [&](int32_t tensor) {
      return n.b.Emit(OpType::kLEAKY_RELU, {tensor}, LeakyReluOptions{slopes[0]});
    });
  }
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* slope, n.Input(1));
  OnnxValue whole = *slope;
  if (whole.rank() > x->rank()) return CorruptModel("a slope of more dimensions than the input");
  whole.dims.insert(whole.dims.begin(), x->rank() - whole.rank(), 1);
  Perm perm;
  ATOLL_ASSIGN_OR_RETURN(const int32_t tensor, n.b.AnyOrder(*x, &perm));
  ATOLL_ASSIGN_OR_RETURN(whole, n.b.Permute(whole, perm));
  // TensorFlow Lite's slopes have no dimension for the batch.
  if (whole.rank() > 1 && whole.dims[0] == 1) whole.dims.erase(whole.dims.begin());
  ATOLL_ASSIGN_OR_RETURN(const int32_t constant, n.b.ConstantTensor(whole));
  ATOLL_ASSIGN_OR_RETURN(const int32_t result, n.b.Emit(OpType::kPRELU, {tensor, constant}));
  return n.SetTensor(result, perm);
}

// max(0, min(1, a x + b)) = relu6(6 a x + 6 b) / 6.
Result<int32_t> EmitHardSigmoid(OnnxNodeImport& n, int32_t x, float alpha, float beta) {
  if (std::abs(alpha - 1.0f / 6) > 1e-6f) {
    ATOLL_ASSIGN_OR_RETURN(x, EmitScalar(n, OpType::kMUL, x, 6 * alpha));
  }
  ATOLL_ASSIGN_OR_RETURN(x, EmitScalar(n, OpType::kADD, x, 6 * beta, Activation::kRelu6));
  return EmitScalar(n, OpType::kMUL, x, 1.0f / 6);
}

Status ImportHardSigmoid(OnnxNodeImport& n) {
  const float alpha = n.Float("alpha", 0.2f);
  const float beta = n.Float("beta", 0.5f);
  return ImportUnary(n, [&](int32_t x) { return EmitHardSigmoid(n, x, alpha, beta); });
}

// x * relu6(x + 3) / 6, as exporters write it, becomes HARD_SWISH.
bool IsHardSigmoidOf(OnnxNodeImport& n, int32_t gate, int32_t x) {
  const Node* scale = n.b.Producer(gate);
  if (scale == nullptr || scale->type != OpType::kMUL) return false;
  const Node* add = n.b.Producer(scale->inputs[0]);
  if (add == nullptr || add->type != OpType::kADD || add->inputs[0] != x) return false;
  const auto number = [&](int32_t tensor, float expected) {
    if (!n.b.tensor(tensor).shape.empty() || !n.b.tensor(tensor).is_constant()) return false;
    float value = 0;
    std::memcpy(&value, n.b.tensor(tensor).data.data(), sizeof(value));
    return std::abs(value - expected) < 1e-5f;
  };
  return std::get<ElementwiseOptions>(add->options).activation == Activation::kRelu6 &&
         number(add->inputs[1], 3) && number(scale->inputs[1], 1.0f / 6);
}

Status ImportMul(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* a, n.Input(0));
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* b, n.Input(1));
  if (!a->is_constant() && !b->is_constant() && a->perm == b->perm) {
    for (const auto& [x, gate] : {std::pair(a, b), std::pair(b, a)}) {
      if (!IsHardSigmoidOf(n, gate->tensor, x->tensor)) continue;
      ATOLL_ASSIGN_OR_RETURN(const int32_t result, n.b.Emit(OpType::kHARD_SWISH, {x->tensor}));
      return n.SetTensor(result, x->perm);
    }
  }
  return ImportBinary(n, OpType::kMUL);
}

Status ImportHardSwish(OnnxNodeImport& n) { return ImportPlain<OpType::kHARD_SWISH>(n); }

// max(x, 0) + alpha (exp(min(x, 0)) - 1).
Status ImportElu(OnnxNodeImport& n) {
  const float alpha = n.Float("alpha", 1);
  return ImportUnary(n, [&](int32_t x) -> Result<int32_t> {
    ATOLL_ASSIGN_OR_RETURN(const int32_t positive, n.b.Emit(OpType::kRELU, {x}));
    ATOLL_ASSIGN_OR_RETURN(int32_t negative, EmitScalar(n, OpType::kMINIMUM, x, 0));
    ATOLL_ASSIGN_OR_RETURN(negative, n.b.Emit(OpType::kEXP, {negative}));
    ATOLL_ASSIGN_OR_RETURN(negative, EmitScalar(n, OpType::kSUB, negative, 1));
    if (alpha != 1) {
      ATOLL_ASSIGN_OR_RETURN(negative, EmitScalar(n, OpType::kMUL, negative, alpha));
    }
    return n.b.Emit(OpType::kADD, {positive, negative}, ElementwiseOptions{});
  });
}

Status ImportSoftmax(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.FloatInput(0));
  ATOLL_ASSIGN_OR_RETURN(const int32_t axis,
                         OnnxAxis(n.Int("axis", n.opset < 13 ? 1 : -1), x->rank()));
  const OpType type = n.node.op_type == "Softmax" ? OpType::kSOFTMAX : OpType::kLOG_SOFTMAX;
  const OpOptions options =
      type == OpType::kSOFTMAX ? OpOptions(SoftmaxOptions{}) : OpOptions(NoOptions{});
  if (DimsCount(x->dims) == 0) {
    return CorruptModel("an empty input of shape %s", DimsString(x->dims).c_str());
  }
  // Before opset 13 all axes from this one on are one.
  int64_t behind = 1;
  for (size_t i = axis + 1; i < x->rank(); ++i) behind *= x->dims[i];
  if (n.opset < 13 && behind != 1) {
    int64_t rows = 1;
    for (int32_t i = 0; i < axis; ++i) rows *= x->dims[i];
    const Dims dims = x->dims;
    ATOLL_ASSIGN_OR_RETURN(const OnnxValue matrix, n.b.Reshape(*x, {rows, DimsCount(dims) / rows}));
    ATOLL_ASSIGN_OR_RETURN(const int32_t tensor, n.b.InOrder(matrix));
    ATOLL_ASSIGN_OR_RETURN(const int32_t soft, n.b.Emit(type, {tensor}, options));
    ATOLL_ASSIGN_OR_RETURN(OnnxValue result, n.b.Reshape(n.b.FromTensor(soft, {0, 1}), dims));
    return n.Set(std::move(result));
  }
  Perm perm;
  ATOLL_ASSIGN_OR_RETURN(int32_t tensor, n.b.AnyOrder(*x, &perm));
  const OnnxValue stored = n.b.FromTensor(tensor, perm);
  if (perm.empty()) return CorruptModel("an input without dimensions");
  if (perm.back() != axis) {
    perm.erase(std::find(perm.begin(), perm.end(), axis));
    perm.push_back(axis);
    ATOLL_ASSIGN_OR_RETURN(tensor, n.b.Stored(stored, perm));
  }
  ATOLL_ASSIGN_OR_RETURN(const int32_t result, n.b.Emit(type, {tensor}, options));
  return n.SetTensor(result, perm);
}

// ---- Reductions ----

Status ImportReduction(OnnxNodeImport& n, OpType type) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.Input(0));
  // ReduceSum's axes are an input from opset 13 on, the others' from 18 on.
  const int64_t since = n.node.op_type == "ReduceSum" ? 13 : 18;
  ATOLL_ASSIGN_OR_RETURN(Dims named, n.IntegersOf("axes", 1, since, {}));
  if (named.empty()) {
    if (n.Int("noop_with_empty_axes", 0) != 0) return n.Set(*x);
    for (size_t i = 0; i < x->rank(); ++i) named.push_back(static_cast<int64_t>(i));
  }
  if (named.size() > x->rank()) {
    return CorruptModel("%zu axes of %s", named.size(), DimsString(x->dims).c_str());
  }
  const bool keep = n.Int("keepdims", 1) != 0;
  std::vector<bool> reduced(x->rank(), false);
  for (const int64_t axis : named) {
    ATOLL_ASSIGN_OR_RETURN(const int32_t index, OnnxAxis(axis, x->rank()));
    reduced[index] = true;
  }
  if (x->is_constant() && !x->is_float()) {
    // Of sizes: all of them.
    if (std::find(reduced.begin(), reduced.end(), false) != reduced.end()) {
      return Unsupported("a reduction of some axes of whole numbers");
    }
    const std::vector<int64_t>& values = x->constant->integers;
    if (values.empty()) return CorruptModel("a reduction of nothing");
    ATOLL_RETURN_IF_ERROR(n.b.Charge(static_cast<int64_t>(values.size()), sizeof(int64_t)));
    int64_t result = values[0];
    for (size_t i = 1; i < values.size(); ++i) {
      const uint64_t a = static_cast<uint64_t>(result);
      const uint64_t b = static_cast<uint64_t>(values[i]);
      if (type == OpType::kREDUCE_MAX)
        result = std::max(result, values[i]);
      else if (type == OpType::kREDUCE_MIN)
        result = std::min(result, values[i]);
      else if (type == OpType::kREDUCE_PROD)
        result = Wrap(a * b);
      else
        result = Wrap(a + b);
    }
    if (type == OpType::kMEAN) result /= static_cast<int64_t>(values.size());
    ATOLL_ASSIGN_OR_RETURN(OnnxValue value,
                           n.b.Integers(keep ? Dims(x->rank(), 1) : Dims{}, {result}, x->type));
    return n.Set(std::move(value));
  }
  if (type == OpType::kREDUCE_PROD || !x->is_float()) {
    return Unsupported("an operand of type %s that is computed at run time", OnnxTypeName(x->type));
  }
  Perm perm;
  ATOLL_ASSIGN_OR_RETURN(int32_t tensor, n.b.AnyOrder(*x, &perm));
  std::vector<int32_t> axes;
  Perm rest;
  std::vector<int32_t> renamed(x->rank(), 0);
  int32_t next = 0;
  for (size_t i = 0; i < x->rank(); ++i) {
    renamed[i] = next;
    if (!reduced[i]) ++next;
  }
  for (size_t i = 0; i < perm.size(); ++i) {
    if (reduced[perm[i]])
      axes.push_back(static_cast<int32_t>(i));
    else
      rest.push_back(renamed[perm[i]]);
  }
  if (n.node.op_type == "ReduceL2") {
    ATOLL_ASSIGN_OR_RETURN(tensor, n.b.Emit(OpType::kMUL, {tensor, tensor}, ElementwiseOptions{}));
  }
  ATOLL_ASSIGN_OR_RETURN(const int32_t constant,
                         n.b.IntTensor({static_cast<int32_t>(axes.size())}, axes));
  ATOLL_ASSIGN_OR_RETURN(tensor, n.b.Emit(type, {tensor, constant}, ReducerOptions{keep}));
  if (n.node.op_type == "ReduceL2") {
    ATOLL_ASSIGN_OR_RETURN(tensor, n.b.Emit(OpType::kSQRT, {tensor}));
  }
  return n.SetTensor(tensor, keep ? perm : rest);
}

Status ImportArg(OnnxNodeImport& n, OpType type) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.FloatInput(0));
  if (n.Int("select_last_index", 0) != 0) {
    return Unsupported("select_last_index 1; the first index is supported");
  }
  ATOLL_ASSIGN_OR_RETURN(const int32_t axis, OnnxAxis(n.Int("axis", 0), x->rank()));
  const Dims dims = x->dims;
  Perm perm;
  ATOLL_ASSIGN_OR_RETURN(const int32_t tensor, n.b.AnyOrder(*x, &perm));
  const int32_t stored =
      static_cast<int32_t>(std::find(perm.begin(), perm.end(), axis) - perm.begin());
  ATOLL_ASSIGN_OR_RETURN(const int32_t constant, n.b.IntTensor({}, {stored}));
  ATOLL_ASSIGN_OR_RETURN(const int32_t result,
                         n.b.EmitTyped(type, {tensor, constant}, NoOptions{}, DataType::kInt64));
  perm.erase(perm.begin() + stored);
  for (int32_t& index : perm) index -= index > axis ? 1 : 0;
  OnnxValue value = n.b.FromTensor(result, perm, OnnxType::kInt64);
  if (n.Int("keepdims", 1) != 0) {
    Dims kept = dims;
    kept[axis] = 1;
    ATOLL_ASSIGN_OR_RETURN(value, n.b.Reshape(value, kept));
  }
  return n.Set(std::move(value));
}

}  // namespace

bool FuseActivation(OnnxNodeImport& n, Activation activation) {
  const auto x = n.FloatInput(0);
  if (!x.ok() || (*x)->is_constant() || !n.OnlyReader(0)) return false;
  Node* node = n.b.Producer((*x)->tensor);
  if (node == nullptr) return false;
  Activation* place = nullptr;
  if (node->type == OpType::kCONV_2D || node->type == OpType::kDEPTHWISE_CONV_2D) {
    place = &std::get<Conv2DOptions>(node->options).activation;
  } else if (node->type == OpType::kFULLY_CONNECTED) {
    place = &std::get<FullyConnectedOptions>(node->options).activation;
  } else if (node->type == OpType::kADD || node->type == OpType::kMUL ||
             node->type == OpType::kSUB) {
    place = &std::get<ElementwiseOptions>(node->options).activation;
  }
  if (place == nullptr || *place != Activation::kNone) return false;
  *place = activation;
  return true;
}

std::vector<OnnxOperatorEntry> OnnxMathOperators() {
  return {
      {"Add", [](OnnxNodeImport& n) { return ImportBinary(n, OpType::kADD); }},
      {"Sum", [](OnnxNodeImport& n) { return ImportBinary(n, OpType::kADD); }},
      {"Sub", [](OnnxNodeImport& n) { return ImportBinary(n, OpType::kSUB); }},
      {"Mul", ImportMul},
      {"Div", [](OnnxNodeImport& n) { return ImportBinary(n, OpType::kDIV); }},
      {"Min", [](OnnxNodeImport& n) { return ImportBinary(n, OpType::kMINIMUM); }},
      {"Max", [](OnnxNodeImport& n) { return ImportBinary(n, OpType::kMAXIMUM); }},
      {"Equal", ImportComparison},
      {"Less", ImportComparison},
      {"Greater", ImportComparison},
      {"Pow", ImportPow},
      {"Sqrt", ImportSqrt},
      {"Exp", ImportExp},
      {"Neg", ImportNeg},
      {"Abs", ImportAbs},
      {"Reciprocal", ImportReciprocal},
      {"Floor",
       [](OnnxNodeImport& n) { return FoldUnary(n, [](float x) { return std::floor(x); }); }},
      {"Ceil",
       [](OnnxNodeImport& n) { return FoldUnary(n, [](float x) { return std::ceil(x); }); }},
      {"Relu", ImportRelu},
      {"Clip", ImportClip},
      {"LeakyRelu", ImportLeakyRelu},
      {"PRelu", ImportPRelu},
      {"Elu", ImportElu},
      {"Sigmoid", ImportPlain<OpType::kLOGISTIC>},
      {"Tanh", ImportPlain<OpType::kTANH>},
      {"HardSigmoid", ImportHardSigmoid},
      {"HardSwish", ImportHardSwish},
      {"Softmax", ImportSoftmax},
      {"LogSoftmax", ImportSoftmax},
      {"ReduceMean", [](OnnxNodeImport& n) { return ImportReduction(n, OpType::kMEAN); }},
      {"ReduceSum", [](OnnxNodeImport& n) { return ImportReduction(n, OpType::kSUM); }},
      {"ReduceL2", [](OnnxNodeImport& n) { return ImportReduction(n, OpType::kSUM); }},
      {"ReduceMax", [](OnnxNodeImport& n) { return ImportReduction(n, OpType::kREDUCE_MAX); }},
      {"ReduceMin", [](OnnxNodeImport& n) { return ImportReduction(n, OpType::kREDUCE_MIN); }},
      {"ReduceProd", [](OnnxNodeImport& n) { return ImportReduction(n, OpType::kREDUCE_PROD); }},
      {"ArgMax", [](OnnxNodeImport& n) { return ImportArg(n, OpType::kARG_MAX); }},
      {"ArgMin", [](OnnxNodeImport& n) { return ImportArg(n, OpType::kARG_MIN); }},
  };
}

}  // namespace atollrt
