// SPDX-License-Identifier: Apache-2.0
#include "serve/frigate/yolo_reader.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

namespace atollrt {
namespace {

constexpr int kStrides[] = {8, 16, 32};
constexpr float kOverlap = 0.4f;
constexpr size_t kMostCandidates = 1000;  // that overlaps are looked for among
constexpr float kFractionsAtMost = 2;
constexpr size_t kFlatColumns = 7;

// All numbers of a tensor, as what they stand for.
void ReadReal(const AtollTensor* tensor, std::vector<float>* values) {
  const void* const data = AtollTensorConstData(tensor);
  const size_t bytes = AtollTensorByteSize(tensor);
  const AtollQuantization scale = AtollTensorQuantization(tensor);
  const auto convert = [&]<typename T>(const T* stored) {
    values->resize(bytes / sizeof(T));
    for (size_t i = 0; i < values->size(); ++i) {
      const auto number = static_cast<int32_t>(stored[i]);
      (*values)[i] = scale.scale == 0 ? static_cast<float>(number)
                                      : scale.scale * static_cast<float>(number - scale.zero_point);
    }
  };
  switch (AtollTensorType(tensor)) {
    case ATOLL_INT8:
      return convert(static_cast<const int8_t*>(data));
    case ATOLL_UINT8:
      return convert(static_cast<const uint8_t*>(data));
    default:  // Create lets no other one pass
      values->resize(bytes / sizeof(float));
      std::memcpy(values->data(), data, values->size() * sizeof(float));
  }
}

bool IsReadable(const AtollTensor* tensor) {
  const AtollType type = AtollTensorType(tensor);
  return type == ATOLL_FLOAT32 || type == ATOLL_INT8 || type == ATOLL_UINT8;
}

float Area(const Detection& box) { return (box.right - box.left) * (box.bottom - box.top); }

// What two boxes have in common, as a part of what both cover.
float Overlap(const Detection& a, const Detection& b) {
  const float width = std::min(a.right, b.right) - std::max(a.left, b.left);
  const float height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  if (width <= 0 || height <= 0) return 0;
  const float common = width * height;
  return common / (Area(a) + Area(b) - common);
}

float Clamp(float fraction) { return std::clamp(fraction, 0.0f, 1.0f); }

// From centre and size.
void ToCorners(float place[4]) {
  const float half_width = place[2] / 2, half_height = place[3] / 2;
  const float x = place[0], y = place[1];
  place[0] = x - half_width;
  place[1] = y - half_height;
  place[2] = x + half_width;
  place[3] = y + half_height;
}

// `corners` of a picture of this size. Nullopt if they are not numbers, or in the wrong order.
std::optional<Detection> DetectionAt(const float corners[4], float width, float height,
                                     int class_index, float score) {
  if (!std::all_of(corners, corners + 4, [](float place) { return std::isfinite(place); })) {
    return std::nullopt;
  }
  Detection detection;
  detection.left = Clamp(corners[0] / width);
  detection.top = Clamp(corners[1] / height);
  detection.right = Clamp(corners[2] / width);
  detection.bottom = Clamp(corners[3] / height);
  detection.class_index = class_index;
  detection.score = score;
  if (detection.left > detection.right || detection.top > detection.bottom) return std::nullopt;
  return detection;
}

}  // namespace

YoloHead YoloHeadOf(std::string_view model_type) {
  if (model_type == "yologeneric") return YoloHead::kGeneric;
  if (model_type == "yolox") return YoloHead::kYolox;
  if (model_type == "yolonas") return YoloHead::kNas;
  return YoloHead::kByShape;
}

Result<YoloReader> YoloReader::Create(AtollInterpreter* interpreter, int width, int height) {
  const int32_t count = AtollInterpreterGetOutputTensorCount(interpreter);
  YoloReader reader;
  reader.width_ = width;
  reader.height_ = height;
  std::string outputs;
  std::vector<Matrix> matrices;
  std::vector<bool> flat;
  for (int32_t i = 0; i < count; ++i) {
    const AtollTensor* const tensor = AtollInterpreterGetOutputTensor(interpreter, i);
    const int32_t rank = AtollTensorNumDims(tensor);
    outputs += Format("%s'%s' [", i == 0 ? "" : ", ", AtollTensorName(tensor));
    for (int32_t d = 0; d < rank; ++d) {
      outputs += Format("%s%d", d == 0 ? "" : ",", AtollTensorDim(tensor, d));
    }
    outputs += "]";
    const bool is_list = rank == 3 && AtollTensorDim(tensor, 0) == 1;
    if ((rank != 2 && !is_list) || !IsReadable(tensor)) continue;
    Matrix matrix = {.tensor = tensor,
                     .rows = static_cast<size_t>(AtollTensorDim(tensor, rank - 2)),
                     .columns = static_cast<size_t>(AtollTensorDim(tensor, rank - 1))};
    matrix.row_step = matrix.columns;
    matrix.column_step = 1;
    if (matrix.rows > 0 && matrix.columns > 0) {
      matrices.push_back(matrix);
      flat.push_back(rank == 2 && matrix.columns == kFlatColumns);
    }
  }
  const bool all_are = static_cast<size_t>(count) == matrices.size();
  if (all_are && count == 2 && matrices[0].rows == matrices[1].rows &&
      (matrices[0].columns == 4 || matrices[1].columns == 4)) {
    if (matrices[0].columns != 4) std::swap(matrices[0], matrices[1]);
    reader.first_ = matrices[0];
    reader.second_ = matrices[1];
    reader.by_shape_ = YoloHead::kNas;
    return reader;
  }
  if (all_are && count == 1 && std::min(matrices[0].rows, matrices[0].columns) >= 5) {
    reader.first_ = matrices[0];
    reader.by_shape_ = YoloHead::kGeneric;
    if (flat[0]) reader.by_shape_ = YoloHead::kNas;
    if (!flat[0] && reader.HasCells()) reader.by_shape_ = YoloHead::kYolox;
    return reader;
  }
  if (all_are && count == 1 && flat[0]) {
    reader.first_ = matrices[0];
    reader.by_shape_ = YoloHead::kNas;
    return reader;
  }
  return Unsupported(
      "the model ends neither in TFLite_Detection_PostProcess nor in boxes of YOLO, [1,4+c,n], of "
      "YOLOX, [1,n,5+c], or of YOLO-NAS, [1,n,4] and [1,n,c]; its outputs are %s",
      outputs.c_str());
}

// A row for each cell of YOLOX's strides.
bool YoloReader::HasCells() const {
  size_t cells = 0;
  for (const int stride : kStrides) {
    cells += static_cast<size_t>(width_ / stride) * static_cast<size_t>(height_ / stride);
  }
  return second_.tensor == nullptr && first_.rows == cells && first_.columns >= 6;
}

// The best class of each row and its score, from `first_column` on; of values_ or others_,
// whichever the matrix is of.
void YoloReader::FindBest(const Matrix& scores, size_t first_column) {
  const std::vector<float>& values = scores.tensor == first_.tensor ? values_ : others_;
  best_.assign(scores.rows, -1.0f);
  classes_.assign(scores.rows, 0);
  const auto look = [&](size_t row, size_t column) {
    const float score = values[row * scores.row_step + column * scores.column_step];
    if (score > best_[row]) {
      best_[row] = score;
      classes_[row] = static_cast<int>(column - first_column);
    }
  };
  // In the order in which they lie there.
  if (scores.column_step == 1) {
    for (size_t row = 0; row < scores.rows; ++row) {
      for (size_t column = first_column; column < scores.columns; ++column) look(row, column);
    }
  } else {
    for (size_t column = first_column; column < scores.columns; ++column) {
      for (size_t row = 0; row < scores.rows; ++row) look(row, column);
    }
  }
}

Status YoloReader::Read(YoloHead head, float threshold, std::vector<Detection>* detections) {
  if (head == YoloHead::kByShape) head = by_shape_;
  detections->clear();
  candidates_.clear();
  Matrix boxes = first_;
  const bool is_pair = second_.tensor != nullptr;
  const bool is_flat = !is_pair && boxes.columns == kFlatColumns && head == YoloHead::kNas;
  if ((head == YoloHead::kNas) != (is_pair || is_flat) ||
      (head == YoloHead::kYolox && !HasCells()) ||
      (head == YoloHead::kGeneric && std::min(boxes.rows, boxes.columns) < 5)) {
    return Unsupported("the model's outputs are not those of %s, but of %s; say which type it is",
                       head == YoloHead::kNas ? "YOLO-NAS"
                       : head == YoloHead::kYolox
                           ? "YOLOX, with a row for each cell of the strides 8, 16 and 32"
                           : "a generic YOLO",
                       is_pair ? "YOLO-NAS" : "one list of boxes");
  }
  ReadReal(boxes.tensor, &values_);
  if (is_pair) ReadReal(second_.tensor, &others_);
  if (head == YoloHead::kGeneric && boxes.rows < boxes.columns) {
    std::swap(boxes.rows, boxes.columns);
    std::swap(boxes.row_step, boxes.column_step);
  }
  const auto at = [&](size_t row, size_t column) {
    return values_[row * boxes.row_step + column * boxes.column_step];
  };
  if (!is_flat) FindBest(is_pair ? second_ : boxes, is_pair ? 0 : head == YoloHead::kYolox ? 5 : 4);

  // Whether places are fractions is the same for all rows.
  const size_t first_place = is_flat ? 1 : 0;
  float most = 0;
  for (size_t row = 0; row < boxes.rows && head != YoloHead::kYolox; ++row) {
    for (size_t i = 0; i < 4; ++i) {
      const float place = at(row, first_place + i);
      if (std::isfinite(place)) most = std::max(most, place);
    }
  }
  const bool fractions = head != YoloHead::kYolox && most <= kFractionsAtMost;
  const auto width = static_cast<float>(fractions ? 1 : width_);
  const auto height = static_cast<float>(fractions ? 1 : height_);

  size_t cell = 0, level = 0;  // of YOLOX: which one of which stride
  for (size_t row = 0; row < boxes.rows; ++row, ++cell) {
    float score = is_flat ? at(row, 5) : best_[row];
    float class_number = is_flat ? at(row, 6) : static_cast<float>(classes_[row]);
    float place[4];
    for (size_t i = 0; i < 4; ++i) place[i] = at(row, first_place + i);
    if (head == YoloHead::kYolox) {
      score *= at(row, 4);
      const auto across = [&] { return static_cast<size_t>(width_ / kStrides[level]); };
      while (cell >= across() * static_cast<size_t>(height_ / kStrides[level])) {
        cell = 0;
        ++level;
      }
      const auto stride = static_cast<float>(kStrides[level]);
      place[0] = (place[0] + static_cast<float>(cell % across())) * stride;
      place[1] = (place[1] + static_cast<float>(cell / across())) * stride;
      place[2] = std::exp(place[2]) * stride;
      place[3] = std::exp(place[3]) * stride;
    }
    if (!(score >= threshold) || !(score <= 1) || !(class_number >= 0) || class_number > 65535) {
      continue;
    }
    if (head != YoloHead::kNas) ToCorners(place);
    const std::optional<Detection> detection =
        DetectionAt(place, width, height, static_cast<int>(class_number), score);
    if (detection.has_value()) candidates_.push_back({*detection, row});
  }
  Choose(detections);
  return Status();
}

void YoloReader::Choose(std::vector<Detection>* detections) {
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.detection.score != b.detection.score ? a.detection.score > b.detection.score
                                                  : a.row < b.row;
  };
  if (candidates_.size() > kMostCandidates) {
    std::nth_element(candidates_.begin(),
                     candidates_.begin() + static_cast<ptrdiff_t>(kMostCandidates),
                     candidates_.end(), better);
    candidates_.resize(kMostCandidates);
  }
  std::sort(candidates_.begin(), candidates_.end(), better);
  for (const Candidate& candidate : candidates_) {
    if (detections->size() == kMost) return;
    const bool is_seen = std::any_of(
        detections->begin(), detections->end(),
        [&](const Detection& kept) { return Overlap(kept, candidate.detection) > kOverlap; });
    if (!is_seen) detections->push_back(candidate.detection);
  }
}

}  // namespace atollrt
