// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/lint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>

#include "tools/atoll/report.h"

namespace atollcmd {
namespace {

using atollrt::Task;

template <typename... T>
Finding Found(const char* code, fmt::format_string<T...> message, T&&... values) {
  return {code, fmt::format(message, std::forward<T>(values)...)};
}

template <typename... T>
void Add(std::vector<Finding>* findings, const char* code, fmt::format_string<T...> message,
         T&&... values) {
  findings->push_back(Found(code, message, std::forward<T>(values)...));
}

std::vector<AtollNodeInfo> NodesOf(const AtollInterpreter* interpreter) {
  std::vector<AtollNodeInfo> nodes;
  for (int32_t i = 0; i < AtollInterpreterGetNodeCount(interpreter); ++i) {
    AtollNodeInfo node = {};
    if (AtollInterpreterGetNodeInfo(interpreter, i, &node) == ATOLL_OK) nodes.push_back(node);
  }
  return nodes;
}

const AtollTensor* InputOf(const AtollInterpreter* interpreter, const AtollNodeInfo& node) {
  if (node.input_count == 0 || node.inputs[0] < 0) return nullptr;
  return AtollInterpreterGetTensor(interpreter, node.inputs[0]);
}

std::string InputText(const AtollTensor* tensor) {
  return fmt::format("'{}', {} {}", AtollTensorName(tensor), AtollTypeName(AtollTensorType(tensor)),
                     ShapeText(tensor));
}

bool IsByte(const AtollTensor* tensor) {
  const AtollType type = AtollTensorType(tensor);
  return type == ATOLL_INT8 || type == ATOLL_UINT8;
}

// The real numbers that a quantized tensor can hold.
struct Range {
  double low;
  double high;
};
Range RangeOf(const AtollTensor* tensor) {
  const AtollQuantization quantization = AtollTensorQuantization(tensor);
  const int q_min = AtollTensorType(tensor) == ATOLL_INT8 ? -128 : 0;
  return {double{quantization.scale} * (q_min - quantization.zero_point),
          double{quantization.scale} * (q_min + 255 - quantization.zero_point)};
}

// ---- The whole model ---------------------------------------------------------------------------

void LintPlacement(const AtollInterpreter* interpreter, bool lists_reasons,
                   std::vector<Finding>* findings) {
  int64_t macs = 0;
  int64_t float_macs = 0;
  const AtollNodeInfo* refused = nullptr;  // the one with the most work
  const std::vector<AtollNodeInfo> nodes = NodesOf(interpreter);
  for (const AtollNodeInfo& node : nodes) {
    const AtollTensor* input = InputOf(interpreter, node);
    macs += node.macs;
    if (input != nullptr && AtollTensorType(input) == ATOLL_FLOAT32) float_macs += node.macs;
    if (node.reason[0] != '\0' && (refused == nullptr || node.macs > refused->macs)) {
      refused = &node;
    }
  }
  if (float_macs * 2 > macs) {
    Add(findings, "float_model",
        "the model computes {:.0f} % of its multiply-accumulates in float32, which no device does "
        "and which is slow on the CPU; 'atoll quantize' makes an int8 model of it",
        100.0 * static_cast<double>(float_macs) / static_cast<double>(macs));
  } else if (refused != nullptr && AtollInterpreterGetPartitionCount(interpreter) == 0) {
    Add(findings, "nothing_on_device",
        "none of the model's {} operators runs on the device; {}: {}; {}", nodes.size(),
        refused->op, refused->reason,
        lists_reasons ? "the list of operators has the reason for each"
                      : "'atoll inspect' gives the reason for each");
  }
}

// ---- The input ---------------------------------------------------------------------------------

// Sides of a tensor that could be those of a picture.
bool LooksLikePicture(int32_t height, int32_t width) { return height >= 16 && width >= 16; }

// Why an input that looks like a picture is none, if it is so.
std::optional<Finding> LintInputShape(const AtollTensor* input) {
  if (AtollTensorNumDims(input) != 4) return std::nullopt;
  const int32_t dims[] = {AtollTensorDim(input, 0), AtollTensorDim(input, 1),
                          AtollTensorDim(input, 2), AtollTensorDim(input, 3)};
  const auto is_color = [](int32_t channels) { return channels == 1 || channels == 3; };
  if (is_color(dims[1]) && !is_color(dims[3]) && LooksLikePicture(dims[2], dims[3])) {
    return Found("input_channels",
                 "the model's input {} has its {} channels first; convert the model with channels "
                 "last, [1,{},{},{}]",
                 InputText(input), dims[1], dims[2], dims[3], dims[1]);
  }
  if (!LooksLikePicture(dims[1], dims[2])) return std::nullopt;
  if (dims[0] == 1 && !is_color(dims[3]) && dims[3] <= 16) {
    return Found("input_channels",
                 "the model's input {} has {} channels, but pictures have 3 (RGB) or 1 (gray); use "
                 "'atoll run' with an --input file of all channels",
                 InputText(input), dims[3]);
  }
  if (dims[0] > 1 && is_color(dims[3])) {
    return Found(
        "input_batch",
        "the model's input {} is a batch of {} pictures; convert the model with batch size 1",
        InputText(input), dims[0]);
  }
  return std::nullopt;
}

// Ranges that pictures are trained on; a converter's calibration may miss their ends a little.
bool IsUsualPixelRange(const Range& range) {
  constexpr Range kUsual[] = {{0, 1}, {-1, 1}, {0, 255}, {-128, 127}, {-0.5, 0.5}};
  return std::any_of(std::begin(kUsual), std::end(kUsual), [&](const Range& usual) {
    const double tolerance = 0.05 * (usual.high - usual.low);
    return std::abs(range.low - usual.low) <= tolerance &&
           std::abs(range.high - usual.high) <= tolerance;
  });
}

// Plain bytes are meant where the model turns them into something else first.
bool OnlyCast(const AtollInterpreter* interpreter, const AtollTensor* input) {
  for (const AtollNodeInfo& node : NodesOf(interpreter)) {
    for (int32_t i = 0; i < node.input_count; ++i) {
      if (node.inputs[i] >= 0 && AtollInterpreterGetTensor(interpreter, node.inputs[i]) == input &&
          std::string_view(node.op) != "CAST") {
        return false;
      }
    }
  }
  return true;
}

void LintPixels(AtollInterpreter* interpreter, const AtollTensor* input,
                std::vector<Finding>* findings) {
  if (AtollTensorType(input) == ATOLL_FLOAT32) {
    Add(findings, "input_normalization",
        "the model's input {} does not say which numbers stand for black and white; pixels become "
        "-1 to 1; if it was trained on 0 to 1, add --mean 0 --std 255, if on 0 to 255, --mean 0 "
        "--std 1, and if on -1 to 1, --mean 127.5 --std 127.5, which only silences this",
        InputText(input));
  } else if (IsByte(input) && AtollTensorQuantization(input).scale == 0) {
    if (OnlyCast(interpreter, input)) return;
    Add(findings, "input_scale",
        "the model's input {} has no scale, so pixels are stored as {}; if the model expects "
        "something else, convert it again with a quantized input",
        InputText(input), AtollTensorType(input) == ATOLL_INT8 ? "-128 to 127" : "0 to 255");
  } else if (IsByte(input) && !IsUsualPixelRange(RangeOf(input))) {
    const Range range = RangeOf(input);
    Add(findings, "input_normalization",
        "the model's input {} holds {:.4g} to {:.4g}, which is no usual range of pixels; black to "
        "white become all of it; if the model was trained on pixels normalized by a mean and a "
        "deviation, give these, from 0 to 255, as --mean and --std",
        InputText(input), range.low, range.high);
  }
}

void LintPictureInput(AtollInterpreter* interpreter, bool scaling_given,
                      std::vector<Finding>* findings) {
  if (AtollInterpreterGetInputTensorCount(interpreter) != 1) return;
  const AtollTensor* input = AtollInterpreterGetInputTensor(interpreter, 0);
  if (std::optional<Finding> finding = LintInputShape(input)) {
    findings->push_back(*std::move(finding));
  } else if (!scaling_given) {
    LintPixels(interpreter, input, findings);
  }
}

// ---- The outputs -------------------------------------------------------------------------------

// The quantized tensor or the last node that decides what numbers an output holds: moving and
// dequantizing do not change them.
struct Origin {
  const AtollTensor* tensor;
  std::string_view op;  // what writes it; empty for an input or a constant
};
Origin OriginOf(const AtollInterpreter* interpreter, const AtollTensor* output) {
  Origin origin = {output, ""};
  const std::vector<AtollNodeInfo> nodes = NodesOf(interpreter);
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    if (node->output_count == 0 ||
        AtollInterpreterGetTensor(interpreter, node->outputs[0]) != origin.tensor) {
      continue;
    }
    origin.op = node->op;
    const bool passes_on = origin.op == "DEQUANTIZE" || origin.op == "QUANTIZE" ||
                           origin.op == "RESHAPE" || origin.op == "SQUEEZE";
    const AtollTensor* input = InputOf(interpreter, *node);
    if (!passes_on || input == nullptr) break;
    origin = {input, ""};
  }
  return origin;
}

void LintScores(const AtollInterpreter* interpreter, std::vector<Finding>* findings) {
  const AtollTensor* output = AtollInterpreterGetOutputTensor(interpreter, 0);
  if (IsByte(output) && AtollTensorQuantization(output).scale == 0) {
    Add(findings, "output_scores",
        "the model's output {} has no scale, so its scores are the stored numbers, no "
        "probabilities; only their order counts",
        InputText(output));
    return;
  }
  const Origin origin = OriginOf(interpreter, output);
  if (origin.op == "SOFTMAX" || origin.op == "LOGISTIC") return;
  std::string range;
  if (IsByte(origin.tensor) && AtollTensorQuantization(origin.tensor).scale != 0) {
    const Range numbers = RangeOf(origin.tensor);
    if (numbers.low >= -0.01 && numbers.high <= 1.01) return;
    range = fmt::format(", from {:.4g} to {:.4g}", numbers.low, numbers.high);
  }
  Add(findings, "output_scores",
      "the scores of the model's output {} are no probabilities{}: it ends in {}, not in SOFTMAX "
      "or LOGISTIC; only their order counts",
      InputText(output), range, origin.op.empty() ? "its own input" : std::string(origin.op));
}

void LintSegmentation(AtollInterpreter* interpreter, std::vector<Finding>* findings) {
  const AtollTensor* output = AtollInterpreterGetOutputTensor(interpreter, 0);
  if (AtollTensorNumDims(output) != 4 || AtollTensorDim(output, 3) != 3) return;
  Add(findings, "output_is_picture",
      "the model's output {} has 3 channels: it may be a picture rather than the scores of 3 "
      "classes; 'atoll run' writes its bytes",
      InputText(output));
}

// A box encoding and class scores for each of many anchors, in one tensor or in two.
const AtollTensor* FindRawBoxes(const AtollInterpreter* interpreter) {
  constexpr int32_t kManyAnchors = 100;
  const int32_t count = AtollInterpreterGetOutputTensorCount(interpreter);
  for (int32_t i = 0; i < count; ++i) {
    const AtollTensor* output = AtollInterpreterGetOutputTensor(interpreter, i);
    const AtollType type = AtollTensorType(output);
    if (AtollTensorNumDims(output) != 3 ||
        (type != ATOLL_FLOAT32 && type != ATOLL_INT8 && type != ATOLL_UINT8)) {
      continue;
    }
    const int32_t rows = AtollTensorDim(output, 1);
    const int32_t columns = AtollTensorDim(output, 2);
    const bool boxes = count >= 2 && rows >= kManyAnchors && columns == 4;
    const bool boxes_and_scores = count == 1 && std::max(rows, columns) >= kManyAnchors &&
                                  std::min(rows, columns) >= 5 && rows != columns;
    if (boxes || boxes_and_scores) return output;
  }
  return nullptr;
}

std::string RawBoxesText(const AtollTensor* output) {
  return fmt::format(
      "the model's output {} looks like the raw boxes of a detector; export the model with the "
      "operator TFLite_Detection_PostProcess at its end",
      InputText(output));
}

}  // namespace

