// SPDX-License-Identifier: Apache-2.0
#include "atoll/vision/draw.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "atoll/picture/overlay.h"

namespace atollrt {
namespace {

// The pixel at a fraction of `size` pixels from `origin`. Far outside is as good as outside.
int Place(float fraction, int origin, int size) {
  const double pixels = static_cast<double>(fraction) * size;
  return origin + static_cast<int>(std::lround(std::clamp(pixels, -1e6, 1e6)));
}

Point Place(const Keypoint& keypoint, const Rect& seen) {
  return {Place(keypoint.x, seen.x, seen.width), Place(keypoint.y, seen.y, seen.height)};
}

bool Overlap(const Rect& a, const Rect& b) {
  return a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;
}

// Where a caption of a box goes: the first place around or in it, the nearest first, where it
// covers none of the others.
Rect PlaceCaption(const std::string& caption, const Rect& box, int scale, const Canvas& canvas,
                  const std::vector<Rect>& taken) {
  const Rect size = LabelBounds(caption, {box.x, box.y}, scale, canvas);
  const int columns[] = {box.x, box.x + box.width - size.width};
  const int bottom = box.y + box.height;
  constexpr int kRows = 4;
  for (int row = 0; row < kRows; ++row) {
    const int offset = row * size.height;
    for (const int y : {box.y - size.height - offset, bottom + offset, box.y + offset}) {
      for (const int x : columns) {
        const Rect rect = LabelBounds(caption, {x, y}, scale, canvas);
        // Beyond the picture's edges there is no room.
        const bool free =
            rect.y == y && std::none_of(taken.begin(), taken.end(),
                                        [&](const Rect& r) { return Overlap(rect, r); });
        if (free) return rect;
      }
    }
  }
  return LabelBounds(caption, {box.x, box.y - size.height}, scale, canvas);
}

// Of a person's side, of what is in the middle, and around keypoints.
constexpr Color kLeft = {255, 140, 0};
constexpr Color kRight = {30, 144, 255};
constexpr Color kMiddle = {50, 220, 80};
constexpr Color kRim = {255, 255, 255};

}  // namespace

Color ClassColor(int class_index) {
  // Hues a golden section of the circle apart.
  const double hue = std::fmod(0.33 + 0.618033988749895 * class_index, 1.0) * 6;
  const auto channel = [hue](double offset) {
    const double position = std::fmod(hue + offset, 6.0);
    const double level = std::clamp(std::min(position, 4 - position), 0.0, 1.0);
    return static_cast<uint8_t>(std::lround(255 * (0.15 + 0.85 * level)));
  };
  return {channel(2), channel(0), channel(4)};
}

std::array<Color, 256> SegmentationPalette() {
  std::array<Color, 256> palette;
  for (size_t index = 0; index < palette.size(); ++index) {
    for (size_t bit = 0; bit < 8; ++bit) {
      const auto spread = [&](size_t channel) {
        const size_t from = 3 * bit + channel;
        return static_cast<uint8_t>(((index >> from) & 1) << (7 - bit));
      };
      palette[index].r |= spread(0);
      palette[index].g |= spread(1);
      palette[index].b |= spread(2);
    }
  }
  return palette;
}

void DrawDetections(std::span<const Detection> detections, std::span<const std::string> captions,
                    const Rect& seen, const Canvas& canvas) {
  const int scale = LegibleScale(canvas) / 2 + 1;  // there may be many
  std::vector<Rect> boxes;
  for (const Detection& detection : detections) {
    const int left = Place(detection.left, seen.x, seen.width);
    const int top = Place(detection.top, seen.y, seen.height);
    boxes.push_back({left, top, Place(detection.right, seen.x, seen.width) - left,
                     Place(detection.bottom, seen.y, seen.height) - top});
  }
  std::vector<Rect> places;  // the best ones choose first
  for (size_t i = 0; i < std::min(boxes.size(), captions.size()); ++i) {
    places.push_back(PlaceCaption(captions[i], boxes[i], scale, canvas, places));
  }
  for (size_t i = boxes.size(); i-- > 0;) {
    DrawRectangle(boxes[i], scale, ClassColor(detections[i].class_index), canvas);
  }
  for (size_t i = places.size(); i-- > 0;) {
    if (captions[i].empty()) continue;
    DrawLabel(captions[i], {places[i].x, places[i].y}, scale, ClassColor(detections[i].class_index),
              canvas);
  }
}

void DrawSegmentation(const Image& classes, std::span<const Color, 256> palette, const Rect& seen,
                      const Canvas& canvas) {
  constexpr int kOpacity = 140;            // of 256
  constexpr int kBackgroundOpacity = 100;  // class 0
  constexpr int kOutlineOpacity = 220;
  struct Ink {
    Color color;
    int opacity = 0;
    bool operator==(const Ink&) const = default;
  };
  const Rect part = {std::max(-seen.x, 0), std::max(-seen.y, 0),
                     std::min(seen.width, canvas.width() - seen.x),
                     std::min(seen.height, canvas.height() - seen.y)};
  if (part.x >= part.width || part.y >= part.height) return;
  // The pixel of `classes` whose area holds the middle of each column and row.
  const auto nearest = [](int size, int source_size) {
    std::vector<size_t> sources(static_cast<size_t>(size));
    for (size_t i = 0; i < sources.size(); ++i) {
      sources[i] = (2 * i + 1) * static_cast<size_t>(source_size) / (2 * sources.size());
    }
    return sources;
  };
  const std::vector<size_t> columns = nearest(seen.width, classes.width);
  const std::vector<size_t> rows = nearest(seen.height, classes.height);
  const int outline = std::max(1, LegibleScale(canvas) / 2);
  for (int y = part.y; y < part.height; ++y) {
    const auto row = [&](int at) {
      return classes.pixels.data() +
             rows[static_cast<size_t>(std::min(at, seen.height - 1))] * classes.row_bytes();
    };
    const uint8_t* here = row(y);
    const uint8_t* below = row(y + outline);
    // Runs of one colour at a time.
    int begin = part.x;
    Ink ink;
    for (int x = part.x; x < part.width; ++x) {
      const size_t column = columns[static_cast<size_t>(x)];
      const size_t right = columns[static_cast<size_t>(std::min(x + outline, seen.width - 1))];
      const uint8_t index = here[column];
      const bool edge = here[right] != index || below[column] != index;
      const Ink next = edge         ? Ink{{255, 255, 255}, kOutlineOpacity}
                       : index == 0 ? Ink{palette[0], kBackgroundOpacity}
                                    : Ink{palette[index], kOpacity};
      if (next == ink) continue;
      if (x > begin) canvas.Blend(seen.x + begin, seen.y + y, x - begin, ink.color, ink.opacity);
      begin = x;
      ink = next;
    }
    canvas.Blend(seen.x + begin, seen.y + y, part.width - begin, ink.color, ink.opacity);
  }
}

void DrawLegend(std::span<const LegendEntry> entries, const Canvas& canvas) {
  // One size for all: the largest at which all fit, within reason.
  int scale = LegibleScale(canvas);
  const int smallest = scale / 2 + 1;
  const auto fits = [&](const LegendEntry& entry) {
    return TextBounds(entry.text, {}, scale).width <= canvas.width() - 5 * scale;
  };
  while (scale > smallest && !std::all_of(entries.begin(), entries.end(), fits)) --scale;
  int y = 2 * scale;
  for (const LegendEntry& entry : entries) {
    std::string text = entry.text;
    while (!text.empty() && !fits({{}, text})) {
      text.erase(text.size() - std::min<size_t>(text.size(), text.ends_with("...") ? 4 : 1));
      if (!text.empty()) text += "...";
    }
    const Rect bounds = LabelBounds(text, {2 * scale, y}, scale, canvas);
    if (bounds.y < y) return;
    DrawLabel(text, {bounds.x, y}, scale, entry.color, canvas);
    y += bounds.height;
  }
}

void DrawPoses(std::span<const Pose> poses, float threshold, const Rect& seen,
               const Canvas& canvas) {
  // The nose is in the middle; after it odd keypoints are left ones.
  const auto side = [](int keypoint) {
    return keypoint == 0 ? kMiddle : keypoint % 2 == 1 ? kLeft : kRight;
  };
  const int thickness = LegibleScale(canvas) + 1;
  for (size_t i = poses.size(); i-- > 0;) {
    const auto& keypoints = poses[i].keypoints;
    for (const auto& [from, to] : kSkeleton) {
      const Keypoint& a = keypoints[static_cast<size_t>(from)];
      const Keypoint& b = keypoints[static_cast<size_t>(to)];
      if (a.score < threshold || b.score < threshold) continue;
      const Color color = from == 0 ? side(to) : side(from) == side(to) ? side(from) : kMiddle;
      DrawLine(Place(a, seen), Place(b, seen), thickness, color, canvas);
    }
    for (int k = 0; k < kKeypointCount; ++k) {
      const Keypoint& keypoint = keypoints[static_cast<size_t>(k)];
      if (keypoint.score < threshold) continue;
      const Point place = Place(keypoint, seen);
      DrawLine(place, place, 2 * thickness + 2, kRim, canvas);
      DrawLine(place, place, 2 * thickness, side(k), canvas);
    }
  }
}

}  // namespace atollrt
