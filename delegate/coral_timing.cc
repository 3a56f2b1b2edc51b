// SPDX-License-Identifier: Apache-2.0
#include "delegate/coral_timing.h"

#include <algorithm>
#include <string>

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

// ---- Fitted -------------------------------------------------------------------------------------
// By bench/coral_fit to the rows of bench/coral_latencies.csv whose use is `fit`; it prints these
// lines, and a test fails when they are no longer what it prints.
constexpr CoralRates kRates = {.dense_macs_per_cycle = 2006.3,
                               .vector_operations_per_cycle = 35.788,
                               .cycles_per_layer = 2754.7};
constexpr CoralHost kHosts[] = {
    {"usb3", "desktop computer, USB 3", 472.68e6, 0.13619e-3},
    {"usb2", "Raspberry Pi 3, USB 2", 34.633e6, 1.5881e-3},
    {"pcie", "Coral Dev Board, PCIe gen2 x1", 401.32e6, 0.12e-3},
    {"usb3-pi4", "Raspberry Pi 4, USB 3", 285.69e6, 1.8052e-3},
};

// ---- Not fitted: read from the chip's public header and from published compiled models ----------

// The part of the computation before the first streamed layer that streaming runs under. The rows
// to fit on cannot tell: with any value from 0 to 1 they are met equally well. Programs of early
// compilers cache a prefix of the layers, which leaves little to overlap; later ones spread what
// they stream over the layers, which leaves much. This is the middle.
constexpr double kOverlap = 0.5;
// Parameters and activations share the on-chip memory. Between 8.51 and 8.53 million bytes it
// holds just what two published programs cache: 6.3 MB of Inception v4, and MobileNet v1 and all
// of v2 but its classifier together.
constexpr uint64_t kMemoryBytes = 16 * 520 * 1024;
// 192 KiB on each of 16 tiles. Layers with larger activations are computed in bands.
constexpr uint64_t kMaxActivationBytes = 16 * 192 * 1024;
// Instructions, to within a third for 10 published programs of 46 to 606 KB.
constexpr double kInstructionBytesPerFilter = 1800;
constexpr double kInstructionBytesPerConcatenatedInput = 4000;
constexpr double kInstructionBytesPerElement = 0.004;

// ---- Mapping ------------------------------------------------------------------------------------

template <OpType... types>
bool IsOneOf(OpType type) {
  return ((type == types) || ...);
}

// What Google's compiler 16 maps, tensors permitting.
bool IsMapped(OpType type) {
  using enum OpType;
  return IsOneOf<kADD, kAVERAGE_POOL_2D, kCONCATENATION, kCONV_2D, kDEPTHWISE_CONV_2D, kEXPAND_DIMS,
                 kFULLY_CONNECTED, kL2_NORMALIZATION, kLOGISTIC, kMAXIMUM, kMAX_POOL_2D, kMEAN,
                 kMINIMUM, kMUL, kPACK, kPAD, kPRELU, kQUANTIZE, kREDUCE_MAX, kREDUCE_MIN, kRELU,
                 kRELU6, kRELU_N1_TO_1, kRESHAPE, kRESIZE_BILINEAR, kRESIZE_NEAREST_NEIGHBOR,
                 kRSQRT, kSLICE, kSOFTMAX, kSPACE_TO_DEPTH, kSPLIT, kSQUARED_DIFFERENCE, kSQUEEZE,
                 kSTRIDED_SLICE, kSUB, kSUM, kTANH, kTRANSPOSE, kTRANSPOSE_CONV,
                 kUNIDIRECTIONAL_SEQUENCE_LSTM>(type);
}

bool IsActivation(const Tensor* tensor) { return tensor != nullptr && !tensor->is_constant(); }

uint64_t Elements(const Tensor& tensor) { return static_cast<uint64_t>(tensor.element_count()); }

uint64_t InputElements(const Graph& graph, const Node& node) {
  uint64_t elements = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Tensor* input = graph.Input(node, i);
    if (IsActivation(input)) elements += Elements(*input);
  }
  return elements;
}

