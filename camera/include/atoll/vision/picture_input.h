// SPDX-License-Identifier: Apache-2.0
//
// Pictures as the input of a model: which tensors take one, and what a pixel becomes in them.
//
// An input of shape [1,h,w,3], [1,h,w,1] or [1,h,w] (gray) takes a picture. With `mean` and `std`
// given, a pixel p (0..255) stands for the real number (p - mean) / std, which is stored as it is
// in a float32 tensor and as round(real / scale) + zero_point, clamped, in a quantized one.
// Without them a float32 tensor takes p / 127.5 - 1, and the range of real numbers that a quantized
// tensor can hold, whatever its scale and zero point, is taken for black to white: scale * (q - zp)
// is linear in q, so that is q = p for uint8 and q = p - 128 for int8. That is what converters
// produce for models trained on pictures scaled to any fixed range.
#pragma once

#include <cstdint>
#include <optional>

#include "atoll/picture/image.h"
#include "atoll/picture/input_scaler.h"
#include "atoll/runtime.h"
#include "atoll/status.h"

namespace atollrt {

struct PixelScaling {
  std::optional<double> mean;  // 0 if only std is given
  std::optional<double> std;   // not 0; 1 if only mean is given

  bool given() const { return mean || std; }
};

class PictureInput {
 public:
  // kUnsupported, with a sentence that names the input, when the model has not exactly one input or
  // that takes no picture; kInvalidArgument when `scaling` needs a scale that the input has not.
  static Result<PictureInput> Create(AtollInterpreter* interpreter,
                                     const PixelScaling& scaling = {});

  int width() const { return width_; }
  int height() const { return height_; }
  int channels() const { return channels_; }  // 1 or 3

  // Converts the pixels into the tensor; kInvalidArgument unless the image has exactly the size and
  // the channels of the input.
  Status Write(const Image& image) const;

  // Resizes `part` of a picture, all of it if that is empty, straight into the tensor (as
  // input_scaler.h says). kInvalidArgument when the part reaches outside of the picture.
  Status Write(const PlanarImage& picture, const Rect& part);

 private:
  PictureInput() = default;
  AtollTensor* tensor_ = nullptr;
  int width_ = 0;
  int height_ = 0;
  int channels_ = 0;
  bool is_float_ = false;
  // What each of the 256 pixel values becomes; the one that matches the tensor's type is filled.
  StoredBytes stored_bytes_ = {};
  StoredFloats stored_floats_ = {};
  InputScaler scaler_;
};

}  // namespace atollrt
