// SPDX-License-Identifier: Apache-2.0
#include "atoll/picture/overlay.h"

#include <algorithm>

namespace atollrt {
namespace {

constexpr int kGlyphWidth = 5;
constexpr int kGlyphHeight = 7;
constexpr int kCellWidth = 6;
constexpr int kCellHeight = 8;

// The characters 0x20 to 0x5f, eight in a row, as they look.
// clang-format off
constexpr const char* kGlyphSheet[8][kGlyphHeight] = {
    {
     "..... ..#.. .#.#. .#.#. ..#.. ##..# .##.. ..#..",
     "..... ..#.. .#.#. .#.#. .#### ##..# #..#. ..#..",
     "..... ..#.. ..... ##### #.#.. ...#. #..#. .....",
     "..... ..#.. ..... .#.#. .###. ..#.. .##.. .....",
     "..... ..#.. ..... ##### ..#.# .#... #.#.# .....",
     "..... ..... ..... .#.#. ####. #..## #..#. .....",
     "..... ..#.. ..... .#.#. ..#.. #..## .##.# ....."},
    {
     "...#. .#... ..... ..... ..... ..... ..... ....#",
     "..#.. ..#.. ..#.. ..#.. ..... ..... ..... ....#",
     ".#... ...#. #.#.# ..#.. ..... ..... ..... ...#.",
     ".#... ...#. .###. ##### ..... ##### ..... ..#..",
     ".#... ...#. #.#.# ..#.. ..#.. ..... ..... .#...",
     "..#.. ..#.. ..#.. ..#.. ..#.. ..... ..#.. #....",
     "...#. .#... ..... ..... .#... ..... ..#.. #...."},
    {
     ".###. ..#.. .###. .###. ...#. ##### .###. #####",
     "#...# .##.. #...# #...# ..##. #.... #.... ....#",
     "#..## ..#.. ....# ....# .#.#. ####. #.... ...#.",
     "#.#.# ..#.. ...#. ..##. #..#. ....# ####. ..#..",
     "##..# ..#.. ..#.. ....# ##### ....# #...# ..#..",
     "#...# ..#.. .#... #...# ...#. #...# #...# ..#..",
     ".###. .###. ##### .###. ...#. .###. .###. ..#.."},
    {
     ".###. .###. ..... ..... ...#. ..... .#... .###.",
     "#...# #...# ..#.. ..#.. ..#.. ..... ..#.. #...#",
     "#...# #...# ..#.. ..#.. .#... ##### ...#. ....#",
     ".###. .#### ..... ..... #.... ..... ....# ...#.",
     "#...# ....# ..#.. ..#.. .#... ##### ...#. ..#..",
     "#...# ....# ..#.. ..#.. ..#.. ..... ..#.. .....",
     ".###. .###. ..... .#... ...#. ..... .#... ..#.."},
    {
     ".###. ..#.. ####. .###. ####. ##### ##### .###.",
     "#...# .#.#. #...# #...# #...# #.... #.... #...#",
     "#.### #...# #...# #.... #...# #.... #.... #....",
     "#.#.# #...# ####. #.... #...# ####. ####. #.###",
     "#.### ##### #...# #.... #...# #.... #.... #...#",
     "#.... #...# #...# #...# #...# #.... #.... #...#",
     ".###. #...# ####. .###. ####. ##### #.... .###."},
    {
     "#...# .###. ..### #...# #.... #...# #...# .###.",
     "#...# ..#.. ...#. #..#. #.... ##.## ##..# #...#",
     "#...# ..#.. ...#. #.#.. #.... #.#.# ##..# #...#",
     "##### ..#.. ...#. ##... #.... #.#.# #.#.# #...#",
     "#...# ..#.. ...#. #.#.. #.... #...# #..## #...#",
     "#...# ..#.. #..#. #..#. #.... #...# #..## #...#",
     "#...# .###. .##.. #...# ##### #...# #...# .###."},
    {
     "####. .###. ####. .#### ##### #...# #...# #...#",
     "#...# #...# #...# #.... ..#.. #...# #...# #...#",
     "#...# #...# #...# #.... ..#.. #...# #...# #...#",
     "####. #...# ####. .###. ..#.. #...# #...# #.#.#",
     "#.... #.#.# #.#.. ....# ..#.. #...# .#.#. #.#.#",
     "#.... #..#. #..#. ....# ..#.. #...# .#.#. ##.##",
     "#.... .##.# #...# ####. ..#.. .###. ..#.. #...#"},
    {
     "#...# #...# ##### .###. #.... .###. ..#.. .....",
     "#...# #...# ....# .#... #.... ...#. .#.#. .....",
     ".#.#. .#.#. ...#. .#... .#... ...#. #...# .....",
     "..#.. ..#.. ..#.. .#... ..#.. ...#. ..... .....",
     ".#.#. ..#.. .#... .#... ...#. ...#. ..... .....",
     "#...# ..#.. #.... .#... ....# ...#. ..... .....",
     "#...# ..#.. ##### .###. ....# .###. ..... #####"},
};
// clang-format on

bool GlyphDot(char character, int row, int column) {
  if (character >= 'a' && character <= 'z') character = static_cast<char>(character - 'a' + 'A');
  if (character < 0x20 || character > 0x5f) character = '?';
  const int index = character - 0x20;
  return kGlyphSheet[index / 8][row][(index % 8) * kCellWidth + column] == '#';
}

// The part of start .. start + length that lies in 0 .. limit. 64 bits, so no sum overflows.
struct Range {
  int begin;
  int end;
};
Range Clip(int64_t start, int64_t length, int limit) {
  const auto clamp = [&](int64_t value) {
    return static_cast<int>(std::clamp<int64_t>(value, 0, limit));
  };
  return {clamp(start), clamp(start + length)};
}

void Fill(int64_t x, int64_t y, int64_t width, int64_t height, Color color, Image* image) {
  if (width <= 0 || height <= 0) return;
  const Range columns = Clip(x, width, image->width);
  const Range rows = Clip(y, height, image->height);
  const auto luma =
      static_cast<uint8_t>((19595 * color.r + 38470 * color.g + 7471 * color.b + 32768) >> 16);
  for (int row = rows.begin; row < rows.end; ++row) {
    uint8_t* line = image->pixels.data() + image->row_bytes() * static_cast<size_t>(row);
    if (image->channels == 1) {
      std::fill(line + columns.begin, line + columns.end, luma);
      continue;
    }
    for (int column = columns.begin; column < columns.end; ++column) {
      uint8_t* pixel = line + 3 * static_cast<ptrdiff_t>(column);
      pixel[0] = color.r;
      pixel[1] = color.g;
      pixel[2] = color.b;
    }
  }
}

}  // namespace

void DrawText(std::string_view text, Point at, int scale, Color color, Image* image) {
  scale = std::max(scale, 1);
  int64_t x = at.x;
  for (const char character : text) {
    if (x >= image->width) return;
    for (int row = 0; row < kGlyphHeight; ++row) {
      for (int column = 0; column < kGlyphWidth; ++column) {
        if (!GlyphDot(character, row, column)) continue;
        Fill(x + int64_t{column} * scale, at.y + int64_t{row} * scale, scale, scale, color, image);
      }
    }
    x += int64_t{kCellWidth} * scale;
  }
}

Rect TextBounds(std::string_view text, Point at, int scale) {
  scale = std::max(scale, 1);
  return {at.x, at.y, static_cast<int>(text.size()) * kCellWidth * scale, kCellHeight * scale};
}

void FillRectangle(const Rect& rect, Color color, Image* image) {
  Fill(rect.x, rect.y, rect.width, rect.height, color, image);
}

void DrawRectangle(const Rect& rect, int thickness, Color color, Image* image) {
  const int64_t across = std::clamp(thickness, 1, std::max(1, rect.width));
  const int64_t down = std::clamp(thickness, 1, std::max(1, rect.height));
  const int64_t x = rect.x;
  const int64_t y = rect.y;
  Fill(x, y, rect.width, down, color, image);
  Fill(x, y + rect.height - down, rect.width, down, color, image);
  Fill(x, y, across, rect.height, color, image);
  Fill(x + rect.width - across, y, across, rect.height, color, image);
}

}  // namespace atollrt
