// SPDX-License-Identifier: Apache-2.0
#include "quantize/float_pass.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <utility>

#include "quantize/infinities.h"
#include "runtime/ops/filter_tensors.h"

namespace atollrt {
namespace {

// The smallest and largest of many values, NaN if any of them is no number.
Range RangeOf(std::span<const float> values) {
  constexpr size_t kLanes = 16;
  float low[kLanes], high[kLanes], rest[kLanes];
  std::fill(low, low + kLanes, INFINITY);
  std::fill(high, high + kLanes, -INFINITY);
  std::fill(rest, rest + kLanes, 0.0f);
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t k = 0; k < kLanes; ++k) {
      const float value = values[i + k];
      low[k] = value < low[k] ? value : low[k];
      high[k] = value > high[k] ? value : high[k];
      rest[k] += value * 0.0f;  // NaN and infinities stay NaN
    }
  }
  for (; i < values.size(); ++i) {
    low[0] = std::min(low[0], values[i]);
    high[0] = std::max(high[0], values[i]);
    rest[0] += values[i] * 0.0f;
  }
  Range range{low[0], high[0]};
  for (size_t k = 0; k < kLanes; ++k) {
    if (std::isnan(rest[k])) return {NAN, NAN};
    range.low = std::min(range.low, low[k]);
    range.high = std::max(range.high, high[k]);
  }
  return range;
}

// The smallest and largest of values whose magnitude is below `limit`, and of all. Infinities count
// as the largest numbers.
struct SplitRange {
  Range all, finite;
};
SplitRange RangesOf(std::span<const float> values, float limit) {
  SplitRange ranges;
  for (const float value : values) {
    if (std::isnan(value)) return {{NAN, NAN}, {NAN, NAN}};
    const float held = std::clamp(value, -FLT_MAX, FLT_MAX);
    ranges.all.Include({held, held});
    if (std::abs(held) < limit) ranges.finite.Include({held, held});
  }
  return ranges;
}

// Calls add(kernel position, first element of a row of channels) for every pair of a position of
// the filter and a cell of its kernel that meet within the image.
template <typename Function>
void ForEachCell(const ConvShape& shape, bool transposed, const Function& add) {
  const int32_t rows = transposed ? shape.input_h : shape.output_h;
  const int32_t columns = transposed ? shape.input_w : shape.output_w;
  const int32_t limit_h = transposed ? shape.output_h : shape.input_h;
  const int32_t limit_w = transposed ? shape.output_w : shape.input_w;
  for (int32_t kh = 0; kh < shape.kernel_h; ++kh) {
    for (int32_t kw = 0; kw < shape.kernel_w; ++kw) {
      for (int32_t n = 0; n < shape.batch; ++n) {
        for (int32_t y = 0; y < rows; ++y) {
          const int32_t far_y = y * shape.stride_h - shape.pad_top + kh * shape.dilation_h;
          if (far_y < 0 || far_y >= limit_h) continue;
          for (int32_t x = 0; x < columns; ++x) {
            const int32_t far_x = x * shape.stride_w - shape.pad_left + kw * shape.dilation_w;
            if (far_x < 0 || far_x >= limit_w) continue;
            const int64_t row = transposed ? y : far_y, column = transposed ? x : far_x;
            const int64_t cell = (n * int64_t{shape.input_h} + row) * shape.input_w + column;
            add(static_cast<size_t>(kh * shape.kernel_w + kw),
                static_cast<size_t>(cell * shape.input_c));
          }
        }
      }
    }
  }
}

ConvShape WindowOf(const Graph& graph, const Node& node) {
  ConvShape shape = FilterShape(graph, node);
  if (node.type == OpType::kFULLY_CONNECTED) {
    shape.input_h = shape.input_w = shape.output_h = shape.output_w = 1;
    shape.kernel_h = shape.kernel_w = shape.stride_h = shape.stride_w = 1;
    shape.dilation_h = shape.dilation_w = 1;
    shape.pad_top = shape.pad_left = 0;
  }
  return shape;
}

