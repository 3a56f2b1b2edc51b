// SPDX-License-Identifier: Apache-2.0
#include "quantize/range_methods.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace atollrt {
namespace {

constexpr size_t kBins = 2048;

struct Histogram {
  Range range;
  std::vector<int64_t> counts;

  double width() const {
    return (static_cast<double>(range.high) - static_cast<double>(range.low)) / kBins;
  }
  double Center(size_t bin) const {
    return static_cast<double>(range.low) + (static_cast<double>(bin) + 0.5) * width();
  }
  void Add(std::span<const float> values) {
    const auto bins = static_cast<float>(1.0 / width());
    for (const float value : values) {
      const float bin = std::clamp((value - range.low) * bins, 0.0f, kBins - 1.0f);
      ++counts[static_cast<size_t>(bin)];
    }
  }
};

// The narrowest range outside of which at most half of the rest lies on each side.
Range Percentile(const Histogram& histogram, double percentile) {
  int64_t total = 0;
  for (const int64_t count : histogram.counts) total += count;
  const double tail = static_cast<double>(total) * (1 - percentile / 100) / 2;
  size_t low = 0, high = kBins - 1;
  double sum = 0;
  for (; low < high; ++low) {
    sum += static_cast<double>(histogram.counts[low]);
    if (sum > tail) break;
  }
  sum = 0;
  for (; high > low; --high) {
    sum += static_cast<double>(histogram.counts[high]);
    if (sum > tail) break;
  }
  const double half = histogram.width() / 2;
  Range range = histogram.range;
  if (low > 0) range.low = static_cast<float>(histogram.Center(low) - half);
  if (high < kBins - 1) range.high = static_cast<float>(histogram.Center(high) + half);
  return range;
}

double SquaredError(const Histogram& histogram, const Encoding& encoding) {
  const double scale = static_cast<double>(encoding.scale);
  double error = 0;
  for (size_t bin = 0; bin < kBins; ++bin) {
    if (histogram.counts[bin] == 0) continue;
    const double value = histogram.Center(bin);
    const double steps = std::clamp(std::round(value / scale) + encoding.zero_point, -128.0, 127.0);
    const double difference = value - scale * (steps - encoding.zero_point);
    error += difference * difference * static_cast<double>(histogram.counts[bin]);
  }
  return error;
}

Range LeastSquares(const Histogram& histogram) {
  constexpr int kSteps = 14;
  constexpr float kStep = 0.05f;  // down to 0.35 of each end
  Range best = histogram.range;
  double smallest = SquaredError(histogram, EncodingOf(best, Precision::kInt8));
  for (int a = 0; a < kSteps; ++a) {
    if (a > 0 && histogram.range.low >= 0) break;
    for (int b = 0; b < kSteps; ++b) {
      if (b > 0 && histogram.range.high <= 0) break;
      const Range range{histogram.range.low * (1 - kStep * static_cast<float>(a)),
                        histogram.range.high * (1 - kStep * static_cast<float>(b))};
      const double error = SquaredError(histogram, EncodingOf(range, Precision::kInt8));
      if (error >= smallest) continue;
      smallest = error;
      best = range;
    }
  }
  return best;
}

}  // namespace

Result<std::vector<Range>> ChooseRanges(const EditedGraph& edited, const FloatMeasures& measures,
                                        const QuantizeOptions& options, RangeMethod method,
                                        Samples* samples, ProgressReporter* progress) {
  std::vector<Range> ranges = measures.ranges;
  if (method == RangeMethod::kMinMax) return ranges;
  const Graph& graph = edited.graph;
  std::vector<Histogram> histograms(graph.tensors.size());
  for (const Node& node : graph.nodes) {
    for (const int32_t output : node.outputs) {
      const Range& range = ranges[output];
      if (!range.is_known() || range.low == range.high) continue;
      // Where values stand for infinity, the range is as wide as they need it.
      if (std::isfinite(measures.infinities[output])) continue;
      histograms[output] = {range, std::vector<int64_t>(kBins, 0)};
    }
  }
  ATOLL_ASSIGN_OR_RETURN(const std::unique_ptr<Interpreter> interpreter,
                         RunnerOf(edited, graph, options.threads, false));
  interpreter->SetTap([&](int32_t tensor) {
    if (histograms[tensor].counts.empty()) return;
    const std::span<const uint8_t> bytes = std::as_const(*interpreter).ConstTensorBytes(tensor);
    histograms[tensor].Add(
        {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)});
  });
  progress->Begin("ranges", samples->count());
  ATOLL_RETURN_IF_ERROR(samples->Rewind());
  while (true) {
    ATOLL_ASSIGN_OR_RETURN(const auto sample, samples->Next());
    if (sample.empty()) break;
    SetInputs(sample, interpreter.get());
    ATOLL_RETURN_IF_ERROR(interpreter->Invoke());
    ATOLL_RETURN_IF_ERROR(progress->Advance());
  }
  for (size_t t = 0; t < histograms.size(); ++t) {
    if (histograms[t].counts.empty()) continue;
    ranges[t] = method == RangeMethod::kPercentile ? Percentile(histograms[t], options.percentile)
                                                   : LeastSquares(histograms[t]);
  }
  return ranges;
}

}  // namespace atollrt
