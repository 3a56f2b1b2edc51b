// SPDX-License-Identifier: Apache-2.0
//
// What is measured on the float graph: ranges of all tensors, histograms, and the sums of what each
// filter sees, which biases are corrected by.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "atoll/status.h"
#include "quantize/edited_graph.h"
#include "quantize/quantizer.h"
#include "quantize/samples.h"
#include "quantize/scheme.h"
#include "runtime/interpreter.h"

namespace atollrt {

// Sums of the inputs that meet each weight of one output channel, over all positions of a filter:
// [kernel_h][kernel_w][input channels]. The mean of the filter's sums follows from them and the
// weights, as it is linear.
struct PatchSums {
  std::vector<double> sums;
  int64_t positions = 0;
  void Add(const PatchSums& other);
};
PatchSums SumPatches(const Graph& graph, const Node& node, std::span<const float> input);
// The same of int8 or int16 values, as numbers of steps from their zero point.
PatchSums SumPatches(const Graph& graph, const Node& node, const Tensor& stored,
                     std::span<const uint8_t> input);

// Calls progress and turns a "no" into kCancelled.
class ProgressReporter {
 public:
  explicit ProgressReporter(const QuantizeOptions& options) : options_(options) {}
  void Begin(const char* phase, int64_t total);
  Status Advance();

 private:
  const QuantizeOptions& options_;
  QuantizeProgress progress_;
};

// An interpreter for a graph that points into `edited`, which outlives it.
Result<std::unique_ptr<Interpreter>> RunnerOf(const EditedGraph& edited, Graph graph, int threads,
                                              bool keep_all_tensors);
// Copies a sample into an interpreter's inputs, quantized or converted as they want it.
void SetInputs(std::span<const std::vector<float>> sample, Interpreter* interpreter);
// The same for one input, by its position.
void SetInput(std::span<const float> values, size_t position, Interpreter* interpreter);
// Bytes of a tensor, or of some of its elements, as real values.
void Dequantize(const Tensor& tensor, std::span<const uint8_t> bytes, std::vector<float>* values);

struct FloatMeasures {
  std::vector<Range> ranges;  // of all tensors, constants included
  // Of each tensor: values of this magnitude or more stand for infinity (infinities.h), and the
  // range of the others; INFINITY: there are none.
  std::vector<float> infinities;
  std::vector<Range> finite_ranges;
  std::map<int32_t, PatchSums> patches;  // by node, of those with constant weights
};
// Ranges are still those of all values.
Result<FloatMeasures> MeasureFloat(const EditedGraph& edited, const QuantizeOptions& options,
                                   Samples* samples, ProgressReporter* progress);

}  // namespace atollrt
