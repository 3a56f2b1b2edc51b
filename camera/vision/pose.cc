// SPDX-License-Identifier: Apache-2.0
#include "atoll/vision/pose.h"

#include <algorithm>
#include <cmath>

#include "camera/vision/tensor_values.h"

namespace atollrt {
namespace {

constexpr char kPosenetOperator[] = "PosenetDecoderOp";

bool IsFinite(const Pose& pose) {
  return std::isfinite(pose.score) &&
         std::all_of(pose.keypoints.begin(), pose.keypoints.end(), [](const Keypoint& keypoint) {
           return std::isfinite(keypoint.x) && std::isfinite(keypoint.y) &&
                  std::isfinite(keypoint.score);
         });
}

}  // namespace

Result<PoseReader> PoseReader::CreatePosenet(AtollInterpreter* interpreter,
                                             const AtollNodeInfo& node) {
  const std::vector<const AtollTensor*> outputs = OutputsOf(interpreter, node, 4);
  if (outputs.empty()) {
    return Unsupported("the model has %s, but the first four outputs of its %s must be among them",
                       DescribeOutputs(interpreter).c_str(), kPosenetOperator);
  }
  const int64_t entries = CountElements(ShapeOf(outputs[2]));
  if (!IsFloat(outputs[0], entries * kKeypointCount * 2) ||
      !IsFloat(outputs[1], entries * kKeypointCount) || !IsFloat(outputs[2], entries) ||
      !IsFloat(outputs[3], 1)) {
    return Unsupported(
        "the outputs of the model's %s are not float32 of shapes [1,n,17,2], [1,n,17], [1,n] and "
        "[1]",
        kPosenetOperator);
  }
  // Keypoints are in its pixels.
  const AtollTensor* input = AtollInterpreterGetInputTensor(interpreter, 0);
  if (input == nullptr || AtollTensorNumDims(input) != 4 || AtollTensorDim(input, 1) < 1 ||
      AtollTensorDim(input, 2) < 1) {
    return Unsupported("the model has an operator %s, but no input of shape [1,h,w,3]",
                       kPosenetOperator);
  }
  PoseReader reader;
  reader.keypoints_ = Floats(outputs[0]);
  reader.keypoint_scores_ = Floats(outputs[1]);
  reader.pose_scores_ = Floats(outputs[2]);
  reader.count_ = Floats(outputs[3]);
  reader.entries_ = static_cast<int>(entries);
  reader.input_height_ = static_cast<float>(AtollTensorDim(input, 1));
  reader.input_width_ = static_cast<float>(AtollTensorDim(input, 2));
  return reader;
}

Result<PoseReader> PoseReader::Create(AtollInterpreter* interpreter) {
  if (const auto node = FindOperator(interpreter, kPosenetOperator)) {
    return CreatePosenet(interpreter, *node);
  }
  const AtollTensor* output = OnlyOutput(interpreter);
  if (output == nullptr || !HoldsRealNumbers(output) ||
      ShapeOf(output) != std::vector<int32_t>{1, 1, kKeypointCount, 3}) {
    return Unsupported(
        "the model has %s, but a pose model has an operator %s or one output of shape [1,1,17,3]",
        DescribeOutputs(interpreter).c_str(), kPosenetOperator);
  }
  PoseReader reader;
  reader.movenet_ = output;
  return reader;
}

void PoseReader::ReadPosenet(std::vector<Pose>* poses) const {
  // Also of a count that is not a number.
  const int count =
      *count_ > 0 ? static_cast<int>(std::min(*count_, static_cast<float>(entries_))) : 0;
  for (int i = 0; i < count; ++i) {
    Pose pose = {.score = pose_scores_[i], .keypoints = {}};
    for (int k = 0; k < kKeypointCount; ++k) {
      const ptrdiff_t index = ptrdiff_t{kKeypointCount} * i + k;
      pose.keypoints[static_cast<size_t>(k)] = {keypoints_[2 * index + 1] / input_width_,
                                                keypoints_[2 * index] / input_height_,
                                                keypoint_scores_[index]};
    }
    poses->push_back(pose);
  }
}

void PoseReader::ReadMovenet(std::vector<Pose>* poses) const {
  const RealValues values(movenet_);
  Pose pose;
  for (size_t k = 0; k < pose.keypoints.size(); ++k) {
    pose.keypoints[k] = {values[3 * k + 1], values[3 * k], values[3 * k + 2]};
    pose.score += pose.keypoints[k].score / kKeypointCount;
  }
  poses->push_back(pose);
}

void PoseReader::Read(float threshold, std::vector<Pose>* poses) const {
  poses->clear();
  movenet_ != nullptr ? ReadMovenet(poses) : ReadPosenet(poses);
  std::erase_if(
      *poses, [threshold](const Pose& pose) { return !IsFinite(pose) || pose.score < threshold; });
  std::stable_sort(poses->begin(), poses->end(),
                   [](const Pose& a, const Pose& b) { return a.score > b.score; });
}

}  // namespace atollrt
