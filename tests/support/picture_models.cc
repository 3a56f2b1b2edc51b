// SPDX-License-Identifier: Apache-2.0
#include "tests/support/picture_models.h"

#include <flatbuffers/flexbuffers.h>

#include <functional>
#include <string>
#include <utility>

namespace atollrt {
namespace {

int32_t FloatTensor(ModelBuilder& m, Shape shape) {
  const int32_t tensor = m.Activation(std::move(shape));
  m.tensor(tensor).type = DataType::kFloat32;
  m.tensor(tensor).quantization = {};
  return tensor;
}

// Adds a custom operator with float32 outputs, which become those of the model.
void AddDecoder(ModelBuilder& m, const std::string& name, std::vector<int32_t> inputs,
                const std::vector<Shape>& outputs,
                const std::function<void(flexbuffers::Builder*)>& options) {
  flexbuffers::Builder builder;
  builder.Map([&] { options(&builder); });
  builder.Finish();
  // Kept where the graph's other bytes are.
  const std::vector<uint8_t>& bytes = builder.GetBuffer();
  const int32_t holder = m.Constant(DataType::kUInt8, {static_cast<int32_t>(bytes.size())}, bytes);
  Node node;
  node.type = OpType::kCUSTOM;
  node.custom_name = name;
  node.custom_options = m.tensor(holder).data;
  node.inputs = std::move(inputs);
  for (const Shape& shape : outputs) node.outputs.push_back(FloatTensor(m, shape));
  m.graph().outputs = node.outputs;
  m.graph().nodes.push_back(std::move(node));
}

constexpr int kAnchors = 4;

// TFLite_Detection_PostProcess at the end of a model, all of whose tensors become uint8, in
// sixteenths.
void AddDetection(ModelBuilder& m, const std::vector<uint8_t>& anchor_bytes, int32_t boxes,
                  int32_t scores, int entries, int score_count) {
  const int32_t anchors = m.Constant(DataType::kUInt8, {kAnchors, 4}, anchor_bytes);
  for (Tensor& tensor : m.graph().tensors) {
    if (tensor.type == DataType::kInt32) continue;  // shapes
    tensor.type = DataType::kUInt8;
    tensor.quantization = {.scales = {1.0f / 16}, .zero_points = {0}};
  }
  AddDecoder(m, "TFLite_Detection_PostProcess", {boxes, scores, anchors},
             {{1, entries, 4}, {1, entries}, {1, entries}, {1}}, [&](flexbuffers::Builder* b) {
               b->Int("max_detections", entries);
               b->Int("max_classes_per_detection", 1);
               b->Int("num_classes", score_count - 1);
               b->Float("nms_score_threshold", 0.1f);
               b->Float("nms_iou_threshold", 0.6f);
               for (const char* scale : {"y_scale", "x_scale", "h_scale", "w_scale"}) {
                 b->Float(scale, 10.0f);
               }
             });
}

}  // namespace

ModelBuilder DetectorModel(int entries, int score_count) {
  ModelBuilder m;
  const int32_t boxes = m.Relu(m.Input({1, kAnchors, 4}));
  const int32_t scores = m.Relu(m.Input({1, kAnchors, score_count}));
  AddDetection(m, std::vector<uint8_t>(size_t{4} * kAnchors, 8), boxes, scores, entries,
               score_count);
  return m;
}

ModelBuilder PictureDetectorModel() {
  constexpr int kScores = 3;
  ModelBuilder m;
  const int32_t boxes = m.Reshape(m.Relu(m.Input({1, 4, 4, 1})), {1, kAnchors, 4});
  // Per anchor: background, class 0, class 1.
  const int32_t scores =
      m.Constant(DataType::kUInt8, {1, kAnchors, kScores}, {0, 0, 15, 0, 12, 0, 0, 0, 0, 0, 0, 0});
  // So far from each other that they never are one thing, and always within the picture.
  AddDetection(m, {1, 1, 4, 4, 8, 8, 4, 4, 8, 8, 4, 4, 8, 8, 4, 4}, boxes, scores, kAnchors,
               kScores);
  return m;
}

ModelBuilder PosenetModel(int entries) {
  ModelBuilder m;
  m.Relu(m.Input({1, 33, 49, 3}));
  std::vector<int32_t> maps;
  for (const int channels : {17, 34, 64}) maps.push_back(m.Relu(m.Input({1, 3, 4, channels})));
  for (Tensor& tensor : m.graph().tensors) {
    tensor.type = DataType::kUInt8;
    tensor.quantization = {.scales = {1.0f / 16}, .zero_points = {0}};
  }
  AddDecoder(m, "PosenetDecoderOp", maps,
             {{1, entries, 17, 2}, {1, entries, 17}, {1, entries}, {1}},
             [&](flexbuffers::Builder* b) {
               b->Int("max_detections", entries);
               b->Int("stride", 16);
               b->Float("score_threshold", 0.5f);
               b->Float("nms_radius", 20.0f);
             });
  return m;
}

ModelBuilder ModelWithInput(const Shape& shape, DataType type, float scale, int32_t zero_point) {
  ModelBuilder m;
  m.Output(m.Reshape(m.Input(shape), shape));
  for (Tensor& tensor : m.graph().tensors) {
    tensor.type = type;
    tensor.quantization = {};
    if (scale != 0) tensor.quantization = {.scales = {scale}, .zero_points = {zero_point}};
  }
  return m;
}

ModelBuilder ModelWithOutput(Shape picture, DataType type, Shape output) {
  ModelBuilder m;
  const int32_t input = m.Input(std::move(picture));
  m.Relu(input);
  // Something that makes any shape: a constant, copied.
  const size_t bytes = static_cast<size_t>(ElementCount(output)) * DataTypeSize(type);
  const int32_t constant = m.Constant(type, output, std::vector<uint8_t>(bytes));
  const int32_t copy = m.Reshape(constant, output);
  m.tensor(copy).type = type;
  m.tensor(copy).quantization = m.tensor(constant).quantization;
  m.Output(copy);
  return m;
}

PreparedModel::PreparedModel(const ModelBuilder& builder) {
  const std::vector<uint8_t> file = builder.Build();
  AtollModel* model = nullptr;
  AtollInterpreter* interpreter = nullptr;
  EXPECT_EQ(AtollModelCreateFromBuffer(file.data(), file.size(), &model), ATOLL_OK)
      << AtollLastError();
  EXPECT_EQ(AtollInterpreterCreate(model, nullptr, &interpreter), ATOLL_OK) << AtollLastError();
  AtollModelDelete(model);
  interpreter_.reset(interpreter);
}

}  // namespace atollrt