uint64_t OutputElements(const Graph& graph, const Node& node) {
  uint64_t elements = 0;
  for (size_t i = 0; i < node.outputs.size(); ++i) elements += Elements(graph.Output(node, i));
  return elements;
}

bool RunsOnCoral(const Graph& graph, const Node& node) {
  if (!IsMapped(node.type)) return false;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Tensor* input = graph.Input(node, i);
    if (IsActivation(input) && !input->is_variable && !IsByteType(input->type)) return false;
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (!IsByteType(graph.Output(node, i).type)) return false;
  }
  // Large magnifications stay on the host, to keep their precision.
  constexpr uint64_t kMaxMagnification = 16;
  const bool is_resize =
      node.type == OpType::kRESIZE_BILINEAR || node.type == OpType::kRESIZE_NEAREST_NEIGHBOR;
  return !is_resize ||
         OutputElements(graph, node) <= kMaxMagnification * InputElements(graph, node);
}

// The first and one past the last node on the device. Quantizing a float32 input is left to the
// host; from there, the first node that cannot be mapped ends it.
std::pair<size_t, size_t> MappedRange(const Graph& graph) {
  size_t first = 0;
  while (first < graph.nodes.size() && graph.nodes[first].type == OpType::kQUANTIZE &&
         !RunsOnCoral(graph, graph.nodes[first])) {
    ++first;
  }
  size_t last = first;
  while (last < graph.nodes.size() && RunsOnCoral(graph, graph.nodes[last])) ++last;
  return {first, last};
}

// ---- Layers -------------------------------------------------------------------------------------

// Output channels fill a multiple of the cells that work on them.
uint64_t PaddedOutputs(uint64_t channels) { return AlignUp(channels, channels <= 64 ? 16 : 64); }

constexpr uint64_t kBiasBytes = 4;
constexpr uint64_t kLanes = 4;  // of a cell, along the input channels

// Weights [outputs, taps..., inputs] with inputs in fours, and a bias for each output. These are
// exactly the bytes of the published programs of MobileNet v1 and v2, DeepLab and Inception v4.
uint64_t DenseParameterBytes(const Shape& weights) {
  uint64_t taps = 1;
  for (size_t i = 1; i + 1 < weights.size(); ++i) taps *= static_cast<uint64_t>(weights[i]);
  const uint64_t inputs = AlignUp(weights.back(), kLanes);
  return PaddedOutputs(static_cast<uint64_t>(weights[0])) * (taps * inputs + kBiasBytes);
}

void DescribeFilter(const Graph& graph, const Node& node, TimedCoralLayer* layer) {
  const Tensor* weights = graph.Input(node, 1);
  if (weights == nullptr || weights->shape.size() < 2) return;
  const Shape& w = weights->shape;
  if (node.type == OpType::kDEPTHWISE_CONV_2D) {
    // One of the four lanes works.
    const uint64_t taps = static_cast<uint64_t>(w[1]) * static_cast<uint64_t>(w[2]);
    layer->vector_operations = static_cast<double>(MultiplyAccumulates(graph, node));
    layer->parameter_bytes = static_cast<uint64_t>(w[3]) * (kLanes * taps + kBiasBytes);
    return;
  }
  layer->parameter_bytes = DenseParameterBytes(w);
  layer->dense_macs = static_cast<double>(MultiplyAccumulates(graph, node));
  if (node.type == OpType::kTRANSPOSE_CONV) {
    const Tensor* input = graph.Input(node, 2);
    layer->dense_macs = static_cast<double>(Elements(*input)) * w[0] * w[1] * w[2];
  }
}

void DescribeLstm(const Graph& graph, const Node& node, TimedCoralLayer* layer) {
  const auto* options = std::get_if<LstmOptions>(&node.options);
  const Tensor* input = graph.Input(node, 0);
  const size_t time = options != nullptr && options->time_major ? 0 : 1;
  const double steps = input->shape.size() == 3 ? input->shape[time] : 1;
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    const Tensor* weights = graph.Input(node, i);
    if (weights == nullptr || weights->shape.size() != 2 || weights->is_variable) continue;
    layer->dense_macs += steps * static_cast<double>(Elements(*weights));
    layer->parameter_bytes += DenseParameterBytes(weights->shape);
  }
}

