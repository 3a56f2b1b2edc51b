// SPDX-License-Identifier: Apache-2.0
#include "atoll/picture/overlay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <set>
#include <string>
#include <utility>
#include <vector>

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
  DrawText("Ag", {0, 0}, 1, kWhite, &image);
  EXPECT_EQ(Show(image),
            "..#.........\n"
            ".#.#........\n"
            "#...#..####.\n"
            "#...#.#...#.\n"
            "#####.#...#.\n"
            "#...#..####.\n"
            "#...#.....#.\n"
            ".......###..\n");
  EXPECT_EQ(TextBounds("aT", {3, 4}, 2), (Rect{3, 4, 24, 16}));
}

TEST(Overlay, DrawsEveryAsciiCharacterDifferently) {
  std::set<std::string> seen;
  for (char character = 0x20; character < 0x7f; ++character) {
    Image image = Black(6, 8, 1);
    DrawText(std::string(1, character), {0, 0}, 1, kWhite, &image);
    seen.insert(Show(image));
  }
  EXPECT_EQ(seen.size(), 0x7fu - 0x20u);
}

TEST(Overlay, DrawsOtherCharactersAsOneQuestionMarkEach) {
  Image expected = Black(12, 8, 1);
  DrawText("?!", {0, 0}, 1, kWhite, &expected);
  for (const char* text : {"\x01!", "\xe9!", "\x7f!", "\u00e9!", "\u732b!", "\U0001f408!"}) {
    Image image = Black(12, 8, 1);
    DrawText(text, {0, 0}, 1, kWhite, &image);
    EXPECT_EQ(Show(image), Show(expected));
    EXPECT_EQ(TextBounds(text, {0, 0}, 1).width, 12);
  }
}

// The strokes of a large glyph cover the middles of its dots, and nothing two dots away.
TEST(Overlay, DrawsLargeGlyphsWhereTheDotsAre) {
  constexpr int kScale = 9;
  for (char character = 0x21; character < 0x7f; ++character) {
    const std::string text(1, character);
    Image dots = Black(6, 8, 1);
    DrawText(text, {0, 0}, 1, kWhite, &dots);
    Image large = Black(6 * kScale, 8 * kScale, 1);
    DrawText(text, {0, 0}, kScale, kWhite, &large);
    Image middles = Black(6, 8, 1);
    for (int y = 0; y < 8; ++y) {
      for (int x = 0; x < 6; ++x) {
        const int pixel = (y * kScale + kScale / 2) * large.width + x * kScale + kScale / 2;
        middles.pixels[static_cast<size_t>(y * 6 + x)] = large.pixels[static_cast<size_t>(pixel)];
      }
    }
    EXPECT_EQ(Show(middles), Show(dots));
  }
}

TEST(Overlay, DrawsLabelsInsideOfThePicture) {
  Image image = Black(40, 30, 3);
  const Color color = {10, 20, 200};
  EXPECT_EQ(DrawLabel("ab", {3, 2}, 1, color, &image), (Rect{3, 2, 13, 9}));
  const uint8_t* corner = image.pixels.data() + 2 * image.row_bytes() + 3 * 3;
  EXPECT_THAT(std::vector<int>(corner, corner + 3), testing::ElementsAre(10, 20, 200));
  for (const Point at : {Point{-9, -9}, Point{39, 29}, Point{INT_MAX, INT_MIN}}) {
    const Rect rect = DrawLabel("ab", at, 1, color, &image);
    EXPECT_GE(rect.x, 0);
    EXPECT_GE(rect.y, 0);
    EXPECT_LE(rect.x + rect.width, 40);
    EXPECT_LE(rect.y + rect.height, 30);
    EXPECT_EQ(rect, LabelBounds("ab", at, 1, &image));
  }
  // Too wide at scales 2 and 3.
  EXPECT_EQ(DrawLabel("abcde", {5, 5}, 3, color, &image), (Rect{5, 5, 31, 9}));
}

TEST(Overlay, WritesLabelsInTheColourThatCanBeRead) {
  for (const auto& [ground, ink] : {std::pair<int, int>{255, 0}, {0, 255}}) {
    Image image = Black(20, 20, 1);
    const auto gray = static_cast<uint8_t>(ground);
    DrawLabel("M", {0, 0}, 1, {gray, gray, gray}, &image);
    EXPECT_THAT(image.pixels, testing::Contains(static_cast<uint8_t>(ink)));
  }
}

TEST(Overlay, DrawsLines) {
  Image image = Black(7, 5, 1);
  DrawLine({1, 1}, {5, 1}, 1, kWhite, &image);
  DrawLine({3, 1}, {3, 3}, 1, kWhite, &image);
  EXPECT_EQ(Show(image), ".......\n.#####.\n...#...\n...#...\n.......\n");
  Image disc = Black(5, 5, 1);
  DrawLine({2, 2}, {2, 2}, 3, kWhite, &disc);
  EXPECT_EQ(Show(disc), ".....\n.###.\n.###.\n.###.\n.....\n");
  EXPECT_EQ(disc.pixels[12], 255);  // the middle
  EXPECT_LT(disc.pixels[6], 255);   // a corner, blended
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
      DrawLabel("clip", {at, at / -2}, at, kWhite, &image);
      for (const int other : {INT_MIN, 2, INT_MAX}) {
        DrawLine({at, other}, {other, 1}, at, kWhite, &image);
      }
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
