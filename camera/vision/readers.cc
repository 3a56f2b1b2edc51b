// SPDX-License-Identifier: Apache-2.0
#include "atoll/vision/readers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "camera/vision/tensor_text.h"

namespace atollrt {
namespace {

constexpr char kDetectionOperator[] = "TFLite_Detection_PostProcess";
constexpr char kPosenetOperator[] = "PosenetDecoderOp";

int64_t CountElements(const std::vector<int32_t>& shape) {
  int64_t count = 1;
  for (const int32_t dim : shape) count *= dim;
  return count;
}

// "4 outputs, the first one 'boxes', float32 [1,10,4]"
std::string DescribeOutputs(const AtollInterpreter* interpreter) {
  const int32_t count = AtollInterpreterGetOutputTensorCount(interpreter);
  if (count == 0) return "no output";
  const std::string first = Describe(AtollInterpreterGetOutputTensor(interpreter, 0));
  if (count == 1) return "the output " + first;
  return Format("%d outputs, the first one %s", count, first.c_str());
}

// The only output, or nullptr if there is not exactly one.
const AtollTensor* OnlyOutput(const AtollInterpreter* interpreter) {
  if (AtollInterpreterGetOutputTensorCount(interpreter) != 1) return nullptr;
  return AtollInterpreterGetOutputTensor(interpreter, 0);
}

// Whether RealValues can read it.
bool HoldsRealNumbers(const AtollTensor* tensor) {
  const AtollType type = AtollTensorType(tensor);
  return type == ATOLL_FLOAT32 || type == ATOLL_UINT8 || type == ATOLL_INT8;
}

// The elements of such a tensor as real numbers; without a scale, integers as they are.
class RealValues {
 public:
  explicit RealValues(const AtollTensor* tensor)
      : data_(AtollTensorConstData(tensor)),
        type_(AtollTensorType(tensor)),
        quantization_(AtollTensorQuantization(tensor)) {
    if (quantization_.scale == 0) quantization_ = {1.0f, 0};
  }
  float operator[](size_t index) const {
    switch (type_) {
      case ATOLL_INT8:
        return Real(static_cast<const int8_t*>(data_)[index]);
      case ATOLL_UINT8:
        return Real(static_cast<const uint8_t*>(data_)[index]);
      default:
        return static_cast<const float*>(data_)[index];
    }
  }

 private:
  float Real(int stored) const {
    return quantization_.scale * static_cast<float>(stored - quantization_.zero_point);
  }
  const void* data_;
  AtollType type_;
  AtollQuantization quantization_;
};

// The last node of this operator, if the model has one.
std::optional<AtollNodeInfo> FindOperator(const AtollInterpreter* interpreter, const char* op) {
  for (int32_t i = AtollInterpreterGetNodeCount(interpreter); i-- > 0;) {
    AtollNodeInfo node = {};
    if (AtollInterpreterGetNodeInfo(interpreter, i, &node) == ATOLL_OK &&
        std::string_view(node.op) == op) {
      return node;
    }
  }
  return std::nullopt;
}

bool IsOutput(const AtollInterpreter* interpreter, const AtollTensor* tensor) {
  for (int32_t i = 0; i < AtollInterpreterGetOutputTensorCount(interpreter); ++i) {
    if (AtollInterpreterGetOutputTensor(interpreter, i) == tensor) return true;
  }
  return false;
}

// The first four outputs of `node`, of which the first and the second have so many numbers per
// entry; `shapes` is what they should be, for people.
Result<ListOutputs> OpenList(const AtollInterpreter* interpreter, const AtollNodeInfo& node,
                             int64_t first_numbers, int64_t second_numbers, const char* shapes) {
  ListOutputs list;
  std::array<const AtollTensor*, 4> outputs = {};
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (static_cast<int32_t>(i) < node.output_count) {
      outputs[i] = AtollInterpreterGetTensor(interpreter, node.outputs[i]);
    }
    if (outputs[i] == nullptr || !IsOutput(interpreter, outputs[i])) {
      return Unsupported(
          "the model has %s, but the first four outputs of its %s must be among them",
          DescribeOutputs(interpreter).c_str(), node.op);
    }
  }
  const int64_t entries = CountElements(ShapeOf(outputs[2]));
  const int64_t sizes[] = {entries * first_numbers, entries * second_numbers, entries, 1};
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (AtollTensorType(outputs[i]) != ATOLL_FLOAT32 ||
        CountElements(ShapeOf(outputs[i])) != sizes[i]) {
      return Unsupported("the outputs of the model's %s are not float32 of shapes %s", node.op,
                         shapes);
    }
    list.values[i] = static_cast<const float*>(AtollTensorConstData(outputs[i]));
  }
  list.entries = static_cast<int>(entries);
  return list;
}

