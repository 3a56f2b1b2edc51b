// SPDX-License-Identifier: Apache-2.0
#include "quantize/compensated_rounding.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/ops/filter_tensors.h"

namespace atollrt {
namespace {

// Numbers that the moments of layers measured in one pass may take together.
constexpr size_t kMaxMoments = 4 << 20;
// Positions of a sample that count, evenly spread.
constexpr int64_t kPositions = 64;

// A square matrix of a layer's inputs, row by row.
struct Moments {
  int32_t node = 0;
  size_t inputs = 0;
  std::vector<double> sums;
};

size_t InputsPerChannel(const Graph& graph, const Node& node) {
  const Shape& shape = graph.Input(node, kFilterWeights)->shape;
  return static_cast<size_t>(ElementCount(shape) / shape[0]);
}

bool MayCompensate(const Graph& graph, const Node& node) {
  if (node.type != OpType::kCONV_2D && node.type != OpType::kFULLY_CONNECTED) return false;
  if (node.type == OpType::kCONV_2D && FilterShape(graph, node).groups != 1) return false;
  return InputsPerChannel(graph, node) <= static_cast<size_t>(kMaxCompensatedInputs);
}

// What the weights of one output channel meet at a position.
void ReadPatch(const ConvShape& shape, bool is_image, std::span<const float> input,
               int64_t position, std::vector<float>* patch) {
  const auto depth = static_cast<size_t>(shape.input_c);
  if (!is_image) {
    const auto first = static_cast<size_t>(position) * depth;
    std::copy_n(input.begin() + static_cast<ptrdiff_t>(first), depth, patch->begin());
    return;
  }
  const auto x = static_cast<int32_t>(position % shape.output_w);
  const auto y = static_cast<int32_t>(position / shape.output_w % shape.output_h);
  const int64_t n = position / shape.output_w / shape.output_h;
  auto to = patch->begin();
  for (int32_t kh = 0; kh < shape.kernel_h; ++kh) {
    for (int32_t kw = 0; kw < shape.kernel_w; ++kw, to += shape.input_c) {
      const int32_t row = y * shape.stride_h - shape.pad_top + kh * shape.dilation_h;
      const int32_t column = x * shape.stride_w - shape.pad_left + kw * shape.dilation_w;
      if (row < 0 || row >= shape.input_h || column < 0 || column >= shape.input_w) {
        std::fill_n(to, shape.input_c, 0.0f);
        continue;
      }
      const int64_t cell = (n * shape.input_h + row) * shape.input_w + column;
      std::copy_n(input.begin() + cell * shape.input_c, depth, to);
    }
  }
}

void AddPatches(const Graph& graph, std::span<const float> input, Moments* moments) {
  const Node& node = graph.nodes[moments->node];
  const ConvShape shape = FilterShape(graph, node);
  const bool is_image = node.type == OpType::kCONV_2D;
  const int64_t positions =
      is_image ? int64_t{shape.batch} * shape.output_h * shape.output_w : shape.batch;
  std::vector<float> patch(moments->inputs);
  const int64_t count = std::min(positions, kPositions);
  for (int64_t k = 0; k < count; ++k) {
    ReadPatch(shape, is_image, input, k * positions / count, &patch);
    for (size_t i = 0; i < moments->inputs; ++i) {
      if (patch[i] == 0) continue;
      double* row = moments->sums.data() + i * moments->inputs;
      const double factor = static_cast<double>(patch[i]);
      for (size_t j = i; j < moments->inputs; ++j) {
        row[j] += factor * static_cast<double>(patch[j]);
      }
    }
  }
}

// The lower triangle L of a positive definite matrix L * L^T; false if it is none.
bool Cholesky(size_t n, std::vector<double>* matrix) {
  std::vector<double>& a = *matrix;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = a[i * n + j];
      for (size_t k = 0; k < j; ++k) sum -= a[i * n + k] * a[j * n + k];
      if (i != j) {
        a[i * n + j] = sum / a[j * n + j];
      } else if (sum > 0) {
        a[i * n + i] = std::sqrt(sum);
      } else {
        return false;
      }
    }
  }
  return true;
}

