// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/picture_input.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tools/atoll/exit_code.h"
#include "tools/atoll/report.h"
#include "tools/atoll/validators.h"

namespace atollcmd {
namespace {

std::vector<uint8_t> QuantizedPixels(const AtollTensor* tensor, const PixelScaling& scaling) {
  const int q_min = AtollTensorType(tensor) == ATOLL_INT8 ? -128 : 0;
  const AtollQuantization quantization = AtollTensorQuantization(tensor);
  std::vector<uint8_t> stored(256);
  for (int p = 0; p < 256; ++p) {
    double q = p + q_min;
    if (scaling.mean || scaling.std) {
      const double real = (p - scaling.mean.value_or(0)) / scaling.std.value_or(1);
      q = std::clamp(std::round(real / quantization.scale) + quantization.zero_point,
                     static_cast<double>(q_min), static_cast<double>(q_min + 255));
    }
    stored[static_cast<size_t>(p)] = static_cast<uint8_t>(static_cast<int>(q));
  }
  return stored;
}

std::vector<float> FloatPixels(const PixelScaling& scaling) {
  const bool given = scaling.mean || scaling.std;
  const double mean = scaling.mean.value_or(given ? 0 : 127.5);
  const double std = scaling.std.value_or(given ? 1 : 127.5);
  std::vector<float> stored(256);
  for (int p = 0; p < 256; ++p)
    stored[static_cast<size_t>(p)] = static_cast<float>((p - mean) / std);
  return stored;
}

}  // namespace

void AddPixelScalingOptions(CLI::App* app, PixelScaling* scaling) {
  app->add_option(
      "--mean", scaling->mean,
      "a pixel p stands for (p - mean) / std instead of the default for the model's input");
  app->add_option("--std", scaling->std, "see --mean")->check(NonzeroNumber());
}

PictureInput::PictureInput(const Session& session, const PixelScaling& scaling) {
  const std::vector<AtollTensor*> inputs = session.inputs();
  if (inputs.size() != 1) {
    throw CommandError(ExitCode::kBadModel,
                       fmt::format("the model has {} inputs, but a picture fills one; use "
                                   "'atoll run'",
                                   inputs.size()));
  }
  AtollTensor* tensor = tensor_ = inputs[0];
  const int32_t rank = AtollTensorNumDims(tensor);
  height_ = AtollTensorDim(tensor, 1);
  width_ = AtollTensorDim(tensor, 2);
  channels_ = rank == 3 ? 1 : AtollTensorDim(tensor, 3);
  if ((rank != 3 && rank != 4) || AtollTensorDim(tensor, 0) != 1 || height_ < 1 || width_ < 1 ||
      (channels_ != 1 && channels_ != 3)) {
    throw CommandError(
        ExitCode::kBadModel,
        fmt::format("the model's input '{}' of shape {} takes no picture, which needs "
                    "[1,h,w,3] or [1,h,w,1]; use 'atoll run'",
                    AtollTensorName(tensor), ShapeText(tensor)));
  }
  const AtollType type = AtollTensorType(tensor);
  if (type == ATOLL_FLOAT32) {
    stored_floats_ = FloatPixels(scaling);
  } else if (type == ATOLL_UINT8 || type == ATOLL_INT8) {
    if ((scaling.mean || scaling.std) && AtollTensorQuantization(tensor).scale == 0) {
      throw CommandError(
          ExitCode::kUsage,
          fmt::format("the model's input '{}' has no scale, so --mean and --std mean "
                      "nothing to it; leave them out",
                      AtollTensorName(tensor)));
    }
    stored_bytes_ = QuantizedPixels(tensor, scaling);
  } else {
    throw CommandError(ExitCode::kBadModel,
                       fmt::format("the model's input '{}' is {}, but a picture needs uint8, int8 "
                                   "or float32; use 'atoll run'",
                                   AtollTensorName(tensor), AtollTypeName(type)));
  }
}

void PictureInput::Write(std::span<const uint8_t> pixels) const {
  void* data = AtollTensorData(tensor_);
  if (stored_floats_.empty()) {
    std::transform(pixels.begin(), pixels.end(), static_cast<uint8_t*>(data),
                   [this](uint8_t pixel) { return stored_bytes_[pixel]; });
  } else {
    std::transform(pixels.begin(), pixels.end(), static_cast<float*>(data),
                   [this](uint8_t pixel) { return stored_floats_[pixel]; });
  }
}

ClassScores::ClassScores(const Session& session) {
  const std::vector<const AtollTensor*> outputs = session.outputs();
  if (outputs.size() != 1) {
    throw CommandError(ExitCode::kBadModel,
                       fmt::format("the model has {} outputs, but a classifier has one; use "
                                   "'atoll run'",
                                   outputs.size()));
  }
  tensor_ = outputs[0];
  const AtollType type = AtollTensorType(tensor_);
  const int32_t rank = AtollTensorNumDims(tensor_);
  int64_t elements = 1;
  for (int32_t i = 0; i < rank; ++i) elements *= AtollTensorDim(tensor_, i);
  class_count_ = static_cast<size_t>(rank > 0 ? AtollTensorDim(tensor_, rank - 1) : 0);
  const bool has_scores = type == ATOLL_FLOAT32 || type == ATOLL_UINT8 || type == ATOLL_INT8;
  if (!has_scores || class_count_ < 2 || elements != static_cast<int64_t>(class_count_)) {
    throw CommandError(
        ExitCode::kBadModel,
        fmt::format("the model's output '{}', {} {}, is not a list of class scores, "
                    "[1,n] of uint8, int8 or float32; use 'atoll run'",
                    AtollTensorName(tensor_), AtollTypeName(type), ShapeText(tensor_)));
  }
}

std::vector<float> ClassScores::Read() const {
  std::vector<float> scores(class_count_);
  const void* data = AtollTensorConstData(tensor_);
  const AtollType type = AtollTensorType(tensor_);
  if (type == ATOLL_FLOAT32) {
    std::memcpy(scores.data(), data, class_count_ * sizeof(float));
    // Not a number is less than any: scores can then be sorted.
    for (float& score : scores) {
      if (std::isnan(score)) score = -std::numeric_limits<float>::infinity();
    }
    return scores;
  }
  AtollQuantization quantization = AtollTensorQuantization(tensor_);
  if (quantization.scale == 0) quantization = {1.0f, 0};
  for (size_t i = 0; i < class_count_; ++i) {
    const int q = type == ATOLL_INT8 ? static_cast<const int8_t*>(data)[i]
                                     : static_cast<const uint8_t*>(data)[i];
    scores[i] = quantization.scale * static_cast<float>(q - quantization.zero_point);
  }
  return scores;
}

ClassScores::Best ClassScores::FindBest() const {
  const std::vector<float> scores = Read();
  const auto best = std::max_element(scores.begin(), scores.end());
  return {static_cast<size_t>(best - scores.begin()), *best};
}

}  // namespace atollcmd
