// SPDX-License-Identifier: Apache-2.0
//
// GATHER and GATHER_ND: elements at places that other tensors name. Indices that are computed can
// only be checked when they are known, so these operators may fail in Invoke.
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/ops/executors.h"
#include "runtime/shapes/shape_inference.h"

namespace atollrt {
namespace {

// A tensor of coordinates: `width` in a row address one place of an array of `sizes`.
struct Indices {
  std::string name;          // "tensor 3 'ids'"
  size_t element_bytes = 4;  // of signed integers
  int64_t rows = 0;
  std::vector<int32_t> sizes;

  int64_t At(const uint8_t* data, size_t i) const {
    const uint8_t* element = data + i * element_bytes;
    switch (element_bytes) {
      case 2:
        return LoadLittleEndian<int16_t>(element);
      case 4:
        return LoadLittleEndian<int32_t>(element);
      default:
        return LoadLittleEndian<int64_t>(element);
    }
  }

  Status Check(const uint8_t* data) const {
    size_t i = 0;
    for (int64_t row = 0; row < rows; ++row) {
      for (const int32_t size : sizes) {
        const int64_t index = At(data, i++);
        if (index < 0 || index >= size) {
          return InvalidArgument("%s: index %lld at position %zu is outside [0, %d)", name.c_str(),
                                 static_cast<long long>(index), i - 1, size);
        }
      }
    }
    return Status();
  }
};

// Coordinates of input 1 into `sizes`; those that are constant are checked here already.
Result<Indices> MakeIndices(const Graph& graph, const Node& node, std::vector<int32_t> sizes) {
  const Tensor& data = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  if (data.type != output.type) {
    return Unsupported("input has type %s, output %s", DataTypeName(data.type),
                       DataTypeName(output.type));
  }
  const Tensor& tensor = *graph.Input(node, 1);
  if (tensor.type != DataType::kInt16 && tensor.type != DataType::kInt32 &&
      tensor.type != DataType::kInt64) {
    return Unsupported("indices of type %s; must be int16, int32 or int64",
                       DataTypeName(tensor.type));
  }
  Indices indices;
  indices.name = Describe(graph, node.inputs[1]);
  indices.element_bytes = DataTypeSize(tensor.type);
  indices.rows = tensor.element_count() / static_cast<int64_t>(sizes.size());
  indices.sizes = std::move(sizes);
  if (tensor.is_constant()) {
    const Status status = indices.Check(tensor.data.data());
    if (!status.ok()) return CorruptModel("%s", status.message().c_str());
  }
  return indices;
}

}  // namespace

Executor PrepareGather(const Graph& graph, const Node& node, CpuFeatures) {
  const AxisOptions& options = std::get<AxisOptions>(node.options);
  const Shape& shape = graph.Input(node, 0)->shape;
  const Shape& index_shape = graph.Input(node, 1)->shape;
  const int32_t axis = NormalizeAxis(options.axis, shape.size());
  const int32_t batch_dims =
      options.count < 0 ? options.count + static_cast<int32_t>(index_shape.size()) : options.count;
  ATOLL_ASSIGN_OR_RETURN(const Indices indices, MakeIndices(graph, node, {shape[axis]}));
  // Input [batches, outer, size, inner], indices [batches, count], output [batches, outer, count,
  // inner].
  const int64_t size = shape[axis];
  int64_t batches = 1, outer = 1, count = 1;
  int64_t inner = static_cast<int64_t>(DataTypeSize(graph.Input(node, 0)->type));  // bytes
  for (int32_t i = 0; i < static_cast<int32_t>(shape.size()); ++i) {
    if (i != axis) (i < batch_dims ? batches : i < axis ? outer : inner) *= shape[i];
  }
  for (size_t i = static_cast<size_t>(batch_dims); i < index_shape.size(); ++i) {
    count *= index_shape[i];
  }
  const bool empty = graph.Output(node).element_count() == 0;
  const auto gather = [=](const NodeIo& io) -> Status {
    if (empty) return Status();
    ATOLL_RETURN_IF_ERROR(indices.Check(io.inputs[1]));
    const uint8_t* in = io.inputs[0];
    uint8_t* out = io.outputs[0];
    for (int64_t row = 0; row < batches * outer; ++row, in += size * inner) {
      const int64_t first = row / outer * count;
      for (int64_t i = 0; i < count; ++i, out += inner) {
        const int64_t index = indices.At(io.inputs[1], static_cast<size_t>(first + i));
        std::memcpy(out, in + index * inner, static_cast<size_t>(inner));
      }
    }
    return Status();
  };
  return Run(gather);
}

Executor PrepareGatherNd(const Graph& graph, const Node& node, CpuFeatures) {
  const Shape& shape = graph.Input(node, 0)->shape;
  const int32_t width = graph.Input(node, 1)->shape.back();
  ATOLL_ASSIGN_OR_RETURN(const Indices indices,
                         MakeIndices(graph, node, {shape.begin(), shape.begin() + width}));
  int64_t run = static_cast<int64_t>(DataTypeSize(graph.Input(node, 0)->type));  // bytes
  for (size_t i = static_cast<size_t>(width); i < shape.size(); ++i) run *= shape[i];
  const bool empty = graph.Output(node).element_count() == 0;
  const auto gather = [=](const NodeIo& io) -> Status {
    if (empty) return Status();
    ATOLL_RETURN_IF_ERROR(indices.Check(io.inputs[1]));
    uint8_t* out = io.outputs[0];
    size_t position = 0;
    for (int64_t row = 0; row < indices.rows; ++row, out += run) {
      int64_t place = 0;
      for (const int32_t size : indices.sizes) {
        place = place * size + indices.At(io.inputs[1], position++);
      }
      std::memcpy(out, io.inputs[0] + place * run, static_cast<size_t>(run));
    }
    return Status();
  };
  return Run(gather);
}

}  // namespace atollrt
