// SPDX-License-Identifier: Apache-2.0
//
// What tests of the quantizer share: samples in memory, and two models side by side.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "quantize/quantizer.h"

namespace atollrt {

// Samples that a test has made.
class ListedSamples : public CalibrationData {
 public:
  using Sample = std::vector<std::vector<float>>;
  explicit ListedSamples(std::vector<Sample> samples) : samples_(std::move(samples)) {}
  Result<bool> Next(Sample* inputs) override {
    if (next_ == samples_.size()) return false;
    *inputs = samples_[next_++];
    return true;
  }
  Status Rewind() override {
    next_ = 0;
    return Status();
  }
  const std::vector<Sample>& samples() const { return samples_; }

 private:
  const std::vector<Sample> samples_;
  size_t next_ = 0;
};

std::vector<uint8_t> ReadBytes(const std::string& path);
// Samples of one input of `elements` values each, from a file of floats.
std::vector<ListedSamples::Sample> ReadSamples(const std::string& path, size_t elements);
// Crops of the pictures that docs name, as make_crops.py makes them; empty if it cannot.
std::vector<ListedSamples::Sample> MakeCrops(int seed, int side, float scale, float offset,
                                             int per_picture);

struct Agreement {
  double logits_db = 0;  // of what enters SOFTMAX, else of the outputs
  double output_db = 0;
  double same_top1 = 0;  // share of samples
};
// `quantized` against `floats` on samples for one input.
Agreement Compare(std::span<const uint8_t> floats, std::span<const uint8_t> quantized,
                  const std::vector<ListedSamples::Sample>& samples);

}  // namespace atollrt
