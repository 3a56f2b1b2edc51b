// SPDX-License-Identifier: Apache-2.0
#include "atoll/vision/draw.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

namespace atollrt {
namespace {

Image Gray(int width, int height, int channels) {
  Image image;
  image.Reshape(width, height, channels);
  std::fill(image.pixels.begin(), image.pixels.end(), uint8_t{100});
  return image;
}

Color At(const Image& image, int x, int y) {
  const uint8_t* pixel = image.pixels.data() + image.row_bytes() * static_cast<size_t>(y) +
                         static_cast<ptrdiff_t>(x) * image.channels;
  return image.channels == 1 ? Color{pixel[0], pixel[0], pixel[0]}
                             : Color{pixel[0], pixel[1], pixel[2]};
}

TEST(Palette, IsThatOfPascalVoc) {
  const auto palette = SegmentationPalette();
  EXPECT_EQ(palette[0], (Color{0, 0, 0}));
  EXPECT_EQ(palette[1], (Color{128, 0, 0}));        // aeroplane
  EXPECT_EQ(palette[3], (Color{128, 128, 0}));      // bird
  EXPECT_EQ(palette[8], (Color{64, 0, 0}));         // cat
  EXPECT_EQ(palette[12], (Color{64, 0, 128}));      // dog
  EXPECT_EQ(palette[15], (Color{192, 128, 128}));   // person
  EXPECT_EQ(palette[20], (Color{0, 64, 128}));      // tvmonitor
  EXPECT_EQ(palette[255], (Color{224, 224, 192}));  // the border of objects
}

TEST(ClassColors, DifferAndAreBright) {
  for (int a = 0; a < 100; ++a) {
    const Color color = ClassColor(a);
    EXPECT_GE(std::max({color.r, color.g, color.b}), 200) << a;
    EXPECT_NE(color, ClassColor(a + 1));
  }
}

TEST(DrawDetections, OutlinesTheBoxInThePartThatWasSeen) {
  Image image = Gray(200, 100, 3);
  const Detection detection = {.left = 0.25f, .top = 0.5f, .right = 0.75f, .bottom = 1.0f};
  DrawDetections({&detection, 1}, {}, {100, 0, 100, 100}, &image);
  const Color color = ClassColor(0);
  EXPECT_EQ(At(image, 125, 50), color);
  EXPECT_EQ(At(image, 174, 99), color);
  EXPECT_EQ(At(image, 150, 75), (Color{100, 100, 100}));
  EXPECT_EQ(At(image, 124, 50), (Color{100, 100, 100}));
  EXPECT_EQ(At(image, 30, 60), (Color{100, 100, 100}));
}

// How many pixels of the picture have exactly the ground of a caption.
int64_t CountPixels(const Image& image, Color color) {
  int64_t count = 0;
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) count += At(image, x, y) == color;
  }
  return count;
}

TEST(DrawDetections, KeepsCaptionsOfTheSamePlaceApart) {
  Image one = Gray(300, 200, 3);
  Image three = one;
  const std::vector<Detection> same(
      3, {.left = 0.25f, .top = 0.25f, .right = 0.75f, .bottom = 0.75f, .class_index = 4});
  const std::vector<std::string> captions = {"aaaa", "aaaa", "aaaa"};
  DrawDetections({same.data(), 1}, {captions.data(), 1}, {0, 0, 300, 200}, &one);
  DrawDetections(same, captions, {0, 0, 300, 200}, &three);
  Image box = Gray(300, 200, 3);
  DrawDetections({same.data(), 1}, {}, {0, 0, 300, 200}, &box);
  const Color color = ClassColor(4);
  const int64_t outline = CountPixels(box, color);
  const int64_t caption = CountPixels(one, color) - outline;
  EXPECT_GT(caption, 50);
  EXPECT_EQ(CountPixels(three, color) - outline, 3 * caption);
}

TEST(DrawSegmentation, StretchesTheMapOverThePartThatWasSeen) {
  Image map = Gray(2, 1, 1);
  map.pixels = {0, 1};
  Image image = Gray(60, 40, 3);
  DrawSegmentation(map, SegmentationPalette(), {20, 10, 40, 20}, &image);
  EXPECT_EQ(At(image, 10, 20), (Color{100, 100, 100}));  // not seen
  EXPECT_EQ(At(image, 59, 9), (Color{100, 100, 100}));
  const Color background = At(image, 25, 20);
  EXPECT_LT(background.r, 100);
  EXPECT_EQ(background.r, background.g);
  const Color object = At(image, 50, 20);
  EXPECT_GT(object.r, object.g);
  EXPECT_GT(At(image, 39, 20).g, 180);  // the outline between them
}

TEST(DrawPoses, JoinsTheKeypointsThatAreSure) {
  Pose pose;
  for (Keypoint& keypoint : pose.keypoints) keypoint = {0.5f, 0.1f, 0.0f};
  pose.keypoints[5] = {0.1f, 0.5f, 0.9f};  // left shoulder
  pose.keypoints[7] = {0.9f, 0.5f, 0.9f};  // left elbow
  Image image = Gray(100, 100, 3);
  DrawPoses({&pose, 1}, 0.5f, {0, 0, 100, 100}, &image);
  EXPECT_NE(At(image, 50, 50), (Color{100, 100, 100}));
  EXPECT_EQ(At(image, 50, 10), (Color{100, 100, 100}));
}

TEST(Draw, SurvivesAnything) {
  constexpr float kHuge = std::numeric_limits<float>::max();
  Detection detection = {-kHuge, kHuge, kHuge, -kHuge, 1 << 24, 1};
  Pose pose = {1, {}};
  pose.keypoints[0] = {kHuge, -kHuge, 1};
  pose.keypoints[1] = {-kHuge, kHuge, 1};
  const std::string caption(1000, 'x');
  const std::vector<LegendEntry> legend(100, {{}, caption});
  const Image map = Gray(3, 3, 1);
  for (const int channels : {1, 3}) {
    for (const int size : {1, 2, 50}) {
      Image image = Gray(size, size, channels);
      for (const Rect seen : {Rect{0, 0, size, size}, Rect{-5, -7, 90, 80}, Rect{1, 1, 1, 1},
                              Rect{0, 0, 0, 0}, Rect{99, 99, 9, 9}}) {
        DrawDetections({&detection, 1}, {&caption, 1}, seen, &image);
        DrawPoses({&pose, 1}, 0, seen, &image);
        DrawSegmentation(map, SegmentationPalette(), seen, &image);
        DrawLegend(legend, &image);
      }
      EXPECT_EQ(image.pixels.size(), image.size_bytes());
    }
  }
}

}  // namespace
}  // namespace atollrt
