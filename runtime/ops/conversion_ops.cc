// SPDX-License-Identifier: Apache-2.0
//
// CAST, QUANTIZE and DEQUANTIZE: between number formats.
#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/thread_pool.h"
#include "runtime/kernels/row_loops/row_loops.h"
#include "runtime/ops/executors.h"
#include "runtime/ops/quantized_params.h"

namespace atollrt {
namespace {

// Runs loop(input, output, count) over ranges of elements of these sizes.
template <typename Loop>
Executor RunConversion(const Tensor& input, const Tensor& output, Loop loop) {
  return Run([loop, total = output.element_count(),
              from = static_cast<int64_t>(DataTypeSize(input.type)),
              to = static_cast<int64_t>(DataTypeSize(output.type))](const NodeIo& io) {
    ParallelRanges(io.pool, total, kParallelGrain, [&](int64_t begin, int64_t end) {
      loop(io.inputs[0] + begin * from, io.outputs[0] + begin * to, end - begin);
    });
  });
}

AffineFormat AffineFormatOf(const Tensor& tensor) { return {tensor.scale(), tensor.zero_point()}; }

Status CheckOneScale(const char* role, const Tensor& tensor) {
  if (tensor.quantization.scales.size() == 1 && tensor.scale() > 0) return Status();
  return CorruptModel("%s '%s' has %zu scales, must have one that is positive", role,
                      tensor.name.c_str(), tensor.quantization.scales.size());
}

// Formats that QUANTIZE writes; int32 only from integers.
bool IsQuantizedType(DataType type) {
  return IsByteType(type) || type == DataType::kInt16 || type == DataType::kInt32;
}

// The same of function(params, input, output, count).
template <typename Function, typename Params>
Executor RunConversion(const Tensor& input, const Tensor& output, Function function,
                       const Params& params) {
  return RunConversion(input, output, [=](const uint8_t* x, uint8_t* y, int64_t count) {
    function(params, x, y, count);
  });
}

// One scale per channel: rows of one channel each.
Executor PrepareDequantizeChannels(const Tensor& input, const RowLoops& loops) {
  const Quantization& quantization = input.quantization;
  int64_t inner = 1;  // elements between neighbouring channels
  for (size_t i = static_cast<size_t>(quantization.dimension) + 1; i < input.shape.size(); ++i) {
    inner *= input.shape[i];
  }
  std::vector<AffineFormat> formats;
  for (size_t c = 0; c < quantization.scales.size(); ++c) {
    formats.push_back({quantization.scales[c], static_cast<int32_t>(quantization.zero_points[c])});
  }
  return Run([dequantize = loops.dequantize(*ElementOf(input.type)), inner,
              total = input.element_count(), size = static_cast<int64_t>(DataTypeSize(input.type)),
              formats = std::move(formats)](const NodeIo& io) {
    for (int64_t first = 0; first < total; first += inner) {
      const AffineFormat& format = formats[static_cast<size_t>(first / inner) % formats.size()];
      dequantize(format, io.inputs[0] + first * size, io.outputs[0] + first * 4, inner);
    }
  });
}

}  // namespace

Executor PrepareQuantize(const Graph& graph, const Node& node, CpuFeatures features) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  if (IsByteType(input.type) && IsByteType(output.type)) {
    return PrepareTable(graph, node, features);
  }
  const bool from_float = input.type == DataType::kFloat32;
  if (!IsQuantizedType(output.type) || (from_float && output.type == DataType::kInt32)) {
    return Unsupported("from %s to %s", DataTypeName(input.type), DataTypeName(output.type));
  }
  ATOLL_RETURN_IF_ERROR(CheckOneScale("output", output));
  const RowLoops& loops = ChooseRowLoops(features);
  if (from_float) {
    return RunConversion(input, output, loops.quantize(*ElementOf(output.type)),
                         AffineFormatOf(output));
  }
  ATOLL_RETURN_IF_ERROR(CheckOneScale("input", input));
  const Multiplier multiplier =
      QuantizeMultiplier(static_cast<double>(input.scale()) / static_cast<double>(output.scale()));
  return RunConversion(input, output,
                       loops.requantize(*ElementOf(input.type), *ElementOf(output.type)),
                       RequantizeParams{.input_zero_point = input.zero_point(),
                                        .multiplier = multiplier.value,
                                        .exponent = multiplier.exponent,
                                        .output_zero_point = output.zero_point()});
}

Executor PrepareDequantize(const Graph& graph, const Node& node, CpuFeatures features) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  if (output.type != DataType::kFloat32) {
    return Unsupported("from %s to %s; only to float32", DataTypeName(input.type),
                       DataTypeName(output.type));
  }
  if (input.quantization.scales.empty()) {
    return CorruptModel("input '%s' has no scale", input.name.c_str());
  }
  const RowLoops& loops = ChooseRowLoops(features);
  if (input.quantization.scales.size() > 1) return PrepareDequantizeChannels(input, loops);
  return RunConversion(input, output, loops.dequantize(*ElementOf(input.type)),
                       AffineFormatOf(input));
}

Executor PrepareCast(const Graph& graph, const Node& node, CpuFeatures features) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  const std::optional<Element> from = ElementOf(input.type);
  const std::optional<Element> to = ElementOf(output.type);
  if (!from.has_value() || !to.has_value()) {
    return Unsupported("from %s to %s", DataTypeName(input.type), DataTypeName(output.type));
  }
  return RunConversion(input, output, ChooseRowLoops(features).cast(*from, *to));
}

}  // namespace atollrt
