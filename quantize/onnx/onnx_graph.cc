// SPDX-License-Identifier: Apache-2.0
#include "quantize/onnx/onnx_graph.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <unordered_set>

#include "runtime/base/bytes.h"
#include "runtime/shapes/shape_rules.h"

namespace atollrt {
namespace {

// The shapes of a node's outputs, by its operator's rule.
Result<Shapes> InferNode(const Graph& graph, const Node& node) {
  switch (node.type) {
#define ATOLL_OP(name, number, version, types, Infer, Prepare) \
  case OpType::k##name:                                        \
    return Infer(graph, node);
#include "runtime/graph/operators.inc"
    default:
      break;
  }
#define ATOLL_CUSTOM_OP(name, types, Infer, Prepare, Options) \
  if (node.type == OpType::kCUSTOM && node.custom_name == (name)) return Infer(graph, node);
#include "runtime/graph/operators.inc"
  return InternalError("%s has no shape rule", node.op_name().c_str());
}

// The strides of a row-major array.
Dims Strides(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

Status CheckStoredShape(const Shape& shape, DataType type) {
  ATOLL_RETURN_IF_ERROR(CheckRank(shape.size()));
  uint64_t bytes = DataTypeSize(type);
  for (const int32_t size : shape) {
    if (size < 1) return Unsupported("a tensor of shape %s is empty", ShapeString(shape).c_str());
    bytes = SaturatingProduct({bytes, static_cast<uint64_t>(size)});
  }
  if (bytes > static_cast<uint64_t>(kMaxTensorBytes)) {
    return Unsupported("a tensor of shape %s takes more than %lld bytes",
                       ShapeString(shape).c_str(), static_cast<long long>(kMaxTensorBytes));
  }
  return Status();
}

}  // namespace

Status CheckRank(size_t rank) {
  constexpr size_t kMaxImportedRank = 8;
  if (rank <= kMaxImportedRank) return Status();
  return Unsupported("a tensor of %zu dimensions; at most %zu are supported", rank,
                     kMaxImportedRank);
}

std::string DimsString(const Dims& dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(dims[i]);
  }
  return text + "]";
}

int64_t DimsCount(const Dims& dims) {
  int64_t count = 1;
  for (const int64_t size : dims) {
    if (size == 0) return 0;
    if (size < 0 || __builtin_mul_overflow(count, size, &count)) count = INT64_MAX;
  }
  return count;
}

Perm IdentityPerm(size_t rank) {
  Perm perm(rank);
  std::iota(perm.begin(), perm.end(), 0);
  return perm;
}

Perm ChannelsLast(size_t rank) {
  Perm perm = IdentityPerm(rank);
  if (rank > 2) std::rotate(perm.begin() + 1, perm.begin() + 2, perm.end());
  return perm;
}

Shape ToShape(const Dims& dims) {
  Shape shape;
  for (const int64_t size : dims) {
    shape.push_back(static_cast<int32_t>(std::clamp<int64_t>(size, -1, INT32_MAX)));
  }
  return shape;
}

// ---- Constants ----

Status OnnxGraphBuilder::Charge(int64_t elements, int64_t element_bytes) {
  int64_t bytes = 0;
  if (elements < 0 || __builtin_mul_overflow(elements, element_bytes, &bytes) ||
      bytes > budget_bytes_) {
    return ResourceExhausted(
        "a constant of %lld elements: the constants that this model computes from others take more "
        "memory than a file of its size accounts for",
        static_cast<long long>(elements));
  }
  budget_bytes_ -= bytes;
  return Status();
}

Status OnnxGraphBuilder::ChargeConstant(const Dims& dims, int64_t element_bytes) {
  ATOLL_RETURN_IF_ERROR(CheckRank(dims.size()));
  Dims visited = dims;
  std::replace(visited.begin(), visited.end(), int64_t{0}, int64_t{1});
  const Status charged = Charge(DimsCount(visited), element_bytes);
  if (charged.ok() || DimsCount(dims) > 0) return charged;
  return Unsupported("an empty constant of shape %s, which is large but for its 0",
                     DimsString(dims).c_str());
}

Result<OnnxValue> OnnxGraphBuilder::Floats(Dims dims, std::vector<float> values) {
  ATOLL_RETURN_IF_ERROR(ChargeConstant(dims, sizeof(float)));
  OnnxValue value;
  value.dims = std::move(dims);
  auto numbers = std::make_shared<OnnxNumbers>();
  numbers->floats = std::move(values);
  value.constant = std::move(numbers);
  return value;
}

Result<OnnxValue> OnnxGraphBuilder::Integers(Dims dims, std::vector<int64_t> values,
                                             OnnxType type) {
  ATOLL_RETURN_IF_ERROR(ChargeConstant(dims, sizeof(int64_t)));
  OnnxValue value;
  value.dims = std::move(dims);
  value.type = type;
  auto numbers = std::make_shared<OnnxNumbers>();
  numbers->integers = std::move(values);
  value.constant = std::move(numbers);
  return value;
}

Result<OnnxValue> OnnxGraphBuilder::Pick(const OnnxValue& value, Dims dims,
                                         const std::vector<int64_t>& indices) {
  if (value.is_float()) {
    std::vector<float> values(indices.size());
    for (size_t i = 0; i < indices.size(); ++i) values[i] = value.constant->floats[indices[i]];
    return Floats(std::move(dims), std::move(values));
  }
  std::vector<int64_t> values(indices.size());
  for (size_t i = 0; i < indices.size(); ++i) values[i] = value.constant->integers[indices[i]];
  return Integers(std::move(dims), std::move(values), value.type);
}

Result<OnnxValue> OnnxGraphBuilder::Permute(const OnnxValue& value, const Perm& order) {
  const Dims strides = Strides(value.dims);
  Dims dims;
  for (const int32_t axis : order) dims.push_back(value.dims[axis]);
  const int64_t count = DimsCount(dims);
  ATOLL_RETURN_IF_ERROR(Charge(count, 0));
  std::vector<int64_t> indices(static_cast<size_t>(count));
  Dims position(dims.size(), 0);
  int64_t index = 0;
  for (int64_t& source : indices) {
    source = index;
    for (size_t axis = dims.size(); axis-- > 0;) {
      index += strides[order[axis]];
      if (++position[axis] < dims[axis]) break;
      index -= strides[order[axis]] * dims[axis];
      position[axis] = 0;
    }
  }
  return Pick(value, std::move(dims), indices);
}

void OnnxGraphBuilder::FreeUnused() {
  std::unordered_set<const uint8_t*> used;
  for (const Tensor& tensor : graph_.tensors) used.insert(tensor.data.data());
  for (std::vector<uint8_t>& bytes : constants_) {
    if (!used.contains(bytes.data())) std::vector<uint8_t>().swap(bytes);
  }
  tensor_of_constant_.clear();
  kept_.clear();
}

Result<int32_t> OnnxGraphBuilder::AddTensor(DataType type, Shape shape) {
  const int32_t index = static_cast<int32_t>(graph_.tensors.size());
  if (index >= most_tensors_) {
    return ResourceExhausted(
        "its operators, or the groups or outputs of one, become more than %lld tensors, which is "
        "what a file of this size accounts for",
        static_cast<long long>(most_tensors_));
  }
  Tensor& tensor = graph_.tensors.emplace_back();
  tensor.type = type;
  tensor.shape = std::move(shape);
  return index;
}

Result<int32_t> OnnxGraphBuilder::FloatTensor(Shape shape, const std::vector<float>& values) {
  ATOLL_RETURN_IF_ERROR(CheckStoredShape(shape, DataType::kFloat32));
  ATOLL_RETURN_IF_ERROR(Charge(static_cast<int64_t>(values.size()), sizeof(float)));
  ATOLL_ASSIGN_OR_RETURN(const int32_t index, AddTensor(DataType::kFloat32, std::move(shape)));
  std::vector<uint8_t>& bytes = constants_.emplace_back(values.size() * sizeof(float));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  graph_.tensors[static_cast<size_t>(index)].data = bytes;
  constant_of_tensor_[index] = constants_.size() - 1;
  return index;
}

Result<int32_t> OnnxGraphBuilder::IntTensor(Shape shape, const std::vector<int32_t>& values) {
  ATOLL_RETURN_IF_ERROR(CheckStoredShape(shape, DataType::kInt32));
  ATOLL_RETURN_IF_ERROR(Charge(static_cast<int64_t>(values.size()), sizeof(int32_t)));
  ATOLL_ASSIGN_OR_RETURN(const int32_t index, AddTensor(DataType::kInt32, std::move(shape)));
  std::vector<uint8_t>& bytes = constants_.emplace_back(values.size() * sizeof(int32_t));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  graph_.tensors[static_cast<size_t>(index)].data = bytes;
  constant_of_tensor_[index] = constants_.size() - 1;
  return index;
}

Result<int32_t> OnnxGraphBuilder::ScalarTensor(float value) { return FloatTensor({}, {value}); }

Result<int32_t> OnnxGraphBuilder::ConstantTensor(const OnnxValue& value) {
  const auto known = tensor_of_constant_.find(value.constant.get());
  if (known != tensor_of_constant_.end() && tensor(known->second).shape == ToShape(value.dims)) {
    return known->second;
  }
  int32_t index = -1;
  if (value.is_float()) {
    ATOLL_ASSIGN_OR_RETURN(index, FloatTensor(ToShape(value.dims), value.constant->floats));
  } else {
    std::vector<int32_t> values;
    values.reserve(value.constant->integers.size());
    for (const int64_t number : value.constant->integers) {
      if (number < INT32_MIN || number > INT32_MAX) {
        return Unsupported("the constant %lld does not fit an int32",
                           static_cast<long long>(number));
      }
      values.push_back(static_cast<int32_t>(number));
    }
    ATOLL_ASSIGN_OR_RETURN(index, IntTensor(ToShape(value.dims), values));
  }
  tensor_of_constant_[value.constant.get()] = index;
  kept_.push_back(value.constant);
  return index;
}

std::vector<uint8_t>* OnnxGraphBuilder::ConstantBytes(int32_t tensor) {
  const auto found = constant_of_tensor_.find(tensor);
  return found == constant_of_tensor_.end() ? nullptr : &constants_[found->second];
}

// ---- Nodes ----

Result<int32_t> OnnxGraphBuilder::AddInput(const std::string& name, DataType type, Shape shape) {
  ATOLL_ASSIGN_OR_RETURN(const int32_t index, AddTensor(type, std::move(shape)));
  graph_.tensors[static_cast<size_t>(index)].name = name;
  graph_.inputs.push_back(index);
  return index;
}

Result<std::vector<int32_t>> OnnxGraphBuilder::EmitMany(OpType type, std::vector<int32_t> inputs,
                                                        size_t outputs, OpOptions options,
                                                        DataType output_type) {
  Node node;
  node.type = type;
  node.inputs = std::move(inputs);
  node.options = std::move(options);
  return EmitNode(std::move(node), outputs, output_type);
}

Result<std::vector<int32_t>> OnnxGraphBuilder::EmitNode(Node node, size_t outputs,
                                                        DataType output_type) {
  for (size_t i = 0; i < outputs; ++i) {
    ATOLL_ASSIGN_OR_RETURN(const int32_t output, AddTensor(output_type, {}));
    node.outputs.push_back(output);
  }
  const std::vector<int32_t> results = node.outputs;
  ATOLL_ASSIGN_OR_RETURN(const Shapes shapes, InferNode(graph_, node));
  for (size_t i = 0; i < outputs; ++i) {
    ATOLL_RETURN_IF_ERROR(CheckStoredShape(shapes[i], output_type));
    graph_.tensors[static_cast<size_t>(results[i])].shape = shapes[i];
    producer_[results[i]] = graph_.nodes.size();
  }
  graph_.nodes.push_back(std::move(node));
  return results;
}

Result<int32_t> OnnxGraphBuilder::EmitTyped(OpType type, std::vector<int32_t> inputs,
                                            OpOptions options, DataType output_type) {
  ATOLL_ASSIGN_OR_RETURN(const std::vector<int32_t> outputs,
                         EmitMany(type, std::move(inputs), 1, std::move(options), output_type));
  return outputs[0];
}

Result<int32_t> OnnxGraphBuilder::Emit(OpType type, std::vector<int32_t> inputs,
                                       OpOptions options) {
  // The first operand has the type of the data, but where it is the shape of the output.
  const size_t data = type == OpType::kTRANSPOSE_CONV ? 2 : type == OpType::kSPLIT ? 1 : 0;
  const DataType output_type = tensor(inputs[data]).type;
  return EmitTyped(type, std::move(inputs), std::move(options), output_type);
}

Result<int32_t> OnnxGraphBuilder::EmitReshape(int32_t tensor_index, const Shape& shape) {
  int32_t source = tensor_index;
  while (const Node* node = Producer(source)) {
    if (node->type != OpType::kRESHAPE) break;
    source = node->inputs[0];
  }
  if (tensor(source).shape == shape) return source;
  ATOLL_RETURN_IF_ERROR(CheckStoredShape(shape, DataType::kFloat32));
  if (tensor(tensor_index).shape == shape) return tensor_index;
  ATOLL_ASSIGN_OR_RETURN(const int32_t sizes, IntTensor({static_cast<int32_t>(shape.size())},
                                                        {shape.begin(), shape.end()}));
  return Emit(OpType::kRESHAPE, {source, sizes}, ReshapeOptions{shape});
}

Result<int32_t> OnnxGraphBuilder::EmitTranspose(int32_t tensor_index, const Perm& order) {
  if (order == IdentityPerm(order.size())) return tensor_index;
  const Shape from = tensor(tensor_index).shape;
  Shape to;
  for (const int32_t axis : order) to.push_back(from[axis]);
  // Axes of more than one element, in their new order; runs that stay together count as one axis.
  std::vector<int32_t> moved;
  for (const int32_t axis : order) {
    if (from[axis] != 1) moved.push_back(axis);
  }
  if (std::is_sorted(moved.begin(), moved.end())) return EmitReshape(tensor_index, to);
  const auto known = transposed_.find({tensor_index, order});
  if (known != transposed_.end()) return known->second;
  int32_t result = -1;
  Perm plain = order;
  int32_t source = tensor_index;
  constexpr size_t kCommonRank = 4;
  if (order.size() > kCommonRank) {
    std::vector<std::vector<int32_t>> runs;
    for (const int32_t axis : moved) {
      const auto next_axis = [&](int32_t previous) {
        int32_t next = previous + 1;
        while (next < static_cast<int32_t>(from.size()) && from[next] == 1) ++next;
        return next;
      };
      if (!runs.empty() && next_axis(runs.back().back()) == axis) {
        runs.back().push_back(axis);
      } else {
        runs.push_back({axis});
      }
    }
    std::vector<size_t> by_position(runs.size());
    std::iota(by_position.begin(), by_position.end(), size_t{0});
    std::sort(by_position.begin(), by_position.end(),
              [&](size_t a, size_t b) { return runs[a][0] < runs[b][0]; });
    Shape merged;
    plain.assign(runs.size(), 0);
    for (size_t position = 0; position < by_position.size(); ++position) {
      int32_t size = 1;
      for (const int32_t axis : runs[by_position[position]]) size *= from[axis];
      merged.push_back(size);
      plain[by_position[position]] = static_cast<int32_t>(position);
    }
    ATOLL_ASSIGN_OR_RETURN(source, EmitReshape(tensor_index, merged));
  }
  ATOLL_ASSIGN_OR_RETURN(const int32_t perm,
                         IntTensor({static_cast<int32_t>(plain.size())}, plain));
  ATOLL_ASSIGN_OR_RETURN(result, Emit(OpType::kTRANSPOSE, {source, perm}));
  ATOLL_ASSIGN_OR_RETURN(result, EmitReshape(result, to));
  transposed_[{tensor_index, order}] = result;
  return result;
}

Node* OnnxGraphBuilder::Producer(int32_t tensor) {
  const auto found = producer_.find(tensor);
  return found == producer_.end() ? nullptr : &graph_.nodes[found->second];
}

// ---- Values ----

OnnxValue OnnxGraphBuilder::FromTensor(int32_t index, Perm perm, OnnxType type) const {
  OnnxValue value;
  value.type = type;
  value.tensor = index;
  value.dims.resize(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) value.dims[perm[i]] = tensor(index).shape[i];
  value.perm = std::move(perm);
  return value;
}

Result<int32_t> OnnxGraphBuilder::Stored(const OnnxValue& value, const Perm& perm) {
  if (value.is_constant()) {
    if (perm == IdentityPerm(value.rank())) return ConstantTensor(value);
    ATOLL_ASSIGN_OR_RETURN(const OnnxValue permuted, Permute(value, perm));
    return ConstantTensor(permuted);
  }
  Perm order;
  for (const int32_t axis : perm) {
    order.push_back(static_cast<int32_t>(std::find(value.perm.begin(), value.perm.end(), axis) -
                                         value.perm.begin()));
  }
  return EmitTranspose(value.tensor, order);
}

Result<OnnxValue> OnnxGraphBuilder::Reshape(const OnnxValue& value, const Dims& dims) {
  ATOLL_RETURN_IF_ERROR(CheckRank(dims.size()));
  for (const int64_t size : dims) {
    if (size < 0 || size > INT32_MAX) {
      return CorruptModel("a shape of %s", DimsString(dims).c_str());
    }
  }
  if (DimsCount(dims) != DimsCount(value.dims)) {
    return CorruptModel("%s cannot have the shape %s", DimsString(value.dims).c_str(),
                        DimsString(dims).c_str());
  }
  OnnxValue result = value;
  result.dims = dims;
  if (value.is_constant()) {
    if (DimsCount(dims) == 0) ATOLL_RETURN_IF_ERROR(ChargeConstant(dims, sizeof(int64_t)));
    return result;
  }
  // Axes of more than one element fall into groups: those of the input that become those of the
  // output. A group whose axes lie side by side and in order can be reshaped where it lies.
  struct Group {
    std::vector<int32_t> in, out;
  };
  std::vector<Group> groups;
  std::vector<size_t> group_of(value.rank(), 0);
  int32_t in = 0;
  int32_t out = 0;
  const int32_t in_rank = static_cast<int32_t>(value.rank());
  const int32_t out_rank = static_cast<int32_t>(dims.size());
  while (true) {
    while (in < in_rank && value.dims[in] == 1) ++in;
    while (out < out_rank && dims[out] == 1) ++out;
    if (in == in_rank || out == out_rank) break;
    Group group;
    int64_t in_count = 1;
    int64_t out_count = 1;
    // What is left of both has the same product, so neither runs out before they are equal.
    do {
      if (in_count <= out_count) {
        if (value.dims[in] != 1) {
          group.in.push_back(in);
          group_of[in] = groups.size();
        }
        in_count *= value.dims[in++];
      } else {
        if (dims[out] != 1) group.out.push_back(out);
        out_count *= dims[out++];
      }
    } while (in_count != out_count);
    groups.push_back(std::move(group));
  }
  Perm in_perm;
  std::vector<int32_t> out_order;
  std::vector<bool> placed(groups.size(), false);
  for (const int32_t axis : value.perm) {
    if (value.dims[axis] == 1 || placed[group_of[axis]]) continue;
    const Group& group = groups[group_of[axis]];
    placed[group_of[axis]] = true;
    in_perm.insert(in_perm.end(), group.in.begin(), group.in.end());
    out_order.insert(out_order.end(), group.out.begin(), group.out.end());
  }
  for (int32_t axis = 0; axis < in_rank; ++axis) {
    if (value.dims[axis] == 1) in_perm.push_back(axis);
  }
  // Axes of one element stay behind the one before them.
  for (int32_t axis = 0; axis < out_rank; ++axis) {
    if (dims[axis] != 1) continue;
    auto place = out_order.begin();
    if (axis > 0) place = std::find(out_order.begin(), out_order.end(), axis - 1) + 1;
    out_order.insert(place, axis);
  }
  ATOLL_ASSIGN_OR_RETURN(const int32_t ordered, Stored(value, in_perm));
  Shape shape;
  for (const int32_t axis : out_order) shape.push_back(static_cast<int32_t>(dims[axis]));
  ATOLL_ASSIGN_OR_RETURN(result.tensor, EmitReshape(ordered, shape));
  result.perm = out_order;
  return result;
}

}  // namespace atollrt
