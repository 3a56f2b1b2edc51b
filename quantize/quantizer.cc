// SPDX-License-Identifier: Apache-2.0
#include "quantize/quantizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "quantize/bias_correction.h"
#include "quantize/edited_graph.h"
#include "quantize/emit.h"
#include "quantize/float_pass.h"
#include "quantize/measure.h"
#include "quantize/rewrite.h"
#include "quantize/samples.h"
#include "quantize/scheme.h"
#include "runtime/ops/cpu_ops.h"
#include "runtime/tflite/tflite_writer.h"

namespace atollrt {
namespace {

constexpr int64_t kFewSamples = 16;

Precision WantedPrecision(const QuantizeOptions& options) {
  return options.activations_16 ? Precision::kInt16 : Precision::kInt8;
}

Status CheckOptions(const QuantizeOptions& options) {
  if (options.ranges == RangeMethod::kPercentile &&
      !(options.percentile > 50 && options.percentile <= 100)) {
    return InvalidArgument("percentile %g, must be above 50 and at most 100", options.percentile);
  }
  if (options.activations_16 &&
      (options.input_type == EndType::kUInt8 || options.output_type == EndType::kUInt8)) {
    return InvalidArgument("int16 activations have ends of int16 or float, not of uint8");
  }
  return Status();
}

// Nodes that the options name become float.
Status KeepFloat(const Graph& graph, const QuantizeOptions& options,
                 std::vector<NodeChoice>* choices) {
  for (const std::string& name : options.keep_float) {
    bool found = false;
    const bool is_number =
        !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      const auto is_named = [&graph, &name](int32_t output) {
        return graph.tensors[output].name == name;
      };
      if ((is_number && std::to_string(i) == name) ||
          std::any_of(node.outputs.begin(), node.outputs.end(), is_named)) {
        (*choices)[i] = {Precision::kFloat, "it was asked to stay float"};
        found = true;
      }
    }
    if (!found) {
      return InvalidArgument(
          "no node is '%s': give a number from 0 to %zu or the name of an output, as the report "
          "has "
          "them",
          name.c_str(), graph.nodes.size() - 1);
    }
  }
  return Status();
}

// Quantized nodes that the CPU cannot run as they came out stay float.
bool FallBackToFloat(const EditedGraph& edited, const EmittedGraph& emitted,
                     std::vector<NodeChoice>* choices) {
  bool changed = false;
  for (size_t i = 0; i < edited.graph.nodes.size(); ++i) {
    if ((*choices)[i].precision == Precision::kFloat) continue;
    const Graph& made = emitted.edited.graph;
    const auto executor = PrepareCpuNode(made, made.nodes[emitted.nodes[i]], {});
    if (executor.ok()) continue;
    (*choices)[i] = {Precision::kFloat, executor.status().message()};
    changed = true;
  }
  return changed;
}

std::string Fixed(double value) { return Format("%g", value); }

void DescribeOptions(const QuantizeOptions& options, QuantizeReport* report) {
  const auto end = [](EndType type) {
    return type == EndType::kFloat ? "float" : type == EndType::kUInt8 ? "uint8" : "quantized";
  };
  report->options = {
      {"ranges", options.ranges == RangeMethod::kMinMax       ? "min/max"
                 : options.ranges == RangeMethod::kPercentile ? Fixed(options.percentile) + " %"
                                                              : "least squares"},
      {"bias_correction", options.bias_correction ? "yes" : "no"},
      {"compensate_rounding", options.compensate_rounding ? "yes" : "no"},
      {"activations", options.activations_16 ? "int16" : "int8"},
      {"input_type", end(options.input_type)},
      {"output_type", end(options.output_type)},
  };
}

QuantizeReport::End DescribeEnd(const Graph& graph, int32_t end, const Range& range) {
  const Tensor& tensor = graph.tensors[end];
  QuantizeReport::End described;
  described.name = tensor.name;
  described.type = DataTypeName(tensor.type);
  if (range.is_known()) {
    described.low = static_cast<double>(range.low);
    described.high = static_cast<double>(range.high);
  }
  described.scale = static_cast<double>(tensor.scale());
  described.zero_point = tensor.zero_point();
  return described;
}

void WarnOfSamples(const Graph& graph, const Scheme& scheme, int64_t samples,
                   QuantizeReport* report) {
  if (samples < kFewSamples) {
    report->warnings.push_back(
        Format("%lld samples are few: ranges and biases need about 100 that are like real ones",
               static_cast<long long>(samples)));
  }
  for (const int32_t input : graph.inputs) {
    const Range& range = scheme.range(input);
    if (!range.is_known()) continue;
    const char* name = graph.tensors[input].name.c_str();
    if (range.low == range.high) {
      report->warnings.push_back(Format("all values of input '%s' are %g in all samples", name,
                                        static_cast<double>(range.low)));
    }
  }
}

ModelExtras ExtrasFor(const Model& source, const EditedGraph& edited, const EmittedGraph& emitted) {
  ModelExtras extras = source.extras();
  const auto move_ends = [](std::vector<Signature::End>* ends, const std::vector<int32_t>& from,
                            const std::vector<int32_t>& to) {
    for (Signature::End& end : *ends) {
      const auto found = std::find(from.begin(), from.end(), end.tensor);
      if (found != from.end()) end.tensor = to[static_cast<size_t>(found - from.begin())];
    }
  };
  for (Signature& signature : extras.signatures) {
    move_ends(&signature.inputs, edited.graph.inputs, emitted.edited.graph.inputs);
    move_ends(&signature.outputs, edited.graph.outputs, emitted.edited.graph.outputs);
  }
  return extras;
}

}  // namespace

