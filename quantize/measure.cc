// SPDX-License-Identifier: Apache-2.0
#include "quantize/measure.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace atollrt {
namespace {

constexpr size_t kWorstSamples = 8;

// Sums of squares of a signal and of what is wrong with it.
struct Noise {
  double signal = 0, noise = 0;

  // Values of the magnitude of `infinity` do not count.
  void Add(std::span<const float> wanted, std::span<const float> computed, float infinity) {
    double s = 0, n = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (std::abs(wanted[i]) >= infinity) continue;
      const double value = static_cast<double>(wanted[i]);
      const double error = value - static_cast<double>(computed[i]);
      s += value * value;
      n += error * error;
    }
    signal += s;
    noise += n;
  }
  void Add(const Noise& other) {
    signal += other.signal;
    noise += other.noise;
  }
  double Decibels() const {
    return signal > 0 && noise > 0 ? 10 * std::log10(signal / noise) : kNoSqnr;
  }
};

// What enters the SOFTMAX or LOGISTIC that ends the graph at `output`, behind which little is left
// to compare; else the output.
struct Logits {
  int32_t tensor = -1;
  const Node* detections =
      nullptr;  // instead: the node that chose among boxes, in an order of its own
};
Logits LogitsOf(const Graph& graph, const std::vector<int32_t>& producers, int32_t output) {
  int32_t tensor = output;
  while (producers[tensor] >= 0) {
    const Node& node = graph.nodes[producers[tensor]];
    switch (node.type) {
      case OpType::kSOFTMAX:
      case OpType::kLOGISTIC:
      case OpType::kLOG_SOFTMAX:
        return {node.inputs[0]};
      case OpType::kRESHAPE:
      case OpType::kSQUEEZE:
      case OpType::kEXPAND_DIMS:
        tensor = node.inputs[0];
        break;
      case OpType::kCUSTOM:
        if (std::holds_alternative<DetectionOptions>(node.options)) return {-1, &node};
        return {output};
      default:
        return {output};
    }
  }
  return {output};
}

// Those of `open`, each once; of chosen boxes those of all boxes and scores. A file may have
// detections of detections, whose operands are looked at once.
std::vector<int32_t> AllLogits(const Graph& graph, std::vector<int32_t> open) {
  const std::vector<int32_t> producers = Producers(graph);
  std::vector<bool> is_there(graph.tensors.size(), false);
  std::vector<bool> is_expanded(graph.tensors.size(), false);  // by a node's first output
  std::vector<int32_t> all;
  while (!open.empty()) {
    const Logits found = LogitsOf(graph, producers, open.back());
    open.pop_back();
    if (found.detections == nullptr) {
      if (!is_there[found.tensor]) all.push_back(found.tensor);
      is_there[found.tensor] = true;
    } else if (const Node& node = *found.detections; !is_expanded[node.outputs[0]]) {
      is_expanded[node.outputs[0]] = true;
      open.insert(open.end(), {node.inputs[0], node.inputs[1]});
    }
  }
  return all;
}

// What a concatenation that ends in an output consists of.
struct Joined {
  size_t first = 0;          // of its parts, among all
  std::vector<size_t> rows;  // how many values of each part come in turn
};

// One node of bytes, to be run on what the float model computes. Its interpreter lives from the
// first of its inputs to its output: those of all nodes would take more memory than both models.
struct Alone {
  Graph graph;
  std::unique_ptr<Interpreter> interpreter = nullptr;
};

class Measurer {
 public:
  Measurer(const EditedGraph& edited, const Scheme& scheme, const EmittedGraph& emitted,
           const std::vector<float>& infinities, const QuantizeOptions& options)
      : edited_(edited),
        scheme_(scheme),
        emitted_(emitted),
        infinities_(infinities),
        options_(options) {}

