// SPDX-License-Identifier: Apache-2.0
//
// What makes values: copies, constants, ranges, casts and choices.
#include <algorithm>
#include <cmath>

#include "quantize/onnx/onnx_operators.h"

namespace atollrt {
namespace {

Status ImportTile(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.Input(0));
  ATOLL_ASSIGN_OR_RETURN(const Dims repeats, n.IntegersAt(1, "repeats"));
  if (repeats.size() != x->rank()) return CorruptModel("repeats %s", DimsString(repeats).c_str());
  Perm perm;
  ATOLL_ASSIGN_OR_RETURN(const int32_t tensor, n.b.AnyOrder(*x, &perm));
  std::vector<int32_t> stored;
  for (const int32_t axis : perm) {
    if (repeats[axis] < 1 || repeats[axis] > INT32_MAX)
      return CorruptModel("repeats %s", DimsString(repeats).c_str());
    stored.push_back(static_cast<int32_t>(repeats[axis]));
  }
  const OnnxType type = x->type;
  ATOLL_ASSIGN_OR_RETURN(const int32_t list,
                         n.b.IntTensor({static_cast<int32_t>(stored.size())}, stored));
  ATOLL_ASSIGN_OR_RETURN(const int32_t result, n.b.Emit(OpType::kTILE, {tensor, list}));
  return n.SetTensor(result, perm, type);
}

Status ImportExpand(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* input, n.Input(0));
  ATOLL_ASSIGN_OR_RETURN(Dims shape, n.IntegersAt(1, "shape"));
  Dims dims = input->dims;
  const size_t rank = std::max(dims.size(), shape.size());
  dims.insert(dims.begin(), rank - dims.size(), 1);
  shape.insert(shape.begin(), rank - shape.size(), 1);
  ATOLL_ASSIGN_OR_RETURN(OnnxValue x, n.b.Reshape(*input, dims));
  std::vector<int64_t> repeats;
  for (size_t i = 0; i < rank; ++i) {
    if (shape[i] < 1 || shape[i] > INT32_MAX ||
        (dims[i] != 1 && shape[i] != 1 && shape[i] != dims[i])) {
      return CorruptModel("%s as %s", DimsString(dims).c_str(), DimsString(shape).c_str());
    }
    repeats.push_back(dims[i] == 1 ? shape[i] : 1);
  }
  if (x.is_constant()) {
    for (size_t i = 0; i < rank; ++i) {
      if (repeats[i] == 1) continue;
      ATOLL_RETURN_IF_ERROR(n.b.Charge(repeats[i], sizeof(int64_t)));
      const std::vector<int64_t> positions(static_cast<size_t>(repeats[i]), 0);
      Dims larger = x.dims;
      larger[i] = repeats[i];
      ATOLL_ASSIGN_OR_RETURN(x, PickAlong(n, x, static_cast<int32_t>(i), positions, larger));
    }
    return n.Set(std::move(x));
  }
  if (std::all_of(repeats.begin(), repeats.end(), [](int64_t count) { return count == 1; })) {
    return n.Set(std::move(x));
  }
  std::vector<int32_t> stored;
  for (const int32_t axis : x.perm) stored.push_back(static_cast<int32_t>(repeats[axis]));
  ATOLL_ASSIGN_OR_RETURN(const int32_t list, n.b.IntTensor({static_cast<int32_t>(rank)}, stored));
  ATOLL_ASSIGN_OR_RETURN(const int32_t result, n.b.Emit(OpType::kTILE, {x.tensor, list}));
  return n.SetTensor(result, x.perm, x.type);
}

Status ImportConstantOfShape(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const Dims dims, n.IntegersAt(0, "the shape"));
  for (const int64_t size : dims) {
    if (size < 0) return CorruptModel("a shape of %s", DimsString(dims).c_str());
  }
  const int64_t count = DimsCount(dims);
  const OnnxAttribute* attribute = n.Attribute("value");
  OnnxTensor tensor;
  tensor.type = OnnxType::kFloat;
  tensor.floats = {0};
  if (attribute != nullptr) {
    ATOLL_ASSIGN_OR_RETURN(tensor, ReadOnnxTensor(attribute->tensor));
  }
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue value, LoadOnnxTensor(tensor, &n.b));
  if (DimsCount(value.dims) != 1)
    return CorruptModel("value has the shape %s", DimsString(value.dims).c_str());
  ATOLL_RETURN_IF_ERROR(n.b.Charge(count, sizeof(int64_t)));
  ATOLL_ASSIGN_OR_RETURN(
      OnnxValue result, n.b.Pick(value, dims, std::vector<int64_t>(static_cast<size_t>(count), 0)));
  return n.Set(std::move(result));
}

Status ImportConstant(OnnxNodeImport& n) {
  for (const OnnxAttribute& attribute : n.node.attributes) {
    if (attribute.name == "value") {
      ATOLL_ASSIGN_OR_RETURN(const OnnxTensor tensor, ReadOnnxTensor(attribute.tensor));
      ATOLL_ASSIGN_OR_RETURN(OnnxValue value, LoadOnnxTensor(tensor, &n.b));
      return n.Set(std::move(value));
    }
    if (attribute.name == "value_float" || attribute.name == "value_floats") {
      const bool one = attribute.name == "value_float";
      std::vector<float> values = one ? std::vector<float>{attribute.f} : attribute.floats;
      const Dims dims = one ? Dims{} : Dims{static_cast<int64_t>(values.size())};
      ATOLL_ASSIGN_OR_RETURN(OnnxValue value, n.b.Floats(dims, std::move(values)));
      return n.Set(std::move(value));
    }
    if (attribute.name == "value_int" || attribute.name == "value_ints") {
      const bool one = attribute.name == "value_int";
      std::vector<int64_t> values = one ? std::vector<int64_t>{attribute.i} : attribute.ints;
      const Dims dims = one ? Dims{} : Dims{static_cast<int64_t>(values.size())};
      ATOLL_ASSIGN_OR_RETURN(OnnxValue value, n.b.Integers(dims, std::move(values)));
      return n.Set(std::move(value));
    }
  }
  return Unsupported("no attribute value, value_float(s) or value_int(s)");
}

