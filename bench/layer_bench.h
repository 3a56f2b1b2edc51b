// SPDX-License-Identifier: Apache-2.0
//
// Layers of real models on every kernel of a list that this CPU has, in int8 and in uint8, on one
// thread: MAC/s, and percent of the fastest that the kernel's dot product instruction runs in this
// process (peak_loop.h). Beside them stands the kernel that the weights were given.
//
// ATOLL_BENCH_COPIES=N takes N operators in turns, each with weights of its own, as a model has
// them: of how many do the caches hold the weights?
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "bench/bell_weights.h"
#include "bench/peak_loop.h"
#include "runtime/kernels/cpu_features.h"
#include "runtime/kernels/quantization/quantization.h"

namespace atollrt {

// A Layer has a name and WeightBytes(), of which each makes one product for each pixel of the
// output. `params(layer, type, weights)` makes of it what Operator::Prepare takes.
template <typename Operator, typename Layer, typename Params>
void MeasureLayer(benchmark::State& state, const Layer& layer, ByteType type, CpuFeatures features,
                  Params params) {
  std::vector<uint8_t> weights(static_cast<size_t>(layer.WeightBytes()));
  FillBellWeights(type, &weights);
  const auto prepared = params(layer, type, weights);
  const char* const copies = getenv("ATOLL_BENCH_COPIES");
  const int count = std::clamp(copies == nullptr ? 1 : atoi(copies), 1, 1000);
  std::vector<Operator> operators;
  for (int i = 0; i < count; ++i) {
    Result<Operator> op = Operator::Prepare(prepared, features);
    if (!op.ok()) {
      state.SkipWithError(op.status().message().c_str());
      return;
    }
    operators.push_back(*std::move(op));
  }
  state.SetLabel(operators.front().kernel_name());
  std::vector<uint8_t> input(static_cast<size_t>(prepared.shape.InputBytes()), 3);
  std::vector<uint8_t> output(static_cast<size_t>(prepared.shape.OutputBytes()));
  std::vector<uint8_t> scratch(operators.front().ScratchBytes(1));
  size_t next = 0;
  for (auto _ : state) {
    operators[next].Run(input.data(), output.data(), scratch.data(), nullptr);
    next = (next + 1) % operators.size();
    benchmark::ClobberMemory();
  }
  const double macs =
      static_cast<double>(layer.WeightBytes()) * prepared.shape.output_h * prepared.shape.output_w;
  ReportMacs(state, macs, features);
}

// Nothing if this CPU lacks one of the kernel's `features`. `layers` must outlive the run.
template <typename Operator, typename Layer, size_t kCount, typename Params>
void RegisterLayers(const char* kernel, CpuFeatures features, const Layer (&layers)[kCount],
                    Params params) {
  const Result<CpuFeatures> available = DetectCpuFeatures();
  if (!available.ok() || !Supports(*available, features)) return;
  for (const ByteType type : {ByteType::kInt8, ByteType::kUInt8}) {
    for (const Layer& layer : layers) {
      const std::string name =
          std::string(kernel) + (type == ByteType::kInt8 ? "/int8/" : "/uint8/") + layer.name;
      benchmark::RegisterBenchmark(name.c_str(), [&layer, type, features,
                                                  params](benchmark::State& state) {
        MeasureLayer<Operator>(state, layer, type, features, params);
      })->Unit(benchmark::kMicrosecond);
    }
  }
}

}  // namespace atollrt
