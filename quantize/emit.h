// SPDX-License-Identifier: Apache-2.0
//
// A float graph and a scheme -> the graph of bytes. Each tensor is stored once as its node writes
// it; a reader that wants it otherwise gets a QUANTIZE or DEQUANTIZE before it, which readers
// share.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "quantize/edited_graph.h"
#include "quantize/quantizer.h"
#include "quantize/scheme.h"

namespace atollrt {

// What replaces numbers of the float graph, by node.
struct FilterChanges {
  bool per_tensor_fully_connected = false;      // one scale for all channels of such weights
  std::map<int32_t, std::vector<double>> bias;  // to be added, per output channel
  std::map<int32_t, std::vector<int8_t>> rounded_weights;  // instead of rounding to nearest
};

struct EmittedGraph {
  EditedGraph edited;
  std::vector<int32_t> tensors;  // of each float tensor: as its node writes it; -1: not there
  std::vector<int32_t> nodes;    // of each float node
};

// The scale of each output channel's weights.
std::vector<float> WeightScales(const Graph& graph, const Node& node, float input_scale);
// The scale of a channel of stored weights, which may have one for all.
inline float ScaleOf(const Tensor& weights, size_t channel) {
  const std::vector<float>& scales = weights.quantization.scales;
  return scales[scales.size() == 1 ? 0 : channel];
}
// A weight as a number of steps, within [-127, 127].
int8_t RoundWeight(double value, float scale);

Result<EmittedGraph> EmitQuantized(const EditedGraph& source, const Scheme& scheme,
                                   const FilterChanges& changes, EndType input_type,
                                   EndType output_type, Precision end_precision);

// The part of `graph` that `outputs` depend on, with them as its outputs.
Graph GraphUpTo(const Graph& graph, const std::vector<int32_t>& outputs);

}  // namespace atollrt
