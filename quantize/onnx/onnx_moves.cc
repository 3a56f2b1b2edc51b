// SPDX-License-Identifier: Apache-2.0
//
// Movement of data: shapes, slices, joins.
#include <algorithm>
#include <cmath>

#include "quantize/onnx/onnx_operators.h"

namespace atollrt {

Result<OnnxValue> PickAlong(OnnxNodeImport& n, const OnnxValue& x, int32_t axis,
                            const std::vector<int64_t>& positions, Dims dims) {
  if (DimsCount(dims) == 0) return n.b.Pick(x, std::move(dims), {});
  int64_t outer = 1;
  int64_t inner = 1;
  for (int32_t i = 0; i < axis; ++i) outer *= x.dims[i];
  for (size_t i = axis + 1; i < x.rank(); ++i) inner *= x.dims[i];
  const int64_t count = static_cast<int64_t>(positions.size());
  ATOLL_RETURN_IF_ERROR(n.b.Charge(DimsCount({outer, inner, count}), sizeof(int64_t)));
  std::vector<int64_t> indices;
  for (int64_t o = 0; o < outer; ++o) {
    for (const int64_t position : positions) {
      for (int64_t i = 0; i < inner; ++i)
        indices.push_back((o * x.dims[axis] + position) * inner + i);
    }
  }
  return n.b.Pick(x, std::move(dims), indices);
}

namespace {

Status ImportIdentity(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.Input(0));
  if (n.node.outputs.size() > 1 && !n.node.outputs[1].empty()) {
    return Unsupported("the output mask; export the model in evaluation mode");
  }
  return n.Set(*x);
}

// ---- Shapes ----

Status ImportReshape(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.Input(0));
  ATOLL_ASSIGN_OR_RETURN(Dims dims, n.IntegersOf("shape", 1, 5, {}));
  ATOLL_RETURN_IF_ERROR(CheckRank(dims.size()));
  const bool allow_zero = n.Int("allowzero", 0) != 0;
  int64_t known = 1;
  int64_t* inferred = nullptr;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 0 && !allow_zero) {
      if (i >= x->rank()) return CorruptModel("size %zu of the shape is 0", i);
      dims[i] = x->dims[i];
    }
    if (dims[i] == -1 && inferred == nullptr) {
      inferred = &dims[i];
    } else if (dims[i] < 0 || __builtin_mul_overflow(known, dims[i], &known)) {
      return CorruptModel("the shape is %s", DimsString(dims).c_str());
    }
  }
  if (inferred != nullptr) {
    if (known < 1 || DimsCount(x->dims) % known != 0) {
      return CorruptModel("%s cannot have the shape %s", DimsString(x->dims).c_str(),
                          DimsString(dims).c_str());
    }
    *inferred = DimsCount(x->dims) / known;
  }
  ATOLL_ASSIGN_OR_RETURN(OnnxValue result, n.b.Reshape(*x, dims));
  return n.Set(std::move(result));
}

Status ImportFlatten(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.Input(0));
  int64_t axis = n.Int("axis", 1);
  if (axis < 0) axis += static_cast<int64_t>(x->rank());
  if (axis < 0 || axis > static_cast<int64_t>(x->rank())) {
    return CorruptModel("axis %lld", static_cast<long long>(axis));
  }
  const Dims rows(x->dims.begin(), x->dims.begin() + axis);
  const Dims columns(x->dims.begin() + axis, x->dims.end());
  ATOLL_ASSIGN_OR_RETURN(OnnxValue result, n.b.Reshape(*x, {DimsCount(rows), DimsCount(columns)}));
  return n.Set(std::move(result));
}

