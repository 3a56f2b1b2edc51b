// SPDX-License-Identifier: Apache-2.0
//
// Operators that move data without changing values. The indices of GATHER and GATHER_ND may be
// computed, so these can only be checked in Invoke, which may fail. Variables: the loader has
// resolved all handles (graph/variables.h) and the interpreter binds the variable itself to the
// operand that is its handle, so what is left is copying.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/base/thread_pool.h"
#include "runtime/kernels/lookup_table.h"
#include "runtime/kernels/row_loops/row_loops.h"
#include "runtime/kernels/strided_copy.h"
#include "runtime/ops/executors.h"
#include "runtime/ops/move_plan.h"
#include "runtime/ops/quantized_params.h"
#include "runtime/shapes/shape_inference.h"

namespace atollrt {
namespace {

// A plan with the memory of one invocation.
void RunMovePlan(const MovePlan& plan, const NodeIo& io) {
  const auto writable = [&io](MoveOperand operand) {
    return operand.kind == MoveOperand::Kind::kScratch ? io.scratch : io.outputs[operand.position];
  };
  const MovePlan::Fill& fill = plan.fill;
  if (fill.count > 0) {
    FillElements(fill.element.data(), fill.element.size(), fill.count, writable(fill.target));
  }
  for (const MovePlan::Copy& step : plan.copies) {
    const bool from_input = step.from.kind == MoveOperand::Kind::kInput;
    RunStridedCopy(step.copy, from_input ? io.inputs[step.from.position] : writable(step.from),
                   writable(step.to), io.pool);
  }
}

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

Executor PrepareMove(const Graph& graph, const Node& node, CpuFeatures) {
  ATOLL_ASSIGN_OR_RETURN(MovePlan plan, MakeMovePlan(graph, node));
  const size_t scratch_bytes = plan.scratch_bytes;
  return Run([plan = std::move(plan)](const NodeIo& io) { RunMovePlan(plan, io); }, scratch_bytes);
}

// SHAPE: known since the model was loaded.
Executor PrepareShape(const Graph& graph, const Node& node, CpuFeatures) {
  const Shape& shape = graph.Input(node, 0)->shape;
  const DataType type = graph.Output(node).type;
  if (type != DataType::kInt32 && type != DataType::kInt64) {
    return CorruptModel("output has type %s, must be int32 or int64", DataTypeName(type));
  }
  const size_t size = DataTypeSize(type);
  std::vector<uint8_t> bytes(shape.size() * size);
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t value = shape[i];
    std::memcpy(&bytes[i * size], &value, size);  // the low bytes
  }
  return Run([bytes = std::move(bytes)](const NodeIo& io) {
    if (!bytes.empty()) std::memcpy(io.outputs[0], bytes.data(), bytes.size());
  });
}

Executor PrepareConcatenation(const Graph& graph, const Node& node, CpuFeatures features) {
  const AxisOptions& options = std::get<AxisOptions>(node.options);
  if (options.activation != Activation::kNone) {
    return Unsupported("fused activation %d", static_cast<int>(options.activation));
  }
  const Tensor& output = graph.Output(node);
  const int32_t axis = NormalizeAxis(options.axis, output.shape.size());
  int64_t outer = 1;
  for (int32_t i = 0; i < axis; ++i) outer *= output.shape[i];
  struct Part {
    int64_t run = 0;  // bytes per outer step
    ConcatenationPart convert;
  };
  std::vector<Part> parts;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    Part part;
    const Tensor& input = *graph.Input(node, i);
    part.run = outer == 0 ? 0 : input.byte_size() / outer;
    ATOLL_ASSIGN_OR_RETURN(part.convert, MakeConcatenationPart(graph, node, i));
    parts.push_back(part);
  }
  // Part by part rather than step by step: a loop over many short runs of one size.
  const int64_t out_run = outer == 0 ? 0 : output.byte_size() / outer;
  const auto concatenate = [parts, outer, out_run,
                            apply = ChooseRowLoops(features).apply_table](const NodeIo& io) {
    if (out_run == 0) return;
    const auto steps = [&](int64_t begin, int64_t end) {
      uint8_t* out = io.outputs[0] + begin * out_run;
      for (size_t i = 0; i < parts.size(); ++i) {
        const int64_t run = parts[i].run;
        if (run == 0) continue;
        const uint8_t* in = io.inputs[i] + begin * run;
        if (parts[i].convert.rescale) {
          for (int64_t step = 0; step < end - begin; ++step) {
            apply(parts[i].convert.table.data(), in + step * run, out + step * out_run, run);
          }
        } else {
          CopyRuns({.count = end - begin, .in_stride = run, .out_stride = out_run}, run, in, out);
        }
        out += run;
      }
    };
    constexpr int64_t kGrain = 1 << 17;  // bytes
    ParallelRanges(io.pool, outer, std::max<int64_t>(kGrain / out_run, 1), steps);
  };
  return Run(concatenate);
}

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

// The interpreter runs it, which has the other graphs.
Executor PrepareCallOnce(const Graph&, const Node&, CpuFeatures) {
  return Run([](const NodeIo&) {});
}

Executor PrepareVarHandle(const Graph&, const Node& node, CpuFeatures) {
  const int32_t variable = std::get<VarHandleOptions>(node.options).variable;
  return Run([variable](const NodeIo& io) { StoreLittleEndian(io.outputs[0], variable); });
}

Executor PrepareReadVariable(const Graph& graph, const Node& node, CpuFeatures) {
  const size_t bytes = static_cast<size_t>(graph.Output(node).byte_size());
  return Run([bytes](const NodeIo& io) {
    if (bytes > 0) std::memcpy(io.outputs[0], io.state[0], bytes);
  });
}

Executor PrepareAssignVariable(const Graph& graph, const Node& node, CpuFeatures) {
  const size_t bytes = static_cast<size_t>(graph.Input(node, 1)->byte_size());
  return Run([bytes](const NodeIo& io) {
    if (bytes > 0) std::memcpy(io.state[0], io.inputs[1], bytes);
  });
}

}  // namespace atollrt
