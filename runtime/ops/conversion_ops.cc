// SPDX-License-Identifier: Apache-2.0
//
// QUANTIZE and DEQUANTIZE: between number formats.
#include <cmath>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/ops/executors.h"
#include "runtime/ops/quantized_params.h"

namespace atollrt {

Executor PrepareQuantize(const Graph& graph, const Node& node, CpuFeatures features) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  if (input.type != DataType::kFloat32) return PrepareTable(graph, node, features);
  if (!IsByteType(output.type) || !(output.scale() > 0)) {
    return Unsupported(
        "output has type %s and scale %g, must be int8 or uint8 with a positive "
        "scale",
        DataTypeName(output.type), static_cast<double>(output.scale()));
  }
  const float scale = output.scale();
  const float zero_point = static_cast<float>(output.zero_point());
  const float lo = output.type == DataType::kUInt8 ? 0.0f : -128.0f;
  const float hi = output.type == DataType::kUInt8 ? 255.0f : 127.0f;
  const int64_t count = output.element_count();
  return Run([=](const NodeIo& io) {
    for (int64_t i = 0; i < count; ++i) {
      const float x = LoadLittleEndian<float>(io.inputs[0] + 4 * i);
      const float y = std::round(x / scale) + zero_point;
      // Not-a-number becomes the lower bound.
      const float clamped = y > lo ? (y < hi ? y : hi) : lo;
      io.outputs[0][i] = static_cast<uint8_t>(static_cast<int32_t>(clamped));
    }
  });
}

Executor PrepareDequantize(const Graph& graph, const Node& node, CpuFeatures) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  if (!IsByteType(input.type) || output.type != DataType::kFloat32) {
    return Unsupported("from %s to %s; only int8 or uint8 to float32", DataTypeName(input.type),
                       DataTypeName(output.type));
  }
  if (input.quantization.scales.size() != 1) {
    return CorruptModel("input '%s' has %zu scales, must have 1", input.name.c_str(),
                        input.quantization.scales.size());
  }
  std::vector<float> table(256);
  const ByteType type = input.type == DataType::kUInt8 ? ByteType::kUInt8 : ByteType::kInt8;
  for (int byte = 0; byte < 256; ++byte) {
    const int32_t steps = ByteValue(static_cast<uint8_t>(byte), type) - input.zero_point();
    table[byte] =
        static_cast<float>(static_cast<double>(steps) * static_cast<double>(input.scale()));
  }
  const int64_t count = output.element_count();
  return Run([table = std::move(table), count](const NodeIo& io) {
    for (int64_t i = 0; i < count; ++i) {
      StoreLittleEndian<float>(io.outputs[0] + 4 * i, table[io.inputs[0][i]]);
    }
  });
}

}  // namespace atollrt
