// SPDX-License-Identifier: Apache-2.0
#include "atoll/vision/classification.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "camera/vision/tensor_values.h"

namespace atollrt {
namespace {

// Scores can then be compared.
float Ordered(float score) {
  return std::isnan(score) ? -std::numeric_limits<float>::infinity() : score;
}

}  // namespace

Result<ClassificationReader> ClassificationReader::Create(AtollInterpreter* interpreter) {
  const AtollTensor* output = OnlyOutput(interpreter);
  const std::vector<int32_t> shape = output == nullptr ? std::vector<int32_t>() : ShapeOf(output);
  if (shape.empty() || !HoldsRealNumbers(output) || shape.back() < 2 ||
      CountElements(shape) != shape.back()) {
    return Unsupported(
        "the model has %s, but a classifier has one list of scores, [1,n] of uint8, int8 or "
        "float32",
        DescribeOutputs(interpreter).c_str());
  }
  return ClassificationReader(output, shape.back());
}

void ClassificationReader::ReadTop(int k, std::vector<ClassScore>* top) const {
  const RealValues scores(scores_);
  top->resize(static_cast<size_t>(class_count_));
  for (int i = 0; i < class_count_; ++i) {
    (*top)[static_cast<size_t>(i)] = {i, Ordered(scores[static_cast<size_t>(i)])};
  }
  const auto end = top->begin() + std::clamp(k, 0, class_count_);
  std::partial_sort(top->begin(), end, top->end(), [](const ClassScore& a, const ClassScore& b) {
    return a.score != b.score ? a.score > b.score : a.class_index < b.class_index;
  });
  top->erase(end, top->end());
}

ClassScore ClassificationReader::ReadBest() const {
  const RealValues scores(scores_);
  ClassScore best = {0, Ordered(scores[0])};
  for (int i = 1; i < class_count_; ++i) {
    const float score = Ordered(scores[static_cast<size_t>(i)]);
    if (score > best.score) best = {i, score};
  }
  return best;
}

}  // namespace atollrt
