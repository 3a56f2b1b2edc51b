// SPDX-License-Identifier: Apache-2.0
//
// ONNX files of one node each, for every operator with its attributes and opsets, against what
// onnxruntime computed of them: operators.pack, which make_operators.py made and describes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "quantize/onnx/onnx_import.h"
#include "runtime/base/bytes.h"
#include "runtime/interpreter.h"
#include "runtime/model.h"
#include "tests/quantize/onnx/pack.h"

namespace atollrt {
namespace {

std::vector<float> Inputs(uint32_t seed, size_t count) {
  std::vector<float> values(count);
  for (float& value : values) {
    seed = seed * 1664525 + 1013904223;
    value = static_cast<float>(seed >> 25) / 64 - 1;
  }
  return values;
}

std::vector<double> Numbers(const Tensor& tensor, std::span<const uint8_t> bytes) {
  std::vector<double> values;
  for (size_t i = 0; i < static_cast<size_t>(tensor.element_count()); ++i) {
    values.push_back(tensor.type == DataType::kInt64
                         ? static_cast<double>(LoadLittleEndian<int64_t>(bytes.data() + 8 * i))
                         : double{LoadLittleEndian<float>(bytes.data() + 4 * i)});
  }
  return values;
}

// Empty, or what is wrong.
std::string Check(std::span<const uint8_t> onnx, const std::vector<std::vector<float>>& inputs,
                  const std::vector<std::vector<double>>& outputs,
                  const std::vector<float>& steps) {
  const auto tflite = ImportOnnx(onnx, {{}, OnnxLayout::kAsStored});
  if (!tflite.ok()) return tflite.status().message();
  // Pictures as [N, H, W, C] must be possible, too; their values are those of networks' tests.
  const auto pictures = ImportOnnx(onnx);
  if (!pictures.ok()) return "NHWC: " + pictures.status().message();
  const auto model = Model::FromBuffer(*tflite);
  if (!model.ok()) return model.status().message();
  const auto interpreter = Interpreter::Create(*model, {.threads = 1});
  if (!interpreter.ok()) return interpreter.status().message();
  const Graph& graph = (*model)->graph();
  if (graph.inputs.size() != inputs.size()) return "other inputs";
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::span<uint8_t> bytes = (*interpreter)->TensorBytes(graph.inputs[i]);
    if (bytes.size() != inputs[i].size() * sizeof(float)) return "an input of another size";
    std::memcpy(bytes.data(), inputs[i].data(), bytes.size());
  }
  const Status status = (*interpreter)->Invoke();
  if (!status.ok()) return status.message();
  if (graph.outputs.size() != outputs.size()) return "other outputs";
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& tensor = graph.tensors[static_cast<size_t>(graph.outputs[i])];
    const auto got = Numbers(tensor, (*interpreter)->TensorBytes(graph.outputs[i]));
    if (got.size() != outputs[i].size()) return "an output of shape " + ShapeString(tensor.shape);
    double largest = 0;
    for (const double value : outputs[i]) largest = std::max(largest, std::abs(value));
    const double tolerance = 1e-4 * largest + (steps[i] == 1 ? 0 : steps[i] / 2);
    for (size_t k = 0; k < got.size(); ++k) {
      if (!(std::abs(got[k] - outputs[i][k]) <= tolerance)) {
        return Format("output %zu, element %zu is %g instead of %g", i, k, got[k], outputs[i][k]);
      }
    }
  }
  return "";
}

TEST(OnnxOperators, EqualOnnxruntime) {
  const std::vector<uint8_t> bytes = Unpacked("operators.pack");
  Records records(bytes);
  int count = 0;
  while (!records.done()) {
    const auto name = records.Take(records.Number<uint32_t>());
    const auto onnx = records.Take(records.Number<uint32_t>());
    std::vector<std::vector<float>> inputs(records.Number<uint32_t>());
    for (size_t i = 0; i < inputs.size(); ++i) {
      size_t elements = 1;
      for (uint32_t rank = records.Number<uint32_t>(); rank-- > 0;) {
        elements *= records.Number<uint32_t>();
      }
      inputs[i] = Inputs(static_cast<uint32_t>(i) + 1, elements);
    }
    std::vector<std::vector<double>> outputs(records.Number<uint32_t>());
    std::vector<float> steps;
    for (std::vector<double>& output : outputs) {
      output.resize(records.Number<uint32_t>());
      steps.push_back(records.Number<float>());
      for (double& value : output) value = double{steps.back()} * records.Number<int16_t>();
    }
    EXPECT_EQ(Check(onnx, inputs, outputs, steps), "") << std::string(name.begin(), name.end());
    ++count;
  }
  EXPECT_EQ(count, 1105);
}

}  // namespace
}  // namespace atollrt