Status ImportSqueeze(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.Input(0));
  ATOLL_ASSIGN_OR_RETURN(const Dims axes, n.IntegersOf("axes", 1, 13, {}));
  if (axes.size() > x->rank()) {
    return CorruptModel("%zu axes of %s", axes.size(), DimsString(x->dims).c_str());
  }
  std::vector<bool> dropped(x->rank(), false);
  for (size_t i = 0; i < x->rank(); ++i) dropped[i] = axes.empty() && x->dims[i] == 1;
  for (const int64_t axis : axes) {
    ATOLL_ASSIGN_OR_RETURN(const int32_t index, OnnxAxis(axis, x->rank()));
    if (x->dims[index] != 1) {
      return CorruptModel("axis %d of %s is not 1", index, DimsString(x->dims).c_str());
    }
    dropped[index] = true;
  }
  Dims dims;
  for (size_t i = 0; i < x->rank(); ++i) {
    if (!dropped[i]) dims.push_back(x->dims[i]);
  }
  ATOLL_ASSIGN_OR_RETURN(OnnxValue result, n.b.Reshape(*x, dims));
  return n.Set(std::move(result));
}

Status ImportUnsqueeze(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.Input(0));
  ATOLL_ASSIGN_OR_RETURN(const Dims axes, n.IntegersOf("axes", 1, 13, {}));
  const size_t rank = x->rank() + axes.size();
  ATOLL_RETURN_IF_ERROR(CheckRank(rank));
  std::vector<bool> added(rank, false);
  for (const int64_t axis : axes) {
    ATOLL_ASSIGN_OR_RETURN(const int32_t index, OnnxAxis(axis, rank));
    if (added[index]) return CorruptModel("axes are %s", DimsString(axes).c_str());
    added[index] = true;
  }
  Dims dims;
  size_t next = 0;
  for (size_t i = 0; i < rank; ++i) dims.push_back(added[i] ? 1 : x->dims[next++]);
  ATOLL_ASSIGN_OR_RETURN(OnnxValue result, n.b.Reshape(*x, dims));
  return n.Set(std::move(result));
}

Status ImportTranspose(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.Input(0));
  Dims order = n.Ints("perm");
  const int32_t rank = static_cast<int32_t>(x->rank());
  if (order.empty()) {
    for (int32_t i = rank; i-- > 0;) order.push_back(i);
  }
  Perm inverse(x->rank(), -1);
  bool valid = order.size() == x->rank();
  for (int32_t i = 0; valid && i < rank; ++i) {
    valid = order[i] >= 0 && order[i] < rank && inverse[order[i]] < 0;
    if (valid) inverse[order[i]] = i;
  }
  if (!valid) {
    return CorruptModel("perm %s for %s", DimsString(order).c_str(), DimsString(x->dims).c_str());
  }
  if (x->is_constant()) {
    ATOLL_ASSIGN_OR_RETURN(OnnxValue result, n.b.Permute(*x, Perm(order.begin(), order.end())));
    return n.Set(std::move(result));
  }
  // The tensor stays where it is; its axes have other names.
  Perm perm;
  for (const int32_t axis : x->perm) perm.push_back(inverse[axis]);
  return n.Set(n.b.FromTensor(x->tensor, std::move(perm), x->type));
}

Status ImportShape(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.Input(0));
  const int64_t rank = static_cast<int64_t>(x->rank());
  const auto bound = [&](int64_t value) {
    return std::clamp<int64_t>(value < 0 ? value + rank : value, 0, rank);
  };
  const int64_t start = bound(std::max(n.Int("start", 0), -rank));
  const int64_t end = std::max(start, bound(std::max(n.Int("end", rank), -rank)));
  Dims dims(x->dims.begin() + start, x->dims.begin() + end);
  const int64_t count = end - start;
  ATOLL_ASSIGN_OR_RETURN(OnnxValue result, n.b.Integers({count}, std::move(dims)));
  return n.Set(std::move(result));
}

Status ImportSize(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.Input(0));
  ATOLL_ASSIGN_OR_RETURN(OnnxValue result, n.b.Integers({}, {DimsCount(x->dims)}));
  return n.Set(std::move(result));
}

