// SPDX-License-Identifier: Apache-2.0
#include "runtime/tflite/custom_options.h"

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/tflite/flexbuffer.h"

namespace atollrt {
namespace {

// Nothing real comes near; products of two fit an int32.
constexpr int64_t kMaxCount = 32768;

class Options {
 public:
  explicit Options(std::vector<FlexbufferEntry> entries) : entries_(std::move(entries)) {}

  // Sets `out` to a number from 1 to kMaxCount.
  Status Count(std::string_view key, int32_t* out) const {
    const FlexbufferEntry* entry = Find(key);
    if (entry == nullptr) return Missing(key);
    if (entry->integer < 1 || entry->integer > kMaxCount) {
      return CorruptModel("%s is %lld, must be 1 to %lld", std::string(key).c_str(),
                          static_cast<long long>(entry->integer),
                          static_cast<long long>(kMaxCount));
    }
    *out = static_cast<int32_t>(entry->integer);
    return Status();
  }

  // Sets `out` to a finite number.
  Status Real(std::string_view key, float* out) const {
    const FlexbufferEntry* entry = Find(key);
    if (entry == nullptr) return Missing(key);
    *out = static_cast<float>(entry->real);
    return std::isfinite(*out) ? Status()
                               : CorruptModel("%s is not finite", std::string(key).c_str());
  }

  // A scale that something is divided by or that divides.
  Status Positive(std::string_view key, float* out) const {
    ATOLL_RETURN_IF_ERROR(Real(key, out));
    if (*out > 0) return Status();
    return CorruptModel("%s is %g, must be positive", std::string(key).c_str(),
                        static_cast<double>(*out));
  }

  const FlexbufferEntry* Find(std::string_view key) const {
    for (const FlexbufferEntry& entry : entries_) {
      if (entry.key == key) return &entry;
    }
    return nullptr;
  }

 private:
  static Status Missing(std::string_view key) {
    return CorruptModel("option %s is missing", std::string(key).c_str());
  }

  const std::vector<FlexbufferEntry> entries_;
};

Status Read(const Options& stored, DetectionOptions* out) {
  ATOLL_RETURN_IF_ERROR(stored.Count("max_detections", &out->max_detections));
  ATOLL_RETURN_IF_ERROR(stored.Count("max_classes_per_detection", &out->max_classes_per_detection));
  // Absent or 0: the default.
  const FlexbufferEntry* per_class = stored.Find("detections_per_class");
  if (per_class != nullptr && per_class->integer != 0) {
    ATOLL_RETURN_IF_ERROR(stored.Count("detections_per_class", &out->detections_per_class));
  }
  ATOLL_RETURN_IF_ERROR(stored.Count("num_classes", &out->num_classes));
  const FlexbufferEntry* regular = stored.Find("use_regular_nms");
  out->use_regular_nms = regular != nullptr && regular->integer != 0;
  ATOLL_RETURN_IF_ERROR(stored.Real("nms_score_threshold", &out->score_threshold));
  ATOLL_RETURN_IF_ERROR(stored.Real("nms_iou_threshold", &out->iou_threshold));
  ATOLL_RETURN_IF_ERROR(stored.Positive("y_scale", &out->y_scale));
  ATOLL_RETURN_IF_ERROR(stored.Positive("x_scale", &out->x_scale));
  ATOLL_RETURN_IF_ERROR(stored.Positive("h_scale", &out->h_scale));
  return stored.Positive("w_scale", &out->w_scale);
}

Status Read(const Options& stored, PosenetOptions* out) {
  ATOLL_RETURN_IF_ERROR(stored.Count("max_detections", &out->max_detections));
  ATOLL_RETURN_IF_ERROR(stored.Count("stride", &out->stride));
  ATOLL_RETURN_IF_ERROR(stored.Real("score_threshold", &out->score_threshold));
  return stored.Real("nms_radius", &out->nms_radius);
}

template <typename T>
Status ReadInto(Node* node) {
  ATOLL_ASSIGN_OR_RETURN(std::vector<FlexbufferEntry> entries,
                         ReadFlexbufferMap(node->custom_options));
  T options;
  ATOLL_RETURN_IF_ERROR(Read(Options(std::move(entries)), &options));
  node->options = options;
  return Status();
}

}  // namespace

Status ReadCustomOptions(Node* node) {
  if (node->custom_name == "TFLite_Detection_PostProcess") return ReadInto<DetectionOptions>(node);
  if (node->custom_name == "PosenetDecoderOp") return ReadInto<PosenetOptions>(node);
  return Status();
}

}  // namespace atollrt
