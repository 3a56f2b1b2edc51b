// SPDX-License-Identifier: Apache-2.0
#include "atoll/picture/overlay.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "camera/picture/glyphs.h"

namespace atollrt {
namespace {

constexpr int kGlyphWidth = 5;
constexpr int kGlyphHeight = 8;  // of which the last one is for g, j, p, q, y
constexpr int kCellWidth = 6;
constexpr int kCellHeight = 8;

// The sheet has the characters 0x20 to 0x7e as they look, a space or the end of a line behind each
// row of dots; the last glyph stands for all other characters.
constexpr int kGlyphsPerLine = 8;
static_assert(kGlyphs.size() == (0x80 - 0x20) * kGlyphHeight * kCellWidth);

bool GlyphDot(char character, int row, int column) {
  if (row < 0 || row >= kGlyphHeight || column < 0 || column >= kGlyphWidth) return false;
  const bool is_ascii = character >= 0x20 && character <= 0x7e;  // whether char has a sign or not
  const int index = (is_ascii ? character : 0x7f) - 0x20;
  const int line = index / kGlyphsPerLine * kGlyphHeight + row;
  return kGlyphs[static_cast<size_t>((line * kGlyphsPerLine + index % kGlyphsPerLine) * kCellWidth +
                                     column)] == '#';
}

// Larger ones would only overflow.
int SaneScale(int scale) { return std::clamp(scale, 1, 1000); }
constexpr ptrdiff_t kMaxCells = 10'000;

// Of UTF-8: the bytes after the first one of a character are not drawn.
bool BeginsCharacter(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }

// In 64 bits no sum overflows.
void Fill(int64_t x, int64_t y, int64_t width, int64_t height, Color color, const Canvas& canvas) {
  const auto within = [](int64_t value, int limit) {
    return static_cast<int>(std::clamp<int64_t>(value, 0, limit));
  };
  const int left = within(x, canvas.width());
  const int count = within(x + width, canvas.width()) - left;
  const int bottom = within(y + height, canvas.height());
  if (count <= 0) return;
  for (int row = within(y, canvas.height()); row < bottom; ++row) {
    canvas.Blend(left, row, count, color, Canvas::kOpaque);
  }
}

// All pixels nearer than `radius` to the straight line between two points, given in pixels from the
// picture's corner: the middle of pixel (0, 0) is at (0.5, 0.5). Those at the edge are blended.
struct Stroke {
  double x0, y0, x1, y1;
  double radius;
};
void Draw(const Stroke& stroke, Color color, const Canvas& canvas) {
  const double dx = stroke.x1 - stroke.x0;
  const double dy = stroke.y1 - stroke.y0;
  const double squared_length = std::max(dx * dx + dy * dy, 1e-12);
  const double reach = stroke.radius + 0.5;  // where the coverage ends
  const auto first = [](double value, int limit) {
    return static_cast<int>(std::clamp(std::floor(value), 0.0, static_cast<double>(limit)));
  };
  const int row_end = first(std::max(stroke.y0, stroke.y1) + reach + 1, canvas.height());
  for (int row = first(std::min(stroke.y0, stroke.y1) - reach, canvas.height()); row < row_end;
       ++row) {
    const double y = row + 0.5;
    // What can be near lies beside the part of the line that is at most `reach` above or below.
    double from = 0;
    double to = 1;
    if (std::abs(dy) > 1e-6) {
      from = (y - reach - stroke.y0) / dy;
      to = (y + reach - stroke.y0) / dy;
      if (from > to) std::swap(from, to);
      from = std::clamp(from, 0.0, 1.0);
      to = std::clamp(to, 0.0, 1.0);
    }
    const double left = stroke.x0 + dx * (dx > 0 ? from : to) - reach;
    const double right = stroke.x0 + dx * (dx > 0 ? to : from) + reach;
    const int column_end = first(right + 1, canvas.width());
    for (int column = first(left, canvas.width()); column < column_end; ++column) {
      const double x = column + 0.5;
      const double along =
          std::clamp(((x - stroke.x0) * dx + (y - stroke.y0) * dy) / squared_length, 0.0, 1.0);
      const double away_x = x - stroke.x0 - along * dx;
      const double away_y = y - stroke.y0 - along * dy;
      const double squared = away_x * away_x + away_y * away_y;
      if (squared >= reach * reach) continue;
      // Most pixels lie well inside, where no root is needed.
      const double inside = reach - 1;
      const double coverage =
          inside > 0 && squared <= inside * inside ? 1 : std::min(reach - std::sqrt(squared), 1.0);
      canvas.Blend(column, row, 1, color,
                   static_cast<int>(std::lround(coverage * Canvas::kOpaque)));
    }
  }
}

// At scales above 1 the dots of a glyph become one smooth stroke: neighbours are joined, diagonal
// ones where no corner joins them already.
void DrawGlyph(char character, double x, double y, int scale, Color color, const Canvas& canvas) {
  for (int row = 0; row < kGlyphHeight; ++row) {
    for (int column = 0; column < kGlyphWidth; ++column) {
      if (!GlyphDot(character, row, column)) continue;
      const auto join = [&](int down, int across) {
        const double from_x = x + (column + 0.5) * scale;
        const double from_y = y + (row + 0.5) * scale;
        Draw({from_x, from_y, from_x + across * scale, from_y + down * scale, 0.5 * scale}, color,
             canvas);
      };
      const bool right = GlyphDot(character, row, column + 1);
      const bool below = GlyphDot(character, row + 1, column);
      const bool left = GlyphDot(character, row, column - 1);
      join(0, 0);
      if (right) join(0, 1);
      if (below) join(1, 0);
      if (!right && !below && GlyphDot(character, row + 1, column + 1)) join(1, 1);
      if (!left && !below && GlyphDot(character, row + 1, column - 1)) join(1, -1);
    }
  }
}

uint8_t Mix(uint8_t below, uint8_t ink, int opacity) {
  return static_cast<uint8_t>(
      (below * (Canvas::kOpaque - opacity) + ink * opacity + Canvas::kOpaque / 2) /
      Canvas::kOpaque);
}

void BlendSamples(uint8_t ink, int opacity, int count, uint8_t* samples) {
  if (opacity == Canvas::kOpaque) {
    std::fill_n(samples, count, ink);
  } else {
    for (int i = 0; i < count; ++i) samples[i] = Mix(samples[i], ink, opacity);
  }
}

}  // namespace

void Canvas::Blend(int x, int y, int count, Color color, int opacity) const {
  if (planes_ != nullptr) {
    const YCbCr ink = ToYCbCr(color);
    BlendSamples(ink.y, opacity, count, planes_->y.row(y) + x);
    if (!planes_->has_color || (y & planes_->shift_y) != 0) return;
    const int first = (x + planes_->shift_x) >> planes_->shift_x;
    const int end = (x + count + planes_->shift_x) >> planes_->shift_x;
    BlendSamples(ink.cb, opacity, end - first, planes_->cb.row(y >> planes_->shift_y) + first);
    BlendSamples(ink.cr, opacity, end - first, planes_->cr.row(y >> planes_->shift_y) + first);
    return;
  }
  uint8_t* pixel = image_->pixels.data() + image_->row_bytes() * static_cast<size_t>(y) +
                   static_cast<ptrdiff_t>(x) * image_->channels;
  if (image_->channels == 1) {
    BlendSamples(Luma(color), opacity, count, pixel);
    return;
  }
  for (int i = 0; i < count; ++i, pixel += 3) {
    pixel[0] = Mix(pixel[0], color.r, opacity);
    pixel[1] = Mix(pixel[1], color.g, opacity);
    pixel[2] = Mix(pixel[2], color.b, opacity);
  }
}

void DrawText(std::string_view text, Point at, int scale, Color color, const Canvas& canvas) {
  scale = SaneScale(scale);
  int64_t x = at.x;
  for (const char character : text) {
    if (x >= canvas.width()) return;
    if (!BeginsCharacter(character)) continue;
    if (scale > 1) {
      DrawGlyph(character, static_cast<double>(x), at.y, scale, color, canvas);
    } else {
      for (int row = 0; row < kGlyphHeight; ++row) {
        for (int column = 0; column < kGlyphWidth; ++column) {
          if (GlyphDot(character, row, column)) {
            Fill(x + column, int64_t{at.y} + row, 1, 1, color, canvas);
          }
        }
      }
    }
    x += int64_t{kCellWidth} * scale;
  }
}

Rect TextBounds(std::string_view text, Point at, int scale) {
  scale = SaneScale(scale);
  const ptrdiff_t cells =
      std::min(std::count_if(text.begin(), text.end(), BeginsCharacter), kMaxCells);
  return {at.x, at.y, static_cast<int>(cells) * kCellWidth * scale, kCellHeight * scale};
}

int LegibleScale(const Canvas& canvas) {
  return std::max(1, (std::min(canvas.width(), canvas.height()) + 180) / 210);
}

Rect LabelBounds(std::string_view text, Point at, int scale, const Canvas& canvas) {
  const auto bounds = [&] {
    // A dot of margin on each side; the cell brings that on the right.
    Rect rect = TextBounds(text, at, scale);
    rect.width += scale;
    rect.height += scale;
    return rect;
  };
  scale = SaneScale(scale);
  while (scale > 1 && bounds().width > canvas.width()) --scale;
  Rect rect = bounds();
  rect.x = std::clamp(rect.x, 0, std::max(0, canvas.width() - rect.width));
  rect.y = std::clamp(rect.y, 0, std::max(0, canvas.height() - rect.height));
  return rect;
}

Rect DrawLabel(std::string_view text, Point at, int scale, Color color, const Canvas& canvas) {
  const Rect rect = LabelBounds(text, at, scale, canvas);
  const int used_scale = rect.height / (kCellHeight + 1);
  constexpr uint8_t kMiddle = 140;  // in brightness as the eye sees it
  const Color ink = Luma(color) > kMiddle ? Color{0, 0, 0} : Color{255, 255, 255};
  Fill(rect.x, rect.y, rect.width, rect.height, color, canvas);
  DrawText(text, {rect.x + used_scale, rect.y + used_scale}, used_scale, ink, canvas);
  return rect;
}

void FillRectangle(const Rect& rect, Color color, const Canvas& canvas) {
  Fill(rect.x, rect.y, rect.width, rect.height, color, canvas);
}

void DrawRectangle(const Rect& rect, int thickness, Color color, const Canvas& canvas) {
  const int64_t across = std::clamp(thickness, 1, std::max(1, rect.width));
  const int64_t down = std::clamp(thickness, 1, std::max(1, rect.height));
  const int64_t x = rect.x;
  const int64_t y = rect.y;
  Fill(x, y, rect.width, down, color, canvas);
  Fill(x, y + rect.height - down, rect.width, down, color, canvas);
  Fill(x, y, across, rect.height, color, canvas);
  Fill(x + rect.width - across, y, across, rect.height, color, canvas);
}

void DrawLine(Point from, Point to, int thickness, Color color, const Canvas& canvas) {
  Draw({from.x + 0.5, from.y + 0.5, to.x + 0.5, to.y + 0.5, 0.5 * std::max(thickness, 1)}, color,
       canvas);
}

}  // namespace atollrt