Status ImportGather(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.Input(0));
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* index, n.Input(1));
  ATOLL_ASSIGN_OR_RETURN(const int32_t axis, OnnxAxis(n.Int("axis", 0), x->rank()));
  if (!index->is_constant() || index->is_float()) {
    return Unsupported("indices that are computed at run time; they must be constants");
  }
  std::vector<int64_t> positions = index->constant->integers;
  for (int64_t& position : positions) {
    if (position < 0) position += x->dims[axis];
    if (position < 0 || position >= x->dims[axis]) {
      return CorruptModel("index %lld for axis %d of %s", static_cast<long long>(position), axis,
                          DimsString(x->dims).c_str());
    }
  }
  Dims dims(x->dims.begin(), x->dims.begin() + axis);
  dims.insert(dims.end(), index->dims.begin(), index->dims.end());
  dims.insert(dims.end(), x->dims.begin() + axis + 1, x->dims.end());
  if (x->is_constant()) {
    ATOLL_ASSIGN_OR_RETURN(OnnxValue result, PickAlong(n, *x, axis, positions, dims));
    return n.Set(std::move(result));
  }
  if (positions.empty()) return Unsupported("no indices");
  // Along the stored axis, flat; then the axis becomes those of the indices.
  std::vector<int32_t> flat(positions.begin(), positions.end());
  ATOLL_ASSIGN_OR_RETURN(const int32_t constant,
                         n.b.IntTensor({static_cast<int32_t>(flat.size())}, flat));
  AxisOptions options;
  options.axis = StoredAxis(*x, axis);
  const Perm perm = x->perm;
  const OnnxType type = x->type;
  ATOLL_ASSIGN_OR_RETURN(const int32_t tensor,
                         n.b.Emit(OpType::kGATHER, {x->tensor, constant}, options));
  ATOLL_ASSIGN_OR_RETURN(OnnxValue result, n.b.Reshape(n.b.FromTensor(tensor, perm, type), dims));
  return n.Set(std::move(result));
}

// ---- Slices ----

struct SliceRange {
  int64_t begin = 0, step = 1, count = 0;
};

// A stored tensor, cut along its value's axes.
Result<int32_t> EmitSlice(OnnxNodeImport& n, const OnnxValue& x,
                          const std::vector<SliceRange>& ranges) {
  std::vector<int32_t> begin, size, end, stride;
  bool plain = true;
  bool whole = true;
  StridedSliceOptions options;
  for (size_t i = 0; i < x.perm.size(); ++i) {
    const SliceRange& range = ranges[x.perm[i]];
    begin.push_back(static_cast<int32_t>(range.begin));
    size.push_back(static_cast<int32_t>(range.count));
    stride.push_back(static_cast<int32_t>(range.step));
    const int64_t last = range.begin + (range.count - 1) * range.step;
    const int64_t behind = range.step > 0 ? last + 1 : last - 1;
    if (behind < 0) options.end_mask |= 1 << i;
    end.push_back(static_cast<int32_t>(std::max<int64_t>(behind, 0)));
    plain &= range.step == 1;
    whole &= range.step == 1 && range.count == x.dims[x.perm[i]];
  }
  if (whole) return x.tensor;
  const Shape shape = {static_cast<int32_t>(begin.size())};
  ATOLL_ASSIGN_OR_RETURN(const int32_t begins, n.b.IntTensor(shape, begin));
  if (plain) {
    ATOLL_ASSIGN_OR_RETURN(const int32_t sizes, n.b.IntTensor(shape, size));
    return n.b.Emit(OpType::kSLICE, {x.tensor, begins, sizes});
  }
  ATOLL_ASSIGN_OR_RETURN(const int32_t ends, n.b.IntTensor(shape, end));
  ATOLL_ASSIGN_OR_RETURN(const int32_t strides, n.b.IntTensor(shape, stride));
  return n.b.Emit(OpType::kSTRIDED_SLICE, {x.tensor, begins, ends, strides}, options);
}

