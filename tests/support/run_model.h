// SPDX-License-Identifier: Apache-2.0
//
// Models with typed inputs and outputs, run on the CPU: for tests of single operators.
//
//   ModelBuilder m;
//   const int32_t x = TypedInput<int32_t>(m, {2, 2});
//   SetType<int32_t>(m, m.Node(OpType::kSLICE, {x, ...}, {}));
//   EXPECT_THAT(RunModel<int32_t>(m, {1, 2, 3, 4}), ElementsAre(...));
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/interpreter.h"
#include "tests/support/model_builder.h"

namespace atollrt {

template <typename T>
constexpr DataType TypeOf() {
  if constexpr (std::is_same_v<T, float>) return DataType::kFloat32;
  if constexpr (std::is_same_v<T, uint8_t>) return DataType::kUInt8;
  if constexpr (std::is_same_v<T, int8_t>) return DataType::kInt8;
  if constexpr (std::is_same_v<T, int16_t>) return DataType::kInt16;
  if constexpr (std::is_same_v<T, int32_t>) return DataType::kInt32;
  if constexpr (std::is_same_v<T, int64_t>) return DataType::kInt64;
  if constexpr (std::is_same_v<T, bool>) return DataType::kBool;
}

// Makes a tensor one of T, without quantization.
template <typename T>
int32_t SetType(ModelBuilder& m, int32_t tensor) {
  m.tensor(tensor).type = TypeOf<T>();
  m.tensor(tensor).quantization = {};
  return tensor;
}
template <typename T>
int32_t TypedInput(ModelBuilder& m, Shape shape) {
  return SetType<T>(m, m.Input(std::move(shape)));
}

inline void Quantize(ModelBuilder& m, int32_t tensor, float scale, int32_t zero_point) {
  m.tensor(tensor).quantization = {.scales = {scale}, .zero_points = {zero_point}};
}

// The interpreter of a model; nullptr, with a failure, if it does not load.
inline std::unique_ptr<Interpreter> Prepare(const ModelBuilder& m) {
  auto interpreter = Interpreter::Create(m.Load(), {.threads = 1});
  EXPECT_TRUE(interpreter.ok()) << interpreter.status().message();
  return interpreter.ok() ? *std::move(interpreter) : nullptr;
}

template <typename T>
std::vector<T> Values(const Interpreter& interpreter, int32_t tensor) {
  const std::span<const uint8_t> bytes = interpreter.ConstTensorBytes(tensor);
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Output 0 after one run with `values` as input 0.
template <typename Out, typename In>
std::vector<Out> RunModel(const ModelBuilder& m, const std::vector<In>& values) {
  const std::unique_ptr<Interpreter> interpreter = Prepare(m);
  if (interpreter == nullptr) return {};
  const std::span<uint8_t> input = interpreter->TensorBytes(m.graph().inputs[0]);
  EXPECT_EQ(input.size(), values.size() * sizeof(In));
  if (input.size() != values.size() * sizeof(In)) return {};
  if (!values.empty()) std::memcpy(input.data(), values.data(), input.size());
  const Status status = interpreter->Invoke();
  EXPECT_TRUE(status.ok()) << status.message();
  return Values<Out>(*interpreter, m.graph().outputs[0]);
}

// The shape of output 0 once the model is loaded.
inline Shape OutputShape(const ModelBuilder& m) {
  const std::shared_ptr<const Model> model = m.Load();
  return model == nullptr ? Shape{-1} : model->graph().tensors[m.graph().outputs[0]].shape;
}

// Why a model cannot be loaded or prepared; the test fails if it can.
inline Status WhyRefused(const ModelBuilder& m) {
  auto model = Model::FromBuffer(m.Build());
  if (!model.ok()) return model.status();
  auto interpreter = Interpreter::Create(*std::move(model), {.threads = 1});
  EXPECT_FALSE(interpreter.ok());
  return interpreter.status();
}

}  // namespace atollrt
