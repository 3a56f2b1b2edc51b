// SPDX-License-Identifier: Apache-2.0
//
// PosenetDecoderOp: maps of keypoint scores and offsets -> poses (docs/quantization.md, "Poses"),
// after "PersonLab" (Papandreou et al., 2018). From the best keypoint that is left, a pose grows
// along the edges of the skeleton; keypoints near one of the same kind in a better pose do not
// count. With long offsets every cell of the maps is given to one pose, which makes masks.
// Everything is float32. Pure functions, thread-safe, allocate nothing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace atollrt {

inline constexpr int32_t kPosenetKeypoints = 17;
inline constexpr int32_t kPosenetEdges = 16;
inline constexpr int32_t kPosenetMaskSize = 33;  // cells, high and wide

struct PosenetParams {
  int32_t h = 1, w = 1;  // cells of the maps, at least 1
  int32_t max_detections = 1;
  int32_t stride = 1;  // pixels per cell
  float score_threshold = 0;
  float nms_radius = 0;  // pixels
};

// Maps are [h, w, channels]; offsets count in cells.
struct PosenetMaps {
  const float* heat = nullptr;           // [., ., 17]: scores before the logistic function
  const float* short_offsets = nullptr;  // [., ., 34]: y of each keypoint, then x
  const float* mid_offsets = nullptr;    // [., ., 64]: y and x of each edge forward, then backward
  const float* long_offsets = nullptr;   // [., ., 34]: as short_offsets; nullptr: no masks
};

struct PosenetOutputs {
  float* keypoints = nullptr;        // [max_detections, 17, 2]: y, x in pixels
  float* keypoint_scores = nullptr;  // [max_detections, 17]
  float* pose_scores = nullptr;      // [max_detections]
  float* count = nullptr;            // [1]
  // [max_detections, 33, 33], with long offsets: 1 where a cell belongs to the pose. The cell at
  // (y, x) of pose i is element (i * w + y) * h + x, whatever the size of the maps, which is its
  // place only in maps of 33 x 33.
  float* masks = nullptr;
};

// Whether all elements that the masks of such maps can have lie in [max_detections, 33, 33].
bool PosenetMasksFit(const PosenetParams& params);

size_t PosenetScratchBytes(const PosenetParams& params);

// `scratch` is aligned to 64. Entries beyond the poses become 0. With long offsets,
// PosenetMasksFit(params).
void DecodePoses(const PosenetParams& params, const PosenetMaps& maps,
                 const PosenetOutputs& outputs, uint8_t* scratch);

}  // namespace atollrt
