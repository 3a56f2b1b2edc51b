// SPDX-License-Identifier: Apache-2.0
#include "models/zoo/sample_run.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <thread>

#include "runtime/kernels/cpu_features.h"
#include "runtime/ops/cpu_ops.h"
#include "runtime/ops/node_executor.h"

namespace atollrt {
namespace {

constexpr int kMaxThreads = 4;

int ThreadCount() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMaxThreads);
}

double RealValue(const Tensor& tensor, uint8_t byte) {
  const int32_t stored = tensor.type == DataType::kUInt8 ? byte : static_cast<int8_t>(byte);
  return static_cast<double>(tensor.scale()) * (stored - tensor.zero_point());
}

}  // namespace

SampleRun::SampleRun() : pool_(ThreadCount()) {}

SampleRun::Values& SampleRun::At(int32_t tensor) {
  const size_t index = static_cast<size_t>(tensor);
  if (values_.size() <= index) values_.resize(index + 1);
  return values_[index];
}

Status SampleRun::SetPictures(const Tensor& tensor, int32_t index) {
  Values& pictures = At(index);
  for (Buffer& picture : pictures) {
    ATOLL_ASSIGN_OR_RETURN(picture, Buffer::Allocate(static_cast<size_t>(tensor.byte_size())));
  }
  uint32_t state = 1;  // a linear congruential generator, its upper bits
  const int32_t width = tensor.shape[2], channels = tensor.shape[3];
  for (size_t i = 0; i < pictures[0].size(); ++i) {
    state = state * 1664525u + 1013904223u;
    const int32_t pixel = static_cast<int32_t>(i) / channels;
    const int32_t channel = static_cast<int32_t>(i) % channels;
    const int32_t x = pixel % width, y = pixel / width;
    const double noise = static_cast<int8_t>(state >> 24);
    const double waves = 80 * std::sin(0.07 * x + channel) * std::cos(0.05 * y - channel);
    const double edges = (x / 23 + y / 31) % 2 == 0 ? 40 : -40;
    const double slope = 90 * std::sin(0.015 * (x + y) + 2 * channel);
    const double values[kSamples] = {noise, waves + edges, slope, 0.25 * noise - 60 + edges};
    for (size_t sample = 0; sample < kSamples; ++sample) {
      const double value = std::clamp(values[sample], -128.0, 127.0);
      pictures[sample].data()[i] = static_cast<uint8_t>(static_cast<int8_t>(value));
    }
  }
  return Status();
}

Status SampleRun::Run(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const CpuFeatures features, DetectCpuFeatures());
  ATOLL_ASSIGN_OR_RETURN(const std::unique_ptr<NodeExecutor> executor,
                         PrepareCpuNode(graph, node, features));
  ATOLL_ASSIGN_OR_RETURN(Buffer scratch, Buffer::Allocate(executor->ScratchBytes(pool_.threads())));
  for (const int32_t output : node.outputs) At(output);  // which may move all values
  for (size_t sample = 0; sample < kSamples; ++sample) {
    std::vector<const uint8_t*> inputs;
    for (const int32_t input : node.inputs) {
      const Tensor& tensor = graph.tensors[static_cast<size_t>(input)];
      inputs.push_back(tensor.is_constant() ? tensor.data.data() : At(input)[sample].data());
    }
    std::vector<uint8_t*> outputs;
    for (const int32_t output : node.outputs) {
      const Tensor& tensor = graph.tensors[static_cast<size_t>(output)];
      Buffer& values = At(output)[sample];
      ATOLL_ASSIGN_OR_RETURN(values, Buffer::Allocate(static_cast<size_t>(tensor.byte_size())));
      outputs.push_back(values.data());
    }
    const std::vector<uint8_t*> state(inputs.size());
    RequestCost cost;
    ATOLL_RETURN_IF_ERROR(executor->Invoke({.inputs = inputs,
                                            .outputs = outputs,
                                            .state = state,
                                            .scratch = scratch.data(),
                                            .pool = &pool_,
                                            .cost = &cost}));
  }
  return Status();
}

std::vector<Moments> SampleRun::MomentsOf(const Graph& graph, int32_t index) const {
  const Tensor& tensor = graph.tensors[static_cast<size_t>(index)];
  const size_t channels = static_cast<size_t>(tensor.shape.back());
  // Integers, so that nothing depends on the order of summation.
  std::vector<int64_t> sums(channels), squares(channels);
  for (const Buffer& values : values_[static_cast<size_t>(index)]) {
    const int8_t* data = reinterpret_cast<const int8_t*>(values.data());
    for (size_t start = 0; start < values.size(); start += channels) {
      for (size_t c = 0; c < channels; ++c) {
        sums[c] += data[start + c];
        squares[c] += data[start + c] * data[start + c];
      }
    }
  }
  const double count = static_cast<double>(PlacesOf(tensor));
  const double scale = static_cast<double>(tensor.scale());
  std::vector<Moments> moments(channels);
  for (size_t c = 0; c < channels; ++c) {
    const double mean = static_cast<double>(sums[c]) / count;
    const double variance = static_cast<double>(squares[c]) / count - mean * mean;
    moments[c] = {.mean = scale * (mean - tensor.zero_point()),
                  .variance = scale * scale * std::max(0.0, variance)};
  }
  return moments;
}

double SampleRun::LargestSum(const Graph& graph, int32_t a, int32_t b) const {
  const Tensor& first = graph.tensors[static_cast<size_t>(a)];
  const Tensor& second = graph.tensors[static_cast<size_t>(b)];
  double largest = 0;
  for (size_t sample = 0; sample < kSamples; ++sample) {
    const Buffer& x = values_[static_cast<size_t>(a)][sample];
    const Buffer& y = values_[static_cast<size_t>(b)][sample];
    for (size_t i = 0; i < x.size(); ++i) {
      largest = std::max(largest,
                         std::abs(RealValue(first, x.data()[i]) + RealValue(second, y.data()[i])));
    }
  }
  return largest;
}

int64_t SampleRun::PlacesOf(const Tensor& tensor) {
  return static_cast<int64_t>(kSamples) * tensor.element_count() / tensor.shape.back();
}

}  // namespace atollrt
