// SPDX-License-Identifier: Apache-2.0
//
// How good a detector is: mean average precision (Everingham et al., "The Pascal Visual Object
// Classes Challenge: A Retrospective", 2015), over all points of the curve.
//
// The detections of one class in all pictures take their turn by descending score, equal scores in
// their order. Each picks, among the true boxes of its class in its picture that none has taken,
// the one that it overlaps most (intersection over union). If that is at least `min_overlap`, it is
// right and takes the box; otherwise it is wrong, as are later ones of a box that is taken. Average
// precision is the area below precision over recall, each precision being replaced by the highest
// at the same or a greater recall.
#pragma once

#include <vector>

#include "atoll/vision/readers.h"

namespace atollrt {

// Boxes are fractions of the picture. The scores of true boxes mean nothing.
struct JudgedPicture {
  std::vector<Detection> truth;
  std::vector<Detection> detections;
};

// In 0 ... 1; 0 if no picture has a true box of the class.
double AveragePrecision(const std::vector<JudgedPicture>& pictures, int class_index,
                        float min_overlap);

// The mean over classes 0 ... class_count - 1.
double MeanAveragePrecision(const std::vector<JudgedPicture>& pictures, int class_count,
                            float min_overlap);

}  // namespace atollrt