std::vector<Finding> LintModel(AtollInterpreter* interpreter, const ModelUse& use) {
  std::vector<Finding> findings;
  LintPlacement(interpreter, use.lists_reasons, &findings);
  if (use.takes_picture) LintPictureInput(interpreter, use.scaling_given, &findings);
  if (use.task == Task::kClassify) LintScores(interpreter, &findings);
  if (use.task == Task::kSegment) LintSegmentation(interpreter, &findings);
  if (use.task == Task::kNone && use.takes_picture) {
    if (const AtollTensor* boxes = FindRawBoxes(interpreter)) {
      findings.push_back({"raw_detector", RawBoxesText(boxes)});
    }
  }
  return findings;
}

std::optional<Finding> LintLabels(const std::string& path, const std::vector<std::string>& names,
                                  int offset, const ClassCount& classes) {
  const auto count = static_cast<int64_t>(names.size()) - offset;
  if (count >= classes.least && count <= classes.most) return std::nullopt;
  const bool fewer = count < classes.least;
  std::string message = fmt::format(
      "the label file '{}' has {} labels, but the model has {}{} "
      "classes",
      path, names.size(), fewer ? "" : "only ", fewer ? classes.least : classes.most);
  if (offset != 0) message += fmt::format(" and --label-offset is {}", offset);
  if (fewer && offset == 0 && count + 1 == classes.least) {
    message +=
        "; if it leaves out the background, which is the model's class 0, add "
        "--label-offset -1";
  } else if (!fewer && offset == 0 && count == classes.most + 1) {
    message += fmt::format(
        "; if its first label, '{}', is a background that the model does not "
        "have, add --label-offset 1",
        names[0]);
  } else if (names.size() == 80 && classes.least == 90) {
    message +=
        "; COCO's 80 names fit models without the gaps in its numbers, this one needs the "
        "list of 90";
  } else {
    message += "; use the label file that belongs to this model";
  }
  return Finding{"label_count", std::move(message)};
}

