// SPDX-License-Identifier: Apache-2.0
//
// Results drawn into the picture that they are about. `seen` is the part of the picture that became
// the model's input, {0, 0, width, height} for all of it. Lines and text grow with the picture.
#pragma once

#include <array>
#include <span>
#include <string>

#include "atoll/picture/image.h"
#include "atoll/picture/overlay.h"
#include "atoll/vision/readers.h"

namespace atollrt {

// Bright colours, neighbouring classes far apart.
Color ClassColor(int class_index);

// The palette of the Pascal VOC segmentations: bit 0 of a class is bit 7 of red, bit 1 of green,
// bit 2 of blue; bits 3 to 5 are their bits 6, and so on. Class 0 is black.
std::array<Color, 256> SegmentationPalette();

// Boxes in the colours of their classes, the best ones on top. captions[i], which may be empty, is
// written above the box of detections[i] or, where there is no room, in or below it.
void DrawDetections(std::span<const Detection> detections, std::span<const std::string> captions,
                    const Rect& seen, const Canvas& canvas);

// `classes`, a gray image of any size that is not empty, stretched over what was seen, in the
// colours of `palette` over the picture, with outlines between classes. Class 0 (the background,
// where there is one) only darkens.
void DrawSegmentation(const Image& classes, std::span<const Color, 256> palette, const Rect& seen,
                      const Canvas& canvas);

// Names in their colours, from the picture's top left corner downwards, as many as fit; long ones
// are cut off.
struct LegendEntry {
  Color color;
  std::string text;
};
void DrawLegend(std::span<const LegendEntry> entries, const Canvas& canvas);

// Keypoints with a score of at least `threshold` and the bones between them: the person's left
// side in orange, the right one in blue, what is in the middle in green.
void DrawPoses(std::span<const Pose> poses, float threshold, const Rect& seen,
               const Canvas& canvas);

}  // namespace atollrt
