// SPDX-License-Identifier: Apache-2.0
//
// The families of the zoo, for zoo.cc: each adds a whole network, from Input to Output.
#pragma once

#include <cstdint>
#include <vector>

#include "models/zoo/network_builder.h"

namespace atollrt {

struct ZooParameters {
  double width = 1;                 // multiplier of all channels
  int32_t height = 0, columns = 0;  // of the picture
};

// A window of k x k, and of h x w.
inline Window Square(int32_t k, int32_t stride = 1, Padding padding = Padding::kSame) {
  return {.h = k, .w = k, .stride = stride, .padding = padding};
}
inline Window Line(int32_t h, int32_t w) { return {.h = h, .w = w}; }
// The same window without an activation.
inline Window Linear(Window window, double gain = 1) {
  window.activation = Activation::kNone;
  window.gain = gain;
  return window;
}
inline Window WithRelu6(Window window) {
  window.activation = Activation::kRelu6;
  return window;
}

// Scores that differ enough for a softmax over a thousand of them to have a first.
inline constexpr double kLogitGain = 6;
// [1, 1, 1, c] -> softmax over classes, by a 1x1 convolution or a fully-connected layer.
void ConvolutionalClassifier(NetworkBuilder* b, int32_t input, int32_t classes);
void DenseClassifier(NetworkBuilder* b, int32_t input, int32_t classes);

// `channels` scaled by `width`, rounded to a multiple of `divisor` but not down by over a tenth.
int32_t ScaledChannels(int32_t channels, double width, int32_t divisor = 8);

// The body of MobileNet v1: the outputs of its convolution and 13 blocks.
struct MobileNetV1Shape {
  double width = 1;
  int32_t last_channels = 1024;  // of the last two blocks, before scaling
  int32_t last_stride = 2;       // of the block before the last
};
std::vector<int32_t> MobileNetV1Body(NetworkBuilder* b, int32_t input,
                                     const MobileNetV1Shape& shape);

// The body of MobileNet v2: of its 17 blocks, what the expansions and what the blocks give. The
// first block has no expansion; its place holds the block's input.
struct MobileNetV2Shape {
  double width = 1;
  int32_t divisor = 8;              // of channels
  bool dilated_last_stage = false;  // dilation 2 instead of stride 2 from the 14th block on
};
struct MobileNetV2Features {
  std::vector<int32_t> expansions, outputs;
};
MobileNetV2Features MobileNetV2Body(NetworkBuilder* b, int32_t input,
                                    const MobileNetV2Shape& shape);

void MobileNetV1(NetworkBuilder* b, const ZooParameters& p);
void MobileNetV2(NetworkBuilder* b, const ZooParameters& p);
void InceptionV1(NetworkBuilder* b, const ZooParameters& p);
void InceptionV3(NetworkBuilder* b, const ZooParameters& p);
void InceptionV4(NetworkBuilder* b, const ZooParameters& p);
void InceptionResNetV2(NetworkBuilder* b, const ZooParameters& p);
void ResNetV1_50(NetworkBuilder* b, const ZooParameters& p);
void ResNetV1_101(NetworkBuilder* b, const ZooParameters& p);
void ResNetV1_152(NetworkBuilder* b, const ZooParameters& p);
void ResNetV2_50(NetworkBuilder* b, const ZooParameters& p);
void ResNetV2_101(NetworkBuilder* b, const ZooParameters& p);
void ResNetV2_152(NetworkBuilder* b, const ZooParameters& p);
void EfficientNetEdgeTpuS(NetworkBuilder* b, const ZooParameters& p);
void EfficientNetEdgeTpuM(NetworkBuilder* b, const ZooParameters& p);
void EfficientNetEdgeTpuL(NetworkBuilder* b, const ZooParameters& p);
void Vgg16(NetworkBuilder* b, const ZooParameters& p);
void Vgg19(NetworkBuilder* b, const ZooParameters& p);
void SqueezeNetV1_0(NetworkBuilder* b, const ZooParameters& p);
void SqueezeNetV1_1(NetworkBuilder* b, const ZooParameters& p);
void DenseNet121(NetworkBuilder* b, const ZooParameters& p);
void SsdMobileNetV1(NetworkBuilder* b, const ZooParameters& p);
void SsdMobileNetV2(NetworkBuilder* b, const ZooParameters& p);
void SsdliteMobileDet(NetworkBuilder* b, const ZooParameters& p);
void DeepLabV3MobileNetV2(NetworkBuilder* b, const ZooParameters& p);
void UNetMobileNetV2(NetworkBuilder* b, const ZooParameters& p);
void PoseNetMobileNetV1(NetworkBuilder* b, const ZooParameters& p);

}  // namespace atollrt
