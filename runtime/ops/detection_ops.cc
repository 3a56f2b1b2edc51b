// SPDX-License-Identifier: Apache-2.0
//
// Operators that decode detections and poses: TFLite_Detection_PostProcess, PosenetDecoderOp.
#include <algorithm>
#include <functional>
#include <iterator>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/kernels/detection.h"
#include "runtime/kernels/posenet_decoder.h"
#include "runtime/kernels/row_loops/row_loops.h"
#include "runtime/kernels/scratch.h"
#include "runtime/ops/executors.h"

namespace atollrt {
namespace {

// Brings a uint8 or float32 tensor to float32: (q - zero point) * scale, rounded once.
class FloatReader {
 public:
  // `factor` multiplies all numbers; for uint8 it goes into the scale.
  static Result<FloatReader> Make(const Tensor& tensor, const RowLoops& loops, float factor = 1) {
    FloatReader reader;
    reader.count_ = tensor.element_count();
    reader.factor_ = factor;
    if (tensor.type == DataType::kFloat32) return reader;
    if (tensor.type != DataType::kUInt8) {
      return Unsupported("input '%s' has type %s, must be uint8 or float32", tensor.name.c_str(),
                         DataTypeName(tensor.type));
    }
    if (!(tensor.scale() > 0)) {
      return CorruptModel("input '%s' has %zu scales, must have 1, positive", tensor.name.c_str(),
                          tensor.quantization.scales.size());
    }
    reader.format_ = {tensor.scale() * factor, tensor.zero_point()};
    reader.dequantize_ = loops.dequantize(Element::kUInt8);
    return reader;
  }

  int64_t count() const { return count_; }
  bool has_codes() const { return dequantize_ != nullptr; }

  void Read(const uint8_t* bytes, float* out) const {
    if (has_codes()) {
      dequantize_(format_, bytes, reinterpret_cast<uint8_t*>(out), count_);
      return;
    }
    for (int64_t i = 0; i < count_; ++i) out[i] = LoadLittleEndian<float>(bytes + 4 * i) * factor_;
  }

  // The values of all codes, if there are any.
  void ReadCodes(float (&values)[256]) const {
    uint8_t codes[256];
    for (int code = 0; code < 256; ++code) codes[code] = static_cast<uint8_t>(code);
    dequantize_(format_, codes, reinterpret_cast<uint8_t*>(values), 256);
  }

 private:
  int64_t count_ = 0;
  float factor_ = 1;
  AffineFormat format_;
  DequantizeFn dequantize_ = nullptr;  // nullptr: the tensor is float32
};

// The inputs of PosenetDecoderOp, as float32.
struct FloatInputs {
  float* data[4] = {};      // nullptr: absent
  uint8_t* rest = nullptr;  // scratch of the kernel
};
FloatInputs TakeInputs(const std::vector<FloatReader>& readers, size_t rest, Scratch* scratch) {
  FloatInputs inputs;
  for (size_t i = 0; i < readers.size(); ++i) {
    inputs.data[i] = scratch->Take<float>(readers[i].count());
  }
  inputs.rest = scratch->Take<uint8_t>(static_cast<int64_t>(rest));
  return inputs;
}

Status CheckFloatOutputs(const Graph& graph, const Node& node) {
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const Tensor& output = graph.Output(node, i);
    if (output.type != DataType::kFloat32) {
      return Unsupported("output %zu has type %s, must be float32", i, DataTypeName(output.type));
    }
  }
  return Status();
}

float* AsFloat(uint8_t* bytes) { return reinterpret_cast<float*>(bytes); }

class DetectionExecutor final : public NodeExecutor {
 public:
  DetectionExecutor(const DetectionParams& params, const RowLoops& loops,
                    const FloatReader& encodings, const FloatReader& scores,
                    const FloatReader& anchors)
      : params_(params),
        loops_(loops),
        encodings_(encodings),
        scores_(scores),
        anchors_(anchors),
        kernel_bytes_(DetectionScratchBytes(params)) {
    float values[256];
    if (encodings.has_codes()) {
      encodings.ReadCodes(values);
      terms_ = MakeEncodingTerms(params, values);
    }
    if (scores.has_codes() && TakesScoreCodes(params)) {
      scores.ReadCodes(score_values_);
      // Tiny scales may give neighbouring codes one value.
      takes_score_codes_ = std::adjacent_find(std::begin(score_values_), std::end(score_values_),
                                              std::greater_equal<>()) == std::end(score_values_);
    }
  }

  size_t ScratchBytes(int) const override {
    Scratch scratch(nullptr);
    Take(&scratch);
    return scratch.size();
  }

  Status Invoke(const NodeIo& io) override {
    Scratch scratch(io.scratch);
    const Arrays arrays = Take(&scratch);
    DetectionInputs inputs;
    if (encodings_.has_codes()) {
      inputs.encoding_codes = io.inputs[0];
      inputs.terms = &terms_;
    } else {
      encodings_.Read(io.inputs[0], arrays.encodings);
      inputs.encodings = arrays.encodings;
    }
    if (takes_score_codes_) {
      inputs.score_codes = io.inputs[1];
      inputs.score_values = score_values_;
    } else {
      scores_.Read(io.inputs[1], arrays.scores);
      inputs.scores = arrays.scores;
    }
    anchors_.Read(io.inputs[2], arrays.anchors);
    inputs.anchor_boxes = arrays.anchors;
    const DetectionOutputs outputs{.boxes = AsFloat(io.outputs[0]),
                                   .classes = AsFloat(io.outputs[1]),
                                   .scores = AsFloat(io.outputs[2]),
                                   .count = AsFloat(io.outputs[3])};
    if (!DetectionPostProcess(params_, loops_, inputs, outputs, arrays.rest)) {
      return InvalidArgument(
          "a decoded box ends before it begins; anchors must have positive sizes");
    }
    return Status();
  }

