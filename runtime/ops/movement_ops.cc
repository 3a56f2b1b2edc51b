// SPDX-License-Identifier: Apache-2.0
//
// Operators that move data without changing values.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

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

}  // namespace atollrt
