// SPDX-License-Identifier: Apache-2.0
//
// Operators that are linked apart and make nothing of the values but choices: copies, selections,
// logic and the greatest of rows.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/base/thread_pool.h"
#include "runtime/kernels/broadcast.h"
#include "runtime/kernels/strided_copy.h"
#include "runtime/ops/apart_executors.h"
#include "runtime/ops/tensor_checks.h"
#include "runtime/shapes/shape_inference.h"

namespace atollrt {
namespace {

// How far an operand of `shape` moves per step of each dimension of `output`, in elements.
std::vector<int64_t> BroadcastStrides(const Shape& shape, const Shape& output) {
  std::vector<int64_t> strides(output.size());
  int64_t stride = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    const int32_t size = shape[shape.size() - 1 - i];
    if (size != 1) strides[output.size() - 1 - i] = stride;
    stride *= size;
  }
  return strides;
}

struct SelectStrides {
  Shape output;
  std::vector<int64_t> condition, a, b;
};

// For all elements of dimensions `axis` and on: y = condition ? a : b.
uint8_t* SelectElements(const SelectStrides& s, size_t axis, int64_t size, const uint8_t* condition,
                        const uint8_t* a, const uint8_t* b, uint8_t* y) {
  if (axis == s.output.size()) {
    std::memcpy(y, *condition != 0 ? a : b, static_cast<size_t>(size));
    return y + size;
  }
  for (int32_t i = 0; i < s.output[axis]; ++i) {
    y = SelectElements(s, axis + 1, size, condition + i * s.condition[axis],
                       a + i * s.a[axis] * size, b + i * s.b[axis] * size, y);
  }
  return y;
}

// Copies dimensions `axis` and on, backwards where `reversed` says; `run` bytes, behind the last
// dimension that is, stay as they are. Returns the end of the output.
uint8_t* Reverse(const Shape& sizes, const std::vector<bool>& reversed, size_t axis, int64_t run,
                 const uint8_t* x, uint8_t* y) {
  if (axis == sizes.size()) {
    std::memcpy(y, x, static_cast<size_t>(run));
    return y + run;
  }
  int64_t step = run;
  for (size_t i = axis + 1; i < sizes.size(); ++i) step *= sizes[i];
  for (int32_t i = 0; i < sizes[axis]; ++i) {
    y = Reverse(sizes, reversed, axis + 1, run,
                x + step * (reversed[axis] ? sizes[axis] - 1 - i : i), y);
  }
  return y;
}

}  // namespace

Executor PrepareBroadcastTo(const Graph& graph, const Node& node, CpuFeatures) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, output));
  const size_t size = DataTypeSize(input.type);
  return Run([size, broadcast = MakeBroadcast(input.shape, output.shape)](const NodeIo& io) {
    // The other operand stands for the shape; nobody reads it.
    ForEachBlock(broadcast, size, io.inputs[0], io.outputs[0], io.pool, kParallelGrain,
                 [&](const uint8_t* x, const uint8_t*, int64_t offset, int64_t count) {
                   std::memcpy(io.outputs[0] + offset * static_cast<int64_t>(size), x,
                               static_cast<size_t>(count) * size);
                 });
  });
}

Executor PrepareSelect(const Graph& graph, const Node& node, CpuFeatures) {
  const Tensor& a = *graph.Input(node, 1);
  const Tensor& output = graph.Output(node);
  ATOLL_RETURN_IF_ERROR(CheckSameType(a, *graph.Input(node, 2)));
  ATOLL_RETURN_IF_ERROR(CheckSameType(a, output));
  const int64_t size = static_cast<int64_t>(DataTypeSize(a.type));
  if (size == 0) return Unsupported("'%s' has type %s", a.name.c_str(), DataTypeName(a.type));
  if (output.element_count() == 0) return Run([](const NodeIo&) {});
  SelectStrides strides;
  strides.output = output.shape;
  strides.a = BroadcastStrides(a.shape, output.shape);
  strides.b = BroadcastStrides(graph.Input(node, 2)->shape, output.shape);
  const Shape& condition = graph.Input(node, 0)->shape;
  if (node.type == OpType::kSELECT && condition.size() == 1 && output.shape.size() > 1) {
    strides.condition.resize(output.shape.size());
    strides.condition[0] = condition[0] == 1 ? 0 : 1;
  } else if (ElementCount(condition) == 1) {
    strides.condition.resize(output.shape.size());
  } else {
    strides.condition = BroadcastStrides(condition, output.shape);
  }
  return Run([size, strides = std::move(strides)](const NodeIo& io) {
    SelectElements(strides, 0, size, io.inputs[0], io.inputs[1], io.inputs[2], io.outputs[0]);
  });
}