TimedCoralLayer DescribeLayer(const Graph& graph, const Node& node) {
  TimedCoralLayer layer;
  switch (node.type) {
    case OpType::kCONV_2D:
    case OpType::kDEPTHWISE_CONV_2D:
    case OpType::kFULLY_CONNECTED:
    case OpType::kTRANSPOSE_CONV:
      DescribeFilter(graph, node, &layer);
      break;
    case OpType::kUNIDIRECTIONAL_SEQUENCE_LSTM:
      DescribeLstm(graph, node, &layer);
      break;
    case OpType::kAVERAGE_POOL_2D:
    case OpType::kMAX_POOL_2D:
      if (const auto* options = std::get_if<Pool2DOptions>(&node.options)) {
        layer.vector_operations = static_cast<double>(OutputElements(graph, node)) *
                                  options->filter_h * options->filter_w;
      }
      break;
    case OpType::kRESHAPE:
    case OpType::kSQUEEZE:
    case OpType::kEXPAND_DIMS:
      layer.is_issued = false;
      break;
    case OpType::kCONCATENATION:
    case OpType::kPACK:
    case OpType::kPAD:
    case OpType::kSLICE:
    case OpType::kSPLIT:
    case OpType::kSTRIDED_SLICE:
    case OpType::kSPACE_TO_DEPTH:
    case OpType::kTRANSPOSE:
      break;  // data written where the next layer reads it
    default:
      layer.vector_operations = static_cast<double>(InputElements(graph, node));
  }
  return layer;
}

double InstructionBytes(const Graph& graph, const Node& node, const TimedCoralLayer& layer) {
  if (!layer.is_issued) return 0;
  double bytes = kInstructionBytesPerElement * static_cast<double>(OutputElements(graph, node));
  if (layer.parameter_bytes > 0) bytes += kInstructionBytesPerFilter;
  if (node.type == OpType::kCONCATENATION) {
    bytes += kInstructionBytesPerConcatenatedInput * static_cast<double>(node.inputs.size());
  }
  return bytes;
}

// What crosses the link at either end: tensors that the range needs from outside it, and those
// that are needed outside.
void DescribeEnds(const Graph& graph, size_t first, size_t last, TimedCoralProgram* program) {
  constexpr uint64_t kTransferUnit = 8;
  std::vector<bool> is_made(graph.tensors.size()), is_sent(graph.tensors.size());
  std::vector<bool> is_needed(graph.tensors.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const bool is_inside = i >= first && i < last;
    for (const int32_t input : graph.nodes[i].inputs) {
      if (input < 0) continue;
      const Tensor& tensor = graph.tensors[input];
      if (!is_inside) {
        is_needed[input] = true;
      } else if (IsActivation(&tensor) && !tensor.is_variable && !is_made[input] &&
                 !is_sent[input]) {
        is_sent[input] = true;
        program->input_bytes += AlignUp(tensor.byte_size(), kTransferUnit);
      }
    }
    for (const int32_t output : graph.nodes[i].outputs) is_made[output] = is_inside;
  }
  for (const int32_t output : graph.outputs) is_needed[output] = true;
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    if (!is_made[i] || !is_needed[i]) continue;
    const Tensor& tensor = graph.tensors[i];
    program->output_bytes += AlignUp(tensor.byte_size(), kTransferUnit);
  }
}

// ---- Time ---------------------------------------------------------------------------------------

struct Cycles {
  double dense = 0, vector = 0, layers = 0;

  double sum() const { return dense + vector + layers; }
};

Cycles CyclesOf(const TimedCoralLayer& layer, const CoralRates& rates) {
  return {.dense = layer.dense_macs / rates.dense_macs_per_cycle,
          .vector = layer.vector_operations / rates.vector_operations_per_cycle,
          .layers = layer.is_issued ? rates.cycles_per_layer : 0};
}

