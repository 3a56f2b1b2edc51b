// SPDX-License-Identifier: Apache-2.0
#include "atoll/picture/overlay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <string>

namespace atollrt {
namespace {

constexpr Color kWhite = {255, 255, 255};

Image Black(int width, int height, int channels) {
  Image image;
  image.Reshape(width, height, channels);
  std::fill(image.pixels.begin(), image.pixels.end(), uint8_t{0});
  return image;
}

// A gray image as lines of '#' and '.'.
std::string Show(const Image& image) {
  std::string text;
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      text += image.pixels[static_cast<size_t>(y * image.width + x)] != 0 ? '#' : '.';
    }
    text += '\n';
  }
  return text;
}

TEST(Overlay, DrawsGlyphs) {
  Image image = Black(12, 8, 1);
  DrawText("aT", {0, 0}, 1, kWhite, &image);
  EXPECT_EQ(Show(image),
            "..#...#####.\n"
            ".#.#....#...\n"
            "#...#...#...\n"
            "#...#...#...\n"
            "#####...#...\n"
            "#...#...#...\n"
            "#...#...#...\n"
            "............\n");
  EXPECT_EQ(TextBounds("aT", {3, 4}, 2), (Rect{3, 4, 24, 16}));
}

TEST(Overlay, DrawsOtherCharactersAsQuestionMark) {
  Image expected = Black(6, 8, 1);
  DrawText("?", {0, 0}, 1, kWhite, &expected);
  for (const char* text : {"\x01", "\xe9", "~"}) {
    Image image = Black(6, 8, 1);
    DrawText(text, {0, 0}, 1, kWhite, &image);
    EXPECT_EQ(Show(image), Show(expected));
  }
}

TEST(Overlay, DrawsRectangles) {
  Image image = Black(6, 5, 1);
  DrawRectangle({1, 1, 4, 3}, 1, kWhite, &image);
  EXPECT_EQ(Show(image), "......\n.####.\n.#..#.\n.####.\n......\n");
  FillRectangle({0, 4, 2, 1}, kWhite, &image);
  EXPECT_EQ(Show(image), "......\n.####.\n.#..#.\n.####.\n##....\n");
}

TEST(Overlay, UsesTheColour) {
  Image rgb = Black(1, 1, 3);
  FillRectangle({0, 0, 1, 1}, {10, 200, 30}, &rgb);
  EXPECT_THAT(rgb.pixels, testing::ElementsAre(10, 200, 30));
  Image gray = Black(1, 1, 1);
  FillRectangle({0, 0, 1, 1}, {10, 200, 30}, &gray);
  EXPECT_THAT(gray.pixels, testing::ElementsAre(124));
}

TEST(Overlay, ClipsEverything) {
  for (const int channels : {1, 3}) {
    Image image = Black(7, 5, channels);
    for (const int at : {INT_MIN, -1000, -3, 0, 3, 1000, INT_MAX}) {
      DrawText("clip", {at, at}, 3, kWhite, &image);
      DrawText("clip", {at, 0}, 0, kWhite, &image);
      for (const int size : {INT_MIN, -1, 0, 1, 4, INT_MAX}) {
        DrawRectangle({at, at, size, size}, 2, kWhite, &image);
        FillRectangle({at, 0, size, size}, kWhite, &image);
      }
    }
    EXPECT_EQ(image.pixels.size(), image.size_bytes());
  }
}

}  // namespace
}  // namespace atollrt