Executor PrepareReverse(const Graph& graph, const Node& node, CpuFeatures) {
  const Tensor& input = *graph.Input(node, 0);
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, graph.Output(node)));
  Shape sizes = input.shape;
  std::vector<bool> reversed(sizes.size());
  for (const int64_t axis : ConstantIntegers(*graph.Input(node, 1))) {
    reversed[NormalizeAxis(axis, sizes.size())] = true;
  }
  int64_t run = static_cast<int64_t>(DataTypeSize(input.type));
  while (!sizes.empty() && !reversed[sizes.size() - 1]) {
    run *= sizes.back();
    sizes.pop_back();
  }
  if (input.element_count() == 0) return Run([](const NodeIo&) {});
  return Run([=](const NodeIo& io) {
    (void)Reverse(sizes, reversed, 0, run, io.inputs[0], io.outputs[0]);
  });
}

Executor PrepareFill(const Graph& graph, const Node& node, CpuFeatures) {
  const Tensor& value = *graph.Input(node, 1);
  const Tensor& output = graph.Output(node);
  ATOLL_RETURN_IF_ERROR(CheckSameType(value, output));
  const size_t size = DataTypeSize(value.type);
  if (size == 0) return Unsupported("type %s", DataTypeName(value.type));
  return Run([size, count = output.element_count()](const NodeIo& io) {
    FillElements(io.inputs[1], size, count, io.outputs[0]);
  });
}

// LOGICAL_AND, LOGICAL_OR, LOGICAL_NOT.
Executor PrepareLogic(const Graph& graph, const Node& node, CpuFeatures) {
  const Tensor& output = graph.Output(node);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    ATOLL_RETURN_IF_ERROR(CheckSameType(*graph.Input(node, i), output));
  }
  if (node.type == OpType::kLOGICAL_NOT) {
    return Run([count = output.element_count()](const NodeIo& io) {
      for (int64_t i = 0; i < count; ++i) io.outputs[0][i] = io.inputs[0][i] == 0;
    });
  }
  return Run([is_and = node.type == OpType::kLOGICAL_AND,
              broadcast = MakeBroadcast(graph.Input(node, 0)->shape, graph.Input(node, 1)->shape)](
                 const NodeIo& io) {
    CombineElements<uint8_t, uint8_t>(
        broadcast, io.inputs[0], io.inputs[1], io.outputs[0], io.pool,
        [is_and](uint8_t a, uint8_t b) {
          return static_cast<uint8_t>(is_and ? a != 0 && b != 0 : a != 0 || b != 0);
        });
  });
}

// The greatest of each row and their places, in falling order; of equal ones the first come first,
// and what is no number comes last.
Executor PrepareTopK(const Graph& graph, const Node& node, CpuFeatures) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& places = graph.Output(node, 1);
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, graph.Output(node)));
  if (places.type != DataType::kInt32) {
    return CorruptModel("output 1 has type %s, must be int32", DataTypeName(places.type));
  }
  const int64_t depth = input.shape.back();
  const int64_t k = places.shape.back();
  const int64_t rows = depth == 0 ? 0 : input.element_count() / depth;
  const auto top = [=](const NodeIo& io) {
    auto* const order = reinterpret_cast<int32_t*>(io.scratch);
    for (int64_t row = 0; row < rows; ++row) {
      const auto key = [x = io.inputs[0] + 4 * row * depth](int32_t i) {
        const float value = LoadLittleEndian<float>(x + 4 * int64_t{i});
        return std::isnan(value) ? -std::numeric_limits<float>::infinity() : value;
      };
      std::iota(order, order + depth, 0);
      std::partial_sort(order, order + k, order + depth, [&key](int32_t a, int32_t b) {
        return key(a) > key(b) || (key(a) == key(b) && a < b);
      });
      for (int64_t i = 0; i < k; ++i) {
        const uint8_t* const from = io.inputs[0] + 4 * (row * depth + order[i]);
        std::memcpy(io.outputs[0] + 4 * (row * k + i), from, sizeof(float));
        StoreLittleEndian<int32_t>(io.outputs[1] + 4 * (row * k + i), order[i]);
      }
    }
  };
  return Run(top, static_cast<size_t>(depth) * sizeof(int32_t));
}

}  // namespace atollrt