template <typename Sum, typename Value>
PatchSums SumOver(const Graph& graph, const Node& node, const Value* values, int32_t zero_point) {
  const ConvShape shape = WindowOf(graph, node);
  const auto channels = static_cast<size_t>(shape.input_c);
  std::vector<Sum> sums(static_cast<size_t>(shape.kernel_h * shape.kernel_w) * channels);
  ForEachCell(shape, node.type == OpType::kTRANSPOSE_CONV, [&](size_t cell, size_t first) {
    Sum* to = sums.data() + cell * channels;
    const Value* from = values + first;
    for (size_t c = 0; c < channels; ++c) to[c] += static_cast<Sum>(from[c]) - zero_point;
  });
  PatchSums patches;
  patches.sums.assign(sums.begin(), sums.end());
  patches.positions = int64_t{shape.batch} * shape.output_h * shape.output_w;
  return patches;
}

}  // namespace

void PatchSums::Add(const PatchSums& other) {
  if (sums.empty()) sums.resize(other.sums.size());
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += other.sums[i];
  positions += other.positions;
}

PatchSums SumPatches(const Graph& graph, const Node& node, std::span<const float> input) {
  return SumOver<double>(graph, node, input.data(), 0);
}

PatchSums SumPatches(const Graph& graph, const Node& node, const Tensor& stored,
                     std::span<const uint8_t> input) {
  if (stored.type == DataType::kInt16) {
    return SumOver<int64_t>(graph, node, reinterpret_cast<const int16_t*>(input.data()), 0);
  }
  return SumOver<int64_t>(graph, node, reinterpret_cast<const int8_t*>(input.data()),
                          stored.zero_point());
}

void ProgressReporter::Begin(const char* phase, int64_t total) { progress_ = {phase, 0, total}; }

Status ProgressReporter::Advance() {
  ++progress_.done;
  if (!options_.progress || options_.progress(progress_)) return Status();
  return Status(StatusCode::kCancelled, "quantizing was cancelled");
}

Result<std::unique_ptr<Interpreter>> RunnerOf(const EditedGraph& edited, Graph graph, int threads,
                                              bool keep_all_tensors) {
  ATOLL_ASSIGN_OR_RETURN(std::shared_ptr<const Model> model,
                         Model::WithGraph(edited.source, std::move(graph)));
  return Interpreter::Create(std::move(model),
                             {.threads = threads, .keep_all_tensors = keep_all_tensors});
}

void SetInputs(std::span<const std::vector<float>> sample, Interpreter* interpreter) {
  for (size_t i = 0; i < sample.size(); ++i) SetInput(sample[i], i, interpreter);
}

void SetInput(std::span<const float> values, size_t position, Interpreter* interpreter) {
  const Graph& graph = interpreter->graph();
  const Tensor& tensor = graph.tensors[graph.inputs[position]];
  const std::span<uint8_t> bytes = interpreter->TensorBytes(graph.inputs[position]);
  const auto store = [&bytes, &values](auto kind, double low, double high) {
    auto* to = reinterpret_cast<decltype(kind)*>(bytes.data());
    for (size_t k = 0; k < values.size(); ++k) {
      to[k] = static_cast<decltype(kind)>(
          std::clamp(std::round(static_cast<double>(values[k])), low, high));
    }
  };
  // As QUANTIZE does it. No float beyond 2^22 steps is told from another.
  const auto quantize = [&bytes, &values, &tensor](auto kind, float low, float high) {
    auto* to = reinterpret_cast<decltype(kind)*>(bytes.data());
    const float scale = tensor.scale();
    const auto zero_point = static_cast<float>(tensor.zero_point());
    constexpr float kLimit = 4194304.0f;
    for (size_t k = 0; k < values.size(); ++k) {
      const float steps = std::clamp(values[k] / scale, -kLimit, kLimit);
      const float half = steps < 0 ? -0.5f : 0.5f;
      const auto rounded = static_cast<float>(static_cast<int32_t>(steps + half));
      to[k] = static_cast<decltype(kind)>(std::clamp(rounded + zero_point, low, high));
    }
  };
  switch (tensor.type) {
    case DataType::kFloat32:
      std::memcpy(bytes.data(), values.data(), bytes.size());
      break;
    case DataType::kInt8:
      quantize(int8_t{}, -128, 127);
      break;
    case DataType::kUInt8:
      if (tensor.quantization.scales.empty()) {
        store(uint8_t{}, 0, 255);
      } else {
        quantize(uint8_t{}, 0, 255);
      }
      break;
    case DataType::kInt16:
      quantize(int16_t{}, -32768, 32767);
      break;
    case DataType::kInt32:
      store(int32_t{}, INT32_MIN, INT32_MAX);
      break;
    case DataType::kInt64:
      store(int64_t{}, -0x1p53, 0x1p53);
      break;
    case DataType::kBool:
      store(uint8_t{}, 0, 1);
      break;
    default:
      break;
  }
}

