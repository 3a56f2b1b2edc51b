// SPDX-License-Identifier: Apache-2.0
#include "tests/support/average_precision.h"

#include <algorithm>
#include <cstddef>

namespace atollrt {
namespace {

float Area(const Detection& box) { return (box.right - box.left) * (box.bottom - box.top); }

float Overlap(const Detection& a, const Detection& b) {
  const float width = std::min(a.right, b.right) - std::max(a.left, b.left);
  const float height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  if (width <= 0 || height <= 0) return 0;
  return width * height / (Area(a) + Area(b) - width * height);
}

struct Claim {
  float score;
  size_t picture;
  const Detection* box;
};

}  // namespace

double AveragePrecision(const std::vector<JudgedPicture>& pictures, int class_index,
                        float min_overlap) {
  std::vector<std::vector<const Detection*>> free_boxes(pictures.size());
  std::vector<Claim> claims;
  size_t total = 0;
  for (size_t i = 0; i < pictures.size(); ++i) {
    for (const Detection& box : pictures[i].truth) {
      if (box.class_index == class_index) free_boxes[i].push_back(&box);
    }
    total += free_boxes[i].size();
    for (const Detection& box : pictures[i].detections) {
      if (box.class_index == class_index) claims.push_back({box.score, i, &box});
    }
  }
  if (total == 0) return 0;
  std::stable_sort(claims.begin(), claims.end(),
                   [](const Claim& a, const Claim& b) { return a.score > b.score; });
  // The precision after each claim that is right; each of these adds 1 / total to the recall.
  std::vector<double> precisions;
  for (size_t i = 0; i < claims.size(); ++i) {
    std::vector<const Detection*>& boxes = free_boxes[claims[i].picture];
    const auto best =
        std::max_element(boxes.begin(), boxes.end(), [&](const Detection* a, const Detection* b) {
          return Overlap(*a, *claims[i].box) < Overlap(*b, *claims[i].box);
        });
    if (best == boxes.end() || Overlap(**best, *claims[i].box) < min_overlap) continue;
    boxes.erase(best);
    precisions.push_back(static_cast<double>(precisions.size() + 1) / static_cast<double>(i + 1));
  }
  double area = 0;
  double highest = 0;
  for (size_t i = precisions.size(); i-- > 0;) {
    highest = std::max(highest, precisions[i]);
    area += highest / static_cast<double>(total);
  }
  return area;
}

double MeanAveragePrecision(const std::vector<JudgedPicture>& pictures, int class_count,
                            float min_overlap) {
  double sum = 0;
  for (int c = 0; c < class_count; ++c) sum += AveragePrecision(pictures, c, min_overlap);
  return sum / class_count;
}

}  // namespace atollrt