Status ImportSlice(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.Input(0));
  ATOLL_ASSIGN_OR_RETURN(const Dims starts, n.IntegersOf("starts", 1, 10, {}));
  ATOLL_ASSIGN_OR_RETURN(const Dims ends, n.IntegersOf("ends", 2, 10, {}));
  Dims all;
  for (size_t i = 0; i < starts.size(); ++i) all.push_back(static_cast<int64_t>(i));
  ATOLL_ASSIGN_OR_RETURN(const Dims axes, n.IntegersOf("axes", 3, 10, all));
  Dims steps(starts.size(), 1);
  if (n.opset >= 10) {
    ATOLL_ASSIGN_OR_RETURN(steps, n.IntegersOf("", 4, 10, steps));
  }
  if (ends.size() != starts.size() || axes.size() != starts.size() ||
      steps.size() != starts.size()) {
    return CorruptModel("starts %s, ends %s, axes %s", DimsString(starts).c_str(),
                        DimsString(ends).c_str(), DimsString(axes).c_str());
  }
  if (axes.size() > x->rank()) {
    return CorruptModel("%zu axes of %s", axes.size(), DimsString(x->dims).c_str());
  }
  std::vector<SliceRange> ranges;
  for (const int64_t size : x->dims) ranges.push_back({0, 1, size});
  for (size_t i = 0; i < axes.size(); ++i) {
    ATOLL_ASSIGN_OR_RETURN(const int32_t axis, OnnxAxis(axes[i], x->rank()));
    const int64_t size = x->dims[axis];
    const int64_t step = steps[i];
    if (step == 0 || step > INT32_MAX || step < -INT32_MAX) {
      return CorruptModel("a step of %lld", static_cast<long long>(step));
    }
    if (size == 0) continue;  // of nothing, nothing
    const int64_t low = step > 0 ? 0 : -1;
    const int64_t high = step > 0 ? size : size - 1;
    const auto bound = [&](int64_t value, int64_t least) {
      return std::clamp<int64_t>(value < 0 ? value + size : value, least, high);
    };
    const int64_t begin = bound(starts[i], 0);
    const int64_t end = bound(ends[i], low);
    const int64_t span = step > 0 ? end - begin : begin - end;
    const int64_t stride = std::abs(step);
    ranges[axis] = {begin, step, span <= 0 ? 0 : (span + stride - 1) / stride};
  }
  if (x->is_constant()) {
    OnnxValue result = *x;
    for (size_t axis = 0; axis < ranges.size(); ++axis) {
      const SliceRange& range = ranges[axis];
      if (range.step == 1 && range.count == result.dims[axis]) continue;
      std::vector<int64_t> positions;
      for (int64_t k = 0; k < range.count; ++k) positions.push_back(range.begin + k * range.step);
      Dims dims = result.dims;
      dims[axis] = range.count;
      ATOLL_ASSIGN_OR_RETURN(result,
                             PickAlong(n, result, static_cast<int32_t>(axis), positions, dims));
    }
    return n.Set(std::move(result));
  }
  for (const SliceRange& range : ranges) {
    if (range.count == 0) return Unsupported("a slice without elements");
  }
  const Perm perm = x->perm;
  const OnnxType type = x->type;
  ATOLL_ASSIGN_OR_RETURN(const int32_t tensor, EmitSlice(n, *x, ranges));
  return n.SetTensor(tensor, perm, type);
}

