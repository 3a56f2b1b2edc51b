// SPDX-License-Identifier: Apache-2.0
#include "atoll/vision/segmentation.h"

#include <algorithm>

#include "camera/vision/tensor_values.h"

namespace atollrt {
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
      const bool first_number = values[best] != values[best] && values[c] == values[c];
      if (values[c] > values[best] || first_number) best = c;
    }
    out[i] = static_cast<uint8_t>(best);
  }
}

// False if a number, whose index is then in `index`, is none of a class.
template <typename T>
bool CopyNumbers(const void* data, size_t pixels, uint8_t* out, size_t* index) {
  const T* numbers = static_cast<const T*>(data);
  for (size_t i = 0; i < pixels; ++i) {
    if (numbers[i] < 0 || numbers[i] >= SegmentationReader::kMaxClasses) {
      *index = i;
      return false;
    }
    out[i] = static_cast<uint8_t>(numbers[i]);
  }
  return true;
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
  size_t bad = 0;
  const bool good = type == ATOLL_INT64   ? CopyNumbers<int64_t>(data, pixels, out, &bad)
                    : type == ATOLL_INT32 ? CopyNumbers<int32_t>(data, pixels, out, &bad)
                                          : CopyNumbers<uint8_t>(data, pixels, out, &bad);
  if (good) return Status();
  const auto number = type == ATOLL_INT64
                          ? static_cast<long long>(static_cast<const int64_t*>(data)[bad])
                          : static_cast<const int32_t*>(data)[bad];
  return Unsupported("the model's output %s has class %lld at (%zu, %zu); classes are 0 to %d",
                     Describe(output_).c_str(), number, bad % static_cast<size_t>(width_),
                     bad / static_cast<size_t>(width_), kMaxClasses - 1);
}

std::array<int64_t, 256> CountPixels(const Image& classes) {
  std::array<int64_t, 256> counts = {};
  for (const uint8_t pixel : classes.pixels) ++counts[pixel];
  return counts;
}

}  // namespace atollrt
