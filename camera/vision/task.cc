// SPDX-License-Identifier: Apache-2.0
#include "atoll/vision/task.h"

#include "atoll/vision/classification.h"
#include "atoll/vision/detection.h"
#include "atoll/vision/pose.h"
#include "atoll/vision/segmentation.h"

namespace atollrt {

const char* TaskName(Task task) {
  switch (task) {
    case Task::kNone:
      return "none";
    case Task::kClassify:
      return "classify";
    case Task::kDetect:
      return "detect";
    case Task::kSegment:
      return "segment";
    case Task::kPose:
      return "pose";
  }
  return "none";
}

Task IdentifyTask(AtollInterpreter* interpreter) {
  if (DetectionReader::Create(interpreter).ok()) return Task::kDetect;
  if (PoseReader::Create(interpreter).ok()) return Task::kPose;
  if (SegmentationReader::Create(interpreter).ok()) return Task::kSegment;
  if (ClassificationReader::Create(interpreter).ok()) return Task::kClassify;
  return Task::kNone;
}

}  // namespace atollrt
