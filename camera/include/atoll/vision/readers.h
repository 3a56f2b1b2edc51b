// SPDX-License-Identifier: Apache-2.0
//
// What models say about a picture, as typed results: a reader for each kind of model.
//
// A reader is made once for an interpreter, which must outlive it. Create checks everything: for a
// model of another kind it gives kUnsupported, with a sentence that names the outputs. Read takes
// what the latest Invoke left in the output tensors, whatever numbers these hold. Readers are
// small, copyable, and used from the thread that uses the interpreter.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "atoll/picture/image.h"
#include "atoll/runtime.h"
#include "atoll/status.h"

namespace atollrt {

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

struct ClassScore {
  int class_index = 0;
  float score = 0;  // the output's real value: a probability only if the model ends in a softmax
};

// Classifiers: one output of shape [1,...,n], n >= 2, that holds a score per class. It is float32,
// or uint8 or int8 with any scale (with none, the stored numbers are the scores).
class ClassificationReader {
 public:
  static Result<ClassificationReader> Create(AtollInterpreter* interpreter);

  int class_count() const { return class_count_; }

  // The `k` best classes (or all, if they are fewer), best first, equal scores in ascending order
  // of the class. A score that is not a number counts as minus infinity.
  void ReadTop(int k, std::vector<ClassScore>* top) const;

 private:
  ClassificationReader(const AtollTensor* scores, int class_count)
      : scores_(scores), class_count_(class_count) {}

  const AtollTensor* scores_;
  int class_count_;
};

// The outputs of an operator that ends a model with a list: float32, two of a few numbers per
// entry, one of a score per entry, and how many of the entries are filled. They are found by their
// position in the operator, whatever the order of the model's outputs.
struct ListOutputs {
  std::array<const float*, 4> values = {};
  int entries = 0;

  int filled() const;  // 0 to `entries`, whatever the model says
};

struct Detection {
  // Fractions of the model's input, within 0 to 1; left <= right, top <= bottom.
  float left = 0;
  float top = 0;
  float right = 0;
  float bottom = 0;
  int class_index = 0;  // the operator does not count the background: 0 is the first real class
  float score = 0;
};

// Detectors that end in the custom operator TFLite_Detection_PostProcess, as TensorFlow's object
// detection models do. Its outputs are boxes [1,n,4] (top, left, bottom, right), classes [1,n],
// scores [1,n] and [1], how many of the n entries are detections. All four must be outputs of the
// model.
class DetectionReader {
 public:
  static Result<DetectionReader> Create(AtollInterpreter* interpreter);

  // How many scores the operator gets for each box: the number of classes, or one more if the first
  // one is that of the background.
  int score_count() const { return score_count_; }

  // The detections with a score of at least `threshold`, best first, equal scores in the operator's
  // order. Entries that hold something other than finite numbers or no class are left out.
  void Read(float threshold, std::vector<Detection>* detections) const;

 private:
  DetectionReader() = default;
  ListOutputs list_;
  int score_count_ = 0;
};

inline constexpr int kKeypointCount = 17;

// By index; left and right are the person's own.
inline constexpr std::array<const char*, kKeypointCount> kKeypointNames = {
    "nose",           "left_eye",   "right_eye",   "left_ear",   "right_ear",   "left_shoulder",
    "right_shoulder", "left_elbow", "right_elbow", "left_wrist", "right_wrist", "left_hip",
    "right_hip",      "left_knee",  "right_knee",  "left_ankle", "right_ankle"};

// The bones, of head, trunk and limbs: which keypoints a line joins.
using Bone = std::pair<int, int>;
inline constexpr std::array<Bone, 16> kSkeleton = {
    Bone(0, 1),   Bone(0, 2),   Bone(1, 3),   Bone(2, 4),  Bone(5, 6), Bone(5, 11),
    Bone(6, 12),  Bone(11, 12), Bone(5, 7),   Bone(7, 9),  Bone(6, 8), Bone(8, 10),
    Bone(11, 13), Bone(13, 15), Bone(12, 14), Bone(14, 16)};

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

// People as keypoints. Two kinds of models are read:
//   PoseNet   ends in the custom operator PosenetDecoderOp, whose outputs are keypoints [1,n,17,2]
//             (y, x in pixels of the input), their scores [1,n,17], scores of the poses [1,n] and
//             [1], how many of the n entries are poses; masks, if it has them, are not read
//   MoveNet   for one person: one output [1,1,17,3] (y, x as fractions of the input, score) of
//             float32, uint8 or int8
class PoseReader {
 public:
  static Result<PoseReader> Create(AtollInterpreter* interpreter);

  // The poses with a score of at least `threshold`, best first, equal scores in the model's order.
  // Poses that hold something other than finite numbers are left out.
  void Read(float threshold, std::vector<Pose>* poses) const;

 private:
  PoseReader() = default;
  static Result<PoseReader> CreatePosenet(AtollInterpreter* interpreter, const AtollNodeInfo& node);
  void ReadPosenet(std::vector<Pose>* poses) const;
  void ReadMovenet(std::vector<Pose>* poses) const;

  const AtollTensor* movenet_ = nullptr;  // or, of PoseNet:
  ListOutputs list_;
  float input_width_ = 1;
  float input_height_ = 1;
};

// Segmentation: one output that gives each pixel a class, either as its number, [1,h,w] or
// [1,h,w,1] of int32, int64 or unquantized uint8, or as scores of all classes, [1,h,w,n] of
// float32, uint8 or int8, n from 2 to 256. h and w, at least 2 each, need not be those of the
// input.
class SegmentationReader {
 public:
  static constexpr int kMaxClasses = 256;

  static Result<SegmentationReader> Create(AtollInterpreter* interpreter);

  int width() const { return width_; }
  int height() const { return height_; }
  // 0 if the model gives class numbers and does not say how many there are.
  int class_count() const { return class_count_; }

  // The class of each pixel as a gray image of width() x height(). Of scores it is the class of the
  // highest one, the first of equals; a score that is not a number is less than any. kUnsupported
  // if the model gives a class number outside of 0 to 255, with its place.
  Status Read(Image* classes) const;

 private:
  SegmentationReader() = default;
  const AtollTensor* output_ = nullptr;
  int width_ = 0;
  int height_ = 0;
  int class_count_ = 0;
  bool has_scores_ = false;
};

// How many pixels of a gray image have each value.
std::array<int64_t, 256> CountPixels(const Image& classes);

}  // namespace atollrt
