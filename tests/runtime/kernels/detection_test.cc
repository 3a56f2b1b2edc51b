// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/detection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/base/buffer.h"
#include "runtime/kernels/cpu_features.h"
#include "tests/runtime/kernels/random_conv.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;
using Floats = std::vector<float>;

struct Detections {
  bool ok = false;
  Floats boxes, classes, scores;
  float count = -1;
};

// Unit boxes at the anchors' centres; `scores` is [centres, columns].
Detections Detect(DetectionParams params, const Floats& centres, const Floats& scores) {
  params.anchors = static_cast<int32_t>(centres.size());
  params.score_columns = static_cast<int32_t>(scores.size() / centres.size());
  Floats anchors;
  for (const float centre : centres) anchors.insert(anchors.end(), {centre, centre, 1, 1});
  const Floats encodings(4 * centres.size());
  const size_t entries =
      static_cast<size_t>(params.max_detections * params.max_classes_per_detection);
  Detections result{
      .boxes = Floats(4 * entries, 7), .classes = Floats(entries, 7), .scores = Floats(entries, 7)};
  auto scratch = Buffer::Allocate(DetectionScratchBytes(params));
  result.ok = DetectionPostProcess(
      params, ChooseRowLoops(kBaseline),
      {.encodings = encodings.data(), .scores = scores.data(), .anchor_boxes = anchors.data()},
      {.boxes = result.boxes.data(),
       .classes = result.classes.data(),
       .scores = result.scores.data(),
       .count = &result.count},
      scratch->data());
  return result;
}

DetectionParams Params(SuppressionMode mode, int32_t classes, int32_t detections) {
  return {.num_classes = classes,
          .max_detections = detections,
          .mode = mode,
          .score_threshold = 0.25f,
          .iou_threshold = 0.5f};
}

constexpr auto kFast = SuppressionMode::kFast;
constexpr auto kRegular = SuppressionMode::kRegular;

TEST(Detection, LowerAnchorWinsAmongEqualScores) {
  // The second and third boxes overlap by far more than half; so do the first and the last.
  for (const SuppressionMode mode : {kFast, kRegular}) {
    const Detections d = Detect(Params(mode, 1, 4), {0, 5, 5.1f, 0.1f}, {0.5f, 0.5f, 0.5f, 0.5f});
    EXPECT_EQ(d.count, 2);
    EXPECT_THAT(d.boxes, ElementsAre(-0.5f, -0.5f, 0.5f, 0.5f, 4.5f, 4.5f, 5.5f, 5.5f,  //
                                     0, 0, 0, 0, 0, 0, 0, 0));
  }
}

TEST(Detection, EntriesBeyondTheCountAreZero) {
  for (const SuppressionMode mode : {kFast, kRegular}) {
    const Detections d = Detect(Params(mode, 2, 3), {0, 5}, {0, 0.75f, 0.125f, 0.125f});
    EXPECT_EQ(d.count, 1);
    EXPECT_THAT(d.classes, ElementsAre(1, 0, 0));
    EXPECT_THAT(d.scores, ElementsAre(0.75f, 0, 0));
  }
}

TEST(Detection, FirstClassWinsAmongEqualScores) {
  EXPECT_THAT(Detect(Params(kFast, 3, 1), {0}, {0.25f, 0.75f, 0.75f}).classes, ElementsAre(1));
}

TEST(Detection, EarlierClassesComeFirstWhenMerged) {
  const Detections d = Detect(Params(kRegular, 2, 3), {0, 5},
                              {0.5f, 0.75f,  //
                               0.75f, 0.5f});
  EXPECT_EQ(d.count, 3);
  EXPECT_THAT(d.scores, ElementsAre(0.75f, 0.75f, 0.5f));
  EXPECT_THAT(d.classes, ElementsAre(0, 1, 0));
}

TEST(Detection, DetectionsPerClassLimitEachSuppression) {
  DetectionParams params = Params(kRegular, 1, 3);
  params.detections_per_class = 2;
  EXPECT_EQ(Detect(params, {0, 5, 10}, {0.5f, 0.5f, 0.5f}).count, 2);
}

TEST(Detection, BackgroundColumnDoesNotCount) {
  for (const SuppressionMode mode : {kFast, kRegular}) {
    const Detections d = Detect(Params(mode, 1, 2), {0, 5}, {1, 0, 0, 0.5f});
    EXPECT_EQ(d.count, 1);
    EXPECT_THAT(d.classes, ElementsAre(0, 0));
    EXPECT_THAT(d.boxes, ElementsAre(4.5f, 4.5f, 5.5f, 5.5f, 0, 0, 0, 0));
  }
}

TEST(Detection, SeveralClassesPerAnchorAreWrittenInOrder) {
  DetectionParams params = Params(kFast, 3, 2);
  params.max_classes_per_detection = 2;
  const Detections d = Detect(params, {0, 5}, {0.25f, 0.5f, 0.75f, 1, 0, 0.5f});
  EXPECT_EQ(d.count, 2);
  EXPECT_THAT(d.classes, ElementsAre(0, 2, 2, 1));
  EXPECT_THAT(d.scores, ElementsAre(1, 0.5f, 0.75f, 0.5f));
}

TEST(Detection, OverlapAtTheThresholdIsKept) {
  DetectionParams params = Params(kFast, 1, 2);
  params.iou_threshold = 1;
  EXPECT_EQ(Detect(params, {0, 0}, {0.5f, 0.5f}).count, 2) << "1 is not above 1";
}