Status ImportSplit(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* input, n.Input(0));
  const OnnxValue x = *input;
  ATOLL_ASSIGN_OR_RETURN(const int32_t axis, OnnxAxis(n.Int("axis", 0), x.rank()));
  if (n.input_count() > 2) return CorruptModel("%zu inputs", n.input_count());
  ATOLL_ASSIGN_OR_RETURN(Dims sizes, n.IntegersOf("split", 1, 13, {}));
  const int64_t outputs = static_cast<int64_t>(n.node.outputs.size());
  if (sizes.empty() && outputs > 0) {
    if (x.dims[axis] % outputs != 0) {
      return CorruptModel("%lld outputs of axis %d of %s", static_cast<long long>(outputs), axis,
                          DimsString(x.dims).c_str());
    }
    sizes.assign(static_cast<size_t>(outputs), x.dims[axis] / outputs);
  }
  int64_t sum = 0;
  for (const int64_t size : sizes) {
    if (size < 1 || size > x.dims[axis])
      return CorruptModel("a part of %lld", static_cast<long long>(size));
    sum += size;
  }
  if (static_cast<int64_t>(sizes.size()) != outputs || sum != x.dims[axis]) {
    return CorruptModel("parts %s of axis %d of %s for %lld outputs", DimsString(sizes).c_str(),
                        axis, DimsString(x.dims).c_str(), static_cast<long long>(outputs));
  }
  if (x.is_constant()) {
    int64_t begin = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      std::vector<int64_t> positions;
      for (int64_t k = 0; k < sizes[i]; ++k) positions.push_back(begin + k);
      begin += sizes[i];
      Dims dims = x.dims;
      dims[axis] = sizes[i];
      ATOLL_ASSIGN_OR_RETURN(OnnxValue part, PickAlong(n, x, axis, positions, dims));
      ATOLL_RETURN_IF_ERROR(n.SetAt(i, std::move(part)));
    }
    return Status();
  }
  std::vector<int32_t> parts;
  const bool equal =
      std::all_of(sizes.begin(), sizes.end(), [&](int64_t size) { return size == sizes[0]; });
  ATOLL_ASSIGN_OR_RETURN(const int32_t along, n.b.IntTensor({}, {StoredAxis(x, axis)}));
  const SplitOptions options{static_cast<int32_t>(outputs)};
  const DataType type = n.b.tensor(x.tensor).type;
  if (equal) {
    ATOLL_ASSIGN_OR_RETURN(
        parts, n.b.EmitMany(OpType::kSPLIT, {along, x.tensor}, sizes.size(), options, type));
  } else {
    ATOLL_ASSIGN_OR_RETURN(
        const int32_t lengths,
        n.b.IntTensor({static_cast<int32_t>(sizes.size())}, {sizes.begin(), sizes.end()}));
    ATOLL_ASSIGN_OR_RETURN(parts, n.b.EmitMany(OpType::kSPLIT_V, {x.tensor, lengths, along},
                                               sizes.size(), options, type));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    if (n.node.outputs[i].empty()) continue;
    ATOLL_RETURN_IF_ERROR(n.SetAt(i, n.b.FromTensor(parts[i], x.perm, x.type)));
  }
  return Status();
}

Status ImportConcat(OnnxNodeImport& n) {
  std::vector<OnnxValue> values;
  bool constant = true;
  for (size_t i = 0; i < n.input_count(); ++i) {
    ATOLL_ASSIGN_OR_RETURN(const OnnxValue* value, n.Input(i));
    constant &= value->is_constant();
    values.push_back(*value);
  }
  if (values.empty()) return CorruptModel("no inputs");
  ATOLL_ASSIGN_OR_RETURN(const int32_t axis, OnnxAxis(n.Int("axis", 1), values[0].rank()));
  Dims dims = values[0].dims;
  dims[axis] = 0;
  for (const OnnxValue& value : values) {
    bool fits = value.rank() == dims.size() && value.is_float() == values[0].is_float();
    for (size_t i = 0; fits && i < dims.size(); ++i) {
      fits = static_cast<int32_t>(i) == axis || value.dims[i] == dims[i];
    }
    if (!fits) {
      return CorruptModel("%s and %s along axis %d", DimsString(values[0].dims).c_str(),
                          DimsString(value.dims).c_str(), axis);
    }
    dims[axis] += value.dims[axis];
  }
  if (constant) {
    ATOLL_RETURN_IF_ERROR(n.b.Charge(DimsCount(dims), sizeof(int64_t)));
    std::vector<float> floats;
    std::vector<int64_t> integers;
    const OnnxType type = values[0].type;
    const bool is_float = values[0].is_float();
    std::erase_if(values, [](const OnnxValue& value) { return DimsCount(value.dims) == 0; });
    int64_t outer = 1;
    for (int32_t i = 0; i < axis; ++i) outer = DimsCount({outer, dims[i]});
    for (int64_t o = 0; !values.empty() && o < outer; ++o) {
      for (const OnnxValue& value : values) {
        const int64_t count = DimsCount(value.dims) / outer;
        const auto append = [&](const auto& from, auto* to) {
          to->insert(to->end(), from.begin() + o * count, from.begin() + (o + 1) * count);
        };
        if (value.is_float())
          append(value.constant->floats, &floats);
        else
          append(value.constant->integers, &integers);
      }
    }
    if (is_float) {
      ATOLL_ASSIGN_OR_RETURN(OnnxValue result, n.b.Floats(dims, std::move(floats)));
      return n.Set(std::move(result));
    }
    ATOLL_ASSIGN_OR_RETURN(OnnxValue result, n.b.Integers(dims, std::move(integers), type));
    return n.Set(std::move(result));
  }
  // The order of most of the data.
  Perm perm;
  int64_t most = -1;
  for (const OnnxValue& value : values) {
    if (value.is_constant() || DimsCount(value.dims) <= most) continue;
    most = DimsCount(value.dims);
    perm = value.perm;
  }
  std::vector<int32_t> tensors;
  for (const OnnxValue& value : values) {
    if (DimsCount(value.dims) == 0) continue;
    ATOLL_ASSIGN_OR_RETURN(const int32_t tensor, n.b.Stored(value, perm));
    tensors.push_back(tensor);
  }
  if (tensors.size() == 1) return n.SetTensor(tensors[0], perm, values[0].type);
  AxisOptions options;
  options.axis = static_cast<int32_t>(std::find(perm.begin(), perm.end(), axis) - perm.begin());
  const DataType type = n.b.tensor(tensors[0]).type;
  for (const int32_t tensor : tensors) {
    if (n.b.tensor(tensor).type != type) return Unsupported("inputs of several types");
  }
  ATOLL_ASSIGN_OR_RETURN(const int32_t result, n.b.Emit(OpType::kCONCATENATION, tensors, options));
  return n.SetTensor(result, perm, values[0].type);
}

