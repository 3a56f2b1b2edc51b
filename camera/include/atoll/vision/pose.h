// SPDX-License-Identifier: Apache-2.0
//
// People as keypoints. Two kinds of models are read:
//   PoseNet   ends in the custom operator PosenetDecoderOp, whose float32 outputs are keypoints
//             [1,n,17,2] (y, x in pixels of the input), their scores [1,n,17], scores of the poses
//             [1,n] and [1], how many of the n entries are poses; masks, if it has them, are not
//             read
//   MoveNet   for one person: one output [1,1,17,3] (y, x as fractions of the input, score) of
//             float32, uint8 or int8
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "atoll/runtime.h"
#include "atoll/status.h"

namespace atollrt {

inline constexpr int kKeypointCount = 17;

// By index; left and right are the person's own.
inline constexpr std::array<const char*, kKeypointCount> kKeypointNames = {
    "nose",           "left_eye",   "right_eye",   "left_ear",   "right_ear",   "left_shoulder",
    "right_shoulder", "left_elbow", "right_elbow", "left_wrist", "right_wrist", "left_hip",
    "right_hip",      "left_knee",  "right_knee",  "left_ankle", "right_ankle"};

// The bones: which keypoints a line joins.
inline constexpr std::array<std::pair<int, int>, 16> kSkeleton = {{{0, 1},
                                                                   {0, 2},
                                                                   {1, 3},
                                                                   {2, 4},  // head
                                                                   {5, 6},
                                                                   {5, 11},
                                                                   {6, 12},
                                                                   {11, 12},  // trunk
                                                                   {5, 7},
                                                                   {7, 9},
                                                                   {6, 8},
                                                                   {8, 10},
                                                                   {11, 13},
                                                                   {13, 15},
                                                                   {12, 14},
                                                                   {14, 16}}};  // limbs

struct Keypoint {
  // Fractions of the model's input; a keypoint may lie outside of 0 to 1.
  float x = 0;
  float y = 0;
  float score = 0;
};

struct Pose {
  float score = 0;  // MoveNet: the mean of the keypoints' scores
  std::array<Keypoint, kKeypointCount> keypoints;
};

class PoseReader {
 public:
  // kUnsupported, with a sentence that names the outputs, for any other model.
  static Result<PoseReader> Create(AtollInterpreter* interpreter);

  // The poses with a score of at least `threshold`, best first, equal scores in the model's order.
  // Poses that hold something other than finite numbers are left out.
  void Read(float threshold, std::vector<Pose>* poses) const;

 private:
  PoseReader() = default;
  static Result<PoseReader> CreatePosenet(AtollInterpreter* interpreter, const AtollNodeInfo& node);
  void ReadPosenet(std::vector<Pose>* poses) const;
  void ReadMovenet(std::vector<Pose>* poses) const;

  const AtollTensor* movenet_ = nullptr;  // or
  const float* keypoints_ = nullptr;
  const float* keypoint_scores_ = nullptr;
  const float* pose_scores_ = nullptr;
  const float* count_ = nullptr;
  int entries_ = 0;
  float input_width_ = 1;
  float input_height_ = 1;
};

}  // namespace atollrt
