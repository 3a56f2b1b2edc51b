// SPDX-License-Identifier: Apache-2.0
//
// Samples of what a float model will see, from pictures, arrays or a camera.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "atoll/picture.h"
#include "atoll/quantize.h"
#include "atoll/runtime.h"
#include "atoll/vision.h"

namespace atollcmd {

struct CalibrationOptions {
  // Pictures, folders with pictures in them or in their folders, .npz and .npy files,
  // camera:SOURCE.
  std::vector<std::string> sources;
  std::optional<int64_t> samples_max;  // else all; of a camera kCameraFrames
  atollrt::PixelScaling scaling;       // of pictures
};
inline constexpr int64_t kCameraFrames = 100;

// One value vector for each input of the model, in its order.
using Sample = std::vector<std::vector<float>>;

// A part of the samples. Failures throw CommandError.
class SampleSource {
 public:
  virtual ~SampleSource() = default;
  // Fills in the next sample, whose vectors have the sizes of the inputs; false if there is none.
  virtual bool Next(Sample* sample) = 0;
  virtual void Rewind() = 0;
  virtual int64_t count() const = 0;
  // Of a sample, from 0.
  virtual std::string NameOf(int64_t sample) const = 0;
  // What it was made from, if that was a picture.
  virtual std::optional<atollrt::Image> PictureOf(int64_t sample) const = 0;
};

class PictureScaler;

// The float model's interpreter, for as long as somebody needs it.
class InputsOfModel {
 public:
  virtual ~InputsOfModel() = default;
  virtual AtollInterpreter* Open() = 0;  // the one that is open, if any; throws CommandError
  virtual void Close() = 0;
};

class Calibration {
 public:
  // Opens all sources: a camera is watched until there are enough frames. `model` must outlive it,
  // and is closed at the end of each pass. Throws CommandError.
  Calibration(const CalibrationOptions& options, InputsOfModel* model);

  // For AtollQuantize. If that fails, RethrowError() says why, if it was here.
  AtollQuantizeSamples Callbacks();
  void RethrowError() const;

  int64_t count() const { return count_; }
  bool Next(Sample* sample);
  void Rewind();
  std::string NameOf(int64_t sample) const;
  std::optional<atollrt::Image> PictureOf(int64_t sample) const;

 private:
  // The source of a sample, and its number there.
  std::pair<const SampleSource*, int64_t> Find(int64_t sample) const;

  InputsOfModel* const model_;
  std::shared_ptr<PictureScaler> scaler_;  // nullptr: there are no pictures
  std::vector<std::unique_ptr<SampleSource>> sources_;
  int64_t count_ = 0;
  size_t source_ = 0;  // of the next sample
  int64_t next_ = 0;
  Sample sample_;
  std::exception_ptr error_;
};

}  // namespace atollcmd