  Status Prepare(QuantizeReport* report) {
    const Graph& graph = edited_.graph;
    const Graph& made = emitted_.edited.graph;
    ATOLL_ASSIGN_OR_RETURN(floats_, RunnerOf(edited_, graph, options_.threads, false));
    readers_.resize(graph.tensors.size());
    layers_.assign(graph.tensors.size(), -1);
    ATOLL_ASSIGN_OR_RETURN(bytes_, RunnerOf(emitted_.edited, made, options_.threads, true));
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      QuantizeReport::Layer layer;
      layer.index = static_cast<int32_t>(i);
      layer.operation = node.op_name();
      const NodeChoice& choice = scheme_.choice(i);
      layer.type = choice.precision == Precision::kInt8    ? "int8"
                   : choice.precision == Precision::kInt16 ? "16x8"
                                                           : "float";
      layer.reason = choice.reason;
      if (!node.outputs.empty()) {
        const int32_t output = node.outputs[0];
        const Range& range = scheme_.range(output);
        const Tensor& stored = made.tensors[emitted_.tensors[output]];
        layer.name = graph.tensors[output].name;
        if (range.is_known()) {
          layer.low = static_cast<double>(range.low);
          layer.high = static_cast<double>(range.high);
        }
        layer.scale = static_cast<double>(stored.scale());
        layer.zero_point = stored.zero_point();
        layer.histogram.assign(kHistogramBins, 0);
        layers_[output] = static_cast<int32_t>(i);
      }
      report->layers.push_back(std::move(layer));
      accumulated_.emplace_back();
      alone_noise_.emplace_back();
      if (choice.precision != Precision::kFloat) PrepareAlone(i);
    }
    for (const int32_t output : graph.outputs) {
      if (graph.tensors[output].type == DataType::kFloat32) outputs_.push_back(output);
    }
    logits_ = AllLogits(graph, outputs_);
    FindParts(report);
    return Status();
  }

  Status Run(std::span<const std::vector<float>> sample, QuantizeReport* report) {
    SetInputs(sample, floats_.get());
    SetInputs(sample, bytes_.get());
    ATOLL_RETURN_IF_ERROR(bytes_->Invoke());
    noise_.assign(edited_.graph.tensors.size(), Noise());
    problem_ = Status();
    floats_->SetTap([this, report](int32_t tensor) { Listen(tensor, report); });
    for (const int32_t input : edited_.graph.inputs) Listen(input, report);
    ATOLL_RETURN_IF_ERROR(floats_->Invoke());
    ATOLL_RETURN_IF_ERROR(problem_);
    Noise sample_noise;
    for (const int32_t output : outputs_) output_noise_.Add(noise_[output]);
    for (const int32_t logits : logits_) sample_noise.Add(noise_[logits]);
    logits_noise_.Add(sample_noise);
    report->worst.push_back({report->samples, sample_noise.Decibels()});
    ++report->samples;
    const auto worse = [](const QuantizeReport::Sample& a, const QuantizeReport::Sample& b) {
      return a.sqnr_db < b.sqnr_db;
    };
    std::stable_sort(report->worst.begin(), report->worst.end(), worse);
    if (report->worst.size() > kWorstSamples) report->worst.pop_back();
    return Status();
  }

  void Finish(QuantizeReport* report) const {
    for (size_t i = 0; i < report->layers.size(); ++i) {
      report->layers[i].sqnr_accumulated_db = accumulated_[i].Decibels();
      report->layers[i].sqnr_alone_db = alone_noise_[i].Decibels();
    }
    for (size_t k = 0; k < report->parts.size(); ++k) {
      report->parts[k].sqnr_db = part_noise_[k].Decibels();
    }
    report->output_sqnr_db = output_noise_.Decibels();
    report->logits_sqnr_db = logits_noise_.Decibels();
  }

 private:
  // The concatenations that end in outputs, whose parts are looked at one by one.
  void FindParts(QuantizeReport* report) {
    const Graph& graph = edited_.graph;
    const std::vector<bool> all = NodesThatMoveTo(graph, graph.outputs);
    size_t left = 0;  // concatenations without an output
    for (size_t i = 0; i < all.size(); ++i) {
      const Node& node = graph.nodes[i];
      if (all[i] && node.type == OpType::kCONCATENATION &&
          graph.Output(node).type == DataType::kFloat32) {
        ++left;
      }
    }
    for (size_t k = 0; k < graph.outputs.size() && left > 0; ++k) {
      const std::vector<bool> moves = NodesThatMoveTo(graph, {graph.outputs[k]});
      for (size_t i = 0; i < moves.size(); ++i) {
        const Node& node = graph.nodes[i];
        if (!moves[i] || node.type != OpType::kCONCATENATION) continue;
        const Shape& shape = graph.Output(node).shape;
        if (graph.Output(node).type != DataType::kFloat32 || joined_.contains(node.outputs[0])) {
          continue;
        }
        --left;
        int32_t axis = std::get<AxisOptions>(node.options).axis;
        if (axis < 0) axis += static_cast<int32_t>(shape.size());
        Joined& joined = joined_[node.outputs[0]];
        joined.first = report->parts.size();
        for (const int32_t input : node.inputs) {
          const Shape& part = graph.tensors[input].shape;
          size_t row = 1;
          for (size_t d = static_cast<size_t>(axis); d < part.size(); ++d) {
            row *= static_cast<size_t>(part[d]);
          }
          joined.rows.push_back(row);
          const Range& range = scheme_.range(input);
          report->parts.push_back({k, static_cast<int32_t>(i), graph.tensors[input].name,
                                   static_cast<double>(range.low), static_cast<double>(range.high),
                                   kNoSqnr});
        }
      }
    }
    part_noise_.resize(report->parts.size());
  }

  void AddParts(const Joined& joined, std::span<const float> wanted,
                std::span<const float> computed, float infinity) {
    size_t at = 0;
    while (at < wanted.size()) {
      for (size_t k = 0; k < joined.rows.size(); ++k) {
        const size_t row = joined.rows[k];
        part_noise_[joined.first + k].Add(wanted.subspan(at, row), computed.subspan(at, row),
                                          infinity);
        at += row;
      }
    }
  }

  std::span<const float> Wanted(int32_t tensor) const {
    const std::span<const uint8_t> bytes = std::as_const(*floats_).ConstTensorBytes(tensor);
    return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
  }

  // What the float model has just computed, before its memory is used again.
  void Listen(int32_t tensor, QuantizeReport* report) {
    if (edited_.graph.tensors[tensor].type != DataType::kFloat32) return;
    const std::span<const float> wanted = Wanted(tensor);
    if (const int32_t made = emitted_.tensors[tensor]; made >= 0) {
      const Tensor& stored = emitted_.edited.graph.tensors[made];
      const std::span<const uint8_t> bytes = std::as_const(*bytes_).ConstTensorBytes(made);
      AddNoise(wanted, stored, bytes, infinities_[tensor], &noise_[tensor]);
      const auto joined = joined_.find(tensor);
      if (joined != joined_.end()) {
        Dequantize(stored, bytes, &computed_);
        AddParts(joined->second, wanted, computed_, infinities_[tensor]);
      }
    }
    for (const auto& [reader, position] : readers_[tensor]) {
      if (Interpreter* const interpreter = Opened(&alone_.at(reader))) {
        SetInput(wanted, position, interpreter);
      }
    }
    const int32_t layer = layers_[tensor];
    if (layer < 0) return;
    accumulated_[layer].Add(noise_[tensor]);
    Count(wanted, infinities_[tensor], &report->layers[layer]);
    const auto alone = alone_.find(layer);
    if (alone == alone_.end() || Opened(&alone->second) == nullptr) return;
    const std::unique_ptr<Interpreter> interpreter = std::move(alone->second.interpreter);
    problem_ = interpreter->Invoke();
    const int32_t output = interpreter->graph().outputs[0];
    AddNoise(wanted, interpreter->graph().tensors[output],
             std::as_const(*interpreter).ConstTensorBytes(output), infinities_[tensor],
             &alone_noise_[layer]);
  }

  // nullptr, and problem_ says why, if there is or was one.
  Interpreter* Opened(Alone* alone) {
    if (!problem_.ok()) return nullptr;
    if (alone->interpreter == nullptr) {
      auto opened = RunnerOf(emitted_.edited, Graph(alone->graph), 1, false);
      problem_ = opened.status();
      if (opened.ok()) alone->interpreter = *std::move(opened);
    }
    return alone->interpreter.get();
  }

  // Piece by piece, as a layer's floats would take four times as much memory as its bytes.
  void AddNoise(std::span<const float> wanted, const Tensor& stored, std::span<const uint8_t> bytes,
                float infinity, Noise* noise) {
    constexpr size_t kPiece = 4096;
    const size_t size = DataTypeSize(stored.type);
    for (size_t at = 0; at < wanted.size(); at += kPiece) {
      const size_t count = std::min(kPiece, wanted.size() - at);
      Dequantize(stored, bytes.subspan(at * size, count * size), &computed_);
      noise->Add(wanted.subspan(at, count), computed_, infinity);
    }
  }

  void PrepareAlone(size_t layer) {
    const Graph& graph = edited_.graph;
    const Graph& made = emitted_.edited.graph;
    const Node& node = made.nodes[emitted_.nodes[layer]];
    if (graph.Output(graph.nodes[layer]).type != DataType::kFloat32) return;
    // The node, and of the tensors those that it has.
    Graph single;
    single.nodes = {node};
    std::vector<std::pair<int32_t, size_t>> floats;  // each with its position among the inputs
    std::map<int32_t, int32_t> moved;
    const auto move = [&](int32_t* tensor) {
      const auto [entry, is_new] =
          moved.insert({*tensor, static_cast<int32_t>(single.tensors.size())});
      if (is_new) single.tensors.push_back(made.tensors[*tensor]);
      *tensor = entry->second;
      return is_new;
    };
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      int32_t* input = &single.nodes[0].inputs[k];
      if (*input < 0) continue;
      const bool is_constant = made.tensors[*input].is_constant();
      if (!move(input) || is_constant) continue;
      const int32_t from = graph.nodes[layer].inputs[k];
      if (graph.tensors[from].type != DataType::kFloat32) return;
      floats.emplace_back(from, single.inputs.size());
      single.inputs.push_back(*input);
    }
    for (int32_t& output : single.nodes[0].outputs) move(&output);
    single.outputs = {single.nodes[0].outputs[0]};
    const auto index = static_cast<int32_t>(layer);
    alone_[index].graph = std::move(single);
    for (const auto& [tensor, position] : floats) {
      readers_[tensor].emplace_back(index, position);
    }
  }

  static void Count(std::span<const float> values, float infinity, QuantizeReport::Layer* layer) {
    const auto low = static_cast<float>(layer->low);
    const float width = static_cast<float>(layer->high) - low;
    const float bins = width > 0 ? kHistogramBins / width : 0.0f;
    for (const float value : values) {
      if (std::abs(value) >= infinity) continue;
      const float bin = std::clamp((value - low) * bins, 0.0f, kHistogramBins - 1.0f);
      ++layer->histogram[static_cast<size_t>(bin)];
    }
  }

  const EditedGraph& edited_;
  const Scheme& scheme_;
  const EmittedGraph& emitted_;
  const std::vector<float>& infinities_;  // by tensor
  const QuantizeOptions& options_;
  std::unique_ptr<Interpreter> floats_, bytes_;
  std::map<int32_t, Alone> alone_;  // by layer
  // Of each float tensor: the layers that read it alone, and at which of their inputs.
  std::vector<std::vector<std::pair<int32_t, size_t>>> readers_;
  std::vector<int32_t> layers_;       // whose first output a tensor is; -1: none
  std::vector<Noise> noise_;          // of this sample, by tensor
  std::map<int32_t, Joined> joined_;  // by the tensor of the whole
  std::vector<Noise> part_noise_;
  Status problem_;
  std::vector<Noise> accumulated_, alone_noise_;  // by layer
  std::vector<int32_t> outputs_, logits_;
  Noise output_noise_, logits_noise_;
  std::vector<float> computed_;
};

}  // namespace

Status MeasureQuantized(const EditedGraph& edited, const Scheme& scheme,
                        const EmittedGraph& emitted, const FloatMeasures& measures,
                        const QuantizeOptions& options, Samples* samples,
                        ProgressReporter* progress, QuantizeReport* report) {
  Measurer measurer(edited, scheme, emitted, measures.infinities, options);
  ATOLL_RETURN_IF_ERROR(measurer.Prepare(report));
  progress->Begin("report", samples->count());
  ATOLL_RETURN_IF_ERROR(samples->Rewind());
  while (true) {
    ATOLL_ASSIGN_OR_RETURN(const auto sample, samples->Next());
    if (sample.empty()) break;
    ATOLL_RETURN_IF_ERROR(measurer.Run(sample, report));
    ATOLL_RETURN_IF_ERROR(progress->Advance());
  }
  measurer.Finish(report);
  return Status();
}

}  // namespace atollrt
