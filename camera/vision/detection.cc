// SPDX-License-Identifier: Apache-2.0
#include "atoll/vision/detection.h"

#include <algorithm>
#include <cmath>

#include "camera/vision/tensor_values.h"

namespace atollrt {
namespace {

constexpr char kDetectionOperator[] = "TFLite_Detection_PostProcess";

}  // namespace

Result<DetectionReader> DetectionReader::Create(AtollInterpreter* interpreter) {
  const std::optional<AtollNodeInfo> node = FindOperator(interpreter, kDetectionOperator);
  if (!node) {
    return Unsupported(
        "the model has %s, but no operator %s, which makes boxes of a detector's outputs",
        DescribeOutputs(interpreter).c_str(), kDetectionOperator);
  }
  const std::vector<const AtollTensor*> outputs = OutputsOf(interpreter, *node, 4);
  if (outputs.empty()) {
    return Unsupported("the model has %s, but the first four outputs of its %s must be among them",
                       DescribeOutputs(interpreter).c_str(), kDetectionOperator);
  }
  const int64_t entries = CountElements(ShapeOf(outputs[1]));
  if (!IsFloat(outputs[0], 4 * entries) || !IsFloat(outputs[1], entries) ||
      !IsFloat(outputs[2], entries) || !IsFloat(outputs[3], 1)) {
    return Unsupported(
        "the outputs of the model's %s are not float32 of shapes [1,n,4], [1,n], [1,n] and [1]",
        kDetectionOperator);
  }
  DetectionReader reader;
  reader.boxes_ = Floats(outputs[0]);
  reader.classes_ = Floats(outputs[1]);
  reader.scores_ = Floats(outputs[2]);
  reader.count_ = Floats(outputs[3]);
  reader.entries_ = static_cast<int>(entries);
  if (node->input_count > 1 && node->inputs[1] >= 0) {
    const std::vector<int32_t> scores =
        ShapeOf(AtollInterpreterGetTensor(interpreter, node->inputs[1]));
    if (!scores.empty()) reader.score_count_ = scores.back();
  }
  return reader;
}

void DetectionReader::Read(float threshold, std::vector<Detection>* detections) const {
  detections->clear();
  // Also of a count that is not a number.
  const int count =
      *count_ > 0 ? static_cast<int>(std::min(*count_, static_cast<float>(entries_))) : 0;
  constexpr float kMaxClass = 1 << 24;  // up to here a float holds every whole number
  for (int i = 0; i < count; ++i) {
    const float* box = boxes_ + ptrdiff_t{4} * i;
    const bool finite = std::all_of(box, box + 4, [](float edge) { return std::isfinite(edge); });
    const bool has_class = classes_[i] >= 0 && classes_[i] < kMaxClass;
    if (!finite || !has_class || !(scores_[i] >= threshold)) continue;
    const auto [top, bottom] =
        std::minmax({std::clamp(box[0], 0.0f, 1.0f), std::clamp(box[2], 0.0f, 1.0f)});
    const auto [left, right] =
        std::minmax({std::clamp(box[1], 0.0f, 1.0f), std::clamp(box[3], 0.0f, 1.0f)});
    detections->push_back({left, top, right, bottom, static_cast<int>(classes_[i]), scores_[i]});
  }
  std::stable_sort(detections->begin(), detections->end(),
                   [](const Detection& a, const Detection& b) { return a.score > b.score; });
}

}  // namespace atollrt
