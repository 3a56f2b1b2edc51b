// SPDX-License-Identifier: Apache-2.0
//
// NetworkBuilder: int8 networks layer by layer. Each method adds one layer and returns its output
// tensor. Weights are uniform in -127 ... 127 from a seed; scales and biases are what makes the
// values of a few sample pictures, which are carried along (sample_run.h), keep a spread in every
// layer: each channel of a convolution gets a standard deviation of 1 and a mean at most half of
// that from zero, which is what batch normalization does in training. Most ranges reach six
// standard deviations, which leaves some forty steps for one. The kernels being exact, the bytes do
// not depend on the instruction set or on the number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "models/zoo/sample_run.h"
#include "models/zoo/zoo.h"
#include "runtime/graph/graph.h"

namespace atollrt {

// The window of a convolution or pooling layer.
struct Window {
  int32_t h = 1, w = 1;
  int32_t stride = 1;
  int32_t dilation = 1;
  Padding padding = Padding::kSame;
  Activation activation = Activation::kRelu;  // of convolutions
  double gain = 1;                            // standard deviation of what a convolution computes
};

class NetworkBuilder {
 public:
  NetworkBuilder(std::string name, const ZooOptions& options);

  // A picture: [1, h, w, 3], from -1 to 1.
  int32_t Input(int32_t h, int32_t w);
  void Output(int32_t tensor) { model_.graph.outputs.push_back(tensor); }

  int32_t Conv(int32_t input, int32_t channels, const Window& window);
  int32_t Depthwise(int32_t input, const Window& window);
  // Doubles the size: 3x3, stride 2.
  int32_t UpConv(int32_t input, int32_t channels, Activation activation);
  int32_t FullyConnected(int32_t input, int32_t units, Activation activation, double gain = 1);
  // Batch normalization that no convolution can absorb: MUL and ADD per channel, then a ReLU.
  int32_t NormalizeRelu(int32_t input);
  int32_t Add(int32_t a, int32_t b, Activation activation);
  // Along the channels; inputs of other scales than the first one's are requantized.
  int32_t Concat(std::vector<int32_t> inputs);
  // Along any axis; all inputs must have one scale.
  int32_t ConcatAlong(std::vector<int32_t> inputs, int32_t axis);
  int32_t MaxPool(int32_t input, const Window& window);
  int32_t AveragePool(int32_t input, const Window& window);
  // AVERAGE_POOL_2D over all of h and w: [1, 1, 1, c].
  int32_t GlobalAveragePool(int32_t input);
  int32_t Reshape(int32_t input, const Shape& shape);
  int32_t ResizeBilinear(int32_t input, int32_t h, int32_t w);
  int32_t Logistic(int32_t input);
  int32_t Softmax(int32_t input);  // over the last dimension
  int32_t Dequantize(int32_t input);
  int32_t ToUInt8(int32_t input);  // the same values as uint8
  // int64 indices of the largest element along the last dimension.
  int32_t ArgMax(int32_t input);
  // A constant of float32.
  int32_t Floats(Shape shape, const std::vector<float>& values);
  // A custom operator with float32 outputs.
  std::vector<int32_t> Custom(const std::string& name, OpOptions options,
                              std::vector<int32_t> inputs, const std::vector<Shape>& outputs);

  const Shape& shape(int32_t tensor) const { return at(tensor).shape; }
  int32_t channels(int32_t tensor) const { return at(tensor).shape.back(); }

  // The network, or the first thing that was wrong: a window that does not fit its input.
  Result<ZooModel> Finish() &&;

 private:
  struct Range {
    double low = 0, high = 0;
  };

  const Tensor& at(int32_t index) const { return model_.tensor(index); }
  Tensor& at(int32_t index) { return model_.tensor(index); }

  uint64_t Next();
  double Real();  // uniform in [-1, 1)
  std::vector<uint8_t> RandomWeights(size_t count);

  int32_t Integers(const std::string& name, const std::vector<int32_t>& values);
  // A vector of int8 with one scale, nearest to `values`.
  int32_t QuantizedVector(const std::string& name, const std::vector<double>& values);
  // Adds the node and its output, int8 over `range`.
  int32_t AddLayer(OpType type, std::vector<int32_t> inputs, Shape shape, OpOptions options,
                   Range range);
  // The same with the quantization of input 0.
  int32_t AddMover(OpType type, std::vector<int32_t> inputs, Shape shape, OpOptions options);
  // Adds the node and its output, without values for the samples.
  int32_t AddNode(OpType type, std::vector<int32_t> inputs, Shape shape, OpOptions options,
                  NumberFormat output);
  // Gives the output of the last node its values.
  void RunSamples();
  int32_t Pool(OpType type, int32_t input, const Window& window);
  Shape WindowShape(int32_t input, const Window& window, int32_t channels);

  // A layer with weights. They lie output by output, those of a depthwise convolution tap by tap;
  // tap k of a filter belongs to channel k modulo the channels of the input.
  struct Filter {
    OpType type = OpType::kCONV_2D;
    Shape weights;
    int32_t outputs = 0;
    int32_t taps = 0;  // per output
    double gain = 1;   // the standard deviation wanted
    Activation activation = Activation::kNone;
  };
  int32_t AddFilter(int32_t input, Shape shape, const Filter& filter, OpOptions options);
  // Scales and biases for the last node, a filter.
  void Calibrate(const Filter& filter, int32_t input, int32_t weights, int32_t bias);
  void SetFilter(int32_t input, int32_t weights, int32_t bias, const std::vector<double>& scales,
                 const std::vector<double>& biases);
  bool has_samples() const { return samples_ != nullptr && status_.ok(); }
  std::string LayerName(const char* kind);

  ZooModel model_;
  uint64_t state_;                      // of the generator
  std::unique_ptr<SampleRun> samples_;  // none if weights are zero
  Status status_;
};

}  // namespace atollrt
