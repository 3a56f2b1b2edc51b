// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/detection.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/kernels/scratch.h"

namespace atollrt {
namespace {

struct Box {
  float ymin, xmin, ymax, xmax;
};

struct Detection {
  float score;
  int32_t anchor;
  int32_t label;
};

struct Arrays {
  Box* boxes;            // [anchors]
  float* column;         // [anchors]: the scores that a suppression looks at
  int32_t* candidates;   // [anchors]
  int32_t* selected;     // [max_detections]
  Box* kept;             // [max_detections]: the boxes of these, side by side
  int32_t* labels;       // kFast: [num_classes], sorted for one anchor at a time
  int32_t* best_labels;  // kFast by codes: [anchors]
  Detection* merged;     // kRegular: [max_detections] each
  Detection* previous;
};

Arrays Take(const DetectionParams& p, Scratch* scratch) {
  return {scratch->Take<Box>(p.anchors),
          scratch->Take<float>(p.anchors),
          scratch->Take<int32_t>(p.anchors),
          scratch->Take<int32_t>(p.max_detections),
          scratch->Take<Box>(p.max_detections),
          scratch->Take<int32_t>(p.num_classes),
          scratch->Take<int32_t>(p.anchors),
          scratch->Take<Detection>(p.max_detections),
          scratch->Take<Detection>(p.max_detections)};
}

// The terms of an encoding, in double.
double CentreTerm(float offset, float scale) {
  return static_cast<double>(offset) / static_cast<double>(scale);
}
double SizeTerm(float logarithm, float scale) {
  return std::exp(static_cast<double>(logarithm) / static_cast<double>(scale));
}

// Rounded to float32 four times.
Box BoxOf(double y_term, double x_term, double h_term, double w_term, const float* anchor) {
  const double ah = static_cast<double>(anchor[2]);
  const double aw = static_cast<double>(anchor[3]);
  const float y = static_cast<float>(y_term * ah + static_cast<double>(anchor[0]));
  const float x = static_cast<float>(x_term * aw + static_cast<double>(anchor[1]));
  const float h = static_cast<float>(0.5 * h_term * ah);
  const float w = static_cast<float>(0.5 * w_term * aw);
  return {y - h, x - w, y + h, x + w};
}

Box Decode(const DetectionParams& p, const DetectionInputs& inputs, int64_t i) {
  const float* anchor = inputs.anchor_boxes + 4 * i;
  if (inputs.encoding_codes != nullptr) {
    const uint8_t* code = inputs.encoding_codes + i * p.encoding_width;
    const auto& of = inputs.terms->of;
    return BoxOf(of[0][code[0]], of[1][code[1]], of[2][code[2]], of[3][code[3]], anchor);
  }
  const float* encoding = inputs.encodings + i * p.encoding_width;
  return BoxOf(CentreTerm(encoding[0], p.y_scale), CentreTerm(encoding[1], p.x_scale),
               SizeTerm(encoding[2], p.h_scale), SizeTerm(encoding[3], p.w_scale), anchor);
}

float IntersectionOverUnion(const Box& a, const Box& b) {
  const float area_a = (a.ymax - a.ymin) * (a.xmax - a.xmin);
  const float area_b = (b.ymax - b.ymin) * (b.xmax - b.xmin);
  if (area_a <= 0 || area_b <= 0) return 0;
  const float h = std::max(std::min(a.ymax, b.ymax) - std::max(a.ymin, b.ymin), 0.0f);
  const float w = std::max(std::min(a.xmax, b.xmax) - std::max(a.xmin, b.xmin), 0.0f);
  const float intersection = h * w;
  return intersection / (area_a + area_b - intersection);
}

// Of most pairs nothing more needs to be known.
bool AreApart(const Box& a, const Box& b) {
  return a.ymax <= b.ymin || b.ymax <= a.ymin || a.xmax <= b.xmin || b.xmax <= a.xmin;
}

// Non-maximum suppression over arrays.column; returns how many of arrays.selected it has set. A
// heap gives the candidates one after the other, as long as more are wanted. Of those that are not
// above `*floor`, unless that is nullptr, none is.
int32_t Suppress(const DetectionParams& p, const Arrays& arrays, int32_t limit,
                 const float* floor = nullptr) {
  const float* scores = arrays.column;
  int32_t* const candidates = arrays.candidates;
  int32_t count = 0;
  for (int32_t i = 0; i < p.anchors; ++i) {
    if (scores[i] >= p.score_threshold && (floor == nullptr || scores[i] > *floor)) {
      candidates[count++] = i;
    }
  }
  // The index as a second key makes the order that of a stable sort. There are no NaNs.
  const auto is_behind = [scores](int32_t a, int32_t b) {
    return scores[a] != scores[b] ? scores[a] < scores[b] : a > b;
  };
  std::make_heap(candidates, candidates + count, is_behind);
  int32_t selected = 0;
  for (; count > 0 && selected < limit; --count) {
    std::pop_heap(candidates, candidates + count, is_behind);
    const int32_t anchor = candidates[count - 1];
    const Box& box = arrays.boxes[anchor];
    const bool is_dropped =
        std::any_of(arrays.kept, arrays.kept + selected, [&](const Box& better) {
          if (p.iou_threshold >= 0 && AreApart(better, box)) return false;
          return IntersectionOverUnion(better, box) > p.iou_threshold;
        });
    if (is_dropped) continue;
    arrays.kept[selected] = box;
    arrays.selected[selected++] = anchor;
  }
  return selected;
}

void Write(const DetectionOutputs& outputs, int32_t entry, const Box& box, int32_t label,
           float score) {
  float* corners = outputs.boxes + 4 * int64_t{entry};
  corners[0] = box.ymin;
  corners[1] = box.xmin;
  corners[2] = box.ymax;
  corners[3] = box.xmax;
  outputs.classes[entry] = static_cast<float>(label);
  outputs.scores[entry] = score;
}

// Of one class per anchor, the first of the best.
int32_t FastByCodes(const DetectionParams& p, const RowLoops& loops, const Arrays& arrays,
                    const DetectionInputs& inputs, const DetectionOutputs& outputs) {
  const uint8_t* codes = inputs.score_codes + (p.score_columns - p.num_classes);
  constexpr uint8_t kGreatest = 0xff;
  loops.arg_least_bytes(codes, p.anchors, p.num_classes, p.score_columns, kGreatest,
                        arrays.best_labels);
  for (int32_t i = 0; i < p.anchors; ++i) {
    arrays.column[i] =
        inputs.score_values[codes[int64_t{i} * p.score_columns + arrays.best_labels[i]]];
  }
  const int32_t count = Suppress(p, arrays, p.max_detections);
  for (int32_t i = 0; i < count; ++i) {
    const int32_t anchor = arrays.selected[i];
    Write(outputs, i * p.max_classes_per_detection, arrays.boxes[anchor],
          arrays.best_labels[anchor], arrays.column[anchor]);
  }
  return count;
}

// `scores` begins with the first class that is not the background.
int32_t Fast(const DetectionParams& p, const Arrays& arrays, const float* scores,
             const DetectionOutputs& outputs) {
  const int32_t classes = std::min(p.max_classes_per_detection, p.num_classes);
  // Of one class the first maximum; of several what std::partial_sort makes of ties, as
  // TensorFlow Lite does.
  const auto best_labels = [&](int32_t anchor) {
    const float* row = scores + int64_t{anchor} * p.score_columns;
    if (classes == 1) {
      arrays.labels[0] = static_cast<int32_t>(std::max_element(row, row + p.num_classes) - row);
      return;
    }
    std::iota(arrays.labels, arrays.labels + p.num_classes, 0);
    std::partial_sort(arrays.labels, arrays.labels + classes, arrays.labels + p.num_classes,
                      [row](int32_t a, int32_t b) { return row[a] > row[b]; });
  };
  for (int32_t i = 0; i < p.anchors; ++i) {
    best_labels(i);
    arrays.column[i] = scores[int64_t{i} * p.score_columns + arrays.labels[0]];
  }
  const int32_t count = Suppress(p, arrays, p.max_detections);
  for (int32_t i = 0; i < count; ++i) {
    const int32_t anchor = arrays.selected[i];
    best_labels(anchor);
    for (int32_t c = 0; c < classes; ++c) {
      Write(outputs, i * p.max_classes_per_detection + c, arrays.boxes[anchor], arrays.labels[c],
            scores[int64_t{anchor} * p.score_columns + arrays.labels[c]]);
    }
  }
  return count;
}

int32_t Regular(const DetectionParams& p, Arrays arrays, const float* scores,
                const DetectionOutputs& outputs) {
  const int32_t limit = std::min(p.detections_per_class, p.max_detections);
  int32_t count = 0;  // of arrays.merged
  for (int32_t label = 0; label < p.num_classes; ++label) {
    for (int32_t i = 0; i < p.anchors; ++i) {
      arrays.column[i] = scores[int64_t{i} * p.score_columns + label];
    }
    // Below what the other classes have, nothing finds a place any more.
    const bool is_full = count == p.max_detections;
    const int32_t found =
        Suppress(p, arrays, limit, is_full ? &arrays.merged[count - 1].score : nullptr);
    // Both lists are sorted, and earlier classes come first among equals.
    std::swap(arrays.merged, arrays.previous);
    int32_t old = 0;
    int32_t fresh = 0;
    int32_t merged = 0;
    while (merged < p.max_detections && (old < count || fresh < found)) {
      const bool take_old =
          fresh == found ||
          (old < count && arrays.previous[old].score >= arrays.column[arrays.selected[fresh]]);
      if (take_old) {
        arrays.merged[merged++] = arrays.previous[old++];
      } else {
        const int32_t anchor = arrays.selected[fresh++];
        arrays.merged[merged++] = {arrays.column[anchor], anchor, label};
      }
    }
    count = merged;
  }
  for (int32_t i = 0; i < count; ++i) {
    const Detection& d = arrays.merged[i];
    Write(outputs, i, arrays.boxes[d.anchor], d.label, d.score);
  }
  return count;
}

}  // namespace

EncodingTerms MakeEncodingTerms(const DetectionParams& p, const float (&values)[256]) {
  EncodingTerms terms;
  for (int code = 0; code < 256; ++code) {
    terms.of[0][code] = CentreTerm(values[code], p.y_scale);
    terms.of[1][code] = CentreTerm(values[code], p.x_scale);
    terms.of[2][code] = SizeTerm(values[code], p.h_scale);
    terms.of[3][code] = SizeTerm(values[code], p.w_scale);
  }
  return terms;
}

bool TakesScoreCodes(const DetectionParams& params) {
  return params.mode == SuppressionMode::kFast &&
         std::min(params.max_classes_per_detection, params.num_classes) == 1;
}

size_t DetectionScratchBytes(const DetectionParams& params) {
  Scratch scratch(nullptr);
  Take(params, &scratch);
  return scratch.size();
}

bool DetectionPostProcess(const DetectionParams& p, const RowLoops& loops,
                          const DetectionInputs& inputs, const DetectionOutputs& outputs,
                          uint8_t* scratch) {
  Scratch block(scratch);
  const Arrays arrays = Take(p, &block);
  for (int32_t i = 0; i < p.anchors; ++i) {
    const Box box = Decode(p, inputs, i);
    if (box.ymin > box.ymax || box.xmin > box.xmax) return false;
    arrays.boxes[i] = box;
  }
  const int64_t entries = int64_t{p.max_detections} * p.max_classes_per_detection;
  std::fill(outputs.boxes, outputs.boxes + 4 * entries, 0.0f);
  std::fill(outputs.classes, outputs.classes + entries, 0.0f);
  std::fill(outputs.scores, outputs.scores + entries, 0.0f);
  int32_t count = 0;
  if (inputs.score_codes != nullptr) {
    count = FastByCodes(p, loops, arrays, inputs, outputs);
  } else {
    const float* foreground = inputs.scores + (p.score_columns - p.num_classes);
    count = p.mode == SuppressionMode::kRegular ? Regular(p, arrays, foreground, outputs)
                                                : Fast(p, arrays, foreground, outputs);
  }
  *outputs.count = static_cast<float>(count);
  return true;
}

}  // namespace atollrt
