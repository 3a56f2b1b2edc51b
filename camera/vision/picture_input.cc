// SPDX-License-Identifier: Apache-2.0
#include "atoll/vision/picture_input.h"

#include <algorithm>
#include <cmath>

#include "camera/vision/tensor_text.h"

namespace atollrt {
namespace {

StoredBytes QuantizedPixels(const AtollTensor* tensor, const PixelScaling& scaling) {
  const int q_min = AtollTensorType(tensor) == ATOLL_INT8 ? -128 : 0;
  const AtollQuantization quantization = AtollTensorQuantization(tensor);
  StoredBytes stored;
  for (int p = 0; p < 256; ++p) {
    double q = p + q_min;
    if (scaling.given()) {
      const double real = (p - scaling.mean.value_or(0)) / scaling.std.value_or(1);
      q = std::clamp(std::round(real / quantization.scale) + quantization.zero_point,
                     static_cast<double>(q_min), static_cast<double>(q_min + 255));
    }
    stored[static_cast<size_t>(p)] = static_cast<uint8_t>(static_cast<int>(q));
  }
  return stored;
}

StoredFloats FloatPixels(const PixelScaling& scaling) {
  const double mean = scaling.mean.value_or(scaling.given() ? 0 : 127.5);
  const double std = scaling.std.value_or(scaling.given() ? 1 : 127.5);
  StoredFloats stored;
  for (int p = 0; p < 256; ++p) {
    stored[static_cast<size_t>(p)] = static_cast<float>((p - mean) / std);
  }
  return stored;
}

}  // namespace

Result<PictureInput> PictureInput::Create(AtollInterpreter* interpreter,
                                          const PixelScaling& scaling) {
  const int32_t count = AtollInterpreterGetInputTensorCount(interpreter);
  if (count != 1) {
    return Unsupported("the model has %d inputs, but a picture fills one", count);
  }
  PictureInput input;
  AtollTensor* tensor = input.tensor_ = AtollInterpreterGetInputTensor(interpreter, 0);
  const std::vector<int32_t> shape = ShapeOf(tensor);
  const bool has_rank = shape.size() == 3 || shape.size() == 4;
  const int channels = shape.size() == 4 ? shape[3] : 1;
  if (!has_rank || shape[0] != 1 || shape[1] < 1 || shape[2] < 1 ||
      (channels != 1 && channels != 3)) {
    return Unsupported(
        "the model's input %s takes no picture, which needs shape [1,h,w,3] or [1,h,w,1]",
        Describe(tensor).c_str());
  }
  input.height_ = shape[1];
  input.width_ = shape[2];
  input.channels_ = channels;
  ATOLL_RETURN_IF_ERROR(input.scaler_.SetOutput(input.width_, input.height_, channels));
  switch (AtollTensorType(tensor)) {
    case ATOLL_FLOAT32:
      input.is_float_ = true;
      input.stored_floats_ = FloatPixels(scaling);
      return input;
    case ATOLL_UINT8:
    case ATOLL_INT8:
      if (scaling.given() && AtollTensorQuantization(tensor).scale == 0) {
        return InvalidArgument(
            "the model's input %s has no scale, so mean and std mean nothing to it",
            Describe(tensor).c_str());
      }
      input.stored_bytes_ = QuantizedPixels(tensor, scaling);
      return input;
    default:
      return Unsupported(
          "the model's input %s takes no picture, which needs type uint8, int8 or float32",
          Describe(tensor).c_str());
  }
}

Status PictureInput::Write(const Image& image) const {
  if (image.width != width_ || image.height != height_ || image.channels != channels_ ||
      image.pixels.size() != image.size_bytes()) {
    return InvalidArgument("the model takes pictures of %d x %d x %d, this one is %d x %d x %d",
                           width_, height_, channels_, image.width, image.height, image.channels);
  }
  void* data = AtollTensorData(tensor_);
  if (!is_float_) {
    std::transform(image.pixels.begin(), image.pixels.end(), static_cast<uint8_t*>(data),
                   [this](uint8_t pixel) { return stored_bytes_[pixel]; });
  } else {
    std::transform(image.pixels.begin(), image.pixels.end(), static_cast<float*>(data),
                   [this](uint8_t pixel) { return stored_floats_[pixel]; });
  }
  return Status();
}

Status PictureInput::Write(const PlanarImage& picture, const Rect& part) {
  void* data = AtollTensorData(tensor_);
  return is_float_ ? scaler_.Run(picture, part, stored_floats_, static_cast<float*>(data))
                   : scaler_.Run(picture, part, stored_bytes_, static_cast<uint8_t*>(data));
}

}  // namespace atollrt