Status ImportPad(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* input, n.FloatInput(0));
  OnnxValue x = *input;
  ATOLL_ASSIGN_OR_RETURN(const Dims pads, n.IntegersOf("pads", 1, 11, {}));
  if (n.has(3)) return Unsupported("the input axes");
  if (pads.size() != 2 * x.rank()) {
    return CorruptModel("pads %s for %s", DimsString(pads).c_str(), DimsString(x.dims).c_str());
  }
  float value = n.Float("value", 0);
  if (n.opset >= 11 && n.has(2)) {
    ATOLL_ASSIGN_OR_RETURN(const std::vector<float> numbers, n.FloatsAt(2, "constant_value"));
    if (numbers.size() != 1) return CorruptModel("constant_value has %zu numbers", numbers.size());
    value = numbers[0];
  }
  std::vector<SliceRange> ranges;
  for (size_t i = 0; i < x.rank(); ++i) {
    for (const int64_t pad : {pads[i], pads[i + x.rank()]}) {
      if (pad > INT32_MAX || pad < -INT32_MAX)
        return CorruptModel("pads %s", DimsString(pads).c_str());
    }
    const int64_t before = std::min<int64_t>(0, pads[i]);
    const int64_t after = std::min<int64_t>(0, pads[i + x.rank()]);
    ranges.push_back({-before, 1, x.dims[i] + before + after});
    if (ranges.back().count < 1) return Unsupported("pads that leave nothing");
  }
  Perm perm;
  ATOLL_ASSIGN_OR_RETURN(int32_t tensor, n.b.AnyOrder(x, &perm));
  ATOLL_ASSIGN_OR_RETURN(tensor, EmitSlice(n, n.b.FromTensor(tensor, perm), ranges));
  std::vector<int32_t> sizes;
  bool none = true;
  for (const int32_t axis : perm) {
    for (const int64_t pad : {pads[axis], pads[axis + x.rank()]}) {
      sizes.push_back(static_cast<int32_t>(std::max<int64_t>(0, pad)));
      none &= pad <= 0;
    }
  }
  if (none) return n.SetTensor(tensor, perm);
  ATOLL_ASSIGN_OR_RETURN(const int32_t constant,
                         n.b.IntTensor({static_cast<int32_t>(perm.size()), 2}, sizes));
  const std::string_view mode = n.Text("mode", "constant");
  if (mode == "reflect") {
    ATOLL_ASSIGN_OR_RETURN(tensor,
                           n.b.Emit(OpType::kMIRROR_PAD, {tensor, constant}, MirrorPadOptions{}));
  } else if (mode != "constant") {
    return Unsupported("mode '%s'; constant and reflect are supported", std::string(mode).c_str());
  } else if (value == 0) {
    ATOLL_ASSIGN_OR_RETURN(tensor, n.b.Emit(OpType::kPAD, {tensor, constant}));
  } else {
    ATOLL_ASSIGN_OR_RETURN(const int32_t scalar, n.b.ScalarTensor(value));
    ATOLL_ASSIGN_OR_RETURN(tensor, n.b.Emit(OpType::kPADV2, {tensor, constant, scalar}));
  }
  return n.SetTensor(tensor, perm);
}

