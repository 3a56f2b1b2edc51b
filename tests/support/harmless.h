// SPDX-License-Identifier: Apache-2.0
//
// Hostile models: whatever the bytes are, the loader gives a graph that keeps the promises of
// graph.h or a sentence that says what is wrong, and what loads can be prepared, or not, and run.
// The sanitizers see the rest.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/interpreter.h"
#include "runtime/ops/cpu_ops.h"
#include "runtime/tflite/tflite_loader.h"
#include "tests/fuzz/small_model.h"

namespace atollrt {

inline std::vector<uint8_t> ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// A model and the heap block of exactly its size that it lies in, so that the sanitizers see
// every byte read beyond it.
struct Loaded {
  std::unique_ptr<uint8_t[]> block;
  std::vector<Buffer> folded;
  Result<Graph> graph;
};

inline Loaded LoadExact(std::span<const uint8_t> bytes) {
  std::unique_ptr<uint8_t[]> block(new uint8_t[bytes.size()]);
  std::copy(bytes.begin(), bytes.end(), block.get());
  Result<LoadedModel> model = LoadTflite({block.get(), bytes.size()}, EvaluateNode);
  if (!model.ok()) return {std::move(block), {}, model.status()};
  return {std::move(block), std::move(model->folded), std::move(model->graphs[0])};
}

// What graph.h promises of every loaded graph.
inline void ExpectPromisesKept(const Graph& graph) {
  const auto exists = [&](int32_t tensor) {
    return tensor >= 0 && static_cast<size_t>(tensor) < graph.tensors.size();
  };
  for (const Tensor& tensor : graph.tensors) {
    for (const int32_t dim : tensor.shape) ASSERT_GE(dim, 0) << tensor.name;
    // In floating point, which cannot overflow.
    double size = static_cast<double>(DataTypeSize(tensor.type));
    for (const int32_t dim : tensor.shape) size *= dim;
    ASSERT_LE(size, static_cast<double>(kMaxTensorBytes)) << tensor.name;
    if (tensor.is_constant()) {
      ASSERT_GE(tensor.data.size(), static_cast<size_t>(tensor.byte_size())) << tensor.name;
    }
    const Quantization& q = tensor.quantization;
    ASSERT_EQ(q.scales.size(), q.zero_points.size()) << tensor.name;
    for (const float scale : q.scales) ASSERT_TRUE(std::isfinite(scale) && scale >= 0);
  }
  for (const Node& node : graph.nodes) {
    for (const int32_t input : node.inputs) ASSERT_TRUE(input == -1 || exists(input));
    for (const int32_t output : node.outputs) ASSERT_TRUE(exists(output));
  }
  for (const int32_t input : graph.inputs) ASSERT_TRUE(exists(input));
  for (const int32_t output : graph.outputs) ASSERT_TRUE(exists(output));
}

// Whatever loads must also prepare, or say why not, and run; with `delegate`, if it is not nullptr.
inline void ExpectHarmless(const std::vector<uint8_t>& bytes, Delegate* delegate = nullptr) {
  const Loaded loaded = LoadExact(bytes);
  if (!loaded.graph.ok()) {
    ASSERT_FALSE(loaded.graph.status().message().empty());
    return;
  }
  ASSERT_NO_FATAL_FAILURE(ExpectPromisesKept(*loaded.graph));
  if (!IsSmall(*loaded.graph)) return;
  auto model = Model::FromBuffer(bytes);
  ASSERT_TRUE(model.ok());
  auto interpreter = Interpreter::Create(*std::move(model), {.threads = 1, .delegate = delegate});
  if (!interpreter.ok()) {
    ASSERT_FALSE(interpreter.status().message().empty());
    return;
  }
  for (const bool is_plain : {true, false}) {
    for (const int32_t input : (*interpreter)->graph().inputs) {
      const std::span<uint8_t> data = (*interpreter)->TensorBytes(input);
      if (is_plain) {
        std::fill(data.begin(), data.end(), uint8_t{7});
      } else {
        FillWithPattern(data);
      }
    }
    // Data may be at fault, too: a box that ends before it begins.
    const Status status = (*interpreter)->Invoke();
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kInvalidArgument) << status.message();
  }
}

inline void ExpectHarmlessWithAnyByteChanged(const std::vector<uint8_t>& good) {
  for (size_t i = 0; i < good.size(); ++i) {
    for (const int flip : {0xFF, 0x01, 0x80}) {
      SCOPED_TRACE("byte " + std::to_string(i) + " ^ " + std::to_string(flip));
      std::vector<uint8_t> bad = good;
      bad[i] = static_cast<uint8_t>(bad[i] ^ flip);
      ASSERT_NO_FATAL_FAILURE(ExpectHarmless(bad));
    }
  }
}

}  // namespace atollrt