// The upper triangle U with U^T * U = inverse of the moments, which are made definite first.
bool InverseFactor(Moments* moments) {
  const size_t n = moments->inputs;
  std::vector<double>& a = moments->sums;
  double trace = 0;
  for (size_t i = 0; i < n; ++i) trace += a[i * n + i];
  if (!(trace > 0)) return false;
  const double damping = 0.01 * trace / static_cast<double>(n);
  // Reversed, so that the inverse of its triangle is the one that is looked for.
  std::vector<double> reversed(n * n, 0.0);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = i; j < n; ++j) {
      reversed[(n - 1 - i) * n + (n - 1 - j)] = a[i * n + j];
      reversed[(n - 1 - j) * n + (n - 1 - i)] = a[i * n + j];
    }
    reversed[(n - 1 - i) * n + (n - 1 - i)] += damping;
  }
  if (!Cholesky(n, &reversed)) return false;
  // Inverse of the lower triangle, column by column, stored reversed and transposed as U.
  std::vector<double> column(n);
  std::fill(a.begin(), a.end(), 0.0);
  for (size_t c = 0; c < n; ++c) {
    for (size_t i = c; i < n; ++i) {
      double sum = i == c ? 1.0 : 0.0;
      for (size_t k = c; k < i; ++k) sum -= reversed[i * n + k] * column[k];
      column[i] = sum / reversed[i * n + i];
      a[(n - 1 - i) * n + (n - 1 - c)] = column[i];
    }
  }
  return true;
}

std::vector<int8_t> Round(std::span<const float> weights, std::span<const float> scales,
                          const Moments& factor) {
  const size_t n = factor.inputs;
  std::vector<int8_t> rounded(weights.size());
  std::vector<double> row(n);
  for (size_t c = 0; c < scales.size(); ++c) {
    std::copy_n(weights.begin() + static_cast<ptrdiff_t>(c * n), n, row.begin());
    for (size_t i = 0; i < n; ++i) {
      const int8_t steps = RoundWeight(row[i], scales[c]);
      rounded[c * n + i] = steps;
      const double* u = factor.sums.data() + i * n;
      const double error = (row[i] - steps * static_cast<double>(scales[c])) / u[i];
      for (size_t j = i + 1; j < n; ++j) row[j] -= error * u[j];
    }
  }
  return rounded;
}

}  // namespace

Status CompensateRounding(const EditedGraph& edited, const EmittedGraph& emitted,
                          const QuantizeOptions& options, Samples* samples,
                          ProgressReporter* progress, FilterChanges* changes) {
  const Graph& graph = edited.graph;
  const Graph& made = emitted.edited.graph;
  std::vector<int32_t> open;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (!IsFilter(node) || !MayCompensate(graph, node)) continue;
    if (made.Input(made.nodes[emitted.nodes[i]], kFilterWeights)->type == DataType::kInt8) {
      open.push_back(static_cast<int32_t>(i));
    }
  }
  ATOLL_ASSIGN_OR_RETURN(const std::unique_ptr<Interpreter> interpreter,
                         RunnerOf(edited, graph, options.threads, false));
  for (size_t first = 0; first < open.size();) {
    std::vector<Moments> group;
    size_t size = 0;
    for (; first < open.size(); ++first) {
      const size_t inputs = InputsPerChannel(graph, graph.nodes[open[first]]);
      if (!group.empty() && size + inputs * inputs > kMaxMoments) break;
      size += inputs * inputs;
      group.push_back({open[first], inputs, std::vector<double>(inputs * inputs, 0.0)});
    }
    const auto listen = [&](int32_t tensor) {
      for (Moments& moments : group) {
        if (graph.nodes[moments.node].inputs[0] != tensor) continue;
        const std::span<const uint8_t> bytes = std::as_const(*interpreter).ConstTensorBytes(tensor);
        AddPatches(graph,
                   {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)},
                   &moments);
      }
    };
    interpreter->SetTap(listen);
    progress->Begin("rounding", samples->count());
    ATOLL_RETURN_IF_ERROR(samples->Rewind());
    while (true) {
      ATOLL_ASSIGN_OR_RETURN(const auto sample, samples->Next());
      if (sample.empty()) break;
      SetInputs(sample, interpreter.get());
      for (const int32_t input : graph.inputs) listen(input);
      ATOLL_RETURN_IF_ERROR(interpreter->Invoke());
      ATOLL_RETURN_IF_ERROR(progress->Advance());
    }
    for (Moments& moments : group) {
      if (!InverseFactor(&moments)) continue;  // to nearest
      const Tensor& stored = *made.Input(made.nodes[emitted.nodes[moments.node]], kFilterWeights);
      std::vector<float> scales;
      for (int32_t c = 0; c < stored.shape[0]; ++c) {
        scales.push_back(ScaleOf(stored, static_cast<size_t>(c)));
      }
      changes->rounded_weights[moments.node] =
          Round(Floats(*graph.Input(graph.nodes[moments.node], kFilterWeights)), scales, moments);
    }
  }
  return Status();
}

}  // namespace atollrt