Result<Quantized> Quantize(std::span<const uint8_t> float_model, CalibrationData* data,
                           const QuantizeOptions& options) {
  ATOLL_RETURN_IF_ERROR(CheckOptions(options));
  EditedGraph edited;
  ATOLL_ASSIGN_OR_RETURN(edited.source, Model::FromBuffer(float_model));
  if (edited.source->graphs().size() != 1) {
    return Unsupported("the model has %zu subgraphs, only models of one can be quantized",
                       edited.source->graphs().size());
  }
  edited.graph = edited.source->graph();
  ATOLL_RETURN_IF_ERROR(RewriteFloatGraph(&edited));

  Samples samples(edited.graph, data);
  ProgressReporter progress(options);
  ATOLL_RETURN_IF_ERROR(data->Rewind());
  ATOLL_ASSIGN_OR_RETURN(const FloatMeasures measures,
                         MeasureFloat(edited, options, &samples, &progress));

  const Precision precision = WantedPrecision(options);
  std::vector<NodeChoice> choices = Scheme::Choose(edited.graph, precision);
  ATOLL_RETURN_IF_ERROR(KeepFloat(edited.graph, options, &choices));
  FilterChanges changes;
  while (true) {
    const Scheme scheme(edited.graph, choices, measures.ranges);
    ATOLL_ASSIGN_OR_RETURN(
        const EmittedGraph emitted,
        EmitQuantized(edited, scheme, changes, options.input_type, options.output_type, precision));
    if (!FallBackToFloat(edited, emitted, &choices)) break;
  }
  const Scheme scheme(edited.graph, choices, measures.ranges);
  if (options.bias_correction) {
    ATOLL_RETURN_IF_ERROR(
        CorrectBiases(edited, scheme, measures, options, &samples, &progress, &changes));
  }
  ATOLL_ASSIGN_OR_RETURN(
      const EmittedGraph emitted,
      EmitQuantized(edited, scheme, changes, options.input_type, options.output_type, precision));
  Quantized quantized;
  QuantizeReport& report = quantized.report;
  report.model = options.name;
  DescribeOptions(options, &report);
  ATOLL_RETURN_IF_ERROR(
      MeasureQuantized(edited, scheme, emitted, options, &samples, &progress, &report));
  WarnOfSamples(edited.graph, scheme, report.samples, &report);
  const Graph& made = emitted.edited.graph;
  for (size_t i = 0; i < made.inputs.size(); ++i) {
    report.inputs.push_back(
        DescribeEnd(made, made.inputs[i], scheme.range(edited.graph.inputs[i])));
  }
  for (size_t i = 0; i < made.outputs.size(); ++i) {
    report.outputs.push_back(
        DescribeEnd(made, made.outputs[i], scheme.range(edited.graph.outputs[i])));
  }
  const Graph* const graphs[] = {&made};
  ATOLL_ASSIGN_OR_RETURN(quantized.model,
                         WriteTflite(graphs, ExtrasFor(*edited.source, edited, emitted)));
  report.bytes_before = static_cast<int64_t>(float_model.size());
  report.bytes_after = static_cast<int64_t>(quantized.model.size());
  return quantized;
}

}  // namespace atollrt
