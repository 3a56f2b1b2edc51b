// SPDX-License-Identifier: Apache-2.0
//
// Pictures as the input of a model: which tensors take one, and what a pixel becomes in them.
//
// An input of shape [1,h,w,3], [1,h,w,1] or [1,h,w] (grey) takes a picture. With `mean` and `std`
// given, a pixel p (0..255) stands for the real number (p - mean) / std, which is stored as it is
// in a float32 tensor and as round(real / scale) + zero_point, clamped, in a quantized one.
// Without them a float32 tensor takes p / 127.5 - 1, and the range of real numbers that a quantized
// tensor can hold, whatever its scale and zero point, is taken for black to white: scale * (q - zp)
// is linear in q, so that is q = p for uint8 and q = p - 128 for int8. That is what converters
// produce for models trained on pictures scaled to any fixed range.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "atoll/runtime.h"
#include "tools/atoll/session.h"

namespace CLI {
class App;
}

namespace atollcmd {

struct PixelScaling {
  std::optional<double> mean;
  std::optional<double> std;
};

// Adds --mean and --std to a subcommand.
void AddPixelScalingOptions(CLI::App* app, PixelScaling* scaling);

class PictureInput {
 public:
  // Throws CommandError when the model has not exactly one input or that takes no picture.
  PictureInput(const Session& session, const PixelScaling& scaling);

  int width() const { return width_; }
  int height() const { return height_; }
  int channels() const { return channels_; }

  // Converts height * width * channels pixels, interleaved, into the tensor.
  void Write(std::span<const uint8_t> pixels) const;

 private:
  AtollTensor* tensor_ = nullptr;
  int width_ = 0;
  int height_ = 0;
  int channels_ = 0;
  // What each of the 256 pixel values becomes; the one that matches the tensor's type is filled.
  std::vector<uint8_t> stored_bytes_;
  std::vector<float> stored_floats_;
};

// The scores of a classifier: the real numbers that its only output holds.
class ClassScores {
 public:
  // Throws CommandError when the outputs are not one tensor of scores, [1,...,n] with n >= 2.
  explicit ClassScores(const Session& session);

  size_t class_count() const { return class_count_; }
  std::vector<float> Read() const;

  struct Best {
    size_t index;
    float score;
  };
  Best FindBest() const;  // the first one of the highest score

 private:
  const AtollTensor* tensor_ = nullptr;
  size_t class_count_ = 0;
};

}  // namespace atollcmd