template <typename T>
void SortByScore(std::vector<T>* entries) {
  std::stable_sort(entries->begin(), entries->end(),
                   [](const T& a, const T& b) { return a.score > b.score; });
}

}  // namespace

int ListOutputs::filled() const {
  const float count = *values[3];  // which may not be a number
  return count > 0 ? static_cast<int>(std::min(count, static_cast<float>(entries))) : 0;
}

const char* TaskName(Task task) {
  constexpr const char* kNames[] = {"none", "classify", "detect", "segment", "pose"};
  return kNames[static_cast<size_t>(task)];
}

Task IdentifyTask(AtollInterpreter* interpreter) {
  if (DetectionReader::Create(interpreter).ok()) return Task::kDetect;
  if (PoseReader::Create(interpreter).ok()) return Task::kPose;
  if (SegmentationReader::Create(interpreter).ok()) return Task::kSegment;
  if (ClassificationReader::Create(interpreter).ok()) return Task::kClassify;
  return Task::kNone;
}

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
    const float score = scores[static_cast<size_t>(i)];
    (*top)[static_cast<size_t>(i)] = {
        i, std::isnan(score) ? -std::numeric_limits<float>::infinity() : score};
  }
  const auto end = top->begin() + std::clamp(k, 0, class_count_);
  std::partial_sort(top->begin(), end, top->end(), [](const ClassScore& a, const ClassScore& b) {
    return a.score != b.score ? a.score > b.score : a.class_index < b.class_index;
  });
  top->erase(end, top->end());
}

Result<DetectionReader> DetectionReader::Create(AtollInterpreter* interpreter) {
  const std::optional<AtollNodeInfo> node = FindOperator(interpreter, kDetectionOperator);
  if (!node) {
    return Unsupported(
        "the model has %s, but no operator %s, which makes boxes of a detector's outputs",
        DescribeOutputs(interpreter).c_str(), kDetectionOperator);
  }
  DetectionReader reader;
  ATOLL_ASSIGN_OR_RETURN(reader.list_,
                         OpenList(interpreter, *node, 4, 1, "[1,n,4], [1,n], [1,n] and [1]"));
  if (node->input_count > 1 && node->inputs[1] >= 0) {
    const std::vector<int32_t> scores =
        ShapeOf(AtollInterpreterGetTensor(interpreter, node->inputs[1]));
    if (!scores.empty()) reader.score_count_ = scores.back();
  }
  return reader;
}

void DetectionReader::Read(float threshold, std::vector<Detection>* detections) const {
  detections->clear();
  constexpr float kMaxClass = 1 << 24;  // up to here a float holds every whole number
  const auto& [boxes, classes, scores, count] = list_.values;
  for (int i = 0; i < list_.filled(); ++i) {
    const float* box = boxes + ptrdiff_t{4} * i;
    const bool finite = std::all_of(box, box + 4, [](float edge) { return std::isfinite(edge); });
    const bool has_class = classes[i] >= 0 && classes[i] < kMaxClass;
    if (!finite || !has_class || !(scores[i] >= threshold)) continue;
    const auto [top, bottom] =
        std::minmax({std::clamp(box[0], 0.0f, 1.0f), std::clamp(box[2], 0.0f, 1.0f)});
    const auto [left, right] =
        std::minmax({std::clamp(box[1], 0.0f, 1.0f), std::clamp(box[3], 0.0f, 1.0f)});
    detections->push_back({left, top, right, bottom, static_cast<int>(classes[i]), scores[i]});
  }
  SortByScore(detections);
}

