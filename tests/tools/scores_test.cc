// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/scores.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace atollcmd {
namespace {

atollrt::Detection Found(int class_index, double left, double right, double score) {
  atollrt::Detection detection;
  detection.class_index = class_index;
  detection.left = static_cast<float>(left);
  detection.right = static_cast<float>(right);
  detection.bottom = 1;
  detection.score = static_cast<float>(score);
  return detection;
}

TrueBox Truth(int class_index, double left, double right, bool crowd = false) {
  return {class_index, left, 0, right, 1, crowd};
}

// Wilson's interval as tables have it: 8 of 10.
TEST(Scores, ShareHasWilsonsInterval) {
  const Interval interval = Share(8, 10);
  EXPECT_DOUBLE_EQ(interval.value, 0.8);
  EXPECT_NEAR(interval.low, 0.4901, 1e-4);
  EXPECT_NEAR(interval.high, 0.9433, 1e-4);
  EXPECT_NEAR(Share(10, 10).low, 0.7225, 1e-4);
  EXPECT_DOUBLE_EQ(Share(10, 10).high, 1);
  EXPECT_DOUBLE_EQ(Share(0, 0).high, 1);
}

TEST(Scores, PerfectDetectionsHaveMapOne) {
  DetectionScore score;
  score.Add({Found(0, 0, 0.5, 0.9), Found(1, 0.5, 1, 0.8)}, {Truth(0, 0, 0.5), Truth(1, 0.5, 1)});
  EXPECT_DOUBLE_EQ(score.Map().value, 1);
  EXPECT_DOUBLE_EQ(score.Map50().value, 1);
  EXPECT_DOUBLE_EQ(DetectionScore().Map().value, 0);
}

// Overlap 0.8: right for the overlaps 0.5, 0.55, ... 0.8, which are 7 of 10.
TEST(Scores, MapCountsOverlaps) {
  DetectionScore score;
  score.Add({Found(0, 0, 0.8, 0.9)}, {Truth(0, 0, 1)});
  EXPECT_NEAR(score.Map().value, 0.7, 1e-12);
  EXPECT_DOUBLE_EQ(score.Map50().value, 1);
}

// Right, wrong, right by score, two truths: precision is 1 up to recall 1/2, which are 51 of the
// 101 points, and 2/3 behind it.
TEST(Scores, PrecisionIsInterpolated) {
  DetectionScore score;
  score.Add({Found(0, 0, 0.4, 0.9), Found(0, 0.8, 1, 0.8), Found(0, 0.4, 0.8, 0.7)},
            {Truth(0, 0, 0.4), Truth(0, 0.4, 0.8)});
  EXPECT_NEAR(score.Map50().value, (51 + 50 * 2.0 / 3) / 101, 1e-12);
}

TEST(Scores, ATruthIsFoundOnce) {
  DetectionScore score;
  score.Add({Found(0, 0, 0.5, 0.9), Found(0, 0, 0.5, 0.8)}, {Truth(0, 0, 0.5), Truth(0, 0.5, 1)});
  EXPECT_NEAR(score.Map50().value, 51.0 / 101, 1e-12);
}

// What is missed lowers, what lies in a crowd and classes that are not there do not.
TEST(Scores, CrowdsAndAbsentClassesDoNotCount) {
  DetectionScore score;
  score.Add({Found(0, 0, 0.2, 0.9), Found(0, 0.6, 0.7, 0.95), Found(0, 0.7, 0.8, 0.95),
             Found(5, 0, 1, 0.99)},
            {Truth(0, 0, 0.2), Truth(0, 0.5, 1, true)});
  EXPECT_DOUBLE_EQ(score.Map().value, 1);
  score.Add({}, {Truth(1, 0, 1)});
  EXPECT_DOUBLE_EQ(score.Map().value, 0.5);
}

TEST(Scores, IntervalsHoldTheValue) {
  DetectionScore score;
  for (int i = 0; i < 40; ++i) {
    score.Add({Found(0, 0, i % 4 == 0 ? 0.2 : 1, 0.9)}, {Truth(0, 0, 1)});
  }
  const Interval interval = score.Map50();
  EXPECT_LT(interval.low, interval.value);
  EXPECT_GT(interval.high, interval.value);
  EXPECT_GT(interval.low, 0.3);
  EXPECT_LT(interval.high, 1);
}

atollrt::Image Mask(std::vector<uint8_t> classes) {
  atollrt::Image image;
  image.Reshape(static_cast<int>(classes.size()), 1, 1);
  image.pixels = std::move(classes);
  return image;
}

// Class 0: 2 of 3 pixels; class 1: 1 of 3; class 2, in the answer alone: 0 of 1.
TEST(Scores, MeanIou) {
  SegmentationScore score;
  score.Add(Mask({0, 0, 1, 2, 0}), Mask({0, 0, 1, 1, 255}));
  EXPECT_NEAR(score.MeanIou().value, (1.0 + 0.5 + 0) / 3, 1e-12);
  score.Add(Mask({1}), Mask({0}));
  EXPECT_NEAR(score.MeanIou().value, (2.0 / 3 + 1.0 / 3 + 0) / 3, 1e-12);
  EXPECT_DOUBLE_EQ(SegmentationScore().MeanIou().value, 0);
}

}  // namespace
}  // namespace atollcmd
