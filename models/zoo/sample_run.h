// SPDX-License-Identifier: Apache-2.0
//
// SampleRun: sample pictures carried through a network while it is being built, layer by layer,
// by the CPU's kernels. From what they become, NetworkBuilder chooses scales and biases. Not
// thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "atoll/status.h"
#include "runtime/base/buffer.h"
#include "runtime/base/thread_pool.h"
#include "runtime/graph/graph.h"

namespace atollrt {

// What one channel of a tensor has, over all places of all samples, as real values.
struct Moments {
  double mean = 0, variance = 0;
};

class SampleRun {
 public:
  SampleRun();

  // Fills a picture tensor [1, h, w, c] of int8: with noise, waves, a slope and dim noise with
  // edges.
  Status SetPictures(const Tensor& tensor, int32_t index);
  // Computes the outputs of a node, which must be int8 or uint8 and whose inputs must be constants
  // or known. Replaces what the outputs were.
  Status Run(const Graph& graph, const Node& node);

  // One per channel, the last dimension.
  std::vector<Moments> MomentsOf(const Graph& graph, int32_t tensor) const;
  // Largest magnitude of a + b.
  double LargestSum(const Graph& graph, int32_t a, int32_t b) const;
  // How many values of one channel MomentsOf sees.
  static int64_t PlacesOf(const Tensor& tensor);

 private:
  static constexpr size_t kSamples = 4;
  using Values = std::array<Buffer, kSamples>;

  Values& At(int32_t tensor);

  std::vector<Values> values_;  // by tensor
  ThreadPool pool_;
};

}  // namespace atollrt
