// SPDX-License-Identifier: Apache-2.0
//
// MobileNet v1 (Howard et al. 2017, arXiv 1704.04861) and v2 (Sandler et al. 2018, arXiv
// 1801.04381), and PoseNet on v1 (Papandreou et al. 2018, arXiv 1803.08225).
#include <algorithm>

#include "models/zoo/networks.h"

namespace atollrt {

void ConvolutionalClassifier(NetworkBuilder* b, int32_t input, int32_t classes) {
  const int32_t scores = b->Conv(input, classes, Linear(Square(1), kLogitGain));
  b->Output(b->Softmax(b->Reshape(scores, {1, classes})));
}

void DenseClassifier(NetworkBuilder* b, int32_t input, int32_t classes) {
  b->Output(b->Softmax(b->FullyConnected(input, classes, Activation::kNone, kLogitGain)));
}

int32_t ScaledChannels(int32_t channels, double width, int32_t divisor) {
  const double scaled = channels * width;
  const int32_t rounded =
      std::max(divisor, static_cast<int32_t>(scaled + divisor / 2.0) / divisor * divisor);
  return rounded < 0.9 * scaled ? rounded + divisor : rounded;
}

std::vector<int32_t> MobileNetV1Body(NetworkBuilder* b, int32_t input,
                                     const MobileNetV1Shape& shape) {
  struct Block {
    int32_t channels, stride;
  };
  const Block blocks[] = {{64, 1},
                          {128, 2},
                          {128, 1},
                          {256, 2},
                          {256, 1},
                          {512, 2},
                          {512, 1},
                          {512, 1},
                          {512, 1},
                          {512, 1},
                          {512, 1},
                          {shape.last_channels, shape.last_stride},
                          {shape.last_channels, 1}};
  const auto scaled = [&shape](int32_t channels) {
    return std::max(8, static_cast<int32_t>(channels * shape.width));
  };
  std::vector<int32_t> outputs = {b->Conv(input, scaled(32), WithRelu6(Square(3, 2)))};
  for (const Block& block : blocks) {
    const int32_t filtered = b->Depthwise(outputs.back(), WithRelu6(Square(3, block.stride)));
    outputs.push_back(b->Conv(filtered, scaled(block.channels), WithRelu6(Square(1))));
  }
  return outputs;
}

MobileNetV2Features MobileNetV2Body(NetworkBuilder* b, int32_t input,
                                    const MobileNetV2Shape& shape) {
  struct Stage {
    int32_t expansion, channels, blocks, stride;
  };
  constexpr Stage kStages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                               {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  constexpr size_t kDilatedFrom = 13;
  MobileNetV2Features features;
  int32_t x =
      b->Conv(input, ScaledChannels(32, shape.width, shape.divisor), WithRelu6(Square(3, 2)));
  for (const Stage& stage : kStages) {
    const int32_t channels = ScaledChannels(stage.channels, shape.width, shape.divisor);
    for (int32_t i = 0; i < stage.blocks; ++i) {
      Window filter = WithRelu6(Square(3, i == 0 ? stage.stride : 1));
      if (shape.dilated_last_stage && features.outputs.size() >= kDilatedFrom) {
        // The stride goes, and what follows it reaches twice as far.
        filter.dilation = features.outputs.size() == kDilatedFrom ? 1 : 2;
        filter.stride = 1;
      }
      int32_t y = x;
      if (stage.expansion > 1) {
        y = b->Conv(x, b->channels(x) * stage.expansion, WithRelu6(Square(1)));
      }
      features.expansions.push_back(y);
      y = b->Depthwise(y, filter);
      y = b->Conv(y, channels, Linear(Square(1)));
      x = i == 0 ? y : b->Add(x, y, Activation::kNone);
      features.outputs.push_back(x);
    }
  }
  return features;
}

void MobileNetV1(NetworkBuilder* b, const ZooParameters& p) {
  const int32_t x = MobileNetV1Body(b, b->Input(p.height, p.columns), {.width = p.width}).back();
  ConvolutionalClassifier(b, b->GlobalAveragePool(x), 1001);
}

void MobileNetV2(NetworkBuilder* b, const ZooParameters& p) {
  int32_t x = MobileNetV2Body(b, b->Input(p.height, p.columns), {.width = p.width}).outputs.back();
  // The last layer is scaled up, never down.
  x = b->Conv(x, ScaledChannels(1280, std::max(p.width, 1.0)), WithRelu6(Square(1)));
  ConvolutionalClassifier(b, b->GlobalAveragePool(x), 1001);
}

void PoseNetMobileNetV1(NetworkBuilder* b, const ZooParameters& p) {
  constexpr int32_t kKeypoints = 17, kEdges = 16, kStride = 16;
  constexpr int32_t kPoses = 20;
  const int32_t x = MobileNetV1Body(b, b->Input(p.height, p.columns),
                                    {.width = p.width, .last_channels = 512, .last_stride = 1})
                        .back();
  const int32_t forward = b->Conv(x, 2 * kEdges, Linear(Square(1)));
  const int32_t backward = b->Conv(x, 2 * kEdges, Linear(Square(1)));
  const int32_t displacements = b->Concat({forward, backward});
  const int32_t heatmaps = b->Conv(x, kKeypoints, Linear(Square(1)));
  const int32_t offsets = b->Conv(x, 2 * kKeypoints, Linear(Square(1)));
  for (const int32_t output :
       b->Custom("PosenetDecoderOp",
                 PosenetOptions{.max_detections = kPoses,
                 .stride = kStride,
                 .score_threshold = 0.2f,
                 .nms_radius = 10},
                 {b->ToUInt8(heatmaps), b->ToUInt8(offsets), b->ToUInt8(displacements)},
                 {{1, kPoses, kKeypoints, 2}, {1, kPoses, kKeypoints}, {1, kPoses}, {1}})) {
    b->Output(output);
  }
}

}  // namespace atollrt
