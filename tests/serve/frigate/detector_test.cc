// SPDX-License-Identifier: Apache-2.0
#include "serve/frigate/detector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/serve/frigate/pictures.h"

namespace atollrt {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

std::chrono::steady_clock::time_point Later() {
  return std::chrono::steady_clock::now() + std::chrono::minutes(5);
}

TEST(DetectionRowsOfFrigate, AreTheBestTwentyAndZeros) {
  std::vector<Detection> detections;
  for (int i = 0; i < 25; ++i) {
    detections.push_back({.left = 0.1f,
                          .top = 0.2f,
                          .right = 0.3f,
                          .bottom = 0.4f,
                          .class_index = i,
                          .score = 1 - 0.01f * static_cast<float>(i)});
  }
  const DetectionRows rows = RowsOf(detections);
  // Class, score, top, left, bottom, right.
  EXPECT_THAT(std::vector<float>(rows.begin() + 6, rows.begin() + 12),
              ::testing::ElementsAre(1, 1 - 0.01f, 0.2f, 0.1f, 0.4f, 0.3f));
  EXPECT_EQ(rows[19 * 6], 19);
  EXPECT_THAT(RowsOf({}), Each(0.0f));
  const DetectionRows one = RowsOf(std::span(detections).first(1));
  EXPECT_EQ(one[1], 1);
  EXPECT_THAT(std::vector<float>(one.begin() + 6, one.end()), Each(0.0f));
}

class DetectorOn : public ::testing::TestWithParam<const char*> {};

TEST_P(DetectorOn, SeesWhatTheModelsOutputsSay) {
  auto device = atollpp::Delegate::Open(GetParam());
  ASSERT_TRUE(static_cast<bool>(device)) << device.message();
  auto detector = ObjectDetector::Load(ScenesModel(), *device, 1);
  ASSERT_TRUE(detector.ok()) << detector.status().message();
  EXPECT_EQ((*detector)->width(), kScenesWidth);
  EXPECT_EQ((*detector)->height(), kScenesHeight);
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const Image image = MadeUpPicture(kScenesWidth, kScenesHeight, seed);
    const auto found = (*detector)->Detect(image, ObjectDetector::kAnyScore, Later());
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_FALSE((*found).empty());
    EXPECT_EQ(RowsOf(*found), ExpectedRows(image)) << seed;
  }
}
INSTANTIATE_TEST_SUITE_P(Devices, DetectorOn, ::testing::Values("cpu", "emu"));

TEST(ObjectDetector, ServesManyAtATime) {
  constexpr int kPlaces = 2;
  constexpr int kThreads = 6;
  auto detector = ObjectDetector::Load(ScenesModel(), {}, kPlaces);
  ASSERT_TRUE(detector.ok());
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const Image image = MadeUpPicture(kScenesWidth, kScenesHeight, static_cast<uint64_t>(i));
      const DetectionRows expected = ExpectedRows(image);
      for (int round = 0; round < 5; ++round) {
        const auto found = (*detector)->Detect(image, ObjectDetector::kAnyScore, Later());
        ASSERT_TRUE(found.ok());
        EXPECT_EQ(RowsOf(*found), expected);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ObjectDetector, RefusesWhatItCannotUse) {
  EXPECT_EQ(ObjectDetector::Load("/none.tflite", {}, 1).code(), StatusCode::kNotFound);
  EXPECT_EQ(ObjectDetector::Load(std::string(ATOLL_SOURCE_DIR) + "/README.md", {}, 1).code(),
            StatusCode::kCorruptModel);
  const auto classifier = ObjectDetector::Load(
      std::string(ATOLL_SOURCE_DIR) + "/models/fashion/fashion_int8.tflite", {}, 1);
  EXPECT_EQ(classifier.code(), StatusCode::kUnsupported);
  EXPECT_THAT(classifier.status().message(), HasSubstr("TFLite_Detection_PostProcess"));
  EXPECT_EQ(ObjectDetector::Load(ScenesModel(), {}, 0).code(), StatusCode::kInvalidArgument);

  auto detector = ObjectDetector::Load(ScenesModel(), {}, 1);
  EXPECT_EQ((*detector)->Detect(MadeUpPicture(8, 8, 1), 0.5f, Later()).code(),
            StatusCode::kInvalidArgument);
  // And the place is free again.
  EXPECT_TRUE(
      (*detector)->Detect(MadeUpPicture(kScenesWidth, kScenesHeight, 1), 0.5f, Later()).ok());
}

}  // namespace
}  // namespace atollrt