 private:
  // As float32, if that is how the kernel takes them.
  struct Arrays {
    float* encodings;
    float* scores;
    float* anchors;
    uint8_t* rest;
  };
  Arrays Take(Scratch* scratch) const {
    return {scratch->Take<float>(encodings_.has_codes() ? 0 : encodings_.count()),
            scratch->Take<float>(takes_score_codes_ ? 0 : scores_.count()),
            scratch->Take<float>(anchors_.count()),
            scratch->Take<uint8_t>(static_cast<int64_t>(kernel_bytes_))};
  }

  const DetectionParams params_;
  const RowLoops& loops_;
  const FloatReader encodings_, scores_, anchors_;
  const size_t kernel_bytes_;
  EncodingTerms terms_;
  float score_values_[256];
  bool takes_score_codes_ = false;
};

}  // namespace

Executor PrepareDetectionPostProcess(const Graph& graph, const Node& node, CpuFeatures features) {
  ATOLL_RETURN_IF_ERROR(CheckFloatOutputs(graph, node));
  const DetectionOptions& options = std::get<DetectionOptions>(node.options);
  const Tensor& encodings = *graph.Input(node, 0);
  const Tensor& scores = *graph.Input(node, 1);
  const Tensor& anchors = *graph.Input(node, 2);
  if (anchors.type != encodings.type) {
    return Unsupported("anchors have type %s, encodings %s", DataTypeName(anchors.type),
                       DataTypeName(encodings.type));
  }
  const DetectionParams params{
      .anchors = encodings.shape[1],
      .encoding_width = encodings.shape[2],
      .score_columns = scores.shape[2],
      .num_classes = options.num_classes,
      .max_detections = options.max_detections,
      .max_classes_per_detection = options.max_classes_per_detection,
      .detections_per_class = options.detections_per_class,
      .mode = options.use_regular_nms ? SuppressionMode::kRegular : SuppressionMode::kFast,
      .score_threshold = options.score_threshold,
      .iou_threshold = options.iou_threshold,
      .y_scale = options.y_scale,
      .x_scale = options.x_scale,
      .h_scale = options.h_scale,
      .w_scale = options.w_scale};
  const RowLoops& loops = ChooseRowLoops(features);
  ATOLL_ASSIGN_OR_RETURN(const FloatReader encoding_reader, FloatReader::Make(encodings, loops));
  ATOLL_ASSIGN_OR_RETURN(const FloatReader score_reader, FloatReader::Make(scores, loops));
  ATOLL_ASSIGN_OR_RETURN(const FloatReader anchor_reader, FloatReader::Make(anchors, loops));
  return std::unique_ptr<NodeExecutor>(std::make_unique<DetectionExecutor>(
      params, loops, encoding_reader, score_reader, anchor_reader));
}

Executor PreparePosenetDecoder(const Graph& graph, const Node& node, CpuFeatures features) {
  ATOLL_RETURN_IF_ERROR(CheckFloatOutputs(graph, node));
  const PosenetOptions& options = std::get<PosenetOptions>(node.options);
  const Shape& map = graph.Input(node, 0)->shape;
  const PosenetParams params{.h = map[1],
                             .w = map[2],
                             .max_detections = options.max_detections,
                             .stride = options.stride,
                             .score_threshold = options.score_threshold,
                             .nms_radius = options.nms_radius};
  const float cells_per_pixel = 1.0f / static_cast<float>(options.stride);
  std::vector<FloatReader> readers;
  const bool has_masks = graph.Input(node, 3) != nullptr;
  if (has_masks && !PosenetMasksFit(params)) {
    return Unsupported(
        "long offsets '%s' of %d x %d cells, whose masks leave the output of %d x %d per pose",
        graph.Input(node, 3)->name.c_str(), params.h, params.w, kPosenetMaskSize, kPosenetMaskSize);
  }
  for (size_t i = 0; i < (has_masks ? 4 : 3); ++i) {
    ATOLL_ASSIGN_OR_RETURN(FloatReader reader,
                           FloatReader::Make(*graph.Input(node, i), ChooseRowLoops(features),
                                             i == 0 ? 1.0f : cells_per_pixel));
    readers.push_back(std::move(reader));
  }
  const size_t kernel_bytes = PosenetScratchBytes(params);
  Scratch measure(nullptr);
  TakeInputs(readers, kernel_bytes, &measure);
  const auto decode = [params, readers = std::move(readers), kernel_bytes](const NodeIo& io) {
    Scratch scratch(io.scratch);
    const FloatInputs inputs = TakeInputs(readers, kernel_bytes, &scratch);
    for (size_t i = 0; i < readers.size(); ++i) readers[i].Read(io.inputs[i], inputs.data[i]);
    DecodePoses(params,
                {.heat = inputs.data[0],
                 .short_offsets = inputs.data[1],
                 .mid_offsets = inputs.data[2],
                 .long_offsets = inputs.data[3]},
                {.keypoints = AsFloat(io.outputs[0]),
                 .keypoint_scores = AsFloat(io.outputs[1]),
                 .pose_scores = AsFloat(io.outputs[2]),
                 .count = AsFloat(io.outputs[3]),
                 .masks = inputs.data[3] == nullptr ? nullptr : AsFloat(io.outputs[4])},
                inputs.rest);
  };
  return Run(decode, measure.size());
}

}  // namespace atollrt