std::string AdviseTask(AtollInterpreter* interpreter, Task wanted) {
  const auto advice = [](const char* kind, Task task) {
    return fmt::format("it {}; use 'atoll {}'", kind, atollrt::TaskName(task));
  };
  const Task task = atollrt::IdentifyTask(interpreter);
  if (task != wanted) {
    switch (task) {
      case Task::kClassify:
        return advice("looks like a classifier", task);
      case Task::kDetect:
        return advice("is a detector", task);
      case Task::kSegment:
        return advice("looks like a segmentation", task);
      case Task::kPose:
        return advice("is a pose model", task);
      case Task::kNone:
        break;
    }
  }
  if (const AtollTensor* boxes = FindRawBoxes(interpreter)) return RawBoxesText(boxes);
  return "use 'atoll run'";
}

bool SeemsToTakePictures(AtollInterpreter* interpreter) {
  if (AtollInterpreterGetInputTensorCount(interpreter) != 1) return false;
  const AtollTensor* input = AtollInterpreterGetInputTensor(interpreter, 0);
  const int32_t rank = AtollTensorNumDims(input);
  if (rank != 3 && rank != 4) return false;
  return LooksLikePicture(AtollTensorDim(input, 1), AtollTensorDim(input, 2)) ||
         LintInputShape(input).has_value();
}

std::string AdviseInput(AtollInterpreter* interpreter) {
  if (AtollInterpreterGetInputTensorCount(interpreter) == 1) {
    if (const auto finding = LintInputShape(AtollInterpreterGetInputTensor(interpreter, 0))) {
      return finding->message;
    }
  }
  return "use 'atoll run'";
}

}  // namespace atollcmd