Result<PoseReader> PoseReader::CreatePosenet(AtollInterpreter* interpreter,
                                             const AtollNodeInfo& node) {
  PoseReader reader;
  ATOLL_ASSIGN_OR_RETURN(reader.list_,
                         OpenList(interpreter, node, kKeypointCount * 2, kKeypointCount,
                                  "[1,n,17,2], [1,n,17], [1,n] and [1]"));
  // Keypoints are in its pixels.
  const AtollTensor* input = AtollInterpreterGetInputTensor(interpreter, 0);
  if (input == nullptr || AtollTensorNumDims(input) != 4 || AtollTensorDim(input, 1) < 1 ||
      AtollTensorDim(input, 2) < 1) {
    return Unsupported("the model has an operator %s, but no input of shape [1,h,w,3]",
                       kPosenetOperator);
  }
  reader.input_height_ = static_cast<float>(AtollTensorDim(input, 1));
  reader.input_width_ = static_cast<float>(AtollTensorDim(input, 2));
  return reader;
}

Result<PoseReader> PoseReader::Create(AtollInterpreter* interpreter) {
  if (const auto node = FindOperator(interpreter, kPosenetOperator)) {
    return CreatePosenet(interpreter, *node);
  }
  const AtollTensor* output = OnlyOutput(interpreter);
  if (output == nullptr || !HoldsRealNumbers(output) ||
      ShapeOf(output) != std::vector<int32_t>{1, 1, kKeypointCount, 3}) {
    return Unsupported(
        "the model has %s, but a pose model has an operator %s or one output of shape [1,1,17,3]",
        DescribeOutputs(interpreter).c_str(), kPosenetOperator);
  }
  PoseReader reader;
  reader.movenet_ = output;
  return reader;
}

void PoseReader::ReadPosenet(std::vector<Pose>* poses) const {
  const auto& [keypoints, keypoint_scores, scores, count] = list_.values;
  for (int i = 0; i < list_.filled(); ++i) {
    Pose pose = {.score = scores[i], .keypoints = {}};
    for (int k = 0; k < kKeypointCount; ++k) {
      const ptrdiff_t index = ptrdiff_t{kKeypointCount} * i + k;
      pose.keypoints[static_cast<size_t>(k)] = {keypoints[2 * index + 1] / input_width_,
                                                keypoints[2 * index] / input_height_,
                                                keypoint_scores[index]};
    }
    poses->push_back(pose);
  }
}

void PoseReader::ReadMovenet(std::vector<Pose>* poses) const {
  const RealValues values(movenet_);
  Pose pose;
  for (size_t k = 0; k < pose.keypoints.size(); ++k) {
    pose.keypoints[k] = {values[3 * k + 1], values[3 * k], values[3 * k + 2]};
    pose.score += pose.keypoints[k].score / kKeypointCount;
  }
  poses->push_back(pose);
}

void PoseReader::Read(float threshold, std::vector<Pose>* poses) const {
  poses->clear();
  movenet_ != nullptr ? ReadMovenet(poses) : ReadPosenet(poses);
  std::erase_if(*poses, [threshold](const Pose& pose) {
    return !std::isfinite(pose.score) || pose.score < threshold ||
           !std::all_of(pose.keypoints.begin(), pose.keypoints.end(), [](const Keypoint& point) {
             return std::isfinite(point.x) && std::isfinite(point.y) && std::isfinite(point.score);
           });
  });
  SortByScore(poses);
}

namespace {

// The class count of a map of numbers, from the ARG_MAX that makes it, or 0.
int CountClasses(const AtollInterpreter* interpreter, const AtollTensor* output) {
  const std::optional<AtollNodeInfo> node = FindOperator(interpreter, "ARG_MAX");
  if (!node || AtollInterpreterGetTensor(interpreter, node->outputs[0]) != output) return 0;
  const std::vector<int32_t> shape = ShapeOf(output);
  const std::vector<int32_t> scores =
      ShapeOf(AtollInterpreterGetTensor(interpreter, node->inputs[0]));
  // The interface does not show along which axis; the other three tell that it is the last one.
  const bool last_axis = shape.size() == 3 && scores.size() == 4 &&
                         std::equal(shape.begin(), shape.end(), scores.begin());
  return last_axis ? scores[3] : 0;
}

// For each of `pixels` the index of the largest of `classes` values.
template <typename T>
void ArgMax(const void* data, size_t pixels, size_t classes, uint8_t* out) {
  const T* values = static_cast<const T*>(data);
  for (size_t i = 0; i < pixels; ++i, values += classes) {
    size_t best = 0;
    for (size_t c = 1; c < classes; ++c) {
      // NOLINTNEXTLINE(misc-redundant-expression): only what is no number differs from itself
      const bool first_number = values[best] != values[best] && values[c] == values[c];
      if (values[c] > values[best] || first_number) best = c;
    }
    out[i] = static_cast<uint8_t>(best);
  }
}

// A number that is no class, and the index of its pixel.
struct BadClass {
  long long number;
  size_t pixel;
};
template <typename T>
std::optional<BadClass> CopyNumbers(const void* data, size_t pixels, uint8_t* out) {
  const T* numbers = static_cast<const T*>(data);
  for (size_t i = 0; i < pixels; ++i) {
    if (numbers[i] < 0 || numbers[i] >= SegmentationReader::kMaxClasses) {
      return BadClass{static_cast<long long>(numbers[i]), i};
    }
    out[i] = static_cast<uint8_t>(numbers[i]);
  }
  return std::nullopt;
}

}  // namespace