Status ImportRange(OnnxNodeImport& n) {
  int64_t numbers[3];
  for (size_t i = 0; i < 3; ++i) {
    ATOLL_ASSIGN_OR_RETURN(const Dims value, n.IntegersAt(i, "an operand"));
    if (value.size() != 1) return CorruptModel("operand %zu has %zu numbers", i, value.size());
    numbers[i] = value[0];
    if (std::abs(numbers[i] / 2) > INT32_MAX)
      return Unsupported("an operand of %lld", static_cast<long long>(numbers[i]));
  }
  const auto [start, limit, delta] = numbers;
  if (delta == 0) return CorruptModel("a delta of 0");
  const int64_t span = delta > 0 ? limit - start : start - limit;
  const int64_t count = span <= 0 ? 0 : (span + std::abs(delta) - 1) / std::abs(delta);
  ATOLL_RETURN_IF_ERROR(n.b.Charge(count, sizeof(int64_t)));
  std::vector<int64_t> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(start + i * delta);
  ATOLL_ASSIGN_OR_RETURN(OnnxValue result, n.b.Integers({count}, std::move(values)));
  return n.Set(std::move(result));
}

Status ImportCast(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.Input(0));
  const OnnxType to = static_cast<OnnxType>(static_cast<int32_t>(n.Int("to", 0)));
  const bool to_float =
      to == OnnxType::kFloat || to == OnnxType::kFloat16 || to == OnnxType::kDouble;
  const bool to_integer = to == OnnxType::kInt64 || to == OnnxType::kInt32 || to == OnnxType::kBool;
  if (!to_float && !to_integer) {
    return Unsupported("to %s; floats, int32, int64 and bool are supported", OnnxTypeName(to));
  }
  if (x->is_float() && to_float) return n.Set(*x);
  if (!x->is_constant()) {
    const bool known = x->type == OnnxType::kInt64 || x->type == OnnxType::kInt32;
    if (to == OnnxType::kBool || (!x->is_float() && !known)) {
      return Unsupported("from %s to %s at run time", OnnxTypeName(x->type), OnnxTypeName(to));
    }
    const DataType type = to_float                 ? DataType::kFloat32
                          : to == OnnxType::kInt64 ? DataType::kInt64
                                                   : DataType::kInt32;
    const Perm perm = x->perm;
    ATOLL_ASSIGN_OR_RETURN(const int32_t tensor,
                           n.b.EmitTyped(OpType::kCAST, {x->tensor}, NoOptions{}, type));
    return n.SetTensor(tensor, perm, to_float ? OnnxType::kFloat : to);
  }
  if (to_float) {
    std::vector<float> values(x->constant->integers.begin(), x->constant->integers.end());
    ATOLL_ASSIGN_OR_RETURN(OnnxValue result, n.b.Floats(x->dims, std::move(values)));
    return n.Set(std::move(result));
  }
  std::vector<int64_t> values = x->constant->integers;
  if (x->is_float()) {
    for (const float value : x->constant->floats) {
      values.push_back(std::abs(value) < 9e18f ? static_cast<int64_t>(value) : 0);
    }
  }
  for (int64_t& value : values) {
    if (to == OnnxType::kBool) value = value != 0;
    if (to == OnnxType::kInt32) value = static_cast<int32_t>(static_cast<uint64_t>(value));
  }
  ATOLL_ASSIGN_OR_RETURN(OnnxValue result, n.b.Integers(x->dims, std::move(values), to));
  return n.Set(std::move(result));
}

// Of constants: what exporters choose shapes with.
Status ImportWhere(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const Dims condition, n.IntegersAt(0, "the condition"));
  ATOLL_ASSIGN_OR_RETURN(const Dims a, n.IntegersAt(1, "an operand"));
  ATOLL_ASSIGN_OR_RETURN(const Dims b, n.IntegersAt(2, "an operand"));
  // Those of one element go with any other shape.
  const size_t largest = std::max({condition.size(), a.size(), b.size()});
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* shape, n.Input(a.size() == largest   ? 1
                                                         : b.size() == largest ? 2
                                                                               : 0));
  const size_t count = static_cast<size_t>(DimsCount(shape->dims));
  for (const size_t size : {condition.size(), a.size(), b.size()}) {
    if (size != count && size != 1) return Unsupported("operands of several shapes");
  }
  if (count == 0) return CorruptModel("no operands");
  Dims values;
  for (size_t i = 0; i < count; ++i) {
    const auto at = [&](const Dims& from) { return from[from.size() == 1 ? 0 : i]; };
    values.push_back(at(condition) != 0 ? at(a) : at(b));
  }
  ATOLL_ASSIGN_OR_RETURN(OnnxValue result, n.b.Integers(shape->dims, std::move(values)));
  return n.Set(std::move(result));
}

}  // namespace

std::vector<OnnxOperatorEntry> OnnxValueOperators() {
  return {
      {"Tile", ImportTile},         {"Expand", ImportExpand},
      {"Constant", ImportConstant}, {"ConstantOfShape", ImportConstantOfShape},
      {"Range", ImportRange},       {"Cast", ImportCast},
      {"Where", ImportWhere},
  };
}

}  // namespace atollrt
