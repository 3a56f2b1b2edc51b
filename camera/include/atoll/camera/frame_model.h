// SPDX-License-Identifier: Apache-2.0
//
// A model as a pipeline uses it: it takes a part of a frame and gives what there is to see.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "atoll/camera/status.h"
#include "atoll/picture/image.h"
#include "atoll/picture/overlay.h"
#include "atoll/runtime.h"
#include "atoll/status.h"
#include "atoll/vision/picture_input.h"
#include "atoll/vision/readers.h"

namespace atollrt {

// What one inference gave; of the members, those of the model's task are filled.
struct ModelResult {
  Rect seen;                          // the part of the picture that the model looked at
  std::vector<ClassScore> classes;    // best first
  std::vector<Detection> detections;  // best first
  std::vector<Pose> poses;            // best first
  Image map;                          // the class of each pixel, of a segmentation
  std::vector<std::string> captions;  // "cat 0.93": of each class, detection, pose; of the largest
                                      // classes of a map
};

// Where the time of one inference went, measured on the host.
struct InferenceTimes {
  int64_t total_ns = 0;  // from Submit until Wait had the outputs
  // As AtollInvokeInfo's; zeros on the CPU.
  int64_t link_out_ns = 0;
  int64_t compute_ns = 0;
  int64_t link_in_ns = 0;
  double modelled_seconds = 0;  // of the device; 0 without a model of it
};

// Where the next label goes, and how large it is (as DrawLabel has it).
struct LabelPlace {
  Point at;
  int scale = 1;
};

// One inference at a time: Write, Submit, Wait, Read, in this order, from one thread. Draw may be
// called from another thread meanwhile.
class FrameModel {
 public:
  virtual ~FrameModel() = default;

  // The size of its input, in pixels; channels are 1 or 3.
  struct InputSize {
    int width = 0;
    int height = 0;
    int channels = 3;
  };
  virtual InputSize input_size() const = 0;

  // Brings `part` of the picture into the model's input. kInvalidArgument if it reaches outside.
  virtual Status Write(const PlanarImage& picture, const Rect& part) = 0;
  // Starts the inference, and ends it. After a Submit that succeeded Wait must be called.
  virtual Status Submit() = 0;
  virtual Status Wait(InferenceTimes* times) = 0;
  // Reads the outputs into `result`, whose memory is reused; all but `seen`.
  virtual Status Read(ModelResult* result) = 0;

  // Draws a result into the picture. A label without a place of its own goes where `labels` says,
  // which is moved below it.
  virtual void Draw(const ModelResult& result, const Canvas& canvas, LabelPlace* labels) const = 0;

  // Fills what of the model does not change: all but the figures and results.
  virtual void Describe(ModelStatus* status) const = 0;
};

struct FrameModelOptions {
  std::string name = {};                 // "" for "model"
  std::vector<std::string> labels = {};  // by class, as the readers number them; may be too few
  PixelScaling scaling = {};
  float threshold = 0.5f;  // detections with a lower score, and poses, do not count
  int max_detections = 50;
  int top = 1;  // classes of a classifier
};

// A model with one input that takes pictures, and a task that atoll/vision knows. The interpreter
// must outlive it and belongs to it alone until then. kUnsupported, with a sentence, for others.
Result<std::unique_ptr<FrameModel>> OpenFrameModel(AtollInterpreter* interpreter,
                                                   FrameModelOptions options = {});

}  // namespace atollrt