Status ImportDepthToSpace(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.FloatInput(0));
  const int64_t block = n.Int("blocksize", 0);
  if (x->rank() != 4 || block < 1 || block > 65535 || x->dims[1] % (block * block) != 0) {
    return CorruptModel("blocksize %lld for %s", static_cast<long long>(block),
                        DimsString(x->dims).c_str());
  }
  ATOLL_ASSIGN_OR_RETURN(int32_t tensor, n.b.Stored(*x, ChannelsLast(4)));
  const int64_t channels = x->dims[1] / (block * block);
  if (n.Text("mode", "DCR") == "CRD" && channels > 1) {
    ATOLL_RETURN_IF_ERROR(n.b.Charge(x->dims[1], sizeof(int32_t)));
    // Channel c block^2 + k of ONNX is k channels + c here.
    std::vector<int32_t> order;
    for (int64_t k = 0; k < block * block; ++k) {
      for (int64_t c = 0; c < channels; ++c)
        order.push_back(static_cast<int32_t>(c * block * block + k));
    }
    ATOLL_ASSIGN_OR_RETURN(const int32_t list,
                           n.b.IntTensor({static_cast<int32_t>(order.size())}, order));
    AxisOptions options;
    options.axis = 3;
    ATOLL_ASSIGN_OR_RETURN(tensor, n.b.Emit(OpType::kGATHER, {tensor, list}, options));
  }
  ATOLL_ASSIGN_OR_RETURN(tensor, n.b.Emit(OpType::kDEPTH_TO_SPACE, {tensor},
                                          BlockOptions{static_cast<int32_t>(block)}));
  return n.SetTensor(tensor, ChannelsLast(4));
}

Status ImportSpaceToDepth(OnnxNodeImport& n) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* x, n.FloatInput(0));
  const int64_t block = n.Int("blocksize", 0);
  if (x->rank() != 4 || block < 1 || block > 65535) {
    return CorruptModel("blocksize %lld for %s", static_cast<long long>(block),
                        DimsString(x->dims).c_str());
  }
  ATOLL_ASSIGN_OR_RETURN(int32_t tensor, n.b.Stored(*x, ChannelsLast(4)));
  ATOLL_ASSIGN_OR_RETURN(tensor, n.b.Emit(OpType::kSPACE_TO_DEPTH, {tensor},
                                          BlockOptions{static_cast<int32_t>(block)}));
  return n.SetTensor(tensor, ChannelsLast(4));
}

}  // namespace

std::vector<OnnxOperatorEntry> OnnxMoveOperators() {
  return {
      {"Identity", ImportIdentity},
      {"Dropout", ImportIdentity},
      {"Reshape", ImportReshape},
      {"Flatten", ImportFlatten},
      {"Squeeze", ImportSqueeze},
      {"Unsqueeze", ImportUnsqueeze},
      {"Transpose", ImportTranspose},
      {"Shape", ImportShape},
      {"Size", ImportSize},
      {"Gather", ImportGather},
      {"Slice", ImportSlice},
      {"Split", ImportSplit},
      {"Concat", ImportConcat},
      {"Pad", ImportPad},
      {"DepthToSpace", ImportDepthToSpace},
      {"SpaceToDepth", ImportSpaceToDepth},
  };
}

}  // namespace atollrt
