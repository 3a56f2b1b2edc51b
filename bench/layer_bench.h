// SPDX-License-Identifier: Apache-2.0
//
// Layers of real models on every kernel of a list that this CPU has, in int8 and in uint8, on one
// thread: MAC/s, and percent of the fastest that the kernel's dot product instruction runs in this
// process (peak_loop.h).
#pragma once

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
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
  Result<Operator> op = Operator::Prepare(prepared, features);
  if (!op.ok()) {
    state.SkipWithError(op.status().message().c_str());
    return;
  }
  std::vector<uint8_t> input(static_cast<size_t>(prepared.shape.InputBytes()), 3);
  std::vector<uint8_t> output(static_cast<size_t>(prepared.shape.OutputBytes()));
  std::vector<uint8_t> scratch(op->ScratchBytes(1));
  for (auto _ : state) {
    op->Run(input.data(), output.data(), scratch.data(), nullptr);
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
