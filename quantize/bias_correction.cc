// SPDX-License-Identifier: Apache-2.0
#include "quantize/bias_correction.h"

#include <algorithm>
#include <utility>

namespace atollrt {
namespace {

// For each output channel the sum over all positions of what `weight`, a function of the position
// among the weights, gives with the patches.
template <typename Weight>
std::vector<double> TotalSums(const Graph& graph, const Node& node, const PatchSums& patches,
                              const Weight& weight) {
  const Shape& shape = graph.Input(node, kFilterWeights)->shape;
  const auto channels = static_cast<size_t>(shape[static_cast<size_t>(ChannelDimension(node))]);
  std::vector<double> totals(channels, 0.0);
  const size_t count = static_cast<size_t>(ElementCount(shape));
  if (node.type == OpType::kDEPTHWISE_CONV_2D) {
    const size_t cells = count / channels;
    const size_t inputs = patches.sums.size() / cells;
    const size_t multiplier = channels / inputs;
    for (size_t i = 0; i < count; ++i) {
      const size_t cell = i / channels, c = i % channels;
      totals[c] += patches.sums[cell * inputs + c / multiplier] * weight(i, c);
    }
    return totals;
  }
  const size_t depth = static_cast<size_t>(shape.back());
  const size_t cells = count / channels / depth;
  const size_t inputs = patches.sums.size() / cells;
  const size_t groups = inputs / depth;
  for (size_t c = 0; c < channels; ++c) {
    const size_t first = c / (channels / groups) * depth;
    for (size_t k = 0; k < cells * depth; ++k) {
      const double sum = patches.sums[k / depth * inputs + first + k % depth];
      totals[c] += sum * weight(c * cells * depth + k, c);
    }
  }
  return totals;
}

// Layers by how many corrected ones lie before them.
std::vector<std::vector<int32_t>> Levels(const Graph& graph, const Scheme& scheme,
                                         const FloatMeasures& measures) {
  std::vector<size_t> depths(graph.tensors.size(), 0);
  std::vector<std::vector<int32_t>> levels;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    size_t depth = 0;
    for (const int32_t input : node.inputs) {
      if (input >= 0) depth = std::max(depth, depths[input]);
    }
    const auto index = static_cast<int32_t>(i);
    if (measures.patches.contains(index) && scheme.choice(i).precision != Precision::kFloat) {
      if (levels.size() <= depth) levels.resize(depth + 1);
      levels[depth].push_back(index);
      ++depth;
    }
    for (const int32_t output : node.outputs) depths[output] = depth;
  }
  return levels;
}

}  // namespace

std::vector<double> MeanSums(const Graph& graph, const Node& node, const PatchSums& patches) {
  const std::span<const float> weights = Floats(*graph.Input(node, kFilterWeights));
  std::vector<double> sums = TotalSums(graph, node, patches, [&weights](size_t i, size_t) {
    return static_cast<double>(weights[i]);
  });
  for (double& sum : sums) sum /= static_cast<double>(patches.positions);
  return sums;
}

Status CorrectBiases(const EditedGraph& edited, const Scheme& scheme, const FloatMeasures& measures,
                     const QuantizeOptions& options, Samples* samples, ProgressReporter* progress,
                     FilterChanges* changes) {
  const Graph& graph = edited.graph;
  const std::vector<std::vector<int32_t>> levels = Levels(graph, scheme, measures);
  const Precision ends = options.activations_16 ? Precision::kInt16 : Precision::kInt8;
  progress->Begin("bias correction", static_cast<int64_t>(levels.size()) * samples->count());
  for (const std::vector<int32_t>& level : levels) {
    ATOLL_ASSIGN_OR_RETURN(
        const EmittedGraph emitted,
        EmitQuantized(edited, scheme, *changes, options.input_type, EndType::kQuantized, ends));
    const Graph& made = emitted.edited.graph;
    std::vector<int32_t> inputs;  // of each layer in the level
    for (const int32_t index : level) {
      inputs.push_back(made.nodes[emitted.nodes[index]].inputs[FilterInput(graph.nodes[index])]);
    }
    std::vector<int32_t> outputs = inputs;
    std::sort(outputs.begin(), outputs.end());
    outputs.erase(std::unique(outputs.begin(), outputs.end()), outputs.end());
    ATOLL_ASSIGN_OR_RETURN(
        const std::unique_ptr<Interpreter> interpreter,
        RunnerOf(emitted.edited, GraphUpTo(made, outputs), options.threads, false));
    std::vector<PatchSums> patches(level.size());
    ATOLL_RETURN_IF_ERROR(samples->Rewind());
    while (true) {
      ATOLL_ASSIGN_OR_RETURN(const auto sample, samples->Next());
      if (sample.empty()) break;
      SetInputs(sample, interpreter.get());
      ATOLL_RETURN_IF_ERROR(interpreter->Invoke());
      for (size_t k = 0; k < level.size(); ++k) {
        patches[k].Add(SumPatches(graph, graph.nodes[level[k]], made.tensors[inputs[k]],
                                  std::as_const(*interpreter).ConstTensorBytes(inputs[k])));
      }
      ATOLL_RETURN_IF_ERROR(progress->Advance());
    }
    for (size_t k = 0; k < level.size(); ++k) {
      const Node& node = graph.nodes[level[k]];
      const Tensor& input = made.tensors[inputs[k]];
      const Tensor& stored = *made.Input(made.nodes[emitted.nodes[level[k]]], kFilterWeights);
      const PatchSums& wanted = measures.patches.at(level[k]);
      const std::span<const float> weights = Floats(*graph.Input(node, kFilterWeights));
      const std::vector<double> float_sums =
          TotalSums(graph, node, wanted,
                    [&weights](size_t i, size_t) { return static_cast<double>(weights[i]); });
      std::vector<double> sums = TotalSums(graph, node, patches[k], [&stored](size_t i, size_t) {
        return static_cast<double>(static_cast<int8_t>(stored.data[i]));
      });
      for (size_t c = 0; c < sums.size(); ++c) {
        const double step =
            static_cast<double>(input.scale()) * static_cast<double>(ScaleOf(stored, c));
        sums[c] = (float_sums[c] - sums[c] * step) / static_cast<double>(wanted.positions);
      }
      changes->bias[level[k]] = std::move(sums);
    }
  }
  return Status();
}

}  // namespace atollrt
