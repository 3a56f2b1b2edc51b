// SPDX-License-Identifier: Apache-2.0
//
// Labels and boxes drawn into a picture. Everything outside of the picture is clipped away; on a
// gray picture a colour is drawn as its luma. Thread-safe for different images.
#pragma once

#include <cstdint>
#include <string_view>

#include "atoll/picture/image.h"

namespace atollrt {

struct Color {
  uint8_t r = 0;
  uint8_t g = 0;
  uint8_t b = 0;
};

// A point of a picture, in pixels from its top left corner; may lie outside.
struct Point {
  int x = 0;
  int y = 0;
};

// Glyphs are 5 x 7 dots in cells of 6 x 8, each dot `scale` x `scale` pixels (at least 1). The top
// left corner of the first cell is at `at`. ASCII only: small letters appear as capitals, anything
// else as '?'.
void DrawText(std::string_view text, Point at, int scale, Color color, Image* image);

// The size of DrawText's cells for `text`.
Rect TextBounds(std::string_view text, Point at, int scale);

void FillRectangle(const Rect& rect, Color color, Image* image);

// The outline of `rect`, `thickness` pixels (at least 1) inwards.
void DrawRectangle(const Rect& rect, int thickness, Color color, Image* image);

}  // namespace atollrt
