// SPDX-License-Identifier: Apache-2.0
//
// How good answers are: the measures that papers report, each with the interval in which it would
// lie in 95 % of cases had other pictures of the same kind been taken. Everything from 0 to 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "atoll/picture.h"
#include "atoll/vision.h"

namespace atollcmd {

struct Interval {
  double value = 0;
  double low = 0;
  double high = 0;
};

// Of `hits` among `count`, by Wilson's formula; all 0 to 1 of none.
Interval Share(int64_t hits, int64_t count);

// ---- Detection ----------------------------------------------------------------------------------

struct TrueBox {
  int class_index = 0;
  // Fractions of the picture.
  double left = 0, top = 0, right = 0, bottom = 0;
  bool crowd = false;  // many things in one box: what lies in it is neither right nor wrong
};

// Mean average precision as COCO defines it: over classes that are there and over the overlaps
// (intersection over union) from 0.5 to 0.95 in steps of 0.05, from precision at 101 points of
// recall. At most 100 detections of a picture count. Intervals are those of 200 resamplings of the
// pictures, which are the same in every run.
class DetectionScore {
 public:
  void Add(const std::vector<atollrt::Detection>& found, const std::vector<TrueBox>& truth);
  Interval Map() const;    // 0.5 to 0.95
  Interval Map50() const;  // 0.5 alone

 private:
  static constexpr size_t kOverlaps = 10;
  struct Answer {
    float score;
    // One bit for each overlap.
    uint16_t right;
    uint16_t ignored;
  };
  struct OfClass {
    std::vector<Answer> answers;
    int64_t truths = 0;
  };
  using Picture = std::map<int, OfClass>;

  // Of the pictures at `indices`, averaged over the first `overlaps` ones.
  double MeanOver(const std::vector<size_t>& indices, size_t overlaps) const;
  Interval WithInterval(size_t overlaps) const;

  std::vector<Picture> pictures_;
};

// ---- Segmentation -------------------------------------------------------------------------------

// Mean intersection over union of the classes that are in the truth or the answers, over all pixels
// of all pictures. Pixels of class 255 in the truth count for nothing. Intervals as above.
class SegmentationScore {
 public:
  // Gray images of one size, whose pixels are classes.
  void Add(const atollrt::Image& found, const atollrt::Image& truth);
  Interval MeanIou() const;

 private:
  struct Counts {
    int64_t both = 0;
    int64_t either = 0;
  };
  double MeanOver(const std::vector<size_t>& indices) const;

  std::vector<std::map<int, Counts>> pictures_;
};

}  // namespace atollcmd
