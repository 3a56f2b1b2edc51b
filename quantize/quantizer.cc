// SPDX-License-Identifier: Apache-2.0
#include "quantize/quantizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "quantize/bias_correction.h"
#include "quantize/compensated_rounding.h"
#include "quantize/edited_graph.h"
#include "quantize/emit.h"
#include "quantize/float_pass.h"
#include "quantize/infinities.h"
#include "quantize/measure.h"
#include "quantize/range_methods.h"
#include "quantize/rewrite.h"
#include "quantize/samples.h"
#include "quantize/scheme.h"
#include "runtime/ops/cpu_ops.h"
#include "runtime/tflite/tflite_writer.h"

namespace atollrt {
namespace {

constexpr int64_t kFewSamples = 16;
// How often a search quantizes at most, and what is an improvement.
constexpr int kMaxTries = 24;
constexpr double kImprovement = 0.05;

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

void DescribeOptions(const QuantizeOptions& options, RangeMethod ranges, QuantizeReport* report) {
  const auto end = [](EndType type) {
    return type == EndType::kFloat      ? "float"
           : type == EndType::kUInt8    ? "uint8"
           : type == EndType::kOneScale ? "quantized, one scale"
                                        : "quantized";
  };
  report->options = {
      {"ranges", ranges == RangeMethod::kMinMax       ? "min/max"
                 : ranges == RangeMethod::kPercentile ? Fixed(options.percentile) + " %"
                                                      : "least squares"},
      {"bias_correction", options.bias_correction ? "yes" : "no"},
      {"compensate_rounding", options.compensate_rounding ? "yes" : "no"},
      {"activations", options.activations_16 ? "int16" : "int8"},
      {"fully_connected", options.per_tensor_fully_connected ? "per tensor" : "per channel"},
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

// Whether what reads an input brings values of 0 to 255 down to about 1, by a constant.
bool ScalesBytesDown(const Graph& graph, int32_t input) {
  for (const Node& node : graph.nodes) {
    if (node.inputs.size() != 2 || (node.inputs[0] != input && node.inputs[1] != input)) continue;
    const Tensor& operand = graph.tensors[node.inputs[node.inputs[0] == input ? 1 : 0]];
    if (!operand.is_constant() || operand.type != DataType::kFloat32) continue;
    float largest = 0;
    for (const float value : Floats(operand)) largest = std::max(largest, std::abs(value));
    switch (node.type) {
      case OpType::kMUL:
        if (largest > 0 && largest < 0.04f) return true;
        break;
      case OpType::kDIV:
      case OpType::kADD:
      case OpType::kSUB:
        if (largest >= 50 && largest <= 300) return true;
        break;
      default:
        break;
    }
  }
  return false;
}

// How many times larger the sums of the first filters that read an input are than their biases,
// on average over all samples; 0: nothing can be said. Where biases hold batch normalization, they
// move the mean of the sums to about 0, and this is about 1 with the samples that the model wants.
double SumsPerBias(const Graph& graph, const FloatMeasures& measures, int32_t input) {
  std::vector<bool> is_input(graph.tensors.size(), false);
  is_input[input] = true;
  double sums = 0, biases = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.type == OpType::kPAD || node.type == OpType::kRESHAPE) {
      is_input[node.outputs[0]] = is_input[node.outputs[0]] || is_input[node.inputs[0]];
    }
    const auto patches = measures.patches.find(static_cast<int32_t>(i));
    if (patches == measures.patches.end() || !is_input[node.inputs[FilterInput(node)]]) continue;
    const Tensor* bias = graph.Input(node, FilterBias(node));
    if (bias == nullptr || !bias->is_constant() || bias->type != DataType::kFloat32) continue;
    for (const double mean : MeanSums(graph, node, patches->second)) sums += mean * mean;
    for (const float value : Floats(*bias)) biases += static_cast<double>(value * value);
  }
  return biases > 0 ? std::sqrt(sums / biases) : 0;
}

void WarnOfSamples(const Graph& graph, const Scheme& scheme, const FloatMeasures& measures,
                   int64_t samples, QuantizeReport* report) {
  if (samples < kFewSamples) {
    report->warnings.push_back(
        Format("%lld samples are few: ranges and biases need about 100 that are like real ones",
               static_cast<long long>(samples)));
  }
  for (const int32_t input : graph.inputs) {
    const Range& range = scheme.range(input);
    if (!range.is_known()) continue;
    const char* name = graph.tensors[input].name.c_str();
    const bool scales_down = ScalesBytesDown(graph, input);
    if (scales_down && range.low >= -1.5f && range.high <= 1.5f) {
      report->warnings.push_back(Format(
          "samples of input '%s' range from %g to %g, but the model scales values of 0 to 255 "
          "down itself: give it pixels as they are",
          name, static_cast<double>(range.low), static_cast<double>(range.high)));
    } else if (!scales_down && graph.tensors[input].shape.size() == 4 && range.low >= 0 &&
               range.high > 0.9f && range.high <= 1.0f) {
      report->warnings.push_back(
          Format("input '%s' takes values from 0 to 1, as the samples: pixels of 0 to 255 must be "
                 "divided by 255 at run time, or all of them become white",
                 name));
    }
    constexpr double kFarOff = 75;
    if (graph.tensors[input].shape.size() == 4 && range.low >= 0 && range.high > 128 &&
        range.high <= 255 && !scales_down) {
      const double ratio = SumsPerBias(graph, measures, input);
      if (ratio > kFarOff) {
        report->warnings.push_back(Format(
            "samples of input '%s' range from %g to %g, but the first layer's biases are for "
            "values about %.0f times smaller: if the model was trained with pixels from 0 "
            "to 1 or from -1 to 1, scale them likewise",
            name, static_cast<double>(range.low), static_cast<double>(range.high), ratio));
      }
    }
    if (range.low == range.high) {
      report->warnings.push_back(Format("all values of input '%s' are %g in all samples", name,
                                        static_cast<double>(range.low)));
    }
  }
}

constexpr double kPoorDb = 10;

// What the numbers of a finished report are too low for, with what to do.
void WarnOfLoss(QuantizeReport* report) {
  if (report->logits_sqnr_db < kPoorDb) {
    report->warnings.push_back(
        Format("the quantized model's logits have an SQNR of %.1f dB only: its answers will often "
               "be others than the float model's; give more samples that are like real ones, or "
               "search with a target SQNR, or quantize to 16x8",
               report->logits_sqnr_db));
  }
  std::vector<const QuantizeReport::Layer*> poor;
  for (const QuantizeReport::Layer& layer : report->layers) {
    if (layer.sqnr_alone_db < kPoorDb) poor.push_back(&layer);
  }
  std::stable_sort(poor.begin(), poor.end(), [](const auto* a, const auto* b) {
    return a->sqnr_alone_db < b->sqnr_alone_db;
  });
  constexpr size_t kNamed = 3;
  for (size_t k = 0; k < std::min(poor.size(), kNamed); ++k) {
    const QuantizeReport::Layer& layer = *poor[k];
    report->warnings.push_back(
        Format("%s %d '%s' alone has an SQNR of %.1f dB, with values from %g to %g: keep it float, "
               "or every layer below %g dB",
               layer.operation.c_str(), layer.index, layer.name.c_str(), layer.sqnr_alone_db,
               layer.low, layer.high, kPoorDb));
  }
  if (poor.size() > kNamed) {
    report->warnings.push_back(
        Format("%zu more layers alone have an SQNR below %g dB", poor.size() - kNamed, kPoorDb));
  }
  for (const QuantizeReport::Part& part : report->parts) {
    if (!(part.sqnr_db < kPoorDb)) continue;
    report->warnings.push_back(Format(
        "'%s', a part of output '%s', has an SQNR of %.1f dB there: keep layer %d float",
        part.name.c_str(), report->outputs[part.output].name.c_str(), part.sqnr_db, part.layer));
  }
}

// Files of labels lie in a zip archive behind the model: it is kept, with the places in it moved.
void AppendFiles(std::span<const uint8_t> from, std::vector<uint8_t>* model) {
  constexpr size_t kEndBytes = 22;
  constexpr uint8_t kEndMark[] = {'P', 'K', 5, 6}, kEntryMark[] = {'P', 'K', 1, 2};
  const auto read = [](const uint8_t* place, size_t bytes) {
    uint32_t value = 0;
    std::memcpy(&value, place, bytes);
    return static_cast<size_t>(value);
  };
  const auto move = [&read](uint8_t* place, ptrdiff_t by) {
    const auto value = static_cast<uint32_t>(static_cast<ptrdiff_t>(read(place, 4)) + by);
    std::memcpy(place, &value, sizeof(value));
  };
  if (from.size() < kEndBytes) return;
  const size_t lowest = from.size() > kEndBytes + 65535 ? from.size() - kEndBytes - 65535 : 0;
  size_t end = from.size() - kEndBytes + 1;
  do {
    if (end == lowest) return;
    --end;
  } while (std::memcmp(from.data() + end, kEndMark, sizeof(kEndMark)) != 0);
  const size_t entries = read(from.data() + end + 10, 2);
  const size_t directory_bytes = read(from.data() + end + 12, 4);
  const size_t directory = read(from.data() + end + 16, 4);
  // Places count from the beginning of the file, or from that of the archive.
  if (directory_bytes > end) return;
  const size_t begin_of_directory = end - directory_bytes;
  if (directory > begin_of_directory) return;
  const size_t shift = begin_of_directory - directory;
  size_t first = begin_of_directory;
  size_t entry = begin_of_directory;
  std::vector<size_t> places;
  for (size_t i = 0; i < entries; ++i) {
    if (entry + 46 > end || std::memcmp(from.data() + entry, kEntryMark, 4) != 0) return;
    const size_t local = read(from.data() + entry + 42, 4) + shift;
    if (local >= begin_of_directory) return;
    first = std::min(first, local);
    places.push_back(entry + 42);
    entry += 46 + read(from.data() + entry + 28, 2) + read(from.data() + entry + 30, 2) +
             read(from.data() + entry + 32, 2);
  }
  const auto by = static_cast<ptrdiff_t>(model->size()) - static_cast<ptrdiff_t>(first) +
                  static_cast<ptrdiff_t>(shift);
  const size_t before = model->size();
  model->insert(model->end(), from.begin() + static_cast<ptrdiff_t>(first), from.end());
  for (const size_t place : places) move(model->data() + before + (place - first), by);
  move(model->data() + before + (end + 16 - first), by);
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

// What a try at quantizing decides, and what came of it.
struct Plan {
  std::vector<NodeChoice> choices;
  RangeMethod ranges = RangeMethod::kMinMax;
};
struct Outcome {
  Plan plan;
  std::vector<uint8_t> model;
  QuantizeReport report;
  double quality = 0;  // SQNR of the logits, or what options.accuracy says
};

const char* RangesName(RangeMethod method) {
  switch (method) {
    case RangeMethod::kMinMax:
      return "min/max";
    case RangeMethod::kPercentile:
      return "percentile";
    default:
      return "least squares";
  }
}

class Quantizer {
 public:
  Quantizer(std::span<const uint8_t> bytes, CalibrationData* data, const QuantizeOptions& options)
      : bytes_(bytes), data_(data), options_(options), progress_(options) {}

  Result<Quantized> Run() {
    ATOLL_RETURN_IF_ERROR(CheckOptions(options_));
    ATOLL_ASSIGN_OR_RETURN(edited_.source, Model::FromBorrowed(bytes_));
    if (edited_.source->graphs().size() != 1) {
      return Unsupported("the model has %zu subgraphs, only models of one can be quantized",
                         edited_.source->graphs().size());
    }
    edited_.graph = edited_.source->graph();
    edited_.room = RoomForValues(edited_.graph);
    ATOLL_RETURN_IF_ERROR(RewriteFloatGraph(&edited_));
    samples_.emplace(edited_.graph, data_);
    ATOLL_RETURN_IF_ERROR(data_->Rewind());
    progress_.Begin("samples", 0);
    ATOLL_RETURN_IF_ERROR(samples_->Collect([this] { return progress_.Advance(); }));
    ATOLL_ASSIGN_OR_RETURN(measures_, MeasureFloat(edited_, options_, &*samples_, &progress_));
    SettleInfinities(edited_.graph, precision(), &measures_);

    Plan plan{Scheme::Choose(edited_.graph, precision()), options_.ranges};
    ATOLL_RETURN_IF_ERROR(KeepFloat(edited_.graph, options_, &plan.choices));
    if (options_.output_type == EndType::kQuantized || options_.output_type == EndType::kFloat) {
      apart_ = Scheme::KeepPartsApart(edited_.graph, measures_.ranges, &plan.choices);
    }
    ATOLL_ASSIGN_OR_RETURN(Outcome outcome, Try(plan));
    if (options_.keep_float_below_db > 0) {
      ATOLL_RETURN_IF_ERROR(KeepWorstFloat(&outcome));
    }
    if (options_.target_sqnr_db > 0 || options_.accuracy) {
      ATOLL_RETURN_IF_ERROR(Search(&outcome));
    }
    return Quantized{std::move(outcome.model), std::move(outcome.report)};
  }

 private:
  Precision precision() const { return WantedPrecision(options_); }

  Result<Outcome> Try(const Plan& plan) {
    Outcome outcome{.plan = plan, .model = {}, .report = {}, .quality = 0};
    std::vector<NodeChoice>& choices = outcome.plan.choices;
    ATOLL_ASSIGN_OR_RETURN(
        const std::vector<Range> ranges,
        ChooseRanges(edited_, measures_, options_, plan.ranges, &*samples_, &progress_));
    FilterChanges changes;
    changes.per_tensor_fully_connected = options_.per_tensor_fully_connected;
    while (true) {
      const Scheme scheme(edited_.graph, choices, ranges);
      ATOLL_ASSIGN_OR_RETURN(const EmittedGraph emitted, Emit(scheme, changes));
      if (!FallBackToFloat(edited_, emitted, &choices)) break;
    }
    const Scheme scheme(edited_.graph, choices, ranges);
    if (options_.compensate_rounding) {
      ATOLL_ASSIGN_OR_RETURN(const EmittedGraph nearest, Emit(scheme, changes));
      ATOLL_RETURN_IF_ERROR(
          CompensateRounding(edited_, nearest, options_, &*samples_, &progress_, &changes));
    }
    if (options_.bias_correction) {
      ATOLL_RETURN_IF_ERROR(
          CorrectBiases(edited_, scheme, measures_, options_, &*samples_, &progress_, &changes));
    }
    ATOLL_ASSIGN_OR_RETURN(const EmittedGraph emitted, Emit(scheme, changes));
    QuantizeReport& report = outcome.report;
    report.model = options_.name;
    report.choices = apart_;
    DescribeOptions(options_, plan.ranges, &report);
    ATOLL_RETURN_IF_ERROR(MeasureQuantized(edited_, scheme, emitted, measures_, options_,
                                           &*samples_, &progress_, &report));
    const Graph& made = emitted.edited.graph;
    for (size_t i = 0; i < made.inputs.size(); ++i) {
      report.inputs.push_back(
          DescribeEnd(made, made.inputs[i], measures_.ranges[edited_.graph.inputs[i]]));
    }
    for (size_t i = 0; i < made.outputs.size(); ++i) {
      report.outputs.push_back(
          DescribeEnd(made, made.outputs[i], measures_.ranges[edited_.graph.outputs[i]]));
    }
    WarnOfSamples(edited_.graph, scheme, measures_, report.samples, &report);
    WarnOfLoss(&report);
    const Graph* const graphs[] = {&made};
    ATOLL_ASSIGN_OR_RETURN(outcome.model,
                           WriteTflite(graphs, ExtrasFor(*edited_.source, edited_, emitted)));
    AppendFiles(bytes_, &outcome.model);
    report.bytes_before = static_cast<int64_t>(bytes_.size());
    report.bytes_after = static_cast<int64_t>(outcome.model.size());
    outcome.quality = report.logits_sqnr_db;
    if (options_.accuracy) {
      ATOLL_ASSIGN_OR_RETURN(outcome.quality, options_.accuracy(outcome.model));
    }
    return outcome;
  }

  Result<EmittedGraph> Emit(const Scheme& scheme, const FilterChanges& changes) const {
    return EmitQuantized(edited_, scheme, changes, options_.input_type, options_.output_type,
                         precision());
  }

  Status KeepWorstFloat(Outcome* outcome) {
    Plan plan = outcome->plan;
    std::vector<std::string> choices = apart_;
    for (const QuantizeReport::Layer& layer : outcome->report.layers) {
      if (layer.type == "float" || !(layer.sqnr_alone_db < options_.keep_float_below_db)) continue;
      plan.choices[static_cast<size_t>(layer.index)] = {
          Precision::kFloat, Format("its own SQNR was %.1f dB, below %g", layer.sqnr_alone_db,
                                    options_.keep_float_below_db)};
      choices.push_back(Format("%s %d '%s' stays float: its own SQNR was %.1f dB",
                               layer.operation.c_str(), layer.index, layer.name.c_str(),
                               layer.sqnr_alone_db));
    }
    if (choices.size() == apart_.size()) return Status();
    ATOLL_ASSIGN_OR_RETURN(*outcome, Try(plan));
    outcome->report.choices = std::move(choices);
    return Status();
  }

  bool IsEnough(double quality) const {
    return quality >= (options_.accuracy ? options_.target_accuracy : options_.target_sqnr_db);
  }

  // Tries `plan`; if it is better than `best`, takes its place and says `choice` of it.
  Status Improve(const Plan& plan, const std::string& choice, Outcome* best, bool* improved) {
    ++tries_;
    ATOLL_ASSIGN_OR_RETURN(Outcome outcome, Try(plan));
    *improved = outcome.quality > best->quality + kImprovement ||
                (IsEnough(outcome.quality) && !IsEnough(best->quality));
    if (!*improved) return Status();
    outcome.report.choices = best->report.choices;
    outcome.report.choices.push_back(
        Format("%s: %.2f instead of %.2f", choice.c_str(), outcome.quality, best->quality));
    *best = std::move(outcome);
    return Status();
  }

  Status Search(Outcome* best) {
    bool improved = false;
    for (const RangeMethod method :
         {RangeMethod::kLeastSquares, RangeMethod::kPercentile, RangeMethod::kMinMax}) {
      if (IsEnough(best->quality) || method == options_.ranges) continue;
      Plan plan = best->plan;
      plan.ranges = method;
      ATOLL_RETURN_IF_ERROR(
          Improve(plan, Format("ranges by %s", RangesName(method)), best, &improved));
    }
    // The layers that lose most, more of them each time: 16 bits first, then float.
    std::vector<QuantizeReport::Layer> worst = best->report.layers;
    std::stable_sort(worst.begin(), worst.end(), [](const auto& a, const auto& b) {
      return a.sqnr_alone_db < b.sqnr_alone_db;
    });
    std::erase_if(worst, [](const auto& layer) {
      return layer.type == "float" || layer.sqnr_alone_db == kNoSqnr;
    });
    for (const Precision wider : {Precision::kInt16, Precision::kFloat}) {
      if (wider == precision()) continue;
      for (size_t count = 1; count / 2 < worst.size(); count *= 2) {
        if (IsEnough(best->quality) || tries_ >= kMaxTries) break;
        Plan plan = best->plan;
        std::string names;
        const size_t end = std::min(count, worst.size());
        for (size_t k = 0; k < end; ++k) {
          const auto index = static_cast<size_t>(worst[k].index);
          if (RuleOf(edited_.graph.nodes[index].type, wider) == OpRule::kNone &&
              wider == Precision::kInt16) {
            continue;
          }
          plan.choices[index] = {wider, "the search chose it"};
          if (k < 4) names += (names.empty() ? "'" : ", '") + worst[k].name + "'";
        }
        if (end > 4) names += Format(" and %zu more", end - 4);
        ATOLL_RETURN_IF_ERROR(Improve(
            plan, Format("%s for %s", wider == Precision::kInt16 ? "16x8" : "float", names.c_str()),
            best, &improved));
      }
    }
    if (!IsEnough(best->quality)) {
      best->report.warnings.push_back(Format(
          "the search tried %d variants and reached %.2f, less than the %.2f asked for", tries_,
          best->quality, options_.accuracy ? options_.target_accuracy : options_.target_sqnr_db));
    }
    return Status();
  }

  const std::span<const uint8_t> bytes_;
  CalibrationData* const data_;
  const QuantizeOptions& options_;
  ProgressReporter progress_;
  EditedGraph edited_;
  std::optional<Samples> samples_;
  FloatMeasures measures_;
  std::vector<std::string> apart_;  // what was said of outputs whose parts stay apart
  int tries_ = 0;
};

}  // namespace

Result<std::vector<uint8_t>> RepairFloatModel(std::span<const uint8_t> float_model) {
  EditedGraph edited;
  ATOLL_ASSIGN_OR_RETURN(edited.source, Model::FromBorrowed(float_model));
  edited.graph = edited.source->graph();
  edited.room = RoomForValues(edited.graph);
  ATOLL_RETURN_IF_ERROR(DequantizeWeights(&edited));
  if (edited.values.empty() || edited.source->graphs().size() != 1) {
    return std::vector<uint8_t>(float_model.begin(), float_model.end());
  }
  const Graph* const graphs[] = {&edited.graph};
  return WriteTflite(graphs, edited.source->extras());
}

Result<Quantized> Quantize(std::span<const uint8_t> float_model, CalibrationData* data,
                           const QuantizeOptions& options) {
  return Quantizer(float_model, data, options).Run();
}

}  // namespace atollrt
