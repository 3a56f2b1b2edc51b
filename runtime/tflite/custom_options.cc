// SPDX-License-Identifier: Apache-2.0
#include "runtime/tflite/custom_options.h"

#include <flatbuffers/flexbuffers.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <type_traits>

#include "runtime/tflite/flexbuffer.h"

namespace atollrt {
namespace {

// Nothing real comes near; products of two fit an int32.
constexpr int64_t kMaxCount = 32768;

// Counts are from 1 to kMaxCount, floats finite.
enum class Rule {
  kNeeded,
  kPositive,  // a scale that something is divided by or that divides
  kDefault,   // absent or 0: as graph.h has it
};

template <typename Options, typename Member>
struct OptionField {
  const char* key;
  Member Options::*member;
  Rule rule = Rule::kNeeded;
};
template <typename Options, typename Member, typename... Rules>
OptionField(const char*, Member Options::*, Rules...) -> OptionField<Options, Member>;

template <typename Options>
constexpr int kFields = 0;

using Detection = DetectionOptions;
template <>
constexpr auto kFields<Detection> = std::tuple{
    OptionField{"max_detections", &Detection::max_detections},
    OptionField{"max_classes_per_detection", &Detection::max_classes_per_detection},
    OptionField{"detections_per_class", &Detection::detections_per_class, Rule::kDefault},
    OptionField{"num_classes", &Detection::num_classes},
    OptionField{"use_regular_nms", &Detection::use_regular_nms, Rule::kDefault},
    OptionField{"nms_score_threshold", &Detection::score_threshold},
    OptionField{"nms_iou_threshold", &Detection::iou_threshold},
    OptionField{"y_scale", &Detection::y_scale, Rule::kPositive},
    OptionField{"x_scale", &Detection::x_scale, Rule::kPositive},
    OptionField{"h_scale", &Detection::h_scale, Rule::kPositive},
    OptionField{"w_scale", &Detection::w_scale, Rule::kPositive}};

template <>
constexpr auto kFields<PosenetOptions> =
    std::tuple{OptionField{"max_detections", &PosenetOptions::max_detections},
               OptionField{"stride", &PosenetOptions::stride},
               OptionField{"score_threshold", &PosenetOptions::score_threshold},
               OptionField{"nms_radius", &PosenetOptions::nms_radius}};

Status SetCount(const char* key, const FlexbufferEntry& entry, int32_t* out) {
  if (entry.integer < 1 || entry.integer > kMaxCount) {
    return CorruptModel("%s is %lld, must be 1 to %lld", key, static_cast<long long>(entry.integer),
                        static_cast<long long>(kMaxCount));
  }
  *out = static_cast<int32_t>(entry.integer);
  return Status();
}

Status SetReal(const char* key, const FlexbufferEntry& entry, Rule rule, float* out) {
  *out = static_cast<float>(entry.real);
  if (!std::isfinite(*out)) return CorruptModel("%s is not finite", key);
  if (rule != Rule::kPositive || *out > 0) return Status();
  return CorruptModel("%s is %g, must be positive", key, static_cast<double>(*out));
}

template <typename Options, typename Member>
Status ReadField(const std::vector<FlexbufferEntry>& stored,
                 const OptionField<Options, Member>& field, Options* options) {
  const auto entry = std::ranges::find(stored, field.key, &FlexbufferEntry::key);
  Member* const out = &(options->*field.member);
  if (field.rule == Rule::kDefault && (entry == stored.end() || entry->integer == 0)) {
    return Status();
  }
  if (entry == stored.end()) return CorruptModel("option %s is missing", field.key);
  if constexpr (std::is_same_v<Member, bool>) {
    *out = true;
    return Status();
  } else if constexpr (std::is_same_v<Member, float>) {
    return SetReal(field.key, *entry, field.rule, out);
  } else {
    return SetCount(field.key, *entry, out);
  }
}

template <typename Options>
Status ReadInto(const std::vector<FlexbufferEntry>& stored, Node* node) {
  Options options;
  Status status;
  const auto read = [&](const auto& field) {
    status = ReadField(stored, field, &options);
    return status.ok();
  };
  std::apply([&](const auto&... fields) { (void)(read(fields) && ...); }, kFields<Options>);
  if (status.ok()) node->options = options;
  return status;
}

template <typename Options>
std::vector<uint8_t> Encode(const Options& options) {
  flexbuffers::Builder builder;
  const auto write = [&](const auto& field) {
    const auto value = options.*field.member;
    using Member = decltype(value);
    if constexpr (std::is_same_v<Member, const bool>) {
      builder.Bool(field.key, value);
    } else if constexpr (std::is_same_v<Member, const float>) {
      builder.Float(field.key, value);
    } else {
      builder.Int(field.key, value);
    }
  };
  builder.Map(
      [&] { std::apply([&](const auto&... fields) { (write(fields), ...); }, kFields<Options>); });
  builder.Finish();
  return builder.GetBuffer();
}

}  // namespace

Status SetCustomOptions(const std::vector<FlexbufferEntry>& entries, Node* node) {
#define ATOLL_CUSTOM_OP(name, types, Infer, Prepare, Options) \
  if (node->custom_name == (name)) return ReadInto<Options>(entries, node);
#include "runtime/graph/operators.inc"
  return Status();
}

Status ReadCustomOptions(Node* node) {
  bool known = false;
#define ATOLL_CUSTOM_OP(name, types, Infer, Prepare, Options) \
  known = known || node->custom_name == (name);
#include "runtime/graph/operators.inc"
  if (!known) return Status();
  ATOLL_ASSIGN_OR_RETURN(const std::vector<FlexbufferEntry> stored,
                         ReadFlexbufferMap(node->custom_options));
  return SetCustomOptions(stored, node);
}

std::vector<uint8_t> EncodeCustomOptions(const OpOptions& options) {
#define ATOLL_CUSTOM_OP(name, types, Infer, Prepare, Options) \
  if (const auto* o = std::get_if<Options>(&options)) return Encode(*o);
#include "runtime/graph/operators.inc"
  return {};
}

}  // namespace atollrt
