// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "atoll/runtime.h"

namespace atollrt {

// What a model says about a picture.
enum class Task {
  kNone,  // something that no reader here understands
  kClassify,
  kDetect,
  kSegment,
  kPose,
};

// "none", "classify", "detect", "segment", "pose"
const char* TaskName(Task task);

// The task whose reader accepts the model's outputs. Certain for detectors and poses, which end in
// an operator of their own or have a shape that nothing else has; otherwise a judgement by shape: a
// map is taken for a segmentation, a list of numbers for class scores.
Task IdentifyTask(AtollInterpreter* interpreter);

}  // namespace atollrt