Result<SegmentationReader> SegmentationReader::Create(AtollInterpreter* interpreter) {
  const AtollTensor* output = OnlyOutput(interpreter);
  const std::vector<int32_t> shape = output == nullptr ? std::vector<int32_t>() : ShapeOf(output);
  const bool is_map =
      (shape.size() == 3 || shape.size() == 4) && shape[0] == 1 && shape[1] >= 2 && shape[2] >= 2;
  const bool has_numbers =
      is_map && (shape.size() == 3 || shape[3] == 1) &&
      (AtollTensorType(output) == ATOLL_INT32 || AtollTensorType(output) == ATOLL_INT64 ||
       (AtollTensorType(output) == ATOLL_UINT8 && AtollTensorQuantization(output).scale == 0));
  const bool has_scores = is_map && shape.size() == 4 && shape[3] >= 2 && HoldsRealNumbers(output);
  if (!has_numbers && !has_scores) {
    return Unsupported(
        "the model has %s, but a segmentation has one map of classes, [1,h,w] of int32, int64 or "
        "unquantized uint8, or of scores, [1,h,w,n] of uint8, int8 or float32",
        DescribeOutputs(interpreter).c_str());
  }
  SegmentationReader reader;
  reader.output_ = output;
  reader.height_ = shape[1];
  reader.width_ = shape[2];
  reader.has_scores_ = has_scores;
  reader.class_count_ = has_scores ? shape[3] : CountClasses(interpreter, output);
  if (reader.class_count_ > kMaxClasses) {
    return Unsupported("the model has %s, %d classes; at most %d are read",
                       DescribeOutputs(interpreter).c_str(), reader.class_count_, kMaxClasses);
  }
  return reader;
}

Status SegmentationReader::Read(Image* classes) const {
  classes->Reshape(width_, height_, 1);
  const void* data = AtollTensorConstData(output_);
  const size_t pixels = classes->pixels.size();
  uint8_t* out = classes->pixels.data();
  const AtollType type = AtollTensorType(output_);
  if (has_scores_) {
    const auto count = static_cast<size_t>(class_count_);
    // A scale is positive: stored numbers have the order of real ones.
    if (type == ATOLL_FLOAT32) {
      ArgMax<float>(data, pixels, count, out);
    } else if (type == ATOLL_INT8) {
      ArgMax<int8_t>(data, pixels, count, out);
    } else {
      ArgMax<uint8_t>(data, pixels, count, out);
    }
    return Status();
  }
  const std::optional<BadClass> bad = type == ATOLL_INT64 ? CopyNumbers<int64_t>(data, pixels, out)
                                      : type == ATOLL_INT32
                                          ? CopyNumbers<int32_t>(data, pixels, out)
                                          : CopyNumbers<uint8_t>(data, pixels, out);
  if (!bad) return Status();
  const size_t width = static_cast<size_t>(width_);
  return Unsupported("the model's output %s has class %lld at (%zu, %zu); classes are 0 to %d",
                     Describe(output_).c_str(), bad->number, bad->pixel % width, bad->pixel / width,
                     kMaxClasses - 1);
}

std::array<int64_t, 256> CountPixels(const Image& classes) {
  std::array<int64_t, 256> counts = {};
  for (const uint8_t pixel : classes.pixels) ++counts[pixel];
  return counts;
}

}  // namespace atollrt