void Dequantize(const Tensor& tensor, std::span<const uint8_t> bytes, std::vector<float>* values) {
  values->resize(bytes.size() / DataTypeSize(tensor.type));
  const auto load = [&](auto kind) {
    const auto* from = reinterpret_cast<const decltype(kind)*>(bytes.data());
    const float scale = tensor.scale();
    const int32_t zero_point = tensor.zero_point();
    for (size_t i = 0; i < values->size(); ++i) {
      (*values)[i] = scale * static_cast<float>(from[i] - zero_point);
    }
  };
  switch (tensor.type) {
    case DataType::kInt8:
      load(int8_t{});
      break;
    case DataType::kUInt8:
      load(uint8_t{});
      break;
    case DataType::kInt16:
      load(int16_t{});
      break;
    default:  // float32: nobody asks for others
      std::memcpy(values->data(), bytes.data(), values->size() * sizeof(float));
  }
}

Result<FloatMeasures> MeasureFloat(const EditedGraph& edited, const QuantizeOptions& options,
                                   Samples* samples, ProgressReporter* progress) {
  const Graph& graph = edited.graph;
  FloatMeasures measures;
  measures.ranges.resize(graph.tensors.size());
  measures.finite_ranges.resize(graph.tensors.size());
  measures.infinities = PossibleInfinities(graph);
  for (size_t t = 0; t < graph.tensors.size(); ++t) {
    const Tensor& tensor = graph.tensors[t];
    if (tensor.type == DataType::kFloat32 && tensor.is_constant()) {
      measures.ranges[t] = RangeOf(Floats(tensor));
    }
  }
  std::map<int32_t, std::vector<int32_t>> filters;  // by the tensor that they read
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (options.bias_correction && IsFilter(node) &&
        graph.Input(node, kFilterWeights)->is_constant()) {
      filters[node.inputs[FilterInput(node)]].push_back(static_cast<int32_t>(i));
    }
  }
  ATOLL_ASSIGN_OR_RETURN(const std::unique_ptr<Interpreter> interpreter,
                         RunnerOf(edited, graph, options.threads, false));
  Status problem;
  int64_t sample_number = 0;
  const auto listen = [&](int32_t t) {
    const Tensor& tensor = graph.tensors[t];
    if (tensor.type != DataType::kFloat32 || !problem.ok()) return;
    const std::span<const uint8_t> bytes = std::as_const(*interpreter).ConstTensorBytes(t);
    const std::span<const float> values(reinterpret_cast<const float*>(bytes.data()),
                                        bytes.size() / sizeof(float));
    const bool splits = std::isfinite(measures.infinities[t]);
    const SplitRange split = splits ? RangesOf(values, measures.infinities[t]) : SplitRange();
    const Range range = splits ? split.all : RangeOf(values);
    if (std::isnan(range.low)) {
      problem = InvalidArgument(
          "on sample %lld the float model computes values in %s that are not numbers or infinite",
          static_cast<long long>(sample_number), Describe(graph, t).c_str());
      return;
    }
    measures.ranges[t].Include(range);
    measures.finite_ranges[t].Include(split.finite);
    const auto found = filters.find(t);
    if (found == filters.end()) return;
    for (const int32_t node : found->second) {
      measures.patches[node].Add(SumPatches(graph, graph.nodes[node], values));
    }
  };
  interpreter->SetTap(listen);
  progress->Begin("ranges", samples->count());
  while (true) {
    ATOLL_ASSIGN_OR_RETURN(const auto sample, samples->Next());
    if (sample.empty()) break;
    SetInputs(sample, interpreter.get());
    for (const int32_t input : graph.inputs) listen(input);
    ATOLL_RETURN_IF_ERROR(interpreter->Invoke());
    ATOLL_RETURN_IF_ERROR(problem);
    ++sample_number;
    ATOLL_RETURN_IF_ERROR(progress->Advance());
  }
  return measures;
}

}  // namespace atollrt
