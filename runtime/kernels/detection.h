// SPDX-License-Identifier: Apache-2.0
//
// TFLite_Detection_PostProcess: anchors, encodings and class scores of a single-shot detector ->
// the boxes that survive non-maximum suppression (docs/quantization.md, "Detections"). Sorting is
// stable: among equal scores the lower anchor wins, then the earlier class. Pure functions,
// thread-safe, allocate nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/row_loops/row_loops.h"

namespace atollrt {

enum class SuppressionMode : uint8_t {
  kFast,     // one suppression over the best score of each anchor
  kRegular,  // one per class, the results merged
};

struct DetectionParams {
  int32_t anchors = 1;         // sizes are at least 1
  int32_t encoding_width = 4;  // floats per encoding; the first four are read
  int32_t score_columns = 1;   // num_classes, or one more: the background comes first
  int32_t num_classes = 1;
  int32_t max_detections = 1;
  int32_t max_classes_per_detection = 1;  // kFast
  int32_t detections_per_class = 100;     // kRegular
  SuppressionMode mode = SuppressionMode::kFast;
  float score_threshold = 0, iou_threshold = 0;
  float y_scale = 1, x_scale = 1, h_scale = 1, w_scale = 1;
};

struct DetectionOutputs {
  float* boxes = nullptr;    // [entries, 4]: ymin, xmin, ymax, xmax
  float* classes = nullptr;  // [entries], entries = max_detections * max_classes_per_detection
  float* scores = nullptr;   // [entries]
  float* count = nullptr;    // [1]: detections
};

// What the 256 codes of a quantized encoding come to: [0] and [1] y and x over their scales, [2]
// and [3] the exponentials of h and w over theirs.
struct EncodingTerms {
  double of[4][256];
};
// `values` are those of the codes.
EncodingTerms MakeEncodingTerms(const DetectionParams& params, const float (&values)[256]);

struct DetectionInputs {
  // [anchors, encoding_width]: y, x, h, w; as float32, or as codes with their terms.
  const float* encodings = nullptr;
  const uint8_t* encoding_codes = nullptr;
  const EncodingTerms* terms = nullptr;
  // [anchors, score_columns]; as float32, or, if TakesScoreCodes, as uint8 with the values of the
  // 256 codes, which must increase strictly.
  const float* scores = nullptr;
  const uint8_t* score_codes = nullptr;
  const float* score_values = nullptr;
  const float* anchor_boxes = nullptr;  // [anchors, 4]: y and x of the centre, h, w
};

// Whether only the best class of each anchor matters.
bool TakesScoreCodes(const DetectionParams& params);

size_t DetectionScratchBytes(const DetectionParams& params);

// `scratch` is aligned to 64. Entries beyond the detections become 0. False, with outputs
// undefined, if a box has ymin > ymax or xmin > xmax.
bool DetectionPostProcess(const DetectionParams& params, const RowLoops& loops,
                          const DetectionInputs& inputs, const DetectionOutputs& outputs,
                          uint8_t* scratch);

}  // namespace atollrt
