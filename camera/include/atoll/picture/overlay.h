// SPDX-License-Identifier: Apache-2.0
//
// Text, lines and boxes drawn into a picture. Everything outside of the picture is clipped away; on
// a gray picture a colour is drawn as its luma. Thread-safe for different pictures.
#pragma once

#include <string_view>

#include "atoll/picture/image.h"

namespace atollrt {

// What is drawn on: a picture of either kind, which must outlive it. Made anew for each drawing.
class Canvas {
 public:
  Canvas(Image* image) : width_(image->width), height_(image->height), image_(image) {}
  Canvas(PlanarImage* planes) : width_(planes->width), height_(planes->height), planes_(planes) {}

  int width() const { return width_; }
  int height() const { return height_; }

  // `opacity` (0 to kOpaque) of the colour over `count` pixels of a row from (x, y) to the right,
  // which must lie inside. A sample of colour that stands for several pixels takes the colour of
  // the top left one.
  static constexpr int kOpaque = 256;
  void Blend(int x, int y, int count, Color color, int opacity) const;

 private:
  int width_;
  int height_;
  Image* image_ = nullptr;
  PlanarImage* planes_ = nullptr;
};

// A point of a picture, in pixels from its top left corner; may lie outside.
struct Point {
  int x = 0;
  int y = 0;
  bool operator==(const Point&) const = default;
};

// The `scale` at which text can be read and lines can be seen in a picture of this size: 1 up to
// 239 pixels of the shorter side, 2 from 240, 3 from 450, and so on every 210.
int LegibleScale(const Canvas& canvas);

// Glyphs are 5 x 8 dots in cells of 6 x 8, `scale` pixels (1 to 1000) per dot. The top left corner
// of the first cell is at `at`. The text is UTF-8; each character that is not ASCII appears as '?'.
void DrawText(std::string_view text, Point at, int scale, Color color, const Canvas& canvas);

// The size of DrawText's cells for `text`, of which no more than 10,000 count.
Rect TextBounds(std::string_view text, Point at, int scale);

// `text` in black or white, whichever is easier to read, on a ground of `color` with its top left
// corner at `at`; moved as far as needed to lie inside of the picture, and drawn at a smaller scale
// if it is too wide. Returns the ground, which LabelBounds foretells.
Rect DrawLabel(std::string_view text, Point at, int scale, Color color, const Canvas& canvas);
Rect LabelBounds(std::string_view text, Point at, int scale, const Canvas& canvas);

void FillRectangle(const Rect& rect, Color color, const Canvas& canvas);

// The outline of `rect`, `thickness` pixels (at least 1) inwards.
void DrawRectangle(const Rect& rect, int thickness, Color color, const Canvas& canvas);

// A straight line with round ends between the middles of two pixels, `thickness` pixels (at least
// 1) across, antialiased; a disc when both ends are the same.
void DrawLine(Point from, Point to, int thickness, Color color, const Canvas& canvas);

}  // namespace atollrt
