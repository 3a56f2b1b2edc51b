// SPDX-License-Identifier: Apache-2.0
//
// ModelBuilder: small int8 models for tests, built operator by operator. Every operator returns
// its output tensor, so that a model reads like an expression:
//
//   ModelBuilder m;
//   const int32_t x = m.Input({1, 8, 8, 4});
//   m.Output(m.Add(x, m.Conv2D(x, {.channels = 4, .kernel = 3})));
//   const std::vector<uint8_t> file = m.Build();
//
// Weights and biases come from a seed. graph() may be changed at will before Build, which is how
// tests make models that must be refused.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/zoo/owned_graph.h"
#include "runtime/model.h"
#include "tests/support/rng.h"

namespace atollrt {

// WriteTflite of several subgraphs; the test fails if they cannot be written.
std::vector<uint8_t> WriteGraphs(const std::vector<const Graph*>& graphs,
                                 const ModelExtras& extras = {});

class ModelBuilder {
 public:
  struct Filter {
    int32_t channels = 1;  // of the output; ignored by DepthwiseConv2D
    int32_t kernel = 1;
    int32_t stride = 1;
    Padding padding = Padding::kSame;
  };
  struct Window {
    int32_t size = 2;
    int32_t stride = 2;
    Padding padding = Padding::kValid;
  };

  struct Recurrent {
    int32_t units = 1;
    bool time_major = false;
    float cell_clip = 0;            // 0: none
    int32_t cell_integer_bits = 4;  // scale 2^(this - 15)
  };

  explicit ModelBuilder(uint64_t seed = 1) : rng_(seed) {}

  // Tensors. Activations are int8 with scale 1/16 and zero point -3, unless changed afterwards.
  int32_t Activation(Shape shape);
  int32_t Input(Shape shape);
  int32_t Constant(DataType type, Shape shape, std::vector<uint8_t> bytes) {
    return model_.AddConstant({type, {}}, std::move(shape), std::move(bytes));
  }
  int32_t Constant(Shape shape);  // random, of the type and quantization of activations
  int32_t Integers(Shape shape, const std::vector<int32_t>& values) {
    return model_.AddNumbers(DataType::kInt32, std::move(shape), values);
  }
  void Output(int32_t tensor) { graph().outputs.push_back(tensor); }

  // Operators.
  int32_t Conv2D(int32_t input, const Filter& filter);
  int32_t DepthwiseConv2D(int32_t input, const Filter& filter);
  // To an image of height x width, whatever its input reaches.
  int32_t TransposeConv(int32_t input, const Filter& filter, int32_t height, int32_t width);
  int32_t FullyConnected(int32_t input, int32_t units);
  // Of [batch, steps, inputs] or, time-major, [steps, batch, inputs]; with a state of its own.
  int32_t Lstm(int32_t input, const Recurrent& layer);
  int32_t Add(int32_t a, int32_t b);
  int32_t MaxPool(int32_t input, const Window& window);
  int32_t AveragePool(int32_t input, const Window& window);
  int32_t Mean(int32_t input, const std::vector<int32_t>& axes);
  int32_t Pad(int32_t input, const std::vector<int32_t>& paddings);
  int32_t Concatenation(const std::vector<int32_t>& inputs, int32_t axis);
  int32_t Reshape(int32_t input, Shape shape);
  int32_t Relu(int32_t input);
  int32_t L2Normalization(int32_t input);
  int32_t Logistic(int32_t input);
  int32_t LogSoftmax(int32_t input);
  int32_t Softmax(int32_t input);
  int32_t Custom(const std::string& name, int32_t input);
  // Any other operator; the output has the shape given.
  int32_t Node(OpType type, std::vector<int32_t> inputs, Shape output_shape,
               OpOptions options = {});

  Graph& graph() { return model_.graph; }
  const Graph& graph() const { return model_.graph; }
  Tensor& tensor(int32_t index) { return model_.tensor(index); }
  std::vector<uint8_t> Build(const ModelExtras& extras = {}) const;
  // The loaded model; the test fails if it does not load.
  std::shared_ptr<const Model> Load() const;

 private:
  std::vector<uint8_t> RandomBytes(int64_t count);
  int32_t Weights(Shape shape, int32_t dimension);
  int32_t Bias(int32_t channels);
  int32_t Pool(OpType type, int32_t input, const Window& window);
  Shape WindowShape(const Shape& input, int32_t size, int32_t stride, Padding padding,
                    int32_t channels) const;

  Rng rng_;
  OwnedGraph model_;
};

}  // namespace atollrt
