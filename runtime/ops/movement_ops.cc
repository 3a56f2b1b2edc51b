// SPDX-License-Identifier: Apache-2.0
//
// Operators that move data without changing values.
#include <cstring>
#include <vector>

#include "runtime/graph/shape_inference.h"
#include "runtime/kernels/lookup_table.h"
#include "runtime/ops/executors.h"
#include "runtime/ops/quantized_params.h"

namespace atollrt {
namespace {

// Copies the rows of `shape` into a padded tensor; `bytes` is one element.
void CopyInner(const Shape& shape, const Shape& padded, const std::vector<int64_t>& before,
               size_t depth, size_t bytes, const uint8_t** in, uint8_t* out) {
  int64_t out_stride = static_cast<int64_t>(bytes);
  for (size_t i = depth + 1; i < padded.size(); ++i) out_stride *= padded[i];
  out += before[depth] * out_stride;
  if (depth + 1 == shape.size()) {
    const size_t run = static_cast<size_t>(shape[depth]) * bytes;
    std::memcpy(out, *in, run);
    *in += run;
    return;
  }
  for (int32_t i = 0; i < shape[depth]; ++i) {
    CopyInner(shape, padded, before, depth + 1, bytes, in, out + i * out_stride);
  }
}

}  // namespace

// RESHAPE, SQUEEZE: the same bytes under another shape.
Executor PrepareMove(const Graph& graph, const Node& node, CpuFeatures) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  if (input.type != output.type || DataTypeSize(input.type) == 0) {
    return CorruptModel("input has type %s, output %s", DataTypeName(input.type),
                        DataTypeName(output.type));
  }
  const size_t bytes = static_cast<size_t>(output.byte_size());
  return Run([bytes](const NodeIo& io) {
    if (bytes > 0) std::memcpy(io.outputs[0], io.inputs[0], bytes);
  });
}

Executor PrepareConcatenation(const Graph& graph, const Node& node, CpuFeatures) {
  const AxisOptions& options = std::get<AxisOptions>(node.options);
  if (options.activation != Activation::kNone) {
    return Unsupported("fused activation %d", static_cast<int>(options.activation));
  }
  const Tensor& output = graph.Output(node);
  const size_t element = DataTypeSize(output.type);
  if (element == 0) return Unsupported("type %s", DataTypeName(output.type));
  const int32_t axis = NormalizeAxis(options.axis, output.shape.size());
  int64_t outer = 1;
  for (int32_t i = 0; i < axis; ++i) outer *= output.shape[i];
  struct Part {
    size_t run = 0;  // bytes per outer step
    ConcatenationPart convert;
  };
  std::vector<Part> parts;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    Part part;
    const Tensor& input = *graph.Input(node, i);
    part.run = outer == 0 ? 0 : static_cast<size_t>(input.byte_size() / outer);
    ATOLL_ASSIGN_OR_RETURN(part.convert, MakeConcatenationPart(graph, node, i));
    parts.push_back(part);
  }
  const auto concatenate = [parts, outer](const NodeIo& io) {
    uint8_t* out = io.outputs[0];
    for (int64_t step = 0; step < outer; ++step) {
      for (size_t i = 0; i < parts.size(); ++i) {
        const size_t run = parts[i].run;
        if (run == 0) continue;
        const uint8_t* in = io.inputs[i] + static_cast<size_t>(step) * run;
        if (parts[i].convert.rescale) {
          ApplyTable(parts[i].convert.table, in, out, static_cast<int64_t>(run));
        } else {
          std::memcpy(out, in, run);
        }
        out += run;
      }
    }
  };
  return Run(concatenate);
}

Executor PreparePad(const Graph& graph, const Node& node, CpuFeatures) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  const size_t element = DataTypeSize(input.type);
  if (input.type != output.type || element == 0) {
    return CorruptModel("input has type %s, output %s", DataTypeName(input.type),
                        DataTypeName(output.type));
  }
  if (input.shape.empty()) return CorruptModel("the input is a scalar");
  const std::vector<int64_t> paddings = ConstantIntegers(*graph.Input(node, 1));
  std::vector<int64_t> before(input.shape.size());
  for (size_t i = 0; i < before.size(); ++i) before[i] = paddings[2 * i];
  // Byte tensors are padded with their zero point, all others with 0.
  const int fill = IsByteType(output.type) ? output.zero_point() & 0xFF : 0;
  const auto pad = [shape = input.shape, padded = output.shape, before, element, fill,
                    bytes = static_cast<size_t>(output.byte_size()),
                    empty = input.element_count() == 0](const NodeIo& io) {
    if (bytes > 0) std::memset(io.outputs[0], fill, bytes);
    const uint8_t* in = io.inputs[0];
    if (!empty) CopyInner(shape, padded, before, 0, element, &in, io.outputs[0]);
  };
  return Run(pad);
}

}  // namespace atollrt