// With `budget` bytes for parameters.
CoralEstimate EstimateWithin(const TimedCoralProgram& program, const CoralSetup& setup,
                             uint64_t budget) {
  CoralEstimate estimate;
  Cycles all;
  double before_streaming = 0;
  for (const TimedCoralLayer& layer : program.layers) {
    const Cycles cycles = CyclesOf(layer, setup.rates);
    // A layer's parameters are cached or streamed as a whole, the first ones cached.
    const bool fits = estimate.cached_bytes + layer.parameter_bytes <= budget;
    if (fits && estimate.streamed_bytes == 0) {
      estimate.cached_bytes += layer.parameter_bytes;
      before_streaming += cycles.sum();
    } else {
      estimate.streamed_bytes += layer.parameter_bytes;
    }
    all.dense += cycles.dense;
    all.vector += cycles.vector;
    all.layers += cycles.layers;
  }
  const double rate = setup.host.link_bytes_per_second;
  const double pre = before_streaming / setup.clock_hz;
  const double post = all.sum() / setup.clock_hz - pre;
  const double streaming = static_cast<double>(estimate.streamed_bytes) / rate;
  estimate.host_seconds = setup.host.request_seconds;
  estimate.link_out_seconds =
      static_cast<double>(program.instruction_bytes + program.input_bytes) / rate;
  estimate.dense_seconds = all.dense / setup.clock_hz;
  estimate.vector_seconds = all.vector / setup.clock_hz;
  estimate.layer_seconds = all.layers / setup.clock_hz;
  estimate.parameter_seconds = std::max(0.0, streaming - (kOverlap * pre + post));
  estimate.link_in_seconds = static_cast<double>(program.output_bytes) / rate;
  estimate.upload_seconds = static_cast<double>(estimate.cached_bytes) / rate;
  return estimate;
}

}  // namespace

Result<TimedCoralProgram> DescribeForCoral(const Graph& graph) {
  const auto [first, last] = MappedRange(graph);
  if (first == last) {
    return Unsupported(
        "no operator of the model would run on a Coral; it runs int8 and uint8 "
        "models, from the input to the first operator that it lacks");
  }
  TimedCoralProgram program;
  program.device_nodes = static_cast<int32_t>(last - first);
  program.host_nodes = static_cast<int32_t>(graph.nodes.size() - (last - first));
  double instruction_bytes = 0;
  for (size_t i = first; i < last; ++i) {
    const Node& node = graph.nodes[i];
    const TimedCoralLayer layer = DescribeLayer(graph, node);
    instruction_bytes += InstructionBytes(graph, node, layer);
    program.parameter_bytes += layer.parameter_bytes;
    program.activation_bytes = std::max(program.activation_bytes,
                                        InputElements(graph, node) + OutputElements(graph, node));
    program.layers.push_back(layer);
  }
  program.activation_bytes = std::min(program.activation_bytes, kMaxActivationBytes);
  program.instruction_bytes = static_cast<uint64_t>(instruction_bytes);
  DescribeEnds(graph, first, last, &program);
  return program;
}

CoralRates FittedCoralRates() { return kRates; }

std::span<const CoralHost> CoralHosts() { return kHosts; }

Result<CoralHost> FindCoralHost(std::string_view name) {
  std::string known;
  for (const CoralHost& host : kHosts) {
    if (name == host.name) return host;
    known += (known.empty() ? "" : ", ") + std::string(host.name);
  }
  return NotFound("no Coral host '%s'; there are: %s", std::string(name).c_str(), known.c_str());
}

CoralEstimate EstimateCoral(const TimedCoralProgram& program, const CoralSetup& setup) {
  return EstimateWithin(program, setup, kMemoryBytes - program.activation_bytes);
}

std::vector<CoralEstimate> EstimateCoCompiled(std::span<const TimedCoralProgram> programs,
                                              const CoralSetup& setup) {
  uint64_t activation_bytes = 0;
  for (const TimedCoralProgram& program : programs) {
    activation_bytes = std::max(activation_bytes, program.activation_bytes);
  }
  uint64_t budget = kMemoryBytes - activation_bytes;
  std::vector<CoralEstimate> estimates;
  for (const TimedCoralProgram& program : programs) {
    estimates.push_back(EstimateWithin(program, setup, budget));
    budget -= estimates.back().cached_bytes;
  }
  return estimates;
}

}  // namespace atollrt
