// SPDX-License-Identifier: Apache-2.0
//
// Single-shot detectors (Liu et al. 2015, arXiv 1512.02325) with 90 classes as in TensorFlow's
// detection models: on MobileNet v1 and v2, and on MobileDet (Xiong et al. 2020, arXiv 2004.14525)
// with depthwise heads.
#include <algorithm>
#include <cmath>

#include "models/zoo/networks.h"

namespace atollrt {
namespace {

constexpr int32_t kClasses = 91;  // with the background
constexpr int32_t kCoordinates = 4;
constexpr int32_t kDetections = 10;

enum class Heads { kConvolutions, kDepthwise };

// Anchors of one feature map: squares of growing size around the middle of each cell.
void AppendAnchors(const Shape& map, int32_t per_cell, double size, std::vector<float>* anchors) {
  for (int32_t y = 0; y < map[1]; ++y) {
    for (int32_t x = 0; x < map[2]; ++x) {
      for (int32_t i = 0; i < per_cell; ++i) {
        const float side = static_cast<float>(size * (1 + 0.2 * i));
        anchors->insert(anchors->end(),
                        {(static_cast<float>(y) + 0.5f) / static_cast<float>(map[1]),
                         (static_cast<float>(x) + 0.5f) / static_cast<float>(map[2]), side, side});
      }
    }
  }
}

int32_t Head(NetworkBuilder* b, int32_t map, int32_t channels, Heads heads) {
  if (heads == Heads::kDepthwise) map = b->Depthwise(map, WithRelu6(Square(3)));
  return b->Conv(map, channels, Linear(Square(1)));
}

// Four more, ever smaller feature maps.
void AppendFeatureMaps(NetworkBuilder* b, double width, Heads heads, std::vector<int32_t>* maps) {
  for (const int32_t channels : {512, 256, 256, 128}) {
    const int32_t scaled = ScaledChannels(channels, width);
    int32_t x = b->Conv(maps->back(), scaled / 2, WithRelu6(Square(1)));
    if (heads == Heads::kDepthwise) {
      x = b->Depthwise(x, WithRelu6(Square(3, 2)));
      x = b->Conv(x, scaled, WithRelu6(Square(1)));
    } else {
      x = b->Conv(x, scaled, WithRelu6(Square(3, 2)));
    }
    maps->push_back(x);
  }
}

void Detect(NetworkBuilder* b, const std::vector<int32_t>& maps, Heads heads) {
  std::vector<int32_t> boxes, classes;
  std::vector<float> anchors;
  double size = 0.2;
  for (const int32_t map : maps) {
    const int32_t per_cell = map == maps[0] ? 3 : 6;
    const int32_t cells = b->shape(map)[1] * b->shape(map)[2];
    boxes.push_back(b->Reshape(Head(b, map, per_cell * kCoordinates, heads),
                               {1, cells * per_cell, kCoordinates}));
    classes.push_back(
        b->Reshape(Head(b, map, per_cell * kClasses, heads), {1, cells * per_cell, kClasses}));
    AppendAnchors(b->shape(map), per_cell, size, &anchors);
    size = std::min(size + 0.15, 0.95);
  }
  const int32_t all_boxes = b->Dequantize(b->ConcatAlong(boxes, 1));
  const int32_t all_classes = b->Dequantize(b->Logistic(b->ConcatAlong(classes, 1)));
  const int32_t count = static_cast<int32_t>(anchors.size()) / kCoordinates;
  const int32_t grid = b->Floats({count, kCoordinates}, anchors);
  for (const int32_t output :
       b->Custom("TFLite_Detection_PostProcess",
                 DetectionOptions{.max_detections = kDetections,
                 .max_classes_per_detection = 1,
                 .num_classes = kClasses - 1,
                 .score_threshold = 1e-8f,
                 .iou_threshold = 0.6f,
                 .y_scale = 10,
                 .x_scale = 10,
                 .h_scale = 5,
                 .w_scale = 5},
                 {all_boxes, all_classes, grid},
                 {{1, kDetections, kCoordinates}, {1, kDetections}, {1, kDetections}, {1}})) {
    b->Output(output);
  }
}

// ---- MobileDet ----------------------------------------------------------------------------------

enum class Skip { kNone, kAdd };

int32_t Project(NetworkBuilder* b, int32_t x, int32_t y, int32_t channels, Skip skip) {
  y = b->Conv(y, channels, Linear(Square(1)));
  return skip == Skip::kAdd ? b->Add(x, y, Activation::kNone) : y;
}

// Expansion by a full convolution.
int32_t Fused(NetworkBuilder* b, int32_t x, int32_t channels, int32_t expansion,
              const Window& window, Skip skip) {
  const int32_t y = b->Conv(x, b->channels(x) * expansion, WithRelu6(window));
  return Project(b, x, y, channels, skip);
}

// Expansion by a pointwise and a depthwise convolution.
int32_t Bottleneck(NetworkBuilder* b, int32_t x, int32_t channels, int32_t expansion,
                   const Window& window, Skip skip) {
  const int32_t y = b->Conv(x, b->channels(x) * expansion, WithRelu6(Square(1)));
  return Project(b, x, b->Depthwise(y, WithRelu6(window)), channels, skip);
}

// The feature maps of strides 16 and 32.
std::vector<int32_t> MobileDetBody(NetworkBuilder* b, int32_t x) {
  x = b->Conv(x, 32, WithRelu6(Square(3, 2)));
  // Compression to 32 / 4 channels, then to 16 * 3 / 4, rounded to 8.
  x = b->Conv(b->Conv(x, 8, WithRelu6(Square(1))), 16, WithRelu6(Square(3)));
  x = b->Conv(x, 16, Linear(Square(1)));
  x = Fused(b, x, 16, 8, Square(3, 2), Skip::kNone);
  for (const int32_t expansion : {4, 8, 4}) x = Fused(b, x, 16, expansion, Square(3), Skip::kAdd);
  x = Fused(b, x, 40, 8, Square(5, 2), Skip::kNone);
  for (int i = 0; i < 3; ++i) x = Fused(b, x, 40, 4, Square(3), Skip::kAdd);
  x = Bottleneck(b, x, 72, 8, Square(3, 2), Skip::kNone);
  x = Bottleneck(b, x, 72, 8, Square(3), Skip::kAdd);
  for (int i = 0; i < 2; ++i) x = Fused(b, x, 72, 4, Square(3), Skip::kAdd);
  x = Bottleneck(b, x, 96, 8, Square(5), Skip::kNone);
  x = Bottleneck(b, x, 96, 8, Square(5), Skip::kAdd);
  for (int i = 0; i < 2; ++i) x = Bottleneck(b, x, 96, 8, Square(3), Skip::kAdd);
  const int32_t stride16 = x;
  x = Bottleneck(b, x, 120, 8, Square(5, 2), Skip::kNone);
  x = Bottleneck(b, x, 120, 8, Square(3), Skip::kAdd);
  x = Bottleneck(b, x, 120, 4, Square(5), Skip::kAdd);
  x = Bottleneck(b, x, 120, 8, Square(3), Skip::kAdd);
  x = Bottleneck(b, x, 384, 8, Square(5), Skip::kNone);
  return {stride16, x};
}

}  // namespace

void SsdMobileNetV1(NetworkBuilder* b, const ZooParameters& p) {
  const std::vector<int32_t> body =
      MobileNetV1Body(b, b->Input(p.height, p.columns), {.width = p.width});
  std::vector<int32_t> maps = {body[11], body[13]};
  AppendFeatureMaps(b, p.width, Heads::kConvolutions, &maps);
  Detect(b, maps, Heads::kConvolutions);
}

void SsdMobileNetV2(NetworkBuilder* b, const ZooParameters& p) {
  const MobileNetV2Features body =
      MobileNetV2Body(b, b->Input(p.height, p.columns), {.width = p.width});
  const int32_t last = b->Conv(body.outputs.back(), ScaledChannels(1280, std::max(p.width, 1.0)),
                               WithRelu6(Square(1)));
  std::vector<int32_t> maps = {body.expansions[13], last};
  AppendFeatureMaps(b, 1, Heads::kConvolutions, &maps);
  Detect(b, maps, Heads::kConvolutions);
}

void SsdliteMobileDet(NetworkBuilder* b, const ZooParameters& p) {
  std::vector<int32_t> maps = MobileDetBody(b, b->Input(p.height, p.columns));
  AppendFeatureMaps(b, 1, Heads::kDepthwise, &maps);
  Detect(b, maps, Heads::kDepthwise);
}

}  // namespace atollrt