TEST(Detection, RefusesBoxesThatEndBeforeTheyBegin) {
  DetectionParams params = Params(kFast, 1, 1);
  const Floats zeros(4);
  const Floats anchor{0, 0, -1, 1};
  const float score = 1;
  float box[4], label = 0, out_score = 0, count = 0;
  auto scratch = Buffer::Allocate(DetectionScratchBytes(params));
  EXPECT_FALSE(DetectionPostProcess(
      params, ChooseRowLoops(kBaseline),
      {.encodings = zeros.data(), .scores = &score, .anchor_boxes = anchor.data()},
      {.boxes = box, .classes = &label, .scores = &out_score, .count = &count}, scratch->data()));
}

// With few values, so that many scores are equal.
TEST(Detection, GivesTheSameOfCodesAsOfTheirValues) {
  Rng rng(TestSeed(1));
  for (int round = 0; round < TestCount(200); ++round) {
    DetectionParams params = Params(kFast, rng.Int32(1, 40), rng.Int32(1, 12));
    params.anchors = rng.Int32(1, 300);
    params.encoding_width = rng.Int32(4, 6);
    params.score_columns = params.num_classes + rng.Int32(0, 1);
    params.y_scale = params.x_scale = 10;
    params.h_scale = 5;
    ASSERT_TRUE(TakesScoreCodes(params));
    float values[256];
    for (int code = 0; code < 256; ++code) values[code] = static_cast<float>(code - 100) * 0.01f;
    const auto random = [&](int64_t count, int32_t least, int32_t greatest) {
      std::vector<uint8_t> codes;
      Floats floats;
      for (int64_t i = 0; i < count; ++i) {
        codes.push_back(static_cast<uint8_t>(rng.Int32(least, greatest)));
        floats.push_back(values[codes.back()]);
      }
      return std::pair(codes, floats);
    };
    const auto [encoding_codes, encodings] =
        random(int64_t{params.anchors} * params.encoding_width, 0, 255);
    const auto [score_codes, scores] =
        random(int64_t{params.anchors} * params.score_columns, 120, rng.Pick<int32_t>({140, 255}));
    const Floats anchors = random(4 * int64_t{params.anchors}, 101, 255).second;
    const EncodingTerms terms = MakeEncodingTerms(params, values);
    const auto run = [&](CpuFeatures level, const DetectionInputs& inputs) {
      const size_t entries = static_cast<size_t>(params.max_detections);
      Floats results(6 * entries + 1);
      auto scratch = Buffer::Allocate(DetectionScratchBytes(params));
      EXPECT_TRUE(DetectionPostProcess(params, ChooseRowLoops(level), inputs,
                                       {.boxes = &results[1],
                                        .classes = &results[1 + 4 * entries],
                                        .scores = &results[1 + 5 * entries],
                                        .count = &results[0]},
                                       scratch->data()));
      return results;
    };
    const Floats expected = run(
        kBaseline,
        {.encodings = encodings.data(), .scores = scores.data(), .anchor_boxes = anchors.data()});
    for (const CpuFeatures level : AvailableCpuLevels()) {
      ASSERT_EQ(run(level, {.encoding_codes = encoding_codes.data(),
                            .terms = &terms,
                            .score_codes = score_codes.data(),
                            .score_values = values,
                            .anchor_boxes = anchors.data()}),
                expected)
          << "round " << round;
    }
  }
}

// Many scores are equal, and most detections of a class find no place among those of the others.
TEST(Detection, RegularMergesWhatEachClassHasAlone) {
  Rng rng(TestSeed(2));
  for (int round = 0; round < TestCount(100); ++round) {
    const int32_t classes = rng.Int32(1, 8);
    DetectionParams params = Params(kRegular, classes, rng.Int32(1, 12));
    params.detections_per_class = rng.Int32(1, 12);
    const size_t anchors = static_cast<size_t>(rng.Int(1, 60));
    Floats centres, scores;
    for (size_t i = 0; i < anchors; ++i) {
      centres.push_back(static_cast<float>(rng.Int(0, 80)) * 0.25f);
      for (int32_t c = 0; c < classes; ++c) {
        scores.push_back(static_cast<float>(rng.Int(0, 8)) * 0.125f);
      }
    }
    struct One {
      float score, label;
      Floats box;
    };
    std::vector<One> expected;
    for (int32_t c = 0; c < classes; ++c) {
      Floats column;
      for (size_t i = 0; i < anchors; ++i) {
        column.push_back(scores[i * static_cast<size_t>(classes) + static_cast<size_t>(c)]);
      }
      DetectionParams alone = params;
      alone.num_classes = alone.score_columns = 1;
      const Detections d = Detect(alone, centres, column);
      for (size_t k = 0; k < static_cast<size_t>(d.count); ++k) {
        const auto box = d.boxes.begin() + static_cast<std::ptrdiff_t>(4 * k);
        expected.push_back({d.scores[k], static_cast<float>(c), Floats(box, box + 4)});
      }
    }
    std::stable_sort(expected.begin(), expected.end(),
                     [](const One& a, const One& b) { return a.score > b.score; });
    expected.resize(std::min(expected.size(), static_cast<size_t>(params.max_detections)));
    const Detections d = Detect(params, centres, scores);
    ASSERT_EQ(static_cast<size_t>(d.count), expected.size()) << "round " << round;
    for (size_t k = 0; k < expected.size(); ++k) {
      EXPECT_EQ(d.scores[k], expected[k].score);
      EXPECT_EQ(d.classes[k], expected[k].label);
      const auto box = d.boxes.begin() + static_cast<std::ptrdiff_t>(4 * k);
      EXPECT_EQ(Floats(box, box + 4), expected[k].box) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace atollrt
